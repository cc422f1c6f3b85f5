//! The calls on approvals, as the outside contract has them.

use std::time::Duration;

use holdgate_testkit::gateway::{Persona, TestGateway};
use reqwest::Method;
use serde_json::{Value, json};

/// The events of a stream that has ended: their names and data.
fn events(text: &str) -> Vec<(String, Value)> {
    let told = text.split("\n\n").filter(|event| event.starts_with("event: "));
    told.map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        let data = data.strip_prefix("data: ").unwrap();
        (name["event: ".len()..].to_owned(), serde_json::from_str(data).unwrap())
    })
    .collect()
}

#[tokio::test]
async fn an_approval_is_streamed_as_it_changes_and_ends() {
    let gateway = TestGateway::start().await;
    let (agent, first, second) =
        (gateway.by(Persona::Agent), gateway.by(Persona::Reviewer), gateway.by(Persona::OtherReviewer));
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "requirement": { "approvals": 2 } });
    let asked = agent.post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    let path = format!("/v1/approvals/{id}/wait");
    let accept = [("accept", "text/html;q=0.1, text/event-stream")];
    let watching = agent.send(Method::GET, &path, &accept, None);
    let deciding = async {
        for reviewer in [&first, &second] {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(reviewer.decide(&id, &digest, "allow-once").await.status, 200);
        }
    };
    let (stream, ()) = tokio::join!(watching, deciding);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let told = events(&stream.text);
    assert!(told.iter().all(|(name, _)| name == "approval"));
    let stood: Vec<_> =
        told.iter().map(|(_, a)| (a["status"].clone(), a["votes"].as_array().unwrap().len())).collect();
    let pending = json!("pending");
    assert_eq!(stood, [(pending.clone(), 0), (pending, 1), (json!("allowed"), 2)]);
    assert_eq!(told[2].1, agent.get(&format!("/v1/approvals/{id}")).await.json());
    for who in [gateway.by(Persona::OtherAgent), gateway.by(Persona::Agent)] {
        let absent = who.send(Method::GET, "/v1/approvals/apr_0/wait", &accept, None).await;
        assert_eq!(absent.problem(), (404, "not_found".to_owned()));
    }
    let hidden = gateway.by(Persona::OtherAgent).send(Method::GET, &path, &accept, None).await;
    assert_eq!(hidden.problem(), (404, "not_found".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_ends_with_the_credential_of_its_reader() {
    let gateway = TestGateway::start().await;
    let admin = gateway.by(Persona::Reviewer);
    let made = admin.post("/v1/tokens", json!({ "kind": "agent", "name": "gone" })).await;
    let authorization = format!("Bearer {}", made.field("/token"));
    let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] } }).to_string();
    let asked = gateway.anonymous().send(Method::POST, "/v1/approvals", &headers[..1], Some(body)).await;
    let path = format!("/v1/approvals/{}/wait", asked.field("/id"));
    let watcher = gateway.anonymous();
    let watching = watcher.send(Method::GET, &path, &headers, None);
    let revoking = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(admin.post("/v1/tokens/gone/revoke", json!({})).await.status, 200);
    };
    let (stream, ()) = tokio::join!(watching, revoking);
    let told = events(&stream.text);
    assert_eq!(told.len(), 2, "{}", stream.text);
    assert_eq!((told[1].0.as_str(), &told[1].1["code"]), ("problem", &json!("unauthenticated")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_request_is_answered_with_the_whole_record() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let body = json!({
        "kind": "exec", "content": { "argv": ["git", "push"] }, "reason": "ship it", "timeoutMs": 60_000,
        "source": { "agent": "builder", "session": "s1" },
    });
    let reply = agent.post("/v1/approvals", body).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let approval = reply.json();
    let id = approval["id"].as_str().unwrap();
    assert_eq!(approval["status"], "pending");
    assert_eq!(approval["urlPath"], format!("/approve/{id}"));
    assert_eq!(approval["url"], format!("{}/approve/{id}", gateway.url));
    assert_eq!(approval["requestReason"], "ship it");
    assert_eq!(approval["source"], json!({ "agent": "builder", "session": "s1" }));
    assert_eq!(approval["requester"], json!({ "kind": "agent", "label": "agent" }));
    assert_eq!(approval["presentation"]["commandText"], "git push");
    assert_eq!(approval["requirement"]["allowedDecisions"], json!(["allow-once", "deny"]));
    assert_eq!(approval["expiresAtMs"].as_i64().unwrap() - approval["createdAtMs"].as_i64().unwrap(), 60_000);
    assert_eq!(approval["digest"].as_str().unwrap().len(), 64);
    assert_eq!(approval["ref"].as_str().unwrap().len(), 43);
    assert!(approval.get("content").is_none(), "a live process keeps its action to itself");
    assert_eq!(agent.get(&format!("/v1/approvals/{id}")).await.json(), approval);
    gateway.stop().await;
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_request_and_another_body_is_refused() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let post = async |key: &str, argv: &str| {
        let body = json!({ "kind": "exec", "content": { "argv": [argv] } }).to_string();
        agent.send(Method::POST, "/v1/approvals", &[("Idempotency-Key", key)], Some(body)).await
    };
    let first = post("k1", "ls").await;
    let again = post("k1", "ls").await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json(), again.json());
    assert_eq!(post("k1", "rm").await.problem(), (422, "idempotency_mismatch".to_owned()));
    assert_eq!(post("k2", "ls").await.status, 201);
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] } }).to_string();
    let keys = [("Idempotency-Key", "k1"), ("Idempotency-Key", "k3")];
    let two = agent.send(Method::POST, "/v1/approvals", &keys, Some(body)).await;
    assert_eq!(two.problem(), (400, "invalid_request".to_owned()), "neither of two keys counts");
    gateway.stop().await;
}

