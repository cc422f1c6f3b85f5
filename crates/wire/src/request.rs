//! What callers send about approvals. Unknown fields are refused: a misspelt one must not be lost.

use holdgate_core::requirement::Decision;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::approval::Source;

/// Asks for permission.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateApproval {
    /// `exec`, `plugin`, `tool`, `dispatch`, `round` or `plan`.
    pub kind: String,
    /// The digest's scope. Follows from the kind; refused if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The action's locator within the run or caller. The same run, boundary and content is the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<String>,
    /// What would be done. Kept, hashed and shown exactly.
    #[schema(value_type = Object)]
    pub content: Box<RawValue>,
    /// Why, in the requester's words. Not part of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long until silence denies, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// The epoch of the live process that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// The stored run that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunBinding>,
    /// Where the request comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// A stricter requirement than the gateway's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirement: Option<RequirementRequest>,
}

/// A stored run and the fence that the requester holds on it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBinding {
    /// The run's id.
    pub id: String,
    /// The holder's number.
    pub fence: u64,
}

/// What a requester asks to be required. Only tightens.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequirementRequest {
    /// How many distinct people must allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u32>,
    /// How many distinct people must deny to end it; no more than the gateway's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denials: Option<u32>,
    /// Whether the person who asks may be one of them. An agent never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester_may_decide: Option<bool>,
    /// Whether an answer must say why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_required: Option<bool>,
    /// The answers to offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub allowed_decisions: Option<Vec<Decision>>,
    /// Who may decide: `person:NAME`, `group:NAME`, `device:ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewers: Option<Vec<String>>,
}

/// A reviewer's answer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// `allow-once`, `allow-always` or `deny`.
    #[schema(value_type = String)]
    pub decision: Decision,
    /// The digest that the reviewer was shown.
    pub digest: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Spends an allow.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakeClaim {
    /// The claimer's name for this attempt. The same again is answered the same.
    pub claim_id: String,
    /// The digest of what is about to run.
    pub digest: String,
    /// The fence that the claimer holds. Needed when a stored run waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

/// Says what came of a claim.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settle {
    /// The claim.
    pub claim_id: String,
    /// What came of it.
    pub outcome: SettledOutcome,
    /// More.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What a claimer can say. That an outcome is unknown only the authority says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SettledOutcome {
    /// It ran and succeeded.
    Succeeded,
    /// It ran, or was tried, and failed.
    Failed,
}

/// Calls a request off.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Why, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Takes an allow back before it is claimed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Which approvals that have ended to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListHistory {
    /// Only of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where the page begins: the last page's `nextCursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Says who owns a session. Owners see the requests of what they own; they may decide no more for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutSession {
    /// The agent that the key belongs to, if the key itself does not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session that steers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The session that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
    /// The session that it was made in. Followed only without a controller or requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The same, as older runners say it. Followed only without a parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
}

/// Which approvals to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListApprovals {
    /// Only in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only from the agent of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Where the page begins: the last page's `nextCursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
