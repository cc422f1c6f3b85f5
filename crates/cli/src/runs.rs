//! `holdgate runs`: show, timeline, replay.
//!
//! Owns what each prints. A run is its requester's: these speak as the agent.

use std::sync::Arc;

use holdgate_core::presentation::{masked, multiline};
use holdgate_sdk::{RunError, RunView, TaskState, TimelineEntry};
use serde_json::{Value, json};

use crate::connect::{Target, WithoutGateway, connect_when_free};
use crate::exit::{Exit, Failure};
use crate::home::Identity;
use crate::output::{print, print_json};
use crate::when;

/// See what came of agents' runs
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Show where a run stands: its tasks, and what it waits for
    Show {
        /// The run's id
        run: String,
    },
    /// List what happened, entry by entry
    Timeline {
        /// The run's id
        run: String,
    },
    /// Show a run as it stood after an entry of its journal
    Replay {
        /// The run's id
        run: String,
        /// The number of the entry, as the timeline has it
        #[arg(long, value_name = "N")]
        to: u64,
    },
}

/// Runs one of the commands.
///
/// # Errors
/// There is no such run, or the authority cannot be reached.
pub async fn run(target: &Target, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    let connection = connect_when_free(target, Identity::Agent, WithoutGateway::Open).await?;
    let authority = Arc::clone(&connection.authority);
    let done = match &arguments.command {
        Command::Show { run } => {
            holdgate_sdk::replay(authority, run, None).await.map(|view| show(&view, json))
        }
        Command::Replay { run, to } => {
            holdgate_sdk::replay(authority, run, Some(*to)).await.map(|view| show(&view, json))
        }
        Command::Timeline { run } => {
            holdgate_sdk::timeline(authority, run).await.map(|entries| timeline(&entries, json))
        }
    };
    connection.close().await;
    match done {
        Ok(printed) => printed,
        Err(RunError::NotFound { run }) => {
            Err(Failure::new(Exit::NotFound, format!("there is no run {run}")))
        }
        Err(RunError::Authority(error)) => Err(error.into()),
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}

fn show(view: &RunView, json: bool) -> Result<Exit, Failure> {
    if json {
        return print_json(&json!({
            "runId": view.run_id, "of": view.of, "seq": view.seq, "state": view.state, "detail": view.detail,
            "tasks": view.tasks.iter().map(task).collect::<Vec<_>>(), "waiting": view.waiting,
        }));
    }
    let mut text =
        format!("{} of {}, {} after entry {}\n", view.run_id, masked(&view.of), view.state, view.seq);
    for task in &view.tasks {
        let (state, detail) = state(&task.state);
        text.push_str(&format!("  {} ({}): {state}\n", masked(&task.task_id), masked(&task.agent)));
        text.push_str(&indented(&multiline(detail)));
    }
    text.push_str(&indented(&multiline(&view.detail)));
    for approval in &view.waiting {
        text.push_str(&format!("  waits for {approval}\n"));
    }
    print(&text)?;
    Ok(Exit::Done)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn state(state: &TaskState) -> (&'static str, &str) {
    match state {
        TaskState::Pending => ("pending", ""),
        TaskState::InProgress => ("in progress", ""),
        TaskState::Completed(output) => ("completed", output),
        TaskState::Failed(why) => ("failed", why),
        TaskState::Skipped(why) => ("skipped", why),
    }
}

fn task(summary: &holdgate_sdk::TaskSummary) -> Value {
    let (state, detail) = state(&summary.state);
    json!({ "taskId": summary.task_id, "agent": summary.agent, "state": state, "detail": detail })
}

fn timeline(entries: &[TimelineEntry], json: bool) -> Result<Exit, Failure> {
    if json {
        let items: Vec<Value> = entries
            .iter()
            .map(|entry| json!({ "seq": entry.seq, "atMs": entry.at_ms, "task": entry.task, "what": entry.what }))
            .collect();
        return print_json(&json!({ "items": items }));
    }
    let mut text = String::new();
    for entry in entries {
        let task = entry.task.as_ref().map(|task| format!("{task}: ")).unwrap_or_default();
        text.push_str(&format!("{:>5}  {}  {task}{}\n", entry.seq, when::local(entry.at_ms), entry.what));
    }
    print(&text)?;
    Ok(Exit::Done)
}
