//! What was reviewed and what would run are not the same: nothing runs.

use std::sync::Arc;
use std::time::Duration;

use holdgate_core::Digest;
use holdgate_core::approval::Status;
use holdgate_core::run::RunState;
use holdgate_sdk::{
    Agent, CallResult, Cause, InvalidInput, JournalError, Outcome, Pending, ReceiptState, RunError, Tool,
    ToolContext, ToolError, restore, run_agent,
};
use holdgate_wire::request::SettledOutcome;
use holdgate_wire::{AppendEvents, LeaseRun, MakeClaim, Settle};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::mortal::{Fuse, Mortal};
use crate::world::{
    Effects, RUN, World, builder, finished, new_run, noting, pending, publish, script, usual,
};

/// `publish`, as a later version of the program has it.
struct Later(fn(&Value) -> Result<Value, InvalidInput>, Effects);

#[async_trait::async_trait]
impl Tool for Later {
    fn name(&self) -> &str {
        "publish"
    }

    fn description(&self) -> &str {
        ""
    }

    fn check(&self, raw: &Value) -> Result<Value, InvalidInput> {
        self.0(raw)
    }

    fn is_consequential(&self) -> bool {
        true
    }

    async fn call(&self, _: Value, context: ToolContext) -> Result<Value, ToolError> {
        self.1.add("publish", &context.idempotency_key);
        Ok(Value::Null)
    }
}

fn with(tool: impl Tool + 'static) -> Agent {
    Agent::builder("releaser", script(&[publish("p", "1")])).tool(tool).gate(usual).build().unwrap()
}

#[tokio::test]
async fn a_tool_that_makes_something_else_of_the_input_today_runs_nothing_and_claims_nothing() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    let changed = Later(|_| Ok(json!({"version": "2", "notes": []})), effects.clone());
    let stricter = Later(|_| Err(InvalidInput("too old".to_owned())), effects.clone());
    let gone = noting("note", &effects);
    for agent in [with(changed), with(stricter), with(gone)] {
        let error = world.restore(&agent).await.unwrap_err();
        assert!(matches!(&error, RunError::Drift { call, .. } if call == "p"), "{error}");
        assert!(world.record(&waiting[0].approval_id).await.claim.is_none());
        assert_eq!(world.agent.run(RUN).await.unwrap().state, "suspended");
    }
    assert!(effects.keys("publish").is_empty());
    // The right program may still come.
    finished(world.restore(&agent).await.unwrap());
    assert_eq!(effects.keys("publish").len(), 1);
}

#[tokio::test]
async fn a_run_of_another_agent_is_refused() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    pending(world.start(&agent).await.unwrap());
    let other = Agent::builder("other", script(&[])).build().unwrap();
    assert!(matches!(world.restore(&other).await, Err(RunError::OtherAgent { .. })));
}

#[tokio::test]
async fn a_run_that_does_not_exist_or_never_started_is_an_error() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[]), &effects).build().unwrap();
    assert!(matches!(world.restore(&agent).await, Err(RunError::NotFound { .. })));
    let create = holdgate_wire::CreateRun { id: Some(RUN.to_owned()), agent: "releaser".to_owned() };
    world.agent.create_run(create).await.unwrap();
    assert!(matches!(world.restore(&agent).await, Err(RunError::NeverStarted { .. })));
}

/// Adds entries to the journal as the run's holder could.
async fn append(world: &World, events: &[Value]) {
    let run = world.agent.lease_run(RUN, LeaseRun::default()).await.unwrap();
    let append = AppendEvents {
        fence: run.fence,
        after: run.last_seq,
        events: events.iter().map(|event| RawValue::from_string(event.to_string()).unwrap()).collect(),
        state: Some(RunState::Suspended.as_str().to_owned()),
        approvals: Vec::new(),
    };
    world.agent.append(RUN, append).await.unwrap();
}

#[tokio::test]
async fn a_request_that_the_authority_does_not_have_is_named_and_nothing_runs() {
    let (world, effects) = (World::new().await, Effects::default());
    let call = |id: &str| json!({"id": id, "tool": "publish", "arguments": "{\"version\":\"1\"}"});
    let agent = || builder(script(&[]), &effects).build().unwrap();
    // A real question of another run, put into this one's journal without its request.
    let other = World::new().await;
    let asks = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    pending(other.start(&asks).await.unwrap());
    let suspended: Value = serde_json::from_str(&other.journal().await[2]).unwrap();
    let create = holdgate_wire::CreateRun { id: Some(RUN.to_owned()), agent: "releaser".to_owned() };
    world.agent.create_run(create).await.unwrap();
    let started: Value = serde_json::from_str(&other.journal().await[0]).unwrap();
    let replied = json!({"type": "model-replied", "text": "", "calls": [call("p")]});
    append(&world, &[started, replied, suspended.clone()]).await;
    let error = world.restore(&agent()).await.unwrap_err();
    let approval = suspended["question"]["approval"].as_str().unwrap();
    assert!(matches!(&error, RunError::Mismatch { approval: named, .. } if named == approval), "{error}");
    assert!(effects.keys("publish").is_empty());
}

