//! Runs: one holder at a time, a journal that only grows, and requests that become durable with it.

use holdgate_core::approval::{Binding, Bound, Outcome as Came, Status, TerminalReason};
use holdgate_core::limits::{EVENTS_PAGE_BYTES, RUN_LEASE_MS};
use holdgate_core::requirement::Decision;
use holdgate_core::run::{RunCommand, RunState};
use holdgate_core::{Approval, Fence, Principal, Refusal, Run, RunId};
use holdgate_store::{Answer, Append, By, Caps, Op, Outcome};

use super::{Backend, Stage, approval, draft, entry, refusal, refused, touched};

fn appended(outcome: Outcome) -> (Run, Vec<Approval>) {
    match outcome {
        Outcome::Committed(Answer::Appended(run, opened)) => (run, opened),
        other => panic!("not an append: {other:?}"),
    }
}

async fn events(stage: &Stage<'_>, run: &RunId, after: u64, limit: u32) -> Vec<(u64, String)> {
    let entries = stage.store().run_events(run, after, limit).await.unwrap();
    entries.into_iter().map(|entry| (entry.seq, entry.event)).collect()
}

/// Creating again before anything has happened is creating once; over something else it is refused.
pub async fn a_run_is_created_once(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let id = stage.create_run("run_1").await;
    let create =
        |agent: &str| Op::CreateRun { id: id.clone(), agent: agent.to_owned(), by: By::from(&stage.agent) };
    let again = stage.execute(create("releaser")).await;
    assert!(matches!(again, Outcome::Duplicate(Answer::Run(_))), "{again:?}");
    assert_eq!(refusal(stage.execute(create("another")).await), Refusal::RunExists);
    stage.hold(&id, RunCommand::Lease).await.unwrap();
    assert_eq!(refusal(stage.execute(create("releaser")).await), Refusal::RunExists);
    let run = stage.store().run(&id).await.unwrap().unwrap();
    assert_eq!((run.fence, run.last_seq, run.state), (Fence(1), 0, RunState::Running));
    assert_eq!(stage.store().run(&"run_2".parse().unwrap()).await.unwrap(), None);
}

/// Events are numbered from 1 without a gap, and an append from another place is refused.
pub async fn a_journal_keeps_its_order_and_its_place(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let (at, _) = appended(stage.append(entry(&run, fence, 0, &["1", "2"])).await);
    assert_eq!(at.last_seq, 2);
    for wrong in [0, 1, 3] {
        assert_eq!(refusal(stage.append(entry(&run, fence, wrong, &["9"])).await), Refusal::JournalMoved);
    }
    appended(stage.append(entry(&run, fence, 2, &["3"])).await);
    let all = vec![(1, "1".to_owned()), (2, "2".to_owned()), (3, "3".to_owned())];
    assert_eq!(events(&stage, &run, 0, 10).await, all);
    assert_eq!(events(&stage, &run, 1, 1).await, all[1..2]);
    assert_eq!(events(&stage, &run, 3, 10).await, []);
    assert_eq!(events(&stage, &run, u64::MAX, 10).await, []);
}

/// Few large events fill a page as many small ones do; and however large an event is, a reader gets on.
pub async fn a_page_of_a_journal_is_bounded_in_bytes(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let large = format!("\"{}\"", "x".repeat(EVENTS_PAGE_BYTES / 3));
    let endless = format!("\"{}\"", "y".repeat(EVENTS_PAGE_BYTES));
    let written = [large.as_str(), &large, &large, &endless, "5"];
    appended(stage.append(entry(&run, fence, 0, &written)).await);
    let mut pages = Vec::new();
    let mut read = Vec::new();
    while read.len() < written.len() {
        let page = events(&stage, &run, read.len() as u64, 1_000).await;
        pages.push(page.len());
        read.extend(page.into_iter().map(|(_, event)| event));
    }
    assert_eq!(pages, [2, 1, 1, 1]);
    assert!(read == written, "what is read page by page is what was written");
}

/// Once another process has taken the run over, its former holder neither writes, asks, keeps nor claims.
pub async fn a_stale_fence_can_do_nothing(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, stale) = stage.held_run("run_1").await;
    let binding = Binding::Checkpoint(run.clone());
    let asked = approval(stage.open(draft("t:1", binding.clone()), Some(stale), &stage.agent).await);
    approval(stage.vote(&asked, Decision::AllowOnce).await);
    stage.hold(&run, RunCommand::Release { fence: stale }).await.unwrap();
    let current = stage.hold(&run, RunCommand::Lease).await.unwrap().fence;
    assert_eq!(current, Fence(stale.0 + 1));

    assert_eq!(refusal(stage.append(entry(&run, stale, 0, &["1"])).await), Refusal::FenceLapsed);
    assert_eq!(
        refusal(stage.open(draft("t:2", binding), Some(stale), &stage.agent).await),
        Refusal::FenceLapsed
    );
    for fence in [Some(stale), None] {
        assert_eq!(refusal(stage.claim(&asked, "c", fence).await), Refusal::FenceLapsed);
    }
    for command in [RunCommand::Renew { fence: stale }, RunCommand::Release { fence: stale }] {
        assert_eq!(stage.hold(&run, command).await, Err(Refusal::FenceLapsed));
    }
    approval(stage.claim(&asked, "c", Some(current)).await);
    assert_eq!(events(&stage, &run, 0, 10).await, []);
}

