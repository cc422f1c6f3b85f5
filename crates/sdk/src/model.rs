//! The model behind an agent, and what it is shown.
//!
//! Owns the trait, the transcript and a scripted model. Real providers implement the trait elsewhere.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::run::outcome::CallResult;

/// Replies to a transcript.
#[async_trait]
pub trait Model: Send + Sync {
    /// The next reply. A reply without calls ends the run.
    ///
    /// # Errors
    /// There is no reply now. The run stays as it is and can be restored.
    async fn reply(&self, transcript: &Transcript, tools: &[ToolSpec]) -> Result<Reply, ModelError>;
}

/// All that has been said in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// What the agent is told before anything else.
    pub instructions: String,
    /// What was said, in order.
    pub messages: Vec<Message>,
}

/// One thing said.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// What the run was given to do.
    User(String),
    /// What the model replied.
    Model(Reply),
    /// What came of a call of the last reply.
    Tool {
        /// The call.
        call_id: String,
        /// The tool.
        tool: String,
        /// What came of it.
        result: CallResult,
    },
}

impl Transcript {
    /// How many replies it holds.
    pub fn replies(&self) -> usize {
        let is_reply = |message: &&Message| matches!(message, Message::Model(_));
        self.messages.iter().filter(is_reply).count()
    }

    /// What came of the last call of a tool.
    pub fn last_result(&self, name: &str) -> Option<&CallResult> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Tool { tool, result, .. } if tool == name => Some(result),
            _ => None,
        })
    }
}

/// A model's reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What it says.
    pub text: String,
    /// What it wants done, in order.
    pub calls: Vec<RequestedCall>,
}

/// A tool call as a model asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedCall {
    /// The model's name for it. Replaced when it is not plain or was used before in the run.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, a JSON text exactly as the model wrote it.
    pub arguments: String,
}

impl Reply {
    /// Says something.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), calls: Vec::new() }
    }

    /// Asks for one more call.
    #[must_use]
    pub fn call(mut self, id: impl Into<String>, tool: impl Into<String>, arguments: impl ToString) -> Self {
        self.calls.push(RequestedCall { id: id.into(), tool: tool.into(), arguments: arguments.to_string() });
        self
    }
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}

/// A model that gave no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub String);

type Step = Box<dyn Fn(&Transcript) -> Reply + Send + Sync>;

/// A model whose replies are written down. Which one it gives depends on the transcript alone, so a fresh process
/// goes on where the last one stopped.
#[derive(Default)]
pub struct Scripted {
    steps: Vec<Step>,
}

impl Scripted {
    /// Replies with this next.
    #[must_use]
    pub fn then(self, reply: Reply) -> Self {
        self.then_with(move |_| reply.clone())
    }

    /// Replies with what `step` makes of the transcript next.
    #[must_use]
    pub fn then_with(mut self, step: impl Fn(&Transcript) -> Reply + Send + Sync + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }
}

#[async_trait]
impl Model for Scripted {
    async fn reply(&self, transcript: &Transcript, _tools: &[ToolSpec]) -> Result<Reply, ModelError> {
        let at = transcript.replies();
        let step = self.steps.get(at);
        let step = step.ok_or_else(|| ModelError(format!("the script ends after {at} replies")))?;
        Ok(step(transcript))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_script_goes_on_where_the_transcript_stands_and_ends() {
        let script = || Scripted::default().then(Reply::text("one")).then(Reply::text("two"));
        let mut transcript = Transcript::default();
        for expected in ["one", "two"] {
            let reply = script().reply(&transcript, &[]).await.unwrap();
            assert_eq!(reply.text, expected);
            transcript.messages.push(Message::Model(reply));
        }
        assert!(script().reply(&transcript, &[]).await.is_err());
    }
}
