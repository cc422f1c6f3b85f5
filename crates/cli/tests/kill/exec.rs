//! `holdgate exec` and its gateway, killed at every step between request and receipt.

use std::process::{Child, Stdio};
use std::sync::Arc;

use crate::proxy::{Moment, Proxy, Strike};
use crate::world::{Victim, World, each, lines, until};

const EFFECTS: &str = "effects.log";

/// Starts `exec` of a command that leaves one line in the log of effects.
fn exec(world: &World, url: &str) -> Child {
    let effect = format!("echo ran >> {}", world.path(EFFECTS).display());
    let mut command = world.holdgate(Some(url), &["exec", "--timeout", "60s", "--", "sh", "-c", &effect]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Allows the request as soon as there is one, or learns that there will never be one.
fn allow_when_asked(world: &World, child: &mut Child) -> Option<String> {
    until("a request or the end of exec", || {
        let asked = world.approvals().first().map(|approval| approval["id"].as_str().unwrap().to_owned());
        match asked {
            Some(id) => {
                world.allow(&id);
                Some(Some(id))
            }
            None => child.try_wait().unwrap().map(|_| None),
        }
    })
}

fn steps_of_a_clean_run() -> usize {
    let world = World::start();
    let proxy = Proxy::start(world.address(), None);
    let mut child = exec(&world, &proxy.url);
    let id = allow_when_asked(&world, &mut child).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(lines(&world.path(EFFECTS)), 1);
    assert_eq!(world.approval(&id)["receipt"]["outcome"], "succeeded");
    let steps = proxy.steps();
    assert!(steps.len() >= 4, "{steps:?}");
    steps.len()
}

fn cases(steps: usize) -> Vec<(usize, Moment)> {
    (0..steps).flat_map(|step| Moment::ALL.map(|moment| (step, moment))).collect()
}

#[test]
fn an_exec_killed_at_any_step_runs_nothing_twice_and_nothing_without_an_allow() {
    // All at once: most of the time is the wait for a lease to lapse.
    each(&cases(steps_of_a_clean_run()), usize::MAX, |(step, moment)| {
        let world = World::start();
        let victim = Victim::default();
        let killer = victim.clone();
        let strike = Strike { step, moment, action: Box::new(move || killer.kill()) };
        let proxy = Proxy::start(world.address(), Some(strike));
        let mut child = exec(&world, &proxy.url);
        victim.is(&child);
        let id = allow_when_asked(&world, &mut child);
        let status = child.wait().unwrap();
        assert!(proxy.has_struck(), "step {step} never came");
        assert_eq!(status.code(), None, "it was killed");
        let effects = lines(&world.path(EFFECTS));
        let record = id.map(|id| world.approval(&id));
        assert!(effects <= 1);
        let is_claimed = record.as_ref().is_some_and(|record| record.get("claim").is_some());
        assert!(effects == 0 || is_claimed, "nothing ran without a claimed allow: {record:?}");
        if let Some(record) = record {
            assert_eq!(record["status"], "allowed", "the decision is not lost");
            let id = record["id"].as_str().unwrap();
            if record.get("claim").is_some() {
                let outcome = until("a receipt", || {
                    world.approval(id)["receipt"]["outcome"].as_str().map(str::to_owned)
                });
                match outcome.as_str() {
                    "succeeded" => assert_eq!(effects, 1),
                    outcome => assert_eq!(outcome, "unknown", "nobody invents what came of it"),
                }
            }
        }
    });
}

#[test]
fn an_exec_whose_gateway_is_killed_at_any_step_goes_on_and_runs_once() {
    each(&cases(steps_of_a_clean_run()), 4, |(step, moment)| {
        let world = World::start();
        // The proxy outlives the story; the world must not.
        let gateway = Arc::downgrade(&world);
        let restart = move || {
            let gateway = gateway.upgrade().expect("the story is still told");
            gateway.kill_gateway();
            gateway.serve();
        };
        let strike = Strike { step, moment, action: Box::new(restart) };
        let proxy = Proxy::start(world.address(), Some(strike));
        let mut child = exec(&world, &proxy.url);
        let id = allow_when_asked(&world, &mut child);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(proxy.has_struck(), "step {step} never came");
        let effects = lines(&world.path(EFFECTS));
        match (output.status.code(), id) {
            (Some(0), Some(id)) => {
                assert_eq!(effects, 1, "{said}");
                assert_eq!(world.approval(&id)["receipt"]["outcome"], "succeeded");
            }
            // Only before anything was asked may it give up.
            (Some(7 | 77), None) => assert_eq!(effects, 0, "{said}"),
            (code, id) => panic!("exit {code:?}, approval {id:?}: {said}"),
        }
    });
}
