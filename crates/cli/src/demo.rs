//! `holdgate demo`: a small release agent stops at a gate, its process exits, and a fresh one does exactly what was
//! reviewed.
//!
//! Owns `demo start` and `demo restore`, each one process's share of the run, and their exit codes. The parts: `agent`
//! (what it may do), `workspace` (what it does it to), `tour` (the whole story in one
//! command), `story` (how it is told).

mod agent;
mod gateway;
mod story;
mod tour;
mod workspace;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use holdgate_sdk::{
    CallResult, CallSummary, NewRun, Outcome, ReceiptState, RunError, read_start, restore, run_agent,
};
use holdgate_store::mint;
use holdgate_store::sqlite::owner_of;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::connect::{Connection, Target, WithoutGateway, connect};
use crate::exec::timeout;
use crate::exit::{Exit, Failure, say};
use crate::home::Identity;
use workspace::Workspace;

/// See a release wait for you: no key, no network
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Allow it without asking
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Deny it without asking
    #[arg(long)]
    no: bool,
    /// How long until silence denies, like 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = timeout::parse)]
    timeout: Duration,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Part {
    /// Start a release that stops at its gate; prints what it waits for and exits
    Start {
        /// How long until silence denies, like 10m
        #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = timeout::parse)]
        timeout: Duration,
    },
    /// Go on with a release in this process
    Restore {
        /// The run, as `start` printed it
        run: String,
    },
}

/// Plays the demo, or one process's share of it in the target's home.
///
/// # Errors
/// What went wrong, and the exit code that goes with it.
pub async fn run(
    target: impl FnOnce() -> anyhow::Result<Target>,
    arguments: Arguments,
    json: bool,
) -> Result<ExitCode, Failure> {
    let Arguments { yes, no, timeout, part } = arguments;
    match part {
        Some(Part::Start { timeout }) => start(&target()?, timeout).await.map(ExitCode::from),
        Some(Part::Restore { run }) => go_on(&target()?, &run, json).await,
        None => {
            let answer = match (yes, no) {
                (true, _) => Some(tour::Answer::Allow),
                (_, true) => Some(tour::Answer::Deny),
                _ => None,
            };
            tour::run(answer, timeout, json).await
        }
    }
}

/// What `demo start` prints.
#[derive(Debug, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    run_id: String,
    approval_id: String,
    /// Null when no gateway serves the page.
    url: Option<String>,
}

async fn start(target: &Target, timeout: Duration) -> Result<Exit, Failure> {
    let connection = connect(target, Identity::Agent, WithoutGateway::OpenOrCreate).await?;
    let ended = start_with(&connection, target, timeout).await;
    connection.close().await;
    print(&ended?)?;
    Ok(Exit::Done)
}

async fn start_with(connection: &Connection, target: &Target, timeout: Duration) -> Result<Started, Failure> {
    let run_id = mint::run().to_string();
    let workspace = Workspace::create(target.home.dir(), &run_id).await?;
    let agent = agent::release_agent(&workspace, timeout)?;
    let new =
        NewRun { id: Some(run_id.clone()), input: agent::task(), context: context(&workspace, timeout)? };
    let outcome = run_agent(connection.authority.clone(), &agent, new).await.map_err(failure)?;
    match outcome {
        Outcome::Suspended { run_id, pending } if pending.len() == 1 => {
            let waiting = pending.into_iter().next().context("a suspended run waits for something")?;
            Ok(Started { run_id, approval_id: waiting.approval_id, url: waiting.url })
        }
        other => Err(Failure::new(Exit::Failed, format!("the run did not stop at its gate: {other:?}"))),
    }
}

const WORKSPACE: &str = "workspace";
const TIMEOUT: &str = "timeoutMs";

fn context(workspace: &Workspace, timeout: Duration) -> anyhow::Result<Map<String, Value>> {
    let dir =
        workspace.dir().to_str().context("the home's path is not UTF-8; name another with --home DIR")?;
    let timeout_ms = u64::try_from(timeout.as_millis())?;
    Ok(Map::from_iter([
        (WORKSPACE.to_owned(), Value::from(dir)),
        (TIMEOUT.to_owned(), Value::from(timeout_ms)),
    ]))
}

/// What `demo restore --json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Restored<'a> {
    run_id: &'a str,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<String>,
    detail: String,
}

/// How far a restore came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Finished,
    Rejected,
    Suspended,
    Held,
    Unknown,
    Failed,
}

