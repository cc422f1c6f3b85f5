//! The gate that every tool call passes before it runs.
//!
//! Owns the question and the three answers. What follows from an answer is `run`'s.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

/// Looks at a tool call before it runs. An error or a panic is a denial.
#[async_trait]
pub trait Gate: Send + Sync {
    /// What should become of the call. Asked again if the process ends before the answer had any effect; never asked
    /// again about a call that waits for a person.
    ///
    /// # Errors
    /// The gate cannot say. The call is denied.
    async fn on_tool_call(&self, call: &ToolCall) -> Result<Verdict, GateError>;
}

/// A call at the gate.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The run.
    pub run_id: String,
    /// The task within the run.
    pub task_id: String,
    /// The call, unique within the run.
    pub call_id: String,
    /// The agent.
    pub agent_name: String,
    /// The tool.
    pub tool_name: String,
    /// What the model sent.
    pub raw_input: Value,
    /// What the tool would get.
    pub input: Value,
    /// Whether the tool says that its calls have consequences.
    pub is_consequential: bool,
}

/// A gate's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it now.
    Allow,
    /// Do not run it. The model is told.
    Deny {
        /// Why, for the model.
        reason: Option<String>,
    },
    /// Ask a person. The run stops until there is an answer.
    Suspend {
        /// Why, for the reviewer, at most 4,096 characters.
        reason: Option<String>,
        /// How long until silence denies, 1 ms to 30 days. 7 days when left out.
        timeout: Option<Duration>,
    },
}

/// `true` allows, `false` denies.
impl From<bool> for Verdict {
    fn from(allow: bool) -> Self {
        if allow { Self::Allow } else { Self::Deny { reason: None } }
    }
}

/// A gate that cannot say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GateError(pub String);

/// A closure is a gate.
#[async_trait]
impl<F, Fut> Gate for F
where
    F: Fn(ToolCall) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Verdict, GateError>> + Send,
{
    async fn on_tool_call(&self, call: &ToolCall) -> Result<Verdict, GateError> {
        self(call.clone()).await
    }
}
