//! One operation inside a transaction: load, let `holdgate-core` decide, write.
//!
//! Shared by every backend, so that there is one spine. Owns no SQL and no transaction. Here: what every operation
//! does; `approvals`, `identities` and `runs` hold the operations.

mod approvals;
mod identities;
mod runs;

use std::sync::Arc;

use holdgate_core::approval::{Bound, Status, TerminalReason};
use holdgate_core::{Access, Actor, Approval, ApprovalId, Change, Event, Principal, Refusal, Time, access};

use crate::ledger::Ledger;
use crate::{Answer, By, Committed, Notice, Op, Outcome, Stored};

/// Performs `op` at `now`. A refused operation has written nothing of its own, but may have written down what
/// time had decided before it came.
///
/// # Errors
/// Whatever the ledger fails with; the caller undoes the operation.
pub fn perform<L: Ledger>(ledger: &mut L, op: Op, now: Time) -> Result<Outcome, L::Error> {
    let mut tx = Transaction { ledger, now };
    let outcome = match op {
        Op::Open { draft, fence, by, key, caps } => tx.open(*draft, fence, &by, key, caps)?,
        Op::Apply { id, command, by } => tx.apply(&id, command, &by)?,
        Op::StartRuntime { epoch, kind, by } => tx.start_runtime(epoch, kind, &by)?,
        Op::RenewRuntime { epoch, by } => tx.renew_runtime(&epoch, &by)?,
        Op::EndRuntime { epoch, by } => tx.end_runtime(&epoch, &by)?,
        Op::CreateRun { id, agent, by } => tx.create_run(id, agent, &by)?,
        Op::HoldRun { id, command, by } => tx.hold_run(&id, command, &by)?,
        Op::CancelRun { run, by, limit } => tx.cancel_run(&run, &by, limit)?,
        Op::Append { append, by, caps } => tx.append(append, &by, caps)?,
        Op::Sweep { limit } => tx.sweep(limit)?,
        Op::Prune { before, limit } => tx.prune(before, limit)?,
        Op::PutSession { key, edges, by } => tx.put_session(&key, &edges, &by)?,
        Op::PutCredential { hash, principal, recovers } => tx.provision(hash, &principal, recovers)?,
        Op::Administer { change, by } => tx.administer(change, &by)?,
        Op::Pair { code, device, token } => tx.pair(code, &device, token)?,
        Op::Admit { device, person, scopes, token } => tx.admit(&device, person, scopes, token)?,
        Op::PutGroups { groups } => tx.put_groups(&groups)?,
        Op::OpenPageSession { hash, by, lasts_ms } => tx.open_page_session(hash, &by, lasts_ms)?,
    };
    // Inside, a refusal is the early return of a step; outside, it is an answer like any other.
    Ok(outcome.unwrap_or_else(|refused| Outcome::Refused(refused.why, refused.winner)))
}

/// A "no" with the record as it stands.
struct Refused {
    why: Refusal,
    winner: Option<Box<Approval>>,
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Self {
        Self { why, winner: None }
    }
}

/// The ledger can fail and the domain can refuse: two errors of different standing.
type Step<T, E> = Result<Result<T, Refused>, E>;

/// Unwraps the inner result of a [`Step`] or returns its refusal.
macro_rules! accept {
    ($step:expr) => {
        match $step {
            Ok(value) => value,
            Err(refusal) => return Ok(Err(refusal.into())),
        }
    };
}
use accept;

/// An operation that has nothing more to say.
const DONE: Outcome = Outcome::Committed(Answer::Done);

struct Transaction<'a, L> {
    ledger: &'a mut L,
    now: Time,
}

impl<L: Ledger> Transaction<'_, L> {
    /// The identity, if it still is one, with no more than its connection may do.
    fn principal(&mut self, by: &By) -> Result<Result<Principal, Refusal>, L::Error> {
        // The authority is in no table, and no credential can have its name.
        let authority = Principal::authority();
        if by.id == authority.id {
            return Ok(Ok(authority));
        }
        let found = self.ledger.principal(&by.id)?;
        Ok(found.map(|principal| principal.narrowed(by.scopes)).ok_or(Refusal::NotFound))
    }

    /// The record as time has left it, written down if time changed it, and what waits behind it. For whom it does
    /// not exist, nothing is read of it and nothing written.
    fn current(&mut self, id: &ApprovalId, by: &Principal) -> Step<(Approval, Bound), L::Error> {
        let approval = match self.ledger.approval(id)? {
            None => return Ok(Err(Refusal::NotFound.into())),
            Some(Stored::Corrupt { .. }) if by.may_review() => {
                return Ok(Err(Refusal::StorageCorrupt.into()));
            }
            Some(Stored::Corrupt { .. }) => return Ok(Err(Refusal::NotFound.into())),
            Some(Stored::Sound(approval)) if access(&approval, by) == Access::None => {
                return Ok(Err(Refusal::NotFound.into()));
            }
            Some(Stored::Sound(approval)) => *approval,
        };
        let (approval, bound, _) = self.reconciled(approval)?;
        Ok(Ok((approval, bound)))
    }

    fn reconciled(&mut self, approval: Approval) -> Result<(Approval, Bound, bool), L::Error> {
        let bound = self.ledger.bound(&approval, self.now)?;
        let Some(change) = approval.reconcile(bound, self.now) else {
            return Ok((approval, bound, false));
        };
        let approval = self.write(change, &Principal::authority())?;
        Ok((approval, bound, true))
    }

    /// Writes a change of a record that exists. Answers the record.
    fn write(&mut self, change: Change, by: &Principal) -> Result<Approval, L::Error> {
        self.ledger.update_approval(&change.approval, self.now)?;
        self.record(change, by)
    }

    /// Appends the facts of a change and tells others of it. Answers the record.
    fn record(&mut self, change: Change, by: &Principal) -> Result<Approval, L::Error> {
        let Change { approval, events } = change;
        let (by, mut seq) = (Actor::from(by), 0);
        for event in &events {
            seq = self.ledger.append_event(&approval.id, event, &by, self.now)?;
        }
        let committed = Committed { seq, approval: approval.clone(), events, by, at: self.now };
        self.ledger.notify(Notice::Changed(Arc::new(committed)));
        Ok(approval)
    }

    /// Writes down, once, that a record counts as denied because it does not decode.
    fn set_aside(&mut self, id: &ApprovalId) -> Result<(), L::Error> {
        self.ledger.set_aside(id, self.now)?;
        let denied = Event::Resolved { status: Status::Denied, reason: TerminalReason::StorageCorrupt };
        self.ledger.append_event(id, &denied, &Actor::from(&Principal::authority()), self.now)?;
        self.ledger.notify(Notice::Corrupt(id.clone()));
        Ok(())
    }
}
