//! Why a call did not do what was asked.

use holdgate_store::StoreError;
use holdgate_wire::{Code, Problem};

/// When to try again after sending too much at once, in milliseconds.
const RETRY_MS: i64 = 1_000;

/// A failed call. None of these ever means that an action may run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The authority said no.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The gateway did not answer. Whether it had received the call is not known.
    #[error("the gateway at {url} cannot be reached: {why}")]
    Unreachable {
        /// Where it was sought.
        url: String,
        /// What went wrong.
        why: String,
    },
}

impl Error {
    /// A "no" of this kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// The stable code, if the authority answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Problem(problem) => Some(problem.code),
            Error::Unreachable { .. } => None,
        }
    }

    /// Whether the same call may succeed later. The call may have been done already: repeat it only where it is
    /// safe to repeat, or read back.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Problem(problem) => {
                matches!(problem.code, Code::Unavailable | Code::RateLimited)
            }
            Error::Unreachable { .. } => true,
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Error::Problem(Box::new(problem))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        if let StoreError::Flooded(_) = error {
            let detail = format!("{error}; send less at a time");
            let flooded =
                Problem { retry_after_ms: Some(RETRY_MS), ..Problem::new(Code::RateLimited, detail) };
            return flooded.into();
        }
        // The cause is for the log; outside, all failures of the store are one.
        tracing::error!(%error, "the store failed");
        let detail = match error {
            StoreError::Unknown(_) => "it is not known whether the change was stored; read the record back",
            _ => "the store cannot answer now; nothing was changed",
        };
        Error::new(Code::Unavailable, detail)
    }
}
