//! The whole story in one command: one process starts the release and exits, somebody decides, another goes on.
//!
//! Owns what the watcher is told. What is told was counted or read, never assumed.

use std::io::Write as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use holdgate_authority::Authority;
use holdgate_client::Remote;
use holdgate_core::approval::{Outcome, Status};
use holdgate_wire::Approval;
use serde_json::json;
use tokio::process::Command;

use super::Started;
use super::agent::VERSION;
use super::gateway::OwnGateway;
use super::workspace::{Versioned, Workspace};
use crate::exit::{Exit, Failure};
use crate::home::Identity;
use crate::screen::{Colour, Screen};
use crate::when;

/// How long one wait for the decision lasts before it is renewed.
const WAIT: Duration = Duration::from_secs(30);
/// How soon a run that another process holds is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often it is tried again: longer than a lease lives.
const TRIES: u32 = 40;
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

    fn flag(self) -> &'static str {
        match self {
            Answer::Allow => "yes",
            Answer::Deny => "no",
        }
    }
}

/// Plays the demo from its start to its end.
pub async fn run(answer: Option<Answer>, timeout: Duration, json: bool) -> Result<Exit, Failure> {
    let gateway = OwnGateway::start().await?;
    let story = Story::new(json);
    let played = play(&gateway, &story, answer, timeout).await;
    gateway.stop().await?;
    Ok(played?)
}

async fn play(
    gateway: &OwnGateway,
    story: &Story,
    answer: Option<Answer>,
    timeout: Duration,
) -> anyhow::Result<Exit> {
    let token = gateway.home.token(Identity::Agent)?;
    let authority = Remote::new(&gateway.url, &token)?;
    let (pid, started) = start(gateway, timeout).await?;
    let waiting = authority.get(&started.approval_id).await?;
    let workspace = Workspace::open(gateway.home.dir().join("demo").join(&started.run_id))?;
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
    let found = Found {
        releases: workspace.releases()?,
        tags: workspace.tags().await?,
        versioned: workspace.versioned(),
        record: authority.get(&started.approval_id).await?,
    };
    story.conclude(&workspace, &started, &restored, &found);
    let status = restored.status;
    match (found.record.status, found.releases, status.code()) {
        (Status::Allowed, 1, Some(0)) if found.has_one_tag() => Ok(Exit::Done),
        (Status::Allowed, releases, _) => bail!(
            "an allowed release should have happened once; it happened {releases} times, and the process that went on ended with {status}"
        ),
        (_, 0, Some(3)) => Ok(Exit::Denied),
        (_, releases, _) => bail!(
            "without an allow nothing should have happened; {releases} releases did, and the process that went on ended with {status}"
        ),
    }
}

/// What is there in the end.
struct Found {
    releases: usize,
    tags: Vec<String>,
    versioned: Versioned,
    record: Approval,
}

