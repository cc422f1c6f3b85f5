//! Time: deadlines are exact, clocks cannot revive anything, and what time has decided gets written down.

use holdgate_core::approval::{Binding, Status, TerminalReason};
use holdgate_core::limits::{RUN_LEASE_MS, RUNTIME_LEASE_MS};
use holdgate_core::requirement::Decision;
use holdgate_core::run::RunCommand;
use holdgate_core::{Approval, Refusal, Time};
use holdgate_store::Filter;

use super::{Backend, LIFE_MS, Stage, approval, draft, refused, sound};

/// A request of a stored run: nothing but its deadline ends it.
async fn ask_for_run(stage: &Stage<'_>, run: &str, life_ms: i64) -> Approval {
    let (run, fence) = stage.held_run(run).await;
    let draft = holdgate_core::approval::Draft {
        timeout_ms: life_ms,
        ..draft("t:1", Binding::Checkpoint(run.clone()))
    };
    let asked = approval(stage.open(draft, Some(fence), &stage.agent).await);
    stage.hold(&run, RunCommand::Release { fence }).await.unwrap();
    asked
}

async fn is_expired(stage: &Stage<'_>, asked: &Approval) {
    let (why, winner) = refused(stage.vote(asked, Decision::AllowOnce).await);
    let winner = winner.expect("a reviewer sees the record");
    assert_eq!((why, winner.status()), (Refusal::Expired, Status::Expired));
    assert_eq!(winner.end().unwrap().reason, TerminalReason::Timeout);
}

/// One millisecond before it, an answer counts; at it, silence has denied.
pub async fn a_request_ends_exactly_at_its_deadline(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (first, second) =
        (ask_for_run(&stage, "run_1", LIFE_MS).await, ask_for_run(&stage, "run_2", LIFE_MS).await);
    stage.clock.advance(LIFE_MS - 1);
    approval(stage.vote(&first, Decision::AllowOnce).await);
    stage.clock.advance(1);
    is_expired(&stage, &second).await;
}

/// The refusal that a late answer gets has made the end durable.
pub async fn what_time_decided_is_written_down_by_who_comes_next(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let asked = ask_for_run(&stage, "run_1", LIFE_MS).await;
    stage.clock.advance(LIFE_MS + 5);
    let read = stage.seen(&asked.id).await;
    assert_eq!(sound(read), asked, "a read writes nothing");
    is_expired(&stage, &asked).await;
    let written = stage.stored(&asked.id).await;
    assert_eq!(written.end().unwrap().at, asked.expires_at.plus_ms(5));
    let expired = Filter { status: Some(Status::Expired), limit: 10, ..Filter::default() };
    assert_eq!(stage.store().approvals(expired).await.unwrap().len(), 1);
    stage.reopen().await;
    assert_eq!(stage.stored(&asked.id).await, written);
}

/// Neither in one life of the store nor across two does a clock that goes back give time back.
pub async fn a_clock_set_back_revives_nothing(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let start = stage.store().now();
    let (first, second) =
        (ask_for_run(&stage, "run_1", 1_000).await, ask_for_run(&stage, "run_2", 1_000).await);
    stage.clock.advance(1_000);
    // Something is committed after the deadline; nobody has looked at the two.
    stage.create_run("run_3").await;
    stage.clock.set_wall(Time::from_ms(0));
    assert_eq!(stage.store().now(), start.plus_ms(1_000));
    is_expired(&stage, &first).await;

    stage.reopen().await;
    assert_eq!(stage.store().now(), start.plus_ms(1_000));
    is_expired(&stage, &second).await;
    stage.clock.advance(7);
    assert_eq!(stage.store().now(), start.plus_ms(1_007), "time goes on from where it was");
}

/// Moved forward, it ends things early, which fails closed; moved back again, they stay ended.
pub async fn a_clock_set_forward_ends_things_for_good(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let start = stage.store().now();
    let asked = ask_for_run(&stage, "run_1", LIFE_MS).await;
    stage.clock.set_wall(start.plus_ms(LIFE_MS));
    is_expired(&stage, &asked).await;
    stage.clock.set_wall(start);
    is_expired(&stage, &asked).await;
    stage.reopen().await;
    is_expired(&stage, &asked).await;
}

/// A sweep touches so many and no more, and in the end all; each once.
pub async fn a_sweep_is_bounded_and_complete(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut asked = Vec::new();
    for n in 0..3 {
        asked.push(stage.ask(&epoch, &format!("t:{n}")).await);
        asked.push(ask_for_run(&stage, &format!("run_{n}"), 1_000).await);
    }
    assert_eq!(stage.sweep(10).await, 0);
    stage.clock.advance(RUNTIME_LEASE_MS);
    let swept = [stage.sweep(4).await, stage.sweep(4).await, stage.sweep(4).await];
    assert_eq!(swept, [4, 2, 0]);
    for (n, asked) in asked.iter().enumerate() {
        let expected = if n % 2 == 0 { Status::Cancelled } else { Status::Expired };
        assert_eq!(stage.stored(&asked.id).await.status(), expected);
    }
}

/// The authority can sleep until then and misses nothing.
pub async fn the_next_instant_is_known(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let next = async || stage.store().next_due().await.unwrap();
    let start = stage.store().now();
    assert_eq!(next().await, None);
    let asked = ask_for_run(&stage, "run_1", LIFE_MS).await;
    assert_eq!(next().await, Some(asked.expires_at));
    let epoch = stage.caller(&stage.agent).await;
    assert_eq!(next().await, Some(asked.expires_at), "nothing waits for that lease yet");
    let of_epoch = stage.ask(&epoch, "t:1").await;
    assert_eq!(next().await, Some(start.plus_ms(RUNTIME_LEASE_MS)));
    approval(stage.vote(&of_epoch, Decision::AllowOnce).await);
    assert_eq!(next().await, Some(asked.expires_at), "an allow alone waits for nothing");
    approval(stage.claim(&of_epoch, "c", None).await);
    assert_eq!(next().await, Some(start.plus_ms(RUNTIME_LEASE_MS)));

    let run = "run_1".parse().unwrap();
    let fence = stage.hold(&run, RunCommand::Lease).await.unwrap().fence;
    approval(stage.vote(&asked, Decision::AllowOnce).await);
    approval(stage.claim(&asked, "c", Some(fence)).await);
    assert_eq!(next().await, Some(start.plus_ms(RUN_LEASE_MS)));
    stage.hold(&run, RunCommand::Release { fence }).await.unwrap();
    assert!(next().await.unwrap() <= stage.store().now(), "its holder has let go: it is due now");
    assert_eq!(stage.sweep(10).await, 1);
    stage.clock.advance(RUNTIME_LEASE_MS);
    assert_eq!(stage.sweep(10).await, 1);
    assert_eq!(next().await, None);
}
