//! What takes time, or luck, over a real network: silent peers, and a hub that falls behind.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use holdgate_authority::{Authority, Local, Role, Service};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Principal, Scopes};
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Notice, Op, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::sync::{broadcast, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role as Side;

use super::credentials::Held;
use super::hub::Open;
use super::line::Line;
use super::session::{Session, Settled};
use super::upgrade::Peer;
use super::{Rpc, TICK, socket};
use crate::credential_hash;
use crate::shares::Shares;

struct Stage {
    rpc: Rpc,
    operator: Principal,
    stop: watch::Sender<bool>,
    _dir: TempDir,
}

async fn stage() -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::new());
    let store = SqliteStore::open(OpenOptions { path: dir.path().join("holdgate.db"), clock }).unwrap();
    let operator = Principal::new("operator".parse().unwrap(), PrincipalKind::Administrator, "Operator");
    let hash = credential_hash("token");
    let put = Op::PutCredential { hash, principal: operator.clone(), recovers: false };
    store.execute(put).await.unwrap();
    let role = Role::Gateway { instance: "test".to_owned(), url: "http://127.0.0.1:1".to_owned() };
    let service = Service::start(store, role).await.unwrap();
    let (stop, _) = watch::channel(false);
    Stage { rpc: Rpc::new(service, Shares::of(64), None), operator, stop, _dir: dir }
}

type Client = WebSocketStream<DuplexStream>;

/// The other end of a fresh connection, with the challenge that came.
async fn opened(stage: &Stage) -> (Client, Value) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let peer = Peer { address: IpAddr::from([127, 0, 0, 1]), is_local: true };
    let stranger = stage.rpc.shares.stranger().unwrap();
    tokio::spawn(socket::serve(theirs, stage.rpc.clone(), (peer, stranger), stage.stop.subscribe()));
    let mut client = WebSocketStream::from_raw_socket(ours, Side::Client, None).await;
    let challenge = text(&mut client).await;
    (client, challenge)
}

async fn text(client: &mut Client) -> Value {
    match client.next().await.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other}"),
    }
}

async fn connected(stage: &Stage) -> Client {
    let (mut client, _) = opened(stage).await;
    let says = json!({ "id": "cli", "version": "1", "platform": "linux", "mode": "cli" });
    let params = json!({
        "minProtocol": 4,
        "maxProtocol": 4,
        "client": says,
        "auth": { "token": "token" },
        "caps": ["approvals"],
        "scopes": ["operator.admin"],
    });
    let connect = json!({ "type": "req", "id": "1", "method": "connect", "params": params });
    client.send(Message::text(connect.to_string())).await.unwrap();
    assert_eq!(text(&mut client).await["ok"], true);
    client
}

/// How the gateway ends a connection whose peer only listens.
async fn close(client: &mut Client) -> (u16, String) {
    loop {
        if let Message::Close(frame) = client.next().await.unwrap().unwrap() {
            let frame = frame.unwrap();
            return (frame.code.into(), frame.reason.to_string());
        }
    }
}

#[tokio::test]
async fn a_handshake_that_is_never_finished_is_ended() {
    let stage = stage().await;
    let (mut client, _) = opened(&stage).await;
    tokio::time::pause();
    assert_eq!(close(&mut client).await, (1008, "handshake timeout".to_owned()));
}

