//! Facts about an approval, in the order they became true. Content-free: no argument, no reason.

use serde::{Deserialize, Serialize};

use crate::approval::{Outcome, Status, TerminalReason};
use crate::requirement::Decision;

/// One thing that happened. Each is appended in the transaction that made it true and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Event {
    /// The request became durable.
    Opened,
    /// A reviewer answered.
    Voted {
        /// The answer.
        decision: Decision,
    },
    /// The request ended.
    Resolved {
        /// How.
        status: Status,
        /// Why.
        reason: TerminalReason,
    },
    /// The allow was taken back before it was spent.
    Revoked,
    /// The allow was spent.
    Claimed,
    /// The same claim was made again by the run's next holder, before anything had started.
    ClaimTaken,
    /// The outcome of the claimed action became known, or known to be unknown.
    Settled {
        /// The outcome.
        outcome: Outcome,
    },
}
