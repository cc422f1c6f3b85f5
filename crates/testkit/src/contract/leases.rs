//! Epochs: they lapse, renew, end and are succeeded; what was bound to them follows.

use holdgate_core::approval::{Binding, Bound, Outcome as Came, Status, TerminalReason};
use holdgate_core::limits::{RUN_LEASE_MS, RUNTIME_LEASE_MS};
use holdgate_core::requirement::Decision;
use holdgate_core::{Approval, Refusal};
use holdgate_store::{Answer, By, Op, Outcome, RuntimeKind};

use super::{Backend, Stage, approval, draft, duplicate, refusal, refused};

/// A vote on a request whose process is gone is refused, and the record says why it ended.
async fn is_cancelled(stage: &Stage<'_>, asked: &Approval, reason: TerminalReason) {
    let (why, winner) = refused(stage.vote(asked, Decision::AllowOnce).await);
    let winner = winner.expect("a reviewer sees the record");
    assert_eq!((why, winner.status()), (Refusal::Cancelled, Status::Cancelled));
    assert_eq!(winner.end().unwrap().reason, reason);
    assert_eq!(stage.stored(&asked.id).await, winner, "it is written down");
}

/// Exactly at its lease's end a caller is gone, and what it asked is cancelled.
pub async fn an_epoch_that_is_not_renewed_lapses(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (first, second) = (stage.ask(&epoch, "t:1").await, stage.ask(&epoch, "t:2").await);
    stage.clock.advance(RUNTIME_LEASE_MS - 1);
    approval(stage.vote(&first, Decision::AllowOnce).await);
    stage.clock.advance(1);
    assert_eq!(stage.seen(&second.id).await.bound, Bound::CallerGone);
    is_cancelled(&stage, &second, TerminalReason::CallerLost).await;
    assert_eq!(refusal(stage.renew(&epoch, &stage.agent).await), Refusal::EpochLapsed);
    let late = stage.open(draft("t:3", Binding::Runtime(epoch)), None, &stage.agent).await;
    assert_eq!(refusal(late), Refusal::EpochLapsed);
}

/// Each renewal is worth a full lease.
pub async fn a_renewed_epoch_lives_on(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    for _ in 0..3 {
        stage.clock.advance(RUNTIME_LEASE_MS - 1);
        let Outcome::Committed(Answer::Runtime(runtime)) = stage.renew(&epoch, &stage.agent).await else {
            panic!("a live epoch can be renewed")
        };
        assert_eq!(runtime.lease_until, stage.store().now().plus_ms(RUNTIME_LEASE_MS));
    }
    approval(stage.vote(&asked, Decision::AllowOnce).await);
}

/// Starting again is the same start while it lives, and refused after.
pub async fn an_epoch_is_started_once(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let start = |by: &holdgate_core::Principal| Op::StartRuntime {
        epoch: epoch.clone(),
        kind: RuntimeKind::Caller,
        by: By::from(by),
    };
    let again = stage.execute(start(&stage.agent)).await;
    assert!(matches!(again, Outcome::Duplicate(Answer::Runtime(_))), "{again:?}");
    assert_eq!(refusal(stage.execute(start(&stage.other)).await), Refusal::EpochLapsed);
    stage.clock.advance(RUNTIME_LEASE_MS);
    assert_eq!(refusal(stage.execute(start(&stage.agent)).await), Refusal::EpochLapsed);
}

/// An epoch is its owner's. A gateway's is lent to callers that have none, but only the gateway keeps it.
pub async fn another_cannot_renew_or_use_an_epoch(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    assert_eq!(refusal(stage.renew(&epoch, &stage.other).await), Refusal::NotFound);
    let open = stage.open(draft("t:1", Binding::Runtime(epoch)), None, &stage.other).await;
    assert_eq!(refusal(open), Refusal::NotFound);

    let gateway = stage.gateway("here").await;
    let own = approval(stage.open(draft("t:1", Binding::Runtime(gateway.clone())), None, &stage.agent).await);
    let others =
        approval(stage.open(draft("t:1", Binding::Runtime(gateway.clone())), None, &stage.other).await);
    assert_ne!(own.id, others.id, "the same request of two identities is two");
    assert_eq!(refusal(stage.renew(&gateway, &stage.agent).await), Refusal::NotFound);
}

/// What the gateway's last life held ends with the start of the next. Another instance's does not.
pub async fn a_starting_gateway_ends_its_own_earlier_epoch_only(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (here, there) = (stage.gateway("here").await, stage.gateway("there").await);
    let ours = approval(stage.open(draft("t:1", Binding::Runtime(here)), None, &stage.agent).await);
    let theirs = approval(stage.open(draft("t:1", Binding::Runtime(there)), None, &stage.agent).await);
    stage.gateway("here").await;
    assert_eq!(stage.seen(&ours.id).await.bound, Bound::GatewayGone);
    is_cancelled(&stage, &ours, TerminalReason::GatewayRestart).await;
    approval(stage.vote(&theirs, Decision::AllowOnce).await);
}

