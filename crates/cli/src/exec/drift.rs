//! What changed between review and execution.
//!
//! Owns the second look at a frozen command and the words for every difference. Any difference refuses the command.

use std::fmt;
use std::path::Path;

use super::directory::Directory;
use super::executable::Executable;
use super::freeze::{Content, Frozen, Invocation};
use super::operand::Operand;

/// Why a command is no longer the one that was reviewed: one clause for each thing that changed.
#[derive(Debug)]
pub struct Drift(Vec<String>);

impl fmt::Display for Drift {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Drift {}

/// Freezes the command again, from the recorded path of its directory, and compares all of it. What is returned has
/// the reviewed content and holds the directory open that was compared.
pub fn verify(invocation: &Invocation, reviewed: &Content) -> Result<Frozen, Drift> {
    let failed = |error: anyhow::Error| Drift(vec![format!("{error:#}")]);
    let directory = Directory::open(Path::new(&reviewed.cwd.path)).map_err(failed)?;
    if directory.device != reviewed.cwd.device || directory.inode != reviewed.cwd.inode {
        // Every relative name means something else there, so nothing more is looked at.
        return Err(Drift(vec![format!("the directory {} is now another directory", reviewed.cwd.path)]));
    }
    let now = invocation.freeze(directory).map_err(failed)?;
    if now.content == *reviewed {
        return Ok(now);
    }
    Err(Drift(differences(reviewed, &now.content)))
}

fn differences(reviewed: &Content, now: &Content) -> Vec<String> {
    let mut all = Vec::new();
    if reviewed.argv != now.argv {
        all.push("the arguments changed".to_owned());
    }
    if reviewed.environment != now.environment {
        all.push("the environment changed".to_owned());
    }
    executable(&reviewed.executable, &now.executable, &mut all);
    operands(&reviewed.operands, &now.operands, &mut all);
    if all.is_empty() {
        // Whatever differs, differs: a field without words here must not count as equal.
        all.push("the command changed in a way that has no name".to_owned());
    }
    all
}

fn executable(reviewed: &Executable, now: &Executable, all: &mut Vec<String>) {
    if reviewed.path != now.path {
        all.push(format!("the command is now {}, no longer {}", now.path, reviewed.path));
        return;
    }
    if (&reviewed.sha256, reviewed.bytes) != (&now.sha256, now.bytes) {
        all.push(format!("the content of the executable {} changed", now.path));
    }
    for (at, old) in reviewed.interpreters.iter().enumerate() {
        match now.interpreters.get(at) {
            Some(new) if new.path == old.path && new != old => {
                all.push(format!("the content of the interpreter {} changed", old.path));
            }
            Some(new) if new.path != old.path => {
                all.push(format!("the interpreter is now {}, no longer {}", new.path, old.path));
            }
            Some(_) => {}
            None => all.push(format!("the interpreter {} is no longer used", old.path)),
        }
    }
    for new in now.interpreters.iter().skip(reviewed.interpreters.len()) {
        all.push(format!("the interpreter {} appeared", new.path));
    }
}

fn operands(reviewed: &[Operand], now: &[Operand], all: &mut Vec<String>) {
    for old in reviewed {
        let (argument, path) = old.place();
        match now.iter().find(|new| new.place() == old.place()) {
            None => all.push(format!("the file {path} (argument {argument}) vanished")),
            Some(new) if new == old => {}
            Some(new) => {
                let what = if same_bytes(old, new) { "the way to run" } else { "the content of" };
                all.push(format!("{what} {path} (argument {argument}) changed"));
            }
        }
    }
    for new in now.iter().filter(|new| !reviewed.iter().any(|old| old.place() == new.place())) {
        let (argument, path) = new.place();
        all.push(format!("the file {path} (argument {argument}) appeared"));
    }
}

/// Equal digests with another mark: what would read the file has changed, not the file.
fn same_bytes(old: &Operand, new: &Operand) -> bool {
    match (old, new) {
        (Operand::Hashed { sha256: old, .. }, Operand::Hashed { sha256: new, .. }) => old == new,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::environment::Environment;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    fn invocation(argv: &[&str], path: &Path) -> Invocation {
        let argv = argv.iter().map(|&text| text.to_owned()).collect();
        Invocation { argv, environment: Environment::for_child([("PATH".into(), path.into())]) }
    }

    fn script(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Freezes `argv` in a new directory, lets `meddle` loose on it, and returns what is said of that.
    fn after(argv: &[&str], prepare: fn(&Path), meddle: fn(&Path)) -> Option<String> {
        let home = tempfile::tempdir().unwrap();
        prepare(home.path());
        let invocation = invocation(argv, &home.path().join("bin"));
        let reviewed = invocation.freeze(Directory::open(home.path()).unwrap()).unwrap().content;
        meddle(home.path());
        let home = home.path().to_str().unwrap();
        verify(&invocation, &reviewed).err().map(|drift| drift.to_string().replace(home, "~"))
    }

    #[test]
    fn an_untouched_command_verifies() {
        let prepare = |home: &Path| fs::write(home.join("data"), "1").unwrap();
        let touch = |home: &Path| fs::write(home.join("unrelated"), "1").unwrap();
        assert_eq!(after(&["/bin/cat", "data"], prepare, touch), None);
    }

    #[test]
    fn every_change_of_an_operand_is_named() {
        let prepare = |home: &Path| {
            fs::write(home.join("script.sh"), "echo\n").unwrap();
            fs::write(home.join("gone"), "1").unwrap();
            fs::write(home.join("moved"), "1").unwrap();
        };
        let meddle = |home: &Path| {
            fs::write(home.join("script.sh"), "MUTATED\n").unwrap();
            fs::remove_file(home.join("gone")).unwrap();
            fs::write(home.join("new"), "1").unwrap();
            fs::write(home.join("other"), "2").unwrap();
            fs::rename(home.join("other"), home.join("moved")).unwrap();
        };
        let said = after(&["/bin/sh", "script.sh", "gone", "--in=new", "moved"], prepare, meddle);
        assert_eq!(
            said.as_deref(),
            Some(
                "the content of script.sh (argument 1) changed; the file gone (argument 2) vanished; \
                 the content of moved (argument 4) changed; the file new (argument 3) appeared"
            )
        );
    }

    #[test]
    fn a_replaced_executable_is_named() {
        let prepare = |home: &Path| {
            fs::create_dir(home.join("bin")).unwrap();
            script(&home.join("bin/tool"), "#!/bin/sh\n");
        };
        let replace = |home: &Path| script(&home.join("bin/tool"), "#!/bin/sh\necho MUTATED\n");
        let said = after(&["tool"], prepare, replace);
        assert_eq!(said.as_deref(), Some("the content of the executable ~/bin/tool changed"));
        let remove = |home: &Path| fs::remove_file(home.join("bin/tool")).unwrap();
        assert!(after(&["tool"], prepare, remove).unwrap().contains("tool is no executable file"));
        let disarm = |home: &Path| {
            fs::set_permissions(home.join("bin/tool"), fs::Permissions::from_mode(0o644)).unwrap();
        };
        assert!(after(&["tool"], prepare, disarm).unwrap().contains("~/bin/tool is not executable"));
    }

    #[test]
    fn an_executable_that_now_comes_first_is_named() {
        let home = tempfile::tempdir().unwrap();
        let [first, second]: [PathBuf; 2] = ["first", "second"].map(|name| home.path().join(name));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        script(&second.join("tool"), "#!/bin/sh\n");
        let path = format!("{}:{}", first.display(), second.display());
        let invocation = invocation(&["tool"], Path::new(&path));
        let reviewed = invocation.freeze(Directory::open(home.path()).unwrap()).unwrap().content;
        script(&first.join("tool"), "#!/bin/sh\n");
        let said = verify(&invocation, &reviewed).err().unwrap().to_string();
        assert_eq!(
            said,
            format!("the command is now {0}/first/tool, no longer {0}/second/tool", home.path().display())
        );
    }

    #[test]
    fn a_replaced_interpreter_is_named() {
        let prepare = |home: &Path| {
            fs::copy("/bin/cat", home.join("interpreter")).unwrap();
            script(&home.join("tool"), "#!./interpreter\n");
        };
        let replace = |home: &Path| {
            fs::remove_file(home.join("interpreter")).unwrap();
            fs::copy("/bin/ls", home.join("interpreter")).unwrap();
        };
        let said = after(&["./tool"], prepare, replace);
        assert_eq!(said.as_deref(), Some("the content of the interpreter ~/./interpreter changed"));
    }

    #[test]
    fn a_huge_file_is_watched_by_size_and_time() {
        let prepare = |home: &Path| {
            fs::File::create(home.join("huge"))
                .unwrap()
                .set_len(super::super::operand::MAX_HASHED_BYTES + 1)
                .unwrap();
        };
        let later = |home: &Path| {
            let file = fs::OpenOptions::new().write(true).open(home.join("huge")).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        let said = after(&["/bin/cat", "huge"], prepare, later);
        assert_eq!(said.as_deref(), Some("the content of huge (argument 1) changed"));
        let shrink = |home: &Path| fs::write(home.join("huge"), "small").unwrap();
        assert!(after(&["/bin/cat", "huge"], prepare, shrink).is_some());
    }

    #[test]
    fn a_link_that_leads_to_another_directory_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| home.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        symlink(&one, &link).unwrap();
        let invocation = invocation(&["/bin/true"], Path::new("/bin"));
        let reviewed = invocation.freeze(Directory::open(&link).unwrap()).unwrap().content;
        assert!(verify(&invocation, &reviewed).is_ok());
        fs::remove_file(&link).unwrap();
        symlink(&two, &link).unwrap();
        let said = verify(&invocation, &reviewed).err().unwrap().to_string();
        assert_eq!(said, format!("the directory {} is now another directory", link.display()));
        fs::remove_file(&link).unwrap();
        let said = verify(&invocation, &reviewed).err().unwrap().to_string();
        assert!(said.contains("cannot open the directory"), "{said}");
    }

    #[test]
    fn another_environment_is_another_command() {
        let home = tempfile::tempdir().unwrap();
        let reviewed = invocation(&["/bin/true"], Path::new("/bin"));
        let reviewed = reviewed.freeze(Directory::open(home.path()).unwrap()).unwrap().content;
        let said =
            verify(&invocation(&["/bin/true"], Path::new("/usr/bin")), &reviewed).err().unwrap().to_string();
        assert_eq!(said, "the environment changed");
        let said =
            verify(&invocation(&["/bin/true", "x"], Path::new("/bin")), &reviewed).err().unwrap().to_string();
        assert_eq!(said, "the arguments changed");
    }
}
