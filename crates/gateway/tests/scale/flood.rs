//! Agents that ask for more than they may: they are told so, and nobody else is held up.

use std::time::Duration;

use holdgate_authority::Policy;
use holdgate_core::limits::QUEUED_PER_PRINCIPAL;
use holdgate_store::{By, Caps, Op, Store as _, StoreError, mint};
use holdgate_testkit::gateway::{Caller, Persona, Reply, TestGateway};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::stage::agent;

async fn gateway(per_principal: u32, per_session: u32) -> TestGateway {
    TestGateway::start_with(Policy { caps: Caps { per_principal, per_session }, ..Policy::default() }).await
}

async fn ask(agent: &Caller, session: &str, nth: usize) -> Reply {
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "boundary": format!("{session}:{nth}"),
        "source": { "session": session } });
    agent.post("/v1/approvals", body).await
}

fn assert_full(reply: &Reply, whose: &str) {
    assert_eq!(reply.problem(), (429, "too_many_pending".to_owned()), "{}", reply.text);
    let seconds: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds > 0);
    assert!(
        reply.json()["retryAfterMs"].is_i64() && reply.field("/detail").contains(whose),
        "{}",
        reply.text
    );
}

/// One approval from request to receipt.
async fn whole(gateway: &TestGateway, agent: &Caller, nth: usize) {
    let asked = ask(agent, "theirs", nth).await;
    assert_eq!(asked.status, 201, "{}", asked.text);
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    let decided = gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(decided.status, 200, "{}", decided.text);
    let claim = json!({ "claimId": "c", "digest": digest });
    assert_eq!(agent.post(&format!("/v1/approvals/{id}/claim"), claim).await.status, 200);
    let receipt = json!({ "claimId": "c", "outcome": "succeeded" });
    let settled = agent.post(&format!("/v1/approvals/{id}/receipt"), receipt).await;
    assert_eq!(settled.field("/receipt/outcome"), "succeeded", "{}", settled.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_over_http_is_answered_clearly_and_another_agent_comes_through_whole() {
    const CAP: usize = 200;
    let gateway = gateway(u32::try_from(CAP).unwrap(), u32::MAX).await;
    let flood = gateway.by(Persona::Agent);
    let mut flooding = JoinSet::new();
    // More at once than may be queued, and more in all than may be pending.
    for nth in 0..2 * QUEUED_PER_PRINCIPAL {
        let flood = flood.clone();
        flooding.spawn(async move { ask(&flood, "flood", nth).await });
    }
    let other = gateway.by(Persona::OtherAgent);
    for nth in 0..20 {
        whole(&gateway, &other, nth).await;
    }
    let (mut asked, mut refused) = (0, 0);
    for reply in flooding.join_all().await {
        match reply.problem() {
            (201, _) => asked += 1,
            (429, code) => {
                refused += 1;
                assert!(["too_many_pending", "rate_limited"].contains(&code.as_str()), "{}", reply.text);
                assert!(reply.headers.contains_key("retry-after"), "{}", reply.text);
            }
            other => panic!("{other:?}: {}", reply.text),
        }
    }
    assert_eq!(asked + refused, 2 * QUEUED_PER_PRINCIPAL);
    assert!(asked <= CAP && refused > 0, "{asked} {refused}");
    // Whatever was only a matter of haste fits now, and no more than that.
    for nth in 0..CAP - asked {
        assert_eq!(ask(&flood, "slowly", nth).await.status, 201);
    }
    assert_full(&ask(&flood, "slowly", CAP).await, "agent");
    let first = gateway.by(Persona::Reviewer).get("/v1/approvals?status=pending&limit=1").await.json();
    let id = first["items"][0]["id"].as_str().unwrap().to_owned();
    gateway.by(Persona::Reviewer).post(&format!("/v1/approvals/{id}/cancel"), json!({})).await;
    assert_eq!(ask(&flood, "slowly", CAP).await.status, 201, "what has ended makes room");
    gateway.stop().await;
}

#[tokio::test]
async fn more_than_may_be_queued_is_told_so_and_another_is_written_in_between() {
    let gateway = TestGateway::start_for_v4().await;
    let flood = agent(&gateway).await;
    let (by, epoch) = (By::from(&Persona::Agent.principal()), mint::epoch());
    let renew = |by: &By| Op::RenewRuntime { epoch: epoch.clone(), by: by.clone() };
    // Another program in a transaction of its own holds the writer up, as a backup would.
    let held = Connection::open(gateway.database()).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        for _ in 0..QUEUED_PER_PRINCIPAL {
            let (store, op) = (gateway.store.clone(), renew(&by));
            waiting.spawn(async move { store.execute(op).await });
        }
        // The writer takes one batch and then is held up: after that, what fills the queue stays there.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let queued = waiting.len();
    let reply =
        flood.call("approval.request", &json!({ "kind": "exec", "content": { "argv": ["ls"] } })).await;
    let error = reply.error.unwrap_or(Value::Null);
    assert_eq!((&error["code"], &error["retryable"]), (&json!("UNAVAILABLE"), &json!(true)), "{error}");
    assert_eq!(error["details"]["reason"], "RATE_LIMITED");
    let over_http = ask(&gateway.by(Persona::Agent), "s", 0).await;
    assert_eq!(over_http.problem(), (429, "rate_limited".to_owned()), "{}", over_http.text);
    assert!(over_http.headers.contains_key("retry-after"));
    let other = gateway.by(Persona::OtherAgent);
    let theirs = tokio::spawn(async move { ask(&other, "theirs", 0).await });
    drop(held);
    assert_eq!(theirs.await.unwrap().status, 201);
    let answers = waiting.join_all().await;
    let flooded = answers.iter().filter(|answer| matches!(answer, Err(StoreError::Flooded(_)))).count();
    assert!(flooded > 0 && flooded < queued, "{flooded} of {queued}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_one_agent_has_filled_is_open_to_another() {
    let gateway = gateway(u32::MAX, 3).await;
    let (fills, other) = (gateway.by(Persona::Agent), gateway.by(Persona::OtherAgent));
    let mut last = Value::Null;
    for nth in 0..3 {
        let asked = ask(&fills, "shared", nth).await;
        assert_eq!(asked.status, 201, "{}", asked.text);
        last = asked.json();
    }
    assert_full(&ask(&fills, "shared", 3).await, "session");
    assert_eq!(ask(&fills, "another", 0).await.status, 201, "its other sessions are open");
    for nth in 10..13 {
        assert_eq!(ask(&other, "shared", nth).await.status, 201, "and the session is, to others");
    }
    assert_full(&ask(&other, "shared", 13).await, "session");
    let cancel = format!("/v1/approvals/{}/cancel", last["id"].as_str().unwrap());
    assert_eq!(fills.post(&cancel, json!({})).await.status, 200);
    assert_full(&ask(&other, "shared", 13).await, "session");
    assert_eq!(ask(&fills, "shared", 3).await.status, 201, "what one has ended makes room for that one");
    gateway.stop().await;
}
