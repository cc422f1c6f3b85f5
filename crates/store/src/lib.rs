//! Durable storage: one trait, one shared way to decide under the lock, one file per database.
//!
//! Owns durability, ordering and time. Owns no rule of its own: [`perform`] loads, `holdgate-core` decides,
//! the backend writes, all in one transaction.

pub mod clock;
pub mod ledger;
pub mod mint;
pub mod perform;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use async_trait::async_trait;
use holdgate_core::action::Digest;
use holdgate_core::approval::{Bound, Draft, Status};
use holdgate_core::run::RunCommand;
use holdgate_core::{
    Approval, ApprovalId, Command, EpochId, Fence, Kind, Principal, PrincipalId, Refusal, Run, RunId, Time,
};
use tokio::sync::broadcast;

/// Where approvals and runs are kept. Object-safe, so that one service serves every backend and a faulty
/// store can wrap any of them.
#[async_trait]
pub trait Store: Send + Sync {
    /// Applies one operation. The only way to change anything. Answers when the change is durable.
    async fn execute(&self, op: Op) -> Result<Outcome, StoreError>;

    /// The authority's time.
    fn now(&self) -> Time;

    /// One approval, with what is known about what waits behind it.
    async fn approval(&self, id: &ApprovalId) -> Result<Option<Seen>, StoreError>;

    /// Approvals, newest first.
    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError>;

    /// The next instant at which time alone changes some record, if any waits for one.
    async fn next_due(&self) -> Result<Option<Time>, StoreError>;

    /// One run.
    async fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError>;

    /// Events of a run's journal after `after`, in order, at most `limit` and at most
    /// [`EVENTS_PAGE_BYTES`](holdgate_core::limits::EVENTS_PAGE_BYTES) of them, but at least one if there is any.
    async fn run_events(&self, id: &RunId, after: u64, limit: u32) -> Result<Vec<JournalEntry>, StoreError>;

    /// The identity behind a credential, by the hash that is kept of it. Revoked and lapsed ones are unknown.
    async fn credential(&self, credential: Credential) -> Result<Option<Principal>, StoreError>;

    /// A hint after each commit that changed an approval. May be lost; the row is the truth.
    fn changes(&self) -> broadcast::Receiver<ApprovalId>;
}

/// One unit of change: everything in it becomes durable together or not at all.
#[derive(Clone, Debug)]
pub enum Op {
    /// Open a request.
    Open {
        /// The checked request.
        draft: Box<Draft>,
        /// The fence that the requester holds, when a stored run waits behind the request.
        fence: Option<Fence>,
        /// Who asks.
        by: PrincipalId,
        /// The caller's key for this call, with the hash of its body.
        key: Option<IdempotencyKey>,
    },
    /// Apply a command to an approval.
    Apply {
        /// Which.
        id: ApprovalId,
        /// What.
        command: Command,
        /// Who.
        by: PrincipalId,
    },
    /// Begin a process's epoch.
    StartRuntime {
        /// Its name.
        epoch: EpochId,
        /// What kind of process.
        kind: RuntimeKind,
        /// Who.
        by: PrincipalId,
    },
    /// Keep an epoch alive.
    RenewRuntime {
        /// Which.
        epoch: EpochId,
        /// Who.
        by: PrincipalId,
    },
    /// Create a run.
    CreateRun {
        /// Its id.
        id: RunId,
        /// The agent's name.
        agent: String,
        /// Who.
        by: PrincipalId,
    },
    /// Take, keep or release a run.
    HoldRun {
        /// Which.
        id: RunId,
        /// What; never an append.
        command: RunCommand,
        /// Who.
        by: PrincipalId,
    },
    /// Add to a run's journal and open the requests that it now waits for, in one.
    Append {
        /// Which run, what fence, where in the journal, in which state it leaves the run.
        append: Append,
        /// Who.
        by: PrincipalId,
    },
    /// Write down what time has decided, for at most `limit` approvals. Runs behind everything else.
    Sweep {
        /// Most records to touch.
        limit: u32,
    },
    /// Make a credential known, with the identity behind it. Replaces an identity's earlier credential.
    PutCredential {
        /// SHA-256 of the credential.
        hash: Digest,
        /// Who it stands for.
        principal: Principal,
    },
    /// Remember that a reviewer signed in to the page.
    OpenPageSession {
        /// SHA-256 of the session's secret.
        hash: Digest,
        /// Who signed in.
        by: PrincipalId,
        /// How long the session lasts, in milliseconds.
        lasts_ms: i64,
    },
}

