//! A team's gates: the whole plan, each round, or each task waits for a person before anything of it starts.
//!
//! `cargo run --example gated_plan -- plan`, `-- round` or `-- dispatch`. It needs no model and no key.

mod desk;

use desk::{Desk, Result};
use holdgate_sdk::{
    Agent, GateError, NewTeamRun, Reply, Scripted, TaskSpec, Team, TeamBuilder, TeamStatus, Verdict,
};

fn team(gate: &str) -> Result<Team> {
    let agent = |name: &str| {
        let script = Scripted::default().then_with(|transcript| {
            Reply::text(format!("done after {} messages", transcript.messages.len()))
        });
        Agent::builder(name, script).build()
    };
    let team: TeamBuilder = Team::builder("release").agent(agent("dev")?).agent(agent("ops")?);
    let team = match gate {
        "round" => team.on_round(ask),
        "dispatch" => team.on_task_dispatch(ask),
        _ => team.on_plan_ready(ask),
    };
    Ok(team.build()?)
}

/// Everything is put to a person.
async fn ask<T>(_: T) -> std::result::Result<Verdict, GateError> {
    Ok(Verdict::Suspend { reason: None, timeout: None })
}

fn tasks() -> Vec<TaskSpec> {
    vec![
        TaskSpec::new("build", "Build the release", "Build 1.4.0 from main.").assigned_to("dev"),
        TaskSpec::new("notes", "Write the notes", "What changed since 1.3.").assigned_to("ops"),
        TaskSpec::new("ship", "Ship it", "Publish what was built.")
            .assigned_to("ops")
            .after("build")
            .after("notes"),
    ]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let gate = std::env::args().nth(1).unwrap_or_else(|| "plan".to_owned());
    let dir = tempfile::tempdir()?;
    let desk = Desk::open(dir.path()).await?;
    let new = NewTeamRun { tasks: tasks(), ..NewTeamRun::default() };
    let mut outcome = team(&gate)?.run_tasks(desk.agent.clone(), new).await?;
    // A fresh process would do the same from here: the run's id is all that it needs.
    while outcome.status == TeamStatus::Suspended {
        println!("{} waits for:", outcome.run_id);
        for pending in &outcome.pending_approvals {
            desk.allow(&pending.approval_id).await?;
        }
        outcome = team(&gate)?.restore(desk.agent.clone(), &outcome.run_id).await?;
    }
    for task in &outcome.tasks {
        println!("{}: {:?}", task.task_id, task.state);
    }
    println!("{}", outcome.status.code());
    desk.close().await;
    Ok(())
}