#[tokio::test]
async fn a_decision_binds_the_digest_that_was_shown() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let reviewer = gateway.by(Persona::Reviewer);
    let other = "0".repeat(64);
    assert_eq!(reviewer.decide(&id, &other, "allow-once").await.problem(), (409, "stale_digest".to_owned()));
    assert_eq!(
        reviewer.decide(&id, "abc", "allow-once").await.problem(),
        (400, "invalid_request".to_owned())
    );
    assert_eq!(reviewer.get(&format!("/v1/approvals/{id}")).await.field("/status"), "pending");
    let decided = reviewer.decide(&id, &digest, "allow-once").await;
    assert_eq!(decided.status, 200);
    assert_eq!(decided.json()["applied"], true);
    assert_eq!(decided.field("/approval/decision"), "allow-once");
    assert_eq!(decided.field("/approval/resolver/label"), "reviewer");
    gateway.stop().await;
}

#[tokio::test]
async fn the_first_answer_stands_and_others_are_told_it() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let (first, second) = (gateway.by(Persona::Reviewer), gateway.by(Persona::OtherReviewer));
    let first = told(&first.decide(&id, &digest, "deny").await);
    let same = second.decide(&id, &digest, "deny").await;
    assert_eq!((same.status, &same.json()["applied"]), (200, &json!(false)));
    assert_eq!(told(&same), first);
    let lost = second.decide(&id, &digest, "allow-once").await;
    assert_eq!(lost.problem(), (409, "already_decided".to_owned()));
    assert_eq!(told(&lost), first);
    gateway.stop().await;
}

/// The record in an answer, without which of its votes is the reader's own.
fn told(reply: &holdgate_testkit::gateway::Reply) -> serde_json::Value {
    let mut approval = reply.json()["approval"].clone();
    approval.as_object_mut().unwrap().remove("yourVote");
    approval
}

