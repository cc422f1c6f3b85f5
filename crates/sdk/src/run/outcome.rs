//! What came of a run and of each of its calls, as the caller is told.
//!
//! Owns the words. The approval records stay the authority; this is a summary of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a run stands when its process has nothing more to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It ended well.
    Finished(Finished),
    /// It waits for reviewers. The process may exit; `restore` goes on from here.
    Suspended {
        /// The run.
        run_id: String,
        /// What it waits for.
        pending: Vec<Pending>,
    },
    /// A call was started and nobody knows how it ended. It is not run again; a person must look.
    Unknown {
        /// The run.
        run_id: String,
        /// The call.
        call_id: String,
        /// Its tool.
        tool: String,
        /// Its approval, where a person approved it.
        review: Option<Review>,
    },
    /// It ended with an error, for good.
    Failed {
        /// The run.
        run_id: String,
        /// Why.
        why: String,
        /// Every call, in order.
        calls: Vec<CallSummary>,
    },
}

/// A run that ended well.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The run.
    pub run_id: String,
    /// The model's last words.
    pub output: String,
    /// Every call, in order, with those that never ran.
    pub calls: Vec<CallSummary>,
}

/// Where a team's run stands when its process has nothing more to do.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamOutcome {
    /// The run.
    pub run_id: String,
    /// In one word, and why.
    pub status: TeamStatus,
    /// The coordinator's answer to the goal, once there is one. Empty for a run that has none.
    pub output: String,
    /// Every task, as planned.
    pub tasks: Vec<TaskSummary>,
    /// What waits for people.
    pub pending_approvals: Vec<PendingApproval>,
    /// What people have decided on plan, rounds and dispatches.
    pub approval_decisions: Vec<GateDecision>,
    /// Calls of which nobody knows how they came out.
    pub unknown_calls: Vec<UnknownCall>,
}

impl TeamOutcome {
    /// Whether every task was completed.
    pub fn success(&self) -> bool {
        self.status == TeamStatus::Ok
    }
}

/// Where a team's run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeamStatus {
    /// Every task was completed.
    Ok,
    /// It waits for people; `restore` goes on from here.
    Suspended,
    /// It waits, and it is not known how a call came out.
    Unknown,
    /// It has ended, and not every task was completed.
    Error(String),
    /// A plan, a round or a task was not allowed. Nothing more starts, now or later.
    Rejected(Rejection),
}

impl TeamStatus {
    /// The status in one word: `ok`, `suspended`, `unknown`, `error`, `rejected`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Suspended => "suspended",
            Self::Unknown => "unknown",
            Self::Error(_) => "error",
            Self::Rejected(_) => "rejected",
        }
    }
}

/// One task of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSummary {
    /// Its id.
    pub task_id: String,
    /// Whose it is.
    pub agent: String,
    /// Where it stands.
    pub state: TaskState,
    /// Every call of its last attempt, in order.
    pub calls: Vec<CallSummary>,
}

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Its turn has not come.
    Pending,
    /// Its agent has begun.
    InProgress,
    /// It was completed, with this output.
    Completed(String),
    /// It failed, or one before it did.
    Failed(String),
    /// It was left out.
    Skipped(String),
}

/// A request that waits for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingApproval {
    /// The approval.
    pub approval_id: String,
    /// `plan`, `task_round`, `task_dispatch` or `tool_call`.
    pub scope: String,
    /// What waits within the run, in the words of its scope.
    pub boundary: String,
    /// The digest of what is reviewed.
    pub digest: String,
    /// The reviewer page. `None` when no gateway serves it.
    pub url: Option<String>,
    /// Verb, object, blast radius, safe to show.
    pub headline: String,
}

/// What came of a gate's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateDecision {
    /// The approval.
    pub approval_id: String,
    /// What waited within the run.
    pub boundary: String,
    /// Whether it was allowed, and if not, why.
    pub decision: Result<(), Rejection>,
}

/// A call of which nobody knows how it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCall {
    /// Its task.
    pub task_id: String,
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
    /// Its approval, where a person approved it.
    pub review: Option<Review>,
}

/// A call that waits for a reviewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
    /// The approval.
    pub approval_id: String,
    /// The digest of what is reviewed.
    pub digest: String,
    /// The reviewer page. `None` when no gateway serves it.
    pub url: Option<String>,
    /// Verb, object, blast radius, safe to show.
    pub headline: String,
}

/// One call of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSummary {
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
    /// What came of it. `None` when the run ended before it did.
    pub result: Option<CallResult>,
    /// Its approval, where a person was asked.
    pub review: Option<Review>,
    /// Whether the authority has its receipt. `None` where there is nothing to give one for.
    pub receipt: Option<ReceiptState>,
}

/// The approval behind a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Its id.
    pub approval_id: String,
    /// The digest of what was reviewed.
    pub digest: String,
}

/// Whether the authority has been told what came of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptState {
    /// Not yet; the next restore tells it.
    Owed,
    /// It has.
    Delivered,
    /// It would not take it.
    Refused(String),
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallResult {
    /// It ran and succeeded with this.
    Succeeded(Value),
    /// It ran, or was tried, and failed.
    Failed(String),
    /// It never ran.
    Rejected(Rejection),
}

/// Why a call never ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// What stopped it.
    pub cause: Cause,
    /// More, in the words of whoever stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What stopped a call. Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The agent has no such tool.
    UnknownTool,
    /// The arguments are no exact JSON, or the tool does not take them.
    InvalidInput,
    /// The gate denied it.
    GateDenied,
    /// The gate failed, or gave an answer that cannot be followed.
    GateFailed,
    /// It has consequences and the agent has no gate.
    NoGate,
    /// It cannot be put to a reviewer.
    NotReviewable,
    /// A reviewer denied it.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The request was called off.
    Cancelled,
    /// It was allowed, and the allow was spent by something else or taken back.
    AllowSpent,
}

impl Rejection {
    pub(crate) fn new(cause: Cause, detail: impl std::fmt::Display) -> Self {
        Self { cause, detail: Some(detail.to_string()) }
    }

    /// Whether it was put to a person, who did not allow it.
    pub fn is_by_review(&self) -> bool {
        matches!(self.cause, Cause::Denied | Cause::Expired | Cause::Cancelled)
    }
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.cause {
            Cause::UnknownTool => "there is no such tool",
            Cause::InvalidInput => "the arguments are not valid",
            Cause::GateDenied => "denied by the gate",
            Cause::GateFailed => "denied: the gate failed",
            Cause::NoGate => "denied: a consequential call needs a gate",
            Cause::NotReviewable => "denied: it cannot be put to a reviewer",
            Cause::Denied => "denied by a reviewer",
            Cause::Expired => "denied: nobody answered in time",
            Cause::Cancelled => "denied: the request was cancelled",
            Cause::AllowSpent => "denied: its allow cannot be used any more",
        })?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}
