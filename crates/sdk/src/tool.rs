//! Tools: what an agent can do.
//!
//! Owns the trait and the typed way to make one. Whether a call may run is the gate's and the authority's.

use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Something that an agent can do. Object-safe.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Its name, unique within an agent.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// Validates what the model sent. The answer is the value that a reviewer is shown and that the call gets; it is
    /// computed again before an approved call runs and must come out the same. Has no effect.
    ///
    /// # Errors
    /// What is wrong with the input, for the model.
    fn check(&self, raw: &Value) -> Result<Value, InvalidInput>;

    /// Whether a call with the same idempotency key may be made again when nobody knows how the first one ended.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// Finds out how a call ended whose process died in between, by its idempotency key: the tool's own records know. Asked
    /// before anything else is done about such a call.
    async fn outcome(&self, _key: &str) -> Known {
        Known::No
    }

    /// Whether a call has consequences that a person may want to see first. Shown to reviewers; denied where an
    /// agent has no gate.
    fn is_consequential(&self) -> bool {
        false
    }

    /// Does it. `input` is what [`Tool::check`] answered.
    ///
    /// # Errors
    /// Why it failed, for the model and the receipt.
    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, ToolError>;
}

/// Where a call belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolContext {
    /// The run.
    pub run_id: String,
    /// The task within the run.
    pub task_id: String,
    /// The call, unique within the run.
    pub call_id: String,
    /// The same for every attempt at this call. The approval's id where a person approved it.
    pub idempotency_key: String,
}

/// What a tool knows of a call that had started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    No,
    /// It has not happened and will not: it may be run.
    NotRun,
    /// It has happened, and ended so.
    Ended(Result<Value, ToolError>),
}

/// Input that a tool cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(pub String);

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub(crate) String);

impl ToolError {
    /// A failure, in words.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

type Call = Box<
    dyn Fn(Value, ToolContext) -> Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send>>
        + Send
        + Sync,
>;

/// A tool made of an async function over a typed argument.
pub struct TypedTool {
    name: String,
    description: String,
    check: fn(&Value) -> Result<Value, InvalidInput>,
    call: Call,
    outcome: Option<Probe>,
    is_idempotent: bool,
    is_consequential: bool,
}

type Probe = Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Known> + Send>> + Send + Sync>;

impl TypedTool {
    /// A tool whose input is an `Args`. The validated value is what `Args` serialises to, with defaults filled in.
    pub fn new<Args, F, Fut>(name: impl Into<String>, description: impl Into<String>, call: F) -> Self
    where
        Args: DeserializeOwned + Serialize + Send + 'static,
        F: Fn(Args, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        let call = move |input: Value, context| {
            // Already checked; a tool is never called with anything else.
            let called = parse::<Args>(&input).map(|args| call(args, context));
            let called = called.map_err(ToolError::new);
            Box::pin(async move { called?.await }) as Pin<Box<dyn Future<Output = _> + Send>>
        };
        Self {
            name: name.into(),
            description: description.into(),
            check: |raw| serde_json::to_value(parse::<Args>(raw)?).map_err(|e| InvalidInput(e.to_string())),
            call: Box::new(call),
            outcome: None,
            is_idempotent: false,
            is_consequential: false,
        }
    }

    /// Says that a call may be made again under the same idempotency key.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// Says how to find out how a call ended, by its idempotency key.
    #[must_use]
    pub fn outcome<F, Fut>(mut self, probe: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Known> + Send + 'static,
    {
        self.outcome = Some(Box::new(move |key| Box::pin(probe(key))));
        self
    }

    /// Says that its calls have consequences.
    #[must_use]
    pub fn consequential(mut self) -> Self {
        self.is_consequential = true;
        self
    }
}

fn parse<Args: DeserializeOwned>(raw: &Value) -> Result<Args, InvalidInput> {
    serde_json::from_value(raw.clone()).map_err(|e| InvalidInput(e.to_string()))
}

#[async_trait]
impl Tool for TypedTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn check(&self, raw: &Value) -> Result<Value, InvalidInput> {
        (self.check)(raw)
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    fn is_consequential(&self) -> bool {
        self.is_consequential
    }

    async fn outcome(&self, key: &str) -> Known {
        match &self.outcome {
            Some(probe) => probe(key.to_owned()).await,
            None => Known::No,
        }
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, ToolError> {
        (self.call)(input, context).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Args {
        to: String,
        #[serde(default)]
        count: u32,
    }

    #[test]
    fn the_validated_value_holds_every_default_and_nothing_unknown() {
        let tool = TypedTool::new("send", "sends", |_: Args, _| async { Ok(Value::Null) });
        assert_eq!(tool.check(&json!({"to": "a"})), Ok(json!({"to": "a", "count": 0})));
        for bad in [json!({}), json!({"to": "a", "x": 1}), json!({"to": "a", "count": -1}), json!("a")] {
            assert!(tool.check(&bad).is_err(), "{bad}");
        }
    }
}
