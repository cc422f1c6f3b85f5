//! The frozen action: what would be done, and the digest that binds a decision to it.
//!
//! Owns kinds, scopes, boundaries, the digest and the durable id. The canonical bytes themselves
//! are `canonical`'s; how an action is shown is `presentation`'s.

use serde::{Deserialize, Serialize};

/// Where a caller stops. Closed: a request of any other kind is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A command line that would run as a child process.
    Exec,
    /// An action of a plugin in somebody else's host.
    Plugin,
    /// One tool call of an agent run.
    Tool,
    /// One task about to be handed to an agent.
    Dispatch,
    /// The step from one round of tasks to the next.
    Round,
    /// A plan before any of it runs.
    Plan,
}
