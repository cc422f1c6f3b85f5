//! Teams: what starts when, what has to pass a gate first, and what another process makes of what was left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use holdgate_core::requirement::Decision;
use holdgate_sdk::{
    Agent, Cause, GateError, InvalidPlan, Model, ModelError, NewTeamRun, Reply, RunError, Scripted, TaskSpec,
    TaskState, Team, TeamBuilder, TeamOutcome, TeamStatus, ToolSpec, Transcript, Verdict,
};
use serde_json::json;

use crate::world::{Effects, RUN, World, noting, usual};

/// Says what it was asked, and how many work at the same time.
#[derive(Clone, Default)]
struct Echo {
    log: Arc<Mutex<Vec<String>>>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Echo {
    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

#[async_trait]
impl Model for Echo {
    async fn reply(&self, transcript: &Transcript, _: &[ToolSpec]) -> Result<Reply, ModelError> {
        let holdgate_sdk::Message::User(input) = &transcript.messages[0] else { panic!("no input") };
        let title = input.lines().next().unwrap().trim_start_matches("# ").to_owned();
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.log.lock().unwrap().push(input.clone());
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Reply::text(format!("{title} is done")))
    }
}

fn task(id: &str, after: &[&str]) -> TaskSpec {
    let task = TaskSpec::new(id, id.to_uppercase(), "do it");
    after.iter().fold(task, |task, before| task.after(*before))
}

fn echoes(echo: &Echo, agents: usize) -> TeamBuilder {
    let agent = |n: usize| Agent::builder(format!("agent-{n}"), echo.clone()).build().unwrap();
    (0..agents).fold(Team::builder("crew"), |team, n| team.agent(agent(n)))
}

fn new_run(tasks: Vec<TaskSpec>) -> NewTeamRun {
    NewTeamRun { id: Some(RUN.to_owned()), tasks, ..NewTeamRun::default() }
}

impl World {
    async fn run_tasks(&self, team: &Team, tasks: Vec<TaskSpec>) -> TeamOutcome {
        team.run_tasks(self.agent.clone(), new_run(tasks)).await.unwrap()
    }

    async fn restore_team(&self, team: &Team) -> TeamOutcome {
        team.restore(self.agent.clone(), RUN).await.unwrap()
    }

    async fn allow_all(&self, outcome: &TeamOutcome) {
        for pending in &outcome.pending_approvals {
            self.allow(&pending.approval_id).await;
        }
    }
}

fn boundaries(outcome: &TeamOutcome) -> Vec<&str> {
    let mut waiting: Vec<_> =
        outcome.pending_approvals.iter().map(|pending| pending.boundary.as_str()).collect();
    waiting.sort_unstable();
    waiting
}

fn state<'a>(outcome: &'a TeamOutcome, task: &str) -> &'a TaskState {
    &outcome.tasks.iter().find(|summary| summary.task_id == task).unwrap().state
}

fn is_done(outcome: &TeamOutcome, task: &str) -> bool {
    matches!(state(outcome, task), TaskState::Completed(_))
}

async fn suspend<T>(_: T) -> Result<Verdict, GateError> {
    Ok(Verdict::Suspend { reason: Some("look first".to_owned()), timeout: None })
}

async fn never<T>(_: T) -> Result<Verdict, GateError> {
    panic!("a gate is not asked again about what was reviewed")
}

#[tokio::test]
async fn a_task_starts_when_what_it_needs_is_done_and_gets_its_output() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 4).build().unwrap();
    let plan = vec![
        task("last", &["left", "right"]),
        task("left", &["first"]),
        task("right", &["first"]),
        task("first", &[]),
    ];
    let outcome = world.run_tasks(&team, plan).await;
    assert_eq!((outcome.status.code(), outcome.success()), ("ok", true));
    assert_eq!(state(&outcome, "last"), &TaskState::Completed("LAST is done".to_owned()));
    let log = echo.log();
    assert_eq!(log[0], "# FIRST\n\ndo it");
    assert!(log[3].starts_with("# LAST"));
    for before in ["LEFT", "RIGHT"] {
        assert!(log[3].contains(&format!("{before} is done")), "{}", log[3]);
    }
    assert!(!log[3].contains("FIRST is done"), "only what it comes after");
    assert_eq!(world.restore_team(&team).await, outcome, "a final restore changes nothing");
    assert_eq!(echo.log().len(), 4);
}

