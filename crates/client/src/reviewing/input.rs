//! What the machine is told and what it asks for. Owns no rule.

use holdgate_core::requirement::Decision;
use serde_json::Value;

use super::card::Shown;
use super::family::Closed;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A gateway said hello.
    Connected {
        /// The number of this connection. Each is greater than all before it; a lesser one is ignored.
        connection: u64,
        /// Which gateway it is, by a name that stays the same: a decision never goes to another.
        gateway: String,
        /// The methods that its hello advertised.
        methods: Vec<String>,
    },
    /// That connection ended. What was in flight on it is lost.
    Disconnected {
        /// Its number.
        connection: u64,
    },
    /// An event arrived on that connection.
    Event {
        /// Its number.
        connection: u64,
        /// The event's name.
        name: String,
        /// The event's payload.
        payload: Value,
    },
    /// A call was answered, or will not be.
    Reply {
        /// The call's.
        tag: Tag,
        /// The payload, or why there is none.
        outcome: Result<Value, Failure>,
    },
    /// The person chose a decision on a card as it was rendered.
    Chosen {
        /// The card and its rendering.
        shown: Shown,
        /// What was chosen.
        decision: Decision,
    },
    /// The person named an approval that may not be listed.
    Opened {
        /// The id, byte for byte.
        id: String,
    },
    /// Everything is to be read again: time has passed, or an event was missed.
    Refresh,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this on the current connection.
    Call(Call),
    /// What the person chose was not sent.
    Declined {
        /// On which card.
        shown: Shown,
        /// Why.
        why: Declined,
    },
}

/// Names one call: a reply on another connection is never mistaken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The connection on which it is sent.
    pub connection: u64,
    /// Counts the machine's calls.
    pub number: u64,
}

/// A call to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Goes back with the reply.
    pub tag: Tag,
    /// The method.
    pub method: &'static str,
    /// Its parameters, an object.
    pub params: Value,
}

/// Why a call has no payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The gateway answered with an error.
    #[error("{0}")]
    Refused(Refused),
    /// No answer will come. Whether the call was done is not known.
    #[error("the answer was lost")]
    Lost,
}

/// A gateway's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Refused {
    /// Its code, such as `INVALID_REQUEST`.
    pub code: String,
    /// Its sentence.
    pub message: String,
    /// The finer reason of its details, such as `APPROVAL_NOT_FOUND`.
    pub reason: Option<String>,
}

impl Refused {
    /// Whether it says that the approval is absent, or not visible: the two are alike.
    pub(super) fn is_not_found(&self) -> bool {
        self.is("APPROVAL_NOT_FOUND")
    }

    /// Whether it says that another answer stands.
    pub(super) fn is_already_resolved(&self) -> bool {
        self.is("APPROVAL_ALREADY_RESOLVED")
    }

    fn is(&self, name: &str) -> bool {
        self.code == name || self.reason.as_deref() == Some(name)
    }
}

/// Why a choice was not sent. Nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Declined {
    /// There is no connection.
    #[error("the gateway is not connected")]
    Offline,
    /// The card is another gateway's.
    #[error("this approval belongs to another gateway than the one that is connected")]
    OtherGateway,
    /// This gateway cannot be answered from here.
    #[error("{0}")]
    Closed(Closed),
    /// The gateway's methods cannot answer this kind.
    #[error("this gateway has no method by which approvals of this kind can be answered from here")]
    Kind,
    /// There is no such card.
    #[error("there is no such approval here")]
    Unknown,
    /// The card was rendered anew since, or replaced by a newer one.
    #[error("the approval changed since it was shown; look again")]
    Stale,
    /// Its content has not been read yet.
    #[error("the approval is still being read")]
    Loading,
    /// A decision is on its way.
    #[error("a decision is already on its way")]
    InFlight,
    /// What became of the card is being read.
    #[error("what became of it is not known yet; it is being read")]
    Frozen,
    /// It has ended.
    #[error("it is over")]
    Ended,
    /// The approval does not allow this decision.
    #[error("{} is not one of the decisions that this approval allows", .0.as_str())]
    NotAllowed(Decision),
}
