//! Every expected "no", with a stable code.

/// Why a command changes nothing. `Display` is a sentence for people; [`Refusal::code`] is for programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such record, or none that this identity may know of.
    #[error("there is no such record")]
    NotFound,
    /// This identity can never answer this request.
    #[error("this credential cannot decide this request: agents and requesters never decide")]
    NotAReviewer,
    /// Only who asked may spend the answer.
    #[error("only the requester may claim, settle or withdraw this request")]
    NotTheRequester,
    /// The digest is not the record's: something else was shown or would run.
    #[error("the digest is not that of the recorded action; read the record again")]
    StaleDigest,
    /// Another answer stands.
    #[error("it was answered otherwise before")]
    AlreadyDecided,
    /// The deadline passed first.
    #[error("its time is up; silence was a deny")]
    Expired,
    /// It was called off first.
    #[error("it was cancelled")]
    Cancelled,
    /// This person has answered before, and an answer is not taken back this way.
    #[error(
        "you have answered this request; an allow can become a deny while it is pending, nothing else changes"
    )]
    AlreadyVoted,
    /// The answer is not among those the requirement offers.
    #[error("this request does not offer that decision")]
    DecisionNotOffered,
    /// The requirement asks for a reason.
    #[error("this request must be answered with a reason")]
    ReasonRequired,
    /// Nothing allows the action.
    #[error("it is not allowed, so it cannot be claimed")]
    NotAllowed,
    /// The allow was spent by another claim.
    #[error("its allow was already claimed; an allow is spent once")]
    AlreadyClaimed,
    /// The allow was taken back first.
    #[error("the allow was taken back before it was claimed")]
    Revoked,
    /// The receipt names no claim of this record.
    #[error("no such claim was made on this record")]
    NotClaimed,
    /// Another receipt stands.
    #[error("another receipt was already given for this claim")]
    AlreadySettled,
    /// The process that held this has ended or stopped renewing.
    #[error("the epoch has ended or its lease has lapsed")]
    EpochLapsed,
    /// Another process has taken the run over, or the claim named no fence.
    #[error("the fence is not the run's current one: another process has taken the run over")]
    FenceLapsed,
    /// Another process holds the run now.
    #[error("another process holds the run")]
    RunHeld {
        /// Milliseconds until its lease lapses, if it is not renewed.
        lapses_in_ms: i64,
    },
    /// The run has ended; its journal is closed.
    #[error("the run has ended")]
    RunEnded,
    /// The journal has moved on since the appender read it.
    #[error("the journal has other events after the one named")]
    JournalMoved,
    /// A run of that name exists with another definition.
    #[error("a run of that id exists already")]
    RunExists,
    /// New requests and claims are stopped, for everybody or for this agent.
    #[error("the gateway is frozen for this agent: nothing new is asked or claimed until it is thawed")]
    Frozen,
    /// As many requests as one identity or session may have are pending already.
    #[error("{limit} requests of this {whose} are pending already; have them answered or called off first")]
    TooManyPending {
        /// Whose: `agent` or `session`.
        whose: &'static str,
        /// How many are allowed.
        limit: u32,
    },
    /// The id that was chosen for a request names, or could be taken for, another one.
    #[error("the approval id is taken")]
    IdTaken,
    /// This needs an administrator.
    #[error("this needs a credential with the scope operator.admin")]
    NotAnAdministrator,
    /// This needs a credential that may ask for permission.
    #[error("this credential may not ask for permission")]
    NotARequester,
    /// The pairing code is unknown, used or too old.
    #[error("that pairing code is not valid: it is used, older than five minutes, or mistyped")]
    PairingCodeInvalid,
    /// The same idempotency key came with another body.
    #[error("this idempotency key was used with another body")]
    IdempotencyMismatch,
    /// The stored record does not decode. It is treated as denied.
    #[error("the stored record cannot be read; it counts as denied")]
    StorageCorrupt,
}

impl Refusal {
    /// The stable code of the outside contract.
    pub const fn code(&self) -> &'static str {
        match self {
            Refusal::NotFound => "not_found",
            Refusal::NotAReviewer => "not_a_reviewer",
            Refusal::NotTheRequester => "not_the_requester",
            Refusal::StaleDigest => "stale_digest",
            Refusal::AlreadyDecided => "already_decided",
            Refusal::Expired => "expired",
            Refusal::Cancelled => "cancelled",
            Refusal::AlreadyVoted => "already_voted",
            Refusal::DecisionNotOffered => "decision_not_offered",
            Refusal::ReasonRequired => "reason_required",
            Refusal::NotAllowed => "not_allowed",
            Refusal::AlreadyClaimed => "already_claimed",
            Refusal::Revoked => "revoked",
            Refusal::NotClaimed => "not_claimed",
            Refusal::AlreadySettled => "already_settled",
            Refusal::EpochLapsed => "epoch_lapsed",
            Refusal::FenceLapsed => "fence_lapsed",
            Refusal::RunHeld { .. } => "run_held",
            Refusal::RunEnded => "run_ended",
            Refusal::JournalMoved => "journal_moved",
            Refusal::RunExists => "run_exists",
            Refusal::Frozen => "frozen",
            Refusal::TooManyPending { .. } => "too_many_pending",
            Refusal::IdTaken => "id_taken",
            Refusal::NotAnAdministrator | Refusal::NotARequester => "missing_scope",
            Refusal::PairingCodeInvalid => "pairing_code_invalid",
            Refusal::IdempotencyMismatch => "idempotency_mismatch",
            Refusal::StorageCorrupt => "storage_corrupt",
        }
    }
}
