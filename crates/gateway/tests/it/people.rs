//! People, their devices, and who administers them.

use holdgate_core::Time;
use holdgate_core::limits::PAIRING_MS;
use holdgate_testkit::clock::ManualClock;
use holdgate_testkit::gateway::{Persona, Reply, TestGateway};
use reqwest::Method;
use serde_json::{Value, json};

/// Every call of administrators, with a body that is right.
fn administrators_calls() -> Vec<(Method, String, Option<Value>)> {
    let get = |path: &str| (Method::GET, path.to_owned(), None);
    let post = |path: &str, body: Value| (Method::POST, path.to_owned(), Some(body));
    vec![
        get("/v1/tokens"),
        get("/v1/devices"),
        get("/v1/freezes"),
        get("/v1/administration"),
        post("/v1/tokens", json!({ "kind": "agent", "name": "new" })),
        post("/v1/tokens/agent/rotate", json!({})),
        post("/v1/tokens/agent/revoke", json!({})),
        post("/v1/devices/agent/revoke", json!({})),
        post("/v1/pairing", json!({ "person": "alice" })),
        post("/v1/freeze", json!({})),
        post("/v1/thaw", json!({})),
    ]
}

async fn by(gateway: &TestGateway, token: &str, method: Method, path: &str, body: Option<Value>) -> Reply {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    gateway.anonymous().send(method, path, &headers, body.map(|body| body.to_string())).await
}

async fn admin(gateway: &TestGateway, path: &str, body: Value) -> Reply {
    gateway.by(Persona::Reviewer).post(path, body).await
}

async fn code_for(gateway: &TestGateway, person: &str) -> String {
    let reply = admin(gateway, "/v1/pairing", json!({ "person": person })).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.field("/code")
}

async fn complete(gateway: &TestGateway, code: &str, label: &str) -> Reply {
    gateway.anonymous().post("/v1/pairing/complete", json!({ "code": code, "label": label })).await
}

/// Pairs a device; answers its id and token.
async fn pair(gateway: &TestGateway, person: &str) -> (String, String) {
    let code = code_for(gateway, person).await;
    let reply = complete(gateway, &code, "phone").await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    (reply.field("/device/id"), reply.field("/token"))
}

#[tokio::test]
async fn only_an_administrator_administers_and_others_learn_nothing_of_what_exists() {
    let gateway = TestGateway::start().await;
    let (device, token) = pair(&gateway, "alice").await;
    let runtime = admin(&gateway, "/v1/tokens", json!({ "kind": "runtime", "name": "host" })).await;
    for caller in [Persona::Agent.name(), &token, &runtime.field("/token")] {
        for (method, path, body) in administrators_calls() {
            let refused = by(&gateway, caller, method.clone(), &path, body).await;
            assert_eq!(refused.problem(), (403, "missing_scope".to_owned()), "{caller} {path}");
            if method == Method::POST {
                let malformed = by(&gateway, caller, method, &path, Some(json!({ "no": 1 }))).await;
                assert_eq!(malformed.text, refused.text, "{caller} {path}");
            }
        }
        for path in [format!("/v1/devices/{device}/revoke"), "/v1/devices/dev_0/revoke".to_owned()] {
            let reply = by(&gateway, caller, Method::POST, &path, Some(json!({}))).await;
            assert_eq!(reply.problem(), (403, "missing_scope".to_owned()), "{caller} {path}");
        }
    }
    for (method, path, body) in administrators_calls() {
        for caller in [gateway.anonymous(), gateway.by(Persona::Outsider)] {
            let body = body.as_ref().map(Value::to_string);
            let reply = caller.send(method.clone(), &path, &[], body).await;
            assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()), "{path}");
        }
    }
    for path in ["/v1/tokens/nobody/rotate", "/v1/tokens/nobody/revoke", "/v1/devices/agent/revoke"] {
        assert_eq!(admin(&gateway, path, json!({})).await.problem(), (404, "not_found".to_owned()), "{path}");
    }
    let path = format!("/v1/tokens/{device}/rotate");
    assert_eq!(admin(&gateway, &path, json!({})).await.status, 404, "a device is no token");
    let other = admin(&gateway, "/v1/tokens/other-reviewer/rotate", json!({})).await;
    assert_eq!(other.problem(), (403, "missing_scope".to_owned()), "nobody locks another administrator out");
    gateway.stop().await;
}

