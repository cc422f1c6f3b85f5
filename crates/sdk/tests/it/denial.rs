//! Every way to a "no", and what the model is told of it.

use std::time::Duration;

use holdgate_core::approval::Status;
use holdgate_core::requirement::Decision;
use holdgate_sdk::{Agent, CallResult, Cause, GateError, Rejection, ToolCall, Verdict};
use holdgate_wire::Cancel;
use serde_json::{Value, json};

use crate::world::{Effects, World, builder, finished, noting, pending, publish, script};

async fn rejected(world: &World, agent: &Agent) -> Rejection {
    let done = finished(world.start(agent).await.unwrap());
    match done.calls[0].result.clone() {
        Some(CallResult::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_hears_the_reviewers_reason() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    world.decide(&waiting[0].approval_id, Decision::Deny, Some("not on a Friday")).await;
    let done = finished(world.restore(&agent).await.unwrap());
    let expected = Rejection { cause: Cause::Denied, detail: Some("not on a Friday".to_owned()) };
    assert_eq!(done.calls[0].result, Some(CallResult::Rejected(expected)));
    assert!(done.output.contains("not on a Friday"), "{}", done.output);
    assert!(effects.keys("publish").is_empty());
    assert!(world.record(&waiting[0].approval_id).await.claim.is_none());
}

#[tokio::test]
async fn silence_and_withdrawal_are_denials() {
    for status in [Status::Expired, Status::Cancelled] {
        let (world, effects) = (World::new().await, Effects::default());
        let agent = builder(script(&[publish("p", "1")]), &effects)
            .gate(|_: ToolCall| async {
                Ok(Verdict::Suspend { reason: None, timeout: Some(Duration::from_secs(60)) })
            })
            .build()
            .unwrap();
        let waiting = pending(world.start(&agent).await.unwrap());
        if status == Status::Expired {
            world.clock.advance(60_000);
        } else {
            world.agent.cancel(&waiting[0].approval_id, Cancel::default()).await.unwrap();
        }
        let done = finished(world.restore(&agent).await.unwrap());
        let Some(CallResult::Rejected(rejection)) = &done.calls[0].result else { panic!("{done:?}") };
        assert!(rejection.is_by_review());
        assert_eq!(rejection.cause == Cause::Expired, status == Status::Expired);
        assert!(effects.keys("publish").is_empty());
    }
}

#[tokio::test]
async fn arguments_that_are_not_exactly_what_they_seem_are_never_requested() {
    for arguments in [
        "",
        "{",
        r#"{"version":"1","version":"2"}"#,
        r#"{"version":9007199254740993}"#,
        r#"{"version":"1","notes":[9007199254740993]}"#,
        r#"{"version":7}"#,
        r#"{"version":"1","extra":true}"#,
    ] {
        let (world, effects) = (World::new().await, Effects::default());
        let reply = holdgate_sdk::Reply::text("").call("p", "publish", arguments);
        let model = holdgate_sdk::Scripted::default().then(reply).then(holdgate_sdk::Reply::text("ok"));
        let agent = builder(model, &effects).build().unwrap();
        assert_eq!(rejected(&world, &agent).await.cause, Cause::InvalidInput, "{arguments}");
        assert!(effects.keys("publish").is_empty() && world.records().await.is_empty());
    }
}

#[tokio::test]
async fn a_call_that_no_reviewer_could_be_shown_is_denied() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", &"x".repeat(80_000))]), &effects).build().unwrap();
    assert_eq!(rejected(&world, &agent).await.cause, Cause::NotReviewable);
    assert!(world.records().await.is_empty());
}

#[tokio::test]
async fn a_gate_that_fails_panics_or_answers_nonsense_denies() {
    async fn fails(_: ToolCall) -> Result<Verdict, GateError> {
        Err(GateError("no rules".to_owned()))
    }
    async fn panics(_: ToolCall) -> Result<Verdict, GateError> {
        panic!("the gate fell over")
    }
    async fn nonsense(_: ToolCall) -> Result<Verdict, GateError> {
        Ok(Verdict::Suspend { reason: None, timeout: Some(Duration::ZERO) })
    }
    async fn long_winded(_: ToolCall) -> Result<Verdict, GateError> {
        Ok(Verdict::Suspend { reason: Some("x".repeat(5_000)), timeout: None })
    }
    let effects = Effects::default();
    let with = || builder(script(&[publish("p", "1")]), &effects);
    for agent in [with().gate(fails), with().gate(panics), with().gate(nonsense), with().gate(long_winded)] {
        let world = World::new().await;
        assert_eq!(rejected(&world, &agent.build().unwrap()).await.cause, Cause::GateFailed);
        assert!(effects.keys("publish").is_empty() && world.records().await.is_empty());
    }
}

#[tokio::test]
async fn without_a_gate_a_consequential_call_is_denied_and_another_runs() {
    let (world, effects) = (World::new().await, Effects::default());
    let calls = [publish("p", "1"), ("n", "note", json!({"version": "1"}))];
    let agent = Agent::builder("releaser", script(&calls))
        .tool(noting("publish", &effects).consequential())
        .tool(noting("note", &effects))
        .build()
        .unwrap();
    assert_eq!(rejected(&world, &agent).await.cause, Cause::NoGate);
    assert_eq!((effects.keys("publish").len(), effects.keys("note").len()), (0, 1));
}

#[tokio::test]
async fn a_tool_that_panics_has_failed_and_the_run_goes_on() {
    let (world, effects) = (World::new().await, Effects::default());
    let panics = holdgate_sdk::TypedTool::new("panics", "", |_: Value, _| async { panic!("it fell over") });
    let agent = builder(script(&[("c", "panics", json!({}))]), &effects).tool(panics).build().unwrap();
    let done = finished(world.start(&agent).await.unwrap());
    assert!(matches!(done.calls[0].result, Some(CallResult::Failed(_))), "{done:?}");
}
