//! Operations: one unit of change each, and what it carries.
//!
//! Owns no meaning: [`crate::perform`] does what an operation says.

use std::collections::BTreeMap;

use holdgate_core::action::Digest;
use holdgate_core::approval::Draft;
use holdgate_core::audience::SessionEdges;
use holdgate_core::run::RunCommand;
use holdgate_core::{
    ApprovalId, Command, EpochId, Fence, PersonId, Principal, PrincipalId, RunId, Scopes, Time,
};

use crate::{Device, RuntimeKind};

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
