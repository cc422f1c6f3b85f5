//! Who may do what, and what those who may not can learn.

use holdgate_testkit::gateway::{Persona, TestGateway};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn without_a_known_credential_nothing_is_answered() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    for caller in [gateway.anonymous(), gateway.by(Persona::Outsider)] {
        for path in ["/v1/approvals", &format!("/v1/approvals/{id}"), "/v1/runs/x", "/metrics"] {
            let reply = caller.get(path).await;
            assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()), "{path}");
            assert_eq!(reply.headers["www-authenticate"], "Bearer");
        }
        assert_eq!(caller.decide(&id, &digest, "allow-once").await.status, 401);
    }
    let in_query = gateway.anonymous().get("/v1/approvals?token=reviewer").await;
    assert_eq!(in_query.status, 401, "a credential in a URL is none");
    for scheme in ["Basic cmV2aWV3ZXI6", "reviewer", "Bearer"] {
        let reply =
            gateway.anonymous().send(Method::GET, "/v1/approvals", &[("authorization", scheme)], None).await;
        assert_eq!(reply.status, 401, "{scheme}");
    }
    let agent = [("authorization", "Bearer agent")];
    let two = gateway.by(Persona::Reviewer).send(Method::GET, "/v1/approvals", &agent, None).await;
    assert_eq!(two.problem(), (401, "unauthenticated".to_owned()), "neither of two credentials counts");
    gateway.stop().await;
}

#[tokio::test]
async fn an_agent_requests_waits_claims_and_settles_but_never_decides() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, digest) = agent.ask(&["ls"]).await;
    for decision in ["allow-once", "allow-always", "deny"] {
        let reply = agent.decide(&id, &digest, decision).await;
        assert_eq!(reply.problem(), (403, "not_a_reviewer".to_owned()), "{decision}");
    }
    assert_eq!(agent.get(&format!("/v1/approvals/{id}")).await.field("/status"), "pending");
    gateway.by(Persona::Reviewer).decide(&id, &digest, "deny").await;
    let repeat = agent.decide(&id, &digest, "deny").await;
    assert_eq!(repeat.problem(), (403, "not_a_reviewer".to_owned()), "not even the answer that stands");
    gateway.stop().await;
}