/// A crashed holder keeps others out for one lease, to the millisecond.
pub async fn a_lapsed_lease_lets_the_next_holder_in(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    stage.clock.advance(RUN_LEASE_MS - 1);
    let held = stage.hold(&run, RunCommand::Lease).await;
    assert_eq!(held, Err(Refusal::RunHeld { lapses_in_ms: 1 }));
    stage.hold(&run, RunCommand::Renew { fence }).await.unwrap();
    stage.clock.advance(RUN_LEASE_MS);
    assert_eq!(stage.hold(&run, RunCommand::Lease).await.unwrap().fence, Fence(2));
}

/// The journal's entry, the run's state and the requests are there together.
pub async fn an_append_and_its_requests_are_one(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let opens = ["t:1", "t:2"].map(|boundary| draft(boundary, Binding::Checkpoint(run.clone()))).to_vec();
    let suspend =
        Append { state: RunState::Suspended, opens, ..entry(&run, fence, 0, &[r#"{"suspended":true}"#]) };
    let (left, opened) = appended(stage.append(suspend).await);
    assert_eq!((left.state, left.held_until, opened.len()), (RunState::Suspended, None, 2));
    stage.reopen().await;
    assert_eq!(stage.store().run(&run).await.unwrap(), Some(left));
    assert_eq!(events(&stage, &run, 0, 10).await.len(), 1);
    for asked in &opened {
        assert_eq!(stage.stored(&asked.id).await, *asked);
    }
}

/// If anything about an append is refused, nothing of it is written.
pub async fn a_refused_append_writes_nothing(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let (other, _) = stage.held_run("run_2").await;
    let before = stage.store().run(&run).await.unwrap();
    let good = || draft("t:1", Binding::Checkpoint(run.clone()));
    let foreign = draft("t:2", Binding::Checkpoint(other));
    let stale = Append { opens: vec![good()], ..entry(&run, Fence(9), 0, &["1"]) };
    let moved = Append { opens: vec![good()], ..entry(&run, fence, 5, &["1"]) };
    let smuggled = Append { opens: vec![good(), foreign], ..entry(&run, fence, 0, &["1"]) };
    for (append, why) in
        [(stale, Refusal::FenceLapsed), (moved, Refusal::JournalMoved), (smuggled, Refusal::NotFound)]
    {
        assert_eq!(refusal(stage.append(append).await), why);
        assert_eq!(stage.store().approvals(super::lists::all()).await.unwrap(), []);
        assert_eq!(events(&stage, &run, 0, 10).await, []);
        assert_eq!(stage.store().run(&run).await.unwrap(), before);
    }
}

/// Two calls that are the same to a reviewer are one request.
pub async fn the_same_request_twice_in_an_append_is_one(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let twice = || vec![draft("t:1", Binding::Checkpoint(run.clone())); 2];
    let (_, opened) =
        appended(stage.append(Append { opens: twice(), ..entry(&run, fence, 0, &["1"]) }).await);
    assert_eq!((opened.len(), &opened[0]), (2, &opened[1]));
    let (_, again) = appended(stage.append(Append { opens: twice(), ..entry(&run, fence, 1, &["2"]) }).await);
    assert_eq!(again, opened);
    assert_eq!(stage.store().approvals(super::lists::all()).await.unwrap().len(), 1);
}

/// The journal of a run that ended is closed.
pub async fn an_ended_run_takes_no_more(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let finish = Append { state: RunState::Finished, ..entry(&run, fence, 0, &["1"]) };
    appended(stage.append(finish).await);
    assert_eq!(refusal(stage.append(entry(&run, fence, 1, &["2"])).await), Refusal::RunEnded);
    assert_eq!(events(&stage, &run, 0, 10).await.len(), 1);
}

/// To another identity a run does not exist.
pub async fn another_owner_finds_no_run(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let by = By::from(&stage.other);
    let append = Op::Append { append: entry(&run, fence, 0, &["1"]), by: by.clone(), caps: Caps::default() };
    let lease = Op::HoldRun { id: run.clone(), command: RunCommand::Lease, by };
    for op in [append, lease] {
        assert_eq!(refusal(stage.execute(op).await), Refusal::NotFound);
    }
    let open = stage.open(draft("t:1", Binding::Checkpoint(run)), Some(fence), &stage.other).await;
    assert_eq!(refusal(open), Refusal::NotFound);
}

/// Only the holder asks for a run.
pub async fn a_request_of_a_run_needs_its_fence(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    for wrong in [None, Some(Fence(0)), Some(Fence(fence.0 + 1))] {
        let open = stage.open(draft("t:1", Binding::Checkpoint(run.clone())), wrong, &stage.agent).await;
        assert_eq!(refusal(open), Refusal::FenceLapsed);
    }
}

/// Ended from outside, whoever holds it: what it waits for is called off, and what was allowed is spent by nobody.
pub async fn an_aborted_run_ends_what_waits_behind_it(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let (run, fence) = stage.held_run("run_1").await;
    let mut asked = Vec::new();
    for boundary in ["pending", "voted on", "allowed", "claimed"] {
        let draft = draft(boundary, Binding::Checkpoint(run.clone()));
        asked.push(approval(stage.open(draft, Some(fence), &stage.agent).await));
    }
    for allowed in &asked[2..] {
        approval(stage.vote(allowed, Decision::AllowOnce).await);
    }
    approval(stage.claim(&asked[3], "c", Some(fence)).await);
    assert_eq!(stage.hold_by(&run, RunCommand::Abort, &stage.other).await, Err(Refusal::NotFound));
    let aborted = stage.hold_by(&run, RunCommand::Abort, &stage.reviewer).await.unwrap();
    assert_eq!((aborted.state, aborted.held_until), (RunState::Aborted, None));
    stage.reopen().await;

    assert_eq!(stage.seen(&asked[0].id).await.bound, Bound::RunEnded);
    assert!(stage.store().next_due().await.unwrap().unwrap() <= stage.store().now(), "it is due now");
    let (why, shown) = refused(stage.vote(&asked[1], Decision::AllowOnce).await);
    assert_eq!((why, shown.unwrap().end().unwrap().reason), (Refusal::Cancelled, TerminalReason::RunAborted));
    assert_eq!(stage.sweep(10).await, 2, "the other one that was pending, and the claim");
    assert_eq!(stage.stored(&asked[0].id).await.end().unwrap().reason, TerminalReason::RunAborted);
    for fence in [fence, aborted.fence] {
        assert_eq!(refusal(stage.claim(&asked[2], "c", Some(fence)).await), Refusal::RunEnded);
        let late = refusal(stage.append(entry(&run, fence, 0, &["1"])).await);
        assert!(matches!(late, Refusal::FenceLapsed | Refusal::RunEnded), "{late}");
    }
    assert_eq!(
        stage.stored(&asked[2].id).await.status(),
        Status::Allowed,
        "what was answered stays answered"
    );
    let claim = stage.stored(&asked[3].id).await.claim().unwrap().clone();
    assert_eq!(claim.receipt.unwrap().outcome, Came::Unknown);
    let open =
        stage.open(draft("late", Binding::Checkpoint(run.clone())), Some(aborted.fence), &stage.agent).await;
    assert_eq!(refusal(open), Refusal::RunEnded);
    assert_eq!(stage.hold(&run, RunCommand::Lease).await, Err(Refusal::RunEnded));
    assert_eq!(stage.store().next_due().await.unwrap(), None);
}

/// What a run asked for is called off with it, whether the run is stored or only named: of this run, and of who says
/// so, but of everybody for an administrator. What has been answered stays answered.
pub async fn a_run_calls_off_its_own_requests_only(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (epoch, others) = (stage.caller(&stage.agent).await, stage.caller(&stage.other).await);
    let ask = async |run: Option<&str>, boundary: &str| {
        let mut draft = draft(boundary, Binding::Runtime(epoch.clone()));
        draft.source.run_id = run.map(str::to_owned);
        approval(stage.open(draft, None, &stage.agent).await)
    };
    let answered = ask(Some("run_1"), "t:1").await;
    approval(stage.vote(&answered, Decision::AllowOnce).await);
    let (named, another, none) =
        (ask(Some("run_1"), "t:2").await, ask(Some("run_10"), "t:3").await, ask(None, "t:4").await);
    let (run, fence) = stage.held_run("run_1").await;
    let stored = draft("t:1", Binding::Checkpoint(run));
    let stored = approval(stage.open(stored, Some(fence), &stage.agent).await);
    let mut anothers = draft("t:1", Binding::Runtime(others));
    anothers.source.run_id = Some("run_1".to_owned());
    let anothers = approval(stage.open(anothers, None, &stage.other).await);

    let cancel = async |by: &Principal, limit: u32| {
        touched(stage.execute(Op::CancelRun { run: "run_1".to_owned(), by: By::from(by), limit }).await)
    };
    let steps =
        [cancel(&stage.agent, 1).await, cancel(&stage.agent, 10).await, cancel(&stage.agent, 10).await];
    assert_eq!(steps, [1, 1, 0]);
    for ended in [&named, &stored] {
        let end = stage.stored(&ended.id).await.end().unwrap().clone();
        assert_eq!((end.reason, end.by.id), (TerminalReason::RunAborted, stage.agent.id.clone()));
        assert_eq!(refusal(stage.vote(ended, Decision::AllowOnce).await), Refusal::Cancelled);
    }
    for open in [&another, &none, &anothers] {
        assert_eq!(stage.stored(&open.id).await, *open);
    }
    assert_eq!(stage.stored(&answered.id).await.status(), Status::Allowed);
    assert_eq!(cancel(&stage.reviewer, 10).await, 1);
    assert_eq!(stage.stored(&anothers.id).await.end().unwrap().by.id, stage.reviewer.id);
}
