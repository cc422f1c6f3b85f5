//! Requests: opening, answering, claiming, settling; and what is kept of them.

use holdgate_core::approval::{Binding, Bound, Outcome as Came, Status, TerminalReason};
use holdgate_core::requirement::Decision;
use holdgate_core::{Command, Fence, Refusal, Time};
use holdgate_store::{By, Caps, IdempotencyKey, Op, Outcome};

use super::{
    Backend, LIFE_MS, Stage, approval, claim, draft, duplicate, entry, hash, refusal, refused, sound, vote,
};

/// What is read back is what was answered, byte for byte.
pub async fn a_request_is_kept_as_it_was_opened(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let opened = stage.ask(&epoch, "t:1").await;
    assert_eq!(opened.status(), Status::Pending);
    assert_eq!(opened.created_at, stage.store().now());
    assert_eq!(opened.expires_at, opened.created_at.plus_ms(LIFE_MS));
    let seen = stage.seen(&opened.id).await;
    assert_eq!((seen.bound, &seen.place), (Bound::Live, &(opened.created_at, opened.id.clone())));
    assert_eq!(sound(seen), opened);

    let (run, fence) = stage.held_run("run_1").await;
    let kept = approval(stage.open(draft("t:1", Binding::Checkpoint(run)), Some(fence), &stage.agent).await);
    let seen = stage.seen(&kept.id).await;
    assert_eq!(seen.bound, Bound::Run { fence, held: true });
    assert_eq!(sound(seen), kept);
    assert!(kept.content.is_some(), "a stored run runs what is stored");
    assert_eq!(stage.find("apr_00000000000000000000000000000000").await, None);
}

/// Asking again is asking once.
pub async fn the_same_request_again_is_the_same_record(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let first = stage.ask(&epoch, "t:1").await;
    stage.clock.advance(10);
    let again = stage.open(draft("t:1", Binding::Runtime(epoch.clone())), None, &stage.agent).await;
    assert_eq!(duplicate(again), first);
    let decided = approval(stage.vote(&first, Decision::AllowOnce).await);
    let again = stage.open(draft("t:1", Binding::Runtime(epoch.clone())), None, &stage.agent).await;
    assert_eq!(duplicate(again), decided, "also after it was answered");
    assert_ne!(stage.ask(&epoch, "t:2").await.id, first.id);
}

/// The same key with the same body is one call; with another body it is refused; keys are each identity's own.
pub async fn a_key_names_one_body_of_one_identity(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let open = |boundary: &str, body: &str| Op::Open {
        draft: Box::new(draft(boundary, Binding::Runtime(epoch.clone()))),
        fence: None,
        by: By::from(&stage.agent),
        key: Some(IdempotencyKey { key: "k".to_owned(), body: hash(body) }),
        caps: Caps::default(),
    };
    let first = approval(stage.execute(open("t:1", "a")).await);
    assert_eq!(duplicate(stage.execute(open("t:1", "a")).await), first);
    assert_eq!(refusal(stage.execute(open("t:2", "b")).await), Refusal::IdempotencyMismatch);
    assert_eq!(
        stage.store().approvals(super::lists::all()).await.unwrap().len(),
        1,
        "the refused one was not written"
    );

    let others = stage.caller(&stage.other).await;
    let op = Op::Open {
        draft: Box::new(draft("t:1", Binding::Runtime(others))),
        fence: None,
        by: By::from(&stage.other),
        key: Some(IdempotencyKey { key: "k".to_owned(), body: hash("c") }),
        caps: Caps::default(),
    };
    assert_ne!(approval(stage.execute(op).await).id, first.id);
}

/// A live process keeps its action itself.
pub async fn what_waits_for_a_live_process_keeps_no_content(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let opened = stage.ask(&epoch, "t:1").await;
    assert_eq!(stage.stored(&opened.id).await.content, None);
}

/// From request to receipt, with every step repeated and contradicted.
pub async fn an_allow_is_claimed_once_and_settled_once(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    assert_eq!(refusal(stage.claim(&asked, "c1", None).await), Refusal::NotAllowed);

    let allowed = approval(stage.vote(&asked, Decision::AllowOnce).await);
    assert_eq!(duplicate(stage.vote(&asked, Decision::AllowOnce).await), allowed);
    let (why, winner) = refused(stage.vote(&asked, Decision::Deny).await);
    assert_eq!((why, winner.as_ref()), (Refusal::AlreadyDecided, Some(&allowed)));
    assert_eq!(refusal(stage.settle(&asked, "c1", Came::Succeeded).await), Refusal::NotClaimed);

    stage.clock.advance(5);
    let claimed = approval(stage.claim(&asked, "c1", None).await);
    assert_eq!(duplicate(stage.claim(&asked, "c1", None).await), claimed);
    let (why, winner) = refused(stage.claim(&asked, "c2", None).await);
    assert_eq!((why, winner.as_ref()), (Refusal::AlreadyClaimed, Some(&claimed)));
    assert_eq!(refusal(stage.settle(&asked, "c2", Came::Succeeded).await), Refusal::NotClaimed);

    stage.clock.advance(5);
    let settled = approval(stage.settle(&asked, "c1", Came::Failed).await);
    assert_eq!(duplicate(stage.settle(&asked, "c1", Came::Failed).await), settled);
    assert_eq!(refusal(stage.settle(&asked, "c1", Came::Succeeded).await), Refusal::AlreadySettled);
    assert_eq!(stage.stored(&asked.id).await, settled);
}