#[tokio::test]
async fn a_journal_with_a_foreign_entry_is_refused_and_named() {
    for (event, is_unreadable) in [
        (json!({"type": "call-forgotten", "call": "p"}), true),
        (json!({"type": "call-started", "call": "p"}), false),
        (json!({"type": "call-started", "call": "p", "claim": "clm_mine"}), false),
    ] {
        let (world, effects) = (World::new().await, Effects::default());
        let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
        let waiting = pending(world.start(&agent).await.unwrap());
        world.allow(&waiting[0].approval_id).await;
        append(&world, &[event]).await;
        match world.restore(&agent).await {
            Err(RunError::Journal(JournalError::Unreadable { seq: 4, .. })) => assert!(is_unreadable),
            Err(RunError::Journal(JournalError::Misplaced { seq: 4, .. })) => assert!(!is_unreadable),
            other => panic!("{other:?}"),
        }
        assert!(effects.keys("publish").is_empty());
    }
}

#[tokio::test]
async fn a_call_that_started_and_never_ended_is_unknown_and_not_run_again() {
    let (world, effects) = (World::new().await, Effects::default());
    let fuse = Fuse::of(usize::MAX);
    let dying = {
        let (effects, fuse) = (effects.clone(), Fuse::of(1));
        let died = fuse.clone();
        let tool = holdgate_sdk::TypedTool::new("publish", "", move |_: Value, context: ToolContext| {
            let (effects, died) = (effects.clone(), died.clone());
            async move {
                effects.add("publish", &context.idempotency_key);
                died.burn().await;
                Ok(Value::Null)
            }
        });
        (tool.consequential(), fuse)
    };
    let asks = with(Later(|raw| Ok(raw.clone()), effects.clone()));
    let mortal = Arc::new(Mortal { inner: world.agent.clone(), fuse });
    let waiting = pending(run_agent(mortal, &asks, new_run()).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    assert!(dying.1.cut(restore(world.agent.clone(), &with(dying.0), RUN)).await.is_none());

    let held = world.restore(&asks).await.unwrap_err();
    assert!(matches!(held, RunError::Held { lapses_in, .. } if lapses_in > Duration::ZERO), "{held}");
    world.clock.advance(holdgate_core::limits::RUN_LEASE_MS);
    for _ in 0..2 {
        let outcome = world.restore(&asks).await.unwrap();
        let Outcome::Unknown { tool, review, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(
            (tool.as_str(), review.as_ref().unwrap().approval_id.as_str()),
            ("publish", &*waiting[0].approval_id)
        );
    }
    assert_eq!(effects.keys("publish").len(), 1);
    assert_eq!(world.agent.run(RUN).await.unwrap().state, "unknown");
    let record = world.record(&waiting[0].approval_id).await;
    assert_eq!(record.status, Status::Allowed);
    assert_eq!(record.receipt.unwrap().outcome, holdgate_core::approval::Outcome::Unknown);
}

/// The claim that a run makes for its call, as it follows from both.
fn claim_of(call: &str) -> String {
    format!("clm_{}", &Digest::of(format!("{RUN}\n{call}").as_bytes()).to_hex()[..32])
}

/// Claims a run's approval from outside the run.
async fn claim_as(world: &World, waiting: &Pending, claim_id: &str) {
    let run = world.agent.lease_run(RUN, LeaseRun::default()).await.unwrap();
    let claim =
        MakeClaim { claim_id: claim_id.to_owned(), digest: waiting.digest.clone(), fence: Some(run.fence) };
    world.agent.claim(&waiting.approval_id, claim).await.unwrap();
    world.agent.lease_run(RUN, LeaseRun { fence: Some(run.fence), release: true }).await.unwrap();
}

fn receipt(claim_id: &str, outcome: SettledOutcome) -> Settle {
    Settle { claim_id: claim_id.to_owned(), outcome, detail: None }
}

#[tokio::test]
async fn an_allow_that_something_else_has_spent_runs_nothing_and_the_run_goes_on() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    claim_as(&world, &waiting[0], "clm_other").await;
    let done = finished(world.restore(&agent).await.unwrap());
    let Some(CallResult::Rejected(rejection)) = &done.calls[0].result else { panic!("{done:?}") };
    assert_eq!(rejection.cause, Cause::AllowSpent);
    assert!(effects.keys("publish").is_empty());
}

#[tokio::test]
async fn a_receipt_for_what_the_run_never_started_stops_it() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    let claim = claim_of("p");
    claim_as(&world, &waiting[0], &claim).await;
    let receipt = receipt(&claim, SettledOutcome::Succeeded);
    world.agent.settle(&waiting[0].approval_id, receipt).await.unwrap();
    assert!(matches!(world.restore(&agent).await, Err(RunError::Mismatch { .. })));
    assert!(effects.keys("publish").is_empty());
}

#[tokio::test]
async fn a_receipt_that_the_authority_refuses_is_told_and_the_run_goes_on() {
    let world = World::new().await;
    let authority = world.agent.clone();
    let tool = holdgate_sdk::TypedTool::new("publish", "", move |_: Value, context: ToolContext| {
        let authority = authority.clone();
        async move {
            let receipt = receipt(&claim_of("p"), SettledOutcome::Failed);
            authority.settle(&context.idempotency_key, receipt).await.unwrap();
            Ok(Value::Null)
        }
    });
    let agent = with(tool);
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    let done = finished(world.restore(&agent).await.unwrap());
    assert!(matches!(done.calls[0].receipt, Some(ReceiptState::Refused(_))), "{done:?}");
}