/// A caller could not renew while no gateway ran, so it gets one full lease; who was gone before stays gone.
pub async fn a_starting_gateway_spares_the_living_and_revives_nobody(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    stage.gateway("here").await;
    let gone = stage.caller(&stage.agent).await;
    let of_gone = stage.ask(&gone, "t:1").await;
    stage.clock.advance(RUNTIME_LEASE_MS - 10);
    let alive = stage.caller(&stage.agent).await;
    let (run, _) = stage.held_run("run_1").await;
    stage.clock.advance(20);
    let of_alive = stage.ask(&alive, "t:2").await;

    stage.clock.advance(5 * RUNTIME_LEASE_MS);
    // A start that fails has written something before it did; that spoils nothing for the next.
    stage.reopen().await;
    stage.provide(&stage.reviewer, "changed").await;
    stage.clock.advance(5 * RUNTIME_LEASE_MS);
    stage.reopen().await;
    stage.provide(&stage.reviewer, "changed again").await;
    stage.gateway("here").await;
    let now = stage.store().now();
    assert_eq!(stage.seen(&of_alive.id).await.bound, Bound::Live);
    assert!(stage.store().run(&run).await.unwrap().unwrap().is_held(now), "a runner is a caller too");
    stage.clock.advance(RUNTIME_LEASE_MS - 1);
    approval(stage.vote(&of_alive, Decision::AllowOnce).await);
    is_cancelled(&stage, &of_gone, TerminalReason::CallerLost).await;
    assert_eq!(refusal(stage.renew(&gone, &stage.agent).await), Refusal::EpochLapsed);
}

/// A run that owned the file by itself, without a gateway, and crashed is not taken for one that is cut off.
pub async fn a_starting_gateway_spares_no_lease_that_was_taken_without_one(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    stage.gateway("here").await;
    stage.clock.advance(1);
    stage.reopen().await;
    let (run, _) = stage.held_run("run_1").await;
    stage.clock.advance(RUN_LEASE_MS);
    stage.reopen().await;
    stage.gateway("here").await;
    let now = stage.store().now();
    assert!(!stage.store().run(&run).await.unwrap().unwrap().is_held(now));
}

/// Only what could not renew is spared: not what lapsed while the store was open and a gateway ran.
pub async fn a_second_start_in_one_opening_revives_nobody(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    stage.gateway("here").await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    stage.clock.advance(RUNTIME_LEASE_MS);
    stage.caller(&stage.other).await;
    stage.gateway("here").await;
    assert_eq!(stage.seen(&asked.id).await.bound, Bound::CallerGone);
}

/// An allow for a process that is gone is spent by nobody.
pub async fn a_claim_needs_its_live_epoch(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    approval(stage.vote(&asked, Decision::AllowOnce).await);
    stage.clock.advance(RUNTIME_LEASE_MS);
    assert_eq!(refusal(stage.claim(&asked, "c", None).await), Refusal::EpochLapsed);
}

/// Nobody invents an outcome; the claimer's own word, however late, replaces only what nobody knew.
pub async fn a_claim_whose_holder_is_gone_becomes_unknown_and_a_late_receipt_replaces_that(
    backend: &dyn Backend,
) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let of_epoch = stage.ask(&epoch, "t:1").await;
    let (run, fence) = stage.held_run("run_1").await;
    let of_run =
        approval(stage.open(draft("t:1", Binding::Checkpoint(run)), Some(fence), &stage.agent).await);
    for (asked, fence) in [(&of_epoch, None), (&of_run, Some(fence))] {
        approval(stage.vote(asked, Decision::AllowOnce).await);
        approval(stage.claim(asked, "c", fence).await);
    }
    assert_eq!(stage.sweep(10).await, 0, "both holders live");
    stage.clock.advance(RUNTIME_LEASE_MS);
    assert_eq!(stage.sweep(10).await, 2);
    for asked in [&of_epoch, &of_run] {
        let claim = stage.stored(&asked.id).await.claim().unwrap().clone();
        assert_eq!(claim.receipt.unwrap().outcome, Came::Unknown);
        let settled = approval(stage.settle(asked, "c", Came::Succeeded).await);
        assert_eq!(settled.claim().unwrap().receipt.as_ref().unwrap().outcome, Came::Succeeded);
        assert_eq!(duplicate(stage.settle(asked, "c", Came::Succeeded).await), settled);
        assert_eq!(refusal(stage.settle(asked, "c", Came::Failed).await), Refusal::AlreadySettled);
    }
    assert_eq!(stage.sweep(10).await, 0);
}
