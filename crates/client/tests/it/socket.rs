//! The protocol from the client's end, against recorded frames of a real gateway.

use std::time::Duration;

use holdgate_client::socket::{
    Address, Close, ConnectError, Connection, Credential, Identity, Incoming, Profile, Secret, SendError,
};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

use crate::peer::{Peer, Port, recorded, recorded_for};

const TOKEN: &str = "canary-token-4711";

fn profile() -> Profile {
    let credential = Credential::Token(Secret::new(TOKEN));
    Profile::reviewer("0.1.0", Some(credential), Some(Identity::from_seed(&[7; 32])))
}

fn address() -> Address {
    Address::parse("ws://127.0.0.1:7420").unwrap()
}

/// Both ends of a connection that was greeted with this hello, in memory.
async fn greeted(hello: Value) -> (Connection<DuplexStream>, Peer<DuplexStream>) {
    let (ours, theirs) = duplex(1 << 20);
    let gateway = async {
        let mut peer = Peer::accept(theirs).await;
        peer.greet(hello).await;
        peer
    };
    let (address, profile) = (address(), profile());
    let (connection, peer) = tokio::join!(Connection::greet(ours, &address, &profile), gateway);
    (connection.unwrap(), peer)
}

/// What comes of a connect that is answered so and closed with this code.
async fn refused(answer: &str, code: u16) -> ConnectError {
    let port = Port::bind().await;
    let gateway = async {
        let mut peer = port.accept().await;
        peer.greet(recorded(answer)).await;
        peer.close(code, "no").await;
    };
    let (address, profile) = (Address::parse(&port.url()).unwrap(), profile());
    tokio::join!(Connection::open(&address, &profile), gateway).0.unwrap_err()
}

#[tokio::test]
async fn a_recorded_gateway_greets() {
    let port = Port::bind().await;
    let gateway = async {
        let mut peer = port.accept().await;
        peer.greet(recorded("hello")).await
    };
    let (address, profile) = (Address::parse(&port.url()).unwrap(), profile());
    let (connection, connect) = tokio::join!(Connection::open(&address, &profile), gateway);
    let connection = connection.unwrap();
    let hello = connection.hello();
    assert_eq!(hello.server_version.as_deref(), Some("2026.9.6"));
    assert!(hello.methods.iter().any(|method| method == "approval.resolve"));
    assert_eq!((hello.max_payload_bytes, hello.tick_interval), (26_214_400, Duration::from_secs(30)));
    assert!(hello.device_token.is_some());
    assert!(hello.scopes.contains("operator.admin"));
    assert_eq!(connect["auth"], json!({"token": TOKEN}));
    assert_eq!(connect["device"]["nonce"], recorded("challenge")["payload"]["nonce"]);
    assert_eq!(connect["device"]["signedAt"], recorded("challenge")["payload"]["ts"]);
    assert_eq!(connect["device"]["id"], Identity::from_seed(&[7; 32]).device_id());
    assert_eq!(connect["caps"], json!(["approvals"]));
}

#[tokio::test]
async fn a_token_alone_connects_without_a_device() {
    let (ours, theirs) = duplex(1 << 20);
    let gateway = async { Peer::accept(theirs).await.greet(recorded("hello")).await };
    let profile = Profile { identity: None, ..profile() };
    let address = address();
    let (connection, connect) = tokio::join!(Connection::greet(ours, &address, &profile), gateway);
    connection.unwrap();
    assert!(connect.get("device").is_none());
    assert_eq!(connect["auth"], json!({"token": TOKEN}));
}

#[tokio::test]
async fn a_refusal_says_why_and_is_not_repeated() {
    let error = refused("token_mismatch", 1008).await;
    let ConnectError::Refused { code, reason, close, .. } = &error else { panic!("{error:?}") };
    assert_eq!(
        (&**code, reason.as_deref(), *close),
        ("INVALID_REQUEST", Some("AUTH_TOKEN_MISMATCH"), Some(1008))
    );
    assert!(!error.is_transient());
    assert!(!format!("{error} {error:?}").contains(TOKEN));

    let error = refused("pairing_required", 1008).await;
    let ConnectError::Refused { code, pairing_request, .. } = &error else { panic!("{error:?}") };
    assert_eq!(&**code, "NOT_PAIRED");
    assert_eq!(pairing_request.as_deref(), Some("f3a81984-074b-4bb3-972b-84726ee5f58f"));
    assert!(!error.is_transient());
}

#[tokio::test]
async fn what_is_no_gateway_is_told_apart_from_nobody() {
    let port = Port::bind().await;
    let web_page = async {
        let mut stream = port.stream().await;
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        stream
    };
    let (address, profile) = (Address::parse(&port.url()).unwrap(), profile());
    let (error, _stream) = tokio::join!(Connection::open(&address, &profile), web_page);
    assert!(matches!(error.unwrap_err(), ConnectError::NotAGateway { .. }));

    for first in [recorded("tick"), recorded("final"), json!({"type": "event", "event": "connect.challenge"})]
    {
        let gateway = async {
            let mut peer = port.accept().await;
            peer.send(&first).await;
            peer
        };
        let (error, _peer) = tokio::join!(Connection::open(&address, &profile), gateway);
        assert!(matches!(error.unwrap_err(), ConnectError::NotAGateway { .. }), "{first}");
    }

    let mut newer = recorded("hello");
    newer["payload"]["protocol"] = 5.into();
    let gateway = async {
        let mut peer = port.accept().await;
        peer.greet(newer).await;
        peer
    };
    let (error, _peer) = tokio::join!(Connection::open(&address, &profile), gateway);
    assert!(matches!(error.unwrap_err(), ConnectError::NotAGateway { .. }));

    drop(port);
    let error = Connection::open(&address, &profile).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }) && error.is_transient());
}

