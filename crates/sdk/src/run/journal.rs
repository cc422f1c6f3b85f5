//! The events of a run's journal: what is written before anything follows from it.
//!
//! Owns their shapes and strict reading. What they add up to is `machine`'s.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::board::GateSet;
use super::outcome::Rejection;
use super::review::Question;
use super::task::TaskSpec;
use crate::model::RequestedCall;

/// The version of these shapes, in a journal's first event.
pub(crate) const VERSION: u32 = 1;
/// Most tasks in one entry.
pub(crate) const TASKS_PER_ENTRY: usize = 64;

/// Largest reply that is kept, in bytes of its event. Leaves room for what is made of it in one append.
pub(crate) const REPLY_BYTES: usize = 256 << 10;
/// Largest result of a call that is kept, in bytes of JSON.
pub(crate) const RESULT_BYTES: usize = 256 << 10;

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(crate) enum Event {
    /// The first.
    RunStarted { version: u32, agent: String, input: String, context: Map<String, Value> },
    /// The model replied. Its calls have ids that are unique within the run.
    ModelReplied { text: String, calls: Vec<RequestedCall> },
    /// A call will not run.
    CallRejected { call: String, rejection: Rejection },
    /// A call waits for a person. Its request became durable with this event.
    CallSuspended { call: String, question: Question },
    /// Nothing can go on until more requests are answered.
    RunSuspended {},
    /// A call is about to run. `claim` spends its allow, where a person gave one.
    CallStarted {
        call: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<String>,
    },
    /// A call ended.
    CallEnded { call: String, ending: Ending },
    /// The authority has the call's receipt, or `refused` to take it.
    CallSettled {
        call: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// A call had started when its process died, and it is not known how it ended.
    CallUnknown { call: String },
    /// The run ended well.
    RunFinished { output: String },
    /// The run ended with an error.
    RunFailed { why: String },

    /// The first of a team's run.
    TeamStarted {
        version: u32,
        team: String,
        /// When, in Unix milliseconds, by the clock of the process that started it.
        at_ms: i64,
        /// How many tasks follow in `tasks-planned`. Without all of them the run has not started.
        tasks: usize,
        gates: GateSet,
        /// What the plan is for, if its results are to be put together at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goal: Option<String>,
        context: Map<String, Value>,
    },
    /// Tasks of the plan, in order.
    TasksPlanned { tasks: Vec<TaskSpec> },
    /// A gate wants a person asked. The request became durable with this event.
    GateSuspended { gate: GateId, question: Question },
    /// A gate lets its tasks go on. `claim` spends its allow, where a person gave one.
    GatePassed {
        gate: GateId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<String>,
    },
    /// A gate does not let its tasks go on: nothing of this run starts any more.
    GateRejected { gate: GateId, rejection: Rejection },
    /// The authority has the receipt of a gate's claim, or `refused` to take it.
    GateSettled {
        gate: GateId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// A task's agent began to work on it.
    TaskStarted { task: String },
    /// Something happened in a task: an event of its agent's own conversation.
    Task { task: String, event: Box<Event> },
    /// A task's agent gave up, and begins anew.
    TaskRetried { task: String, why: String },
    /// A task came to its end.
    TaskEnded { task: String, at_ms: i64, end: TaskEnd },
    /// A gate's rejection ended the run, for good.
    RunRejected { gate: GateId },
}

/// One gate of a team's run that is not a tool call's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GateId {
    /// Before any task of the plan starts.
    Plan,
    /// Before the round of that number, from 1.
    Round(u32),
    /// Before the task of that id starts.
    Dispatch(String),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum TaskEnd {
    /// Its agent's last reply is its output.
    Completed,
    Failed(String),
    Skipped(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Ending {
    Succeeded(Value),
    Failed(String),
}

/// A journal that cannot be read. Nothing of its run goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// An entry is no event of this version.
    #[error("entry {seq} of the run's journal cannot be read: {why}")]
    Unreadable {
        /// Its number.
        seq: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The journal was written by another version.
    #[error("the run's journal has version {found}; this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u64,
    },
    /// Entries are missing.
    #[error("the run's journal has a gap: entry {expected} is missing")]
    Gap {
        /// The first that is missing.
        expected: u64,
    },
    /// An entry does not follow from those before it.
    #[error("entry {seq} of the run's journal does not follow from those before it: {why}")]
    Misplaced {
        /// Its number.
        seq: u64,
        /// What does not fit.
        why: String,
    },
}

impl Event {
    /// The event as it is written.
    pub(crate) fn encode(&self) -> String {
        // Keys are strings and no value is foreign to JSON.
        serde_json::to_string(self).expect("an event is plain JSON")
    }

    /// Reads entry `seq`.
    pub(crate) fn decode(seq: u64, text: &str) -> Result<Self, JournalError> {
        if seq == 1 {
            check_version(text)?;
        }
        serde_json::from_str(text).map_err(|e| JournalError::Unreadable { seq, why: e.to_string() })
    }
}

/// The first entries of a team's run, in appends that are not too large: its start, and its plan.
pub(crate) fn planned(started: Event, tasks: Vec<TaskSpec>) -> Vec<Vec<Event>> {
    let mut appends = vec![vec![started]];
    let mut bytes = 0;
    let mut part = Vec::new();
    let mut parts = Vec::new();
    for task in tasks {
        let size = serde_json::to_string(&task).map_or(0, |text| text.len());
        if !part.is_empty() && (part.len() == TASKS_PER_ENTRY || bytes + size > REPLY_BYTES) {
            parts.push(Event::TasksPlanned { tasks: std::mem::take(&mut part) });
            bytes = 0;
        }
        bytes += size;
        part.push(task);
    }
    parts.push(Event::TasksPlanned { tasks: part });
    let mut parts = parts.into_iter();
    // The start and the first part are one: a small plan is started by one append.
    appends[0].extend(parts.next());
    appends.extend(parts.map(|part| vec![part]));
    appends
}

fn check_version(text: &str) -> Result<(), JournalError> {
    #[derive(Deserialize)]
    struct First {
        version: u64,
    }
    let first: First = serde_json::from_str(text)
        .map_err(|e| JournalError::Unreadable { seq: 1, why: format!("it names no version: {e}") })?;
    if first.version == u64::from(VERSION) {
        Ok(())
    } else {
        Err(JournalError::Version { found: first.version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::outcome::Cause;
    use serde_json::json;

    fn every_event() -> Vec<(Event, Value)> {
        let question = Question {
            approval: "apr_1".to_owned(),
            digest: "d".to_owned(),
            content: "{}".to_owned(),
            reason: None,
            timeout_ms: Some(5),
        };
        let call = || "c".to_owned();
        let mut context = Map::new();
        context.insert("n".to_owned(), json!(1.5));
        vec![
            (
                Event::RunStarted { version: 1, agent: "a".into(), input: "i".into(), context },
                json!({"type": "run-started", "version": 1, "agent": "a", "input": "i", "context": {"n": 1.5}}),
            ),
            (
                Event::ModelReplied {
                    text: "t".into(),
                    calls: vec![RequestedCall { id: call(), tool: "x".into(), arguments: "{ }".into() }],
                },
                json!({"type": "model-replied", "text": "t", "calls": [{"id": "c", "tool": "x", "arguments": "{ }"}]}),
            ),
            (
                Event::CallRejected { call: call(), rejection: Rejection::new(Cause::UnknownTool, "x") },
                json!({"type": "call-rejected", "call": "c", "rejection": {"cause": "unknown-tool", "detail": "x"}}),
            ),
            (
                Event::CallSuspended { call: call(), question },
                json!({"type": "call-suspended", "call": "c",
                    "question": {"approval": "apr_1", "digest": "d", "content": "{}", "timeoutMs": 5}}),
            ),
            (Event::RunSuspended {}, json!({"type": "run-suspended"})),
            (
                Event::CallStarted { call: call(), claim: Some("k".into()) },
                json!({"type": "call-started", "call": "c", "claim": "k"}),
            ),
            (
                Event::CallEnded { call: call(), ending: Ending::Succeeded(Value::Null) },
                json!({"type": "call-ended", "call": "c", "ending": {"succeeded": null}}),
            ),
            (
                Event::CallSettled { call: call(), refused: None },
                json!({"type": "call-settled", "call": "c"}),
            ),
            (Event::CallUnknown { call: call() }, json!({"type": "call-unknown", "call": "c"})),
            (Event::RunFinished { output: "o".into() }, json!({"type": "run-finished", "output": "o"})),
            (Event::RunFailed { why: "w".into() }, json!({"type": "run-failed", "why": "w"})),
        ]
    }

    #[test]
    fn an_event_is_written_as_promised_and_read_back() {
        for (event, json) in every_event() {
            assert_eq!(serde_json::from_str::<Value>(&event.encode()).unwrap(), json);
            assert_eq!(Event::decode(2, &json.to_string()), Ok(event));
        }
    }

    #[test]
    fn an_unknown_torn_or_extended_entry_is_an_error_that_names_it() {
        for (event, _) in every_event() {
            let text = event.encode();
            for cut in 0..text.len() {
                if let Some(torn) = text.get(..cut) {
                    assert!(Event::decode(7, torn).unwrap_err().to_string().contains("entry 7"), "{torn}");
                }
            }
            let extended = text.replacen('{', r#"{"extra":1,"#, 1);
            assert!(Event::decode(7, &extended).is_err(), "{extended}");
        }
        for bad in ["{}", "null", r#"{"type":"call-forgotten","call":"c"}"#, r#"{"type":"call-unknown"}"#] {
            assert!(matches!(Event::decode(7, bad), Err(JournalError::Unreadable { seq: 7, .. })), "{bad}");
        }
    }

    #[test]
    fn a_journal_of_another_version_is_refused_by_its_version() {
        let newer = r#"{"type":"run-started","version":2,"something":"new"}"#;
        assert_eq!(Event::decode(1, newer), Err(JournalError::Version { found: 2 }));
        let none = r#"{"type":"run-finished","output":""}"#;
        assert!(matches!(Event::decode(1, none), Err(JournalError::Unreadable { seq: 1, .. })));
    }
}
