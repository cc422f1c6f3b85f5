//! What a reply proves. An acknowledgement that is not of exactly what was sent proves nothing.

use std::collections::BTreeSet;

use holdgate_core::requirement::Decision;
use serde_json::Value;

use super::call::{Asked, Sent};
use super::card::{CardKey, End, Heard, Origin, Phase};
use super::family::Family;
use super::input::{Effect, Failure};
use super::machine::Reviewing;
use super::record::{Fact, Listed, Record};

impl Reviewing {
    pub(super) fn reply(&mut self, number: u64, outcome: Result<Value, Failure>, effects: &mut Vec<Effect>) {
        let Some(sent) = self.calls.take(number) else { return };
        match (&sent.asked, outcome) {
            (Asked::Resolve { key, decision }, outcome) => self.resolved(key, *decision, outcome),
            (Asked::Read { id }, Ok(payload)) => self.read(id, sent.at, &payload),
            (Asked::Read { id }, Err(Failure::Refused(refused))) if refused.is_not_found() => {
                self.not_found(id, sent.at);
            }
            (Asked::List { kind }, Ok(payload)) => {
                self.list(&sent, kind, &payload);
                self.listed(effects);
            }
            (Asked::Replay { session }, Ok(payload)) => {
                self.replay(&sent, session, &payload);
                self.listed(effects);
            }
            (asked, Err(failure)) => {
                // Nothing is concluded from a look that failed. It is repeated with the next refresh.
                self.trouble = Some(failure.to_string());
                if !matches!(asked, Asked::Read { .. }) {
                    self.listed(effects);
                }
            }
        }
    }

    fn read(&mut self, id: &str, asked: u64, payload: &Value) {
        if self.online.as_ref().is_some_and(|on| on.family == Family::Legacy) {
            return self.read_legacy(id, asked, payload);
        }
        match payload.get("approval").and_then(Record::read) {
            Some(record) if record.waiting().id == id => match record {
                Record::Waiting(waiting) => self.unlock(waiting, asked),
                Record::Ended(ending) => self.settle(ending, true),
            },
            _ => self.trouble = Some("the gateway's answer is not of the approval that was read".to_owned()),
        }
        self.want_again(id, asked);
    }

    /// The legacy method answers only while an approval waits, and says less of it than a list does.
    fn read_legacy(&mut self, id: &str, asked: u64, payload: &Value) {
        if payload.get("id").and_then(Value::as_str) != Some(id) {
            self.trouble = Some("the gateway's answer is not of the approval that was read".to_owned());
            return;
        }
        let expires_at_ms = payload.get("expiresAtMs").and_then(Value::as_i64);
        if let Some(key) = self.newest(id)
            && let Some(card) = self.cards.get_mut(&key)
        {
            // Another deadline is another request under the same id: the list will tell of it.
            let same = expires_at_ms == Some(card.expires_at_ms);
            match card.phase {
                Phase::Frozen { since, .. } if since <= asked && same => card.phase = Phase::Open,
                Phase::Frozen { since, .. } if since <= asked => self.end(&key, End::Gone),
                _ => {}
            }
        }
        self.want_again(id, asked);
    }

    fn list(&mut self, sent: &Sent, kind: &str, payload: &Value) {
        let Value::Array(entries) = payload else {
            self.trouble = Some("the gateway's list of approvals does not read".to_owned());
            return;
        };
        let seen = self.seen(sent, kind, entries);
        for (key, readable) in self.unseen(sent, &seen, |card_kind, _| card_kind == kind) {
            // The list may be narrower than what this surface may see: only the record tells.
            if readable {
                self.want(&key.id, self.step);
            } else {
                self.end(&key, End::Gone);
            }
        }
    }

    fn replay(&mut self, sent: &Sent, session: &str, payload: &Value) {
        let replay = payload.get("approvalReplay");
        let Some(entries) = replay.and_then(|replay| replay.get("approvals")).and_then(Value::as_array)
        else {
            self.trouble = Some("the gateway's replay of approvals does not read".to_owned());
            return;
        };
        let complete = replay.and_then(|replay| replay.get("truncated")) == Some(&Value::Bool(false));
        let mut seen = BTreeSet::new();
        for entry in entries {
            if let Some(Record::Waiting(mut waiting)) = Record::read(entry) {
                seen.insert(waiting.id.clone());
                if !sent.ended_since.contains(&waiting.id) || self.newest(&waiting.id).is_some() {
                    waiting.session = Some(session.to_owned());
                    self.affirm(waiting);
                }
            }
        }
        if complete {
            // What this stream no longer holds waits no more: it leaves the set at once, and its record says how.
            for (key, _) in self.unseen(sent, &seen, |_, sessions| sessions.contains(session)) {
                self.suspect(&key);
            }
        }
    }

