//! Who acts. Owns what each kind of identity may do at all; what it may do to one record is `approval`'s.

use crate::id::PrincipalId;

/// What kind of identity this is. Fixed when the credential is made; nothing a caller sends changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// The person who holds the home's operator credential.
    Administrator,
    /// An agent's credential: it requests, waits, claims and settles. It never decides.
    Agent,
    /// The authority itself, for what follows from time alone.
    Authority,
}

impl PrincipalKind {
    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            PrincipalKind::Administrator => "administrator",
            PrincipalKind::Agent => "agent",
            PrincipalKind::Authority => "authority",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Administrator, Self::Agent, Self::Authority].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// An authenticated identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its name in records.
    pub id: PrincipalId,
    /// What it may do.
    pub kind: PrincipalKind,
    /// What reviewers call it.
    pub label: String,
}

impl Principal {
    /// The authority acting by itself: expiry, lapsed leases, lost claims.
    pub fn authority() -> Self {
        let id = "authority".parse().expect("a fixed name is a valid id");
        Self { id, kind: PrincipalKind::Authority, label: "Holdgate".to_owned() }
    }

    /// Whether this identity may answer requests of others.
    pub fn may_review(&self) -> bool {
        self.kind == PrincipalKind::Administrator
    }

    /// Whether a record requested by `requester` exists at all as far as this identity is concerned.
    pub fn may_see(&self, requester: &PrincipalId) -> bool {
        match self.kind {
            PrincipalKind::Administrator | PrincipalKind::Authority => true,
            PrincipalKind::Agent => self.id == *requester,
        }
    }
}