#[tokio::test]
async fn a_person_decides_their_own_request_unless_the_requirement_excludes_them() {
    let gateway = TestGateway::start().await;
    let reviewer = gateway.by(Persona::Reviewer);
    let (id, digest) = reviewer.ask(&["ls"]).await;
    assert_eq!(reviewer.decide(&id, &digest, "allow-once").await.status, 200);

    let body = serde_json::json!({ "kind": "exec", "content": { "argv": ["pwd"] },
        "requirement": { "requesterMayDecide": false } });
    let asked = reviewer.post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    let own = reviewer.decide(&id, &digest, "allow-once").await;
    assert_eq!(own.problem(), (403, "not_a_reviewer".to_owned()));
    let other = gateway.by(Persona::OtherReviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(other.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn what_an_agent_may_not_see_is_to_it_what_does_not_exist() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let absent = "apr_00000000000000000000000000000000";
    let other = gateway.by(Persona::OtherAgent);
    let body = |path: &str| match path {
        "decision" => json!({ "decision": "deny", "digest": digest }),
        "claim" => json!({ "claimId": "c", "digest": digest }),
        "receipt" => json!({ "claimId": "c", "outcome": "succeeded" }),
        _ => json!({}),
    };
    for call in ["", "/wait?timeoutMs=10"] {
        let (hidden, missing) = (
            other.get(&format!("/v1/approvals/{id}{call}")).await,
            other.get(&format!("/v1/approvals/{absent}{call}")).await,
        );
        assert_eq!((hidden.status, &hidden.text), (404, &missing.text), "{call}");
        assert_eq!(hidden.headers.keys().collect::<Vec<_>>(), missing.headers.keys().collect::<Vec<_>>());
    }
    for call in ["decision", "claim", "receipt", "cancel"] {
        let hidden = other.post(&format!("/v1/approvals/{id}/{call}"), body(call)).await;
        let missing = other.post(&format!("/v1/approvals/{absent}/{call}"), body(call)).await;
        assert_eq!((hidden.status, &hidden.text), (404, &missing.text), "{call}");
    }
    assert_eq!(other.get("/v1/approvals").await.json()["items"], json!([]));
    assert_eq!(
        gateway.by(Persona::Reviewer).get("/v1/approvals").await.json()["items"].as_array().unwrap().len(),
        1
    );
    gateway.stop().await;
}

#[tokio::test]
async fn only_the_requester_claims_and_settles() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let reviewer = gateway.by(Persona::Reviewer);
    reviewer.decide(&id, &digest, "allow-once").await;
    let claim = reviewer
        .post(&format!("/v1/approvals/{id}/claim"), json!({ "claimId": "c", "digest": digest }))
        .await;
    assert_eq!(claim.problem(), (403, "not_the_requester".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_foreign_epoch_or_run_cannot_be_used() {
    let gateway = TestGateway::start().await;
    let (agent, other) = (gateway.by(Persona::Agent), gateway.by(Persona::OtherAgent));
    let epoch = agent.post("/v1/runtimes", json!({})).await.field("/epoch");
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "epoch": epoch });
    assert_eq!(other.post("/v1/approvals", body.clone()).await.problem(), (404, "not_found".to_owned()));
    assert_eq!(other.post(&format!("/v1/runtimes/{epoch}/renew"), json!({})).await.status, 404);
    assert_eq!(agent.post("/v1/approvals", body).await.status, 201);
    agent.post("/v1/runs", json!({ "id": "r1", "agent": "a" })).await;
    for (path, body) in [("lease", json!({})), ("events", json!({ "fence": 1, "after": 0, "events": [{}] }))]
    {
        let reply = other.post(&format!("/v1/runs/r1/{path}"), body).await;
        assert_eq!(reply.problem(), (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(other.get("/v1/runs/r1/events").await.status, 404);
    let body = json!({ "kind": "tool", "content": { "toolName": "t" }, "boundary": "t:1", "run": { "id": "r1", "fence": 1 } });
    assert_eq!(other.post("/v1/approvals", body).await.status, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn who_may_answer_without_reading_is_told_only_how_it_stands() {
    let gateway = TestGateway::start().await;
    let body = json!({ "kind": "exec", "content": { "argv": ["rm", "canary-action"] }, "reason": "canary-reason",
        "source": { "session": "canary-session", "taskId": "canary-task" } });
    let asked = gateway.by(Persona::Agent).post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    let runtime = json!({ "kind": "runtime", "name": "resolver", "forAgent": "agent" });
    let token = gateway.by(Persona::Reviewer).post("/v1/tokens", runtime).await.field("/token");
    let authorization = format!("Bearer {token}");
    let decide = async |decision: &str, digest: &str| {
        let body = json!({ "decision": decision, "digest": digest }).to_string();
        let headers = [("authorization", authorization.as_str())];
        let path = format!("/v1/approvals/{id}/decision");
        gateway.anonymous().send(Method::POST, &path, &headers, Some(body)).await
    };
    let stale = decide("deny", &"0".repeat(64)).await;
    let first = decide("deny", &digest).await;
    let again = decide("deny", &digest).await;
    let other = decide("allow-once", &digest).await;
    assert_eq!((first.status, again.status), (200, 200));
    assert_eq!(first.field("/approval/status"), "denied");
    assert_eq!(stale.problem(), (409, "stale_digest".to_owned()));
    assert_eq!(other.problem(), (409, "already_decided".to_owned()));
    assert_eq!(other.field("/approval/decision"), "deny", "it is told who won");
    for reply in [stale, first, again, other] {
        assert!(!reply.text.contains("canary"), "{}", reply.text);
    }
    gateway.stop().await;
}