/// Whatever an agent sends, it does not resolve: neither its own request nor another's.
pub async fn an_agent_never_decides(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    let allow = || vote(&asked, Decision::AllowOnce);
    assert_eq!(refusal(stage.apply(&asked.id, allow(), &stage.agent).await), Refusal::NotAReviewer);
    assert_eq!(refusal(stage.apply(&asked.id, allow(), &stage.other).await), Refusal::NotFound);
    assert_eq!(refusal(stage.apply(&asked.id, Command::Expire, &stage.agent).await), Refusal::NotAReviewer);
    assert_eq!(stage.stored(&asked.id).await, asked);
}

/// To another agent a request does not exist, and no refusal carries its record.
pub async fn another_agent_sees_nothing(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    approval(stage.vote(&asked, Decision::AllowOnce).await);
    let absent = "apr_00000000000000000000000000000000".parse().unwrap();
    for id in [&asked.id, &absent] {
        let answer = stage.apply(id, claim(&asked, "c", None), &stage.other).await;
        assert_eq!(answer, Outcome::Refused(Refusal::NotFound, None));
    }
}

/// Who was shown something else decides nothing and runs nothing.
pub async fn a_stale_digest_changes_nothing(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    let digest = hash("something else");
    let vote = Command::Vote { decision: Decision::AllowOnce, digest, reason: None };
    assert_eq!(refusal(stage.apply(&asked.id, vote, &stage.reviewer).await), Refusal::StaleDigest);
    let allowed = approval(stage.vote(&asked, Decision::AllowOnce).await);
    let claim = Command::Claim { claim_id: "c".parse().unwrap(), digest, fence: None };
    assert_eq!(refusal(stage.apply(&asked.id, claim, &stage.agent).await), Refusal::StaleDigest);
    assert_eq!(stage.stored(&asked.id).await, allowed);
}

/// A requester may call its request off; then no answer counts.
pub async fn a_withdrawn_request_cannot_be_answered(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    let cancel = || Command::Cancel { reason: TerminalReason::Withdrawn };
    let cancelled = approval(stage.apply(&asked.id, cancel(), &stage.agent).await);
    assert_eq!(cancelled.status(), Status::Cancelled);
    assert_eq!(duplicate(stage.apply(&asked.id, cancel(), &stage.agent).await), cancelled);
    let (why, winner) = refused(stage.vote(&asked, Decision::AllowOnce).await);
    assert_eq!((why, winner), (Refusal::Cancelled, Some(cancelled)));
}

/// A record of every kind survives the process, unchanged.
pub async fn everything_is_there_after_reopening(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let mut kept = Vec::new();
    for boundary in ["pending", "denied", "allowed", "claimed", "settled", "withdrawn"] {
        let draft = draft(boundary, Binding::Checkpoint(run.clone()));
        kept.push(approval(stage.open(draft, Some(fence), &stage.agent).await));
    }
    kept[1] = approval(stage.vote(&kept[1], Decision::Deny).await);
    for asked in &mut kept[2..5] {
        *asked = approval(stage.vote(asked, Decision::AllowOnce).await);
    }
    for asked in &mut kept[3..5] {
        *asked = approval(stage.claim(asked, "c", Some(fence)).await);
    }
    kept[4] = approval(stage.settle(&kept[4], "c", Came::Succeeded).await);
    let withdraw = Command::Cancel { reason: TerminalReason::Withdrawn };
    kept[5] = approval(stage.apply(&kept[5].id, withdraw, &stage.agent).await);
    stage.append(entry(&run, fence, 0, &[r#"{"n":1}"#, r#"{"n":2}"#])).await;
    let (before, held) = (stage.store().now(), stage.store().run(&run).await.unwrap().unwrap());
    let journal = stage.store().run_events(&run, 0, 10).await.unwrap();

    stage.reopen().await;
    for asked in &kept {
        assert_eq!(stage.stored(&asked.id).await, *asked);
    }
    assert_eq!(stage.store().run(&run).await.unwrap(), Some(held));
    assert_eq!(stage.store().run_events(&run, 0, 10).await.unwrap(), journal);
    assert_eq!((journal.len(), fence), (2, Fence(1)));
    assert!(stage.store().now() >= before && before > Time::from_ms(0));
}
