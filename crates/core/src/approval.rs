//! One approval: its facts, its phases, and the only function that moves it from one to the next.
//!
//! Owns every transition. Does not know how a record is stored, sent or shown.

use serde::{Deserialize, Serialize};

use crate::access::{Access, access};
use crate::action::{Action, Digest, Kind, reference};
use crate::canonical::Canonical;
use crate::event::Event;
use crate::id::{ApprovalId, ClaimId, EpochId, RunId};
use crate::presentation::Presentation;
use crate::principal::{Actor, Principal};
use crate::refusal::Refusal;
use crate::requirement::{Decision, Requirement};
use crate::run::Fence;
use crate::time::Time;

mod transition;
#[cfg(test)]
mod transition_tests;

pub use transition::{Bound, Change, Command};

/// The durable record of one request for permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Derived from what is asked and by which run (see [`Action::id`]), or chosen by the requester.
    pub id: ApprovalId,
    /// Where the caller stopped.
    pub kind: Kind,
    /// The action's locator within its run or caller.
    pub boundary: String,
    /// What a decision binds to.
    pub digest: Digest,
    /// The frozen content. Kept for a stored run, which runs it; dropped for a live process, which holds it.
    pub content: Option<Canonical>,
    /// What reviewers are shown.
    pub presentation: Presentation,
    /// The requester's own words. Shown apart from the action and marked as such.
    pub reason: Option<String>,
    /// Where the request came from, in the requester's words.
    pub source: Source,
    /// Who asked, authenticated.
    pub requester: Actor,
    /// The program that the requester said it was. Told, never trusted.
    pub client: Option<String>,
    /// The sessions that see the request and its end, in order. Computed once, when it was opened.
    pub audience: Vec<String>,
    /// The request as clients of the WebSocket protocol are shown it: JSON, sanitised, if it came that way.
    pub v4_request: Option<String>,
    /// What waits behind this.
    pub binding: Binding,
    /// What it takes to end it.
    pub requirement: Requirement,
    /// When it became durable.
    pub created_at: Time,
    /// When silence becomes a deny. Exactly then counts as past.
    pub expires_at: Time,
    /// The answers so far.
    pub votes: Vec<Vote>,
    /// Where it stands.
    pub phase: Phase,
}

/// Where a request came from, as the requester tells it. Shown, never trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The agent's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The session's id, which changes when the session is reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The run, as the requester calls it. Its end calls the request off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The task within the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The model's id for the tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
}

/// What waits behind an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A live process, by its epoch. Its end cancels the request.
    Runtime(EpochId),
    /// A stored run. The request outlives every process.
    Checkpoint(RunId),
}

/// One reviewer's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// The answer.
    pub decision: Decision,
    /// Who gave it.
    pub voter: Actor,
    /// When.
    pub at: Time,
    /// Why, in the reviewer's words.
    pub reason: Option<String>,
}

/// Where an approval stands. Every phase but `Pending` is terminal; everything but `Allowed` is a deny.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody has answered and there is time left.
    Pending,
    /// A person allowed it. The allow may have been spent.
    Allowed {
        /// Which allow.
        decision: Decision,
        /// When and by whom.
        end: End,
        /// What became of it.
        spent: Use,
    },
    /// A person, or the state of the record itself, denied it.
    Denied(End),
    /// Nobody answered in time.
    Expired(End),
    /// What waited behind it is gone, or the requester withdrew it.
    Cancelled(End),
}

/// What became of an allow. It is spent once, or taken back before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing yet.
    Open,
    /// It was claimed.
    Claimed(Claim),
    /// It was taken back before anybody claimed it.
    Revoked(Revocation),
}

/// That an allow was taken back. A fact beside the answer, which it does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// When.
    pub at: Time,
    /// By whom.
    pub by: Actor,
    /// Why, in their words.
    pub reason: Option<String>,
}

/// The terminal fact: when, by whom and why. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// When.
    pub at: Time,
    /// By whom.
    pub by: Actor,
    /// Why.
    pub reason: TerminalReason,
}

/// Why a request ended. Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TerminalReason {
    /// A person answered, or a runtime that may.
    User,
    /// A trusted runtime's verdict could not be understood.
    MalformedVerdict,
    /// Nobody could be shown the request, and it had asked for somebody.
    NoRoute,
    /// The deadline passed.
    Timeout,
    /// The run that waited was ended.
    RunAborted,
    /// The gateway that held it ended.
    GatewayRestart,
    /// The process that asked ended.
    CallerLost,
    /// The requester called it off.
    Withdrawn,
    /// The stored record does not decode.
    StorageCorrupt,
}

impl TerminalReason {
    /// Every reason.
    pub const ALL: [TerminalReason; 9] = [
        Self::User,
        Self::MalformedVerdict,
        Self::NoRoute,
        Self::Timeout,
        Self::RunAborted,
        Self::GatewayRestart,
        Self::CallerLost,
        Self::Withdrawn,
        Self::StorageCorrupt,
    ];

    /// The reason's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::MalformedVerdict => "malformed-verdict",
            Self::NoRoute => "no-route",
            Self::RunAborted => "run-aborted",
            Self::Timeout => "timeout",
            Self::GatewayRestart => "gateway-restart",
            Self::CallerLost => "caller-lost",
            Self::Withdrawn => "withdrawn",
            Self::StorageCorrupt => "storage-corrupt",
        }
    }
}

