//! A plan from a coordinator: a model that is given a goal and answers with tasks.
//!
//! Owns what it is asked and the strict reading of its answer. Nothing runs while it plans, so nothing is written down:
//! a process that dies then has started nothing.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Deserialize;

use super::task::{InvalidPlan, Priority, TaskSpec, assigned};
use crate::agent::Agent;
use crate::model::{Message, Reply, Transcript};

/// How often an answer that is no plan may be mended.
const REPAIRS: usize = 1;
/// Largest answer that is read, in bytes.
const ANSWER_BYTES: usize = 1 << 20;

/// A task as the coordinator writes it. Anything else in it is refused.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    title: String,
    description: String,
    #[serde(default)]
    assignee: Option<String>,
    #[serde(default)]
    depends_on: Vec<String>,
    #[serde(default)]
    priority: Option<Priority>,
    #[serde(default)]
    max_retries: Option<u32>,
    #[serde(default)]
    retry_delay_ms: Option<u64>,
    #[serde(default)]
    retry_backoff: Option<f64>,
}

/// Asks the coordinator for a plan, and once more if what it answers is none.
///
/// # Errors
/// The model gave no reply, or no plan: why.
pub(super) async fn plan(
    coordinator: &Agent,
    goal: &str,
    agents: &[(&str, &str)],
) -> Result<Vec<TaskSpec>, InvalidPlan> {
    let names: Vec<&str> = agents.iter().map(|(name, _)| *name).collect();
    let mut transcript = Transcript {
        instructions: coordinator.instructions().to_owned(),
        messages: vec![Message::User(question(goal, agents))],
    };
    let mut repairs = REPAIRS;
    loop {
        let reply = coordinator.model().reply(&transcript, &[]).await;
        let reply = reply.map_err(|error| InvalidPlan::Coordinator(format!("it gave no reply: {error}")))?;
        let why = match read(&reply, &names) {
            Ok(tasks) => return Ok(tasks),
            Err(why) => why,
        };
        if repairs == 0 {
            return Err(InvalidPlan::Coordinator(why));
        }
        repairs -= 1;
        transcript.messages.push(Message::Model(reply));
        transcript.messages.push(Message::User(format!(
            "That is no plan: {why}. Answer with the whole JSON array again and nothing else."
        )));
    }
}

fn question(goal: &str, agents: &[(&str, &str)]) -> String {
    let mut text =
        format!("Break this goal down into tasks for a team.\n\n# Goal\n\n{goal}\n\n# The team\n\n");
    for (name, instructions) in agents {
        // Writing to a string does not fail.
        let _ = writeln!(text, "- {name}: {}", instructions.lines().next().unwrap_or_default());
    }
    text.push_str(
        "\nAnswer with a JSON array and nothing else. Each task is an object with \"title\" and \"description\", and if \
         needed \"assignee\" (a name of the team), \"dependsOn\" (titles of tasks whose results it needs), \"priority\" \
         (\"low\", \"normal\", \"high\" or \"critical\"), \"maxRetries\", \"retryDelayMs\" and \"retryBackoff\".",
    );
    text
}

/// Reads a plan. A fence around the array is what models put there; anything else beside it is refused.
fn read(reply: &Reply, agents: &[&str]) -> Result<Vec<TaskSpec>, String> {
    if !reply.calls.is_empty() {
        return Err("it asks for tools, and a coordinator has none".to_owned());
    }
    let text = reply.text.trim();
    if text.len() > ANSWER_BYTES {
        return Err(format!("it is larger than {ANSWER_BYTES} bytes"));
    }
    let fenced = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    let text = fenced.and_then(|rest| rest.strip_suffix("```")).unwrap_or(text);
    let value = holdgate_core::canonical::strict_value(text).map_err(|error| error.to_string())?;
    let written: Vec<Written> = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let mut ids: HashMap<&str, String> = HashMap::new();
    for (at, task) in written.iter().enumerate() {
        if ids.insert(&task.title, format!("task-{}", at + 1)).is_some() {
            return Err(format!("two tasks have the title {:?}", task.title));
        }
    }
    let spec = |task: &Written| {
        let depends_on = task.depends_on.iter().map(|title| {
            let id = ids.get(title.as_str()).cloned();
            id.ok_or_else(|| format!("{:?} depends on {title:?}, which no task is called", task.title))
        });
        Ok::<_, String>(TaskSpec {
            assignee: task.assignee.clone(),
            depends_on: depends_on.collect::<Result<_, _>>()?,
            priority: task.priority,
            max_retries: task.max_retries,
            retry_delay_ms: task.retry_delay_ms,
            retry_backoff: task.retry_backoff,
            ..TaskSpec::new(ids[task.title.as_str()].clone(), task.title.clone(), task.description.clone())
        })
    };
    let tasks = written.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
    assigned(tasks, agents).map_err(|error| error.to_string())
}

/// What the coordinator is asked at the end.
pub(super) fn synthesis(goal: &str, outputs: &[(String, String)]) -> String {
    let mut text = format!("The team has worked on this goal.\n\n# Goal\n\n{goal}\n");
    for (title, output) in outputs {
        // Writing to a string does not fail.
        let _ = write!(text, "\n## Result of {title}\n\n{output}\n");
    }
    text.push_str("\nAnswer the goal from these results.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Scripted;

    const AGENTS: [&str; 2] = ["dev", "ops"];

    fn why(text: &str) -> String {
        read(&Reply::text(text), &AGENTS).err().unwrap_or_default()
    }

    #[test]
    fn a_plan_is_read_strictly() {
        let good = r#"```json
            [{"title":"Build","description":"b","assignee":"dev"},
             {"title":"Ship","description":"s","dependsOn":["Build"],"priority":"high"}]```"#;
        let tasks = read(&Reply::text(good), &AGENTS).unwrap();
        assert_eq!(
            (tasks[1].id.as_str(), tasks[1].depends_on.as_slice()),
            ("task-2", &["task-1".to_owned()][..])
        );
        assert_eq!(tasks[1].assignee.as_deref(), Some("dev"), "whoever is not named takes a turn");
        for (bad, expected) in [
            ("", "EOF"),
            ("[]", "0"),
            ("Here you are: []", "expected value"),
            (r#"[{"title":"a","description":"","shell":"rm"}]"#, "unknown field `shell`"),
            (r#"[{"title":"a","title":"b","description":""}]"#, "given twice"),
            (r#"[{"title":"a","description":"","assignee":"cfo"}]"#, "no agent \"cfo\""),
            (r#"[{"title":"a","description":"","dependsOn":["b"]}]"#, "no task is called"),
            (r#"[{"title":"a","description":""},{"title":"a","description":""}]"#, "two tasks"),
            (r#"[{"title":"a","description":"","dependsOn":["a"]}]"#, "circle"),
        ] {
            assert!(why(bad).contains(expected), "{bad}: {}", why(bad));
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_no_plan_may_be_mended_once() {
        let good = r#"[{"title":"a","description":"d"}]"#;
        let coordinator = |script| Agent::builder("boss", script).build().unwrap();
        let mends = coordinator(Scripted::default().then(Reply::text("hm")).then_with(move |transcript| {
            let Message::User(said) = &transcript.messages[2] else { panic!() };
            assert!(said.contains("That is no plan"));
            Reply::text(good)
        }));
        assert_eq!(plan(&mends, "g", &[("dev", "")]).await.unwrap().len(), 1);
        let fails = coordinator(Scripted::default().then(Reply::text("hm")).then(Reply::text("hm")));
        assert!(matches!(plan(&fails, "g", &[("dev", "")]).await, Err(InvalidPlan::Coordinator(_))));
    }
}