/// A caller's name for one call, so that the same call sent twice is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key, unique per principal.
    pub key: String,
    /// The hash of the canonical body it came with.
    pub body: Digest,
}

/// A fenced append to a run's journal.
#[derive(Clone, Debug)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The holder's number.
    pub fence: Fence,
    /// The last event that the holder knows of.
    pub after: u64,
    /// The events, each a JSON text.
    pub events: Vec<String>,
    /// Where the run stands with them.
    pub state: holdgate_core::run::RunState,
    /// Requests that become durable with them.
    pub opens: Vec<Draft>,
}

/// What kind of process an epoch belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// A gateway. Its instance's earlier epochs end with the start of a new one.
    Gateway {
        /// The gateway's stable name.
        instance: String,
    },
    /// A process that asks and waits.
    Caller,
}

/// One life of a process that holds suspended work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its name.
    pub epoch: EpochId,
    /// What kind of process.
    pub kind: RuntimeKind,
    /// Who started it.
    pub owner: PrincipalId,
    /// Until when it is believed to live.
    pub lease_until: Time,
    /// Whether a successor has ended it.
    pub ended: bool,
}

impl Runtime {
    /// What this epoch means for what is bound to it.
    pub fn bound(&self, now: Time) -> Bound {
        match self.kind {
            _ if !self.ended && !self.lease_until.reached_at(now) => Bound::Live,
            RuntimeKind::Gateway { .. } => Bound::GatewayGone,
            RuntimeKind::Caller => Bound::CallerGone,
        }
    }
}

/// A stored approval as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It decodes.
    Sound(Box<Approval>),
    /// It does not. It counts as denied.
    Corrupt {
        /// Its id.
        id: ApprovalId,
        /// What is wrong with the row, for the log.
        why: String,
    },
}

/// An approval with what was known, in the same read, about what waits behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The record.
    pub stored: Stored,
    /// What waits behind it.
    pub bound: Bound,
    /// Its place in the list of all: when it was created, and its id.
    pub place: (Time, ApprovalId),
}

/// Which approvals to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only in this status, as stored.
    pub status: Option<Status>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only from the agent of this name.
    pub agent: Option<String>,
    /// Only requested by this identity.
    pub requester: Option<PrincipalId>,
    /// Only older than this one.
    pub before: Option<(Time, ApprovalId)>,
    /// At most this many.
    pub limit: u32,
}

/// One event of a run's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its number, from 1.
    pub seq: u64,
    /// When it became durable.
    pub at: Time,
    /// The event, a JSON text.
    pub event: String,
}

/// A credential, by the hash that is kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A token.
    Token(Digest),
    /// A page session's secret.
    PageSession(Digest),
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Committed(Answer),
    /// It had been done before; this is the first result.
    Duplicate(Answer),
    /// It changed nothing, for this reason. The record as it stands, where there is one to see.
    Refused(Refusal, Option<Box<Approval>>),
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The approval as it is now.
    Approval(Box<Approval>),
    /// The epoch as it is now.
    Runtime(Runtime),
    /// The run as it is now.
    Run(Run),
    /// The run after an append, and the requests that were opened with it.
    Appended(Run, Vec<Approval>),
    /// How many records a sweep changed.
    Swept(u32),
    /// Nothing more to say.
    Done,
}

/// Why the store could not answer. Nothing here says whether the action is allowed: it is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The change may or may not have become durable: read back.
    #[error("the write may or may not have become durable: {0}")]
    Unknown(String),
    /// Nothing was changed.
    #[error("the store failed: {0}")]
    Failed(String),
    /// The file or its directory cannot be used: says which, why and what to do. Nothing was changed.
    #[error("{0}")]
    Unusable(String),
    /// The database is of a newer version.
    #[error("{path} has schema version {found}, newer than this program's {known}; use the newer program")]
    NewerSchema {
        /// The file.
        path: String,
        /// The file's version.
        found: u32,
        /// This program's version.
        known: u32,
    },
    /// Another process owns the file.
    #[error("{path} is in use by {owner}")]
    Owned {
        /// The file.
        path: String,
        /// Who owns it.
        owner: Owner,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// The process that owns a database file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// Its process id. Zero while it has not said who it is.
    pub pid: u32,
    /// Where its gateway answers, if it serves one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.url {
            Some(url) => write!(f, "the gateway at {url} (process {})", self.pid),
            None if self.pid == 0 => f.write_str("a process that has not said who it is"),
            None => write!(f, "process {}, which serves no gateway", self.pid),
        }
    }
}
