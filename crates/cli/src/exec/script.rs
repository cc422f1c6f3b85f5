//! Which script a POSIX shell would read, and whether it can be read from a copy.
//!
//! Owns the rule of `docs/decisions/0003-script-bytes.md`: a shell that reads its script from a sealed copy of the
//! approved bytes cannot be given other bytes, and notices nothing unless the script asks where it is. The rule errs
//! towards not copying: then the script runs from its path, right after its digest was checked.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::digest;
use super::directory::Directory;
use super::operand::MAX_HASHED_BYTES;

/// Shells that read a script from the path they are given, and only from there.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ksh", "mksh", "zsh"];

/// Option letters that neither take an argument nor change where commands are read from.
const PLAIN_LETTERS: &str = "abefhklmnpuvxBCEHPT";

/// Long options of bash and zsh of the same kind.
const PLAIN_LONG: [&str; 7] = ["login", "noediting", "noprofile", "norc", "posix", "restricted", "verbose"];

/// Text by which a script may learn its own path, or the path of what called a function. A copy has another path, so
/// a script that has any of these is left alone. `$0` of an awk program inside a script is caught as well.
const OWN_LOCATION: [&str; 14] = [
    "$0",
    "${0",
    "${#0",
    "${!0",
    "BASH_SOURCE",
    "BASH_ARGV",
    "caller",
    "ARGZERO",
    "ZSH_SCRIPT",
    "functrace",
    "funcfiletrace",
    "funcsourcetrace",
    ".sh.file",
    "/proc/",
];

/// Whether a file is one of the shells, by the name it was found under or the one its links lead to.
pub fn is_shell(path: &Path) -> bool {
    let named =
        |path: &Path| path.file_name().and_then(OsStr::to_str).is_some_and(|name| SHELLS.contains(&name));
    named(path) || std::fs::canonicalize(path).is_ok_and(|path| named(&path))
}

/// Where among a shell's arguments its script is. `None` if it reads none, or if an option is not known here.
pub fn position(arguments: &[&str]) -> Option<usize> {
    let mut at = 0;
    loop {
        let argument = *arguments.get(at)?;
        if argument == "--" || argument == "-" {
            return arguments.get(at + 1).map(|_| at + 1);
        }
        if let Some(long) = argument.strip_prefix("--") {
            if !PLAIN_LONG.contains(&long) {
                return None;
            }
        } else if let Some(letters) = argument.strip_prefix(['-', '+']) {
            let options = letters.chars().filter(|letter| *letter == 'o').count();
            if options > 1
                || letters.is_empty()
                || !letters.chars().all(|one| one == 'o' || PLAIN_LETTERS.contains(one))
            {
                return None;
            }
            // `-o NAME`: the next argument is the option's name.
            at += options;
        } else {
            return Some(at);
        }
        at += 1;
    }
}

/// Reads the bytes that have a digest. If the file no longer has it, nothing is returned.
pub fn read(path: &Path, sha256: &str, directory: &Directory) -> Result<Vec<u8>> {
    let say = || format!("cannot read {}", path.display());
    let (file, _) = directory.open_regular(path).with_context(say)?.with_context(say)?;
    let mut bytes = Vec::new();
    file.take(MAX_HASHED_BYTES + 1).read_to_end(&mut bytes).with_context(say)?;
    ensure!(digest::of_bytes(&bytes).sha256 == sha256, "the content of {} changed", path.display());
    Ok(bytes)
}

/// Whether a script would behave the same from another path, as far as its text shows.
pub fn is_placeless(script: &[u8]) -> bool {
    // `(%` begins the prompt expansion by which zsh names the file being read.
    let mentions = |text: &str| script.windows(text.len()).any(|window| window == text.as_bytes());
    !OWN_LOCATION.iter().any(|text| mentions(text)) && !mentions("(%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_the_first_argument_that_is_no_option() {
        for (arguments, expected) in [
            (&["script.sh"][..], Some(0)),
            (&["script.sh", "-c", "x"], Some(0)),
            (&["-e", "script.sh"], Some(1)),
            (&["-eu", "+x", "script.sh"], Some(2)),
            (&["-o", "pipefail", "script.sh"], Some(2)),
            (&["-euo", "pipefail", "script.sh", "a"], Some(2)),
            (&["--norc", "--noprofile", "script.sh"], Some(2)),
            (&["--", "-odd"], Some(1)),
            (&["-", "script.sh"], Some(1)),
        ] {
            assert_eq!(position(arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn a_shell_that_may_read_something_else_has_no_script() {
        for arguments in [
            &[][..],
            &["-c", "script.sh"],
            &["-ec", "script.sh"],
            &["-s", "script.sh"],
            &["-i", "script.sh"],
            &["--rcfile", "rc", "script.sh"],
            &["--init-file", "rc", "script.sh"],
            &["-O", "extglob", "script.sh"],
            &["-oo", "a", "b", "script.sh"],
            &["-o"],
            &["+", "script.sh"],
            &["-e"],
            &["--"],
            &["-é", "script.sh"],
        ] {
            assert_eq!(position(arguments), None, "{arguments:?}");
        }
    }

    #[test]
    fn a_script_that_asks_where_it_is_is_not_placeless() {
        assert!(is_placeless(b"set -e\necho hello \"$1\" $10\n"));
        for script in [
            "cd \"$(dirname \"$0\")\"",
            "echo ${0##*/}",
            "echo ${BASH_SOURCE[0]}",
            "echo ${(%):-%x}",
            "readlink /proc/$$/fd/255",
            "echo ${.sh.file}",
        ] {
            assert!(!is_placeless(script.as_bytes()), "{script}");
        }
    }

    #[test]
    fn a_shell_is_known_by_its_name_or_by_what_its_name_leads_to() {
        let home = tempfile::tempdir().unwrap();
        let alias = home.path().join("alias");
        std::os::unix::fs::symlink("/bin/bash", &alias).unwrap();
        assert!(is_shell(Path::new("/bin/sh")));
        assert!(is_shell(&alias));
        assert!(!is_shell(Path::new("/bin/cat")));
        assert!(!is_shell(Path::new("/usr/bin/python3")));
    }
}
