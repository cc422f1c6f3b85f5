//! A run, its runner and its gateway, killed at every step between the first event and the receipt.

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::proxy::{Moment, Proxy, Strike};
use crate::world::{Victim, World, each, lines, until};

const FINISHED: Option<i32> = Some(0);
const FAILED: Option<i32> = Some(1);
const SUSPENDED: Option<i32> = Some(8);
const HELD: Option<i32> = Some(9);

/// A run that waits for its reviewer; its process has exited.
fn suspended(world: &World) -> (String, String) {
    let output = world.review(&["demo", "start"]);
    assert!(output.status.success(), "{output:?}");
    let started: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |key: &str| started[key].as_str().unwrap().to_owned();
    (text("runId"), text("approvalId"))
}

/// Restores a run; waits as long as a dead process seems to hold it.
fn restore(world: &World, run: &str) -> Output {
    until("the dead holder's lease to lapse", || {
        let output = world.review(&["demo", "restore", run]);
        (output.status.code() != HELD).then_some(output)
    })
}

fn effects(world: &World, run: &str) -> usize {
    lines(&world.path("demo").join(run).join("effects.log"))
}

/// The run that a killed process had begun, by the workspace that it had made.
fn begun(world: &World) -> Option<String> {
    let entries: Vec<PathBuf> =
        fs::read_dir(world.path("demo")).ok()?.map(|entry| entry.unwrap().path()).collect();
    assert!(entries.len() <= 1, "{entries:?}");
    entries.first().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
}

fn cases(steps: &[String]) -> Vec<(usize, Moment)> {
    (0..steps.len()).flat_map(|step| Moment::ALL.map(|moment| (step, moment))).collect()
}

