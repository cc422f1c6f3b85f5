//! One process at a time.

use std::sync::Arc;

use holdgate_core::limits::RUN_LEASE_MS;
use holdgate_sdk::{Agent, Model, ModelError, Reply, RunError, ToolContext, ToolSpec, Transcript, TypedTool};
use holdgate_wire::LeaseRun;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{Effects, RUN, World, builder, finished, pending, publish, script, usual};

#[tokio::test]
async fn of_two_restores_one_goes_on_and_the_other_is_told_and_the_effect_happens_once() {
    let (world, effects) = (World::new().await, Effects::default());
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let agent = {
        let (effects, entered, leave) = (effects.clone(), entered.clone(), leave.clone());
        let slow = TypedTool::new("publish", "", move |_: Value, context: ToolContext| {
            let (effects, entered, leave) = (effects.clone(), entered.clone(), leave.clone());
            async move {
                effects.add("publish", &context.idempotency_key);
                entered.notify_one();
                leave.notified().await;
                Ok(json!("published"))
            }
        });
        Agent::builder("releaser", script(&[publish("p", "1")])).tool(slow).gate(usual).build().unwrap()
    };
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    let first = world.restore(&agent);
    let second = async {
        entered.notified().await;
        let refused = world.restore(&agent).await;
        leave.notify_one();
        refused
    };
    let (first, second) = tokio::join!(first, second);
    finished(first.unwrap());
    assert!(matches!(second, Err(RunError::Held { .. })), "{second:?}");
    assert_eq!(effects.keys("publish").len(), 1);
}

/// A model that never answers. Says when it is asked.
struct Silent(Arc<Notify>);

#[async_trait::async_trait]
impl Model for Silent {
    async fn reply(&self, _: &Transcript, _: &[ToolSpec]) -> Result<Reply, ModelError> {
        self.0.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_process_whose_run_was_taken_over_stops_at_once() {
    let world = World::new().await;
    let asked = Arc::new(Notify::new());
    let agent = Agent::builder("releaser", Silent(asked.clone())).build().unwrap();
    let hasty = Arc::new(crate::mortal::Hasty(world.agent.clone()));
    let working = holdgate_sdk::run_agent(hasty, &agent, crate::world::new_run());
    let taking = async {
        asked.notified().await;
        loop {
            world.clock.advance(RUN_LEASE_MS);
            if world.agent.lease_run(RUN, LeaseRun::default()).await.is_ok_and(|run| run.fence == 2) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (worked, ()) = tokio::join!(working, taking);
    assert!(matches!(worked, Err(RunError::TakenOver { .. })), "{worked:?}");
}

#[tokio::test]
async fn a_model_without_a_reply_leaves_the_run_free_to_be_restored() {
    let (world, effects) = (World::new().await, Effects::default());
    let mute = builder(holdgate_sdk::Scripted::default(), &effects).build().unwrap();
    assert!(matches!(world.start(&mute).await, Err(RunError::Model(_))));
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    pending(world.restore(&agent).await.unwrap());
}
