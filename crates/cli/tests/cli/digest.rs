//! `digest`: lines in, lines out.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::world::bare;

fn digest(input: &str) -> (i32, Vec<Value>) {
    let mut child = bare().arg("digest").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn every_known_request_comes_out_as_known() {
    let vectors = include_str!("../../../core/tests/fixtures/requests.jsonl");
    let (code, answers) = digest(vectors);
    assert_eq!((code, answers.len()), (0, 165));
    for (line, answer) in vectors.lines().zip(answers) {
        let known: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&answer["id"], &answer["requestHash"]), (&known["id"], &known["requestHash"]), "{line}");
    }
}

#[test]
fn a_bad_line_fails_the_whole_but_stops_nothing() {
    let good = r#"{"runId":"r","scope":"exec","boundary":"b","content":{"argv":["ls"]}}"#;
    let (code, answers) = digest(&format!("nonsense\n{good}\n"));
    assert_eq!(code, 1);
    assert!(answers[0]["error"].is_string() && answers[1]["requestHash"].is_string(), "{answers:?}");
}

#[test]
fn the_help_says_what_a_line_is() {
    let output = bare().args(["digest", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains(r#"{"runId","scope","boundary","content"}"#), "{help}");
    assert!(help.contains("task_dispatch"), "{help}");
}

#[test]
fn nothing_in_is_nothing_out() {
    assert_eq!(digest(""), (0, Vec::new()));
}