    /// Takes in the entries of a list; answers their ids.
    fn seen(&mut self, sent: &Sent, kind: &str, entries: &[Value]) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        for entry in entries {
            if let Listed::Waiting(waiting) = Listed::read(entry, kind) {
                seen.insert(waiting.id.clone());
                // An end that was heard since is newer than the list.
                if !sent.ended_since.contains(&waiting.id) || self.newest(&waiting.id).is_some() {
                    self.affirm(waiting);
                }
            }
        }
        seen
    }

    /// Cards that wait, that the answer to `sent` should hold and does not; with whether their record can be read.
    fn unseen(
        &self,
        sent: &Sent,
        seen: &BTreeSet<String>,
        covers: impl Fn(&str, &BTreeSet<String>) -> bool,
    ) -> Vec<(CardKey, bool)> {
        let Some(on) = &self.online else { return Vec::new() };
        self.cards
            .iter()
            .filter(|(key, card)| {
                key.gateway == on.gateway
                    && card.phase == Phase::Open
                    && card.affirmed < sent.at
                    && covers(&card.content.kind, &card.sessions)
                    && !seen.contains(&key.id)
            })
            .map(|(key, card)| (key.clone(), on.family.reader(Some(&card.content.kind)).is_some()))
            .collect()
    }

    fn resolved(&mut self, key: &CardKey, decision: Decision, outcome: Result<Value, Failure>) {
        let family = self.online.as_ref().map(|on| on.family);
        match outcome {
            Ok(payload) if family == Some(Family::Canonical) => self.acknowledged(key, decision, &payload),
            Ok(payload) if payload.get("ok") == Some(&Value::Bool(true)) => {
                // It names neither the record nor the answer: it counts only if nothing else was heard of this id.
                let unheard = matches!(
                    self.cards.get(key).map(|card| &card.phase),
                    Some(Phase::Resolving { heard: None, .. })
                );
                if unheard && self.newest(&key.id).as_ref() == Some(key) {
                    self.end(key, End::Answered { decision, origin: Origin::Here, by: None });
                } else {
                    self.lost(key, decision);
                }
            }
            Ok(_) | Err(Failure::Lost) => self.lost(key, decision),
            Err(Failure::Refused(refused)) => {
                if family == Some(Family::Legacy) && refused.is_already_resolved() {
                    // Which answer stands is not said, and there is no record to read.
                    self.hear(key, Fact::Other(End::Gone));
                }
                self.lost(key, decision);
                if let Some(card) = self.cards.get_mut(key).filter(|card| !card.is_ended()) {
                    card.note = Some(refused.message);
                }
            }
        }
    }

    fn acknowledged(&mut self, key: &CardKey, decision: Decision, payload: &Value) {
        let applied = payload.get("applied").and_then(Value::as_bool);
        let record = payload.get("approval").and_then(Record::read);
        let Some(card) = self.cards.get(key) else { return };
        let Phase::Resolving { heard, .. } = &card.phase else { return };
        let heard = match heard {
            Some(Heard::Fact(fact)) => Some(fact.clone()),
            Some(Heard::SomeEnd) | None => None,
        };
        let (Some(applied), Some(Record::Ended(ending))) = (applied, record) else {
            return self.lost(key, decision);
        };
        let of_this_card = ending.waiting.id == key.id
            && ending.waiting.created_at_ms == key.created_at_ms
            && ending.waiting.content.kind == card.content.kind;
        if !of_this_card {
            self.lost(key, decision);
            // A newer record under the same id is its own card's truth.
            if ending.waiting.id == key.id && ending.waiting.created_at_ms > key.created_at_ms {
                self.settle(ending, false);
            }
            return;
        }
        let ours = matches!(ending.fact, Fact::Answered { decision: recorded, .. } if recorded == decision);
        // What an event told is not overwritten by a reply that comes after it.
        let agreed = heard.as_ref().is_none_or(|told| agree(told, &ending.fact));
        match applied {
            true if ours && agreed => {
                self.end(key, End::Answered { decision, origin: Origin::Here, by: None });
            }
            true => self.lost(key, decision),
            false => {
                let end = heard.unwrap_or(ending.fact).end(&self.sent_for(key));
                self.end(key, end);
            }
        }
    }
}

/// Whether two sources tell of the same end. An event names nobody, or by another name.
fn agree(one: &Fact, other: &Fact) -> bool {
    match (one, other) {
        (Fact::Answered { decision: one, .. }, Fact::Answered { decision: other, .. }) => one == other,
        (one, other) => one == other,
    }
}