#[tokio::test]
async fn an_accepted_phase_comes_before_the_final_one() {
    let (mut connection, mut peer) = greeted(recorded("hello")).await;
    let params = json!({"command": "echo hi", "twoPhase": true});
    let id = connection.send("exec.approval.request", &params, true).await.unwrap();
    let request = peer.request().await;
    assert_eq!((&request.id, &request.params), (&id, &params));
    peer.send(&recorded_for("accepted", &id)).await;
    peer.send(&recorded_for("final", &id)).await;
    let accepted = Incoming::Accepted { id: id.clone(), payload: recorded("accepted")["payload"].clone() };
    assert_eq!(connection.next().await, accepted);
    let outcome = Ok(recorded("final")["payload"].clone());
    assert_eq!(connection.next().await, Incoming::Reply { id, outcome });

    // Who does not ask for it takes the first response for the final one.
    let id = connection.send("exec.approval.request", &params, false).await.unwrap();
    peer.send(&recorded_for("accepted", &id)).await;
    let outcome = Ok(recorded("accepted")["payload"].clone());
    assert_eq!(connection.next().await, Incoming::Reply { id, outcome });
}

#[tokio::test]
async fn replies_find_their_requests_in_any_order() {
    let (mut connection, mut peer) = greeted(recorded("hello")).await;
    let first = connection.send("approval.get", &json!({"id": "a"}), false).await.unwrap();
    let second = connection.send("approval.get", &json!({"id": "b"}), false).await.unwrap();
    let given_up = connection.send("approval.get", &json!({"id": "c"}), false).await.unwrap();
    connection.forget(&given_up);
    for line in ["not json", "[]", "{}", r#"{"type":"res","id":7,"ok":true}"#, r#"{"type":"new"}"#] {
        peer.text(line).await;
    }
    for id in ["r999", &given_up, &second, &second, &first] {
        peer.send(&recorded_for("not_found", id)).await;
    }
    for expected in [second, first] {
        let Incoming::Reply { id, outcome } = connection.next().await else { panic!("a reply") };
        assert_eq!(id, expected);
        assert_eq!(outcome.unwrap_err().reason.as_deref(), Some("APPROVAL_NOT_FOUND"));
    }
}

#[tokio::test]
async fn missed_events_are_counted() {
    let (mut connection, mut peer) = greeted(recorded("hello")).await;
    let expected = [(5, 0), (6, 0), (9, 2), (9, 0), (10, 0), (u64::MAX, u64::MAX - 11)];
    for (seq, _) in expected {
        peer.event("tick", json!({}), seq).await;
    }
    for (seq, missed) in expected {
        let event = Incoming::Event { name: "tick".to_owned(), payload: json!({}), missed };
        assert_eq!(connection.next().await, event, "{seq}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_silent_intervals_close_the_connection() {
    let (mut connection, mut peer) = greeted(recorded("hello")).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(59)).await;
        peer.send(&recorded("tick")).await;
        assert!(matches!(connection.next().await, Incoming::Event { .. }));
    }
    // A ping is answered below the protocol: it does not say that the gateway works.
    tokio::time::sleep(Duration::from_secs(50)).await;
    peer.ping().await;
    let before = tokio::time::Instant::now();
    let (incoming, code) = tokio::join!(connection.next(), peer.closed());
    assert_eq!(incoming, Incoming::Closed(Close { code: Some(4000), reason: "tick timeout".to_owned() }));
    assert_eq!(code, Some(4000));
    assert!(before.elapsed() >= Duration::from_secs(10) && before.elapsed() < Duration::from_secs(12));
}

#[tokio::test]
async fn a_close_tells_its_code_and_stays() {
    let (mut connection, mut peer) = greeted(recorded("hello")).await;
    peer.close(1012, "service restart").await;
    let closed = Incoming::Closed(Close { code: Some(1012), reason: "service restart".to_owned() });
    assert_eq!(connection.next().await, closed);
    assert_eq!(connection.next().await, closed);
    assert_eq!(connection.send("health", &json!({}), false).await, Err(SendError::Closed));

    let (mut connection, peer) = greeted(recorded("hello")).await;
    drop(peer);
    assert!(matches!(connection.next().await, Incoming::Closed(Close { code: None, .. })));
}

#[tokio::test]
async fn frames_are_bounded_both_ways() {
    let mut hello = recorded("hello");
    hello["payload"]["policy"]["maxPayload"] = 1_000.into();
    let (mut connection, mut peer) = greeted(hello).await;
    let long = json!({"id": "x".repeat(1_000)});
    let error = connection.send("approval.get", &long, false).await.unwrap_err();
    assert!(matches!(error, SendError::TooLarge { most: 1_000, .. }));
    // Nothing was sent, and the connection goes on.
    let id = connection.send("health", &json!({}), false).await.unwrap();
    assert_eq!(peer.request().await.id, id);

    let flood = tokio::spawn(async move { peer.try_text(" ".repeat(26_214_401)).await });
    let Incoming::Closed(close) = connection.next().await else { panic!("a close") };
    assert_eq!(close.code, Some(1009));
    drop(connection);
    flood.await.unwrap();
}
