//! Whatever the order in which things happen and messages come, a surface stays honest.
//!
//! Two gateways that keep real records play against the surface over a network that delays, reorders, loses and
//! garbles. What the surface claims is compared with the records.

use std::collections::{BTreeMap, BTreeSet};

use holdgate_client::reviewing::{
    Call, CardKey, Decision, Effect, End, Failure, Input, Origin, Reviewing, State, Tag,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::desk::{CANONICAL, LEGACY, acknowledged, ended, listed, projection, refused, resolved};

const GATEWAYS: [&str; 2] = ["gw-a", "gw-b"];
const IDS: [&str; 3] = ["one", "two", "\u{1c}one"];

#[derive(Clone, Debug)]
enum Step {
    /// An approval is made at the connected gateway.
    Make(usize),
    /// Somebody else, or time, ends one.
    End(usize, usize),
    /// A record that ended is pruned.
    Prune(usize),
    /// The person chooses on the card of that place, whatever its state.
    Choose(Index, bool),
    /// The gateway does a call; its reply sets out.
    Serve(Index),
    /// A message arrives.
    Deliver(Index),
    /// A message does not arrive: an event is missed, a reply timed out.
    Lose(Index),
    /// A reply arrives that is not what was asked for.
    Garble(Index, usize),
    Disconnect,
    /// To which gateway, speaking what.
    Connect(usize, bool),
    Refresh,
    Open(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..IDS.len()).prop_map(Step::Make),
        2 => (0..IDS.len(), 0..4_usize).prop_map(|(id, how)| Step::End(id, how)),
        1 => (0..IDS.len()).prop_map(Step::Prune),
        6 => (any::<Index>(), any::<bool>()).prop_map(|(at, allow)| Step::Choose(at, allow)),
        9 => any::<Index>().prop_map(Step::Serve),
        12 => any::<Index>().prop_map(Step::Deliver),
        2 => any::<Index>().prop_map(Step::Lose),
        2 => (any::<Index>(), 0..4_usize).prop_map(|(at, how)| Step::Garble(at, how)),
        1 => Just(Step::Disconnect),
        2 => (0..GATEWAYS.len(), prop::bool::weighted(0.3)).prop_map(|(at, legacy)| Step::Connect(at, legacy)),
        2 => Just(Step::Refresh),
        1 => (0..IDS.len()).prop_map(Step::Open),
    ]
}

/// What a gateway records of one approval.
#[derive(Clone, Debug, PartialEq)]
enum Truth {
    Pending,
    Answered { decision: Decision, ours: bool },
    Expired,
    Cancelled,
}