impl Found {
    /// The tags of this release: those beside the project's first.
    fn new_tags(&self) -> usize {
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
struct RestoredBy {
    pid: u32,
    status: ExitStatus,
    /// The agent's last words.
    said: String,
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

/// Tells the story: on standard output, or beside it where that is for programs.
struct Story {
    screen: Screen,
    json: bool,
}

impl Story {
    fn new(json: bool) -> Self {
        let plain = Screen { width: None, has_colour: false };
        Self { screen: if json { plain } else { Screen::of_stdout() }, json }
    }

    fn line(&self, text: &str) {
        // A watcher who is gone misses nothing that the exit code does not say.
        let _ = if self.json {
            writeln!(std::io::stderr(), "{text}")
        } else {
            let mut stdout = std::io::stdout();
            writeln!(stdout, "{text}").and_then(|()| stdout.flush())
        };
    }

    /// A name and what it stands for. What is to be copied is never broken into lines.
    fn fact(&self, name: &str, text: &str) {
        self.line(&format!("  {}{text}", self.screen.paint(Colour::Dim, &format!("{name:<14}"))));
    }

    fn heading(&self, text: &str) {
        self.line("");
        self.line(&self.screen.paint(Colour::Bold, text));
    }

    fn paragraph(&self, text: &str) {
        for line in self.screen.lines(text, 2) {
            self.line(&format!("  {line}"));
        }
    }

    fn introduce(&self, gateway: &OwnGateway, workspace: &Workspace, pid: u32, waiting: &Approval) {
        let command = format!("{} --home {} approvals", our_name(), gateway.home.dir().display());
        self.heading("A release waits for you");
        self.paragraph(&format!(
            "An agent wrote the changelog of Acorn {VERSION}. Its next call is consequential, so it was frozen, stored and \
             put to you. Process {pid}, which ran the agent, has exited: nothing waits in memory."
        ));
        if workspace.versioned() == Versioned::WithoutGit {
            self.paragraph("git is not installed here, so the release will be files only, without a tag.");
        }
        self.heading("What would run");
        for line in self.screen.lines(&waiting.presentation.headline, 2) {
            self.line(&format!("  {}", self.screen.paint(Colour::Yellow, &line)));
        }
        for fact in waiting.presentation.facts.iter().filter(|fact| fact.label.starts_with("input.")) {
            self.fact(fact.label.trim_start_matches("input."), &fact.text);
        }
        self.fact("digest", &waiting.digest);
        self.heading("Decide");
        self.fact("in a browser", waiting.url.as_deref().unwrap_or(&waiting.url_path));
        self.fact(
            "sign in with",
            &format!("the token in {}", gateway.home.token_file(Identity::Operator).display()),
        );
        self.fact("in a terminal", &format!("{command} allow {}", waiting.id));
        self.fact("or", &format!("{command} deny {}", waiting.id));
    }

    fn wait(&self, waiting: &Approval, answer: Option<Answer>) {
        self.line("");
        self.paragraph(&match answer {
            None => {
                let left = when::left(waiting.expires_at_ms, waiting.created_at_ms);
                format!("Waiting. Silence denies in {left}.")
            }
            Some(answer) => format!("--{}: answering with the terminal command.", answer.flag()),
        });
    }

    fn decided(&self, decided: &Approval) {
        let who = decided.resolver.as_ref().map_or("the authority", |resolver| resolver.label.as_str());
        let (colour, text) = match decided.status {
            Status::Allowed => (Colour::Green, format!("Allowed by {who}")),
            Status::Denied => (Colour::Red, format!("Denied by {who}")),
            Status::Expired => (Colour::Red, "Nobody answered in time".to_owned()),
            Status::Cancelled | Status::Pending => (Colour::Red, "The request was called off".to_owned()),
        };
        self.line("");
        self.line(&self.screen.paint(colour, &text));
    }

    fn conclude(&self, workspace: &Workspace, started: &Started, restored: &RestoredBy, found: &Found) {
        let times = match found.releases {
            0 => "nothing".to_owned(),
            1 => "publish_release, once".to_owned(),
            times => format!("publish_release, {times} times"),
        };
        let receipt = found.record.receipt.as_ref();
        let receipt_text = receipt.map_or("none: nothing was claimed".to_owned(), |receipt| {
            format!("{}, {}", said(receipt.outcome), when::local(receipt.at_ms))
        });
        self.paragraph(&format!("A fresh process, {}, restored the run from its journal.", restored.pid));
        self.line("");
        self.fact("agent says", &restored.said);
        self.fact("ran", &times);
        self.fact("counted", &counted(found));
        self.fact("receipt", &receipt_text);
        self.fact("workspace", &workspace.dir().display().to_string());
        if self.json {
            let document = json!({
                "runId": started.run_id,
                "approvalId": started.approval_id,
                "status": found.record.status,
                "releases": found.releases,
                "tags": found.tags,
                "receipt": receipt,
                "workspace": workspace.dir().display().to_string(),
            });
            let _ = writeln!(std::io::stdout(), "{document}");
        }
    }
}

/// How a watcher calls this program: by its path where it was called by one.
fn our_name() -> String {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    let has_path = called.is_some_and(|name| name.components().count() > 1);
    let path = std::env::current_exe().ok().filter(|_| has_path);
    path.map_or("holdgate".to_owned(), |path| path.display().to_string())
}

fn counted(found: &Found) -> String {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let lines = plural(found.releases, "line");
    match found.versioned {
        Versioned::WithGit => {
            format!("{lines} in effects.log, {} in git", plural(found.new_tags(), "new tag"))
        }
        Versioned::WithoutGit => format!("{lines} in effects.log; git is not installed"),
    }
}

fn said(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Unknown => "unknown",
    }
}
