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
            Refusal::DecisionNotOffered => "decision_not_offered",
            Refusal::ReasonRequired => "reason_required",
            Refusal::NotAllowed => "not_allowed",
            Refusal::AlreadyClaimed => "already_claimed",
            Refusal::NotClaimed => "not_claimed",
            Refusal::AlreadySettled => "already_settled",
            Refusal::EpochLapsed => "epoch_lapsed",
            Refusal::FenceLapsed => "fence_lapsed",
            Refusal::RunHeld { .. } => "run_held",
            Refusal::RunEnded => "run_ended",
            Refusal::JournalMoved => "journal_moved",
            Refusal::RunExists => "run_exists",
            Refusal::IdempotencyMismatch => "idempotency_mismatch",
            Refusal::StorageCorrupt => "storage_corrupt",
        }
    }
}
