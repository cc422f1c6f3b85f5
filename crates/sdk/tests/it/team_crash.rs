//! A team's process killed at every step of every life: whatever is left, no effect happens twice or without an allow,
//! and the run comes to the same end.

use std::sync::Arc;

use holdgate_core::Command;
use holdgate_core::approval::{Outcome as Receipt, Status};
use holdgate_core::limits::RUN_LEASE_MS;
use holdgate_core::requirement::Decision;
use holdgate_sdk::{
    Agent, GateError, NewTeamRun, Reply, RunError, Scripted, TaskSpec, TaskState, Team, TeamOutcome,
    TeamStatus, TypedTool, Verdict,
};
use holdgate_store::Op;
use holdgate_testkit::Fault;
use serde_json::{Value, json};

use crate::mortal::{Fuse, Mortal};
use crate::world::{Effects, RUN, World, usual};

/// `publish`, which can die before and after its effect, and looks for its own allow.
fn publish(world: &World, effects: &Effects, fuse: &Fuse) -> TypedTool {
    let (effects, fuse, operator) = (effects.clone(), fuse.clone(), world.operator.clone());
    let publish = move |_: Value, context: holdgate_sdk::ToolContext| {
        let (effects, fuse, operator) = (effects.clone(), fuse.clone(), operator.clone());
        async move {
            fuse.burn().await;
            let record = operator.get(&context.idempotency_key).await.unwrap();
            assert_eq!(record.status, Status::Allowed, "an effect without an allow");
            assert!(record.claim.is_some(), "an effect without a claim");
            effects.add(&context.task_id, &context.idempotency_key);
            fuse.burn().await;
            Ok(json!("published"))
        }
    };
    TypedTool::new("publish", "", publish).consequential()
}

async fn suspend<T>(_: T) -> Result<Verdict, GateError> {
    Ok(Verdict::Suspend { reason: None, timeout: None })
}

fn team(world: &World, effects: &Effects, fuse: &Fuse) -> Team {
    let agent = |name: &str| {
        let script = Scripted::default()
            .then(Reply::text("").call("p", "publish", json!({ "by": name })))
            .then(Reply::text("published"));
        Agent::builder(name, script).tool(publish(world, effects, fuse)).build().unwrap()
    };
    let quiet = Agent::builder("quiet", Scripted::default().then(Reply::text("quiet"))).build().unwrap();
    let team = ["one", "two"].into_iter().fold(Team::builder("crew"), |team, name| team.agent(agent(name)));
    let gated = |ready: holdgate_sdk::TaskReady| async move {
        if ready.task["id"] == "first" { suspend(()).await } else { Ok(Verdict::Allow) }
    };
    team.agent(quiet).on_plan_ready(suspend).on_task_dispatch(gated).on_tool_call(usual).build().unwrap()
}

fn plan() -> NewTeamRun {
    let task = |id: &str, agent: &str| TaskSpec::new(id, id, "do it").assigned_to(agent);
    NewTeamRun {
        id: Some(RUN.to_owned()),
        tasks: vec![
            task("first", "one"),
            task("beside", "two"),
            task("quiet", "quiet"),
            task("last", "quiet").after("first").after("beside"),
        ],
        ..NewTeamRun::default()
    }
}

/// Lives one life after another, each as long as its fuse, deciding whatever is pending in between.
async fn live(world: &World, fuses: &[usize], decision: Decision) -> (Option<TeamOutcome>, Effects, usize) {
    let (effects, mut deaths) = (Effects::default(), 0);
    let mut fuses = fuses.iter().copied();
    loop {
        let fuse = Fuse::of(fuses.next().unwrap_or(usize::MAX));
        let mortal = Arc::new(Mortal { inner: world.agent.clone(), fuse: fuse.clone() });
        let team = team(world, &effects, &fuse);
        let has_begun = world.agent.run(RUN).await.is_ok();
        let life = async {
            if has_begun { team.restore(mortal, RUN).await } else { team.run_tasks(mortal, plan()).await }
        };
        let ended = fuse.cut(life).await;
        for record in world.records().await.iter().filter(|record| record.status == Status::Pending) {
            world.decide(&record.id, decision, None).await;
        }
        match ended {
            None => {
                deaths += 1;
                world.clock.advance(RUN_LEASE_MS);
            }
            Some(Ok(outcome)) if outcome.status == TeamStatus::Suspended => {}
            Some(Ok(outcome)) => return (Some(outcome), effects, deaths),
            Some(Err(RunError::NeverStarted { .. })) => return (None, effects, deaths),
            Some(Err(error)) => panic!("{error}"),
        }
    }
}

