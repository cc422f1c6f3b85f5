//! Commands of this program that people copy: how it is called, and how a word is written for a shell.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// How a watcher calls this program: by its path where it was called by one.
pub fn our_name() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let has_path = called.is_some_and(|name| name.components().count() > 1);
    let path = std::env::current_exe().ok().filter(|_| has_path);
    path.map_or("holdgate".to_owned(), word)
}

/// A text as one word of a POSIX shell: bare, in single quotes, or escaped where it cannot be shown as it is.
pub fn word(text: impl AsRef<OsStr>) -> String {
    let bytes = text.as_ref().as_bytes();
    let is_bare = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && bytes.iter().all(is_bare) => text.to_owned(),
        Ok(text) if holdgate_core::presentation::visible(text) == text => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let mut escaped = String::from("$'");
            for byte in bytes {
                // Writing to a string cannot fail.
                let _ = match byte {
                    byte if is_bare(byte) => write!(escaped, "{}", char::from(*byte)),
                    byte => write!(escaped, "\\{byte:03o}"),
                };
            }
            escaped + "'"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_word_is_as_plain_as_it_can_be() {
        for (text, written) in [
            ("/home/ada/.local", "/home/ada/.local"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
            ("", "''"),
            ("~/a b", "'~/a b'"),
            ("it's", r"'it'\''s'"),
            ("a\u{1b}b", r"$'a\033b'"),
        ] {
            assert_eq!(word(text), written);
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_written() {
        for text in ["$(reboot) `x` \"y\" 'z' \\ ;&|<>*?[]{}#!~", "é 漢", "", "-a", "a=b"] {
            let output =
                Command::new("sh").args(["-c", &format!("printf %s {}", word(text))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
