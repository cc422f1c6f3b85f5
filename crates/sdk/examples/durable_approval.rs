//! A tool call that waits for a person, over three processes: one stops at the gate and exits, one decides, and a fresh
//! one goes on with exactly what was reviewed.
//!
//! `cargo run --example durable_approval` runs all three, one after the other. It needs no model and no key.

mod desk;

use std::path::Path;
use std::process::Command;

use desk::{Desk, Result};
use holdgate_sdk::{
    Agent, NewRun, Outcome, Reply, Scripted, ToolCall, TypedTool, Verdict, restore, run_agent,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

const RUN: &str = "release-1.4";

#[derive(Serialize, Deserialize)]
struct Deployment {
    environment: String,
    version: String,
}

/// The same agent in every process.
fn agent() -> Result<Agent> {
    let deploy = TypedTool::new("deploy", "Deploys a version.", |to: Deployment, context| async move {
        println!("  tool: deploying {} to {}, under {}", to.version, to.environment, context.idempotency_key);
        Ok(json!("deployed"))
    });
    let model = Scripted::default()
        .then(Reply::text("I will deploy it.").call(
            "call-1",
            "deploy",
            json!({ "environment": "production", "version": "1.4.0" }),
        ))
        .then_with(|transcript| Reply::text(format!("deploy: {:?}", transcript.last_result("deploy"))));
    let gate = |call: ToolCall| async move {
        Ok(if call.is_consequential {
            Verdict::Suspend { reason: Some("it changes production".to_owned()), timeout: None }
        } else {
            Verdict::Allow
        })
    };
    Ok(Agent::builder("operator", model).tool(deploy.consequential()).gate(gate).build()?)
}

async fn suspend(dir: &Path) -> Result<()> {
    let desk = Desk::open(dir).await?;
    let new = NewRun { id: Some(RUN.to_owned()), input: "Release 1.4.0".to_owned(), ..NewRun::default() };
    let outcome = run_agent(desk.agent.clone(), &agent()?, new).await?;
    let Outcome::Suspended { pending, .. } = outcome else {
        return Err("it did not stop at the gate".into());
    };
    println!("  agent: waiting for {}", pending[0].approval_id);
    desk.close().await;
    Ok(())
}

async fn decide(dir: &Path) -> Result<()> {
    let desk = Desk::open(dir).await?;
    let Outcome::Suspended { pending, .. } = restore(desk.agent.clone(), &agent()?, RUN).await? else {
        return Err("it does not wait".into());
    };
    desk.allow(&pending[0].approval_id).await?;
    desk.close().await;
    Ok(())
}

async fn go_on(dir: &Path) -> Result<()> {
    let desk = Desk::open(dir).await?;
    for _ in 0..2 {
        // The second time there is nothing left to do, and nothing is done.
        let Outcome::Finished(finished) = restore(desk.agent.clone(), &agent()?, RUN).await? else {
            return Err("it did not come to its end".into());
        };
        println!("  agent: {}", finished.output);
    }
    desk.close().await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["suspend", dir] => suspend(dir.as_ref()).await,
        ["decide", dir] => decide(dir.as_ref()).await,
        ["restore", dir] => go_on(dir.as_ref()).await,
        _ => {
            let dir = tempfile::tempdir()?;
            for process in ["suspend", "decide", "restore"] {
                println!("process {process}:");
                let status = Command::new(std::env::current_exe()?).arg(process).arg(dir.path()).status()?;
                if !status.success() {
                    return Err(format!("{process} failed").into());
                }
            }
            Ok(())
        }
    }
}
