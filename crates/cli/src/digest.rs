//! `holdgate digest`: what requests would be identified by, one JSON line in, one out. Speaks to no gateway.

use std::io::{BufRead, Write};

use anyhow::{Context as _, ensure};
use holdgate_core::id::trimmed;
use holdgate_core::{Action, Canonical, Kind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::exit::Exit;

/// One line in. Keys that are not named here are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    run_id: String,
    scope: String,
    boundary: String,
    /// As it was written: what cannot be kept exactly must be seen before anything is lost.
    #[serde(borrow)]
    content: &'a RawValue,
}

/// One line out.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    #[serde(rename_all = "camelCase")]
    Identified {
        id: String,
        request_hash: String,
    },
    Failed {
        error: String,
    },
}

/// What the long help adds: the shape of the lines.
pub fn long_help() -> String {
    format!(
        "Each line in is one JSON object:\n  {{\"runId\",\"scope\",\"boundary\",\"content\"}}\n\
         runId, scope and boundary are strings; content is any JSON. The scopes are {}.\n\n\
         Each line out is {{\"id\",\"requestHash\"}} or {{\"error\"}}, in the order of the lines in. The exit code is 1 \
         if any line failed.",
        scopes()
    )
}

/// The known scopes, in a sentence.
fn scopes() -> String {
    Kind::ALL.map(Kind::scope).join(", ")
}

/// Answers line by line until the input ends.
///
/// # Errors
/// The input cannot be read or the output cannot be written.
pub fn run(mut input: impl BufRead, mut output: impl Write) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).context("cannot read the input")? == 0 {
            return Ok(exit);
        }
        let answer = identify(&line).unwrap_or_else(|error| {
            exit = Exit::Failed;
            Answer::Failed { error: format!("{error:#}") }
        });
        let answer = serde_json::to_string(&answer)?;
        writeln!(output, "{answer}").context("cannot write the output")?;
    }
}

fn identify(line: &[u8]) -> anyhow::Result<Answer> {
    let text = std::str::from_utf8(line).context("the line is not UTF-8")?;
    // A list would be taken for the fields in their order.
    ensure!(text.trim_start().starts_with('{'), "a line is one JSON object");
    let request: Request<'_> = serde_json::from_str(text)?;
    let run = trimmed(&request.run_id);
    ensure!(!run.is_empty(), "runId is empty");
    ensure!(!run.chars().any(char::is_control), "runId holds a control character");
    let kind = Kind::of_scope(&request.scope)
        .with_context(|| format!("scope {:?} is not known; it is one of {}", request.scope, scopes()))?;
    let content = Canonical::parse(request.content.get()).context("content")?;
    let action = Action::freeze(kind, &request.boundary, content)?;
    Ok(Answer::Identified {
        id: action.id(&request.run_id).to_string(),
        request_hash: action.digest().to_hex(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(input: &[u8]) -> (Vec<serde_json::Value>, Exit) {
        let mut output = Vec::new();
        let exit = run(input, &mut output).unwrap();
        let lines = String::from_utf8(output).unwrap();
        (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), exit)
    }

    #[test]
    fn every_known_request_is_identified_as_it_should_be() {
        let vectors = include_str!("../../core/tests/fixtures/requests.jsonl");
        let (answers, exit) = answers(vectors.as_bytes());
        assert_eq!((answers.len(), exit), (165, Exit::Done));
        for (line, answer) in vectors.lines().zip(answers) {
            let expected: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&answer["id"], &answer["requestHash"]),
                (&expected["id"], &expected["requestHash"]),
                "{line}"
            );
        }
    }

    #[test]
    fn a_line_that_fails_costs_only_itself() {
        let good = r#"{"runId":"r","scope":"plan","boundary":"coordinator-plan","content":{},"later":1}"#;
        let bad = [
            "{",
            r#"["r","plan","b",{}]"#,
            "{",
            r#"{"runId":"r"}"#,
            r#"{"runId":" ","scope":"plan","boundary":"b","content":{}}"#,
            r#"{"runId":"r","scope":"nothing","boundary":"b","content":{}}"#,
            r#"{"runId":"r","scope":"plan","boundary":" ","content":{}}"#,
            r#"{"runId":"r","scope":"plan","boundary":"b","content":{"a":1,"a":2}}"#,
            r#"{"runId":"r","scope":"plan","boundary":"b","content":9007199254740993}"#,
            r#"{"runId":"r","scope":"plan","boundary":"b","boundary":"c","content":{}}"#,
        ];
        let (answers, exit) = answers(format!("{}\n{good}", bad.join("\n")).as_bytes());
        assert_eq!((answers.len(), exit), (bad.len() + 1, Exit::Failed));
        for (line, answer) in bad.iter().zip(&answers) {
            assert!(answer["error"].is_string(), "{line}: {answer}");
        }
        assert!(answers[bad.len()]["id"].is_string());
    }

    #[test]
    fn an_unknown_scope_is_told_the_known_ones_and_so_is_the_help() {
        let line = br#"{"runId":"r","scope":"tool","boundary":"b","content":{}}"#;
        let (answers, _) = answers(line);
        let known = "exec, plugin, tool_call, task_dispatch, task_round, plan";
        assert_eq!(answers[0]["error"], format!("scope \"tool\" is not known; it is one of {known}"));
        assert!(long_help().contains(known));
    }

    #[test]
    fn a_line_that_is_no_text_is_answered_too() {
        let (answers, exit) = answers(b"\xff\n");
        assert_eq!((answers.len(), exit), (1, Exit::Failed));
    }
}
