//! Epochs of live processes, and the storage of runs.

use holdgate_core::run as domain;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::approval::Approval;
use crate::request::CreateApproval;

/// A live process's epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Its name.
    pub epoch: String,
    /// How long it lives without renewal, in milliseconds.
    pub lease_ms: i64,
}

/// What ending a run from outside did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Aborted {
    /// How many of its requests were called off.
    pub cancelled: u32,
}

/// Creates a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRun {
    /// Its id; minted when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The agent that runs.
    #[serde(default)]
    pub agent: String,
}

/// A run as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub id: String,
    /// The agent that runs.
    pub agent: String,
    /// `running`, `suspended`, `unknown`, `finished`, `failed` or `aborted`.
    pub state: String,
    /// The current holder's number. In the answer to taking the run, the caller's own.
    pub fence: u64,
    /// How long the lease lives without renewal, in milliseconds.
    pub lease_ms: i64,
    /// The number of the journal's last event.
    pub last_seq: u64,
    /// When it was created, in Unix milliseconds.
    pub created_at_ms: i64,
    /// When it last changed, in Unix milliseconds.
    #[serde(default)]
    pub updated_at_ms: i64,
}

/// Takes, keeps or releases a run. Without a fence: takes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRun {
    /// The holder's number, to keep or release the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Releases the run instead of keeping it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub release: bool,
}

/// Adds to a run's journal and opens what the run now waits for, in one transaction.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendEvents {
    /// The holder's number.
    pub fence: u64,
    /// The last event that the holder knows of.
    pub after: u64,
    /// The events.
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<Box<RawValue>>,
    /// Where the run stands with them; `running` when left out. Any other state lets the run go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Requests to open. Their `run` is this one and may be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<CreateApproval>,
}

/// The answer to an append.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Appended {
    /// The run.
    pub run: Run,
    /// The requests that were opened, in order.
    pub approvals: Vec<Approval>,
}

/// Part of a run's journal.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalPage {
    /// The events, in order.
    pub items: Vec<JournalEntry>,
    /// The number of the journal's last event.
    pub last_seq: u64,
}

/// One event of a journal.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// Its number, from 1.
    pub seq: u64,
    /// When it became durable, in Unix milliseconds.
    pub at_ms: i64,
    /// The event as it was appended.
    #[schema(value_type = Object)]
    pub event: Box<RawValue>,
}

impl From<&domain::Run> for Run {
    fn from(run: &domain::Run) -> Self {
        Self {
            id: run.id.to_string(),
            agent: run.agent.clone(),
            state: run.state.as_str().to_owned(),
            fence: run.fence.0,
            lease_ms: holdgate_core::limits::RUN_LEASE_MS,
            last_seq: run.last_seq,
            created_at_ms: run.created_at.as_ms(),
            updated_at_ms: run.updated_at.as_ms(),
        }
    }
}