#[tokio::test]
async fn an_agent_works_on_one_task_and_a_team_on_as_many_as_it_may() {
    for (agents, concurrency, most) in [(1, 5, 1), (6, 3, 3), (3, 8, 3)] {
        let (world, echo) = (World::new().await, Echo::default());
        let team = echoes(&echo, agents).concurrency(concurrency).build().unwrap();
        let plan = (0..12).map(|n| task(&format!("t{n}"), &[])).collect();
        assert!(world.run_tasks(&team, plan).await.success());
        assert_eq!(echo.most.load(Ordering::SeqCst), most, "{agents} agents, {concurrency} at once");
    }
}

#[tokio::test]
async fn a_ready_task_does_not_wait_for_one_that_it_does_not_need() {
    let world = World::new().await;
    let (started, gate) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    struct Slow(Arc<tokio::sync::Notify>);
    #[async_trait]
    impl Model for Slow {
        async fn reply(&self, _: &Transcript, _: &[ToolSpec]) -> Result<Reply, ModelError> {
            self.0.notified().await;
            Ok(Reply::text("slow"))
        }
    }
    struct Last(Arc<tokio::sync::Notify>, Arc<tokio::sync::Notify>);
    #[async_trait]
    impl Model for Last {
        async fn reply(&self, transcript: &Transcript, _: &[ToolSpec]) -> Result<Reply, ModelError> {
            let holdgate_sdk::Message::User(input) = &transcript.messages[0] else { panic!() };
            if input.starts_with("# C") {
                self.0.notify_one();
                self.1.notify_one();
            }
            Ok(Reply::text("fast"))
        }
    }
    let fast = Agent::builder("fast", Last(gate.clone(), started.clone())).build().unwrap();
    let slow = Agent::builder("slow", Slow(gate)).build().unwrap();
    let team = Team::builder("crew").agent(fast).agent(slow).build().unwrap();
    // B ends only once C, which needs A alone, has started.
    let plan = vec![
        task("a", &[]).assigned_to("fast"),
        task("b", &[]).assigned_to("slow"),
        task("c", &["a"]).assigned_to("fast"),
    ];
    let run = tokio::time::timeout(Duration::from_secs(10), world.run_tasks(&team, plan));
    assert!(run.await.unwrap().success());
    started.notified().await;
}

#[tokio::test]
async fn tasks_at_their_gate_are_reported_together_and_approved_ones_start_without_asking_again() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 2).on_task_dispatch(suspend).build().unwrap();
    let plan = || vec![task("a", &[]), task("b", &[]), task("c", &["a", "b"]), task("d", &[])];
    let outcome = world.run_tasks(&team, plan()).await;
    assert_eq!(outcome.status, TeamStatus::Suspended);
    assert_eq!(boundaries(&outcome), ["a", "b", "d"]);
    assert_eq!(echo.log(), [] as [String; 0], "no agent has heard of anything");
    let record = world.record(&outcome.pending_approvals[0].approval_id).await;
    assert!(record.content.unwrap().get().contains("\"kind\":\"task_dispatch\""));

    world.allow_all(&outcome).await;
    let strict = echoes(&echo, 2).on_task_dispatch(|ready: holdgate_sdk::TaskReady| async move {
        assert_eq!(ready.task["id"], "c", "only what was not reviewed is asked about");
        suspend(ready).await
    });
    let strict = strict.build().unwrap();
    let outcome = world.restore_team(&strict).await;
    assert_eq!(boundaries(&outcome), ["c"]);
    assert!(["a", "b", "d"].iter().all(|id| is_done(&outcome, id)));
    world.allow_all(&outcome).await;
    let never = echoes(&echo, 2).on_task_dispatch(never).build().unwrap();
    let outcome = world.restore_team(&never).await;
    assert!(outcome.success(), "{outcome:?}");
    assert_eq!(outcome.approval_decisions.len(), 4);
    assert_eq!(echo.log().len(), 4, "as many restores as there are levels");
    for record in world.records().await {
        assert_eq!(record.receipt.unwrap().outcome, holdgate_core::approval::Outcome::Succeeded);
    }
}

