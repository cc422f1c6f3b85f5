//! Identifiers. Each is a checked string of its own type, so that none can stand where another belongs.

use std::fmt;
use std::str::FromStr;

use crate::limits::{APPROVAL_ID_CHARS, NAME_CHARS};

/// A text that is no identifier of the kind that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: {why}")]
pub struct InvalidId {
    /// The kind of identifier, in words.
    pub what: &'static str,
    /// What is wrong with the text.
    pub why: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The identifier as it is written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.to_owned())),
                    Err(why) => Err(InvalidId { what: $what, why }),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Names one approval: `apr_` and 32 hex digits, derived from what is asked (see [`crate::Action::id`]), or a text
    /// that the requester chose. Opaque: compared byte by byte, never trimmed or folded.
    ApprovalId, "approval id", approval
);
id!(
    /// Names a run. Chosen by the runner or minted; any text without control characters.
    RunId, "run id", name
);
id!(
    /// Names one life of a process that holds suspended work.
    EpochId, "epoch", name
);
id!(
    /// Names one attempt to spend an allow. The same id again is the same attempt.
    ClaimId, "claim id", name
);
id!(
    /// Names an authenticated identity.
    PrincipalId, "principal id", name
);
id!(
    /// Names a person, whose devices are one voice.
    PersonId, "person", name
);

fn approval(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("it is empty"),
        // No path can hold these as one segment.
        "." | ".." => Err("it is a step in a path"),
        // Not every database can keep it.
        _ if text.contains('\0') => Err("it holds a null character"),
        _ if text.chars().count() > APPROVAL_ID_CHARS => Err("it is longer than 256 characters"),
        _ => Ok(()),
    }
}

fn name(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err("it is empty")
    } else if text != trimmed(text) {
        Err("it starts or ends with white space")
    } else if text.chars().count() > NAME_CHARS {
        Err("it is longer than 512 characters")
    } else if text.chars().any(char::is_control) {
        Err("it holds a control character")
    } else {
        Ok(())
    }
}

/// Removes leading and trailing white space as ECMAScript's `trim` does, so that ids derived
/// elsewhere from the same run and boundary come out the same.
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c == '\u{FEFF}' || (c.is_whitespace() && c != '\u{85}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_id_is_opaque() {
        for good in [
            "apr_543a5a464fc6270ec21193dab48f42fa",
            "\u{FEFF}x",
            " a\u{A0}b ",
            "\u{1C}approval-1",
            "plugin:1",
        ] {
            assert_eq!(good.parse::<ApprovalId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a\0b", &"x".repeat(257)] {
            assert!(bad.parse::<ApprovalId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_has_no_hidden_edges() {
        assert!("run_é".parse::<RunId>().is_ok());
        for bad in ["", " a", "a\u{FEFF}", "a\nb", &"x".repeat(513)] {
            assert!(bad.parse::<RunId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn trimming_is_ecmascripts() {
        assert_eq!(trimmed("\u{FEFF}\u{3000} a\t\u{2029}"), "a");
        assert_eq!(trimmed("\u{85}a"), "\u{85}a", "NEL is no white space there");
    }
}
