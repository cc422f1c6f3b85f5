//! The files that a command's arguments name.
//!
//! Owns which argument counts as a file's name and what is recorded of the file. An operand is what the command
//! would most likely read; a file that it finds by other means is not frozen, and no record says it is.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::Stat;
use rustix::io::Errno;
use serde::Serialize;

use super::digest;
use super::directory::Directory;

/// Files up to this size are bound by their content, larger ones by size and modification time.
pub const MAX_HASHED_BYTES: u64 = 16 * 1024 * 1024;
/// The largest whole number that every JSON reader keeps.
const MAX_EXACT: i64 = (1 << 53) - 1;

/// A regular file that an argument names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Operand {
    /// Bound by its content.
    Hashed {
        /// Which argument; 0 is the command.
        argument: usize,
        /// The name as it stands in the argument, so relative to the command's directory.
        path: String,
        /// Lowercase hex SHA-256.
        sha256: String,
        /// Its size.
        bytes: u64,
        /// The child reads the bytes digested here, not the file at the path.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pinned: bool,
    },
    /// Bound by size and time only: too large, or not readable by this user.
    #[serde(rename_all = "camelCase")]
    Unhashed {
        /// Which argument; 0 is the command.
        argument: usize,
        /// The name as it stands in the argument.
        path: String,
        /// Its size.
        bytes: u64,
        /// When its content last changed, in Unix milliseconds.
        modified_ms: i64,
        /// Always true: it marks the weaker binding for whoever reviews it.
        unhashed: bool,
    },
}

impl Operand {
    /// Which argument, and the name in it.
    pub fn place(&self) -> (usize, &str) {
        match self {
            Self::Hashed { argument, path, .. } | Self::Unhashed { argument, path, .. } => (*argument, path),
        }
    }
}

/// Every operand of a command, in the order of its arguments.
pub fn find(argv: &[String], directory: &Directory) -> Result<Vec<Operand>> {
    let mut found = Vec::new();
    for (argument, text) in argv.iter().enumerate().skip(1) {
        for name in names(text) {
            found.extend(look(argument, name, directory)?);
        }
    }
    Ok(found)
}

/// The parts of an argument that may name a file: all of it, what follows a leading `@` (`curl -d @FILE`), what
/// follows the first `=` (`--file=FILE`, `if=FILE`), and both (`data=@FILE`).
fn names(argument: &str) -> Vec<&str> {
    let mut names = vec![argument];
    names.extend(argument.strip_prefix('@'));
    if let Some((_, value)) = argument.split_once('=') {
        names.push(value);
        names.extend(value.strip_prefix('@'));
    }
    names.retain(|name| !name.is_empty());
    names
}

/// What a name leads to, if it is a regular file.
fn look(argument: usize, name: &str, directory: &Directory) -> Result<Option<Operand>> {
    let say = || format!("cannot read {name} (argument {argument}), so it cannot be frozen");
    let path = Path::new(name);
    let opened = match directory.open_regular(path) {
        Ok(opened) => opened,
        // Regular, but not for us to read: the command may still act on it, `rm` for one.
        Err(Errno::ACCESS | Errno::PERM) if directory.stat(path).is_ok() => {
            return directory
                .stat(path)
                .map_err(Into::into)
                .and_then(|stat| unhashed(argument, name, &stat))
                .map(Some);
        }
        // It names no file that can be reached from here.
        Err(
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::ACCESS | Errno::INVAL,
        ) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(say),
    };
    let Some((file, stat)) = opened else { return Ok(None) };
    if size(&stat) > MAX_HASHED_BYTES {
        return unhashed(argument, name, &stat).map(Some);
    }
    let (digest, _) = digest::of_file(&file, 0).with_context(say)?;
    let path = name.to_owned();
    Ok(Some(Operand::Hashed { argument, path, sha256: digest.sha256, bytes: digest.bytes, pinned: false }))
}

fn unhashed(argument: usize, name: &str, stat: &Stat) -> Result<Operand> {
    let exact = i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
    let modified_ms = i64::try_from(exact)
        .ok()
        .filter(|milliseconds| milliseconds.abs() <= MAX_EXACT)
        .with_context(|| format!("{name} (argument {argument}) has an impossible modification time"))?;
    let bytes = size(stat);
    ensure!(bytes <= MAX_EXACT as u64, "{name} (argument {argument}) is too large to be described");
    Ok(Operand::Unhashed { argument, path: name.to_owned(), bytes, modified_ms, unhashed: true })
}

/// A regular file's size is never negative.
fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operands(home: &Path, arguments: &[&str]) -> Vec<Operand> {
        let argv: Vec<String> = ["cmd"].iter().chain(arguments).map(|&text| text.to_owned()).collect();
        find(&argv, &Directory::open(home).unwrap()).unwrap()
    }

    fn places(found: &[Operand]) -> Vec<(usize, &str)> {
        found.iter().map(Operand::place).collect()
    }

    #[test]
    fn every_way_of_naming_a_file_in_an_argument_is_an_operand() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("file"), "content").unwrap();
        std::fs::write(home.path().join("a=file"), "other").unwrap();
        std::fs::write(home.path().join("@file"), "at").unwrap();
        std::os::unix::fs::symlink("file", home.path().join("link")).unwrap();
        let absolute = home.path().join("file").to_str().unwrap().to_owned();
        let arguments = [
            "file",
            "none",
            "--input=file",
            "@file",
            "data=@file",
            "a=file",
            "link",
            ".",
            &absolute,
            "cmd",
            "file ",
        ];
        assert_eq!(
            places(&operands(home.path(), &arguments)),
            [
                (1, "file"),
                (3, "file"),
                (4, "@file"),
                (4, "file"),
                (5, "@file"),
                (5, "file"),
                (6, "a=file"),
                (6, "file"),
                (7, "link"),
                (9, absolute.as_str()),
            ]
        );
    }

    #[test]
    fn content_is_bound_and_its_digest_is_of_the_target_of_a_link() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("file"), "abc").unwrap();
        std::os::unix::fs::symlink("file", home.path().join("link")).unwrap();
        let found = operands(home.path(), &["link"]);
        let digest = digest::of_bytes(b"abc");
        assert_eq!(
            serde_json::to_value(&found).unwrap(),
            serde_json::json!([{"argument": 1, "path": "link", "sha256": digest.sha256, "bytes": 3}])
        );
    }

    #[test]
    fn a_file_over_the_limit_is_bound_by_size_and_time_and_marked() {
        let home = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(home.path().join("huge")).unwrap();
        file.set_len(MAX_HASHED_BYTES).unwrap();
        assert!(matches!(
            operands(home.path(), &["huge"])[..],
            [Operand::Hashed { bytes: MAX_HASHED_BYTES, .. }]
        ));
        file.set_len(MAX_HASHED_BYTES + 1).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123))
            .unwrap();
        assert_eq!(
            serde_json::to_value(operands(home.path(), &["huge"])).unwrap(),
            serde_json::json!([{"argument": 1, "path": "huge", "bytes": MAX_HASHED_BYTES + 1,
                "modifiedMs": 1_700_000_000_123_i64, "unhashed": true}])
        );
    }

    #[test]
    fn what_is_no_regular_file_is_no_operand() {
        let home = tempfile::tempdir().unwrap();
        let long = "x".repeat(5000);
        assert!(
            operands(home.path(), &["", ".", "/dev/null", "no/such/file", &long, "=", "@", "a=@"]).is_empty()
        );
    }
}
