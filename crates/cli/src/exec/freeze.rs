//! The frozen command: what a reviewer sees of a command, and what must still hold when it runs.
//!
//! Owns the content of an `exec` action and the choice of what the child reads from a copy. How each part is found
//! is in the files beside this one; what has changed since is told by `drift`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::directory::Directory;
use super::environment::{Environment, EnvironmentDigest};
use super::executable::{self, Executable, Shebang};
use super::operand::{self, Operand};
use super::script;

/// The content of an `exec` action. Numbers stay far below 2^53; anything that might not is a decimal string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Content {
    /// The arguments, byte for byte; the first is the command as typed.
    pub argv: Vec<String>,
    /// The file that the command runs.
    pub executable: Executable,
    /// The directory that it runs in.
    pub cwd: Cwd,
    /// What it gets as environment; values are not part of it.
    pub environment: EnvironmentDigest,
    /// The files that its arguments name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<Operand>,
}

/// The directory of a frozen command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cwd {
    /// Absolute, with the links that the user sees.
    pub path: String,
    /// In decimal.
    pub device: String,
    /// In decimal.
    pub inode: String,
}

/// What was asked to run. It does not change while the command waits.
pub struct Invocation {
    /// The arguments; the first is the command as typed.
    pub argv: Vec<String>,
    /// What the child will get.
    pub environment: Environment,
}

/// A command that can be shown, compared and run.
pub struct Frozen {
    /// What is reviewed.
    pub content: Content,
    /// What `execve` gets; a relative path is meant from the directory.
    pub program: PathBuf,
    /// What the child reads from a sealed copy.
    pub pin: Option<Pin>,
    /// Where it runs, held open.
    pub directory: Directory,
}

/// Bytes that the child reads from a sealed copy instead of from a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The script that a shell is given as this argument.
    Operand(usize),
    /// The executable, a script for a shell: it is started as its `#!` line says.
    Executable(Shebang),
}

impl Invocation {
    /// Freezes the command as things are now in a directory.
    pub fn freeze(&self, directory: Directory) -> Result<Frozen> {
        let Some(word) = self.argv.first() else { bail!("there is no command to run") };
        let found = executable::find(word, &self.environment, &directory)?;
        let path = directory.path.to_str();
        let path =
            path.with_context(|| format!("the directory's path {} is not UTF-8", directory.path.display()))?;
        let content = Content {
            argv: self.argv.clone(),
            executable: found.shown,
            cwd: Cwd {
                path: path.to_owned(),
                device: directory.device.clone(),
                inode: directory.inode.clone(),
            },
            environment: self.environment.digest(),
            operands: operand::find(&self.argv, &directory)?,
        };
        let mut frozen = Frozen { content, program: found.program, pin: None, directory };
        if cfg!(target_os = "linux") {
            frozen.pin(found.shebang)?;
        }
        Ok(frozen)
    }
}

impl Frozen {
    /// Chooses what the child reads from a copy, and marks it in the content.
    fn pin(&mut self, shebang: Option<Shebang>) -> Result<()> {
        match shebang {
            Some(shebang) => self.pin_executable(shebang),
            None => self.pin_operand(),
        }
    }

    /// A shell that is given its script by path.
    fn pin_operand(&mut self) -> Result<()> {
        let Content { argv, executable, operands, .. } = &mut self.content;
        let arguments: Vec<&str> = argv[1..].iter().map(String::as_str).collect();
        let Some(at) = script::position(&arguments).map(|at| at + 1) else { return Ok(()) };
        if !script::is_shell(executable.path.as_ref()) {
            return Ok(());
        }
        let name = argv[at].as_str();
        let script = operands.iter_mut().find(|operand| operand.place() == (at, name));
        if let Some(Operand::Hashed { path, sha256, pinned, .. }) = script
            && script::is_placeless(&script::read(path.as_ref(), sha256, &self.directory)?)
        {
            *pinned = true;
            self.pin = Some(Pin::Operand(at));
        }
        Ok(())
    }

    /// A script that is its own command and names a shell in its `#!` line.
    fn pin_executable(&mut self, shebang: Shebang) -> Result<()> {
        let executable = &mut self.content.executable;
        let (shell, option) = match &executable.interpreters[..] {
            [shell] => (shell, shebang.argument.as_deref()),
            [_, shell] if shebang.started_by_env().is_some() => (shell, None),
            _ => return Ok(()),
        };
        // Whatever the option is, the shell must come to read the script that follows it.
        let arguments: Vec<&str> = option.into_iter().chain(["script"]).collect();
        let reads_script = script::position(&arguments) == Some(arguments.len() - 1);
        if !reads_script
            || !script::is_shell(shell.path.as_ref())
            || executable.bytes > operand::MAX_HASHED_BYTES
            || !script::is_placeless(&script::read(&self.program, &executable.sha256, &self.directory)?)
        {
            return Ok(());
        }
        executable.pinned = true;
        self.pin = Some(Pin::Executable(shebang));
        Ok(())
    }
}

