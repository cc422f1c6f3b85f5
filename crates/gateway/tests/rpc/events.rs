//! Who hears of what, and when a connection ends.

use holdgate_store::Administration;
use holdgate_testkit::gateway::{Persona, TestGateway};
use holdgate_testkit::v4::{Auth, Client, Connect};
use serde_json::{Value, json};

use crate::stage::{agent, connect, device, reviewer};

fn named(name: &'static str) -> impl Fn(&Value) -> bool {
    move |event| event["event"] == name
}

async fn ask(client: &Client) -> Value {
    let request = json!({ "kind": "exec", "content": { "argv": ["ls"] } });
    let reply = client.call("approval.request", &request).await;
    assert!(reply.ok, "{reply:?}");
    reply.at("/approval/id")
}

/// How many events of that name came so far.
fn heard(client: &Client, name: &str) -> usize {
    client.events().iter().filter(|event| event["event"] == name).count()
}

#[tokio::test]
async fn whoever_may_answer_and_shows_it_hears_of_a_request_and_its_end_once_and_in_order() {
    let gateway = TestGateway::start_for_v4().await;
    let (shown, agent) = (reviewer(&gateway).await, agent(&gateway).await);
    let phone = connect(&gateway, device(&gateway, "phone")).await.unwrap();
    let plugin = Connect::new("p", Auth::token("reviewer")).scopes(&["operator.admin"]);
    let plugin =
        connect(&gateway, Connect { caps: vec!["plugin-approvals".to_owned()], ..plugin }).await.unwrap();
    let narrow = Connect::new("n", Auth::token("reviewer")).scopes(&["operator.read"]).approvals();
    let narrow = connect(&gateway, narrow).await.unwrap();
    let id = ask(&agent).await;
    let resolve = json!({ "id": id, "kind": "exec", "decision": "deny" });
    assert_eq!(phone.call("approval.resolve", &resolve).await.at("/applied"), true);
    for client in [&shown, &phone] {
        let requested = client.event(named("exec.approval.requested")).await.unwrap();
        let resolved = client.event(named("exec.approval.resolved")).await.unwrap();
        assert_eq!((&requested["payload"]["id"], &resolved["payload"]["id"]), (&id, &id));
        assert_eq!((&requested["seq"], &resolved["seq"]), (&json!(1), &json!(2)));
    }
    for client in [&agent, &plugin, &narrow] {
        let others = client.events().iter().filter(|event| event["event"] != "connect.challenge").count();
        assert_eq!(others, 0, "{}", client.name());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_hears_nothing_of_its_own_request_and_another_of_the_same_person_does() {
    let gateway = TestGateway::start_for_v4().await;
    let (asks, answers) = (reviewer(&gateway).await, reviewer(&gateway).await);
    for turn in 1..=20 {
        let request = json!({ "kind": "exec", "boundary": turn.to_string(), "content": { "argv": ["ls"] } });
        assert!(asks.call("approval.request", &request).await.ok);
    }
    let last = |event: &Value| event["event"] == "exec.approval.requested" && event["seq"] == 20;
    assert!(answers.event(last).await.is_some());
    assert_eq!(heard(&asks, "exec.approval.requested"), 0);
    gateway.stop().await;
}

#[tokio::test]
async fn an_explicit_reviewer_list_is_who_hears() {
    let gateway = TestGateway::start_for_v4().await;
    let says = device(&gateway, "one");
    let listed = format!("device:{}", says.identity.as_ref().unwrap().device_id());
    let one = connect(&gateway, says).await.unwrap();
    let other = connect(&gateway, device(&gateway, "other")).await.unwrap();
    let admin = reviewer(&gateway).await;
    let requirement = json!({ "reviewers": [listed] });
    let request = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "requirement": requirement });
    let reply = agent(&gateway).await.call("approval.request", &request).await;
    assert!(reply.ok, "{reply:?}");
    for client in [&one, &admin] {
        assert!(client.event(named("exec.approval.requested")).await.is_some(), "{}", client.name());
    }
    assert!(other.call("health", &json!({})).await.ok);
    assert_eq!(heard(&other, "exec.approval.requested"), 0);
    gateway.stop().await;
}

#[tokio::test]
async fn whoever_is_revoked_is_cut_off_at_once_and_stays_out() {
    let gateway = TestGateway::start_for_v4().await;
    let says = device(&gateway, "phone");
    let phone = connect(&gateway, says.clone()).await.unwrap();
    let other = connect(&gateway, device(&gateway, "other")).await.unwrap();
    let waits = agent(&gateway).await;
    let id = ask(&waits).await;
    let waiting = waits.start_final("approval.wait", &json!({ "id": id })).await;
    let admin = Persona::Reviewer.principal();
    for id in [says.identity.as_ref().unwrap().device_id(), "agent".to_owned()] {
        gateway.service.administer(Administration::Revoke { id: id.parse().unwrap() }, &admin).await.unwrap();
    }
    for client in [&phone, &waits] {
        let closed = client.ended().await.unwrap();
        assert_eq!((closed.code, closed.reason.as_str()), (1008, "credential revoked"));
    }
    assert!(!waiting.reply().await.ok, "a wait ends with its connection");
    assert!(other.call("health", &json!({})).await.ok);
    let refused = connect(&gateway, says).await.err().unwrap();
    assert_eq!(refused.error["code"], "NOT_PAIRED");
    gateway.stop().await;
}

#[tokio::test]
async fn a_device_outlives_the_credentials_of_its_other_programs() {
    let gateway = TestGateway::start_for_v4().await;
    let first = connect(&gateway, device(&gateway, "phone")).await.unwrap();
    for _ in 0..6 {
        connect(&gateway, device(&gateway, "phone")).await.unwrap();
    }
    assert!(
        first.call("health", &json!({})).await.ok,
        "it came with the shared credential, which still is one"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn waits_leave_room_for_calls() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let id = ask(&agent).await;
    let mut waits = Vec::new();
    for _ in 0..200 {
        waits.push(agent.start("approval.wait", &json!({ "id": id })).await);
    }
    assert!(agent.call("health", &json!({})).await.ok);
    let resolve = json!({ "id": id, "kind": "exec", "decision": "deny" });
    assert!(reviewer(&gateway).await.call("approval.resolve", &resolve).await.ok);
    for wait in waits {
        assert_eq!(wait.reply().await.at("/status"), "denied");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_stops_says_so() {
    let gateway = TestGateway::start_for_v4().await;
    let clients = [reviewer(&gateway).await, agent(&gateway).await];
    gateway.stop().await;
    for client in clients {
        assert!(client.event(named("shutdown")).await.is_some());
        assert_eq!(client.ended().await.unwrap().code, 1012);
    }
}
