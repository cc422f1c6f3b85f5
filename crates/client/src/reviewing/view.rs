//! What a surface shows: a snapshot of the machine, in the order in which approvals were made. Owns no rule.

use std::sync::Arc;

use holdgate_core::requirement::Decision;
use serde_json::Value;

use super::card::{Card, End, Phase, Shown};
use super::family::Family;

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The gateway that is connected. None: nothing can be decided now.
    pub link: Option<Link>,
    /// Every card, those that ended included, oldest first.
    pub cards: Vec<CardView>,
    /// Ids that the person named and that are absent, or not visible.
    pub absent: Vec<String>,
    /// The last thing that went wrong with reading. Outside text may be in it.
    pub trouble: Option<String>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The gateway, as it was named when it connected.
    pub gateway: Arc<str>,
    /// What can be done there.
    pub family: Family,
}

/// One card.
#[derive(Clone, Debug, PartialEq)]
pub struct CardView {
    /// Names the card and this rendering of it.
    pub shown: Shown,
    /// What is going on with it.
    pub state: State,
    /// The approval's kind, such as `exec`.
    pub kind: String,
    /// What the gateway shows of it: a presentation, or the request where there is no better. Outside text: make it
    /// visible before anybody reads it.
    pub presentation: Arc<Value>,
    /// When it expires, in Unix milliseconds of the gateway's clock.
    pub expires_at_ms: i64,
    /// The decisions that can be chosen now. Empty: none.
    pub buttons: Vec<Decision>,
    /// What the gateway said to the last decision that it did not take. Outside text.
    pub note: Option<String>,
}

/// What is going on with a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its content is being read.
    Loading,
    /// It waits for an answer.
    Pending,
    /// A decision is on its way.
    Resolving(Decision),
    /// That decision was sent and what became of it is not known. The record is being read.
    OutcomeUnknown(Decision),
    /// The gateway said that it waits no more. The record is being read.
    Settling,
    /// It is over.
    Ended(End),
}

impl CardView {
    /// `family` is that of the card's own gateway, if that is connected.
    pub(super) fn of(shown: Shown, card: &Card, family: Option<Family>) -> Self {
        let state = match &card.phase {
            Phase::Open if card.content.canonical || family != Some(Family::Canonical) => State::Pending,
            Phase::Open => State::Loading,
            Phase::Resolving { decision, .. } => State::Resolving(*decision),
            Phase::Frozen { decision: Some(decision), .. } => State::OutcomeUnknown(*decision),
            Phase::Frozen { decision: None, .. } => State::Settling,
            Phase::Ended(end) => State::Ended(end.clone()),
        };
        let decides = family.is_some_and(|family| family.decides(&card.content.kind));
        let buttons =
            if decides && state == State::Pending { card.content.allowed.clone() } else { Vec::new() };
        Self {
            shown,
            state,
            kind: card.content.kind.clone(),
            presentation: Arc::clone(&card.content.presentation),
            expires_at_ms: card.expires_at_ms,
            buttons,
            note: card.note.clone(),
        }
    }
}
