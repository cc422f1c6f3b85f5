//! The domain of Holdgate: what an approval is and what may happen to it.
//!
//! Owns every rule that decides whether an action may run. Owns no I/O, no clock, no randomness and
//! nothing asynchronous: time and ids come in with the call.

pub mod access;
#[cfg(test)]
mod access_tests;
pub mod action;
pub mod approval;
pub mod audience;
pub mod canonical;
pub mod event;
pub mod id;
pub mod limits;
pub mod presentation;
pub mod principal;
pub mod refusal;
pub mod requirement;
pub mod run;
pub mod time;

pub use access::{Access, access};
pub use action::{Action, Digest, Kind};
pub use approval::{Approval, Change, Command, Phase};
pub use canonical::Canonical;
pub use event::{AdministrationEvent, Event};
pub use id::{ApprovalId, ClaimId, EpochId, PersonId, PrincipalId, RunId};
pub use principal::{Actor, Principal, Scopes};
pub use refusal::Refusal;
pub use run::{Fence, Run};
pub use time::Time;
