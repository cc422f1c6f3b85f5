//! What the watcher of a demo is told. What is told was counted or read, never assumed.

use std::io::Write as _;
use std::path::Path;

use holdgate_core::approval::{Outcome, Status};
use holdgate_wire::Approval;
use serde_json::json;

use super::Started;
use super::agent::VERSION;
use super::gateway::OwnGateway;
use super::tour::{Answer, Found, RestoredBy};
use super::workspace::{Versioned, Workspace};
use crate::home::Identity;
use crate::screen::{Colour, Screen};
use crate::shell;
use crate::when;

/// Tells the story: on standard output, or beside it where that is for programs.
pub struct Story {
    screen: Screen,
    json: bool,
}

impl Story {
    pub fn new(json: bool) -> Self {
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

    pub fn introduce(&self, gateway: &OwnGateway, workspace: &Workspace, pid: u32, waiting: &Approval) {
        let command = format!("{} approvals", command_at(gateway.home.dir()));
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

    pub fn wait(&self, waiting: &Approval, answer: Option<Answer>) {
        self.line("");
        self.paragraph(&match answer {
            None => {
                let left = when::left(waiting.expires_at_ms, waiting.created_at_ms);
                format!("Waiting. Silence denies in {left}.")
            }
            Some(answer) => format!("--{}: answering with the terminal command.", answer.flag()),
        });
    }

    pub fn decided(&self, decided: &Approval) {
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

    /// Somebody told the demo to stop before its end. `found` is what is there by then, once there is a run.
    pub fn stopped(&self, home: &Path, found: Option<(&Started, &Found)>) {
        self.line("");
        let Some((started, found)) = found else { return self.paragraph("Stopped. Nothing ran.") };
        let (claim, receipt) = (&found.record.claim, &found.record.receipt);
        let counted = counted(found);
        match (claim, receipt.as_ref().map(|receipt| receipt.outcome)) {
            (None, _) if found.releases == 0 => self.paragraph("Stopped. Nothing ran."),
            (_, Some(outcome @ (Outcome::Succeeded | Outcome::Failed))) => {
                self.paragraph(&format!(
                    "Stopped. publish_release {} before that: {counted}.",
                    said(outcome)
                ));
            }
            _ => self.paragraph(&format!(
                "Stopped while publish_release ran. How it ended is not known; by now there are {counted}."
            )),
        }
        if claim.is_none() && matches!(found.record.status, Status::Pending | Status::Allowed) {
            self.fact("go on with", &format!("{} demo restore {}", command_at(home), started.run_id));
        }
    }

    /// Where everything is that the demo wrote.
    pub fn files(&self, home: &Path) {
        self.line("");
        self.line(&format!("  The demo's files are kept; remove them with: rm -r {}", shell::word(home)));
    }

    /// The page that somebody may still look at is served a little longer.
    pub fn linger(&self) {
        self.line("  The page stays up for a few seconds; Ctrl-C ends it now.");
    }

    pub fn conclude(&self, workspace: &Workspace, started: &Started, restored: &RestoredBy, found: &Found) {
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

/// This program in the demo's home, for people to copy.
fn command_at(home: &Path) -> String {
    format!("{} --home {}", shell::our_name(), shell::word(home))
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
