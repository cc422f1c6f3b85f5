//! What the release agent works on: a small project in a directory of its own, a git repository where git is
//! installed, and a log of what really happened to it.
//!
//! Owns files and git. Knows nothing of runs and approvals.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::environment;

/// The project's files before its release.
const FILES: [(&str, &str); 4] = [
    ("README.md", "# Acorn\n\nCounts the acorns under a tree.\n"),
    ("Cargo.toml", "[package]\nname = \"acorn\"\nversion = \"1.3.0\"\nedition = \"2024\"\n"),
    (
        "src/main.rs",
        "fn main() {\n    let acorns: u32 = std::env::args().skip(1).count() as u32;\n    println!(\"{acorns} acorns\");\n}\n",
    ),
    (CHANGELOG, "# Changelog\n\n## 1.3.0\n\n- Count acorns one by one.\n"),
];

const CHANGELOG: &str = "CHANGELOG.md";
const RELEASE: &str = "RELEASE";

/// Whether there is a git repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioned {
    /// There is.
    WithGit,
    /// git was not installed when the workspace was made.
    WithoutGit,
}

/// The directory of one run.
#[derive(Clone, Debug)]
pub struct Workspace {
    dir: PathBuf,
}

impl Workspace {
    /// Makes the workspace of a run in `home`.
    ///
    /// # Errors
    /// What cannot be made.
    pub async fn create(home: &Path, run: &str) -> anyhow::Result<Self> {
        let workspace = Self { dir: home.join("demo").join(run) };
        let repository = workspace.repository();
        for (name, text) in FILES {
            let path = repository.join(name);
            let parent = path.parent().context("a file has a directory")?;
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if is_git_installed().await? {
            workspace.git(&["init", "-q"]).await?;
            workspace.commit("Acorn 1.3.0").await?;
            workspace.git(&["tag", "v1.3.0"]).await?;
        }
        Ok(workspace)
    }

    /// The workspace of an earlier process.
    ///
    /// # Errors
    /// It is gone.
    pub fn open(dir: PathBuf) -> anyhow::Result<Self> {
        let workspace = Self { dir };
        let repository = workspace.repository();
        if !repository.is_dir() {
            bail!("the run's workspace {} is gone; start a new release", repository.display());
        }
        Ok(workspace)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The project.
    pub fn repository(&self) -> PathBuf {
        self.dir.join("acorn")
    }

    /// The log of releases, one line each, beside the project.
    pub fn effects(&self) -> PathBuf {
        self.dir.join("effects.log")
    }

    /// Whether the project is under git.
    pub fn versioned(&self) -> Versioned {
        if self.repository().join(".git").is_dir() { Versioned::WithGit } else { Versioned::WithoutGit }
    }

    /// Puts a version's notes at the top of the changelog, unless they are there.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn write_changelog(&self, version: &str, notes: &[String]) -> anyhow::Result<()> {
        let path = self.repository().join(CHANGELOG);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let heading = format!("## {version}\n");
        if text.contains(&heading) {
            return Ok(());
        }
        let (title, older) = text.split_once("\n\n").unwrap_or((&text, ""));
        let notes: String = notes.iter().map(|note| format!("- {note}\n")).collect();
        let draft = path.with_extension("md.draft");
        fs::write(&draft, format!("{title}\n\n{heading}\n{notes}\n{older}"))
            .with_context(|| format!("cannot write {}", draft.display()))?;
        fs::rename(&draft, &path).with_context(|| format!("cannot replace {}", path.display()))
    }

    /// Releases a version: one line in the log of effects, the release file, and a commit with a tag where there is a
    /// repository. Not safe to repeat. Answers the tag.
    ///
    /// # Errors
    /// What could not be done; what came before it has been done.
    pub async fn publish(
        &self,
        version: &str,
        notes: &[String],
        key: &str,
    ) -> anyhow::Result<Option<String>> {
        self.log_effect(&format!("released {version} under {key}"))?;
        let path = self.repository().join(RELEASE);
        fs::write(&path, format!("acorn {version}\n{}\n", notes.join("\n")))
            .with_context(|| format!("cannot write {}", path.display()))?;
        if self.versioned() == Versioned::WithoutGit {
            return Ok(None);
        }
        self.commit(&format!("Release {version}")).await?;
        let tag = format!("v{version}");
        self.git(&["tag", "-a", "-m", &format!("Acorn {version}"), &tag]).await?;
        Ok(Some(tag))
    }

    fn log_effect(&self, line: &str) -> anyhow::Result<()> {
        let path = self.effects();
        let write = || -> std::io::Result<()> {
            let mut log = OpenOptions::new().create(true).append(true).open(&path)?;
            // In one write, so that two processes could not mix their lines.
            log.write_all(format!("{line}\n").as_bytes())?;
            log.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// How many releases really happened, by the log of effects.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn releases(&self) -> anyhow::Result<usize> {
        let path = self.effects();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().count()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The tags of the repository, if there is one.
    ///
    /// # Errors
    /// git failed.
    pub async fn tags(&self) -> anyhow::Result<Vec<String>> {
        if self.versioned() == Versioned::WithoutGit {
            return Ok(Vec::new());
        }
        Ok(self.git(&["tag", "--list"]).await?.lines().map(str::to_owned).collect())
    }

    async fn commit(&self, message: &str) -> anyhow::Result<()> {
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "-q", "-m", message]).await.map(drop)
    }

    async fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = git();
        command.args(["-c", "user.name=Release agent", "-c", "user.email=agent@localhost"]);
        command.args(arguments).current_dir(self.repository());
        let output = command.output().await.context("git cannot be run")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("git {} failed: {}", arguments.first().unwrap_or(&""), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// git without the settings of whoever runs the demo: hooks, signing and other repositories stay out of it.
fn git() -> Command {
    let mut command = Command::new("git");
    for (name, _) in environment::variables() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn is_git_installed() -> anyhow::Result<bool> {
    match git().arg("--version").output().await {
        Ok(output) => Ok(output.status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("git cannot be run"),
    }
}