#[tokio::test]
async fn a_peer_without_a_sign_of_life_is_taken_for_gone() {
    let stage = stage().await;
    let client = connected(&stage).await;
    tokio::time::pause();
    // Nobody reads, so nobody answers a ping.
    tokio::time::sleep(TICK * 5).await;
    let mut left = Vec::new();
    client.into_inner().read_to_end(&mut left).await.unwrap();
    let close = [&1001_u16.to_be_bytes()[..], b"no sign of life"].concat();
    assert!(left.ends_with(&close), "{}", String::from_utf8_lossy(&left));
    stage.rpc.hub.emptied(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_peer_that_answers_pings_hears_ticks_for_as_long_as_it_likes() {
    let stage = stage().await;
    let mut client = connected(&stage).await;
    tokio::time::pause();
    for seq in 1..=20 {
        let (mut is_pinged, mut tick) = (false, None);
        while !is_pinged || tick.is_none() {
            match client.next().await.unwrap().unwrap() {
                Message::Text(text) => tick = serde_json::from_str::<Value>(&text).ok(),
                Message::Ping(_) => is_pinged = true,
                other => panic!("{other}"),
            }
        }
        let tick = tick.unwrap();
        assert_eq!((&tick["event"], &tick["seq"]), (&json!("tick"), &json!(seq)));
    }
}

/// A connection in the hub, without a network.
fn member(stage: &Stage, id: &str) -> (Open, Arc<Line>) {
    let session = Session::new(Settled {
        id: id.to_owned(),
        client_id: "cli".to_owned(),
        caps: vec!["approvals".to_owned()],
        scopes: vec!["operator.admin".to_owned()],
        device: None,
        limit: Scopes::ALL,
        principal: stage.operator.clone(),
    });
    let guest = stage.rpc.shares.enter(&stage.operator.id).unwrap();
    let (line, _) = Line::new(guest);
    let held = Held::Token(credential_hash("token"));
    (Open { session: Arc::new(session), line: Arc::clone(&line), held }, line)
}

async fn ask(stage: &Stage, turn: usize) -> String {
    let local = Local::new(Arc::clone(&stage.rpc.service), stage.operator.clone());
    let request = json!({ "kind": "exec", "boundary": turn.to_string(), "content": { "argv": ["ls"] } });
    local.create(serde_json::from_str(&request.to_string()).unwrap(), None).await.unwrap().approval.id
}

#[tokio::test]
async fn a_hub_that_falls_behind_tells_everything_once_from_the_store() {
    let stage = stage().await;
    let (open, line) = member(&stage, "one");
    let _member = stage.rpc.hub.enter(open).await;
    let mut committed = stage.rpc.service.notices();
    let mut ids = Vec::new();
    let mut notices = Vec::new();
    for turn in 0..8 {
        ids.push(ask(&stage, turn).await);
        notices.push(loop {
            if let notice @ Notice::Changed(_) = committed.recv().await.unwrap() {
                break notice;
            }
        });
    }
    let (hints, lossy) = broadcast::channel(2);
    tokio::spawn(Arc::clone(&stage.rpc.hub).keep(lossy));
    let mut notices = notices.into_iter();
    hints.send(notices.next().unwrap()).unwrap();
    let first = line.next_event().await.frame();
    assert!(first.contains(&ids[0]), "{first}");
    // More than the channel holds before the hub gets to run: the first of them are gone.
    for notice in notices {
        hints.send(notice).unwrap();
    }
    for (at, id) in ids.iter().enumerate().skip(1) {
        let frame: Value = serde_json::from_str(&line.next_event().await.frame()).unwrap();
        assert_eq!(
            (&frame["event"], &frame["payload"]["id"]),
            (&json!("exec.approval.requested"), &json!(id))
        );
        assert_eq!(frame["seq"], at + 1, "none twice, none missing");
    }
    ids.push(ask(&stage, 8).await);
    hints.send(committed.recv().await.unwrap()).unwrap();
    let last = line.next_event().await.frame();
    assert!(last.contains(&ids[8]) && last.contains("\"seq\":9"), "{last}");
}

#[tokio::test]
async fn a_socket_that_is_not_read_holds_up_nobody_and_is_told_what_it_lost() {
    const ASKED: usize = 500;
    let stage = stage().await;
    let mut slow = connected(&stage).await;
    let subscribe = json!({ "key": "agent:main:main", "includeApprovals": true });
    let call =
        json!({ "type": "req", "id": "2", "method": "sessions.messages.subscribe", "params": subscribe });
    slow.send(Message::text(call.to_string())).await.unwrap();
    assert_eq!(text(&mut slow).await["ok"], true);
    let (open, line) = member(&stage, "quick");
    let _member = stage.rpc.hub.enter(open).await;
    tokio::spawn(Arc::clone(&stage.rpc.hub).keep(stage.rpc.service.notices()));
    for turn in 0..ASKED {
        let id = ask(&stage, turn).await;
        assert!(line.next_event().await.frame().contains(&id), "whoever reads hears of each at once");
    }
    let mut heard: Vec<u64> = Vec::new();
    let told = loop {
        let frame = text(&mut slow).await;
        let seq = frame["seq"].as_u64().unwrap();
        if frame["event"] == "approvals.dropped" {
            break seq;
        }
        heard.push(seq);
    };
    let first: Vec<u64> = (1..=heard.len() as u64).collect();
    assert_eq!(heard, first, "in order and without a gap, as far as it kept up");
    assert!(heard.len() < ASKED);
    assert_eq!(told, ASKED as u64 + 1, "the numbers of what was lost are skipped");
    ask(&stage, ASKED).await;
    assert_eq!(text(&mut slow).await["seq"], told + 1, "and it hears again");
}

#[tokio::test]
async fn a_hub_that_cannot_know_what_it_missed_tells_everybody_so() {
    let stage = stage().await;
    let (open, line) = member(&stage, "one");
    let _member = stage.rpc.hub.enter(open).await;
    let (hints, lossy) = broadcast::channel(1);
    for _ in 0..3 {
        hints.send(Notice::Identity(None)).unwrap();
    }
    tokio::spawn(Arc::clone(&stage.rpc.hub).keep(lossy));
    let told = line.next_event().await;
    assert!(told.tells_of_loss && told.frame().contains("approvals.dropped"));
}

#[tokio::test]
async fn only_connections_that_would_be_shown_it_count_as_a_route() {
    let stage = stage().await;
    let (one, _line) = member(&stage, "one");
    let (other, _line) = member(&stage, "other");
    let id = ask(&stage, 0).await;
    let found = stage.rpc.service.find(&id, &stage.operator).await.unwrap();
    let holdgate_authority::Found::Sound(approval) = found else { panic!("it reads well") };
    let hub = &stage.rpc.hub;
    assert_eq!(hub.reviewers_of(&approval, "one"), 0);
    let one = hub.enter(one).await;
    let other = hub.enter(other).await;
    assert_eq!((hub.reviewers_of(&approval, "one"), hub.reviewers_of(&approval, "")), (1, 2));
    drop((one, other));
    assert_eq!(hub.reviewers_of(&approval, ""), 0, "who has left is no route");
}
