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

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use holdgate_core::action::Digest;
use holdgate_core::approval::{Bound, Draft, Status};
use holdgate_core::audience::SessionEdges;
use holdgate_core::run::RunCommand;
use holdgate_core::{
    Actor, AdministrationEvent, Approval, ApprovalId, Command, EpochId, Event, Fence, Kind, PersonId,
    Principal, PrincipalId, Refusal, Run, RunId, Scopes, Time,
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

    /// One approval by its id or its reference, with what is known about what waits behind it. `None` if the text
    /// names none, or more than one.
    async fn approval(&self, locator: &str) -> Result<Option<Seen>, StoreError>;

    /// Approvals, newest first.
    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError>;

    /// Approvals that have ended, the last one to end first.
    async fn history(&self, filter: HistoryFilter) -> Result<Vec<Seen>, StoreError>;

    /// Pending approvals that this session's stream shows, oldest first.
    async fn pending_of_session(&self, session_key: &str, limit: u32) -> Result<Vec<Seen>, StoreError>;

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

/// Who acts, and with how much of what its credential allows. Loaded anew under the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The identity.
    pub id: PrincipalId,
    /// What the connection is limited to.
    pub scopes: Scopes,
}

impl From<&Principal> for By {
    fn from(principal: &Principal) -> Self {
        Self { id: principal.id.clone(), scopes: principal.scopes }
    }
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
        by: By,
        /// The caller's key for this call, with the hash of its body.
        key: Option<IdempotencyKey>,
        /// How many may be pending.
        caps: Caps,
    },
    /// Apply a command to an approval.
    Apply {
        /// Which.
        id: ApprovalId,
        /// What.
        command: Command,
        /// Who.
        by: By,
    },
    /// Begin a process's epoch.
    StartRuntime {
        /// Its name.
        epoch: EpochId,
        /// What kind of process.
        kind: RuntimeKind,
        /// Who.
        by: By,
    },
    /// Keep an epoch alive.
    RenewRuntime {
        /// Which.
        epoch: EpochId,
        /// Who.
        by: By,
    },
    /// End an epoch: its process goes and says so.
    EndRuntime {
        /// Which.
        epoch: EpochId,
        /// Who.
        by: By,
    },
    /// Create a run.
    CreateRun {
        /// Its id.
        id: RunId,
        /// The agent's name.
        agent: String,
        /// Who.
        by: By,
    },
    /// Take, keep, release or abort a run.
    HoldRun {
        /// Which.
        id: RunId,
        /// What; never an append.
        command: RunCommand,
        /// Who.
        by: By,
    },
    /// Call off what a run asked for, because it was ended: a stored run's requests, or those that name it as their
    /// source. At most `limit` of them; the answer is how many.
    CancelRun {
        /// The run, as the requester calls it.
        run: String,
        /// Who: only its own requests, but everybody's for an administrator.
        by: By,
        /// Most records to touch.
        limit: u32,
    },
    /// Add to a run's journal and open the requests that it now waits for, in one.
    Append {
        /// Which run, what fence, where in the journal, in which state it leaves the run.
        append: Append,
        /// Who.
        by: By,
        /// How many may be pending.
        caps: Caps,
    },
    /// Write down what time has decided, for at most `limit` approvals. Runs behind everything else.
    Sweep {
        /// Most records to touch.
        limit: u32,
    },
    /// Remove at most `limit` records that ended before `before`: never with an unsettled claim or of an unfinished
    /// run. Their facts stay. Runs behind everything else.
    Prune {
        /// The end of the retention.
        before: Time,
        /// Most records to touch.
        limit: u32,
    },
    /// Say who owns a session.
    PutSession {
        /// Its key, as [`holdgate_core::audience::session_key`] spells it.
        key: String,
        /// Its owners.
        edges: SessionEdges,
        /// Who. Only who said it first, or an administrator, may say otherwise.
        by: By,
    },
    /// Make a credential known, with the identity behind it. Replaces an identity's earlier credentials. For whoever
    /// has the file: no identity is asked.
    PutCredential {
        /// SHA-256 of the credential.
        hash: Digest,
        /// Who it stands for.
        principal: Principal,
        /// Whether the earlier one was lost. Recorded.
        recovers: bool,
    },
    /// Change who may act.
    Administer {
        /// What.
        change: Administration,
        /// Who. Needs the scope of an administrator.
        by: By,
    },
    /// Pair a device with a code. The code says whose it becomes and what it may do, and is spent.
    Pair {
        /// SHA-256 of the code.
        code: Digest,
        /// The device.
        device: Box<Device>,
        /// SHA-256 of the device's credential.
        token: Digest,
    },
    /// Pair a device without a code, because it came with the shared operator credential.
    Admit {
        /// The device.
        device: Box<Device>,
        /// Whose it is to be.
        person: PersonId,
        /// What it may do.
        scopes: Scopes,
        /// SHA-256 of the device's credential.
        token: Digest,
    },
    /// Say who belongs to which group. Replaces what was said before.
    PutGroups {
        /// Groups and their people.
        groups: BTreeMap<String, Vec<PersonId>>,
    },
    /// Remember that a reviewer signed in to the page.
    OpenPageSession {
        /// SHA-256 of the session's secret.
        hash: Digest,
        /// Who signed in.
        by: By,
        /// How long the session lasts, in milliseconds.
        lasts_ms: i64,
    },
}

