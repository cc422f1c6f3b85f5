//! A process killed at every step between the start of a run and its receipt, and started again.

use std::sync::Arc;

use holdgate_authority::Authority;
use holdgate_core::approval::{Outcome as Receipt, Status};
use holdgate_core::limits::RUN_LEASE_MS;
use holdgate_core::requirement::Decision;
use holdgate_sdk::{Agent, CallResult, Known, Outcome, RunError, TypedTool, restore, run_agent};
use proptest::prelude::*;
use serde_json::json;

use crate::mortal::{Fuse, Mortal};
use crate::world::{Effects, RUN, Version, World, new_run, noting, script, usual};

/// How a run came out after all its lives.
#[derive(Debug)]
enum Ended {
    /// It died before anything of it was written down.
    NeverBegan,
    Ended(Outcome),
}

#[derive(Clone, Copy, PartialEq)]
enum Repeats {
    Never,
    Safely,
    /// Never, but its tool knows whether it has happened.
    Known,
}

/// The tool, as far as it may be called again or knows of its calls.
fn as_repeats(tool: TypedTool, name: &'static str, effects: &Effects, repeats: Repeats) -> TypedTool {
    let effects = effects.clone();
    match repeats {
        Repeats::Never => tool,
        Repeats::Safely => tool.idempotent(),
        Repeats::Known => tool.outcome(move |key| {
            let has_happened = effects.keys(name).contains(&key);
            async move { if has_happened { Known::Ended(Ok(json!("published"))) } else { Known::NotRun } }
        }),
    }
}

/// `publish`, which can die before and after its effect, and looks for its own allow.
fn publish(noted: &Effects, fuse: &Fuse, operator: &Arc<dyn Authority>, repeats: Repeats) -> TypedTool {
    let (effects, fuse, operator) = (noted.clone(), fuse.clone(), operator.clone());
    let tool = TypedTool::new("publish", "", move |_: Version, context| {
        let (effects, fuse, operator) = (effects.clone(), fuse.clone(), operator.clone());
        async move {
            fuse.burn().await;
            let record = operator.get(&context.idempotency_key).await.unwrap();
            assert_eq!(record.status, Status::Allowed, "an effect without an allow");
            assert!(record.claim.is_some(), "an effect without a claim");
            effects.add("publish", &context.idempotency_key);
            fuse.burn().await;
            Ok(json!("published"))
        }
    });
    as_repeats(tool, "publish", noted, repeats)
}

fn agent(world: &World, effects: &Effects, fuse: &Fuse, repeats: Repeats) -> Agent {
    let call = |id, tool| (id, tool, json!({ "version": "1.2.3" }));
    let model = script(&[call("n", "note"), call("p", "publish"), call("g", "gossip")]);
    let note = noting("note", effects);
    Agent::builder("releaser", model)
        .tool(as_repeats(note, "note", effects, repeats))
        .tool(noting("gossip", effects))
        .tool(publish(effects, fuse, &world.operator, repeats))
        .gate(usual)
        .build()
        .unwrap()
}

/// Lives one life after another, each as long as its fuse, deciding whatever is pending in between. The last life is
/// as long as it needs to be.
async fn live(
    world: &World,
    fuses: &[usize],
    decision: Decision,
    repeats: Repeats,
) -> (Ended, Effects, usize) {
    let effects = Effects::default();
    let mut deaths = 0;
    let mut fuses = fuses.iter().copied();
    loop {
        let fuse = Fuse::of(fuses.next().unwrap_or(usize::MAX));
        let mortal = Arc::new(Mortal { inner: world.agent.clone(), fuse: fuse.clone() });
        let agent = agent(world, &effects, &fuse, repeats);
        let has_begun = world.agent.run(RUN).await.is_ok();
        let life = async {
            if has_begun {
                restore(mortal, &agent, RUN).await
            } else {
                run_agent(mortal, &agent, new_run()).await
            }
        };
        let ended = fuse.cut(life).await;
        for record in world.records().await {
            if record.status == Status::Pending {
                world.decide(&record.id, decision, Some("because")).await;
            }
        }
        match ended {
            None => {
                deaths += 1;
                world.clock.advance(RUN_LEASE_MS);
            }
            Some(Ok(Outcome::Suspended { .. })) => {}
            Some(Ok(outcome)) => return (Ended::Ended(outcome), effects, deaths),
            Some(Err(RunError::NeverStarted { .. })) => return (Ended::NeverBegan, effects, deaths),
            Some(Err(error)) => panic!("{error}"),
        }
    }
}

