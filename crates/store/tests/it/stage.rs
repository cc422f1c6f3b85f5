//! A database in a directory of its own, with somebody who asks and somebody who answers.

use std::path::PathBuf;
use std::sync::Arc;

use holdgate_core::approval::{Binding, Draft, Source};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{
    Action, Approval, ApprovalId, Canonical, Command, Digest, EpochId, Fence, Kind, Principal, PrincipalId,
    RunId, Scopes, Time,
};
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Answer, By, Caps, Op, Outcome, RuntimeKind, Seen, Store, StoreError};
use holdgate_testkit::ManualClock;
use rusqlite::Connection;
use tempfile::TempDir;

/// A place for one database.
pub struct Database {
    dir: TempDir,
}

impl Database {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("holdgate.db")
    }

    pub fn try_open(&self) -> Result<Arc<SqliteStore>, StoreError> {
        SqliteStore::open(OpenOptions { path: self.path(), clock: clock() })
    }

    pub fn store(&self, clock: Arc<ManualClock>) -> Arc<SqliteStore> {
        SqliteStore::open(OpenOptions { path: self.path(), clock }).unwrap()
    }

    /// A connection past the store, as a person with another program would have.
    pub fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

pub fn clock() -> Arc<ManualClock> {
    ManualClock::at(Time::from_ms(1_700_000_000_000))
}

pub fn agent() -> PrincipalId {
    "agent".parse().unwrap()
}

pub fn reviewer() -> PrincipalId {
    "reviewer".parse().unwrap()
}

/// One of these, with all that its credential may do.
pub fn by(id: PrincipalId) -> By {
    By { id, scopes: Scopes::ALL }
}

/// Makes both known and returns a live epoch of the agent.
pub async fn populate(store: &dyn Store) -> EpochId {
    for (id, kind) in [(agent(), PrincipalKind::Agent), (reviewer(), PrincipalKind::Administrator)] {
        let hash = Digest::of(id.as_str().as_bytes());
        let label = id.to_string();
        let principal = Principal::new(id, kind, label);
        store.execute(Op::PutCredential { hash, principal, recovers: false }).await.unwrap();
    }
    let epoch = holdgate_store::mint::epoch();
    let start = Op::StartRuntime { epoch: epoch.clone(), kind: RuntimeKind::Caller, by: by(agent()) };
    store.execute(start).await.unwrap();
    epoch
}

/// A run that the agent holds with fence 1.
pub async fn held_run(store: &dyn Store, id: &str) -> RunId {
    let id: RunId = id.parse().unwrap();
    let create = Op::CreateRun { id: id.clone(), agent: "releaser".to_owned(), by: by(agent()) };
    store.execute(create).await.unwrap();
    let command = holdgate_core::run::RunCommand::Lease;
    store.execute(Op::HoldRun { id: id.clone(), command, by: by(agent()) }).await.unwrap();
    id
}

pub fn ask(binding: Binding, boundary: &str) -> Op {
    let content = Canonical::parse(r#"{"toolName":"deploy","input":{"stage":"production"}}"#).unwrap();
    let presentation = holdgate_core::presentation::present(Kind::Tool, &content.to_value()).unwrap();
    let fence = matches!(binding, Binding::Checkpoint(_)).then_some(Fence(1));
    let draft = Draft {
        id: None,
        action: Action::freeze(Kind::Tool, boundary, content).unwrap(),
        presentation,
        reason: None,
        source: Source::default(),
        binding,
        requirement: Requirement::default(),
        timeout_ms: 600_000,
        client: None,
        v4_request: None,
    };
    Op::Open { draft: Box::new(draft), fence, by: by(agent()), key: None, caps: Caps::default() }
}

pub fn vote(on: &Approval, decision: Decision) -> Op {
    let command = Command::Vote { decision, digest: on.digest, reason: None };
    Op::Apply { id: on.id.clone(), command, by: by(reviewer()) }
}

pub fn claim(on: &Approval, claim_id: &str, fence: Option<Fence>) -> Op {
    let command = Command::Claim { claim_id: claim_id.parse().unwrap(), digest: on.digest, fence };
    Op::Apply { id: on.id.clone(), command, by: by(agent()) }
}

/// Executes what must be committed and answers an approval.
pub async fn commit(store: &dyn Store, op: Op) -> Approval {
    match store.execute(op).await {
        Ok(Outcome::Committed(Answer::Approval(approval))) => *approval,
        other => panic!("not a committed approval: {other:?}"),
    }
}

/// An approval that must be there, as it was found.
pub async fn seen(store: &dyn Store, id: &ApprovalId) -> Seen {
    store.approval(id.as_str()).await.unwrap().expect("the approval exists")
}
