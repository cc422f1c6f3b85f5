//! What has ended: how it is listed, and when it is removed.

use holdgate_core::action::reference;
use holdgate_core::approval::{Binding, Draft, Outcome as Came, Source};
use holdgate_core::limits::{RETENTION_MS, RUNTIME_LEASE_MS};
use holdgate_core::requirement::Decision;
use holdgate_core::run::{RunCommand, RunState};
use holdgate_core::{
    Action, Approval, ApprovalId, Canonical, EpochId, Kind, Principal, Refusal, Time, presentation,
};
use holdgate_store::{Append, HistoryFilter, Kinds, Op, Seen};

use super::{Backend, LIFE_MS, Stage, approval, draft, drain, entry, refusal, sound, touched};

/// A request to run a command, from a caller.
pub(super) fn command(boundary: &str, epoch: &EpochId) -> Draft {
    let content = Canonical::parse(r#"{"argv":["true"]}"#).unwrap();
    Draft {
        presentation: presentation::present(Kind::Exec, &content.to_value()).unwrap(),
        action: Action::freeze(Kind::Exec, boundary, content).unwrap(),
        source: Source::default(),
        ..draft(boundary, Binding::Runtime(epoch.clone()))
    }
}

async fn history(stage: &Stage<'_>, filter: HistoryFilter) -> Vec<Approval> {
    let seen = stage.store().history(filter).await.unwrap();
    let ended = |seen: Seen| {
        let place = seen.place.clone();
        let ended = sound(seen);
        assert_eq!(place, place_of(&ended), "its place in this list is when it ended");
        ended
    };
    seen.into_iter().map(ended).collect()
}

fn place_of(ended: &Approval) -> (Time, ApprovalId) {
    (ended.end().unwrap().at, ended.id.clone())
}

/// By when it ended, whenever it was asked. What is pending is in no history.
pub async fn history_is_in_the_order_of_the_ends(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut asked = Vec::new();
    for n in 0..4 {
        asked.push(stage.ask(&epoch, &format!("t:{n}")).await);
    }
    asked.push(approval(stage.open(command("exec", &epoch), None, &stage.agent).await));
    for n in [2, 0, 4, 3] {
        stage.clock.advance(1);
        asked[n] = approval(stage.vote(&asked[n], Decision::AllowOnce).await);
    }
    stage.clock.advance(1);
    asked[0] = approval(stage.claim(&asked[0], "c", None).await);
    stage.reopen().await;

    let of = |kind: Option<Kind>, before, limit| HistoryFilter {
        kinds: kind.into(),
        before,
        limit,
        ..HistoryFilter::default()
    };
    let expect = |indices: &[usize]| indices.iter().map(|&i| asked[i].clone()).collect::<Vec<_>>();
    assert_eq!(history(&stage, of(None, None, 10)).await, expect(&[3, 4, 0, 2]), "a claim is no end");
    assert_eq!(history(&stage, of(None, None, 1)).await, expect(&[3]));
    assert_eq!(history(&stage, of(Some(Kind::Exec), None, 10)).await, expect(&[4]));
    let before = Some(place_of(&asked[3]));
    assert_eq!(history(&stage, of(Some(Kind::Tool), before, 10)).await, expect(&[0, 2]));
    assert_eq!(history(&stage, of(Some(Kind::Plan), None, 10)).await, []);
    let others = HistoryFilter { kinds: Kinds::Except(Kind::Exec), ..of(None, None, 2) };
    assert_eq!(history(&stage, others.clone()).await, expect(&[3, 0]));
    let own = |by: &Principal| HistoryFilter { requester: Some(by.id.clone()), ..others.clone() };
    assert_eq!(history(&stage, own(&stage.agent)).await, expect(&[3, 0]));
    assert_eq!(history(&stage, own(&stage.other)).await, []);
}

/// Page by page, each record that had ended at the start is seen once, though many ended at the same time and more
/// end in between.
pub async fn pages_of_history_stay_in_place_while_more_ends(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut later = Vec::new();
    let mut there = Vec::new();
    for n in 0..9 {
        stage.clock.advance(i64::from(n % 3 == 0));
        let asked = stage.ask(&epoch, &format!("t:{n}")).await;
        there.push(approval(stage.vote(&asked, Decision::Deny).await).id);
        later.push(stage.ask(&epoch, &format!("later:{n}")).await);
    }
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = history(&stage, HistoryFilter { before, limit: 2, ..HistoryFilter::default() }).await;
        let Some(last) = page.last() else { break };
        before = Some(place_of(last));
        found.extend(page.into_iter().map(|ended| ended.id));
        stage.clock.advance(1);
        approval(stage.vote(&later.pop().unwrap(), Decision::AllowOnce).await);
    }
    assert_eq!(found.len(), there.len());
    there.sort();
    found.sort();
    assert_eq!(found, there);
}

