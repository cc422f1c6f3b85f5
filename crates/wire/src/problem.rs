//! Every "no" of the API: an RFC 9457 body with a stable code.

use holdgate_core::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::approval::Approval;

/// What kind of "no", for programs. Closed; `Other` stands for a newer gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is malformed; the detail says where.
    InvalidRequest,
    /// No or no known credential.
    Unauthenticated,
    /// The credential may not do this at all.
    MissingScope,
    /// No such record, or none that this credential may know of.
    NotFound,
    /// This credential can never decide this request.
    NotAReviewer,
    /// Only the requester may do this.
    NotTheRequester,
    /// Another answer stands.
    AlreadyDecided,
    /// The digest is not the record's.
    StaleDigest,
    /// Its time was up.
    Expired,
    /// It was cancelled.
    Cancelled,
    /// This person has answered before.
    AlreadyVoted,
    /// The request does not offer that decision.
    DecisionNotOffered,
    /// The answer must say why.
    ReasonRequired,
    /// Nothing allows the action.
    NotAllowed,
    /// The allow was spent by another claim.
    AlreadyClaimed,
    /// The allow was taken back.
    Revoked,
    /// The receipt names no claim.
    NotClaimed,
    /// Another receipt stands.
    AlreadySettled,
    /// The epoch has lapsed.
    EpochLapsed,
    /// The fence is not current.
    FenceLapsed,
    /// Another process holds the run.
    RunHeld,
    /// The run has ended.
    RunEnded,
    /// The journal has moved on.
    JournalMoved,
    /// A run of that id exists.
    RunExists,
    /// New requests and claims are stopped.
    Frozen,
    /// As many requests as may be are pending already.
    TooManyPending,
    /// The id is taken.
    IdTaken,
    /// The pairing code is not valid.
    PairingCodeInvalid,
    /// The idempotency key came with another body.
    IdempotencyMismatch,
    /// The requirement asks for what cannot be honoured.
    Unsupported,
    /// Something is larger than can be taken or shown.
    TooLarge,
    /// Too many requests.
    RateLimited,
    /// The stored record cannot be read.
    StorageCorrupt,
    /// A name in `Host` that is not this gateway's.
    MisdirectedRequest,
    /// A page of another origin.
    ForbiddenOrigin,
    /// No such call.
    MethodNotAllowed,
    /// The store cannot answer now; try again, or read back.
    Unavailable,
    /// A code that this program does not know.
    #[serde(other)]
    Other,
}

impl Code {
    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        match self {
            Code::InvalidRequest => 400,
            Code::Unauthenticated => 401,
            Code::MissingScope
            | Code::NotAReviewer
            | Code::NotTheRequester
            | Code::PairingCodeInvalid
            | Code::ForbiddenOrigin => 403,
            Code::NotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::AlreadyDecided
            | Code::StaleDigest
            | Code::Expired
            | Code::Cancelled
            | Code::AlreadyVoted
            | Code::NotAllowed
            | Code::AlreadyClaimed
            | Code::Revoked
            | Code::Frozen
            | Code::IdTaken
            | Code::NotClaimed
            | Code::AlreadySettled
            | Code::EpochLapsed
            | Code::FenceLapsed
            | Code::RunHeld
            | Code::RunEnded
            | Code::JournalMoved
            | Code::RunExists
            | Code::StorageCorrupt => 409,
            Code::TooLarge => 413,
            Code::MisdirectedRequest => 421,
            Code::DecisionNotOffered
            | Code::ReasonRequired
            | Code::IdempotencyMismatch
            | Code::Unsupported => 422,
            Code::RateLimited | Code::TooManyPending => 429,
            Code::Unavailable | Code::Other => 503,
        }
    }

    /// The code as it is written.
    pub fn as_str(self) -> String {
        serde_json::to_value(self).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl From<&Refusal> for Code {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Code::NotFound,
            Refusal::NotAReviewer => Code::NotAReviewer,
            Refusal::NotTheRequester => Code::NotTheRequester,
            Refusal::StaleDigest => Code::StaleDigest,
            Refusal::AlreadyDecided => Code::AlreadyDecided,
            Refusal::Expired => Code::Expired,
            Refusal::Cancelled => Code::Cancelled,
            Refusal::AlreadyVoted => Code::AlreadyVoted,
            Refusal::Revoked => Code::Revoked,
            Refusal::Frozen => Code::Frozen,
            Refusal::TooManyPending { .. } => Code::TooManyPending,
            Refusal::IdTaken => Code::IdTaken,
            Refusal::NotAnAdministrator | Refusal::NotARequester => Code::MissingScope,
            Refusal::PairingCodeInvalid => Code::PairingCodeInvalid,
            Refusal::DecisionNotOffered => Code::DecisionNotOffered,
            Refusal::ReasonRequired => Code::ReasonRequired,
            Refusal::NotAllowed => Code::NotAllowed,
            Refusal::AlreadyClaimed => Code::AlreadyClaimed,
            Refusal::NotClaimed => Code::NotClaimed,
            Refusal::AlreadySettled => Code::AlreadySettled,
            Refusal::EpochLapsed => Code::EpochLapsed,
            Refusal::FenceLapsed => Code::FenceLapsed,
            Refusal::RunHeld { .. } => Code::RunHeld,
            Refusal::RunEnded => Code::RunEnded,
            Refusal::JournalMoved => Code::JournalMoved,
            Refusal::RunExists => Code::RunExists,
            Refusal::IdempotencyMismatch => Code::IdempotencyMismatch,
            Refusal::StorageCorrupt => Code::StorageCorrupt,
        }
    }
}

/// When to try again after too many requests were pending, in milliseconds.
const RETRY_WHEN_FULL_MS: i64 = 5_000;

/// An RFC 9457 body.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{detail}")]
pub struct Problem {
    /// A name for this kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: Code,
    /// What happened, where, and what to do.
    pub detail: String,
    /// The record as it stands, where there is one to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Box<Approval>>,
    /// How long to wait before trying again, in milliseconds, where that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let name = code.as_str();
        Self {
            kind: format!("urn:holdgate:problem:{name}"),
            title: name.replace('_', " "),
            status: code.status(),
            code,
            detail: detail.into(),
            approval: None,
            retry_after_ms: None,
        }
    }

    /// A refusal, with the record as it stands.
    pub fn refused(refusal: &Refusal, approval: Option<Approval>) -> Self {
        let retry_after_ms = match refusal {
            Refusal::RunHeld { lapses_in_ms } => Some(*lapses_in_ms),
            // Somebody has to answer something first.
            Refusal::TooManyPending { .. } => Some(RETRY_WHEN_FULL_MS),
            _ => None,
        };
        Self {
            approval: approval.map(Box::new),
            retry_after_ms,
            ..Self::new(refusal.into(), refusal.to_string())
        }
    }
}