fn steps_of_a_clean_start() -> Vec<String> {
    let world = World::start();
    let proxy = Proxy::start(world.address(), None);
    let output = world.holdgate(Some(&proxy.url), &["demo", "start"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    proxy.steps()
}

fn steps_of_a_clean_restore() -> Vec<String> {
    let world = World::start();
    let (run, approval) = suspended(&world);
    world.allow(&approval);
    let proxy = Proxy::start(world.address(), None);
    let output = world.holdgate(Some(&proxy.url), &["demo", "restore", &run]).output().unwrap();
    assert_eq!(output.status.code(), FINISHED, "{output:?}");
    assert_eq!(effects(&world, &run), 1);
    assert_eq!(world.approval(&approval)["receipt"]["outcome"], "succeeded");
    proxy.steps()
}

#[test]
fn a_runner_killed_before_it_is_suspended_has_run_nothing_and_can_be_restored() {
    let steps = steps_of_a_clean_start();
    assert!(steps.len() >= 3, "{steps:?}");
    each(&cases(&steps), usize::MAX, |(step, moment)| {
        let world = World::start();
        let victim = Victim::default();
        let killer = victim.clone();
        let strike = Strike { step, moment, action: Box::new(move || killer.kill()) };
        let proxy = Proxy::start(world.address(), Some(strike));
        let mut start = world.holdgate(Some(&proxy.url), &["demo", "start"]);
        let mut child = start.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        victim.is(&child);
        child.wait().unwrap();
        assert!(proxy.has_struck(), "step {step} never came");
        let Some(run) = begun(&world) else { return };
        assert_eq!(effects(&world, &run), 0);
        let restored = restore(&world, &run);
        if restored.status.code() == FAILED {
            // It died before the run, or how it began, was durable: there is nothing to restore.
            assert!(world.approvals().is_empty(), "{restored:?}");
            return;
        }
        assert_eq!(restored.status.code(), SUSPENDED, "{restored:?}");
        let approvals = world.approvals();
        assert_eq!(approvals.len(), 1, "one request, however often it was asked");
        world.allow(approvals[0]["id"].as_str().unwrap());
        assert_eq!(restore(&world, &run).status.code(), FINISHED);
        assert_eq!(effects(&world, &run), 1);
    });
}

#[test]
fn a_restore_killed_at_any_step_is_restored_or_reported_as_unknown_and_never_run_twice() {
    let steps = steps_of_a_clean_restore();
    assert!(steps.len() >= 6, "{steps:?}");
    let (finished, unknown) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each(&cases(&steps), usize::MAX, |(step, moment)| {
        let world = World::start();
        let (run, approval) = suspended(&world);
        world.allow(&approval);
        let victim = Victim::default();
        let killer = victim.clone();
        let strike = Strike { step, moment, action: Box::new(move || killer.kill()) };
        let proxy = Proxy::start(world.address(), Some(strike));
        let mut first = world.holdgate(Some(&proxy.url), &["demo", "restore", &run]);
        let mut child = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        victim.is(&child);
        assert_eq!(child.wait().unwrap().code(), None, "it was killed");
        assert!(proxy.has_struck(), "step {step} never came");

        let before = effects(&world, &run);
        let again = restore(&world, &run);
        let record = world.approval(&approval);
        assert_eq!(record["status"], "allowed", "the decision is not lost");
        let outcome = record["receipt"]["outcome"].as_str().unwrap_or("none");
        match again.status.code() {
            FINISHED => {
                assert_eq!((effects(&world, &run), outcome), (1, "succeeded"));
                finished.fetch_add(1, Ordering::SeqCst);
            }
            FAILED => {
                assert_eq!((effects(&world, &run), outcome), (before, "unknown"), "{again:?}");
                let third = restore(&world, &run);
                assert_eq!(
                    (third.status.code(), effects(&world, &run)),
                    (FAILED, before),
                    "it stays unknown"
                );
                unknown.fetch_add(1, Ordering::SeqCst);
            }
            code => panic!("{code:?}: {again:?}"),
        }
    });
    // Unknown is only the stretch between the durable start of the call and its durable end.
    assert_eq!(unknown.into_inner(), 2, "the start's reply, and the end's request");
    assert_eq!(finished.into_inner(), 2 * steps.len() - 2);
}

#[test]
fn a_restore_whose_gateway_is_killed_at_any_step_runs_once() {
    each(&cases(&steps_of_a_clean_restore()), 8, |(step, moment)| {
        let world = World::start();
        let (run, approval) = suspended(&world);
        world.allow(&approval);
        // The proxy outlives the story; the world must not.
        let gateway = Arc::downgrade(&world);
        let restart = move || {
            let gateway = gateway.upgrade().expect("the story is still told");
            gateway.kill_gateway();
            gateway.serve();
        };
        let proxy = Proxy::start(world.address(), Some(Strike { step, moment, action: Box::new(restart) }));
        let first = world.holdgate(Some(&proxy.url), &["demo", "restore", &run]).output().unwrap();
        assert!(proxy.has_struck(), "step {step} never came");
        if first.status.code() != FINISHED {
            // It may give up on a gateway that is away, never on what is durable.
            assert_eq!(restore(&world, &run).status.code(), FINISHED, "{first:?}");
        }
        assert_eq!(effects(&world, &run), 1);
        assert_eq!(world.approval(&approval)["receipt"]["outcome"], "succeeded");
    });
}

#[test]
fn of_two_processes_that_restore_at_once_one_proceeds_and_the_other_is_told() {
    for _ in 0..5 {
        let world = World::start();
        let (run, approval) = suspended(&world);
        world.allow(&approval);
        let url = format!("http://{}", world.address());
        let spawn = || {
            let mut restore = world.holdgate(Some(&url), &["demo", "restore", &run]);
            restore.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [spawn(), spawn()].map(|child| child.wait_with_output().unwrap());
        let codes = both.each_ref().map(|output| output.status.code());
        // The second may come so late that the run has ended: then there is nothing left to do.
        assert!(
            codes.contains(&FINISHED) && codes.iter().all(|code| [FINISHED, HELD].contains(code)),
            "{both:?}"
        );
        assert_eq!(effects(&world, &run), 1);
    }
}