/// Arguments as text. A name that is not UTF-8 cannot be shown for what it is, so it is not run.
pub fn arguments(argv: impl IntoIterator<Item = OsString>) -> Result<Vec<String>> {
    let text = |(at, argument): (usize, OsString)| {
        argument.into_string().map_err(|argument| match at {
            0 => anyhow::anyhow!("the command {} is not UTF-8", argument.display()),
            _ => anyhow::anyhow!("argument {at} ({}) is not UTF-8", argument.display()),
        })
    };
    argv.into_iter().enumerate().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::digest;
    use serde_json::json;
    use std::fs;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn invocation(argv: &[&str]) -> Invocation {
        let argv = argv.iter().map(|&text| text.to_owned()).collect();
        Invocation { argv, environment: Environment::for_child([("PATH".into(), "/usr/bin:/bin".into())]) }
    }

    fn freeze(home: &Path, argv: &[&str]) -> Frozen {
        invocation(argv).freeze(Directory::open(home).unwrap()).unwrap()
    }

    #[test]
    fn the_content_names_everything_that_is_bound() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("script.sh"), "echo\n").unwrap();
        let frozen = freeze(home.path(), &["sh", "script.sh", "ls "]);
        let directory = Directory::open(home.path()).unwrap();
        let shell = digest::of_bytes(&fs::read("/usr/bin/sh").unwrap());
        let environment = invocation(&[]).environment.digest();
        let mut operand = json!({"argument": 1, "path": "script.sh", "sha256": digest::of_bytes(b"echo\n").sha256, "bytes": 5});
        if cfg!(target_os = "linux") {
            operand["pinned"] = json!(true);
        }
        assert_eq!(
            serde_json::to_value(&frozen.content).unwrap(),
            json!({
                "argv": ["sh", "script.sh", "ls "],
                "executable": {"path": "/usr/bin/sh", "sha256": shell.sha256, "bytes": shell.bytes},
                "cwd": {"path": home.path(), "device": directory.device, "inode": directory.inode},
                "environment": {"sha256": environment.sha256, "count": 1},
                "operands": [operand],
            })
        );
    }

    #[test]
    fn only_a_script_that_a_shell_reads_is_pinned() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            fs::write(home.path().join(name), text).unwrap();
            fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("plain", "echo\n");
        write("own", "cd \"${0%/*}\"\n");
        write("tool", "#!/bin/sh -e\n");
        write("by-env", "#!/usr/bin/env sh\n");
        write("own-tool", "#!/bin/sh\necho $0\n");
        write("cat-tool", "#!/bin/cat\n");
        write("odd-tool", "#!/bin/sh -c\n");
        for (argv, pinned) in [
            (&["sh", "plain"][..], true),
            (&["sh", "-eu", "plain", "own"], true),
            (&["sh", "own"], false),
            (&["sh", "-c", "plain"], false),
            (&["sh", "missing", "plain"], false),
            (&["cat", "plain"], false),
            (&["./tool", "plain"], true),
            (&["./by-env"], true),
            (&["./own-tool"], false),
            (&["./cat-tool"], false),
            (&["./odd-tool"], false),
        ] {
            let frozen = freeze(home.path(), argv);
            let marked = serde_json::to_string(&frozen.content).unwrap().contains("\"pinned\":true");
            let expected = pinned && cfg!(target_os = "linux");
            assert_eq!((frozen.pin.is_some(), marked), (expected, expected), "{argv:?}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_refused_and_named() {
        let odd = || OsString::from_vec(b"caf\xe9".to_vec());
        let said = |argv: Vec<OsString>| arguments(argv).unwrap_err().to_string();
        assert!(said(vec![odd()]).starts_with("the command caf"));
        assert!(said(vec!["cp".into(), "a".into(), odd()]).starts_with("argument 2 (caf"));
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        fs::create_dir(&directory).unwrap();
        let failed = invocation(&["/bin/true"]).freeze(Directory::open(&directory).unwrap()).err().unwrap();
        assert!(format!("{failed:#}").contains("is not UTF-8"));
    }

    #[test]
    fn no_command_is_no_action() {
        let home = tempfile::tempdir().unwrap();
        assert!(invocation(&[]).freeze(Directory::open(home.path()).unwrap()).is_err());
        assert!(invocation(&[""]).freeze(Directory::open(home.path()).unwrap()).is_err());
    }
}
