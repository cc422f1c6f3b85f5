//! 125 things done to a gateway over the WebSocket protocol, and what came back: one case each, in a fixed order.
//!
//! The recorded answers of another gateway to the same cases are in `fixtures/`. A case is written down as it was
//! observed; making two observations comparable is the business of `normal`.

mod handshakes;
mod requests;
mod routes;
mod sessions;
mod validation;
mod verdicts;

use holdgate_testkit::v4::{Auth, Client, Connect, Identity, Reply, Trace};
use serde_json::{Value, json};

/// A gateway to probe.
pub struct Peer {
    /// `ws://host:port`.
    pub url: String,
    /// Its shared operator token.
    pub token: String,
}

/// One case and what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The name, as in the recording.
    pub name: String,
    /// What was seen, as JSON.
    pub observed: Value,
}

/// The people and agents of the probe, and what was seen so far.
struct Probe<'a> {
    peer: &'a Peer,
    trace: Trace,
    cases: Vec<Case>,
    /// A paired device of an administrator, with approval events.
    admin: Client,
    /// A paired device of a reviewer, with approval events.
    rev_a: Client,
    /// Another.
    rev_b: Client,
    /// A paired device that may only read.
    readonly: Client,
    /// A paired device that asks.
    req_dev: Client,
    /// An agent without a device.
    agent: Client,
}

const APPROVER: [&str; 2] = ["operator.read", "operator.approvals"];

/// Runs every case. Answers what was seen and every frame that was exchanged.
pub async fn run(peer: &Peer) -> (Vec<Case>, Trace) {
    let trace = Trace::default();
    let dial = async |connect: Connect| {
        Client::connect(&peer.url, &connect, &trace).await.unwrap_or_else(|refused| {
            panic!("{} was refused: {refused:?}", connect.name);
        })
    };
    let named = |name: &str| Connect::new(name, Auth::token(&peer.token));
    let mut probe = Probe {
        admin: dial(named("admin").device().approvals().scopes(&["operator.admin"])).await,
        rev_a: dial(named("revA").device().approvals().scopes(&APPROVER)).await,
        rev_b: dial(named("revB").device().approvals().scopes(&APPROVER)).await,
        readonly: dial(named("readonly").device().scopes(&["operator.read"])).await,
        req_dev: dial(named("reqDev").device().scopes(&APPROVER)).await,
        agent: dial(named("reqNoDev").client("gateway-client", "backend").scopes(&APPROVER)).await,
        peer,
        trace: trace.clone(),
        cases: Vec::new(),
    };
    probe.requests().await;
    probe.verdicts().await;
    probe.validation().await;
    probe.device_requests().await;
    probe.routes().await;
    probe.sessions().await;
    probe.handshakes().await;
    (probe.cases, trace)
}

impl Probe<'_> {
    fn record(&mut self, name: impl Into<String>, observed: Value) {
        self.cases.push(Case { name: name.into(), observed });
    }

    async fn dial(&self, connect: Connect) -> Client {
        let connected = Client::connect(&self.peer.url, &connect, &self.trace).await;
        connected.unwrap_or_else(|refused| panic!("{} was refused: {refused:?}", connect.name))
    }

    fn named(&self, name: &str) -> Connect {
        Connect::new(name, Auth::token(&self.peer.token))
    }

    /// Ends an approval that a case has left pending.
    async fn deny(&self, by: &Client, id: &str) {
        by.call("approval.resolve", &json!({ "id": id, "kind": "exec", "decision": "deny" })).await;
    }

    /// The device id of a client that was named so.
    fn device_id(name: &str) -> String {
        Identity::named(name).device_id()
    }
}

/// Asks for permission to run a command, with these fields changed.
async fn ask(by: &Client, changes: Value) -> Reply {
    let mut params = json!({
        "command": "echo hi",
        "host": "gateway",
        "timeoutMs": 60_000,
        "twoPhase": true,
        "sessionKey": "agent:main:main",
    });
    let fields = params.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if *value == json!(ABSENT) {
            fields.remove(name);
        } else {
            fields.insert(name.clone(), value.clone());
        }
    }
    by.call("exec.approval.request", &params).await
}

/// As the value of a change: the field is left out.
const ABSENT: &str = "<absent>";

/// The id in a reply.
fn id_of(reply: &Reply) -> String {
    reply.at("/id").as_str().unwrap_or_default().to_owned()
}

/// An object of the parts that are there.
fn present(parts: &[(&str, Value)]) -> Value {
    let kept = parts.iter().filter(|(_, value)| !value.is_null());
    Value::Object(kept.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// Whether a frame is this event about this approval; any approval if the id is empty.
fn is_event(frame: &Value, event: &str, id: &str) -> bool {
    let payload = &frame["payload"];
    let of = payload.pointer("/approval/id").unwrap_or(&payload["id"]);
    frame["event"] == event && (id.is_empty() || of == id)
}
