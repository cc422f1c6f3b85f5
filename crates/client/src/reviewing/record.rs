//! Reads what a gateway says of an approval. What does not read whole is not believed at all.

use std::sync::Arc;

use holdgate_core::requirement::Decision;
use serde_json::Value;

use super::card::{End, Origin};

/// Whether an id can be one. `.` and `..` name no record: in a path they would be somebody else's.
pub(super) fn is_id(id: &str) -> bool {
    !matches!(id, "" | "." | "..")
}

/// What a reviewer is shown of an approval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Content {
    pub(super) kind: String,
    pub(super) presentation: Arc<Value>,
    pub(super) allowed: Vec<Decision>,
    /// Whether it is the record's own projection, not the request of a list or an event.
    pub(super) canonical: bool,
}

impl Content {
    fn new(kind: String, presentation: &Value, canonical: bool) -> Self {
        let listed = presentation.get("allowedDecisions").and_then(Value::as_array);
        let listed: Vec<_> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
        // To deny is always allowed; nothing else is unless it is said.
        let allowed = Decision::ALL
            .into_iter()
            .filter(|decision| *decision == Decision::Deny || listed.contains(&decision.as_str()))
            .collect();
        Self { kind, presentation: Arc::new(presentation.clone()), allowed, canonical }
    }
}

/// An approval that the gateway says is waiting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) created_at_ms: i64,
    pub(super) expires_at_ms: i64,
    pub(super) content: Content,
    pub(super) session: Option<String>,
}

/// How the gateway's record of an approval says it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ending {
    pub(super) waiting: Waiting,
    pub(super) fact: Fact,
}

/// The end that a record states.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    /// Somebody answered.
    Answered { decision: Decision, by: Option<String> },
    /// Any other end: it needs no attribution.
    Other(End),
}

impl Fact {
    /// The end of a card on which `sent` were sent from here without a known outcome.
    pub(super) fn end(&self, sent: &[Decision]) -> End {
        match self {
            // Whether a recorded answer was ours is not known if we sent the same one and heard nothing.
            Fact::Answered { decision, by } => {
                let origin = if sent.contains(decision) { Origin::Unattributed } else { Origin::Elsewhere };
                End::Answered { decision: *decision, origin, by: by.clone() }
            }
            Fact::Other(end) => end.clone(),
        }
    }
}

/// A record: it waits, or has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Waiting(Waiting),
    Ended(Ending),
}

impl Record {
    pub(super) fn waiting(&self) -> &Waiting {
        match self {
            Record::Waiting(waiting) => waiting,
            Record::Ended(ending) => &ending.waiting,
        }
    }

    /// Reads a projection: what `approval.get` and its like answer with.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let presentation = value.get("presentation").filter(|value| value.is_object())?;
        let waiting = Waiting {
            id: text(value, "id").filter(|id| is_id(id))?,
            created_at_ms: value.get("createdAtMs")?.as_i64()?,
            expires_at_ms: value.get("expiresAtMs")?.as_i64()?,
            content: Content::new(text(presentation, "kind")?, presentation, true),
            session: text(value, "sourceSessionKey"),
        };
        let reason = text(value, "reason");
        let decision = text(value, "decision").and_then(|name| Decision::from_name(&name));
        let by = value.get("resolver").and_then(|by| text(by, "label").or_else(|| text(by, "id")));
        let fact = match text(value, "status")?.as_str() {
            "pending" => return Some(Record::Waiting(waiting)),
            "allowed" => match decision? {
                Decision::Deny => return None,
                decision => Fact::Answered { decision, by },
            },
            "denied" => match (decision, reason) {
                (Some(Decision::AllowOnce | Decision::AllowAlways), _) => return None,
                (_, Some(reason)) if reason != "user" => Fact::Other(End::Denied { reason }),
                _ => Fact::Answered { decision: Decision::Deny, by },
            },
            "expired" => Fact::Other(End::Expired),
            "cancelled" => Fact::Other(End::Cancelled { reason }),
            _ => return None,
        };
        Some(Record::Ended(Ending { waiting, fact }))
    }
}

/// One entry of a list, or the payload of a `requested` event: the request instead of a projection.
#[derive(Debug)]
pub(super) enum Listed {
    /// It reads.
    Waiting(Waiting),
    /// Its id is no text: something is there that must be read otherwise.
    NotText,
    /// It is no approval that can be shown.
    Unreadable,
}

impl Listed {
    /// `kind` is what the list or event is of; an entry that says another kind is believed.
    pub(super) fn read(value: &Value, kind: &str) -> Self {
        match value.get("id") {
            Some(Value::String(_)) => {}
            _ => return Listed::NotText,
        }
        if let Some(record) = Record::read(value) {
            return match record {
                Record::Waiting(waiting) => Listed::Waiting(waiting),
                Record::Ended(_) => Listed::Unreadable,
            };
        }
        Self::request(value, kind).map_or(Listed::Unreadable, Listed::Waiting)
    }

    fn request(value: &Value, kind: &str) -> Option<Waiting> {
        let request = value.get("request").filter(|value| value.is_object())?;
        let kind = text(value, "approvalKind").unwrap_or_else(|| kind.to_owned());
        Some(Waiting {
            id: text(value, "id").filter(|id| is_id(id))?,
            created_at_ms: value.get("createdAtMs")?.as_i64()?,
            expires_at_ms: value.get("expiresAtMs")?.as_i64()?,
            content: Content::new(kind, request, false),
            session: text(request, "sessionKey"),
        })
    }
}

/// What a `resolved` event says: less than a record does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hint {
    pub(super) id: String,
    pub(super) at_ms: Option<i64>,
    decision: Option<Decision>,
    by: Option<String>,
}

impl Hint {
    /// None when its id is no text.
    pub(super) fn read(payload: &Value) -> Option<Self> {
        Some(Self {
            id: text(payload, "id")?,
            at_ms: payload.get("ts").and_then(Value::as_i64),
            decision: text(payload, "decision").and_then(|name| Decision::from_name(&name)),
            by: text(payload, "resolvedBy"),
        })
    }

    /// The end that it tells by itself, where no record can be read. A deny by nobody is how a gateway tells of
    /// every other end: which one it was is not said.
    pub(super) fn fact(&self) -> Fact {
        match (self.decision, &self.by) {
            (Some(decision @ (Decision::AllowOnce | Decision::AllowAlways)), by) => {
                Fact::Answered { decision, by: by.clone() }
            }
            (Some(Decision::Deny), Some(by)) => {
                Fact::Answered { decision: Decision::Deny, by: Some(by.clone()) }
            }
            _ => Fact::Other(End::Gone),
        }
    }
}

/// A member that is text.
pub(super) fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}
