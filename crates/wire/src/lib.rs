//! The JSON shapes of the HTTP API: a promise to other programs.
//!
//! Owns names, spelling and the way from the domain to a view of it. Every text of a requester's or a
//! reviewer's that leaves through here has its deceptive characters made visible. Owns no rule.

pub mod admin;
pub mod approval;
pub mod problem;
pub mod request;
pub mod run;

pub use approval::{Approval, ApprovalPage, Claim, Decided, Links};
pub use problem::{Code, Problem};
pub use request::{
    Cancel, CreateApproval, Decide, ListApprovals, ListHistory, MakeClaim, PutSession, RequirementRequest,
    Revoke, RunBinding, Settle,
};
pub use run::{AppendEvents, Appended, CreateRun, JournalPage, LeaseRun, Run, Runtime};
