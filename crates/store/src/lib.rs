//! Durable storage: one trait, one shared way to decide under the lock, one file per database.
//!
//! Owns durability, ordering and time. Owns no rule of its own: [`perform`] loads, `holdgate-core` decides,
//! the backend writes, all in one transaction.

pub mod clock;
pub mod ledger;
pub mod mint;
mod op;
pub mod perform;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use holdgate_core::action::Digest;
use holdgate_core::approval::{Bound, Status};
use holdgate_core::{
    Actor, AdministrationEvent, Approval, ApprovalId, EpochId, Event, Kind, Principal, PrincipalId, Refusal,
    Run, RunId, Time,
};
use tokio::sync::broadcast;

pub use op::{Administration, Append, By, Caps, IdempotencyKey, Op};

/// Where approvals and runs are kept. Object-safe, so that one service serves every backend and a faulty
/// store can wrap any of them.
#[async_trait]
pub trait Store: Send + Sync {
    /// Applies one operation. The only way to change anything. Answers when the change is durable.
    async fn execute(&self, op: Op) -> Result<Outcome, StoreError>;

    /// The authority's time.
    fn now(&self) -> Time;

    /// One approval by its id or its reference, with what is known about what waits behind it. `None` if the text
    /// names none, or more than one.
    async fn approval(&self, locator: &str) -> Result<Option<Seen>, StoreError>;

    /// Approvals, newest first. This list and the two after it end early with the approval that brings them to
    /// [`PAGE_BYTES`](holdgate_core::limits::PAGE_BYTES): there is no more after one that ends before and is short.
    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError>;

    /// Approvals that have ended, the last one to end first.
    async fn history(&self, filter: HistoryFilter) -> Result<Vec<Seen>, StoreError>;

    /// Pending approvals that this session's stream shows, oldest first, from the one after `after` on.
    async fn pending_of_session(
        &self,
        session_key: &str,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Vec<Seen>, StoreError>;

    /// The facts about approvals after the one of number `after`, in order.
    async fn events(&self, after: u64, limit: u32) -> Result<Vec<Recorded>, StoreError>;

    /// The next instant at which time alone changes some record, if any waits for one.
    async fn next_due(&self) -> Result<Option<Time>, StoreError>;

    /// One run.
    async fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError>;

    /// Events of a run's journal after `after`, in order, at most `limit` and at most
    /// [`EVENTS_PAGE_BYTES`](holdgate_core::limits::EVENTS_PAGE_BYTES) of them, but at least one if there is any.
    async fn run_events(&self, id: &RunId, after: u64, limit: u32) -> Result<Vec<JournalEntry>, StoreError>;

    /// The identity behind a credential, by the hash that is kept of it. Revoked and lapsed ones are unknown.
    async fn credential(&self, credential: Credential) -> Result<Option<Principal>, StoreError>;

    /// One identity with what is known of its device, if it is not revoked.
    async fn identity(&self, id: &PrincipalId) -> Result<Option<Identity>, StoreError>;

    /// Every identity that is not revoked, by id.
    async fn identities(&self) -> Result<Vec<Identity>, StoreError>;

    /// What is frozen: `None` stands for everything.
    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError>;

    /// What was administered after the fact of number `after`, in order.
    async fn administration(&self, after: u64, limit: u32) -> Result<Vec<Administered>, StoreError>;

    /// How many approvals are pending, as stored, by kind.
    async fn pending_counts(&self) -> Result<Vec<(Kind, u64)>, StoreError>;

    /// A hint after each commit, one for each change of an approval and each changed identity, in order. May be lost;
    /// the rows are the truth.
    fn notices(&self) -> broadcast::Receiver<Notice>;
}

/// What a commit changed.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An approval changed.
    Changed(Arc<Committed>),
    /// An approval was found not to decode.
    Corrupt(ApprovalId),
    /// An identity ended, or may do something else from now on: what it has open must be looked at again. `None`
    /// stands for every identity.
    Identity(Option<PrincipalId>),
}

/// One change of one approval, as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The number of the last fact. Facts are numbered in the order of their commits.
    pub seq: u64,
    /// The record after it.
    pub approval: Approval,
    /// What became true.
    pub events: Vec<Event>,
    /// Who did it.
    pub by: Actor,
    /// When.
    pub at: Time,
}

/// What is known of a device besides who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its id: the SHA-256 of its public key, or a name that the gateway minted.
    pub id: PrincipalId,
    /// What reviewers call it.
    pub label: String,
    /// Its Ed25519 public key, if it signs.
    pub public_key: Option<[u8; 32]>,
    /// Its operating system, as it says.
    pub platform: Option<String>,
    /// Its kind of machine, as it says.
    pub family: Option<String>,
}

/// An identity and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub principal: Principal,
    /// Its device, if it is one.
    pub device: Option<Device>,
    /// When it became known.
    pub created_at: Time,
}

/// That requests and claims are stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// For this agent only.
    pub agent: Option<PrincipalId>,
    /// Since when.
    pub at: Time,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// A fact about an approval as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number.
    pub seq: u64,
    /// Of which approval.
    pub approval: ApprovalId,
    /// What became true.
    pub event: Event,
    /// Who did it.
    pub by: Actor,
    /// When.
    pub at: Time,
}

/// A fact about who may act as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Administered {
    /// Its number.
    pub seq: u64,
    /// What became true.
    pub event: AdministrationEvent,
    /// Who did it.
    pub by: Actor,
    /// When.
    pub at: Time,
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
    /// Its place in its list: when it was created, or, in a history, when it ended; and its id.
    pub place: Place,
}

impl Seen {
    /// How many bytes its texts take, about.
    pub fn text_bytes(&self) -> usize {
        match &self.stored {
            Stored::Sound(approval) => approval.text_bytes(),
            Stored::Corrupt { .. } => 0,
        }
    }
}

/// A place in a list: when an approval was made or when it ended, whichever the list goes by, and its id.
pub type Place = (Time, ApprovalId);

/// Which kinds to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// Every kind.
    #[default]
    All,
    /// That one.
    Only(Kind),
    /// Every other.
    Except(Kind),
}

impl From<Option<Kind>> for Kinds {
    fn from(kind: Option<Kind>) -> Self {
        kind.map_or(Self::All, Self::Only)
    }
}

/// Which approvals to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only in this status, as stored.
    pub status: Option<Status>,
    /// Only of these kinds.
    pub kinds: Kinds,
    /// Only from the agent of this name.
    pub agent: Option<String>,
    /// Only requested by this identity.
    pub requester: Option<PrincipalId>,
    /// Only with an id that begins so.
    pub id_prefix: Option<String>,
    /// Only older than this one.
    pub before: Option<Place>,
    /// At most this many.
    pub limit: u32,
}

/// Which approvals that have ended to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Only of these kinds.
    pub kinds: Kinds,
    /// Only requested by this identity.
    pub requester: Option<PrincipalId>,
    /// Only those that ended before this one.
    pub before: Option<Place>,
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
    /// How many records were changed.
    Touched(u32),
    /// The identity as it is now.
    Principal(Box<Principal>),
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
    /// As much of this identity's is waiting to be written as may. Nothing was changed; others are not held up by it.
    #[error("{0} operations of this identity are waiting to be written already; slow down")]
    Flooded(usize),
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