#[tokio::test]
async fn what_waits_blocks_only_what_depends_on_it() {
    let (world, echo) = (World::new().await, Echo::default());
    let picky = |ready: holdgate_sdk::TaskReady| async move {
        Ok::<_, GateError>(match ready.task["id"].as_str() {
            Some("a") => Verdict::Suspend { reason: None, timeout: None },
            _ => true.into(),
        })
    };
    let team = echoes(&echo, 2).on_task_dispatch(picky).build().unwrap();
    let plan = vec![task("a", &[]), task("after-a", &["a"]), task("b", &[]), task("after-b", &["b"])];
    let outcome = world.run_tasks(&team, plan).await;
    assert_eq!(boundaries(&outcome), ["a"]);
    assert!(is_done(&outcome, "b") && is_done(&outcome, "after-b"));
    assert_eq!(state(&outcome, "after-a"), &TaskState::Pending);
    world.allow_all(&outcome).await;
    assert!(world.restore_team(&team).await.success());
}

#[tokio::test]
async fn an_answer_that_comes_while_the_rest_runs_is_taken_up_without_a_restore() {
    let world = Arc::new(World::new().await);
    let (reviewer, echo) = (Arc::clone(&world), Echo::default());
    struct Reviewing(Arc<World>);
    #[async_trait]
    impl Model for Reviewing {
        async fn reply(&self, _: &Transcript, _: &[ToolSpec]) -> Result<Reply, ModelError> {
            loop {
                if let Some(record) = self.0.records().await.first() {
                    self.0.allow(&record.id).await;
                    return Ok(Reply::text("allowed it"));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    let picky = |ready: holdgate_sdk::TaskReady| async move {
        match ready.task["id"].as_str() {
            Some("gated") => suspend(()).await,
            _ => Ok(Verdict::Allow),
        }
    };
    let agents = [
        Agent::builder("echo", echo).build().unwrap(),
        Agent::builder("busy", Reviewing(reviewer)).build().unwrap(),
    ];
    let team = agents.into_iter().fold(Team::builder("crew"), TeamBuilder::agent);
    let team = team.on_task_dispatch(picky).build().unwrap();
    let plan = vec![task("gated", &[]).assigned_to("echo"), task("busy", &[]).assigned_to("busy")];
    assert!(world.run_tasks(&team, plan).await.success());
}

#[tokio::test]
async fn a_rejected_dispatch_ends_the_run_for_good() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 2).on_task_dispatch(suspend).build().unwrap();
    let outcome = world.run_tasks(&team, vec![task("a", &[]), task("b", &[])]).await;
    for (pending, decision) in outcome.pending_approvals.iter().zip([Decision::Deny, Decision::AllowOnce]) {
        world
            .decide(&pending.approval_id, decision, Some("not today").filter(|_| decision == Decision::Deny))
            .await;
    }
    for _ in 0..2 {
        let outcome = world.restore_team(&team).await;
        let TeamStatus::Rejected(why) = &outcome.status else { panic!("{outcome:?}") };
        assert_eq!((why.cause, why.detail.as_deref()), (Cause::Denied, Some("not today")));
        assert!(matches!(state(&outcome, "a"), TaskState::Skipped(_)));
    }
    assert!(world.agent.run(RUN).await.unwrap().state == "failed");
}

#[tokio::test]
async fn an_expired_plan_is_rejected_with_that_reason() {
    let (world, echo) = (World::new().await, Echo::default());
    let soon = |_| async {
        Ok::<_, GateError>(Verdict::Suspend { reason: None, timeout: Some(Duration::from_secs(1)) })
    };
    let team = echoes(&echo, 1).on_plan_ready(soon).build().unwrap();
    world.run_tasks(&team, vec![task("a", &[])]).await;
    world.clock.advance(1_000);
    let outcome = world.restore_team(&team).await;
    assert!(
        matches!(&outcome.status, TeamStatus::Rejected(why) if why.cause == Cause::Expired),
        "{outcome:?}"
    );
    assert_eq!(echo.log(), [] as [String; 0]);
}

#[tokio::test]
async fn a_plan_waits_as_a_whole_and_runs_exactly_as_reviewed() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 2).on_plan_ready(suspend).build().unwrap();
    let outcome = world.run_tasks(&team, vec![task("a", &[]), task("b", &["a"])]).await;
    assert_eq!(boundaries(&outcome), ["coordinator-plan"]);
    assert_eq!(outcome.pending_approvals[0].headline, "Execute a plan of 2 tasks");
    assert_eq!(world.restore_team(&team).await.pending_approvals, outcome.pending_approvals, "undecided");
    assert_eq!(echo.log(), [] as [String; 0]);
    world.allow_all(&outcome).await;
    let never = echoes(&echo, 2).on_plan_ready(never).build().unwrap();
    assert!(world.restore_team(&never).await.success());
    assert_eq!(echo.log().len(), 2);
}

