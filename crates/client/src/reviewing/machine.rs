//! The machine itself: its state, connecting, what is asked and when, and what a card may become.
//!
//! What events, replies and choices do is in the neighbouring files; every change of a card goes through the
//! functions of this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use holdgate_core::requirement::Decision;
use serde_json::{Value, json};

use super::call::{Asked, Calls};
use super::card::{Card, CardKey, End, Heard, Phase, Shown};
use super::family::{self, Family};
use super::input::{Call, Effect, Input, Tag};
use super::record::{Ending, Fact, Waiting, is_id};
use super::view::{CardView, Link, View};

/// How many cards that ended are kept to be shown.
const ENDED_KEPT: usize = 256;

/// The state of one reviewer's surface.
#[derive(Clone, Debug, Default)]
pub struct Reviewing {
    sessions: Vec<String>,
    /// Counts inputs: what was sent before something happened cannot tell of it.
    pub(super) step: u64,
    number: u64,
    last_connection: u64,
    last_gateway: Option<Arc<str>>,
    pub(super) online: Option<Online>,
    pub(super) cards: BTreeMap<CardKey, Card>,
    pub(super) calls: Calls,
    to_read: BTreeSet<String>,
    /// A list was wanted while one was on its way.
    list_again: bool,
    /// Ids that the person named, and that no card is of.
    opened: BTreeSet<String>,
    absent: BTreeSet<String>,
    pub(super) trouble: Option<String>,
    ended: VecDeque<CardKey>,
}

/// The current connection.
#[derive(Clone, Debug)]
pub(super) struct Online {
    pub(super) connection: u64,
    pub(super) gateway: Arc<str>,
    pub(super) family: Family,
    methods: Vec<String>,
}

impl Reviewing {
    /// A surface that knows nothing yet. It follows the approvals of these sessions besides those that are listed.
    pub fn new(sessions: Vec<String>) -> Self {
        Self { sessions, ..Self::default() }
    }

    /// Takes one input; answers what is to be done, in order.
    pub fn apply(&mut self, input: Input) -> Vec<Effect> {
        self.step += 1;
        let mut effects = Vec::new();
        match input {
            Input::Connected { connection, gateway, methods } => {
                self.connect(connection, &gateway, methods, &mut effects);
            }
            Input::Disconnected { connection } if self.is_current(connection) => self.disconnect(),
            Input::Event { connection, name, payload } if self.is_current(connection) => {
                self.event(&name, &payload, &mut effects);
            }
            Input::Reply { tag, outcome } if self.is_current(tag.connection) => {
                self.reply(tag.number, outcome, &mut effects);
            }
            // They are of a connection that is no more.
            Input::Disconnected { .. } | Input::Event { .. } | Input::Reply { .. } => {}
            Input::Chosen { shown, decision } => self.choose(shown, decision, &mut effects),
            Input::Opened { id } => self.open(id),
            Input::Refresh => self.ask_everything(&mut effects),
        }
        self.read_more(&mut effects);
        effects
    }

    /// What is to be shown now.
    pub fn view(&self) -> View {
        let mut cards: Vec<_> = self
            .cards
            .iter()
            .map(|(key, card)| {
                let family = self.online.as_ref().filter(|on| on.gateway == key.gateway).map(|on| on.family);
                CardView::of(Shown { key: key.clone(), rendering: card.rendering }, card, family)
            })
            .collect();
        cards.sort_by_key(|card| card.shown.key.created_at_ms);
        View {
            link: self.online.as_ref().map(|on| Link { gateway: Arc::clone(&on.gateway), family: on.family }),
            cards,
            absent: self.absent.iter().cloned().collect(),
            trouble: self.trouble.clone(),
        }
    }

    fn is_current(&self, connection: u64) -> bool {
        self.online.as_ref().is_some_and(|on| on.connection == connection)
    }

