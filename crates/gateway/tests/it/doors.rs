//! Bad input at every door: a clear error, and nothing happens.

use holdgate_testkit::gateway::{Persona, TestGateway};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn create(gateway: &TestGateway, body: &str) -> (u16, String, String) {
    let agent = gateway.by(Persona::Agent);
    let reply = agent.send(Method::POST, "/v1/approvals", &[], Some(body.to_owned())).await;
    let (status, code) = reply.problem();
    (status, code, reply.field("/detail"))
}

#[tokio::test]
async fn a_malformed_body_is_refused_with_the_place_of_the_fault() {
    let gateway = TestGateway::start().await;
    for (body, says) in [
        ("", "missing field `kind`"),
        ("{", "line 1 column 1"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        (r#"["exec",{"argv":["ls"]}]"#, "not a JSON object"),
        (r#"{"kind":"exec","content":{"argv":["ls"]},"source":7}"#, "expected an object"),
        (r#"{"kind":"exec"}"#, "missing field `content`"),
        (r#"{"kind":"exec","content":{"argv":["ls"]},"colour":1}"#, "unknown field `colour`"),
        (r#"{"kind":"exec","kind":"exec","content":{"argv":["ls"]}}"#, "duplicate field `kind`"),
        (r#"{"kind":"shell","content":{"argv":["ls"]}}"#, "kind: "),
        (r#"{"kind":7,"content":{}}"#, "expected a string"),
        (r#"{"kind":"exec","scope":"tool_call","content":{"argv":["ls"]}}"#, "scope: "),
        (r#"{"kind":"exec","content":{"argv":["ls"],"argv":["rm"]}}"#, "\"argv\" is given twice"),
        (r#"{"kind":"exec","content":{"argv":["ls"],"n":9007199254740993}}"#, "9007199254740993"),
        (r#"{"kind":"exec","content":{"argv":["ls"],"n":1e400}}"#, "number out of range"),
        (r#"{"kind":"exec","content":{"argv":[]}}"#, "argv"),
        (r#"{"kind":"exec","content":"ls"}"#, "object"),
        (r#"{"kind":"exec","content":{"argv":["ls"]},"timeoutMs":0}"#, "timeoutMs: "),
        (r#"{"kind":"exec","content":{"argv":["ls"]},"timeoutMs":2592000001}"#, "30 days"),
        (r#"{"kind":"exec","content":{"argv":["ls"]},"boundary":"  "}"#, "boundary"),
        (r#"{"kind":"exec","content":{"argv":["ls"]},"epoch":"e","run":{"id":"r","fence":1}}"#, "not both"),
        (r#"{"kind":"tool","content":{"toolName":"t"},"run":{"id":"r","fence":1}}"#, "boundary: "),
    ] {
        let (status, code, detail) = create(&gateway, body).await;
        assert_eq!((status, code.as_str()), (400, "invalid_request"), "{body}: {detail}");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    let listed = gateway.by(Persona::Agent).get("/v1/approvals").await.json();
    assert_eq!(listed["items"], json!([]), "nothing was opened");
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_too_large_to_take_or_to_show_is_refused_whole() {
    let gateway = TestGateway::start().await;
    let long = "a".repeat(16_385);
    let (status, code, detail) =
        create(&gateway, &json!({ "kind": "exec", "content": { "argv": [long] } }).to_string()).await;
    assert_eq!((status, code.as_str()), (413, "too_large"), "{detail}");
    assert!(detail.contains("16"), "{detail}");
    let (status, code, _) = create(&gateway, &" ".repeat((4 << 20) + 1)).await;
    assert_eq!((status, code.as_str()), (413, "too_large"));
    let reason = "r".repeat(4_097);
    let body = json!({ "kind": "exec", "content": { "argv": ["ls"] }, "reason": reason });
    assert_eq!(create(&gateway, &body.to_string()).await.0, 400);
    gateway.stop().await;
}

#[tokio::test]
async fn an_unknown_path_or_method_says_so() {
    let gateway = TestGateway::start().await;
    let agent = gateway.by(Persona::Agent);
    assert_eq!(agent.get("/v2/approvals").await.problem(), (404, "not_found".to_owned()));
    let reply = agent.send(Method::DELETE, "/v1/approvals/x", &[], None).await;
    assert_eq!(reply.problem(), (405, "method_not_allowed".to_owned()));
    for id in ["x", "%00", "%FF", "apr_1%2f2", "..%2f..", "apr_543a5a464fc6270ec21193dab48f42faX"] {
        let reply = agent.get(&format!("/v1/approvals/{id}")).await;
        assert_eq!(reply.problem(), (404, "not_found".to_owned()), "{id}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_is_no_utf8_is_refused() {
    let gateway = TestGateway::start().await;
    let client = reqwest::Client::new();
    let body = b"{\"kind\":\"exec\",\"content\":{\"argv\":[\"\xff\"]}}".to_vec();
    let request = client.post(format!("{}/v1/approvals", gateway.url)).bearer_auth("agent").body(body);
    assert_eq!(request.send().await.unwrap().status(), 400);
    gateway.stop().await;
}

#[tokio::test]
async fn a_detail_is_short_and_shows_what_deceives() {
    let gateway = TestGateway::start().await;
    let deceptive = format!("\\u001b[2J\\u202e{}", "x".repeat(100_000));
    for body in [
        format!(r#"{{"kind":"exec","content":{{"argv":["ls"]}},"{deceptive}":1}}"#),
        format!(r#"{{"kind":"{deceptive}","content":{{}}}}"#),
        format!(r#"{{"kind":"exec","content":{{"argv":["ls"]}},"epoch":{{"{deceptive}":1}}}}"#),
        format!(r#"{{"kind":"exec","content":{{"argv":["ls"],"{deceptive}":1,"{deceptive}":2}}}}"#),
    ] {
        let (status, _, detail) = create(&gateway, &body).await;
        assert_eq!(status, 400, "{detail}");
        assert!(detail.chars().count() <= 1_000, "{}", detail.len());
        assert!(!detail.contains(['\u{1b}', '\u{202e}']), "{detail}");
    }
    let reply = gateway.by(Persona::Agent).get(&format!("/{}", "x".repeat(5_000))).await;
    assert!(reply.field("/detail").chars().count() <= 1_000);
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_goes_on_and_on_is_refused_and_the_sender_hears_why() {
    let gateway = TestGateway::start().await;
    let host = gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let size = 16 << 20;
    let head = format!(
        "POST /v1/approvals HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer agent\r\nContent-Length: {size}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; size]).await.expect("a sender that reads only afterwards is heard out");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("too_large"), "{answer}");
    gateway.stop().await;
}