/// The use of an allow. There is at most one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claimer's name for its attempt.
    pub id: ClaimId,
    /// When it was made.
    pub at: Time,
    /// The run's fence when it was made, for a stored run.
    pub fence: Option<Fence>,
    /// What came of it.
    pub receipt: Option<Receipt>,
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The outcome.
    pub outcome: Outcome,
    /// When it became known.
    pub at: Time,
    /// More, in the claimer's words.
    pub detail: Option<String>,
}

/// The outcome of a claimed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran and succeeded.
    Succeeded,
    /// It ran, or was tried, and failed.
    Failed,
    /// Its holder is gone and never said.
    Unknown,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 3] = [Outcome::Succeeded, Outcome::Failed, Outcome::Unknown];

    /// The outcome's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Unknown => "unknown",
        }
    }
}

/// Where an approval stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Waiting for an answer.
    Pending,
    /// Allowed.
    Allowed,
    /// Denied.
    Denied,
    /// Its time passed.
    Expired,
    /// Called off.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Status; 5] = [Self::Pending, Self::Allowed, Self::Denied, Self::Expired, Self::Cancelled];

    /// The status's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Allowed => "allowed",
            Status::Denied => "denied",
            Status::Expired => "expired",
            Status::Cancelled => "cancelled",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Status::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// A request that has been checked and prepared: all that an approval needs but its requester and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The id that the requester chose, for a live process only. Otherwise it is derived.
    pub id: Option<ApprovalId>,
    /// What would be done.
    pub action: Action,
    /// What reviewers will be shown, derived from the action.
    pub presentation: Presentation,
    /// The requester's own words.
    pub reason: Option<String>,
    /// Where it came from.
    pub source: Source,
    /// What waits behind it.
    pub binding: Binding,
    /// What it takes.
    pub requirement: Requirement,
    /// How long until silence denies, in milliseconds.
    pub timeout_ms: i64,
    /// The program that the requester says it is.
    pub client: Option<String>,
    /// The request as clients of the WebSocket protocol are shown it: JSON, sanitised.
    pub v4_request: Option<String>,
}

impl Approval {
    /// Where it stands, in one word.
    pub fn status(&self) -> Status {
        match self.phase {
            Phase::Pending => Status::Pending,
            Phase::Allowed { .. } => Status::Allowed,
            Phase::Denied(_) => Status::Denied,
            Phase::Expired(_) => Status::Expired,
            Phase::Cancelled(_) => Status::Cancelled,
        }
    }

    /// The terminal fact, once there is one.
    pub fn end(&self) -> Option<&End> {
        match &self.phase {
            Phase::Pending => None,
            Phase::Allowed { end, .. } | Phase::Denied(end) | Phase::Expired(end) | Phase::Cancelled(end) => {
                Some(end)
            }
        }
    }

    /// The terminal answer: which allow, or deny for every other end.
    pub fn decision(&self) -> Option<Decision> {
        match self.phase {
            Phase::Pending => None,
            Phase::Allowed { decision, .. } => Some(decision),
            Phase::Denied(_) | Phase::Expired(_) | Phase::Cancelled(_) => Some(Decision::Deny),
        }
    }

    /// The claim that spent the allow.
    pub fn claim(&self) -> Option<&Claim> {
        match &self.phase {
            Phase::Allowed { spent: Use::Claimed(claim), .. } => Some(claim),
            _ => None,
        }
    }

    /// The revocation that came before any claim.
    pub fn revocation(&self) -> Option<&Revocation> {
        match &self.phase {
            Phase::Allowed { spent: Use::Revoked(revocation), .. } => Some(revocation),
            _ => None,
        }
    }

    /// The answer that the person behind `by` has given.
    pub fn vote_of(&self, by: &Principal) -> Option<&Vote> {
        let by = Actor::from(by);
        self.votes.iter().find(|vote| vote.voter.is_same_voice(&by))
    }

    /// A short name for places where the id does not fit, made from kind and id.
    pub fn reference(&self) -> String {
        reference(self.kind, &self.id)
    }

    /// How many bytes the texts of this record take, about: what a page of records is bounded by.
    pub fn text_bytes(&self) -> usize {
        let shown = &self.presentation;
        let facts = shown.facts.iter().map(|fact| fact.label.len() + fact.text.len());
        let reasons = self.votes.iter().filter_map(|vote| vote.reason.as_deref());
        let texts = [&self.reason, &self.v4_request, &shown.command_text].into_iter().flatten();
        facts.sum::<usize>()
            + texts.map(String::len).sum::<usize>()
            + reasons.map(str::len).sum::<usize>()
            + self.content.as_ref().map_or(0, |content| content.as_str().len())
            + self.boundary.len()
            + shown.headline.len()
    }

    /// The content for `reader`: only who may decide it, and only when it is what a stored run will run.
    pub fn content_for(&self, reader: &Principal) -> Option<&Canonical> {
        self.content.as_ref().filter(|_| access(self, reader) == Access::Review)
    }
}
