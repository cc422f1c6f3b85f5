//! What is let in at all: how much may be pending, what is frozen, and what happens to a flood.

use holdgate_core::approval::{Binding, Outcome as Came};
use holdgate_core::limits::QUEUED_PER_PRINCIPAL;
use holdgate_core::requirement::Decision;
use holdgate_core::run::RunState;
use holdgate_core::{EpochId, Event, Principal, Refusal, Scopes};
use holdgate_store::{Administration, Answer, Append, By, Caps, Op, Outcome, StoreError};

use super::{
    Backend, LIFE_MS, Stage, approval, draft, draft_in, duplicate, entry, hand_in, open, principal, refusal,
};

const DONE: Outcome = Outcome::Committed(Answer::Done);

fn too_many(whose: &'static str, limit: u32) -> Refusal {
    Refusal::TooManyPending { whose, limit }
}

/// So many of one identity and so many of one session; what has ended makes room, and asking the same again needs none.
pub async fn as_many_may_be_pending_as_the_caps_say(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let by = By::from(&stage.agent);
    let ask = |session: &str, boundary: &str, epoch: &EpochId| Op::Open {
        draft: Box::new(draft_in(session, boundary, epoch)),
        fence: None,
        by: by.clone(),
        key: None,
        caps: Caps { per_principal: 3, per_session: 2 },
    };
    let first = approval(stage.execute(ask("one", "t:1", &epoch)).await);
    approval(stage.execute(ask("one", "t:2", &epoch)).await);
    assert_eq!(refusal(stage.execute(ask("ONE", "t:3", &epoch)).await), too_many("session", 2));
    approval(stage.execute(ask("two", "t:3", &epoch)).await);
    assert_eq!(refusal(stage.execute(ask("two", "t:4", &epoch)).await), too_many("agent", 3));
    assert_eq!(duplicate(stage.execute(ask("one", "t:1", &epoch)).await), first);

    let others = stage.caller(&stage.other).await;
    let others_ask = |boundary: &str| Op::Open {
        draft: Box::new(draft_in("one", boundary, &others)),
        fence: None,
        by: By::from(&stage.other),
        key: None,
        caps: Caps { per_principal: 3, per_session: 2 },
    };
    for boundary in ["o:1", "o:2"] {
        approval(stage.execute(others_ask(boundary)).await);
    }
    let full = refusal(stage.execute(others_ask("o:3")).await);
    assert_eq!(
        full,
        too_many("session", 2),
        "a session is as large for each who asks in it, and full for none but them"
    );
    approval(stage.vote(&first, Decision::Deny).await);
    approval(stage.execute(ask("one", "t:4", &epoch)).await);
    assert_eq!(refusal(stage.execute(ask("two", "t:5", &epoch)).await), too_many("agent", 3));

    stage.clock.advance(LIFE_MS);
    stage.sweep(10).await;
    stage.reopen().await;
    let epoch = stage.caller(&stage.agent).await;
    approval(stage.execute(ask("one", "t:1", &epoch)).await);
    approval(stage.execute(ask("one", "t:2", &epoch)).await);
    assert_eq!(refusal(stage.execute(ask("one", "t:3", &epoch)).await), too_many("session", 2));
}

/// An append is one request's worth of room for each that it opens; if there is not enough, it writes nothing.
pub async fn an_append_opens_no_more_than_the_caps_say(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let append = |boundaries: &[&str]| {
        let opens =
            boundaries.iter().map(|boundary| draft(boundary, Binding::Checkpoint(run.clone()))).collect();
        let append = Append { state: RunState::Suspended, opens, ..entry(&run, fence, 0, &["1"]) };
        Op::Append { append, by: By::from(&stage.agent), caps: Caps { per_principal: 2, per_session: 2 } }
    };
    assert_eq!(refusal(stage.execute(append(&["t:1", "t:2", "t:3"])).await), too_many("agent", 2));
    assert_eq!(stage.store().approvals(super::lists::all()).await.unwrap(), []);
    assert_eq!(stage.store().run_events(&run, 0, 10).await.unwrap(), []);
    let fits = stage.execute(append(&["t:1", "t:2", "t:1"])).await;
    assert!(matches!(fits, Outcome::Committed(Answer::Appended(..))), "{fits:?}");
}

/// Nothing new is asked or spent. What is under way goes on: answers, the same request, the same claim, its receipt.
pub async fn a_freeze_stops_what_is_new_and_nothing_else(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (run, fence) = stage.held_run("run_1").await;
    let claimed = stage.ask(&epoch, "t:1").await;
    approval(stage.vote(&claimed, Decision::AllowOnce).await);
    approval(stage.claim(&claimed, "c", None).await);
    let pending = stage.ask(&epoch, "t:2").await;
    stage.freeze(None).await;
    stage.reopen().await;

    let new = || draft("t:3", Binding::Runtime(epoch.clone()));
    assert_eq!(refusal(stage.open(new(), None, &stage.agent).await), Refusal::Frozen);
    let opens = vec![draft("t:1", Binding::Checkpoint(run.clone()))];
    let suspend = Append { opens, ..entry(&run, fence, 0, &["1"]) };
    assert_eq!(refusal(stage.append(suspend.clone()).await), Refusal::Frozen);
    let plain = stage.append(entry(&run, fence, 0, &["1"])).await;
    assert!(matches!(plain, Outcome::Committed(Answer::Appended(..))), "{plain:?}");
    let again = stage.open(draft("t:2", Binding::Runtime(epoch.clone())), None, &stage.agent).await;
    assert_eq!(duplicate(again), pending);
    let allowed = approval(stage.vote(&pending, Decision::AllowOnce).await);
    assert_eq!(refusal(stage.claim(&pending, "c", None).await), Refusal::Frozen);
    assert_eq!(stage.stored(&pending.id).await, allowed);
    duplicate(stage.claim(&claimed, "c", None).await);
    approval(stage.settle(&claimed, "c", Came::Succeeded).await);

    assert_eq!(stage.thaw(None).await, DONE);
    assert_eq!(stage.thaw(None).await, Outcome::Duplicate(Answer::Done));
    assert_eq!(stage.store().freezes().await.unwrap(), []);
    approval(stage.claim(&pending, "c", None).await);
    approval(stage.open(new(), None, &stage.agent).await);
}