impl Status {
    fn exit(self) -> ExitCode {
        match self {
            Status::Finished => Exit::Done.into(),
            Status::Rejected => Exit::Denied.into(),
            Status::Suspended => Exit::Pending.into(),
            Status::Held => Exit::Held.into(),
            Status::Unknown | Status::Failed => Exit::Failed.into(),
        }
    }
}

async fn go_on(target: &Target, run: &str, json: bool) -> Result<ExitCode, Failure> {
    let restored = match connect(target, Identity::Agent, WithoutGateway::Open).await {
        Ok(connection) => {
            let restored = restore_with(&connection, run).await;
            connection.close().await;
            restored?
        }
        // Without a gateway, whoever has the run has the database.
        Err(failure) => match owner_of(&target.home.database()).filter(|owner| owner.url.is_none()) {
            Some(owner) => Restored {
                run_id: run,
                status: Status::Held,
                approval_id: None,
                detail: format!("the home's database is in use by {owner}; try again when it has ended"),
            },
            None => return Err(failure),
        },
    };
    if json {
        print(&restored)?;
    } else if matches!(restored.status, Status::Finished | Status::Rejected) {
        writeln!(std::io::stdout(), "{}", restored.detail)?;
    } else {
        say(&restored.detail);
    }
    Ok(restored.status.exit())
}

async fn restore_with<'a>(connection: &Connection, run: &'a str) -> Result<Restored<'a>, Failure> {
    let start = read_start(connection.authority.clone(), run).await.map_err(failure)?;
    let dir = start.context.get(WORKSPACE).and_then(Value::as_str).map(PathBuf::from);
    let timeout = start.context.get(TIMEOUT).and_then(Value::as_u64).map(Duration::from_millis);
    let (Some(dir), Some(timeout)) = (dir, timeout) else {
        return Err(Failure::new(Exit::Failed, format!("run {run} is not one of this demo's")));
    };
    let workspace = Workspace::open(dir)?;
    let agent = agent::release_agent(&workspace, timeout)?;
    match restore(connection.authority.clone(), &agent, run).await {
        Ok(outcome) => Ok(told(run, outcome, &workspace)),
        Err(error @ (RunError::Held { .. } | RunError::TakenOver { .. })) => {
            Ok(Restored { run_id: run, status: Status::Held, approval_id: None, detail: error.to_string() })
        }
        Err(error) => Err(failure(error)),
    }
}

fn told<'a>(run: &'a str, outcome: Outcome, workspace: &Workspace) -> Restored<'a> {
    let (status, approval_id, detail) = match outcome {
        Outcome::Finished(finished) => {
            let publish = finished.calls.iter().rev().find(|call| call.tool == agent::PUBLISH);
            let status = publish.map_or(Status::Failed, |call| match &call.result {
                Some(CallResult::Succeeded(_)) => Status::Finished,
                Some(CallResult::Rejected(rejection)) if rejection.is_by_review() => Status::Rejected,
                _ => Status::Failed,
            });
            let refused = publish.and_then(refused_receipt);
            let approval =
                publish.and_then(|call| call.review.as_ref()).map(|review| review.approval_id.clone());
            (status, approval, finished.output + &refused.unwrap_or_default())
        }
        Outcome::Suspended { pending, .. } => {
            let waiting = pending.into_iter().next();
            let place =
                waiting.as_ref().map(|waiting| waiting.url.as_deref().unwrap_or(&waiting.approval_id));
            let detail = format!("still waiting for a decision on {}", place.unwrap_or_default());
            (Status::Suspended, waiting.map(|waiting| waiting.approval_id), detail)
        }
        Outcome::Unknown { tool, review, .. } => {
            let detail = format!(
                "{tool} was started, and its process ended before it said how it went; it is not run again. Look at \
                 {} and {} to see what it did, and start a new release for the rest",
                workspace.repository().display(),
                workspace.effects().display(),
            );
            (Status::Unknown, review.map(|review| review.approval_id), detail)
        }
        Outcome::Failed { why, .. } => (Status::Failed, None, why),
    };
    Restored { run_id: run, status, approval_id, detail }
}

fn refused_receipt(call: &CallSummary) -> Option<String> {
    match &call.receipt {
        Some(ReceiptState::Refused(why)) => Some(format!(" The authority did not take its receipt: {why}.")),
        Some(ReceiptState::Owed | ReceiptState::Delivered) | None => None,
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Authority(error) => error.into(),
        error => anyhow::Error::from(error).into(),
    }
}

/// One JSON document on one line.
fn print(document: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(document).map_err(anyhow::Error::from)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    Ok(())
}
