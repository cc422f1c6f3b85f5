//! Run storage for runners on the other side of the network.

use holdgate_testkit::gateway::{Caller, Persona, TestGateway};
use serde_json::{Value, json};

async fn taken(agent: &Caller) -> u64 {
    agent.post("/v1/runs", json!({ "id": "r1", "agent": "releaser" })).await;
    let lease = agent.post("/v1/runs/r1/lease", json!({})).await;
    assert_eq!(lease.status, 200, "{}", lease.text);
    lease.json()["fence"].as_u64().unwrap()
}

fn request(call: &str) -> Value {
    let content = json!({ "kind": "tool_call", "toolName": "publish", "input": { "v": 1 } });
    json!({ "kind": "tool", "boundary": format!("main:{call}"), "content": content })
}

#[tokio::test]
async fn a_run_is_created_once_taken_by_one_and_let_go() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let created = agent.post("/v1/runs", json!({ "id": "r1", "agent": "releaser" })).await;
    assert_eq!((created.status, created.field("/state")), (201, "running".to_owned()));
    let fence = agent.post("/v1/runs/r1/lease", json!({})).await.json()["fence"].as_u64().unwrap();
    let held = agent.post("/v1/runs/r1/lease", json!({})).await;
    assert_eq!(held.problem(), (409, "run_held".to_owned()));
    assert!(held.json()["retryAfterMs"].as_i64().unwrap() > 0);
    assert!(held.headers.contains_key("retry-after"));
    assert_eq!(agent.post("/v1/runs/r1/lease", json!({ "fence": fence })).await.status, 200);
    assert_eq!(agent.post("/v1/runs/r1/lease", json!({ "release": true })).await.status, 400);
    assert_eq!(agent.post("/v1/runs/r1/lease", json!({ "fence": fence, "release": true })).await.status, 200);
    let next = agent.post("/v1/runs/r1/lease", json!({})).await;
    assert_eq!(next.json()["fence"].as_u64().unwrap(), fence + 1);
    let stale = agent.post("/v1/runs/r1/lease", json!({ "fence": fence })).await;
    assert_eq!(stale.problem(), (409, "fence_lapsed".to_owned()));
    let again = agent.post("/v1/runs", json!({ "id": "r1", "agent": "other" })).await;
    assert_eq!(again.problem(), (409, "run_exists".to_owned()));
    let minted = agent.post("/v1/runs", json!({})).await;
    assert!(minted.field("/id").starts_with("run_"));
    gateway.stop().await;
}

#[tokio::test]
async fn events_are_kept_in_order_and_exactly_as_sent() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let fence = taken(&agent).await;
    let events = json!([{ "type": "a", "n": 1.5 }, { "type": "b", "text": "\u{202e}x" }]);
    let body = json!({ "fence": fence, "after": 0, "events": events });
    assert_eq!(agent.post("/v1/runs/r1/events", body.clone()).await.status, 200);
    assert_eq!(agent.post("/v1/runs/r1/events", body).await.problem(), (409, "journal_moved".to_owned()));
    let journal = agent.get("/v1/runs/r1/events").await.json();
    assert_eq!(journal["lastSeq"], 2);
    assert_eq!(journal["items"][1]["event"], events[1]);
    assert_eq!(agent.get("/v1/runs/r1/events?after=1").await.json()["items"].as_array().unwrap().len(), 1);
    for bad in [
        json!({ "fence": fence, "after": 2, "events": [] }),
        json!({ "fence": fence, "after": 2, "events": [{}], "state": "done" }),
    ] {
        assert_eq!(
            agent.post("/v1/runs/r1/events", bad).await.problem(),
            (400, "invalid_request".to_owned())
        );
    }
    let stale = json!({ "fence": fence + 1, "after": 2, "events": [{}] });
    assert_eq!(agent.post("/v1/runs/r1/events", stale).await.problem(), (409, "fence_lapsed".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_suspension_is_durable_with_its_requests_or_not_at_all() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let fence = taken(&agent).await;
    let append = |approvals: Value| json!({ "fence": fence, "after": 0, "events": [{ "type": "suspended" }], "state": "suspended", "approvals": approvals });
    let mut foreign = request("c2");
    foreign["run"] = json!({ "id": "r2", "fence": fence });
    for bad in
        [json!([request("c1"), foreign]), json!([request("c1"), request("c1")]), json!([{ "kind": "tool" }])]
    {
        assert_eq!(agent.post("/v1/runs/r1/events", append(bad)).await.status, 400);
    }
    assert_eq!(agent.get("/v1/approvals").await.json()["items"], json!([]));
    assert_eq!(agent.get("/v1/runs/r1").await.json()["lastSeq"], 0);
    let appended = agent.post("/v1/runs/r1/events", append(json!([request("c1"), request("c2")]))).await;
    assert_eq!(appended.status, 200, "{}", appended.text);
    assert_eq!(appended.field("/run/state"), "suspended");
    assert_eq!(appended.json()["approvals"].as_array().unwrap().len(), 2);
    let week = appended.json()["approvals"][0]["expiresAtMs"].as_i64().unwrap()
        - appended.json()["approvals"][0]["createdAtMs"].as_i64().unwrap();
    assert_eq!(week, 7 * 24 * 60 * 60 * 1_000);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stored_runs_request_outlives_the_gateway_and_is_claimed_with_the_current_fence() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let fence = taken(&agent).await;
    let body = json!({ "fence": fence, "after": 0, "events": [{}], "state": "suspended", "approvals": [request("c1")] });
    let appended = agent.post("/v1/runs/r1/events", body).await;
    let (id, digest) = (appended.field("/approvals/0/id"), appended.field("/approvals/0/digest"));
    assert!(appended.json()["approvals"][0].get("content").is_none(), "an agent is not shown the content");

    let gateway = gateway.restart().await;
    let (agent, reviewer) = (gateway.by(Persona::Agent), gateway.by(Persona::Reviewer));
    let read = reviewer.get(&format!("/v1/approvals/{id}")).await.json();
    assert_eq!((&read["status"], &read["content"]["input"]["v"]), (&json!("pending"), &json!(1)));
    reviewer.decide(&id, &digest, "allow-once").await;
    let next = agent.post("/v1/runs/r1/lease", json!({})).await.json()["fence"].as_u64().unwrap();
    let claim = async |fence: Option<u64>| {
        let mut body = json!({ "claimId": "c", "digest": digest });
        if let Some(fence) = fence {
            body["fence"] = json!(fence);
        }
        agent.post(&format!("/v1/approvals/{id}/claim"), body).await
    };
    for stale in [None, Some(fence), Some(next + 1)] {
        assert_eq!(claim(stale).await.problem(), (409, "fence_lapsed".to_owned()), "{stale:?}");
    }
    assert_eq!(claim(Some(next)).await.status, 200);
    gateway.stop().await;
}
