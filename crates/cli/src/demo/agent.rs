//! The release agent: a scripted model, two tools, and the gate between them and the world.

use std::time::Duration;

use anyhow::Context as _;
use holdgate_sdk::{Agent, CallResult, Reply, Scripted, ToolCall, ToolError, Transcript, TypedTool, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::workspace::Workspace;

/// The consequential tool.
pub const PUBLISH: &str = "publish_release";

const NAME: &str = "release-agent";
const WRITE_CHANGELOG: &str = "write_changelog";
/// The version that is released.
pub const VERSION: &str = "1.4.0";
const NOTES: [&str; 2] = ["Count acorns in parallel.", "Say how many trees were looked under."];

/// What the agent is given to do.
pub fn task() -> String {
    format!("Release Acorn {VERSION}: write its changelog, then publish it.")
}

/// The agent, for one workspace. The same in every process.
///
/// # Errors
/// The workspace's path is no text.
pub fn release_agent(workspace: &Workspace, timeout: Duration) -> anyhow::Result<Agent> {
    let repository = workspace.repository();
    let repository = repository.to_str().context("the workspace's path is not UTF-8")?;
    Agent::builder(NAME, model(repository))
        .instructions("You prepare releases of the project you are given.")
        .tool(write_changelog(workspace.clone()))
        .tool(publish_release(workspace.clone()))
        .gate(move |call: ToolCall| async move {
            Ok(if call.is_consequential {
                let reason = Some("a release cannot be taken back".to_owned());
                Verdict::Suspend { reason, timeout: Some(timeout) }
            } else {
                Verdict::Allow
            })
        })
        .build()
        .map_err(anyhow::Error::from)
}

fn model(repository: &str) -> Scripted {
    let arguments = json!({ "repository": repository, "version": VERSION, "notes": NOTES });
    let changelog = Reply::text("First the changelog.").call("changelog", WRITE_CHANGELOG, &arguments);
    let publish =
        Reply::text("The changelog is written. Now the release.").call("publish", PUBLISH, &arguments);
    Scripted::default().then(changelog).then(publish).then_with(conclude)
}

fn conclude(transcript: &Transcript) -> Reply {
    Reply::text(match transcript.last_result(PUBLISH) {
        Some(CallResult::Succeeded(result)) => match result["tag"].as_str() {
            Some(tag) => format!("Acorn {VERSION} is released and tagged {tag}."),
            None => format!("Acorn {VERSION} is released, without a tag: git is not installed."),
        },
        Some(CallResult::Rejected(why)) => {
            format!("Acorn {VERSION} is not released ({why}). Its changelog stays as a draft.")
        }
        Some(CallResult::Failed(why)) => format!("Releasing Acorn {VERSION} failed: {why}."),
        None => format!("Acorn {VERSION} is not released."),
    })
}

/// A version: numbers and dots, so that it can be part of a tag.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Version(String);

impl TryFrom<String> for Version {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if text.split('.').count() == 3 && text.split('.').all(is_number) {
            Ok(Self(text))
        } else {
            Err("a version is three numbers with dots between them")
        }
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    repository: String,
    version: Version,
    notes: Vec<String>,
}

impl Release {
    /// An agent of this workspace touches nothing else, whatever it was told.
    fn is_of(&self, workspace: &Workspace) -> Result<(), ToolError> {
        let own = workspace.repository();
        if own.to_str() == Some(&self.repository) {
            Ok(())
        } else {
            Err(ToolError::new(format_args!("this agent releases {} only", own.display())))
        }
    }
}

fn write_changelog(workspace: Workspace) -> TypedTool {
    let tool = TypedTool::new(
        WRITE_CHANGELOG,
        "Writes a version's notes into the changelog.",
        move |release: Release, _| {
            let workspace = workspace.clone();
            async move {
                release.is_of(&workspace)?;
                let written = workspace.write_changelog(&release.version.0, &release.notes);
                written.map_err(|error| ToolError::new(format_args!("{error:#}")))?;
                Ok(json!({ "written": "CHANGELOG.md" }))
            }
        },
    );
    tool.idempotent()
}

fn publish_release(workspace: Workspace) -> TypedTool {
    let tool = TypedTool::new(
        PUBLISH,
        "Publishes a version: the release file, a commit and a tag.",
        move |release: Release, context| {
            let workspace = workspace.clone();
            async move {
                release.is_of(&workspace)?;
                let key = &context.idempotency_key;
                let published = workspace.publish(&release.version.0, &release.notes, key).await;
                let tag = published.map_err(|error| ToolError::new(format_args!("{error:#}")))?;
                Ok(json!({ "released": release.version.0, "tag": tag }))
            }
        },
    );
    tool.consequential()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_nothing_that_git_could_take_for_more() {
        for bad in ["", "1.4", "-1.4.0", "1.4.0 --force", "1..0", "v1.4.0", "1.4.0\n"] {
            assert!(Version::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(Version::try_from("1.40.0".to_owned()).is_ok());
    }
}