#[tokio::test]
async fn a_plan_that_its_gate_denies_or_fails_on_starts_nothing() {
    let denials: [(TeamBuilder, Cause); 3] = [
        (
            echoes(&Echo::default(), 1).on_plan_ready(|_| async { Ok::<_, GateError>(false) }),
            Cause::GateDenied,
        ),
        (
            echoes(&Echo::default(), 1)
                .on_plan_ready(|_| async { Err::<bool, _>(GateError("no idea".to_owned())) }),
            Cause::GateFailed,
        ),
        (echoes(&Echo::default(), 1).on_plan_ready(never), Cause::GateFailed),
    ];
    for (team, cause) in denials {
        let world = World::new().await;
        let outcome = world.run_tasks(&team.build().unwrap(), vec![task("a", &[])]).await;
        assert!(matches!(&outcome.status, TeamStatus::Rejected(why) if why.cause == cause), "{outcome:?}");
        assert!(world.records().await.is_empty());
    }
}

#[tokio::test]
async fn a_run_without_the_gate_that_it_was_started_with_is_rejected() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 1).on_task_dispatch(suspend).build().unwrap();
    let outcome = world.run_tasks(&team, vec![task("a", &[]), task("b", &["a"])]).await;
    world.allow_all(&outcome).await;
    let ungated = echoes(&echo, 1).build().unwrap();
    let outcome = world.restore_team(&ungated).await;
    assert!(
        matches!(&outcome.status, TeamStatus::Rejected(why) if why.cause == Cause::NoGate),
        "{outcome:?}"
    );
    assert_eq!(echo.log().len(), 1, "what was reviewed has run");
}

#[tokio::test]
async fn rounds_wait_for_each_other_and_the_step_between_them_is_reviewed() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 4).on_round(suspend).build().unwrap();
    let plan =
        vec![task("a", &[]), task("b", &[]), task("c", &["a"]), task("d", &["b"]), task("e", &["c", "d"])];
    let outcome = world.run_tasks(&team, plan).await;
    assert_eq!(boundaries(&outcome), ["a,b->c,d"]);
    let content = world.record(&outcome.pending_approvals[0].approval_id).await.content.unwrap();
    let content: serde_json::Value = serde_json::from_str(content.get()).unwrap();
    assert_eq!(content["completedTasks"][0]["result"], "A is done");
    assert_eq!(content["nextTasks"][1]["id"], "d");
    world.allow_all(&outcome).await;
    let outcome = world.restore_team(&team).await;
    assert_eq!(boundaries(&outcome), ["c,d->e"]);
    world.allow_all(&outcome).await;
    let never = echoes(&echo, 4).on_round(never).build().unwrap();
    assert!(world.restore_team(&never).await.success(), "no round after the last");
    let both = echoes(&echo, 1).on_round(suspend).on_task_dispatch(suspend).build();
    assert_eq!(both.err(), Some(holdgate_sdk::InvalidTeam::RoundsAndDispatch));
}

