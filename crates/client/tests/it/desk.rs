//! A reviewer's surface under test, with its gateway's side played by hand. No socket, no time.

use holdgate_client::reviewing::{
    Call, CardKey, CardView, Decision, Declined, Effect, Failure, Input, Refused, Reviewing, Shown, State,
    Tag,
};
use serde_json::{Value, json};

/// What a gateway with every method advertises.
pub const CANONICAL: [&str; 5] = [
    "approval.get",
    "approval.resolve",
    "exec.approval.list",
    "plugin.approval.list",
    "sessions.messages.subscribe",
];
/// What an older gateway advertises.
pub const LEGACY: [&str; 4] =
    ["exec.approval.get", "exec.approval.resolve", "exec.approval.list", "plugin.approval.list"];
/// The id in most tests.
pub const ID: &str = "65e78fed-546d-4245-a0d1-c322170d00e7";
/// When it was made.
pub const MADE: i64 = 1_796_056_553_747;

/// The surface, and the calls that its gateway has not answered.
pub struct Desk {
    pub machine: Reviewing,
    pub connection: u64,
    pub out: Vec<Call>,
    pub declined: Vec<Declined>,
}

impl Desk {
    pub fn new() -> Self {
        Self::following(&[])
    }

    pub fn following(sessions: &[&str]) -> Self {
        let sessions = sessions.iter().map(|session| (*session).to_owned()).collect();
        Self { machine: Reviewing::new(sessions), connection: 0, out: Vec::new(), declined: Vec::new() }
    }

    /// A surface at a gateway with one approval that waits, its content read.
    pub fn with_one_waiting() -> Self {
        let mut desk = Self::new();
        desk.connect("gw", &CANONICAL);
        desk.list_one();
        desk.answer("approval.get", json!({"approval": projection(ID, MADE)}));
        assert_eq!(desk.state(ID), State::Pending);
        desk
    }

    /// The same at an older gateway.
    pub fn at_an_older_gateway() -> Self {
        let mut desk = Self::new();
        desk.connect("gw", &LEGACY);
        desk.list_one();
        assert_eq!(desk.state(ID), State::Pending);
        desk
    }

    pub fn list_one(&mut self) {
        self.answer("exec.approval.list", json!([listed(ID, MADE)]));
        self.answer("plugin.approval.list", json!([]));
    }

    pub fn list_nothing(&mut self) {
        self.answer("exec.approval.list", json!([]));
        self.answer("plugin.approval.list", json!([]));
    }

    pub fn apply(&mut self, input: Input) {
        for effect in self.machine.apply(input) {
            match effect {
                Effect::Call(call) => self.out.push(call),
                Effect::Declined { why, .. } => self.declined.push(why),
            }
        }
    }

    pub fn connect(&mut self, gateway: &str, methods: &[&str]) {
        self.connection += 1;
        self.out.clear();
        let methods = methods.iter().map(|method| (*method).to_owned()).collect();
        self.apply(Input::Connected { connection: self.connection, gateway: gateway.to_owned(), methods });
    }

    pub fn disconnect(&mut self) {
        self.out.clear();
        self.apply(Input::Disconnected { connection: self.connection });
    }

    pub fn event(&mut self, name: &str, payload: Value) {
        self.apply(Input::Event { connection: self.connection, name: name.to_owned(), payload });
    }

    pub fn choose(&mut self, id: &str, decision: Decision) {
        let shown = self.card(id).shown;
        self.choose_on(shown, decision);
    }

    pub fn choose_on(&mut self, shown: Shown, decision: Decision) {
        self.apply(Input::Chosen { shown, decision });
    }

    pub fn take(&mut self, method: &str) -> Call {
        let at = self.out.iter().position(|call| call.method == method);
        self.out.remove(at.unwrap_or_else(|| panic!("no {method} is out, only {:?}", self.methods())))
    }

    pub fn methods(&self) -> Vec<&'static str> {
        self.out.iter().map(|call| call.method).collect()
    }

    pub fn answer(&mut self, method: &str, payload: Value) {
        let tag = self.take(method).tag;
        self.answer_to(tag, payload);
    }

    pub fn answer_to(&mut self, tag: Tag, payload: Value) {
        self.apply(Input::Reply { tag, outcome: Ok(payload) });
    }

    pub fn refuse(&mut self, method: &str, reason: &str) {
        let tag = self.take(method).tag;
        self.apply(Input::Reply { tag, outcome: Err(refused(reason)) });
    }

    pub fn lose(&mut self, method: &str) {
        let tag = self.take(method).tag;
        self.apply(Input::Reply { tag, outcome: Err(Failure::Lost) });
    }

    /// The newest card of an id.
    pub fn card(&self, id: &str) -> CardView {
        self.find(id).unwrap_or_else(|| panic!("no card of {id}"))
    }

    pub fn find(&self, id: &str) -> Option<CardView> {
        self.machine.view().cards.into_iter().rfind(|card| card.shown.key.id == id)
    }

    pub fn at(&self, id: &str, made: i64) -> CardView {
        let is = |key: &CardKey| key.id == id && key.created_at_ms == made;
        self.machine.view().cards.into_iter().find(|card| is(&card.shown.key)).expect("a card")
    }

    pub fn state(&self, id: &str) -> State {
        self.card(id).state
    }

    pub fn buttons(&self, id: &str) -> Vec<Decision> {
        self.card(id).buttons
    }
}

/// An error with this reason.
pub fn refused(reason: &str) -> Failure {
    Failure::Refused(Refused {
        code: "INVALID_REQUEST".to_owned(),
        message: format!("refused: {reason}"),
        reason: Some(reason.to_owned()),
    })
}

/// An entry of a legacy list, or the payload of a `requested` event.
pub fn listed(id: &str, made: i64) -> Value {
    json!({
        "approvalKind": "exec", "id": id, "createdAtMs": made, "expiresAtMs": made + 60_000,
        "request": {"command": "echo hi", "allowedDecisions": ["allow-once", "deny"], "sessionKey": "agent:main:main"},
    })
}

/// A record that waits.
pub fn projection(id: &str, made: i64) -> Value {
    json!({
        "id": id, "status": "pending", "urlPath": format!("/approve/{id}"),
        "createdAtMs": made, "expiresAtMs": made + 60_000,
        "presentation": {"kind": "exec", "commandText": "echo hi", "allowedDecisions": ["allow-once", "deny"]},
    })
}

/// A record that ended so.
pub fn ended(id: &str, made: i64, status: &str, reason: &str, decision: Option<&str>) -> Value {
    let mut record = projection(id, made);
    record["status"] = status.into();
    record["reason"] = reason.into();
    record["resolvedAtMs"] = (made + 1_000).into();
    if let Some(decision) = decision {
        record["decision"] = decision.into();
        record["resolver"] = json!({"kind": "device", "id": "somebody"});
    }
    record
}

/// A record that somebody allowed once.
pub fn allowed(id: &str, made: i64) -> Value {
    ended(id, made, "allowed", "user", Some("allow-once"))
}

/// A record that somebody denied.
pub fn denied(id: &str, made: i64) -> Value {
    ended(id, made, "denied", "user", Some("deny"))
}

/// An acknowledgement.
pub fn acknowledged(applied: bool, record: Value) -> Value {
    json!({"applied": applied, "approval": record})
}

/// A `resolved` event's payload.
pub fn resolved(id: &str, decision: &str, by: Option<&str>, made: i64) -> Value {
    json!({"id": id, "decision": decision, "resolvedBy": by, "ts": made + 1_000, "request": {}})
}