impl Op {
    /// Whose operation this is: what one identity may have waiting is bounded. `None` for the authority's own.
    pub fn issuer(&self) -> Option<&PrincipalId> {
        match self {
            Op::Open { by, .. }
            | Op::Apply { by, .. }
            | Op::StartRuntime { by, .. }
            | Op::RenewRuntime { by, .. }
            | Op::EndRuntime { by, .. }
            | Op::CreateRun { by, .. }
            | Op::HoldRun { by, .. }
            | Op::CancelRun { by, .. }
            | Op::Append { by, .. }
            | Op::PutSession { by, .. }
            | Op::Administer { by, .. }
            | Op::OpenPageSession { by, .. } => Some(&by.id),
            Op::Admit { device, .. } | Op::Pair { device, .. } => Some(&device.id),
            Op::Sweep { .. } | Op::Prune { .. } | Op::PutCredential { .. } | Op::PutGroups { .. } => None,
        }
    }
}

/// A change of who may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Administration {
    /// A credential of an agent or a runtime.
    IssueToken {
        /// SHA-256 of the credential.
        hash: Digest,
        /// The new identity.
        principal: Box<Principal>,
    },
    /// Another credential in place of an identity's earlier ones.
    RotateToken {
        /// Whose.
        id: PrincipalId,
        /// SHA-256 of the new credential.
        hash: Digest,
    },
    /// The end of an identity, its credentials and its page sessions. Its records stay.
    Revoke {
        /// Whose.
        id: PrincipalId,
    },
    /// A code with which one device can be paired.
    OfferPairing {
        /// SHA-256 of the code.
        code: Digest,
        /// Whose the device becomes.
        person: PersonId,
        /// What it may do.
        scopes: Scopes,
        /// How long the code lives, in milliseconds.
        lasts_ms: i64,
    },
    /// Stop new requests and claims.
    Freeze {
        /// Of this agent only.
        agent: Option<PrincipalId>,
        /// Why.
        reason: Option<String>,
    },
    /// Let them go on.
    Thaw {
        /// Of this agent only.
        agent: Option<PrincipalId>,
    },
}

/// How many requests may be pending at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Of one identity.
    pub per_principal: u32,
    /// Of one session.
    pub per_session: u32,
}

impl Default for Caps {
    fn default() -> Self {
        use holdgate_core::limits::{PENDING_PER_PRINCIPAL, PENDING_PER_SESSION};
        Self { per_principal: PENDING_PER_PRINCIPAL, per_session: PENDING_PER_SESSION }
    }
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
    /// Its place in its list: when it was created, or, in a history, when it ended; and its id.
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
    /// Only with an id that begins so.
    pub id_prefix: Option<String>,
    /// Only older than this one.
    pub before: Option<(Time, ApprovalId)>,
    /// At most this many.
    pub limit: u32,
}

/// Which approvals that have ended to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only those that ended before this one.
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
