//! Runs as they should go.

use holdgate_core::approval::{Outcome as Receipt, Status};
use holdgate_core::{Action, Canonical, Kind};
use holdgate_sdk::{CallResult, Cause, Outcome, ReceiptState, read_start};
use holdgate_store::Op;
use holdgate_testkit::Fault;
use serde_json::{Value, json};

use crate::world::{Effects, RUN, World, builder, finished, pending, publish, script};

#[tokio::test]
async fn a_run_stops_at_the_gate_and_a_fresh_process_runs_exactly_what_was_reviewed_once() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = || builder(script(&[publish("p", "1.2.3")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent()).await.unwrap());
    assert!(effects.keys("publish").is_empty());

    let record = world.record(&waiting[0].approval_id).await;
    assert_eq!((record.status, record.kind), (Status::Pending, Kind::Tool));
    assert_eq!(record.request_reason.as_deref(), Some("it is public"));
    let content = json!({
        "kind": "tool_call", "toolName": "publish", "rawInput": {"version": "1.2.3"},
        "input": {"version": "1.2.3", "notes": []}, "agentName": "releaser", "taskId": "main",
        "toolCallId": "p", "consequential": true,
    });
    let canonical = Canonical::from_value(&content).unwrap();
    let action = Action::freeze(Kind::Tool, "main:p", canonical).unwrap();
    assert_eq!(record.digest, action.digest().to_hex());
    assert_eq!(record.id, action.id(RUN).as_str());
    assert_eq!(serde_json::from_str::<Value>(record.content.unwrap().get()).unwrap(), content);

    world.allow(&record.id).await;
    let done = finished(world.restore(&agent()).await.unwrap());
    assert_eq!(effects.keys("publish"), [record.id.as_str()], "the approval's id is the idempotency key");
    assert_eq!(done.calls[0].result, Some(CallResult::Succeeded(json!({"released": "1.2.3"}))));
    assert_eq!(done.calls[0].receipt, Some(ReceiptState::Delivered));
    assert!(done.output.contains("Succeeded"), "{}", done.output);
    let receipt = world.record(&record.id).await.receipt.unwrap();
    assert_eq!(receipt.outcome, Receipt::Succeeded);

    let types: Vec<String> = world
        .journal()
        .await
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    let expected = [
        "run-started",
        "model-replied",
        "call-suspended",
        "call-started",
        "call-ended",
        "call-settled",
        "model-replied",
        "run-finished",
    ];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn a_run_that_has_ended_answers_the_same_again_and_changes_nothing() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    let first = world.restore(&agent).await.unwrap();
    let journal = world.journal().await;
    for _ in 0..2 {
        assert_eq!(world.restore(&agent).await.unwrap(), first);
    }
    assert_eq!((effects.keys("publish").len(), world.journal().await), (1, journal));
}

#[tokio::test]
async fn a_restore_before_the_decision_stays_suspended_and_leaves_the_run_free() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    let journal = world.journal().await;
    for _ in 0..2 {
        assert_eq!(pending(world.restore(&agent).await.unwrap()), waiting);
    }
    assert_eq!(world.journal().await, journal);
    assert_eq!(world.agent.run(RUN).await.unwrap().state, "suspended");
    assert!(effects.keys("publish").is_empty());
}

#[tokio::test]
async fn calls_of_one_reply_run_or_wait_each_on_its_own() {
    let (world, effects) = (World::new().await, Effects::default());
    let calls = [
        publish("a", "1"),
        ("n", "note", json!({"version": "1"})),
        publish("b", "2"),
        ("x", "shred", json!({})),
    ];
    let agent = builder(script(&calls), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    assert_eq!(waiting.iter().map(|p| p.call_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((effects.keys("note").len(), effects.keys("publish").len()), (1, 0));

    world.allow(&waiting[1].approval_id).await;
    let left = pending(world.restore(&agent).await.unwrap());
    assert_eq!(left, waiting[..1]);
    assert_eq!(effects.keys("publish"), [waiting[1].approval_id.clone()]);
    assert_eq!(world.agent.run(RUN).await.unwrap().state, "suspended");

    world.allow(&waiting[0].approval_id).await;
    let done = finished(world.restore(&agent).await.unwrap());
    assert_eq!((effects.keys("note").len(), effects.keys("publish").len()), (1, 2));
    let Some(CallResult::Rejected(unknown)) = &done.calls[3].result else { panic!("{:?}", done.calls[3]) };
    assert_eq!(unknown.cause, Cause::UnknownTool);
}

#[tokio::test]
async fn a_failed_effect_is_told_to_the_model_and_in_the_receipt() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "broken")]), &effects).build().unwrap();
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    let done = finished(world.restore(&agent).await.unwrap());
    assert_eq!(done.calls[0].result, Some(CallResult::Failed("it broke".to_owned())));
    let receipt = world.record(&waiting[0].approval_id).await.receipt.unwrap();
    assert_eq!((receipt.outcome, receipt.detail.as_deref()), (Receipt::Failed, Some("it broke")));
}

#[tokio::test]
async fn a_lost_reply_at_any_step_changes_nothing() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    for _ in 0..3 {
        world.store.arm(|op| matches!(op, Op::Append { .. }), Fault::LosesReply);
    }
    let waiting = pending(world.start(&agent).await.unwrap());
    world.allow(&waiting[0].approval_id).await;
    for _ in 0..5 {
        world.store.arm(|op| matches!(op, Op::Append { .. }), Fault::LosesReply);
    }
    for _ in 0..2 {
        // The claim, then the receipt.
        world.store.arm(|op| matches!(op, Op::Apply { .. }), Fault::LosesReply);
    }
    let done = finished(world.restore(&agent).await.unwrap());
    assert_eq!(effects.keys("publish").len(), 1);
    assert_eq!(done.calls[0].receipt, Some(ReceiptState::Delivered));
}

#[tokio::test]
async fn what_a_run_was_started_with_can_be_read_without_taking_it() {
    let (world, effects) = (World::new().await, Effects::default());
    let agent = builder(script(&[publish("p", "1")]), &effects).build().unwrap();
    let mut new = crate::world::new_run();
    new.context.insert("workspace".to_owned(), json!("/w"));
    holdgate_sdk::run_agent(world.agent.clone(), &agent, new).await.unwrap();
    let start = read_start(world.agent.clone(), RUN).await.unwrap();
    assert_eq!((start.agent.as_str(), start.input.as_str()), ("releaser", "release it"));
    assert_eq!(start.context["workspace"], "/w");
}

#[tokio::test]
async fn a_model_that_never_ends_fails_the_run_for_good() {
    let (world, effects) = (World::new().await, Effects::default());
    let note = |id: &str| holdgate_sdk::Reply::text("").call(id.to_owned(), "note", json!({"version": "1"}));
    let model = holdgate_sdk::Scripted::default().then(note("a")).then(note("a")).then(note("a"));
    let agent = builder(model, &effects).max_turns(2).build().unwrap();
    let outcome = world.start(&agent).await.unwrap();
    let Outcome::Failed { calls, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(calls.len(), 2, "a repeated call id is another call");
    assert_eq!(world.restore(&agent).await.unwrap(), outcome);
}
