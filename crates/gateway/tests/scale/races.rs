//! One answer wins, however many are given at once and over whichever door.

use std::collections::HashMap;
use std::sync::Arc;

use holdgate_core::Event;
use holdgate_store::Store as _;
use holdgate_testkit::gateway::{Caller, Persona, TestGateway};
use holdgate_testkit::v4::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::stage::{agent, reviewer};

const APPROVALS: usize = 1_000;
/// How many approvals are raced for at once.
const AT_ONCE: usize = 16;

/// A way to answer.
#[derive(Clone)]
enum Door {
    Canonical(Arc<Client>),
    Family(Arc<Client>),
    Own(Arc<Client>),
    Http(Caller),
}

/// What a resolver was told.
#[derive(Debug, PartialEq)]
enum Told {
    Won,
    /// The answer that stands, as far as the door tells it.
    Lost(Option<Value>),
}

impl Door {
    async fn answer(&self, id: &str, digest: &str, decision: &str) -> Told {
        match self {
            Door::Canonical(client) => {
                let params = json!({ "id": id, "kind": "exec", "decision": decision });
                let reply = client.call("approval.resolve", &params).await;
                assert!(reply.ok, "{reply:?}");
                assert_eq!(reply.at("/approval/id"), id);
                told(reply.at("/applied") == true, reply.at("/approval/decision"))
            }
            Door::Family(client) => {
                let params = json!({ "id": id, "decision": decision });
                let reply = client.call("exec.approval.resolve", &params).await;
                if reply.ok {
                    // This family does not say whether the answer was the first or the same again.
                    return Told::Lost(Some(decision.into()));
                }
                assert_eq!(reply.error.unwrap()["details"]["reason"], "APPROVAL_ALREADY_RESOLVED");
                Told::Lost(None)
            }
            Door::Own(client) => {
                let params = json!({ "id": id, "digest": digest, "decision": decision });
                let reply = client.call("approval.decide", &params).await;
                if reply.ok {
                    return told(reply.at("/applied") == true, reply.at("/approval/decision"));
                }
                let details = &reply.error.unwrap()["details"];
                assert_eq!(
                    (&details["reason"], &details["approval"]["id"]),
                    (&json!("ALREADY_DECIDED"), &json!(id))
                );
                Told::Lost(Some(details["approval"]["decision"].clone()))
            }
            Door::Http(caller) => {
                let reply = caller.decide(id, digest, decision).await;
                let body = reply.json();
                if reply.status == 200 {
                    return told(body["applied"] == true, body["approval"]["decision"].clone());
                }
                assert_eq!(reply.problem(), (409, "already_decided".to_owned()));
                assert_eq!(body["approval"]["id"], id);
                Told::Lost(Some(body["approval"]["decision"].clone()))
            }
        }
    }
}

fn told(won: bool, decision: Value) -> Told {
    if won { Told::Won } else { Told::Lost(Some(decision)) }
}

async fn doors(gateway: &TestGateway) -> Vec<Door> {
    let mut doors = Vec::new();
    for n in 0..3 {
        doors.push(Door::Canonical(Arc::new(reviewer(gateway, &format!("c{n}"), false).await)));
        doors.push(Door::Family(Arc::new(reviewer(gateway, &format!("f{n}"), false).await)));
    }
    for n in 0..2 {
        doors.push(Door::Own(Arc::new(reviewer(gateway, &format!("o{n}"), false).await)));
    }
    doors.push(Door::Http(gateway.by(Persona::Reviewer)));
    doors.push(Door::Http(gateway.by(Persona::OtherReviewer)));
    doors
}