/// A team whose `publisher` publishes, which waits for a person, while others work.
fn publishing(effects: &Effects, echo: &Echo) -> Team {
    let script = Scripted::default()
        .then(Reply::text("").call("p", "publish", json!({ "version": "1" })))
        .then(Reply::text("published"));
    let publisher = Agent::builder("publisher", script).tool(noting("publish", effects).consequential());
    echoes(echo, 2).agent(publisher.build().unwrap()).on_tool_call(usual).build().unwrap()
}

#[tokio::test]
async fn a_call_in_a_task_waits_alone_and_runs_once() {
    let (world, echo, effects) = (World::new().await, Echo::default(), Effects::default());
    let team = publishing(&effects, &echo);
    let plan = vec![
        task("p", &[]).assigned_to("publisher"),
        task("after", &["p"]).assigned_to("agent-0"),
        task("beside", &[]).assigned_to("agent-1"),
    ];
    let outcome = world.run_tasks(&team, plan).await;
    assert_eq!(boundaries(&outcome), ["p:p"]);
    assert!(is_done(&outcome, "beside"));
    assert_eq!(effects.keys("publish"), [] as [String; 0]);
    world.allow_all(&outcome).await;
    let outcome = world.restore_team(&team).await;
    assert!(outcome.success(), "{outcome:?}");
    assert_eq!(effects.keys("publish").len(), 1);
    assert_eq!(world.restore_team(&team).await, outcome);
    assert_eq!(effects.keys("publish").len(), 1);
}

#[tokio::test]
async fn a_failure_is_tried_again_and_takes_what_depends_on_it_along() {
    let world = World::new().await;
    struct Failing(AtomicUsize, usize);
    #[async_trait]
    impl Model for Failing {
        async fn reply(&self, _: &Transcript, _: &[ToolSpec]) -> Result<Reply, ModelError> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                tried if tried < self.1 => Err(ModelError("overloaded".to_owned())),
                _ => Ok(Reply::text("at last")),
            }
        }
    }
    let agent =
        |name: &str, failures| Agent::builder(name, Failing(AtomicUsize::new(0), failures)).build().unwrap();
    let team =
        Team::builder("crew").agent(agent("flaky", 2)).agent(agent("broken", 99)).agent(agent("fine", 0));
    let team = team.build().unwrap();
    let quick = |id: &str, agent: &str| TaskSpec {
        retry_delay_ms: Some(1),
        ..task(id, &[]).assigned_to(agent).retries(2)
    };
    let plan = vec![
        quick("flaky", "flaky"),
        quick("broken", "broken"),
        task("after", &["broken"]).assigned_to("fine"),
        task("after that", &["after"]).assigned_to("fine"),
        task("beside", &["flaky"]).assigned_to("fine"),
    ];
    let outcome = world.run_tasks(&team, plan).await;
    assert_eq!(outcome.status, TeamStatus::Error("3 of 5 tasks were not completed".to_owned()));
    assert!(is_done(&outcome, "flaky") && is_done(&outcome, "beside"));
    assert_eq!(
        state(&outcome, "broken"),
        &TaskState::Failed("the model gave no reply: overloaded".to_owned())
    );
    assert_eq!(
        state(&outcome, "after that"),
        &TaskState::Failed("the task \"after\" before it failed".to_owned())
    );
    assert_eq!(world.restore_team(&team).await, outcome);
}

