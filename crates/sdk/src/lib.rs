//! Agent runs that stop at a gate, exit, and resume exactly what was reviewed.
//!
//! Owns the run engine: agents, tools, gates, models, the run's journal and what follows from it. Runs over any
//! [`Authority`](holdgate_authority::Authority), in this process or over the network; it knows neither the store nor
//! the gateway. Owns no decision: those are the authority's.

mod agent;
mod gate;
mod model;
mod run;
mod tool;

pub use agent::{Agent, AgentBuilder, InvalidAgent};
pub use gate::{Gate, GateError, ToolCall, Verdict};
pub use model::{Message, Model, ModelError, Reply, RequestedCall, Scripted, ToolSpec, Transcript};
pub use run::journal::JournalError;
pub use run::outcome::{
    CallResult, CallSummary, Cause, Finished, Outcome, Pending, ReceiptState, Rejection, Review,
};
pub use run::{NewRun, RunError, RunStart, read_start, restore, run_agent};
pub use tool::{InvalidInput, Tool, ToolContext, ToolError, TypedTool};
