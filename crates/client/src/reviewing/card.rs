//! One approval on a surface: what is known of it, and what was sent for it. Owns no rule about when that changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdgate_core::requirement::Decision;

use super::record::{Content, Fact, Waiting};

/// Names a card. A reused id of another time, or of another gateway, is another card.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardKey {
    /// The gateway, as it was named when it connected.
    pub gateway: Arc<str>,
    /// The approval's id, byte for byte.
    pub id: String,
    /// When the approval was made, in Unix milliseconds.
    pub created_at_ms: i64,
}

/// A card as it was rendered once. A decision names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The card.
    pub key: CardKey,
    /// Counts how often its content changed.
    pub rendering: u32,
}

/// How an approval ended, as its gateway tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody answered.
    Answered {
        /// The answer that is recorded.
        decision: Decision,
        /// Whose it was, seen from this surface.
        origin: Origin,
        /// Who answered, as the gateway names them. Outside text.
        by: Option<String>,
    },
    /// The gateway denied it by itself.
    Denied {
        /// The recorded reason, such as `no-route`.
        reason: String,
    },
    /// Nobody answered in time.
    Expired,
    /// It was withdrawn or its caller is gone.
    Cancelled {
        /// The recorded reason, such as `run-aborted`.
        reason: Option<String>,
    },
    /// It waits no more, or is not visible from here. Nothing is known of how it ended.
    Gone,
}

/// Whose answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This surface's: the gateway acknowledged it.
    Here,
    /// Somebody else's.
    Elsewhere,
    /// The same answer was sent from here and its acknowledgement lost: it may be either's.
    Unattributed,
}

/// What is going on with a card.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// It waits for an answer.
    Open,
    /// A decision is in flight.
    Resolving {
        decision: Decision,
        /// How it ended, heard meanwhile. It beats whatever the reply says.
        heard: Option<Heard>,
    },
    /// Nothing can be done until its record was read by a call sent at `since` or later.
    Frozen {
        /// The decision whose outcome is not known. Without one, the gateway said that it ended.
        decision: Option<Decision>,
        since: u64,
    },
    /// It is over.
    Ended(End),
}

/// How a card ended, heard while a decision for it was in flight.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Heard {
    /// The record's own end.
    Fact(Fact),
    /// Only that it ended: the record has to be read.
    SomeEnd,
}

/// One card.
#[derive(Clone, Debug)]
pub(super) struct Card {
    pub(super) content: Content,
    pub(super) rendering: u32,
    pub(super) expires_at_ms: i64,
    pub(super) phase: Phase,
    /// The machine's step at which the gateway last said that it waits.
    pub(super) affirmed: u64,
    /// The sessions in whose streams it was seen.
    pub(super) sessions: BTreeSet<String>,
    /// Decisions sent from here whose outcome is not known.
    pub(super) sent: Vec<Decision>,
    /// What the gateway said to the last decision that it did not take.
    pub(super) note: Option<String>,
}

impl Card {
    pub(super) fn new(waiting: Waiting, phase: Phase, step: u64) -> Self {
        Self {
            content: waiting.content,
            rendering: 1,
            expires_at_ms: waiting.expires_at_ms,
            phase,
            affirmed: step,
            sessions: waiting.session.into_iter().collect(),
            sent: Vec::new(),
            note: None,
        }
    }

    /// Takes over what the gateway says it shows. A projection is not replaced by a request.
    pub(super) fn render(&mut self, content: Content) {
        if self.content != content && (content.canonical || !self.content.canonical) {
            self.content = content;
            self.rendering += 1;
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}