async fn prune(stage: &Stage<'_>, limit: u32) -> u32 {
    let before = stage.store().now().plus_ms(-RETENTION_MS);
    touched(stage.execute(Op::Prune { before, limit }).await)
}

/// To the millisecond, in bounded steps. The record goes with its votes; what is known to have happened stays, and
/// nobody is told, for nothing has.
pub async fn what_ended_long_ago_is_removed_and_its_facts_stay(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut old = Vec::new();
    for n in 0..4 {
        let asked = stage.ask(&epoch, &format!("t:{n}")).await;
        let decision = if n == 0 { Decision::Deny } else { Decision::AllowOnce };
        old.push(approval(stage.vote(&asked, decision).await));
    }
    approval(stage.claim(&old[1], "c", None).await);
    approval(stage.settle(&old[1], "c", Came::Failed).await);
    let revoke = holdgate_core::Command::Revoke { reason: None };
    approval(stage.apply(&old[2].id, revoke, &stage.reviewer).await);
    stage.clock.advance(1);
    let asked = stage.ask(&epoch, "t:young").await;
    let young = approval(stage.vote(&asked, Decision::Deny).await);
    let facts = stage.facts(0).await;

    stage.clock.advance(RETENTION_MS - 1);
    assert_eq!(prune(&stage, 10).await, 0);
    stage.clock.advance(1);
    let mut notices = stage.store().notices();
    assert_eq!([prune(&stage, 3).await, prune(&stage, 3).await, prune(&stage, 3).await], [3, 1, 0]);
    assert!(drain(&mut notices).is_empty());
    stage.reopen().await;
    for gone in &old {
        assert_eq!((stage.find(gone.id.as_str()).await, stage.find(&gone.reference()).await), (None, None));
    }
    assert_eq!(stage.stored(&young.id).await, young);
    assert_eq!(history(&stage, HistoryFilter { limit: 10, ..HistoryFilter::default() }).await, [young]);
    assert_eq!(stage.facts(0).await, facts);
    stage.clock.advance(1);
    assert_eq!(prune(&stage, 10).await, 1);
}

/// A claim that nobody has settled, a run that goes on, and what nobody has ended: however old, they stay.
pub async fn what_is_still_open_is_not_removed(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (pending, unsettled) = (stage.ask(&epoch, "t:1").await, stage.ask(&epoch, "t:2").await);
    approval(stage.vote(&unsettled, Decision::AllowOnce).await);
    approval(stage.claim(&unsettled, "c", None).await);
    let (run, fence) = stage.held_run("run_1").await;
    let of_run = draft("t:1", Binding::Checkpoint(run.clone()));
    let of_run = approval(stage.open(of_run, Some(fence), &stage.agent).await);
    approval(stage.vote(&of_run, Decision::Deny).await);

    stage.clock.advance(2 * RETENTION_MS);
    assert_eq!(prune(&stage, 10).await, 0);
    for open in [&pending, &unsettled, &of_run] {
        stage.stored(&open.id).await;
    }
    // The sweep writes down that its time was up just now, and that nobody knows what came of the claim.
    assert_eq!(stage.sweep(10).await, 2);
    assert_eq!(prune(&stage, 10).await, 1, "what was unsettled ended long ago");
    assert_eq!(stage.find(unsettled.id.as_str()).await, None);
    let fence = stage.hold(&run, RunCommand::Lease).await.unwrap().fence;
    let finish = Append { state: RunState::Finished, ..entry(&run, fence, 0, &["1"]) };
    stage.append(finish).await;
    assert_eq!(prune(&stage, 10).await, 1, "its run has ended");
    stage.clock.advance(RETENTION_MS + 1);
    assert_eq!(prune(&stage, 10).await, 1);
    assert_eq!(stage.find(pending.id.as_str()).await, None);
}

/// A record that is gone keeps its names: an old link or button never leads to another request.
pub async fn a_name_is_not_given_again_when_its_record_is_gone(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let named = |id: &str, epoch: &EpochId| {
        let id = Some(id.parse().unwrap());
        Draft { id, ..draft("t:1", Binding::Runtime(epoch.clone())) }
    };
    let old = approval(stage.open(named("mine", &epoch), None, &stage.agent).await);
    approval(stage.vote(&old, Decision::Deny).await);
    stage.clock.advance(RETENTION_MS + LIFE_MS + RUNTIME_LEASE_MS);
    assert_eq!(prune(&stage, 10).await, 1);
    stage.reopen().await;
    let epoch = stage.caller(&stage.other).await;
    for name in ["mine".to_owned(), reference(Kind::Tool, &old.id)] {
        assert_eq!(stage.find(&name).await, None);
        let again = stage.open(named(&name, &epoch), None, &stage.other).await;
        assert_eq!(refusal(again), Refusal::IdTaken, "{name}");
    }
    approval(stage.open(named("yours", &epoch), None, &stage.other).await);
}