    fn connect(&mut self, connection: u64, gateway: &str, methods: Vec<String>, effects: &mut Vec<Effect>) {
        if connection <= self.last_connection {
            return;
        }
        self.disconnect();
        self.last_connection = connection;
        self.absent.clear();
        let gateway: Arc<str> = gateway.into();
        if self.last_gateway.as_ref().is_some_and(|last| *last != gateway) {
            // An id that was named for one gateway is not looked for at another.
            self.opened.clear();
        }
        self.last_gateway = Some(Arc::clone(&gateway));
        let family = Family::of(&methods);
        self.online = Some(Online { connection, gateway, family, methods });
        self.ask_everything(effects);
    }

    fn disconnect(&mut self) {
        for sent in self.calls.take_all() {
            if let Asked::Resolve { key, decision } = sent.asked {
                self.lost(&key, decision);
            }
        }
        self.to_read.clear();
        self.list_again = false;
        self.online = None;
    }

    fn open(&mut self, id: String) {
        if !is_id(&id) {
            self.trouble = Some(format!("{id:?} names no approval"));
            return;
        }
        self.absent.remove(&id);
        self.want(&id, self.step);
        self.opened.insert(id);
    }

    /// Asks for what waits, and for every record that is not known well enough.
    pub(super) fn ask_everything(&mut self, effects: &mut Vec<Effect>) {
        let Some(on) = self.online.clone() else { return };
        self.trouble = None;
        if self.calls.is_listing() {
            self.list_again = true;
        } else {
            self.list_again = false;
            if on.methods.iter().any(|method| method == family::SUBSCRIBE) {
                for session in self.sessions.clone() {
                    let params = json!({"key": session, "includeApprovals": true});
                    self.call(family::SUBSCRIBE, params, Asked::Replay { session }, effects);
                }
            }
            for (method, kind) in family::lists(&on.methods) {
                self.call(method, json!({}), Asked::List { kind }, effects);
            }
        }
        let unread: Vec<_> = self
            .cards
            .iter()
            .filter(|(key, _)| key.gateway == on.gateway)
            .filter_map(|(key, card)| Some((key.id.clone(), needs_reading(card, on.family)?)))
            .collect();
        for (id, since) in unread {
            self.want(&id, since);
        }
        for id in self.opened.clone() {
            self.want(&id, 0);
        }
    }

    /// A list or replay has come in.
    pub(super) fn listed(&mut self, effects: &mut Vec<Effect>) {
        if self.list_again && !self.calls.is_listing() {
            self.ask_everything(effects);
        }
    }

    /// Wants a record read, unless that is under way since `since`.
    pub(super) fn want(&mut self, id: &str, since: u64) {
        if self.online.is_some() && !self.calls.is_reading(id, since) {
            self.to_read.insert(id.to_owned());
        }
    }

    /// Wants a record read again if what is known of it is newer than what was answered.
    pub(super) fn want_again(&mut self, id: &str, answered: u64) {
        let Some(family) = self.online.as_ref().map(|on| on.family) else { return };
        let since = self.newest(id).and_then(|key| needs_reading(self.cards.get(&key)?, family));
        if let Some(since) = since.filter(|since| *since > answered) {
            self.want(id, since);
        }
    }

    fn read_more(&mut self, effects: &mut Vec<Effect>) {
        let Some(family) = self.online.as_ref().map(|on| on.family) else { return };
        while self.calls.may_read_more() {
            let Some(id) = self.to_read.pop_first() else { return };
            let kind = self.newest(&id).and_then(|key| self.cards.get(&key)).map(|card| &*card.content.kind);
            if let Some(method) = family.reader(kind) {
                self.call(method, json!({"id": id}), Asked::Read { id }, effects);
            }
        }
    }

    pub(super) fn call(
        &mut self,
        method: &'static str,
        params: Value,
        asked: Asked,
        effects: &mut Vec<Effect>,
    ) {
        let Some(connection) = self.online.as_ref().map(|on| on.connection) else { return };
        self.number += 1;
        self.calls.add(self.number, self.step, asked);
        effects.push(Effect::Call(Call { tag: Tag { connection, number: self.number }, method, params }));
    }