async fn check(fuses: &[usize], decision: Decision, repeats: Repeats) -> usize {
    let world = World::new().await;
    let (ended, effects, deaths) = live(&world, fuses, decision, repeats).await;
    let published = effects.keys("publish");
    let told = format!("{fuses:?} {decision:?}: {ended:?}, published {published:?}");
    assert!(effects.keys("gossip").is_empty(), "{told}");
    for tool in ["note", "publish"] {
        let keys = effects.keys(tool);
        assert!(keys.len() <= 1 || repeats == Repeats::Safely, "{told}");
        assert!(keys.iter().all(|key| *key == keys[0]), "{told}");
    }
    match &ended {
        Ended::NeverBegan => assert!(published.is_empty() && world.records().await.is_empty(), "{told}"),
        Ended::Ended(Outcome::Unknown { review, .. }) => {
            assert!(repeats == Repeats::Never, "{told}");
            if let Some(review) = review {
                let receipt = world.record(&review.approval_id).await.receipt;
                assert_eq!(receipt.map(|receipt| receipt.outcome), Some(Receipt::Unknown), "{told}");
            }
        }
        Ended::Ended(Outcome::Finished(finished)) => {
            let result = finished.calls[1].result.as_ref();
            let record = &world.records().await[0];
            let receipt = record.receipt.as_ref().map(|receipt| receipt.outcome);
            match decision {
                Decision::Deny => {
                    assert!(published.is_empty() && receipt.is_none(), "{told}");
                    assert!(matches!(result, Some(CallResult::Rejected(_))), "{told}");
                }
                Decision::AllowOnce | Decision::AllowAlways => {
                    assert!(!published.is_empty(), "{told}");
                    assert_eq!(receipt, Some(Receipt::Succeeded), "{told}");
                    assert_eq!(result, Some(&CallResult::Succeeded(json!("published"))), "{told}");
                }
            }
        }
        Ended::Ended(other) => panic!("{other:?}"),
    }
    deaths
}

#[tokio::test]
async fn killed_at_any_one_step_an_allowed_effect_happens_at_most_once() {
    let mut step = 1;
    while check(&[step], Decision::AllowOnce, Repeats::Never).await > 0 {
        step += 1;
    }
    // The first life goes up to the suspension: create, lease, and six appends, each before and after.
    assert!(step > 12, "the run died at only {step} steps");
    // Then the second life is cut, which claims and runs.
    let mut step = 1;
    while check(&[10_000, step], Decision::AllowOnce, Repeats::Never).await > 0 {
        step += 1;
    }
    assert!(step > 20, "the restored run died at only {step} steps");
}

#[tokio::test]
async fn killed_at_any_step_idempotent_calls_still_come_to_their_end_under_one_key() {
    for before in [None, Some(10_000)] {
        let fuses = |step| before.into_iter().chain([step]).collect::<Vec<_>>();
        let mut step = 1;
        while check(&fuses(step), Decision::AllowOnce, Repeats::Safely).await > 0 {
            step += 1;
        }
    }
}

#[tokio::test]
async fn killed_at_any_step_a_call_that_its_tool_knows_of_comes_to_its_end_and_happens_once() {
    for before in [None, Some(10_000)] {
        let fuses = |step| before.into_iter().chain([step]).collect::<Vec<_>>();
        let mut step = 1;
        while check(&fuses(step), Decision::AllowOnce, Repeats::Known).await > 0 {
            step += 1;
        }
    }
}

#[tokio::test]
async fn killed_at_any_step_a_denied_effect_never_happens() {
    let mut step = 1;
    while check(&[10_000, step], Decision::Deny, Repeats::Never).await > 0 {
        step += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn killed_again_and_again_an_effect_happens_at_most_once_and_never_without_an_allow(
        fuses in proptest::collection::vec(1usize..40, 1..6),
        deny in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let decision = if deny { Decision::Deny } else { Decision::AllowOnce };
        runtime.block_on(check(&fuses, decision, Repeats::Never));
    }
}
