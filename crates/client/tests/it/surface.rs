//! A reviewer's surface over a real socket, its gateway played by hand.

use holdgate_client::reviewing::{Decision, Declined, End, Origin, State};
use holdgate_client::socket::{
    Address, ConnectError, Credential, Identity, Profile, Secret, Snapshot, Status, Surface,
};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::peer::{Peer, Port, recorded, recorded_for};

const ID: &str = "65e78fed-546d-4245-a0d1-c322170d00e7";
const TOKEN: &str = "canary-token-4711";

fn surface(port: &Port) -> Surface {
    let credential = Credential::Token(Secret::new(TOKEN));
    let identity = Identity::from_seed(&[7; 32]);
    let profile = Profile::reviewer("0.1.0", Some(credential), Some(identity));
    Surface::start(Address::parse(&port.url()).unwrap(), profile, Vec::new())
}

async fn shows(snapshots: &mut watch::Receiver<Snapshot>, state: &State) -> Snapshot {
    let shown = snapshots.wait_for(|shown| shown.view.cards.iter().any(|card| card.state == *state)).await;
    shown.unwrap().clone()
}

/// A surface that shows one approval that waits, and the gateway's end of it.
async fn one_waiting(port: &Port) -> (Surface, Peer<TcpStream>) {
    let surface = surface(port);
    let mut peer = port.greet().await;
    let read = peer.until("approval.get").await;
    assert_eq!(read.params, json!({"id": ID}));
    peer.send(&recorded_for("get", &read.id)).await;
    shows(&mut surface.snapshots(), &State::Pending).await;
    (surface, peer)
}

#[tokio::test]
async fn a_recorded_approval_is_shown_decided_and_acknowledged() {
    let port = Port::bind().await;
    let (surface, mut peer) = one_waiting(&port).await;
    let mut snapshots = surface.snapshots();
    let shown = snapshots.borrow().clone();
    assert!(matches!(&shown.status, Status::Connected(hello) if hello.device_token.is_some()));
    let card = &shown.view.cards[0];
    assert_eq!(card.presentation["commandText"], "echo hi");
    assert_eq!(card.buttons, [Decision::AllowOnce, Decision::AllowAlways, Decision::Deny]);
    assert!(!format!("{shown:?}").contains(TOKEN));

    surface.choose(card.shown.clone(), Decision::AllowOnce).await.unwrap();
    let again = surface.choose(card.shown.clone(), Decision::Deny).await;
    assert_eq!(again, Err(Declined::InFlight));
    let resolve = peer.until("approval.resolve").await;
    assert_eq!(resolve.params, json!({"id": ID, "kind": "exec", "decision": "allow-once"}));
    // As recorded elsewhere: the event comes before the reply.
    peer.send(&recorded("resolved")).await;
    peer.send(&recorded_for("resolve", &resolve.id)).await;
    let here = End::Answered { decision: Decision::AllowOnce, origin: Origin::Here, by: None };
    shows(&mut snapshots, &State::Ended(here)).await;
    let (code, ()) = tokio::join!(peer.closed(), surface.close());
    assert_eq!(code, Some(1000));
}

#[tokio::test]
async fn a_request_that_is_announced_becomes_a_card() {
    let port = Port::bind().await;
    let surface = surface(&port);
    let mut peer = port.greet().await;
    for _ in 0..3 {
        let list = peer.request().await;
        assert!(list.method.ends_with(".approval.list"), "{list:?}");
        peer.reply(&list, json!([])).await;
    }
    peer.send(&recorded("requested")).await;
    let read = peer.request().await;
    assert_eq!((&*read.method, read.params), ("approval.get", json!({"id": ID})));
    peer.send(&recorded_for("get", &read.id)).await;
    shows(&mut surface.snapshots(), &State::Pending).await;
}

#[tokio::test]
async fn a_lost_acknowledgement_is_read_back_on_the_next_connection() {
    let port = Port::bind().await;
    let (surface, mut peer) = one_waiting(&port).await;
    let mut snapshots = surface.snapshots();
    let card = snapshots.borrow().view.cards[0].clone();
    surface.choose(card.shown, Decision::AllowOnce).await.unwrap();
    peer.until("approval.resolve").await;
    drop(peer);
    let frozen = shows(&mut snapshots, &State::OutcomeUnknown(Decision::AllowOnce)).await;
    assert!(frozen.view.cards[0].buttons.is_empty());

    let mut peer = port.greet().await;
    let read = peer.until("approval.get").await;
    // The list says that it waits. That is older than the decision may be: nothing is unlocked by it.
    assert_eq!(snapshots.borrow().view.cards[0].state, State::OutcomeUnknown(Decision::AllowOnce));
    let record = recorded("late")["payload"]["approval"].clone();
    let by = record["resolver"]["id"].as_str().map(str::to_owned);
    peer.reply(&read, json!({"approval": record})).await;
    let end = End::Answered { decision: Decision::AllowOnce, origin: Origin::Unattributed, by };
    shows(&mut snapshots, &State::Ended(end)).await;
}

#[tokio::test]
async fn missed_events_are_made_up_for_by_a_refresh() {
    let port = Port::bind().await;
    let (_surface, mut peer) = one_waiting(&port).await;
    peer.event("tick", json!({}), 5).await;
    peer.event("tick", json!({}), 6).await;
    peer.event("tick", json!({}), 9).await;
    let mut lists: Vec<_> = Vec::new();
    while lists.len() < 3 {
        let request = peer.request().await;
        if request.method.ends_with(".list") {
            lists.push(request.method);
        }
    }
    assert_eq!(lists, ["exec.approval.list", "plugin.approval.list", "openclaw.approval.list"]);
}

#[tokio::test]
async fn a_gateway_that_goes_away_is_sought_again() {
    let port = Port::bind().await;
    let surface = surface(&port);
    let mut snapshots = surface.snapshots();
    for _ in 0..3 {
        let mut peer = port.greet().await;
        snapshots.wait_for(|shown| matches!(shown.status, Status::Connected(_))).await.unwrap();
        peer.close(1012, "service restart").await;
        let shown = snapshots.wait_for(|shown| matches!(shown.status, Status::Waiting { .. })).await.unwrap();
        assert!(matches!(&shown.status, Status::Waiting { why } if why.contains("service restart (1012)")));
        assert_eq!(shown.view.link, None);
    }
}

#[tokio::test]
async fn a_refused_credential_stops_the_surface() {
    let port = Port::bind().await;
    let surface = surface(&port);
    let mut snapshots = surface.snapshots();
    let mut peer = port.accept().await;
    peer.greet(recorded("token_mismatch")).await;
    peer.close(1008, "unauthorized").await;
    let shown = snapshots.wait_for(|shown| matches!(shown.status, Status::Stopped(_))).await.unwrap().clone();
    let Status::Stopped(ConnectError::Refused { reason, .. }) = shown.status else { panic!("{shown:?}") };
    assert_eq!(reason.as_deref(), Some("AUTH_TOKEN_MISMATCH"));
    assert!(surface.open(ID).await.is_err());
}

#[tokio::test]
async fn an_approval_that_a_person_names_is_read() {
    let port = Port::bind().await;
    let (surface, mut peer) = one_waiting(&port).await;
    surface.open("missing").await.unwrap();
    let read = peer.until("approval.get").await;
    assert_eq!(read.params, json!({"id": "missing"}));
    peer.send(&recorded_for("not_found", &read.id)).await;
    let mut snapshots = surface.snapshots();
    snapshots.wait_for(|shown| shown.view.absent == ["missing"]).await.unwrap();
}
