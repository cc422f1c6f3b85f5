//! Peers that say it wrong: each gets an error or a close, nothing changes, and nobody else notices.

use std::time::Duration;

use futures_util::StreamExt as _;
use holdgate_testkit::gateway::TestGateway;
use holdgate_testkit::v4::{Auth, Client, Connect, Trace};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::stage::{agent, connect, holds, reviewer};

/// Opens a WebSocket without anything between the test and the bytes.
async fn raw(gateway: &TestGateway) -> TcpStream {
    let address = gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream
}

/// A frame as a client masks it, with a mask of zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u16::try_from(payload.len()) {
        Ok(length) if length < 126 => frame.push(0x80 | payload.len() as u8),
        Ok(length) => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// What comes back until the gateway ends the connection: the texts, and the code of its close.
async fn rest(stream: TcpStream) -> (Vec<Value>, Option<u16>) {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let (mut texts, mut code) = (Vec::new(), None);
    let read = async {
        while let Some(message) = socket.next().await {
            match message {
                Ok(Message::Text(text)) => texts.push(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => code = frame.map(|frame| u16::from(frame.code)),
                Ok(_) => {}
                Err(Error::Io(_) | Error::Protocol(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), read).await.expect("the gateway ends it");
    (texts, code)
}

async fn unharmed(gateway: &TestGateway, others: &Client, before: &str) {
    assert!(others.call("health", &json!({})).await.ok, "others live on");
    assert_eq!(holds(gateway).await, before, "nothing changed");
}

#[tokio::test]
async fn frames_that_are_none_end_the_connection() {
    let gateway = TestGateway::start_for_v4().await;
    let others = reviewer(&gateway).await;
    let before = holds(&gateway).await;
    let request = br#"{"type":"req","id":"1","method":"health"}"#;
    let oversize = vec![b' '; 65_537];
    let unmasked: Vec<u8> = [&[0x81, 2][..], b"{}"].concat();
    let endless = [&[0x81, 0xff][..], &(1u64 << 62).to_be_bytes(), &[0; 4]].concat();
    let flood: Vec<u8> = (0..20_000).flat_map(|_| masked(0x89, b"12345678")).collect();
    for (name, bytes, code) in [
        ("text that is no JSON", masked(0x81, b"hello"), 1008),
        ("an empty text", masked(0x81, b""), 1008),
        ("JSON that is no object", masked(0x81, b"[1]"), 1008),
        ("a call before connect", masked(0x81, request), 1008),
        ("a nest of arrays", masked(0x81, "[".repeat(60_000).as_bytes()), 1008),
        ("too much text", masked(0x81, &oversize), 1009),
        ("a frame of any length", endless, 1009),
        ("pings without end", flood, 1009),
        ("a binary frame", masked(0x82, b"{}"), 1003),
        ("text that is no UTF-8", masked(0x81, &[0xff, 0xfe]), 1007),
        ("a frame that is not masked", unmasked, 1002),
        ("a reserved bit", masked(0xc1, b"{}"), 1002),
        ("an opcode that is none", masked(0x83, b"{}"), 1002),
        ("a continuation of nothing", masked(0x80, b"{}"), 1002),
        ("a ping in fragments", masked(0x09, b""), 1002),
    ] {
        let mut stream = raw(&gateway).await;
        // A gateway that has had enough does not read on.
        let _ = stream.write_all(&bytes).await;
        let (texts, closed) = rest(stream).await;
        assert_eq!(closed, Some(code), "{name}: {texts:?}");
        assert_eq!(texts[0]["event"], "connect.challenge", "{name}");
    }
    unharmed(&gateway, &others, &before).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_text_in_fragments_is_one_text() {
    let gateway = TestGateway::start_for_v4().await;
    let mut stream = raw(&gateway).await;
    stream.write_all(&masked(0x01, br#"{"type":"req","id":"#)).await.unwrap();
    stream.write_all(&masked(0x89, b"ping")).await.unwrap();
    stream.write_all(&masked(0x80, br#""f1","method":"health"}"#)).await.unwrap();
    let (texts, closed) = rest(stream).await;
    assert_eq!(closed, Some(1008));
    assert_eq!(texts[1]["id"], "f1");
    assert_eq!(texts[1]["error"]["message"], "invalid handshake: first request must be connect");
    gateway.stop().await;
}

/// Values that no field of `connect` is.
fn wrong() -> [Value; 5] {
    [json!(null), json!({ "a": [] }), json!([[1]]), json!(1.5), json!(false)]
}

#[tokio::test]
async fn a_wrong_type_anywhere_in_connect_is_refused_with_its_place() {
    let gateway = TestGateway::start_for_v4().await;
    let others = reviewer(&gateway).await;
    let before = holds(&gateway).await;
    let says = Connect::new("c", Auth::token(gateway.shared_token())).device();
    for pointer in [
        "/minProtocol",
        "/maxProtocol",
        "/client",
        "/client/id",
        "/client/version",
        "/client/platform",
        "/client/mode",
        "/client/deviceFamily",
        "/client/instanceId",
        "/caps",
        "/caps/0",
        "/commands",
        "/role",
        "/scopes",
        "/scopes/0",
        "/device",
        "/device/id",
        "/device/publicKey",
        "/device/signature",
        "/device/signedAt",
        "/device/nonce",
        "/auth",
        "/auth/token",
        "/auth/deviceToken",
        "/auth/bootstrapToken",
        "/auth/approvalRuntimeToken",
        "/locale",
        "/userAgent",
        "/pathEnv",
        "/client/colour",
        "/colour",
    ] {
        for value in wrong() {
            let client = Client::open(&gateway.ws_url(), "c", &Trace::default()).await;
            let mut params = says.params(&client.challenge().await);
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            match params.pointer_mut(parent).unwrap() {
                Value::Array(items) => *items = vec![value.clone()],
                parent => parent[name] = value.clone(),
            }
            // An empty list may be left out, and an object may hold nothing that is wrong.
            let reply = client.call("connect", &params).await;
            let error = reply.error.unwrap_or_else(|| panic!("{pointer} {value} is let in"));
            assert_eq!(error["code"], "INVALID_REQUEST", "{pointer} {value}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("invalid connect params: "), "{pointer} {value}: {message}");
            assert_eq!(client.ended().await.unwrap().code, 1008, "{pointer} {value}");
        }
    }
    unharmed(&gateway, &others, &before).await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_wrong_after_hello_costs_an_answer_and_nothing_else() {
    let gateway = TestGateway::start_for_v4().await;
    let others = reviewer(&gateway).await;
    let client = agent(&gateway).await;
    let before = holds(&gateway).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for method in [
        "approval.get",
        "approval.resolve",
        "approval.history",
        "approval.list",
        "approval.request",
        "approval.wait",
        "approval.decide",
        "approval.claim",
        "approval.settle",
        "approval.cancel",
        "approval.revoke",
        "exec.approval.request",
        "exec.approval.get",
        "exec.approval.waitDecision",
        "exec.approval.resolve",
        "plugin.approval.request",
        "plugin.approval.waitDecision",
        "plugin.approval.resolve",
        "sessions.messages.subscribe",
        "connect",
        "no.such.method",
    ] {
        for params in
            ["null", "7", "[]", "\"x\"", r#"{"id":"\ud800"}"#, r#"{"id":1e400}"#, r#"{"":{}}"#, &deep]
        {
            let reply = client.call_text(method, Some(params)).await;
            let refused = reply.error.unwrap_or_else(|| panic!("{method} {:.20} is served", params));
            assert!(
                matches!(refused["code"].as_str(), Some("INVALID_REQUEST" | "FORBIDDEN")),
                "{method} {params:.20}: {refused}"
            );
        }
        // Something right in between: refusals in a row would end the connection.
        assert!(client.call("health", &json!({})).await.ok);
    }
    for text in ["not json", "", "{", "\u{feff}{}"] {
        client.send_text(text).await;
    }
    for text in [
        r#"{"type":"req","id":"z1"}"#,
        r#"{"type":"event","id":"z2","method":"m"}"#,
        "[]",
        "7",
        r#"{"a":"\ud800"}"#,
    ] {
        client.send_text(text).await;
    }
    let ids: Vec<Value> = client.extra(5).await.iter().map(|frame| frame["id"].clone()).collect();
    assert_eq!(ids, ["z1", "z2", "invalid", "invalid", "invalid"]);
    assert_eq!(client.closed(), None);
    unharmed(&gateway, &others, &before).await;
    gateway.stop().await;
}

#[tokio::test]
async fn too_large_or_binary_after_hello_ends_the_connection() {
    let gateway = TestGateway::start_for_v4().await;
    let others = reviewer(&gateway).await;
    let before = holds(&gateway).await;
    let most = others.hello().pointer("/policy/maxPayload").unwrap().as_u64().unwrap();
    for (message, code) in
        [(Message::text(" ".repeat(most as usize + 1)), 1009), (Message::binary(vec![0; 8]), 1003)]
    {
        let client = agent(&gateway).await;
        client.send(message).await;
        assert_eq!(client.ended().await.unwrap().code, code);
    }
    let client = agent(&gateway).await;
    let call = r#"{"type":"req","id":"big","method":"health"}"#;
    let fits = format!("{call}{}", " ".repeat(most as usize - call.len()));
    client.send_text(&fits).await;
    assert_eq!(client.extra(1).await[0]["ok"], true, "what is announced is taken");
    unharmed(&gateway, &others, &before).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_peer_that_goes_without_a_word_leaves_nothing_behind() {
    let gateway = TestGateway::start_for_v4().await;
    let others = reviewer(&gateway).await;
    let before = holds(&gateway).await;
    for sent in [&b""[..], &[0x81], &[0x81, 0xfe], &[0x81, 0x85, 0, 0, 0, 0, b'{']] {
        let mut stream = raw(&gateway).await;
        stream.write_all(sent).await.unwrap();
        drop(stream);
    }
    unharmed(&gateway, &others, &before).await;
    gateway.stop().await;
}

#[tokio::test]
async fn unauthorized_calls_in_a_row_end_the_connection() {
    let gateway = TestGateway::start_for_v4().await;
    let says = Connect::new("c", Auth::token(gateway.shared_token()));
    let client = connect(&gateway, says).await.unwrap();
    for _ in 0..65 {
        client.send_text(r#"{"type":"req","id":"1","method":"exec.approval.list","params":{}}"#).await;
    }
    let closed = client.ended().await.unwrap();
    assert_eq!((closed.code, closed.reason.as_str()), (1008, "repeated unauthorized calls"));
    gateway.stop().await;
}