#[tokio::test]
async fn a_plan_that_is_none_starts_nothing() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 1).build().unwrap();
    let refused = team.run_tasks(world.agent.clone(), new_run(vec![task("a", &["a"])])).await.unwrap_err();
    assert!(matches!(refused, RunError::Plan(InvalidPlan::Circle(_))), "{refused}");
    let refused = team.restore(world.agent.clone(), RUN).await.unwrap_err();
    assert!(matches!(refused, RunError::NotFound { .. }), "a run that is not there is an error: {refused}");
}

#[tokio::test]
async fn another_team_or_agent_does_not_take_a_run_up() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 2).on_plan_ready(suspend).build().unwrap();
    let outcome = world.run_tasks(&team, vec![task("a", &[]), task("b", &[])]).await;
    let smaller = echoes(&echo, 1).on_plan_ready(suspend).build().unwrap();
    let other = Team::builder("others")
        .agent(Agent::builder("agent-0", echo.clone()).build().unwrap())
        .build()
        .unwrap();
    for stranger in [&smaller, &other] {
        let refused = stranger.restore(world.agent.clone(), RUN).await.unwrap_err();
        assert!(matches!(refused, RunError::OtherAgent { .. }), "{refused}");
    }
    let alone = Agent::builder("agent-0", echo.clone()).build().unwrap();
    assert!(matches!(world.restore(&alone).await, Err(RunError::OtherAgent { .. })));
    world.allow_all(&outcome).await;
    assert!(world.restore_team(&team).await.success(), "and leaves it as it is");
}

#[tokio::test]
async fn a_run_of_many_tasks_writes_what_they_say_and_little_more() {
    let world = World::new().await;
    let said = "x".repeat(2_000);
    let words = said.clone();
    let model = Scripted::default().then_with(move |_| Reply::text(words.clone()));
    let team = Team::builder("crew").agent(Agent::builder("a", model).build().unwrap()).build().unwrap();
    let tasks = 300;
    let plan = (0..tasks).map(|n| task(&format!("t{n}"), &[])).collect();
    assert!(world.run_tasks(&team, plan).await.success());
    let mut bytes = 0;
    let mut after = 0;
    loop {
        let page = world.agent.journal(RUN, after).await.unwrap();
        bytes += page.items.iter().map(|entry| entry.event.get().len()).sum::<usize>();
        after = page.items.last().map_or(after, |entry| entry.seq);
        if after >= page.last_seq {
            break;
        }
    }
    let overhead = bytes / tasks - said.len();
    assert!(overhead < 500, "{overhead} bytes beside the output of each task");
}

#[tokio::test]
async fn calls_of_one_reply_run_side_by_side_and_one_that_waits_does_not_hold_the_others_up() {
    let (world, effects) = (World::new().await, Effects::default());
    let meeting = Arc::new(tokio::sync::Barrier::new(2));
    let meet = holdgate_sdk::TypedTool::new("meet", "", move |_: serde_json::Value, _| {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait().await;
            Ok(json!("met"))
        }
    });
    let script = Scripted::default()
        .then(
            Reply::text("")
                .call("1", "meet", json!({}))
                .call("p", "publish", json!({ "version": "1" }))
                .call("2", "meet", json!({})),
        )
        .then(Reply::text("done"));
    let agent =
        Agent::builder("a", script).tool(meet).tool(noting("publish", &effects).consequential()).gate(usual);
    let agent = agent.build().unwrap();
    let started = tokio::time::timeout(Duration::from_secs(10), world.start(&agent)).await.unwrap().unwrap();
    let pending = crate::world::pending(started);
    assert_eq!(pending.len(), 1);
    world.allow(&pending[0].approval_id).await;
    let finished = crate::world::finished(world.restore(&agent).await.unwrap());
    assert_eq!(finished.calls.len(), 3);
    assert_eq!(effects.keys("publish").len(), 1);
}

