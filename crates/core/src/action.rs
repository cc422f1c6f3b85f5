//! The frozen action: what would be done, and the digest that binds a decision to it.
//!
//! Owns kinds, scopes, boundaries, the digest and the durable id. The canonical bytes themselves
//! are `canonical`'s; how an action is shown is `presentation`'s.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::canonical::Canonical;
use crate::id::{ApprovalId, InvalidId, trimmed};
use crate::limits::{BOUNDARY_CHARS, CONTENT_BYTES};

/// Where a caller stops. Closed: a request of any other kind is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A command line that would run as a child process.
    Exec,
    /// An action of a plugin in somebody else's host.
    Plugin,
    /// One tool call of an agent run.
    Tool,
    /// One task about to be handed to an agent.
    Dispatch,
    /// The step from one round of tasks to the next.
    Round,
    /// A plan before any of it runs.
    Plan,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 6] =
        [Kind::Exec, Kind::Plugin, Kind::Tool, Kind::Dispatch, Kind::Round, Kind::Plan];

    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Exec => "exec",
            Kind::Plugin => "plugin",
            Kind::Tool => "tool",
            Kind::Dispatch => "dispatch",
            Kind::Round => "round",
            Kind::Plan => "plan",
        }
    }

    /// The scope that goes into the digest of an action of this kind.
    pub const fn scope(self) -> &'static str {
        match self {
            Kind::Exec => "exec",
            Kind::Plugin => "plugin",
            Kind::Tool => "tool_call",
            Kind::Dispatch => "task_dispatch",
            Kind::Round => "task_round",
            Kind::Plan => "plan",
        }
    }

    /// The kind whose scope this is.
    pub fn of_scope(scope: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.scope() == scope)
    }
}

impl FromStr for Kind {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or(InvalidId { what: "kind", why: "it is one of exec, plugin, tool, dispatch, round, plan" })
    }
}

/// SHA-256 over the canonical JSON of `{scope, boundary, content}`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The SHA-256 of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest as 64 lowercase hex digits.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }
}

impl FromStr for Digest {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = InvalidId { what: "digest", why: "it is 64 lowercase hex digits" };
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(invalid);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| invalid.clone())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid.clone())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// A frozen action. Two actions are the same if and only if their digests are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    kind: Kind,
    boundary: String,
    content: Canonical,
    digest: Digest,
}

/// Why something cannot be frozen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFrozen {
    /// The boundary is empty after trimming, too long, or holds a control character.
    #[error("the boundary {0}")]
    Boundary(&'static str),
    /// The content is larger than any reviewer could be shown.
    #[error("the content has {bytes} bytes; at most {CONTENT_BYTES} can be frozen")]
    TooLarge {
        /// Size of the canonical content.
        bytes: usize,
    },
}

impl Action {
    /// Freezes an action. The boundary is trimmed first.
    ///
    /// # Errors
    /// See [`NotFrozen`].
    pub fn freeze(kind: Kind, boundary: &str, content: Canonical) -> Result<Self, NotFrozen> {
        let boundary = trimmed(boundary);
        if boundary.is_empty() {
            return Err(NotFrozen::Boundary("is empty"));
        }
        if boundary.chars().count() > BOUNDARY_CHARS {
            return Err(NotFrozen::Boundary("is longer than 16,384 characters"));
        }
        if boundary.chars().any(char::is_control) {
            return Err(NotFrozen::Boundary("holds a control character"));
        }
        let bytes = content.as_str().len();
        if bytes > CONTENT_BYTES {
            return Err(NotFrozen::TooLarge { bytes });
        }
        let digest = digest(kind.scope(), boundary, &content);
        Ok(Self { kind, boundary: boundary.to_owned(), content, digest })
    }

    /// The action's kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The instance's locator within its run or caller.
    pub fn boundary(&self) -> &str {
        &self.boundary
    }

    /// What would be done, canonical.
    pub fn content(&self) -> &Canonical {
        &self.content
    }