/// One agent is frozen and the others go on; what is frozen twice is thawed twice.
pub async fn an_agent_is_frozen_alone(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (epoch, others) = (stage.caller(&stage.agent).await, stage.caller(&stage.other).await);
    let allowed = stage.ask(&epoch, "t:1").await;
    approval(stage.vote(&allowed, Decision::AllowOnce).await);
    stage.freeze(Some(&stage.agent)).await;
    let ask = async |boundary: &str| {
        stage.open(draft(boundary, Binding::Runtime(epoch.clone())), None, &stage.agent).await
    };
    let others_ask = async |boundary: &str| {
        stage.open(draft(boundary, Binding::Runtime(others.clone())), None, &stage.other).await
    };
    assert_eq!(refusal(ask("t:2").await), Refusal::Frozen);
    assert_eq!(refusal(stage.claim(&allowed, "c", None).await), Refusal::Frozen);
    approval(others_ask("t:1").await);

    stage.freeze(None).await;
    let frozen = stage.store().freezes().await.unwrap();
    let mut whom: Vec<_> = frozen.iter().map(|freeze| freeze.agent.clone()).collect();
    whom.sort();
    assert_eq!(whom, [None, Some(stage.agent.id.clone())]);
    for freeze in frozen {
        assert_eq!((freeze.at, freeze.reason.as_deref()), (stage.store().now(), Some("an incident")));
        assert!(!freeze.by.is_empty());
    }
    assert_eq!(refusal(others_ask("t:2").await), Refusal::Frozen);
    assert_eq!(stage.thaw(None).await, DONE);
    approval(others_ask("t:2").await);
    assert_eq!(refusal(ask("t:2").await), Refusal::Frozen);
    assert_eq!(stage.thaw(Some(&stage.other)).await, Outcome::Duplicate(Answer::Done));
    assert_eq!(stage.thaw(Some(&stage.agent)).await, DONE);
    approval(ask("t:2").await);
}

/// A freeze is an administrator's, on any device that has the scope and on no connection that has not.
pub async fn only_an_administrator_freezes(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let phone = stage.device_of("alice", "phone").await;
    stage.offer_pairing("desk", "alice", Scopes::ALL).await;
    let desk = principal(stage.pair("desk", "desk", "token of desk").await);
    let freeze = async |by: &Principal| {
        let change = Administration::Freeze { agent: None, reason: None };
        stage.execute(Op::Administer { change, by: By::from(by) }).await
    };
    let narrowed = stage.reviewer.clone().narrowed(Scopes::APPROVALS);
    let wide = Principal { scopes: Scopes::ALL, ..phone.clone() };
    for by in [&stage.agent, &phone, &wide, &narrowed] {
        assert_eq!(refusal(freeze(by).await), Refusal::NotAnAdministrator, "{}", by.id);
    }
    assert_eq!(stage.store().freezes().await.unwrap(), []);
    assert_eq!(freeze(&desk).await, DONE);
}

/// Who sends more than can be waiting is told so at once; nobody else waits behind it.
pub async fn a_flood_is_refused_and_holds_nobody_up(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (epoch, others) = (stage.caller(&stage.agent).await, stage.caller(&stage.other).await);
    let start = stage.facts(0).await.len();
    let held = backend.hold().await;
    let (mut waiting, mut flooded) = (Vec::new(), 0);
    for n in 0..3 * QUEUED_PER_PRINCIPAL {
        let ask = open(draft(&format!("t:{n}"), Binding::Runtime(epoch.clone())), None, &stage.agent);
        match hand_in(&**stage.store(), ask).await {
            Ok(answer) => waiting.push(answer),
            Err(Err(StoreError::Flooded(queued))) => {
                assert_eq!(queued, QUEUED_PER_PRINCIPAL);
                flooded += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(flooded > 0 && waiting.len() >= QUEUED_PER_PRINCIPAL, "{flooded} of {}", waiting.len());
    let mut served = Vec::new();
    for n in 0..3 {
        let ask = open(draft(&format!("t:{n}"), Binding::Runtime(others.clone())), None, &stage.other);
        match hand_in(&**stage.store(), ask).await {
            Ok(answer) => served.push(answer),
            Err(other) => panic!("another is not served: {other:?}"),
        }
    }
    drop(held);
    let flood = waiting.len();
    for answer in waiting.into_iter().chain(served) {
        approval(answer.await.unwrap());
    }
    let facts = stage.store().events(0, 10_000).await.unwrap().split_off(start);
    assert_eq!(facts.len(), flood + 3);
    assert!(facts.iter().all(|fact| fact.event == Event::Opened));
    let last = facts.iter().rposition(|fact| fact.by.id == stage.other.id).unwrap();
    assert!(last <= flood / 2, "{last} of {flood} came first");
    // Once there is room again, the flood's identity is served as well.
    stage.ask(&epoch, "t:after").await;
}