    /// The newest card of an id at the current gateway.
    pub(super) fn newest(&self, id: &str) -> Option<CardKey> {
        self.under(&self.online.as_ref()?.gateway, id).last().map(|(key, _)| key.clone())
    }

    /// Every card of an id at a gateway, oldest first.
    fn under(&self, gateway: &Arc<str>, id: &str) -> impl Iterator<Item = (&CardKey, &Card)> {
        let key = |created_at_ms| CardKey { gateway: Arc::clone(gateway), id: id.to_owned(), created_at_ms };
        self.cards.range(key(i64::MIN)..=key(i64::MAX))
    }

    /// Decisions sent from here that may be what the record of this card holds. A call names an id alone: one that
    /// was sent for an older card under the same id may have met this record.
    pub(super) fn sent_for(&self, key: &CardKey) -> Vec<Decision> {
        let mut sent = Vec::new();
        for (other, card) in self.under(&key.gateway, &key.id) {
            sent.extend(&card.sent);
            if let Phase::Resolving { decision, .. } = card.phase
                && other != key
            {
                sent.push(decision);
            }
        }
        sent
    }

    /// The card that a record is of. None if it is older than what is known under its id.
    fn key_of(&mut self, waiting: &Waiting) -> Option<CardKey> {
        let gateway = Arc::clone(&self.online.as_ref()?.gateway);
        let key = CardKey { gateway, id: waiting.id.clone(), created_at_ms: waiting.created_at_ms };
        if self.newest(&key.id).is_some_and(|newest| newest > key) {
            return None;
        }
        // A gateway keeps one record under an id. What is in flight for an older one still has its reply.
        let older: Vec<_> = self
            .under(&key.gateway, &key.id)
            .filter(|(other, card)| **other != key && !matches!(card.phase, Phase::Resolving { .. }))
            .map(|(other, _)| other.clone())
            .collect();
        for older in older {
            self.end(&older, End::Gone);
        }
        self.opened.remove(&key.id);
        self.absent.remove(&key.id);
        Some(key)
    }

    /// The gateway says that this waits. That unlocks nothing and revives nothing.
    pub(super) fn affirm(&mut self, waiting: Waiting) {
        let (Some(key), Some(family)) = (self.key_of(&waiting), self.online.as_ref().map(|on| on.family))
        else {
            return;
        };
        let step = self.step;
        let card = match self.cards.get_mut(&key) {
            Some(card) => {
                card.sessions.extend(waiting.session);
                if card.phase == Phase::Open {
                    card.affirmed = step;
                    card.expires_at_ms = waiting.expires_at_ms;
                    card.render(waiting.content);
                }
                card
            }
            None => self.cards.entry(key.clone()).or_insert_with(|| Card::new(waiting, Phase::Open, step)),
        };
        if card.phase == Phase::Open && needs_reading(card, family).is_some() {
            self.want(&key.id, 0);
        }
    }

    /// The record itself says that this waits, as an answer to a read that was sent at `asked`.
    pub(super) fn unlock(&mut self, waiting: Waiting, asked: u64) {
        let Some(key) = self.key_of(&waiting) else { return };
        if let Some(card) = self.cards.get_mut(&key)
            && let Phase::Frozen { since, .. } = card.phase
            && since <= asked
        {
            card.phase = Phase::Open;
        }
        self.affirm(waiting);
    }

    /// The record says how this ended. `keep` makes a card of it if there is none.
    pub(super) fn settle(&mut self, ending: Ending, keep: bool) {
        self.calls.heard_end_of(&ending.waiting.id);
        let Some(key) = self.key_of(&ending.waiting) else { return };
        if let Some(card) = self.cards.get_mut(&key) {
            card.sessions.extend(ending.waiting.session.clone());
            if !card.is_ended() {
                card.render(ending.waiting.content.clone());
            }
        } else if keep {
            self.cards.insert(key.clone(), Card::new(ending.waiting, Phase::Open, self.step));
        }
        self.hear(&key, ending.fact);
    }

