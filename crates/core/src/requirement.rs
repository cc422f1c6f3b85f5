//! What it takes to end a request: how many people, which answers, whether with a reason.

use serde::{Deserialize, Serialize};

/// One reviewer's answer, and the terminal answer that it adds up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Run exactly this, once.
    AllowOnce,
    /// Run this and what a standing grant would cover. Known, but no request allows it yet.
    AllowAlways,
    /// Do not run it.
    Deny,
}

impl Decision {
    /// Every decision.
    pub const ALL: [Decision; 3] = [Decision::AllowOnce, Decision::AllowAlways, Decision::Deny];

    /// The decision's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Decision::AllowOnce => "allow-once",
            Decision::AllowAlways => "allow-always",
            Decision::Deny => "deny",
        }
    }

    /// The decision of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Decision::ALL.into_iter().find(|decision| decision.as_str() == name)
    }
}

/// What it takes. One person decides; the requester is never that person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Whether an answer must say why.
    pub reason_required: bool,
    /// The answers that are offered. Always holds `deny`.
    pub allowed_decisions: Vec<Decision>,
}

/// Why a stricter requirement cannot be honoured. It is refused rather than quietly weakened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Several distinct people were asked for.
    #[error("requirement.approvals is {0}; one person decides, so only 1 can be asked for")]
    Approvals(u32),
    /// The requester would be its own reviewer.
    #[error("requirement.requesterMayDecide cannot be true: a requester never decides its own request")]
    RequesterMayDecide,
    /// A list of named reviewers was asked for.
    #[error("requirement.reviewers cannot be named: every reviewer of this gateway may decide")]
    Reviewers,
    /// A standing grant was asked for.
    #[error("requirement.allowedDecisions cannot hold allow-always: there are no standing grants")]
    AllowAlways,
    /// No way to allow was left.
    #[error(
        "requirement.allowedDecisions must hold allow-once: a request that nobody can allow is refused at once"
    )]
    NothingToAllow,
}

impl Default for Requirement {
    fn default() -> Self {
        Self { reason_required: false, allowed_decisions: vec![Decision::AllowOnce, Decision::Deny] }
    }
}

impl Requirement {
    /// The requirement with these answers offered. `deny` is always among them.
    ///
    /// # Errors
    /// Refuses a list with `allow-always`, or one that allows nothing.
    pub fn offering(mut self, mut decisions: Vec<Decision>) -> Result<Self, Unsupported> {
        decisions.push(Decision::Deny);
        decisions.sort_unstable();
        decisions.dedup();
        if decisions.contains(&Decision::AllowAlways) {
            return Err(Unsupported::AllowAlways);
        }
        if !decisions.contains(&Decision::AllowOnce) {
            return Err(Unsupported::NothingToAllow);
        }
        self.allowed_decisions = decisions;
        Ok(self)
    }
}
