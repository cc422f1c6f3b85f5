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

/// A fact about who may act, or whether anything may. Content-free as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum AdministrationEvent {
    /// A credential was made, or another took its place.
    CredentialIssued {
        /// Whose.
        principal: String,
    },
    /// An identity and all its credentials ended.
    Revoked {
        /// Whose.
        principal: String,
    },
    /// The operator's credential was replaced by whoever can write the home's files.
    OperatorRecovered,
    /// A code was made with which a device can be paired.
    PairingOffered {
        /// Whose device it will be.
        person: String,
    },
    /// A device was paired.
    Paired {
        /// The device.
        principal: String,
        /// Whose it is.
        person: String,
    },
    /// New requests and claims were stopped.
    Frozen {
        /// For this agent only.
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// They were let go on.
    Thawed {
        /// For this agent only.
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// Who belongs to which group changed with the configuration.
    GroupsChanged,
}