    /// How a card ended is known. A decision in flight still waits for its reply: that tells whose answer it was.
    pub(super) fn hear(&mut self, key: &CardKey, fact: Fact) {
        let sent = self.sent_for(key);
        let Some(card) = self.cards.get_mut(key) else { return };
        match &mut card.phase {
            Phase::Resolving { heard: Some(Heard::Fact(_)), .. } | Phase::Ended(_) => {}
            Phase::Resolving { heard, .. } => *heard = Some(Heard::Fact(fact)),
            Phase::Open | Phase::Frozen { .. } => {
                self.end(key, fact.end(&sent));
            }
        }
    }

    /// The gateway says that this waits no more, and not how it ended: its record is read.
    pub(super) fn suspect(&mut self, key: &CardKey) {
        let step = self.step;
        let kind = self.cards.get(key).map(|card| card.content.kind.clone());
        let readable = self.online.as_ref().is_some_and(|on| on.family.reader(kind.as_deref()).is_some());
        let Some(card) = self.cards.get_mut(key) else { return };
        match &mut card.phase {
            Phase::Ended(_) => return,
            // Its reply is on its way, or will be found lost.
            Phase::Resolving { heard, .. } => {
                heard.get_or_insert(Heard::SomeEnd);
                return;
            }
            Phase::Frozen { since, .. } => *since = step,
            Phase::Open if readable => card.phase = Phase::Frozen { decision: None, since: step },
            // No record can be read, and it is in no list: it waits no more.
            Phase::Open => return self.end(key, End::Gone),
        }
        self.want(&key.id, step);
    }

    /// A decision was sent and its acknowledgement does not prove anything.
    pub(super) fn lost(&mut self, key: &CardKey, decision: Decision) {
        let step = self.step;
        let Some(card) = self.cards.get_mut(key) else { return };
        let Phase::Resolving { heard, .. } = &mut card.phase else { return };
        let heard = heard.take();
        card.sent.push(decision);
        card.phase = Phase::Frozen { decision: Some(decision), since: step };
        match heard {
            Some(Heard::Fact(fact)) => self.hear(key, fact),
            Some(Heard::SomeEnd) | None if self.newest(&key.id).is_some_and(|newest| newest > *key) => {
                self.end(key, End::Gone);
            }
            Some(Heard::SomeEnd) | None => self.want(&key.id, step),
        }
    }

    /// The gateway knows of no such record, or shows it no more.
    pub(super) fn not_found(&mut self, id: &str, asked: u64) {
        if self.opened.remove(id) {
            self.absent.insert(id.to_owned());
        }
        let Some(key) = self.newest(id) else { return };
        let Some(card) = self.cards.get(&key) else { return };
        match card.phase {
            Phase::Open if card.affirmed <= asked => self.end(&key, End::Gone),
            Phase::Frozen { since, .. } if since <= asked => self.end(&key, End::Gone),
            _ => self.want_again(id, asked),
        }
    }

    /// The one place where a card ends. It ends once.
    pub(super) fn end(&mut self, key: &CardKey, end: End) {
        let Some(card) = self.cards.get_mut(key).filter(|card| !card.is_ended()) else { return };
        card.phase = Phase::Ended(end);
        card.note = None;
        self.ended.push_back(key.clone());
        if self.ended.len() > ENDED_KEPT
            && let Some(oldest) = self.ended.pop_front()
        {
            self.cards.remove(&oldest);
        }
    }
}

/// The step since which a card needs its record, if it does.
fn needs_reading(card: &Card, family: Family) -> Option<u64> {
    match card.phase {
        Phase::Open if family == Family::Canonical && !card.content.canonical => Some(card.affirmed),
        Phase::Frozen { since, .. } => Some(since),
        Phase::Open | Phase::Resolving { .. } | Phase::Ended(_) => None,
    }
}
