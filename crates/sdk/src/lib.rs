//! Agent runs that stop at a gate, exit, and resume exactly what was reviewed.
//!
//! Owns the run engine: agents, tools, gates, models, the run's journal and what follows from it. Runs over any
//! [`Authority`](holdgate_authority::Authority), in this process or over the network; it knows neither the store nor
//! the gateway. Owns no decision: those are the authority's.
//!
//! ```
//! # use std::sync::Arc;
//! # use holdgate_authority::Authority;
//! use holdgate_sdk::{Agent, NewRun, Outcome, Reply, Scripted, ToolCall, TypedTool, Verdict, restore, run_agent};
//! use serde_json::{Value, json};
//!
//! /// The same agent in every process.
//! fn agent() -> Agent {
//!     let deploy = TypedTool::new("deploy", "Deploys a service.", |to: Value, context| async move {
//!         // The same key for every attempt at this call: the approval's id.
//!         println!("deploying to {to}, once, under {}", context.idempotency_key);
//!         Ok(json!("deployed"))
//!     });
//!     let model = Scripted::default()
//!         .then(Reply::text("Deploying.").call("call-1", "deploy", json!({ "environment": "staging" })))
//!         .then(Reply::text("Done."));
//!     Agent::builder("operator", model)
//!         .tool(deploy.consequential())
//!         .gate(|_: ToolCall| async { Ok(Verdict::Suspend { reason: None, timeout: None }) })
//!         .build()
//!         .expect("two different names")
//! }
//!
//! # async fn first(authority: Arc<dyn Authority>) -> Result<(), holdgate_sdk::RunError> {
//! // One process stops at the gate and may exit.
//! if let Outcome::Suspended { run_id, pending } = run_agent(authority, &agent(), NewRun::default()).await? {
//!     println!("run {run_id} waits for {}", pending[0].approval_id);
//! }
//! # Ok(()) }
//! # async fn second(authority: Arc<dyn Authority>, run_id: &str) -> Result<(), holdgate_sdk::RunError> {
//! // Another goes on after the decision. It runs exactly what was reviewed, or nothing.
//! let outcome = restore(authority, &agent(), run_id).await?;
//! # Ok(()) }
//! ```

mod agent;
mod gate;
mod model;
mod run;
mod team;
mod tool;

pub use agent::{Agent, AgentBuilder, InvalidAgent};
pub use gate::{Gate, GateError, ToolCall, Verdict};
pub use model::{Message, Model, ModelError, Reply, RequestedCall, Scripted, ToolSpec, Transcript};
pub use run::journal::JournalError;
pub use run::outcome::{
    CallResult, CallSummary, Cause, Finished, GateDecision, Outcome, Pending, PendingApproval, ReceiptState,
    Rejection, Review, TaskState, TaskSummary, TeamOutcome, TeamStatus, UnknownCall,
};
pub use run::task::{InvalidPlan, Plan, Priority, TaskSpec};
pub use run::{NewRun, RunError, RunStart, read_start, restore, run_agent};
pub use team::{InvalidTeam, NewTeamRun, PlanReady, RoundReady, TaskReady, Team, TeamBuilder};
pub use tool::{InvalidInput, Tool, ToolContext, ToolError, TypedTool};
