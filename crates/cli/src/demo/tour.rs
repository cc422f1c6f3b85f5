//! The whole story in one command: one process starts the release and exits, somebody decides, another goes on.
//!
//! Owns the order of events and the exit code. How it is told is in `story`.

use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use holdgate_authority::Authority;
use holdgate_client::Remote;
use holdgate_core::approval::Status;
use holdgate_wire::Approval;
use rustix::process::Signal;
use tokio::process::Command;

use super::Started;
use super::gateway::OwnGateway;
use super::story::Story;
use super::workspace::{Versioned, Workspace};
use crate::exec::signals::Signals;
use crate::exit::{Exit, Failure};
use crate::home::Identity;

/// How long one wait for the decision lasts before it is renewed.
const WAIT: Duration = Duration::from_secs(30);
/// How soon a run that another process holds is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often it is tried again: longer than a lease lives.
const TRIES: u32 = 40;
/// How long the page stays up after the end, for whoever decided on it to see the receipt.
const LINGER: Duration = Duration::from_secs(5);
/// What ends the demo early.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// What a child of the demo must not take from the environment: it belongs to another home.
const FOREIGN: [&str; 3] = ["HOLDGATE_URL", "HOLDGATE_HOME", "HOLDGATE_TOKEN"];

/// A decision made beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow,
    Deny,
}

impl Answer {
    fn verb(self) -> &'static str {
        match self {
            Answer::Allow => "allow",
            Answer::Deny => "deny",
        }
    }

    pub fn flag(self) -> &'static str {
        match self {
            Answer::Allow => "yes",
            Answer::Deny => "no",
        }
    }
}

/// How a demo came to its end.
enum Played {
    /// All of it was told.
    Told(Exit),
    /// Somebody told it to stop.
    Stopped(Signal),
}

/// Plays the demo from its start to its end. The exit code is 128 and the signal if one stopped it.
pub async fn run(answer: Option<Answer>, timeout: Duration, json: bool) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen(&ENDING)?;
    let gateway = OwnGateway::start().await?;
    let story = Story::new(json);
    let played = play_or_stop(&gateway, &story, answer, timeout, &mut signals).await;
    let home = gateway.home.dir().to_owned();
    let stopped = gateway.stop().await;
    if !matches!(played, Ok(Played::Told(_))) {
        story.files(&home);
    }
    let played = played?;
    stopped?;
    Ok(match played {
        Played::Told(exit) => exit.into(),
        Played::Stopped(signal) => {
            ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(Exit::Failed as u8))
        }
    })
}

async fn play_or_stop(
    gateway: &OwnGateway,
    story: &Story,
    answer: Option<Answer>,
    timeout: Duration,
    signals: &mut Signals,
) -> anyhow::Result<Played> {
    let token = gateway.home.token(Identity::Agent)?;
    let authority = Remote::new(&gateway.url, &token)?;
    let mut started = None;
    // Whoever is stopped here leaves no process behind: they end with what waits for them.
    let ended = tokio::select! {
        ended = play(gateway, &authority, story, answer, timeout, &mut started) => Ok(ended?),
        signal = signals.stop() => Err(signal),
    };
    match ended {
        Ok((exit, decided)) => {
            story.files(gateway.home.dir());
            // Somebody looks at the page only if somebody decided there.
            if answer.is_none() && matches!(decided, Status::Allowed | Status::Denied) {
                story.linger();
                // What ends the lingering early takes nothing back.
                let _ = tokio::time::timeout(LINGER, signals.stop()).await;
            }
            Ok(Played::Told(exit))
        }
        Err(signal) => {
            let found = match &started {
                Some(started) => Some((started, look(gateway, &authority, started).await?)),
                None => None,
            };
            story.stopped(gateway.home.dir(), found.as_ref().map(|(started, found)| (*started, found)));
            Ok(Played::Stopped(signal))
        }
    }
}

/// What is there: the record first, so that what it claims has been counted.
async fn look(gateway: &OwnGateway, authority: &Remote, started: &Started) -> anyhow::Result<Found> {
    let record = authority.get(&started.approval_id).await?;
    let workspace = workspace_of(gateway, started)?;
    let (releases, tags) = (workspace.releases()?, workspace.tags().await?);
    Ok(Found { releases, tags, versioned: workspace.versioned(), record })
}

fn workspace_of(gateway: &OwnGateway, started: &Started) -> anyhow::Result<Workspace> {
    Workspace::open(gateway.home.dir().join("demo").join(&started.run_id))
}