#[tokio::test]
async fn everybody_is_told_who_they_are() {
    let gateway = TestGateway::start().await;
    let (device, token) = pair(&gateway, "alice").await;
    let me = by(&gateway, &token, Method::GET, "/v1/me", None).await.json();
    let scopes = json!(["approvals.request", "operator.approvals"]);
    let alice =
        json!({ "id": device, "kind": "device", "label": "phone", "person": "alice", "scopes": scopes });
    assert_eq!(me, alice);
    let agent = gateway.by(Persona::Agent).get("/v1/me").await.json();
    assert_eq!((&agent["kind"], &agent["person"]), (&json!("agent"), &Value::Null));
    assert_eq!(gateway.anonymous().get("/v1/me").await.status, 401);
    gateway.stop().await;
}

#[tokio::test]
async fn a_credential_is_told_once_and_works_until_it_is_replaced_or_revoked() {
    let gateway = TestGateway::start().await;
    let wanted = json!({ "kind": "agent", "name": "deployer", "reviewers": ["person:alice"] });
    let made = admin(&gateway, "/v1/tokens", wanted.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let first = made.field("/token");
    assert!(first.starts_with("hga_"), "it has its prefix");
    assert_eq!(made.json()["principal"]["reviewers"], json!(["person:alice"]));
    let again = admin(&gateway, "/v1/tokens", wanted).await;
    assert_eq!(again.problem(), (409, "id_taken".to_owned()));

    let rotated = admin(&gateway, "/v1/tokens/deployer/rotate", json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    let second = rotated.field("/token");
    let status = async |token: &str| by(&gateway, token, Method::GET, "/v1/me", None).await.status;
    assert_eq!((status(&first).await, status(&second).await), (401, 200));
    let listed = gateway.by(Persona::Reviewer).get("/v1/tokens").await;
    let names: Vec<_> = listed.json()["items"].as_array().unwrap().iter().map(|t| t["id"].clone()).collect();
    assert_eq!(names, ["agent", "deployer", "other-agent"], "no administrator is among them");
    let facts = gateway.by(Persona::Reviewer).get("/v1/administration").await;
    for text in [&listed.text, &facts.text] {
        assert!(!text.contains("hga_"), "{text}");
    }
    assert_eq!(admin(&gateway, "/v1/tokens/deployer/revoke", json!({})).await.status, 200);
    assert_eq!(status(&second).await, 401);
    assert_eq!(admin(&gateway, "/v1/tokens/deployer/revoke", json!({})).await.status, 404);
    let kinds: Vec<_> =
        facts.json()["items"].as_array().unwrap().iter().map(|f| f["event"]["type"].clone()).collect();
    assert_eq!(kinds, ["credential-issued", "credential-issued"]);
    let path = format!("/v1/administration?after={}", facts.json()["items"][1]["seq"]);
    let after = gateway.by(Persona::Reviewer).get(&path).await.json();
    assert_eq!(after["items"][0]["event"], json!({ "type": "revoked", "principal": "deployer" }));
    assert_eq!(after["items"][0]["by"]["label"], "reviewer");
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_that_makes_no_sense_is_not_made() {
    let gateway = TestGateway::start().await;
    for (wrong, place) in [
        (json!({ "kind": "device", "name": "x" }), "kind"),
        (json!({ "kind": "administrator", "name": "x" }), "kind"),
        (json!({ "kind": "agent", "name": "a b" }), "name"),
        (json!({ "kind": "agent", "name": "authority" }), "name"),
        (json!({ "kind": "agent", "name": "x", "reviewers": ["alice"] }), "reviewers"),
        (json!({ "kind": "agent", "name": "x", "forAgent": "agent" }), "forAgent"),
        (json!({ "kind": "runtime", "name": "x", "forAgent": "nobody" }), "forAgent"),
        (json!({ "kind": "runtime", "name": "x", "reviewers": ["person:a"] }), "reviewers"),
        (json!({ "kind": "agent", "name": "x", "scopes": ["operator.admin"] }), "scopes"),
        (json!({ "kind": "agent" }), "name"),
    ] {
        let refused = admin(&gateway, "/v1/tokens", wrong.clone()).await;
        assert_eq!(refused.problem(), (400, "invalid_request".to_owned()), "{wrong}");
        assert!(refused.field("/detail").contains(place), "{wrong}: {}", refused.text);
    }
    assert_eq!(gateway.by(Persona::Reviewer).get("/v1/administration").await.json()["items"], json!([]));
    gateway.stop().await;
}

#[tokio::test]
async fn a_pairing_code_works_once_however_it_is_typed() {
    let gateway = TestGateway::start().await;
    let code = code_for(&gateway, "alice").await;
    let typed = format!(" {} ", code.to_lowercase().replace('-', " "));
    let paired = complete(&gateway, &typed, "Alice's phone").await;
    assert_eq!(paired.status, 201, "{}", paired.text);
    assert!(paired.field("/token").starts_with("hgd_") && paired.field("/device/id").starts_with("dev_"));
    let used = complete(&gateway, &code, "thief").await;
    assert_eq!(used.problem(), (403, "pairing_code_invalid".to_owned()));
    let never = complete(&gateway, "00000-00000", "thief").await;
    assert_eq!(never.text, used.text, "a used code is like one that never was");
    let devices = gateway.by(Persona::Reviewer).get("/v1/devices").await;
    let items = devices.json()["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!((&items[0]["person"], &items[0]["signs"]), (&json!("alice"), &json!(false)));
    assert_eq!(items[0]["label"], "Alice's phone");
    assert!(!devices.text.contains("hgd_") && !devices.text.contains(&code));
    gateway.stop().await;
}

#[tokio::test]
async fn a_pairing_code_lives_five_minutes() {
    let clock = ManualClock::at(Time::from_ms(1_800_000_000_000));
    let gateway = TestGateway::start_at(clock.clone()).await;
    let (early, late) = (code_for(&gateway, "alice").await, code_for(&gateway, "alice").await);
    clock.advance(PAIRING_MS - 1);
    assert_eq!(complete(&gateway, &early, "phone").await.status, 201);
    clock.advance(1);
    assert_eq!(complete(&gateway, &late, "phone").await.problem().1, "pairing_code_invalid");
    gateway.stop().await;
}

#[tokio::test]
async fn guessing_codes_is_stopped_before_they_are_looked_at() {
    let gateway = TestGateway::start().await;
    let code = code_for(&gateway, "alice").await;
    let mut refusals = Vec::new();
    for _ in 0..11 {
        refusals.push(complete(&gateway, "00000-00000", "thief").await);
    }
    assert_eq!(refusals[0].problem(), (403, "pairing_code_invalid".to_owned()));
    let last = refusals.last().unwrap();
    assert_eq!(last.problem(), (429, "rate_limited".to_owned()));
    let wait: u64 = last.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(complete(&gateway, &code, "phone").await.status, 429, "not even the right one is looked at");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = Some(format!("code={code}&next=/sign-in"));
    let page = gateway.anonymous().send(Method::POST, "/sign-in", &form, body).await;
    assert_eq!(page.status, 429, "nor on the page");
    assert!(page.headers.contains_key("retry-after") && page.text.contains("Too many pairing codes"));
    let token = gateway.by(Persona::Agent).get("/v1/me").await;
    assert_eq!(token.status, 200, "who has a credential is not held up");
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_names_its_device_and_is_not_taken_over() {
    let gateway = TestGateway::start().await;
    let key = "A".repeat(43);
    let pair = async |code: &str| {
        let body = json!({ "code": code, "label": "laptop", "publicKey": key, "platform": "Linux" });
        gateway.anonymous().post("/v1/pairing/complete", body).await
    };
    let paired = pair(&code_for(&gateway, "alice").await).await;
    assert_eq!(paired.status, 201, "{}", paired.text);
    let id = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925";
    assert_eq!(paired.field("/device/id"), id, "the SHA-256 of 32 zero bytes");
    assert_eq!(paired.json()["device"]["signs"], json!(true));
    assert_eq!(paired.field("/device/platform"), "linux");
    let code = code_for(&gateway, "mallory").await;
    assert_eq!(pair(&code).await.problem(), (409, "id_taken".to_owned()));
    let me = by(&gateway, &paired.field("/token"), Method::GET, "/v1/me", None).await;
    assert_eq!(me.field("/person"), "alice");
    for (wrong, place) in [
        (json!({ "code": code, "label": "x", "publicKey": "AAAA" }), "publicKey"),
        (json!({ "code": code, "label": "" }), "label"),
        (json!({ "code": code, "label": "a\u{202e}b" }), "label"),
        (json!({ "code": code, "label": "x", "admin": true }), "admin"),
    ] {
        let refused = gateway.anonymous().post("/v1/pairing/complete", wrong.clone()).await;
        assert_eq!(refused.problem().0, 400, "{wrong}: {}", refused.text);
        assert!(
            refused.field("/detail").contains(place) && !refused.text.contains(&code),
            "{}",
            refused.text
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_device_reviews_as_its_person_and_what_is_not_for_them_does_not_exist() {
    let gateway = TestGateway::start().await;
    let (_, alice) = pair(&gateway, "alice").await;
    let (_, bob) = pair(&gateway, "bob").await;
    let asked = json!({ "kind": "exec", "content": { "argv": ["ls"] },
        "requirement": { "reviewers": ["person:alice"] } });
    let record = gateway.by(Persona::Agent).post("/v1/approvals", asked).await.json();
    let path = format!("/v1/approvals/{}", record["id"].as_str().unwrap());
    let absent = "/v1/approvals/apr_00000000000000000000000000000000";
    let hidden = by(&gateway, &bob, Method::GET, &path, None).await;
    let missing = by(&gateway, &bob, Method::GET, absent, None).await;
    assert_eq!((hidden.status, &hidden.text), (404, &missing.text));
    let listed = async |token: &str| {
        let page = by(&gateway, token, Method::GET, "/v1/approvals", None).await.json();
        page["items"].as_array().unwrap().len()
    };
    assert_eq!((listed(&alice).await, listed(&bob).await), (1, 0));
    let allow = json!({ "decision": "allow-once", "digest": record["digest"] });
    let decision = format!("{path}/decision");
    let refused = by(&gateway, &bob, Method::POST, &decision, Some(allow.clone())).await;
    assert_eq!(refused.status, 404);
    let decided = by(&gateway, &alice, Method::POST, &decision, Some(allow)).await;
    assert_eq!((decided.status, decided.field("/approval/status")), (200, "allowed".to_owned()));
    assert_eq!(decided.field("/approval/resolver/label"), "alice (phone)");
    gateway.stop().await;
}

#[tokio::test]
async fn a_revoked_device_is_out_at_once_even_in_the_middle_of_a_wait() {
    let gateway = TestGateway::start().await;
    let (id, _) = gateway.by(Persona::Agent).ask(&["secret-command"]).await;
    let (device, token) = pair(&gateway, "alice").await;
    let wait = format!("/v1/approvals/{id}/wait?timeoutMs=60000");
    let waiting = async {
        let reply = by(&gateway, &token, Method::GET, &wait, None).await;
        assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()));
        assert!(!reply.text.contains("secret-command"), "{}", reply.text);
    };
    let revoking = async {
        // Long enough for the wait to have begun; were it not, it would be refused all the same.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let revoked = admin(&gateway, &format!("/v1/devices/{device}/revoke"), json!({})).await;
        assert_eq!(revoked.status, 200, "{}", revoked.text);
    };
    tokio::join!(waiting, revoking);
    assert_eq!(by(&gateway, &token, Method::GET, "/v1/me", None).await.status, 401);
    assert_eq!(gateway.by(Persona::Reviewer).get("/v1/devices").await.json()["items"], json!([]));
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_frozen_is_not_asked_for_until_it_is_thawed() {
    let gateway = TestGateway::start().await;
    let (agent, other) = (gateway.by(Persona::Agent), gateway.by(Persona::OtherAgent));
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] } });
    let (id, digest) = agent.ask(&["before"]).await;
    gateway.by(Persona::Reviewer).decide(&id, &digest, "allow-once").await;
    let frozen = admin(&gateway, "/v1/freeze", json!({ "agent": "agent", "reason": "odd\u{202e}" })).await;
    assert_eq!(frozen.status, 200, "{}", frozen.text);
    let item = &frozen.json()["items"][0];
    assert_eq!(
        (&item["agent"], &item["by"], &item["reason"]),
        (&json!("agent"), &json!("reviewer"), &json!("odd\\u{202E}"))
    );
    let ask = async |who: &holdgate_testkit::gateway::Caller| {
        who.post("/v1/approvals", body.clone()).await.problem()
    };
    let no = |code: &str| (409, code.to_owned());
    let refused = ask(&agent).await;
    assert_eq!(refused.1, "frozen");
    assert_eq!(ask(&other).await.0, 201, "others go on");
    let claim = json!({ "claimId": "c", "digest": digest });
    let claimed = agent.post(&format!("/v1/approvals/{id}/claim"), claim.clone()).await;
    assert_eq!(claimed.problem().1, "frozen", "what was allowed before does not run either");
    admin(&gateway, "/v1/freeze", json!({})).await;
    assert_eq!(ask(&other).await.1, "frozen");
    let left = admin(&gateway, "/v1/thaw", json!({ "agent": "agent" })).await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1, "everything is still frozen");
    assert_eq!(ask(&agent).await, (refused.0, "frozen".to_owned()));
    admin(&gateway, "/v1/thaw", json!({})).await;
    assert_eq!(gateway.by(Persona::Reviewer).get("/v1/freezes").await.json()["items"], json!([]));
    assert_ne!(ask(&agent).await, no("frozen"));
    assert_eq!(agent.post(&format!("/v1/approvals/{id}/claim"), claim).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_browser_is_paired_by_a_code_and_signed_out_with_its_device() {
    let gateway = TestGateway::start().await;
    let (id, _) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let sign_in =
        async |body: String| gateway.anonymous().send(Method::POST, "/sign-in", &form, Some(body)).await;
    let code = code_for(&gateway, "alice").await;
    let body = format!("code={}&device=Alice's+phone&next=/approve/{id}", code.to_lowercase());
    let signed_in = sign_in(body.clone()).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.text);
    assert_eq!(signed_in.headers["location"], format!("/approve/{id}").as_str());
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("Max-Age=2592000") && cookie.contains("HttpOnly"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let open =
        async |path: &str| gateway.anonymous().send(Method::GET, path, &[("cookie", &cookie)], None).await;
    assert!(open(&format!("/approve/{id}")).await.text.contains("id=\"allow-once\""));
    assert!(open("/sign-in").await.text.contains("Alice's phone"));
    let again = sign_in(body).await;
    assert_eq!(again.status, 403);
    assert!(
        again.text.contains("That pairing code is not valid") && !again.text.contains(&code),
        "{}",
        again.text
    );
    assert!(!again.headers.contains_key("set-cookie"));

    let devices = gateway.by(Persona::Reviewer).get("/v1/devices").await.json();
    let device = devices["items"][0]["id"].as_str().unwrap().to_owned();
    admin(&gateway, &format!("/v1/devices/{device}/revoke"), json!({})).await;
    assert!(open(&format!("/approve/{id}")).await.text.contains("data-state=\"sign-in\""));
    assert_eq!(open("/v1/approvals").await.status, 401);
    gateway.stop().await;
}

#[tokio::test]
async fn a_browser_is_paired_without_an_approval_and_in_the_tokens_field() {
    let gateway = TestGateway::start().await;
    assert!(gateway.anonymous().get("/sign-in").await.text.contains("id=\"code\""));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let code = code_for(&gateway, "alice").await;
    let body = Some(format!("token={code}&next=/sign-in"));
    let signed_in = gateway.anonymous().send(Method::POST, "/sign-in", &form, body).await;
    assert_eq!((signed_in.status, &signed_in.headers["location"].to_str().unwrap()), (303, &"/sign-in"));
    gateway.stop().await;
}
