//! An agent: a model, the tools it may call, and the gate that its calls pass.
//!
//! Owns what an agent is made of. How it runs is `run`'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdgate_core::limits::NAME_CHARS;

use crate::gate::Gate;
use crate::model::{Model, ToolSpec};
use crate::tool::Tool;

/// How many replies a run may take when its agent names no number.
const MAX_TURNS: u32 = 32;

/// An agent. A fresh process builds the same one again to restore a run of it.
#[derive(Clone)]
pub struct Agent {
    name: String,
    instructions: String,
    model: Arc<dyn Model>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    gate: Option<Arc<dyn Gate>>,
    max_turns: u32,
}

/// Puts an agent together.
pub struct AgentBuilder {
    name: String,
    instructions: String,
    model: Arc<dyn Model>,
    tools: Vec<Arc<dyn Tool>>,
    gate: Option<Arc<dyn Gate>>,
    max_turns: u32,
}

/// Why an agent cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAgent {
    /// A name is empty, too long, or holds a control character.
    #[error("{0:?} is no name for an agent or a tool: 1 to 512 characters, none of them a control character")]
    Name(String),
    /// Two tools share a name.
    #[error("two tools are named {0:?}")]
    ToolTwice(String),
    /// It could never reply.
    #[error("an agent needs at least one turn")]
    NoTurns,
}

impl Agent {
    /// Begins an agent without tools.
    pub fn builder(name: impl Into<String>, model: impl Model + 'static) -> AgentBuilder {
        AgentBuilder {
            name: name.into(),
            instructions: String::new(),
            model: Arc::new(model),
            tools: Vec::new(),
            gate: None,
            max_turns: MAX_TURNS,
        }
    }

    /// Its name, as reviewers see it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn instructions(&self) -> &str {
        &self.instructions
    }

    pub(crate) fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// The tool of that name. What an agent was not given, it does not have.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// The same agent, with a gate if it has none of its own.
    pub(crate) fn gated_by(mut self, gate: Option<&Arc<dyn Gate>>) -> Self {
        if self.gate.is_none() {
            self.gate = gate.map(Arc::clone);
        }
        self
    }

    pub(crate) fn gate(&self) -> Option<&Arc<dyn Gate>> {
        self.gate.as_ref()
    }

    pub(crate) fn max_turns(&self) -> u32 {
        self.max_turns
    }

    pub(crate) fn tool_specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
        };
        self.tools.values().map(spec).collect()
    }
}

impl AgentBuilder {
    /// What the model is told before anything else.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = text.into();
        self
    }

    /// Gives the agent a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Puts every tool call before `gate`. Without one, consequential tools are denied.
    #[must_use]
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.gate = Some(Arc::new(gate));
        self
    }

    /// How many replies a run may take before it fails.
    #[must_use]
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.max_turns = turns;
        self
    }

    /// The agent.
    ///
    /// # Errors
    /// See [`InvalidAgent`].
    pub fn build(self) -> Result<Agent, InvalidAgent> {
        if self.max_turns == 0 {
            return Err(InvalidAgent::NoTurns);
        }
        check_name(&self.name)?;
        let mut tools = BTreeMap::new();
        for tool in self.tools {
            check_name(tool.name())?;
            let name = tool.name().to_owned();
            if tools.insert(name.clone(), tool).is_some() {
                return Err(InvalidAgent::ToolTwice(name));
            }
        }
        Ok(Agent {
            name: self.name,
            instructions: self.instructions,
            model: self.model,
            tools,
            gate: self.gate,
            max_turns: self.max_turns,
        })
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), InvalidAgent> {
    let is_good =
        !name.trim().is_empty() && name.chars().count() <= NAME_CHARS && !name.chars().any(char::is_control);
    if is_good { Ok(()) } else { Err(InvalidAgent::Name(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Scripted;
    use crate::tool::TypedTool;
    use serde_json::Value;

    fn tool(name: &str) -> TypedTool {
        TypedTool::new(name, "does nothing", |_: Value, _| async { Ok(Value::Null) })
    }

    #[test]
    fn an_agent_with_an_unusable_name_or_two_tools_of_one_name_is_refused() {
        let builder = || Agent::builder("a", Scripted::default());
        let built = |builder: AgentBuilder| builder.build().err();
        assert_eq!(built(builder().tool(tool("t")).tool(tool("u"))), None);
        assert_eq!(
            built(builder().tool(tool("t")).tool(tool("t"))),
            Some(InvalidAgent::ToolTwice("t".to_owned()))
        );
        assert_eq!(built(builder().tool(tool("a\nb"))), Some(InvalidAgent::Name("a\nb".to_owned())));
        assert_eq!(built(Agent::builder(" ", Scripted::default())), Some(InvalidAgent::Name(" ".to_owned())));
        assert_eq!(built(builder().max_turns(0)), Some(InvalidAgent::NoTurns));
    }
}