#[tokio::test]
async fn of_an_allow_and_a_deny_at_once_one_wins_and_the_other_is_told_which() {
    let gateway = TestGateway::start().await;
    for round in 0..20 {
        let (id, digest) = gateway.by(Persona::Agent).ask(&["round", &round.to_string()]).await;
        let (yes, no) = (gateway.by(Persona::Reviewer), gateway.by(Persona::OtherReviewer));
        let (yes, no) = tokio::join!(yes.decide(&id, &digest, "allow-once"), no.decide(&id, &digest, "deny"));
        let (won, lost) = if yes.status == 200 { (&yes, &no) } else { (&no, &yes) };
        assert_eq!((won.status, lost.problem()), (200, (409, "already_decided".to_owned())));
        assert_eq!(told(won), told(lost));
        let recorded = gateway.by(Persona::Agent).get(&format!("/v1/approvals/{id}")).await;
        assert_eq!(recorded.field("/decision"), won.field("/approval/decision"));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_allow_is_spent_once_and_a_lost_reply_is_answered_again() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, digest) = agent.ask(&["ls"]).await;
    let path = format!("/v1/approvals/{id}/claim");
    let claim = async |claim_id: &str, digest: &str| {
        agent.post(&path, json!({ "claimId": claim_id, "digest": digest })).await
    };
    assert_eq!(claim("c1", &digest).await.problem(), (409, "not_allowed".to_owned()));
    gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(claim("c1", &"0".repeat(64)).await.problem(), (409, "stale_digest".to_owned()));
    let first = claim("c1", &digest).await;
    assert_eq!((first.status, first.field("/claim/claimId")), (200, "c1".to_owned()));
    assert_eq!(claim("c1", &digest).await.json(), first.json());
    assert_eq!(claim("c2", &digest).await.problem(), (409, "already_claimed".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_receipt_is_of_a_claim_and_stands() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, digest) = agent.ask(&["ls"]).await;
    let path = format!("/v1/approvals/{id}/receipt");
    let settle = async |claim: &str, outcome: &str| {
        agent.post(&path, json!({ "claimId": claim, "outcome": outcome, "detail": "exit status 3" })).await
    };
    assert_eq!(settle("c1", "succeeded").await.problem(), (409, "not_claimed".to_owned()));
    gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    let claim = json!({ "claimId": "c1", "digest": digest });
    agent.post(&format!("/v1/approvals/{id}/claim"), claim).await;
    assert_eq!(settle("c2", "succeeded").await.problem(), (409, "not_claimed".to_owned()));
    assert_eq!(settle("c1", "unknown").await.problem(), (400, "invalid_request".to_owned()));
    let settled = settle("c1", "failed").await;
    assert_eq!((settled.status, settled.field("/receipt/outcome")), (200, "failed".to_owned()));
    assert_eq!(settled.field("/receipt/detail"), "exit status 3");
    assert_eq!(settle("c1", "failed").await.json(), settled.json());
    assert_eq!(settle("c1", "succeeded").await.problem(), (409, "already_settled".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_withdrawn_request_is_over() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, digest) = agent.ask(&["ls"]).await;
    let cancelled = agent.post(&format!("/v1/approvals/{id}/cancel"), json!({})).await;
    assert_eq!((cancelled.status, cancelled.field("/terminalReason")), (200, "withdrawn".to_owned()));
    let late = gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    assert_eq!(late.problem(), (409, "cancelled".to_owned()));
    assert_eq!(late.field("/approval/status"), "cancelled");
    gateway.stop().await;
}

#[tokio::test]
async fn a_wait_ends_with_the_decision_or_says_that_it_is_still_pending() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, digest) = agent.ask(&["ls"]).await;
    let pending = agent.get(&format!("/v1/approvals/{id}/wait?timeoutMs=0")).await;
    assert_eq!((pending.status, pending.field("/status")), (202, "pending".to_owned()));
    let path = format!("/v1/approvals/{id}/wait?timeoutMs=60000");
    let reviewer = gateway.by(Persona::Reviewer);
    let (woken, _) = tokio::join!(agent.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        reviewer.decide(&id, &digest, "allow-once").await
    });
    assert_eq!((woken.status, woken.field("/status")), (200, "allowed".to_owned()));
    assert_eq!(agent.get(&path).await.status, 200);
    let too_long = agent.get(&format!("/v1/approvals/{id}/wait?timeoutMs=60001")).await;
    assert_eq!(too_long.problem(), (400, "invalid_request".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_list_is_newest_first_and_its_pages_do_not_overlap() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let mut asked = Vec::new();
    for n in 0..5 {
        let (id, digest) = agent.ask(&["n", &n.to_string()]).await;
        if n == 2 {
            gateway.by(Persona::Reviewer).decide(&id, &digest, "deny").await;
        }
        asked.push(id);
    }
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = agent.get(&format!("/v1/approvals?limit=2{cursor}")).await.json();
        listed.extend(page["items"].as_array().unwrap().iter().map(|a| a["id"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    listed.sort();
    asked.sort();
    assert_eq!(listed, asked);
    let denied = agent.get("/v1/approvals?status=denied&kind=exec").await.json();
    assert_eq!(denied["items"].as_array().unwrap().len(), 1);
    for bad in [
        "limit=0",
        "limit=101",
        "limit=x",
        "status=open",
        "kind=shell",
        "cursor=!",
        "cursor=1",
        "cursor=x.2",
        "colour=red",
    ] {
        let reply = agent.get(&format!("/v1/approvals?{bad}")).await;
        assert_eq!(reply.problem(), (400, "invalid_request".to_owned()), "{bad}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_requirement_tightens_and_what_cannot_be_honoured_is_refused() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let ask = async |requirement: serde_json::Value| {
        let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "requirement": requirement });
        agent.post("/v1/approvals", body).await
    };
    let strict = ask(json!({ "approvals": 1, "requesterMayDecide": false, "reasonRequired": true })).await;
    assert_eq!(strict.status, 201, "{}", strict.text);
    let (id, digest) = (strict.field("/id"), strict.field("/digest"));
    let reviewer = gateway.by(Persona::Reviewer);
    assert_eq!(reviewer.decide(&id, &digest, "deny").await.problem(), (422, "reason_required".to_owned()));
    let body = json!({ "decision": "deny", "digest": digest, "reason": "no\u{202e}t now" });
    let denied = reviewer.post(&format!("/v1/approvals/{id}/decision"), body).await;
    assert_eq!(denied.field("/approval/votes/0/reason"), "no\\u{202E}t now");
    for too_much in [
        json!({ "approvals": 0 }),
        json!({ "approvals": 17 }),
        json!({ "denials": 2 }),
        json!({ "requesterMayDecide": true }),
        json!({ "reviewers": [] }),
        json!({ "allowedDecisions": ["allow-always", "deny"] }),
        json!({ "allowedDecisions": ["deny"] }),
    ] {
        assert_eq!(ask(too_much.clone()).await.problem(), (422, "unsupported".to_owned()), "{too_much}");
    }
    assert_eq!(ask(json!({ "reviewers": ["alice"] })).await.problem(), (400, "invalid_request".to_owned()));
    let (id, digest) = agent.ask(&["ls"]).await;
    let always = reviewer.decide(&id, &digest, "allow-always").await;
    assert_eq!(always.problem(), (422, "decision_not_offered".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn the_published_document_names_every_call() {
    let gateway = TestGateway::start().await;
    let reply = gateway.anonymous().get("/openapi.json").await;
    assert_eq!(reply.status, 200);
    let document = reply.json();
    let paths = document["paths"].as_object().unwrap();
    let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(operations, 35, "{:?}", paths.keys());
    assert_eq!(
        document["components"]["securitySchemes"]["token"],
        json!({ "type": "http", "scheme": "bearer" })
    );
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let concrete = path.replace("{id}", "x").replace("{epoch}", "x");
            let method = method.to_uppercase().parse().unwrap();
            let reply = gateway.anonymous().send(method, &concrete, &[], None).await;
            assert!(![405, 421, 500].contains(&reply.status), "{path}: {}", reply.status);
            assert!(!reply.text.contains("there is nothing at"), "{path}");
            let security = operation.get("security").unwrap_or(&document["security"]);
            let is_open = reply.status != 401;
            let says = if is_open { json!([{}]) } else { json!([{ "token": [] }]) };
            assert_eq!(security, &says, "{path} answers a stranger {}", reply.status);
        }
    }
    let health = gateway.anonymous().get("/healthz").await;
    assert_eq!(health.json(), json!({ "ok": true, "status": "live" }));
    gateway.stop().await;
}