async fn check(fuses: &[usize]) -> usize {
    let world = World::new().await;
    let (ended, effects, deaths) = live(&world, fuses, Decision::AllowOnce).await;
    let told = format!("{fuses:?}: {ended:?}");
    for task in ["first", "beside"] {
        assert!(effects.keys(task).len() <= 1, "{told}");
    }
    let Some(outcome) = ended else {
        assert!(world.records().await.is_empty(), "{told}");
        return deaths;
    };
    if outcome.status == TeamStatus::Unknown {
        assert!(!outcome.unknown_calls.is_empty(), "what is unknown is listed: {told}");
        for unknown in &outcome.unknown_calls {
            let record = world.record(&unknown.review.as_ref().unwrap().approval_id).await;
            assert_eq!(record.receipt.map(|receipt| receipt.outcome), Some(Receipt::Unknown), "{told}");
        }
        assert!(
            outcome.tasks.iter().any(|task| task.state == TaskState::Completed("quiet".to_owned())),
            "{told}"
        );
        return deaths;
    }
    assert!(outcome.success(), "{told}");
    for task in ["first", "beside"] {
        assert_eq!(effects.keys(task).len(), 1, "{told}");
    }
    for record in world.records().await {
        assert_eq!(record.receipt.map(|receipt| receipt.outcome), Some(Receipt::Succeeded), "{told}");
    }
    deaths
}

#[tokio::test]
async fn killed_at_any_step_of_any_life_a_team_comes_to_the_same_end() {
    // The lives end at the plan, at the first dispatch, at the calls; the last one publishes.
    let mut steps = Vec::new();
    for lives in 0..4 {
        let mut step = 1;
        let fuses = |step| std::iter::repeat_n(10_000, lives).chain([step]).collect::<Vec<_>>();
        while check(&fuses(step)).await > 0 {
            step += 1;
        }
        steps.push(step - 1);
    }
    assert!(steps.iter().all(|&steps| steps > 6), "{steps:?}");
}

#[tokio::test]
async fn killed_twice_in_a_row_it_does_as_well() {
    for step in (1..60).step_by(3) {
        for again in (1..30).step_by(5) {
            check(&[10_000, step, again]).await;
        }
    }
}

#[tokio::test]
async fn a_denied_plan_has_no_effects_wherever_its_process_dies() {
    for lives in 0..2 {
        let mut step = 1;
        loop {
            let fuses: Vec<_> = std::iter::repeat_n(10_000, lives).chain([step]).collect();
            let world = World::new().await;
            let (ended, effects, deaths) = live(&world, &fuses, Decision::Deny).await;
            assert!(effects.keys("first").is_empty() && effects.keys("beside").is_empty());
            let is_rejected = |outcome: &TeamOutcome| matches!(outcome.status, TeamStatus::Rejected(_));
            assert!(ended.as_ref().is_none_or(is_rejected), "{fuses:?}: {ended:?}");
            if deaths == 0 {
                break;
            }
            step += 1;
        }
    }
}

/// A claim or a receipt: not a reviewer's answer.
fn is_the_runs(op: &Op) -> bool {
    matches!(op, Op::Apply { command: Command::Claim { .. } | Command::Settle { .. }, .. })
}

#[tokio::test]
async fn a_lost_reply_at_any_step_changes_nothing() {
    let world = World::new().await;
    let (effects, fuse) = (Effects::default(), Fuse::of(usize::MAX));
    let lose = |replies: usize| {
        for _ in 0..replies {
            world.store.arm(|op| matches!(op, Op::Append { .. }), Fault::LosesReply);
            world.store.arm(is_the_runs, Fault::LosesReply);
        }
    };
    lose(2);
    let mut outcome = team(&world, &effects, &fuse).run_tasks(world.agent.clone(), plan()).await.unwrap();
    while outcome.status == TeamStatus::Suspended {
        assert!(!outcome.pending_approvals.is_empty(), "{outcome:?}");
        for pending in &outcome.pending_approvals {
            world.allow(&pending.approval_id).await;
        }
        lose(3);
        outcome = team(&world, &effects, &fuse).restore(world.agent.clone(), RUN).await.unwrap();
    }
    assert!(outcome.success(), "{outcome:?}");
    assert_eq!((effects.keys("first").len(), effects.keys("beside").len()), (1, 1));
}