/// All doors at once; answers the decision that won.
async fn race(doors: Vec<Door>, id: String, digest: String, nth: usize) -> (String, Value) {
    let mut racing = JoinSet::new();
    for (door, resolver) in doors.into_iter().enumerate() {
        let decision = if (door + nth).is_multiple_of(2) { "allow-once" } else { "deny" };
        let (id, digest) = (id.clone(), digest.clone());
        racing.spawn(async move {
            let is_silent = matches!(resolver, Door::Family(_));
            (resolver.answer(&id, &digest, decision).await, decision, is_silent)
        });
    }
    let answers = racing.join_all().await;
    let known: Vec<&Value> = answers
        .iter()
        .filter_map(|(told, ..)| match told {
            Told::Lost(standing) => standing.as_ref(),
            Told::Won => None,
        })
        .collect();
    let winners: Vec<&str> =
        answers.iter().filter(|(told, ..)| *told == Told::Won).map(|(_, decision, _)| *decision).collect();
    let winner: Value = winners.first().map_or_else(|| known[0].clone(), |decision| json!(decision));
    assert!(winners.len() <= 1, "{winners:?}");
    for (told, decision, is_silent) in &answers {
        match told {
            Told::Lost(Some(standing)) => assert_eq!(*standing, winner, "everybody is told who won"),
            Told::Lost(None) => assert_ne!(winner, *decision, "who said the same has not lost"),
            Told::Won => assert!(!is_silent),
        }
    }
    (id, winner)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_answers_at_once_one_wins_and_everybody_is_told_which() {
    let gateway = TestGateway::start_for_v4().await;
    let watches = reviewer(&gateway, "watches", true).await;
    let (doors, asks) = (doors(&gateway).await, agent(&gateway).await);
    assert_eq!(doors.len(), 10);
    let mut winners: HashMap<String, Value> = HashMap::new();
    let mut racing = JoinSet::new();
    for nth in 0..APPROVALS {
        let request = json!({ "kind": "exec", "boundary": nth.to_string(), "content": { "argv": ["ls"] } });
        let reply = asks.call("approval.request", &request).await;
        let text = |pointer: &str| reply.at(pointer).as_str().unwrap().to_owned();
        let mut order = doors.clone();
        order.rotate_left(nth % doors.len());
        racing.spawn(race(order, text("/approval/id"), text("/approval/digest"), nth));
        if racing.len() == AT_ONCE {
            winners.extend(racing.join_next().await.transpose().unwrap());
        }
    }
    winners.extend(racing.join_all().await);
    assert_eq!(winners.len(), APPROVALS);

    let mut resolved: HashMap<String, usize> = HashMap::new();
    let (mut after, mut last) = (0, String::new());
    loop {
        let facts = gateway.store.events(after, 1_000).await.unwrap();
        let Some(end) = facts.last() else { break };
        after = end.seq;
        for fact in facts.iter().filter(|fact| matches!(fact.event, Event::Resolved { .. })) {
            last = fact.approval.to_string();
            *resolved.entry(last.clone()).or_default() += 1;
        }
    }
    assert_eq!(resolved.len(), APPROVALS);
    assert!(resolved.values().all(|count| *count == 1), "the trail has one end of each");

    let is_last =
        |event: &Value| event["event"] == "exec.approval.resolved" && event["payload"]["id"] == *last;
    assert!(watches.event(is_last).await.is_some());
    let events = watches.events();
    for what in ["exec.approval.requested", "exec.approval.resolved"] {
        let mut told: HashMap<&str, &Value> = HashMap::new();
        for event in events.iter().filter(|event| event["event"] == what) {
            let id = event["payload"]["id"].as_str().unwrap();
            assert!(told.insert(id, event).is_none(), "{what} of {id} twice");
        }
        assert_eq!(told.len(), APPROVALS, "{what}");
        if what.ends_with("resolved") {
            assert!(told.iter().all(|(id, event)| event["payload"]["decision"] == winners[*id]));
        }
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_at_once_always_finds_the_request_and_whoever_waits_for_it() {
    let gateway = TestGateway::start_for_v4().await;
    let answers = reviewer(&gateway, "answers", true).await;
    let asks = agent(&gateway).await;
    for turn in 0..1_000 {
        let id = format!("at-once-{turn}");
        let request = json!({ "id": id, "command": "ls", "twoPhase": true, "timeoutMs": 60_000 });
        let asked = asks.start_final("exec.approval.request", &request).await;
        if turn % 2 == 0 {
            assert_eq!(asked.accepted().await.unwrap()["id"], id);
        } else {
            let is_asked = |event: &Value| crate::stage::is_about(event, ".requested", &id);
            assert!(answers.event(is_asked).await.is_some());
        }
        let resolve = json!({ "id": id, "kind": "exec", "decision": "allow-once" });
        let reply = answers.call("approval.resolve", &resolve).await;
        assert_eq!(reply.at("/applied"), true, "{id}: {reply:?}");
        assert_eq!(asked.reply().await.at("/decision"), "allow-once", "{id}");
    }
    gateway.stop().await;
}