    /// What a decision binds to.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The durable id of this action's approval within `run`: the same run, boundary and content
    /// always have the same id. A caller without a run names its epoch instead.
    pub fn id(&self, run: &str) -> ApprovalId {
        id(run, self.kind.scope(), &self.boundary, self.digest)
    }
}

fn digest(scope: &str, boundary: &str, content: &Canonical) -> Digest {
    // The keys of {boundary, content, scope} are in canonical order and the content is canonical
    // already, so the canonical form of the whole is put together from its parts.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let text = format!(
        r#"{{"boundary":{},"content":{},"scope":{}}}"#,
        quoted(boundary),
        content.as_str(),
        quoted(scope)
    );
    Digest::of(text.as_bytes())
}

fn id(run: &str, scope: &str, boundary: &str, digest: Digest) -> ApprovalId {
    let locator = format!("{}\n{scope}\n{boundary}\n{digest}", trimmed(run));
    let hex = Digest::of(locator.as_bytes()).to_hex();
    format!("apr_{}", &hex[..32]).parse().expect("32 hex digits follow apr_")
}

/// A short name for an approval where the id does not fit: base64url SHA-256 of kind, NUL, id.
pub fn reference(kind: Kind, id: &ApprovalId) -> String {
    URL_SAFE_NO_PAD.encode(Digest::of(format!("{}\0{id}", kind.as_str()).as_bytes()).0)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibble = |n: u8| char::from(DIGITS[usize::from(n)]);
    bytes.iter().flat_map(|b| [nibble(b >> 4), nibble(b & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Vector<'a> {
        run_id: String,
        scope: String,
        boundary: String,
        #[serde(borrow)]
        content: &'a RawValue,
        request_hash: String,
        id: String,
    }

    #[test]
    fn every_known_request_has_its_known_digest_and_id() {
        let lines = include_str!("../tests/fixtures/requests.jsonl").lines();
        let mut count = 0;
        for line in lines {
            let vector: Vector = serde_json::from_str(line).unwrap();
            let kind = Kind::of_scope(&vector.scope).unwrap();
            let action =
                Action::freeze(kind, &vector.boundary, Canonical::parse(vector.content.get()).unwrap())
                    .unwrap();
            assert_eq!(action.digest().to_hex(), vector.request_hash, "{line}");
            assert_eq!(action.id(&vector.run_id).as_str(), vector.id, "{line}");
            count += 1;
        }
        assert_eq!(count, 165);
    }

    #[test]
    fn scope_boundary_and_content_each_change_the_digest() {
        let content = |text| Canonical::parse(text).unwrap();
        let base = Action::freeze(Kind::Tool, "t:c", content("{}")).unwrap();
        for other in [
            Action::freeze(Kind::Plan, "t:c", content("{}")).unwrap(),
            Action::freeze(Kind::Tool, "t:d", content("{}")).unwrap(),
            Action::freeze(Kind::Tool, "t:c", content("[]")).unwrap(),
        ] {
            assert_ne!(other.digest(), base.digest());
            assert_ne!(other.id("r"), base.id("r"));
        }
        assert_ne!(base.id("r"), base.id("s"));
        assert_eq!(Action::freeze(Kind::Tool, " t:c\u{FEFF}", content(" { } ")).unwrap(), base);
    }

    #[test]
    fn the_separator_cannot_be_smuggled_into_a_boundary() {
        for bad in ["", "  ", "a\nb", &"x".repeat(BOUNDARY_CHARS + 1)] {
            assert!(matches!(
                Action::freeze(Kind::Exec, bad, Canonical::parse("{}").unwrap()),
                Err(NotFrozen::Boundary(_))
            ));
        }
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let digest = Digest::of(b"x");
        assert_eq!(digest.to_hex().parse::<Digest>().unwrap(), digest);
        assert!(digest.to_hex().to_uppercase().parse::<Digest>().is_err());
    }
}
