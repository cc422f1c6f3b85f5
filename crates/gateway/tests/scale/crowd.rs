//! Thousands of connected reviewers, and one of them that does not read.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use holdgate_testkit::gateway::{Persona, TestGateway};
use holdgate_testkit::v4::{Auth, Client, Connect};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use crate::stage::{agent, connect, is_about, reviewer};

const CROWD: usize = 2_000;
/// How many of them are not entitled to the listed approval.
const OUTSIDE: usize = 500;

/// Every connection has two ends in this process.
fn raise_the_limit_of_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Pairs a device of this person; answers its token.
async fn pair(gateway: &TestGateway, person: &str) -> String {
    let offered = gateway.by(Persona::Reviewer).post("/v1/pairing", json!({ "person": person })).await;
    let body = json!({ "code": offered.field("/code"), "label": person });
    let paired = gateway.anonymous().post("/v1/pairing/complete", body).await;
    assert_eq!(paired.status, 201, "{}", paired.text);
    paired.field("/token")
}

async fn crowd(gateway: &Arc<TestGateway>, token: &str, count: usize) -> Vec<Client> {
    let mut arriving = JoinSet::new();
    let mut here = Vec::new();
    for n in 0..count {
        let (gateway, token) = (Arc::clone(gateway), token.to_owned());
        arriving.spawn(async move {
            let says = Connect::new(&n.to_string(), Auth::device_token(&token));
            connect(&gateway, says.scopes(&["operator.approvals"]).approvals()).await
        });
        // As many as may wait to be accepted.
        if arriving.len() == 100 {
            here.extend(arriving.join_next().await.transpose().unwrap());
        }
    }
    here.extend(arriving.join_all().await);
    here
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_entitled_of_two_thousand_hears_of_a_request_and_its_end_once_and_nobody_else() {
    raise_the_limit_of_files();
    let gateway = Arc::new(TestGateway::start_for_v4().await);
    let (inside, outside) = (pair(&gateway, "inside").await, pair(&gateway, "outside").await);
    let entitled = crowd(&gateway, &inside, CROWD - OUTSIDE).await;
    let others = crowd(&gateway, &outside, OUTSIDE).await;
    let asks = agent(&gateway).await;
    let request = |argv: &str, requirement: Value| json!({ "kind": "exec", "content": { "argv": [argv] }, "requirement": requirement });
    let listed = request("listed", json!({ "reviewers": ["person:inside"] }));
    let id = asks.call("approval.request", &listed).await.at("/approval/id").as_str().unwrap().to_owned();
    let resolve = json!({ "id": id, "kind": "exec", "decision": "deny" });
    assert_eq!(entitled[0].call("approval.resolve", &resolve).await.at("/applied"), true);
    // Everybody hears of the next one: whoever has heard of it has heard of all that was before.
    let mark = asks.call("approval.request", &request("for all", json!({}))).await;
    let mark = mark.at("/approval/id").as_str().unwrap().to_owned();
    for (client, hears) in entitled.iter().map(|c| (c, 1)).chain(others.iter().map(|c| (c, 0))) {
        let is_mark = |event: &Value| is_about(event, "exec.approval.requested", &mark);
        assert!(client.event(is_mark).await.is_some(), "{} hears nothing", client.name());
        let events = client.events();
        for what in ["exec.approval.requested", "exec.approval.resolved"] {
            let heard = events.iter().filter(|event| is_about(event, what, &id)).count();
            assert_eq!(heard, hears, "{what} to {}", client.name());
        }
        let named = events.iter().filter(|event| event.to_string().contains(&id)).count();
        assert_eq!(named, 2 * hears, "nothing else tells of it");
    }
    drop((entitled, others, asks));
    Arc::into_inner(gateway).unwrap().stop().await;
}

/// A connection that says hello, follows a session and then reads nothing more. Its window is small.
struct Unread {
    socket: tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>,
}

impl Unread {
    async fn connect(gateway: &TestGateway, session: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let address = gateway.url.trim_start_matches("http://").parse().unwrap();
        let stream = socket.connect(address).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(gateway.ws_url(), stream).await.unwrap();
        let mut unread = Self { socket };
        let challenge = unread.next().await;
        let says = Connect::new("unread", Auth::token("reviewer")).scopes(&["operator.admin"]).approvals();
        unread.say("connect", &says.params(&challenge["payload"])).await;
        assert_eq!(unread.next().await["ok"], true);
        unread.say("sessions.messages.subscribe", &json!({ "key": session, "includeApprovals": true })).await;
        assert_eq!(unread.next().await["ok"], true);
        unread
    }

    async fn say(&mut self, method: &str, params: &Value) {
        let request = json!({ "type": "req", "id": method, "method": method, "params": params });
        self.socket.send(Message::text(request.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        loop {
            let message = tokio::time::timeout(Duration::from_secs(10), self.socket.next()).await;
            if let Message::Text(text) = message.unwrap().unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_does_not_read_holds_nobody_up_is_told_what_it_lost_and_recovers() {
    let gateway = TestGateway::start_for_v4().await;
    let (reads, asks) = (reviewer(&gateway, "reads", true).await, agent(&gateway).await);
    let session = "agent:work:main";
    let mut unread = Unread::connect(&gateway, session).await;
    // Far more than its window and its queue hold.
    let (count, filler) = (600, "x".repeat(12_000));
    let mut last = String::new();
    for n in 0..count {
        let request = json!({ "kind": "tool", "boundary": n.to_string(), "source": { "session": session },
            "content": { "toolName": "write", "input": { "text": filler } } });
        let reply = asks.call("approval.request", &request).await;
        last = reply.at("/approval/id").as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    }
    let is_last = |event: &Value| is_about(event, "plugin.approval.requested", &last);
    assert!(reads.event(is_last).await.is_some(), "others hear everything");
    let heard = reads.events().iter().filter(|event| event["event"] == "plugin.approval.requested").count();
    assert_eq!(heard, count);
    // Now it reads: some, then that it has lost the rest.
    let mut told = 0;
    loop {
        let event = unread.next().await;
        if event["event"] == "approvals.dropped" {
            break;
        }
        told += usize::from(event["event"] == "plugin.approval.requested");
    }
    assert!(told < count, "{told}");
    unread.say("sessions.messages.subscribe", &json!({ "key": session, "includeApprovals": true })).await;
    let replay = loop {
        let frame = unread.next().await;
        if frame["type"] == "res" {
            break frame;
        }
    };
    let approvals = replay["payload"]["approvalReplay"]["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), count, "what is pending is there to be read");
    let resolve = json!({ "id": last, "kind": "plugin", "decision": "deny" });
    assert_eq!(reads.call("approval.resolve", &resolve).await.at("/applied"), true);
    loop {
        let event = unread.next().await;
        if is_about(&event, "plugin.approval.resolved", &last) {
            break;
        }
    }
    gateway.stop().await;
}