#[tokio::test]
async fn of_two_restores_at_once_one_goes_on_and_the_effect_happens_once() {
    for turn in 0..40 {
        let (world, echo, effects) = (World::new().await, Echo::default(), Effects::default());
        let team = publishing(&effects, &echo);
        let outcome = world.run_tasks(&team, vec![task("p", &[]).assigned_to("publisher")]).await;
        world.allow_all(&outcome).await;
        let late = async {
            tokio::time::sleep(Duration::from_micros(turn * 150)).await;
            team.restore(world.agent.clone(), RUN).await
        };
        let (one, two) = tokio::join!(team.restore(world.agent.clone(), RUN), late);
        assert_eq!(effects.keys("publish").len(), 1, "{turn}: {one:?} {two:?}");
        let restored = [one, two];
        let held = restored.iter().filter(|came| matches!(came, Err(RunError::Held { .. }))).count();
        let ended = restored.iter().flatten().filter(|outcome| outcome.success()).count();
        assert_eq!(held + ended, 2, "{turn}: {restored:?}");
        assert!(ended >= 1);
    }
}

fn coordinator() -> Agent {
    let answer = |transcript: &Transcript| {
        let holdgate_sdk::Message::User(asked) = &transcript.messages[0] else { panic!() };
        if asked.contains("Break this goal down") {
            return Reply::text(json!([
                { "title": "Build", "description": "build it", "assignee": "agent-0" },
                { "title": "Ship", "description": "ship it", "assignee": "agent-1", "dependsOn": ["Build"] },
            ]).to_string());
        }
        assert!(asked.contains("Build is done") && asked.contains("Ship is done"), "{asked}");
        Reply::text("released")
    };
    Agent::builder("boss", Scripted::default().then_with(answer)).build().unwrap()
}

#[tokio::test]
async fn a_goal_is_planned_reviewed_run_and_put_together() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = || echoes(&echo, 2).coordinator(coordinator());
    let gated = team().on_plan_ready(suspend).build().unwrap();
    let outcome = gated.run_goal(world.agent.clone(), new_run(Vec::new()), "release it").await.unwrap();
    assert_eq!(boundaries(&outcome), ["coordinator-plan"]);
    assert_eq!(echo.log(), [] as [String; 0]);
    world.allow_all(&outcome).await;
    let never = team().on_plan_ready(never).build().unwrap();
    let outcome = world.restore_team(&never).await;
    assert_eq!((outcome.success(), outcome.output.as_str()), (true, "released"));
    assert_eq!(world.restore_team(&never).await, outcome);
}

#[tokio::test]
async fn a_plan_can_be_kept_and_run_later_as_it_is() {
    let (world, echo) = (World::new().await, Echo::default());
    let team = echoes(&echo, 2).coordinator(coordinator()).build().unwrap();
    let plan = team.plan("release it").await.unwrap();
    assert!(
        matches!(world.agent.run(RUN).await, Err(error) if error.code() == Some(holdgate_wire::Code::NotFound))
    );
    let kept = serde_json::to_string(&plan).unwrap();
    let plan: holdgate_sdk::Plan = serde_json::from_str(&kept).unwrap();
    let outcome = team.run_plan(world.agent.clone(), new_run(Vec::new()), plan).await.unwrap();
    assert_eq!((outcome.success(), outcome.output.as_str()), (true, ""));
    assert_eq!(outcome.tasks[1].task_id, "task-2");
    let newer: holdgate_sdk::Plan = serde_json::from_str(r#"{"version":2,"tasks":[]}"#).unwrap();
    let refused = team.run_plan(world.agent.clone(), new_run(Vec::new()), newer).await.unwrap_err();
    assert!(matches!(refused, RunError::Plan(InvalidPlan::Version(2))), "{refused}");
    let headless = echoes(&echo, 1).build().unwrap();
    assert!(matches!(headless.plan("x").await, Err(RunError::Plan(InvalidPlan::Coordinator(_)))));
}
