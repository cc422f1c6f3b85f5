//! A team's run over a gateway: its journal is kept there, its gates are reviewed there, and another process goes on.

use std::sync::Arc;

use holdgate_authority::Authority;
use holdgate_sdk::{
    Agent, GateError, NewTeamRun, Reply, Scripted, TaskSpec, Team, TeamOutcome, TeamStatus, ToolCall,
    TypedTool, Verdict,
};
use serde_json::{Value, json};

use crate::world::World;

async fn suspend<T>(_: T) -> Result<Verdict, GateError> {
    Ok(Verdict::Suspend { reason: None, timeout: None })
}

fn team(shipped: &Arc<std::sync::atomic::AtomicUsize>) -> Team {
    let shipped = Arc::clone(shipped);
    let ship = TypedTool::new("ship", "", move |_: Value, _| {
        let shipped = Arc::clone(&shipped);
        async move {
            shipped.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(json!("shipped"))
        }
    });
    let script =
        Scripted::default().then(Reply::text("").call("s", "ship", json!({}))).then(Reply::text("done"));
    let gate = |call: ToolCall| async move { suspend(call).await };
    let ops = Agent::builder("ops", script).tool(ship.consequential()).gate(gate).build().unwrap();
    let dev = Agent::builder("dev", Scripted::default().then(Reply::text("built"))).build().unwrap();
    Team::builder("release")
        .agent(ops)
        .agent(dev)
        .on_plan_ready(suspend)
        .on_task_dispatch(suspend)
        .build()
        .unwrap()
}

fn tasks() -> Vec<TaskSpec> {
    vec![
        TaskSpec::new("build", "Build", "Build it.").assigned_to("dev"),
        TaskSpec::new("ship", "Ship", "Ship it.").assigned_to("ops").after("build"),
    ]
}

#[test]
fn a_team_is_reviewed_at_a_gateway_and_goes_on_after_it_restarted() {
    let world = World::new();
    let shipped = Arc::default();
    let mut outcome: Option<TeamOutcome> = None;
    let mut scopes = Vec::new();
    loop {
        // Another gateway in every life.
        let served = world.serve();
        let agent: Arc<dyn Authority> = Arc::new(served.agent());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let came = runtime.block_on(async {
            match &outcome {
                None => {
                    team(&shipped)
                        .run_tasks(agent, NewTeamRun { tasks: tasks(), ..NewTeamRun::default() })
                        .await
                }
                Some(outcome) => team(&shipped).restore(agent, &outcome.run_id).await,
            }
        });
        let came = came.unwrap();
        for pending in &came.pending_approvals {
            scopes.push(pending.scope.clone());
            assert_eq!(
                pending.url.as_deref(),
                Some(&*format!("{}/approve/{}", served.url, pending.approval_id))
            );
            let allowed = world.run(&["approvals", "allow", &pending.approval_id]);
            assert_eq!(allowed.code, 0, "{allowed:?}");
        }
        let is_over = came.status != TeamStatus::Suspended;
        outcome = Some(came);
        served.stop();
        if is_over {
            break;
        }
    }
    let outcome = outcome.unwrap();
    assert!(outcome.success());
    shows_it(&world, &outcome.run_id);
    assert_eq!(scopes, ["plan", "task_dispatch", "task_dispatch", "tool_call"]);
    assert_eq!(shipped.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// What the run's journal tells, without a gateway.
fn shows_it(world: &World, run: &str) {
    let shown = world.run(&["runs", "show", run]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.contains("finished after entry"), "{}", shown.stdout);
    assert!(shown.stdout.contains("  build (dev): completed\n    built\n"), "{}", shown.stdout);
    let timeline = world.run(&["runs", "timeline", run, "--json"]).json();
    let items = timeline["items"].as_array().unwrap();
    let told: Vec<&str> = items.iter().map(|item| item["what"].as_str().unwrap()).collect();
    assert_eq!(told[..2], ["team release started on 2 tasks", "2 tasks planned"]);
    let claimed = told.iter().position(|what| *what == "call s claimed its allow and started").unwrap();
    assert_eq!(told[claimed + 1], "call s succeeded");
    let before = world.run(&["runs", "replay", run, "--to", &claimed.to_string(), "--json"]).json();
    assert_eq!((&before["state"], &before["waiting"].as_array().unwrap().len()), (&json!("waiting"), &1));
    assert_eq!(before["tasks"][1]["state"], "in progress");
    assert_eq!(world.run(&["runs", "show", "nobody"]).code, 5);
    for to in ["0", "9999"] {
        let beyond = world.run(&["runs", "replay", run, "--to", to]);
        assert!(beyond.code == 1 && beyond.stderr.contains("has the entries 1 to"), "{beyond:?}");
    }
}
