//! The approval authority: every use case, once.
//!
//! Owns [`Authority`], which agents and surfaces speak to, and [`Local`], which answers over a store. The
//! same calls over the network are `holdgate-client`'s. Owns no transition: those are `holdgate-core`'s.

pub mod administration;
mod convert;
mod error;
mod local;
mod observe;
pub mod policy;
mod service;
mod sweep;
mod wait;

use std::time::Duration;

use async_trait::async_trait;
use holdgate_core::ApprovalId;
use holdgate_wire::{
    AppendEvents, Appended, Approval, ApprovalPage, Cancel, Claim, CreateApproval, CreateRun, Decide,
    Decided, JournalPage, LeaseRun, ListApprovals, ListHistory, MakeClaim, PutSession, Revoke, Run, Runtime,
    Settle,
};

pub use administration::Admin;
pub use error::Error;
pub use local::Local;
pub use policy::Policy;
pub use service::{Found, Page, Role, Service};

/// What any client of the authority can ask, as one authenticated identity. Here and over the network alike.
#[async_trait]
pub trait Authority: Send + Sync {
    /// Asks for permission. `key` makes the call safe to repeat.
    async fn create(&self, request: CreateApproval, key: Option<&str>) -> Result<Created, Error>;
    /// Reads an approval.
    async fn get(&self, id: &str) -> Result<Approval, Error>;
    /// Waits until the approval has ended, at most `timeout`; answers it as it is then, ended or not.
    async fn wait(&self, id: &str, timeout: Duration) -> Result<Approval, Error>;
    /// Lists approvals, newest first.
    async fn list(&self, query: ListApprovals) -> Result<ApprovalPage, Error>;
    /// Answers an approval.
    async fn decide(&self, id: &str, decision: Decide) -> Result<Decided, Error>;
    /// Spends an allow.
    async fn claim(&self, id: &str, claim: MakeClaim) -> Result<Claim, Error>;
    /// Says what came of a claim.
    async fn settle(&self, id: &str, settle: Settle) -> Result<Approval, Error>;
    /// Lists approvals that have ended, the last one to end first.
    async fn history(&self, query: ListHistory) -> Result<ApprovalPage, Error>;
    /// Takes an allow back before it is claimed.
    async fn revoke(&self, id: &str, revoke: Revoke) -> Result<Approval, Error>;
    /// Says who owns a session.
    async fn put_session(&self, key: &str, session: PutSession) -> Result<(), Error>;
    /// Calls a request off.
    async fn cancel(&self, id: &str, cancel: Cancel) -> Result<Approval, Error>;

    /// Begins an epoch of this process.
    async fn start_runtime(&self) -> Result<Runtime, Error>;
    /// Keeps an epoch alive.
    async fn renew_runtime(&self, epoch: &str) -> Result<Runtime, Error>;

    /// Ends an epoch of this process: what still waits on it is called off.
    async fn end_runtime(&self, epoch: &str) -> Result<(), Error>;
    /// Ends a run from outside, and calls off what it asked for: a stored run, or one that requests name as their
    /// source. Answers how many requests were called off.
    async fn abort_run(&self, id: &str) -> Result<u32, Error>;

    /// Creates a run.
    async fn create_run(&self, run: CreateRun) -> Result<Run, Error>;
    /// Reads a run.
    async fn run(&self, id: &str) -> Result<Run, Error>;
    /// Takes, keeps or releases a run.
    async fn lease_run(&self, id: &str, lease: LeaseRun) -> Result<Run, Error>;
    /// Adds to a run's journal and opens what it now waits for, in one.
    async fn append(&self, id: &str, append: AppendEvents) -> Result<Appended, Error>;
    /// Reads a run's journal after `after`.
    async fn journal(&self, id: &str, after: u64) -> Result<JournalPage, Error>;
}

/// What a protocol adds to a request that its caller could not say over HTTP.
#[derive(Clone, Debug, Default)]
pub struct Protocol {
    /// The id that the caller chose.
    pub id: Option<ApprovalId>,
    /// The program that the caller says it is.
    pub client: Option<String>,
    /// The request as clients of the WebSocket protocol are shown it: JSON, sanitised.
    pub v4_request: Option<String>,
    /// Whether the caller keeps standing grants itself, so that `allow-always` means something.
    pub keeps_grants: bool,
}

/// The answer to a request for permission.
#[derive(Clone, Debug)]
pub struct Created {
    /// The record.
    pub approval: Approval,
    /// Whether this call made it. False when the same had been asked before.
    pub is_new: bool,
}
