//! `holdgate exec`: a command waits for its decision, then exactly it runs.
//!
//! Owns the order of the steps and the exit code. What a command is frozen as, how it is compared and how it is
//! started is in the files beneath; so is the conversation with the authority. Every way out of here that is not the
//! child's own end is "not run".

mod child;
mod digest;
mod directory;
mod drift;
mod environment;
mod epoch;
mod executable;
mod freeze;
mod gate;
mod operand;
mod script;
pub mod signals;
#[cfg(test)]
mod tests;
pub mod timeout;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use holdgate_core::approval::Status;
use holdgate_core::presentation::masked;
use holdgate_wire::Approval;
use holdgate_wire::request::SettledOutcome;

use crate::exit::Exit;

use directory::Directory;
use drift::verify;
use environment::Environment;
use epoch::Epoch;
use freeze::{Content, Frozen, Invocation};
use gate::{Gate, PARTING, Question};
use signals::{CAUGHT, Signals};

/// Run a command once a reviewer has allowed it
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Why it should run, for the reviewer
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// How long to wait for the decision, like 10m, 90s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = timeout::parse)]
    pub timeout: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Why a command did not run.
enum NotRun {
    /// The gateway could not be reached to begin with.
    Unreachable(Error),
    /// It may not run.
    Refused(String),
    /// Somebody told us to stop before it was started. What became of the request.
    Stopped(&'static str),
}

impl From<anyhow::Error> for NotRun {
    fn from(error: anyhow::Error) -> Self {
        Self::Refused(format!("{error:#}"))
    }
}

impl From<Error> for NotRun {
    fn from(error: Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Waits for the decision on a command and runs it if it is allowed. `variables` is this process's environment. The
/// exit code is the child's, or 128 and the signal that ended it; 77 if nothing ran, 7 if the gateway could not be
/// reached to begin with.
pub async fn run(
    authority: Arc<dyn Authority>,
    arguments: Arguments,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> ExitCode {
    let environment = Environment::for_child(variables);
    hide_our_environment();
    let attempted = match Signals::listen(&CAUGHT) {
        Ok(mut signals) => attempt(authority, arguments, environment, &mut signals).await,
        Err(error) => Err(error.into()),
    };
    let code = exit_code(attempted);
    ExitCode::from(code)
}

/// The exit code, and on stderr why nothing ran.
fn exit_code(attempted: Result<u8, NotRun>) -> u8 {
    match attempted {
        Ok(code) => code,
        Err(NotRun::Unreachable(error)) => {
            say(&format!("not run: {error}"));
            Exit::Unreachable as u8
        }
        Err(NotRun::Refused(why)) => {
            say(&format!("not run: {why}"));
            Exit::NotRun as u8
        }
        Err(NotRun::Stopped(request)) => {
            say(&format!("not run: stopped while waiting; {request}"));
            Exit::NotRun as u8
        }
    }
}

/// All of it, top to bottom.
async fn attempt(
    authority: Arc<dyn Authority>,
    arguments: Arguments,
    environment: Environment,
    signals: &mut Signals,
) -> Result<u8, NotRun> {
    let directory = Directory::current(&environment)?;
    let invocation = Invocation { argv: freeze::arguments(arguments.command)?, environment };
    let reviewed = invocation.freeze(directory)?.content;
    let question = Question {
        content: serde_json::to_string(&reviewed).map_err(anyhow::Error::from)?,
        reason: arguments.reason,
        timeout: arguments.timeout,
    };

    let gate = ask(authority, question, signals).await?;
    let done = answered(&gate, &invocation, &reviewed, signals).await;
    gate.part().await;
    done
}

/// Waits for the answer, and runs exactly what was allowed.
async fn answered(
    gate: &Gate,
    invocation: &Invocation,
    reviewed: &Content,
    signals: &mut Signals,
) -> Result<u8, NotRun> {
    let decided = tokio::select! {
        decided = gate.decision() => decided?,
        _ = signals.stop() => return Err(withdrawn(gate).await),
    };
    allowed(&decided)?;

    // Before the claim, so that a command that is no longer the reviewed one spends nothing.
    if let Err(drift) = verify(invocation, reviewed) {
        // What was allowed is no longer what would run: the allow is taken back.
        if !gate.withdraw(&format!("not run: {drift}")).await {
            say("the allow could not be taken back; it lapses by itself");
        }
        return Err(refused(drift));
    }
    let claimed = tokio::select! {
        claimed = gate.claim() => claimed.map_err(NotRun::from),
        _ = signals.stop() => Err(NotRun::Stopped(ALLOWED)),
    };
    if let Err(why) = claimed {
        // The claim may have been made all the same.
        gate.settle_not_run("it could not be claimed for certain").await;
        return Err(why);
    }

    // Again, because claiming took time; what is verified here is what is started.
    let frozen = match verify(invocation, reviewed) {
        Ok(frozen) => frozen,
        Err(drift) => {
            gate.settle_not_run(&drift.to_string()).await;
            return Err(refused(drift));
        }
    };
    start(gate, invocation, frozen, signals).await
}

/// Begins an epoch and asks for permission, unless somebody tells us to stop.
async fn ask(
    authority: Arc<dyn Authority>,
    question: Question,
    signals: &mut Signals,
) -> Result<Gate, NotRun> {
    let asking = async {
        let epoch = Epoch::begin(authority.clone()).await.map_err(|error| match error {
            Error::Unreachable { .. } => NotRun::Unreachable(error),
            other => NotRun::from(other),
        })?;
        Ok::<_, NotRun>(Gate::ask(authority, epoch, question).await?)
    };
    tokio::pin!(asking);
    let (gate, approval) = tokio::select! {
        asked = &mut asking => asked?,
        _ = signals.stop() => {
            // The request may be on its way: learn its name, to call it off.
            return Err(match tokio::time::timeout(PARTING, asking).await {
                Ok(Ok((gate, _))) => withdrawn(&gate).await,
                Ok(Err(NotRun::Unreachable(_))) => NotRun::Stopped("nothing was asked"),
                Ok(Err(_)) | Err(_) => NotRun::Stopped(LAPSES),
            });
        }
    };
    let place = approval.url.as_deref().unwrap_or(&approval.url_path);
    say(&format!("waiting for approval {} {place}", approval.id));
    Ok(gate)
}

/// Starts the claimed command, waits for its end and says what came of it.
async fn start(
    gate: &Gate,
    invocation: &Invocation,
    frozen: Frozen,
    signals: &mut Signals,
) -> Result<u8, NotRun> {
    if signals.stopped().is_some() {
        gate.settle_not_run("stopped by a signal").await;
        return Err(NotRun::Stopped(ALLOWED));
    }
    let mut child = match child::prepare(invocation, frozen).and_then(child::Prepared::spawn) {
        Ok(child) => child,
        Err(error) => {
            gate.settle_not_run(&format!("{error:#}")).await;
            return Err(error.into());
        }
    };
    let status = match signals.attend(&mut child).await {
        Ok(status) => status,
        // It ran; how it ended cannot be known, so no receipt is invented and the record will say "unknown".
        Err(error) => {
            say(&format!("the command was started, but its end cannot be known: {error}"));
            return Ok(u8::MAX);
        }
    };
    let outcome = if status.success() { SettledOutcome::Succeeded } else { SettledOutcome::Failed };
    // What stopped the child is not meant to stop its receipt.
    signals.stopped();
    let detail = child::outcome(status);
    let told = tokio::select! {
        told = gate.settle(outcome, &detail) => told.err().map(|error| error.to_string()),
        _ = signals.stop() => Some("stopped by a signal".to_owned()),
    };
    if let Some(why) = told {
        say(&format!("the command ran ({detail}), but its receipt could not be delivered: {why}"));
    }
    Ok(child::exit_code(status))
}

/// Only an allow passes.
fn allowed(decided: &Approval) -> Result<(), NotRun> {
    let who = decided.resolver.as_ref().map_or("the authority", |resolver| resolver.label.as_str());
    let reason = decided.terminal_reason.map_or("for no known reason", |reason| reason.as_str());
    let words = decided.answer_reason().map(|words| format!(": {words}")).unwrap_or_default();
    let why = match decided.status {
        Status::Allowed => return Ok(()),
        Status::Denied => format!("denied by {who}{words}"),
        Status::Expired => "nobody answered in time".to_owned(),
        Status::Cancelled => format!("the request was cancelled ({reason})"),
        Status::Pending => "there is no decision".to_owned(),
    };
    Err(NotRun::Refused(why))
}

/// What is said of a request that was allowed when we stopped: there is nothing left to withdraw.
const ALLOWED: &str = "the request had been allowed";
/// What is said of a request that nobody called off: it ends with this process's epoch.
const LAPSES: &str = "the request could not be withdrawn; it lapses by itself";

/// Calls the request off, because somebody told us to stop.
async fn withdrawn(gate: &Gate) -> NotRun {
    let is_withdrawn = gate.withdraw("stopped by a signal").await;
    NotRun::Stopped(if is_withdrawn { "the request was withdrawn" } else { LAPSES })
}

fn refused(drift: drift::Drift) -> NotRun {
    NotRun::Refused(format!("refused: {drift}"))
}

/// Our environment may hold a credential that the child's does not. A child of the same user could read it from
/// `/proc`; not if this process is no longer open to others.
fn hide_our_environment() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // Where it is not possible the child's own environment is clean all the same.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// People's text goes to stderr, where a closed stream is no reason to stop: stdout is the child's alone.
fn say(text: &str) {
    // What the authority says comes with its escapes already made: they are not escaped once more.
    let _ = writeln!(std::io::stderr(), "holdgate: {}", masked(text).replace(r"\u{5C}u{", r"\u{"));
}
