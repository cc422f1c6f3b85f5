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
//!
//! # Teams
//! Agents that share a plan are a [`Team`]. A task starts when the tasks that it comes after are done, and gets their
//! output. The whole plan, each round or each task can be put to a person before anything of it starts; what waits blocks
//! only what depends on it.
//!
//! ```
//! # use std::sync::Arc;
//! # use holdgate_authority::Authority;
//! use holdgate_sdk::{Agent, GateError, NewTeamRun, Reply, Scripted, TaskReady, TaskSpec, Team, Verdict};
//!
//! /// The same team in every process.
//! fn team() -> Team {
//!     let agent = |name: &str| {
//!         Agent::builder(name, Scripted::default().then(Reply::text("done"))).build().expect("a good name")
//!     };
//!     let gate = |ready: TaskReady| async move {
//!         // `true` and `false` will do as well.
//!         Ok::<_, GateError>(match ready.task["id"].as_str() {
//!             Some("ship") => Verdict::Suspend { reason: Some("it is public".to_owned()), timeout: None },
//!             _ => Verdict::Allow,
//!         })
//!     };
//!     let team = Team::builder("release").agent(agent("dev")).agent(agent("ops")).on_task_dispatch(gate);
//!     team.build().expect("two different agents")
//! }
//!
//! # async fn first(authority: Arc<dyn Authority>) -> Result<(), holdgate_sdk::RunError> {
//! let tasks = vec![
//!     TaskSpec::new("build", "Build", "Build the release from main.").assigned_to("dev"),
//!     TaskSpec::new("ship", "Ship", "Publish what was built.").assigned_to("ops").after("build"),
//! ];
//! let outcome = team().run_tasks(authority, NewTeamRun { tasks, ..NewTeamRun::default() }).await?;
//! for pending in &outcome.pending_approvals {
//!     println!("{} waits for {}", pending.boundary, pending.approval_id);
//! }
//! # Ok(()) }
//! # async fn second(authority: Arc<dyn Authority>, run_id: &str) -> Result<(), holdgate_sdk::RunError> {
//! let outcome = team().restore(authority, run_id).await?;
//! assert_eq!(outcome.status.code(), "ok");
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
pub use run::inspect::{RunView, TimelineEntry, replay, timeline};
pub use run::journal::JournalError;
pub use run::outcome::{
    CallResult, CallSummary, Cause, Finished, GateDecision, Outcome, Pending, PendingApproval, ReceiptState,
    Rejection, Review, TaskState, TaskSummary, TeamOutcome, TeamStatus, UnknownCall,
};
pub use run::task::{InvalidPlan, Plan, Priority, TaskSpec};
pub use run::{NewRun, RunError, RunStart, read_start, restore, run_agent};
pub use team::{InvalidTeam, NewTeamRun, PlanReady, RoundReady, TaskReady, Team, TeamBuilder};
pub use tool::{InvalidInput, Known, Tool, ToolContext, ToolError, TypedTool};