/// The story itself; answers its exit code and the decision. `run` is set as soon as there is a run.
async fn play(
    gateway: &OwnGateway,
    authority: &Remote,
    story: &Story,
    answer: Option<Answer>,
    timeout: Duration,
    run: &mut Option<Started>,
) -> anyhow::Result<(Exit, Status)> {
    let (pid, started) = start(gateway, timeout).await?;
    let started: &Started = run.insert(started);
    let waiting = authority.get(&started.approval_id).await?;
    let workspace = workspace_of(gateway, started)?;
    story.introduce(gateway, &workspace, pid, &waiting);
    story.wait(&waiting, answer);
    if let Some(answer) = answer {
        decide(gateway, &started.approval_id, answer).await?;
    }
    let decided = loop {
        let found = authority.wait(&started.approval_id, WAIT).await?;
        if found.is_terminal() {
            break found;
        }
    };
    story.decided(&decided);

    let restored = restore(gateway, &started.run_id).await?;
    let found = look(gateway, authority, started).await?;
    story.conclude(&workspace, started, &restored, &found);
    let status = restored.status;
    match (found.record.status, found.releases, status.code()) {
        (Status::Allowed, 1, Some(0)) if found.has_one_tag() => Ok((Exit::Done, Status::Allowed)),
        (Status::Allowed, releases, _) => bail!(
            "an allowed release should have happened once; it happened {releases} times, and the process that went on ended with {status}"
        ),
        (status, 0, Some(3)) => Ok((Exit::Denied, status)),
        (_, releases, _) => bail!(
            "without an allow nothing should have happened; {releases} releases did, and the process that went on ended with {status}"
        ),
    }
}

/// What is there in the end.
pub struct Found {
    pub releases: usize,
    pub tags: Vec<String>,
    pub versioned: Versioned,
    pub record: Approval,
}

impl Found {
    /// The tags of this release: those beside the project's first.
    pub fn new_tags(&self) -> usize {
        self.tags.len().saturating_sub(1)
    }

    fn has_one_tag(&self) -> bool {
        self.versioned == Versioned::WithoutGit || self.new_tags() == 1
    }
}

fn ourselves(gateway: &OwnGateway) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let mut command = Command::new(program);
    for name in FOREIGN {
        command.env_remove(name);
    }
    command.arg("--home").arg(gateway.home.dir()).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// A process of its own starts the run and exits.
async fn start(gateway: &OwnGateway, timeout: Duration) -> anyhow::Result<(u32, Started)> {
    let mut command = ourselves(gateway)?;
    command.args(["demo", "start", "--timeout", &format!("{}ms", timeout.as_millis())]);
    let child = command.stdout(Stdio::piped()).spawn().context("cannot start a process")?;
    let pid = child.id().context("a process has a number")?;
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        bail!("the process that starts the release ended with {}", output.status);
    }
    let started = serde_json::from_slice(&output.stdout).context("`demo start` printed no JSON line")?;
    Ok((pid, started))
}

/// Decides as a person would.
async fn decide(gateway: &OwnGateway, id: &str, answer: Answer) -> anyhow::Result<()> {
    let mut command = ourselves(gateway)?;
    command.args(["approvals", answer.verb(), id]);
    let output = command.output().await.context("cannot start a process")?;
    // A very short deadline may have passed, or somebody else was faster; what stands is read in any case.
    let is_over = [Exit::Over, Exit::AnsweredOtherwise].map(|exit| Some(i32::from(exit as u8)));
    if output.status.success() || is_over.contains(&output.status.code()) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("`holdgate approvals {}` ended with {}: {}", answer.verb(), output.status, said.trim());
}

/// What came of the process that went on with the run.
pub struct RestoredBy {
    pub pid: u32,
    status: ExitStatus,
    /// The agent's last words.
    pub said: String,
}

/// A fresh process goes on with the run.
async fn restore(gateway: &OwnGateway, run: &str) -> anyhow::Result<RestoredBy> {
    for _ in 0..TRIES {
        let mut command = ourselves(gateway)?;
        let child = command.args(["demo", "restore", run]).stdout(Stdio::piped()).spawn();
        let child = child.context("cannot start a process")?;
        let pid = child.id().context("a process has a number")?;
        let output = child.wait_with_output().await?;
        if output.status.code() != Some(Exit::Held as i32) {
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            return Ok(RestoredBy { pid, status: output.status, said });
        }
        tokio::time::sleep(AGAIN).await;
    }
    bail!("another process holds the run and does not let it go");
}
