//! Deadlines, leases, restarts and the end of the gateway itself.

use std::time::Duration;

use holdgate_core::Time;
use holdgate_core::limits::RUNTIME_LEASE_MS;
use holdgate_testkit::ManualClock;
use holdgate_testkit::gateway::{Persona, TestGateway};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const START: Time = Time::from_ms(1_800_000_000_000);

#[tokio::test]
async fn after_its_deadline_and_exactly_at_it_a_request_is_over() {
    let clock = ManualClock::at(START);
    let gateway = TestGateway::start_at(clock.clone()).await;
    let agent = gateway.by(Persona::Agent);
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "timeoutMs": 1_000 });
    let asked = agent.post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    clock.advance(1_000);
    let late = gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(late.problem(), (409, "expired".to_owned()));
    let read = agent.get(&format!("/v1/approvals/{id}")).await;
    assert_eq!(
        (read.field("/status"), read.field("/terminalReason")),
        ("expired".to_owned(), "timeout".to_owned())
    );
    assert_eq!(agent.get(&format!("/v1/approvals/{id}/wait")).await.status, 200);
    let claim =
        agent.post(&format!("/v1/approvals/{id}/claim"), json!({ "claimId": "c", "digest": digest })).await;
    assert_eq!(claim.problem(), (409, "not_allowed".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_clock_set_back_revives_nothing_even_across_a_restart() {
    let clock = ManualClock::at(START);
    let gateway = TestGateway::start_at(clock.clone()).await;
    let agent = gateway.by(Persona::Agent);
    let epoch = agent.post("/v1/runtimes", json!({})).await.field("/epoch");
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "timeoutMs": 1_000, "epoch": epoch });
    let asked = agent.post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    clock.advance(2_000);
    agent.ask(&["commits", "the", "later", "time"]).await;
    clock.set_wall(Time::from_ms(START.as_ms() - 3_600_000));
    let late = gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(late.problem(), (409, "expired".to_owned()));
    let gateway = gateway.restart().await;
    let late = gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(late.problem(), (409, "expired".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_caller_that_stops_renewing_is_lost_and_its_requests_with_it() {
    let clock = ManualClock::at(START);
    let gateway = TestGateway::start_at(clock.clone()).await;
    let agent = gateway.by(Persona::Agent);
    let epoch = agent.post("/v1/runtimes", json!({})).await.field("/epoch");
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "epoch": epoch });
    let asked = agent.post("/v1/approvals", body.clone()).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    let renew = format!("/v1/runtimes/{epoch}/renew");
    clock.advance(RUNTIME_LEASE_MS - 1);
    assert_eq!(agent.post(&renew, json!({})).await.status, 200);
    clock.advance(RUNTIME_LEASE_MS);
    assert_eq!(agent.post(&renew, json!({})).await.problem(), (409, "epoch_lapsed".to_owned()));
    let late = gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(late.problem(), (409, "cancelled".to_owned()));
    assert_eq!(late.field("/approval/terminalReason"), "caller-lost");
    assert_eq!(agent.post("/v1/approvals", body).await.problem(), (409, "epoch_lapsed".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_restart_ends_what_was_bound_to_the_gateway_and_keeps_callers_and_decisions() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let epoch = agent.post("/v1/runtimes", json!({})).await.field("/epoch");
    let body = json!({ "kind": "exec", "content": { "argv": ["waits"] }, "epoch": epoch });
    let kept = agent.post("/v1/approvals", body).await;
    let (bound, _) = agent.ask(&["bound", "to", "the", "gateway"]).await;
    let (decided, digest) = agent.ask(&["decided"]).await;
    gateway.by(Persona::Reviewer).decide(&decided, &digest, "allow-once").await;

    let gateway = gateway.restart().await;
    let agent = gateway.by(Persona::Agent);
    let read = async |id: &str| agent.get(&format!("/v1/approvals/{id}")).await;
    assert_eq!(read(&kept.field("/id")).await.field("/status"), "pending");
    assert_eq!(read(&bound).await.field("/terminalReason"), "gateway-restart");
    assert_eq!(read(&decided).await.field("/status"), "allowed");
    assert_eq!(agent.post(&format!("/v1/runtimes/{epoch}/renew"), json!({})).await.status, 200);
    let claim = json!({ "claimId": "c", "digest": digest });
    let spent = agent.post(&format!("/v1/approvals/{decided}/claim"), claim).await;
    assert_eq!(spent.problem(), (409, "epoch_lapsed".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_stopping_gateway_tells_waiters_and_is_gone() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, _) = agent.ask(&["ls"]).await;
    let waiting =
        tokio::spawn(async move { agent.get(&format!("/v1/approvals/{id}/wait?timeoutMs=60000")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::timeout(Duration::from_secs(10), gateway.stop())
        .await
        .expect("it does not wait for reviewers");
    assert_eq!(waiting.await.unwrap().status, 202);
}

#[tokio::test]
async fn hundreds_of_waiters_and_stalled_senders_do_not_hold_up_the_end() {
    let gateway = TestGateway::start().await;
    let (id, _) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let host = gateway.url.trim_start_matches("http://").to_owned();
    let head = format!("HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer agent\r\n");
    let wait = format!("GET /v1/approvals/{id}/wait?timeoutMs=60000 {head}\r\n");
    let stalled = ["GET / HT".to_owned(), format!("POST /v1/approvals {head}Content-Length: 1000\r\n\r\n{{")];
    let mut waiting = Vec::new();
    let mut stalling = Vec::new();
    for n in 0..300 {
        let mut stream = TcpStream::connect(&host).await.unwrap();
        stream.write_all(wait.as_bytes()).await.unwrap();
        waiting.push(stream);
        let mut stream = TcpStream::connect(&host).await.unwrap();
        stream.write_all(stalled[n % 2].as_bytes()).await.unwrap();
        stalling.push(stream);
    }
    let reviewer = gateway.by(Persona::Reviewer);
    assert_eq!(reviewer.get(&format!("/v1/approvals/{id}")).await.status, 200, "others are still served");
    tokio::time::timeout(Duration::from_secs(10), gateway.stop()).await.expect("it does not wait for them");
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    }
    drop(stalling);
}

#[tokio::test]
async fn a_claim_whose_caller_is_gone_becomes_unknown_and_a_late_receipt_counts() {
    let clock = ManualClock::at(START);
    let gateway = TestGateway::start_at(clock.clone()).await;
    let agent = gateway.by(Persona::Agent);
    let epoch = agent.post("/v1/runtimes", json!({})).await.field("/epoch");
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "epoch": epoch });
    let asked = agent.post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    agent.post(&format!("/v1/approvals/{id}/claim"), json!({ "claimId": "c", "digest": digest })).await;
    clock.advance(RUNTIME_LEASE_MS);
    let read = agent.get(&format!("/v1/approvals/{id}")).await;
    assert_eq!(read.field("/receipt/outcome"), "unknown");
    let receipt = json!({ "claimId": "c", "outcome": "succeeded" });
    let late = agent.post(&format!("/v1/approvals/{id}/receipt"), receipt).await;
    assert_eq!((late.status, late.field("/receipt/outcome")), (200, "succeeded".to_owned()));
    gateway.stop().await;
}