#[derive(Clone, Debug)]
enum Message {
    Event { connection: u64, name: &'static str, payload: Value },
    Reply { tag: Tag, outcome: Result<Value, Failure> },
}

#[derive(Default)]
struct World {
    machine: Reviewing,
    /// Every record there ever was, and the one that each gateway holds under an id now.
    records: BTreeMap<(usize, &'static str, i64), Truth>,
    current: BTreeMap<(usize, &'static str), i64>,
    made: BTreeMap<(usize, &'static str), u32>,
    clock: i64,
    connection: u64,
    /// The gateway and whether it speaks the legacy methods.
    link: Option<(usize, bool)>,
    calls: Vec<Call>,
    messages: Vec<Message>,
    /// Decisions in flight, by the card for which they were chosen.
    deciding: BTreeMap<Tag, CardKey>,
    reads: BTreeSet<Tag>,
    before: BTreeMap<CardKey, State>,
    /// Cards that were ever decided over the legacy methods, whose acknowledgement names nothing.
    legacy: BTreeSet<CardKey>,
}

impl World {
    fn record(&self, gateway: usize, id: &'static str, made: i64) -> Value {
        match &self.records[&(gateway, id, made)] {
            Truth::Pending => projection(id, made),
            Truth::Answered { decision: Decision::Deny, .. } => {
                ended(id, made, "denied", "user", Some("deny"))
            }
            Truth::Answered { decision, .. } => ended(id, made, "allowed", "user", Some(decision.as_str())),
            Truth::Expired => ended(id, made, "expired", "timeout", None),
            Truth::Cancelled => ended(id, made, "cancelled", "run-aborted", None),
        }
    }

    fn tell(&mut self, name: &'static str, payload: Value) {
        if self.link.is_some() {
            self.messages.push(Message::Event { connection: self.connection, name, payload });
        }
    }

    fn tell_end(&mut self, gateway: usize, id: &'static str, made: i64) {
        let (decision, by) = match &self.records[&(gateway, id, made)] {
            Truth::Answered { decision, .. } => (decision.as_str(), Some("cli")),
            _ => ("deny", None),
        };
        let mut hint = resolved(id, decision, by, made);
        hint["ts"] = self.clock.into();
        let record = self.record(gateway, id, made);
        self.tell("exec.approval.resolved", hint);
        if self.link.is_some_and(|(_, legacy)| !legacy) {
            self.tell(
                "session.approval",
                json!({"sessionKey": "s", "phase": "terminal", "approval": record}),
            );
        }
    }

    fn finish(&mut self, gateway: usize, id: &'static str, truth: Truth) -> bool {
        let Some(made) = self.current.get(&(gateway, id)).copied() else { return false };
        let record = self.records.get_mut(&(gateway, id, made)).unwrap();
        if *record != Truth::Pending {
            return false;
        }
        *record = truth;
        self.tell_end(gateway, id, made);
        true
    }

    /// What a gateway answers to a call.
    fn answer(&mut self, gateway: usize, call: &Call) -> Result<Value, Failure> {
        if call.method.ends_with(".list") {
            let waiting = self.current.iter().filter(|((at, id), made)| {
                *at == gateway && self.records[&(*at, *id, **made)] == Truth::Pending
            });
            let exec = call.method.starts_with("exec");
            return Ok(waiting.filter(|_| exec).map(|((_, id), made)| listed(id, *made)).collect());
        }
        let id = IDS.into_iter().find(|id| call.params["id"] == **id).expect("only known ids are asked for");
        let Some(made) = self.current.get(&(gateway, id)).copied() else {
            return Err(refused("APPROVAL_NOT_FOUND"));
        };
        let pending = self.records[&(gateway, id, made)] == Truth::Pending;
        let decision = call.params["decision"].as_str().and_then(Decision::from_name);
        match (call.method, decision) {
            ("approval.get", _) => Ok(json!({"approval": self.record(gateway, id, made)})),
            ("exec.approval.get", _) if pending => Ok(json!({"id": id, "expiresAtMs": made + 60_000})),
            ("exec.approval.get", _) => Err(refused("APPROVAL_NOT_FOUND")),
            ("approval.resolve", Some(decision)) => {
                let applied = self.finish(gateway, id, Truth::Answered { decision, ours: true });
                Ok(acknowledged(applied, self.record(gateway, id, made)))
            }
            ("exec.approval.resolve", Some(decision)) => {
                let applied = self.finish(gateway, id, Truth::Answered { decision, ours: true });
                match &self.records[&(gateway, id, made)] {
                    _ if applied => Ok(json!({"ok": true})),
                    Truth::Answered { decision: recorded, .. } if *recorded == decision => {
                        Ok(json!({"ok": true}))
                    }
                    _ => Err(refused("APPROVAL_ALREADY_RESOLVED")),
                }
            }
            other => panic!("the surface sent {other:?}"),
        }
    }

    fn apply(&mut self, input: Input) {
        let read = matches!(&input, Input::Reply { tag, .. } if self.reads.contains(tag));
        let chosen = match &input {
            Input::Chosen { shown, .. } => Some(shown.key.clone()),
            _ => None,
        };
        match &input {
            Input::Reply { tag, .. } => {
                self.deciding.remove(tag);
            }
            Input::Disconnected { .. } | Input::Connected { .. } => self.deciding.clear(),
            _ => {}
        }
        for effect in self.machine.apply(input) {
            let Effect::Call(call) = effect else { continue };
            if call.method.ends_with(".resolve") {
                let key = chosen.clone().expect("a decision is sent only when a person chose");
                assert!(
                    !self.deciding.values().any(|other| *other == key),
                    "two decisions in flight for {key:?}"
                );
                if call.method.starts_with("exec") {
                    self.legacy.insert(key.clone());
                }
                self.deciding.insert(call.tag, key);
            }
            if call.method.ends_with(".get") {
                self.reads.insert(call.tag);
            }
            self.calls.push(call);
        }
        self.check(read);
    }

    fn check(&mut self, read: bool) {
        let view = self.machine.view();
        let mut now = BTreeMap::new();
        for card in view.cards {
            let key = card.shown.key;
            let connected = self.link.is_some_and(|(gateway, _)| GATEWAYS[gateway] == &*key.gateway);
            if !card.buttons.is_empty() {
                assert_eq!(card.state, State::Pending, "enabled buttons on {key:?}");
                assert!(connected, "enabled buttons on a card of a gateway that is not connected");
                assert!(!self.deciding.values().any(|other| *other == key), "enabled buttons in flight");
            }
            match (self.before.get(&key), &card.state) {
                (Some(State::Ended(before)), after) => assert_eq!(State::Ended(before.clone()), *after),
                (Some(State::OutcomeUnknown(_)), State::Pending | State::Loading) => {
                    assert!(read, "{key:?} was unlocked by something else than a read");
                }
                (Some(State::Resolving(_)), State::Pending | State::Loading) => {
                    panic!("{key:?} was unlocked while its decision was out");
                }
                (_, State::Ended(end)) => self.assert_true(&key, end),
                _ => {}
            }
            now.insert(key, card.state);
        }
        self.before = now;
    }

    /// What is claimed is what is recorded.
    fn assert_true(&self, key: &CardKey, end: &End) {
        let gateway = GATEWAYS.iter().position(|name| *name == &*key.gateway).unwrap();
        let id = IDS.into_iter().find(|id| **id == key.id).unwrap();
        // The legacy answers and events do not say which record under an id they are of.
        if self.made[&(gateway, id)] > 1
            && (self.legacy.contains(key) || self.link.is_some_and(|link| link.1))
        {
            return;
        }
        let truth = &self.records[&(gateway, id, key.created_at_ms)];
        match (end, truth) {
            (End::Answered { decision, origin, .. }, Truth::Answered { decision: recorded, ours }) => {
                assert_eq!(decision, recorded, "{key:?}");
                match origin {
                    Origin::Here => {
                        assert!(*ours || self.legacy.contains(key), "{key:?} was not answered here")
                    }
                    Origin::Elsewhere => assert!(!ours, "{key:?} was answered here"),
                    Origin::Unattributed => {}
                }
            }
            (End::Expired, Truth::Expired) | (End::Cancelled { .. }, Truth::Cancelled) => {}
            (End::Gone, truth) => assert_ne!(*truth, Truth::Pending, "{key:?} still waits"),
            (end, truth) => panic!("{key:?}: {end:?} is claimed, {truth:?} is recorded"),
        }
    }

    fn message(&mut self, at: &Index) -> Option<Message> {
        (!self.messages.is_empty()).then(|| self.messages.remove(at.index(self.messages.len())))
    }

    fn take(&mut self, step: Step) {
        self.clock += 10;
        let gateway = self.link.map_or(0, |link| link.0);
        match step {
            Step::Make(id) => self.make(gateway, IDS[id]),
            Step::End(id, how) => {
                let answered = |decision| Truth::Answered { decision, ours: false };
                let truth = match how {
                    0 => answered(Decision::AllowOnce),
                    1 => answered(Decision::Deny),
                    2 => Truth::Expired,
                    _ => Truth::Cancelled,
                };
                self.finish(gateway, IDS[id], truth);
            }
            Step::Prune(id) => {
                let key = (gateway, IDS[id]);
                if self
                    .current
                    .get(&key)
                    .is_some_and(|made| self.records[&(key.0, key.1, *made)] != Truth::Pending)
                {
                    self.current.remove(&key);
                }
            }
            Step::Choose(at, allow) => {
                let cards = self.machine.view().cards;
                if !cards.is_empty() {
                    let shown = at.get(&cards).shown.clone();
                    let decision = if allow { Decision::AllowOnce } else { Decision::Deny };
                    self.apply(Input::Chosen { shown, decision });
                }
            }
            Step::Serve(_) | Step::Deliver(_) | Step::Lose(_) | Step::Garble(..) => self.carry(gateway, step),
            Step::Disconnect => {
                self.link = None;
                self.calls.clear();
                self.apply(Input::Disconnected { connection: self.connection });
            }
            Step::Connect(gateway, legacy) => {
                self.link = Some((gateway, legacy));
                self.calls.clear();
                self.connection += 1;
                let methods: &[&str] = if legacy { &LEGACY } else { &CANONICAL };
                let methods = methods.iter().map(|method| (*method).to_owned()).collect();
                let (connection, gateway) = (self.connection, GATEWAYS[gateway].to_owned());
                self.apply(Input::Connected { connection, gateway, methods });
            }
            Step::Refresh => self.apply(Input::Refresh),
            Step::Open(id) => self.apply(Input::Opened { id: IDS[id].to_owned() }),
        }
    }

    /// What the network does.
    fn carry(&mut self, gateway: usize, step: Step) {
        match step {
            Step::Serve(at) => {
                if !self.calls.is_empty() {
                    let call = self.calls.remove(at.index(self.calls.len()));
                    let outcome = self.answer(gateway, &call);
                    self.messages.push(Message::Reply { tag: call.tag, outcome });
                }
            }
            Step::Deliver(at) => match self.message(&at) {
                Some(Message::Event { connection, name, payload }) => {
                    self.apply(Input::Event { connection, name: name.to_owned(), payload });
                }
                Some(Message::Reply { tag, outcome }) => self.apply(Input::Reply { tag, outcome }),
                None => {}
            },
            Step::Lose(at) => {
                if let Some(Message::Reply { tag, .. }) = self.message(&at) {
                    self.apply(Input::Reply { tag, outcome: Err(Failure::Lost) });
                }
            }
            Step::Garble(at, how) => {
                if let Some(Message::Reply { tag, .. }) = self.message(&at) {
                    let outcome = match how {
                        0 => Err(refused("UNAVAILABLE")),
                        1 => Ok(acknowledged(true, ended("other", 1, "allowed", "user", Some("allow-once")))),
                        2 => Ok(json!({"approval": projection("other", 1), "id": "other"})),
                        _ => Ok(Value::Null),
                    };
                    self.apply(Input::Reply { tag, outcome });
                }
            }
            other => panic!("{other:?} is nothing that a network does"),
        }
    }

    fn make(&mut self, gateway: usize, id: &'static str) {
        let key = (gateway, id);
        if self.current.get(&key).is_some_and(|made| self.records[&(gateway, id, *made)] == Truth::Pending) {
            return;
        }
        self.current.insert(key, self.clock);
        self.records.insert((gateway, id, self.clock), Truth::Pending);
        *self.made.entry(key).or_default() += 1;
        self.tell("exec.approval.requested", listed(id, self.clock));
    }

    /// The network heals: everything that is out is done and arrives.
    fn settle(&mut self) {
        self.take(Step::Connect(0, false));
        for round in 0..3 {
            if round > 0 {
                self.take(Step::Refresh);
            }
            while !self.calls.is_empty() || !self.messages.is_empty() {
                let first = proptest_index();
                self.take(Step::Serve(first));
                self.take(Step::Deliver(first));
            }
        }
    }
}

/// The first of whatever there is.
fn proptest_index() -> Index {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut tree = any::<Index>().new_tree(&mut runner).unwrap();
    while tree.simplify() {}
    tree.current()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_surface_never_claims_what_is_not_recorded(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        world.take(Step::Connect(0, false));
        for step in steps {
            world.take(step);
        }
        world.settle();
        // With the network healed, nothing stays frozen, and every card tells the truth of now.
        for card in world.machine.view().cards {
            let key = card.shown.key;
            if &*key.gateway == GATEWAYS[0] {
                let id = IDS.into_iter().find(|id| **id == key.id).unwrap();
                let truth = &world.records[&(0, id, key.created_at_ms)];
                match card.state {
                    State::Pending => assert_eq!(*truth, Truth::Pending),
                    State::Ended(_) => assert!(*truth != Truth::Pending || world.made[&(0, id)] > 1),
                    state => panic!("{key:?} is still {state:?}"),
                }
            }
        }
    }
}
