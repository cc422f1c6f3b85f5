//! Performs one operation inside a transaction: load, let `holdgate-core` decide, write.
//!
//! Shared by every backend, so that there is one spine. Owns no SQL and no transaction.

use holdgate_core::approval::{Actor, Binding, Bound, Draft, Status, TerminalReason};
use holdgate_core::limits::RUNTIME_LEASE_MS;
use holdgate_core::run::{Run, RunCommand};
use holdgate_core::{
    Approval, ApprovalId, Change, Command, EpochId, Event, Fence, Principal, PrincipalId, Refusal, RunId,
    Time,
};

use crate::ledger::Ledger;
use crate::{Answer, Append, IdempotencyKey, Op, Outcome, Runtime, RuntimeKind, Stored};

/// Performs `op` at `now`. A refused operation has written nothing of its own, but may have written down what
/// time had decided before it came.
///
/// # Errors
/// Whatever the ledger fails with; the caller undoes the operation.
pub fn perform<L: Ledger>(ledger: &mut L, op: Op, now: Time) -> Result<Outcome, L::Error> {
    let mut tx = Transaction { ledger, now };
    let outcome = match op {
        Op::Open { draft, fence, by, key } => tx.open(*draft, fence, &by, key)?,
        Op::Apply { id, command, by } => tx.apply(&id, command, &by)?,
        Op::StartRuntime { epoch, kind, by } => tx.start_runtime(epoch, kind, &by)?,
        Op::RenewRuntime { epoch, by } => tx.renew_runtime(&epoch, &by)?,
        Op::CreateRun { id, agent, by } => tx.create_run(id, agent, &by)?,
        Op::HoldRun { id, command, by } => tx.hold_run(&id, command, &by)?,
        Op::Append { append, by } => tx.append(append, &by)?,
        Op::Sweep { limit } => tx.sweep(limit)?,
        Op::PutCredential { hash, principal } => {
            tx.ledger.put_credential(hash, &principal, now)?;
            Ok(Outcome::Committed(Answer::Done))
        }
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

/// A request on its way into the store.
enum Opening {
    New(Change),
    Existing(Approval),
}

struct Transaction<'a, L> {
    ledger: &'a mut L,
    now: Time,
}

impl<L: Ledger> Transaction<'_, L> {
    fn open(
        &mut self,
        draft: Draft,
        fence: Option<Fence>,
        by: &PrincipalId,
        key: Option<IdempotencyKey>,
    ) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        if let Some(IdempotencyKey { key, body }) = &key
            && let Some((first_body, id)) = self.ledger.idempotency(&by.id, key)?
        {
            if first_body != *body {
                return Ok(Err(Refusal::IdempotencyMismatch.into()));
            }
            let (first, _) = accept!(self.current(&id, &by)?);
            return Ok(Ok(Outcome::Duplicate(Answer::Approval(Box::new(first)))));
        }
        accept!(self.check_binding(&draft.binding, fence, &by)?);
        let opening = accept!(self.find_or_open(draft, &by)?);
        let (approval, is_new) = self.write_opening(opening, &by)?;
        if let Some(IdempotencyKey { key, body }) = key {
            self.ledger.put_idempotency(&by.id, &key, body, &approval.id, self.now)?;
        }
        let answer = Answer::Approval(Box::new(approval));
        Ok(Ok(if is_new { Outcome::Committed(answer) } else { Outcome::Duplicate(answer) }))
    }

    /// A new request, or the one that asks exactly the same from the same place. Writes nothing new yet, so
    /// that several can be refused as one.
    fn find_or_open(&mut self, draft: Draft, by: &Principal) -> Step<Opening, L::Error> {
        let change = Approval::open(draft, by, self.now);
        if self.ledger.approval(&change.approval.id)?.is_none() {
            return Ok(Ok(Opening::New(change)));
        }
        let (existing, _) = accept!(self.current(&change.approval.id, by)?);
        let is_own = existing.requester.id == by.id;
        Ok(if is_own { Ok(Opening::Existing(existing)) } else { Err(Refusal::NotFound.into()) })
    }

    fn write_opening(&mut self, opening: Opening, by: &Principal) -> Result<(Approval, bool), L::Error> {
        match opening {
            Opening::Existing(approval) => Ok((approval, false)),
            Opening::New(change) => {
                self.ledger.insert_approval(&change.approval, self.now)?;
                self.record(&change, by)?;
                Ok((change.approval, true))
            }
        }
    }

    fn apply(&mut self, id: &ApprovalId, command: Command, by: &PrincipalId) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let (approval, bound) = accept!(self.current(id, &by)?);
        let change = match approval.apply(command, &by, bound, self.now) {
            Ok(change) => change,
            Err(why) => {
                let winner = by.may_see(&approval.requester.id).then(|| Box::new(approval));
                return Ok(Err(Refused { why, winner }));
            }
        };
        if change.applied() {
            self.ledger.update_approval(&change.approval, self.now)?;
            self.record(&change, &by)?;
        }
        let applied = change.applied();
        let answer = Answer::Approval(Box::new(change.approval));
        Ok(Ok(if applied { Outcome::Committed(answer) } else { Outcome::Duplicate(answer) }))
    }

    fn start_runtime(
        &mut self,
        epoch: EpochId,
        kind: RuntimeKind,
        by: &PrincipalId,
    ) -> Step<Outcome, L::Error> {
        let by = if matches!(kind, RuntimeKind::Gateway { .. }) {
            Principal::authority()
        } else {
            accept!(self.principal(by)?)
        };
        if let Some(existing) = self.ledger.runtime(&epoch)? {
            // Asked again after a lost reply. An epoch never starts twice.
            let same =
                existing.owner == by.id && existing.kind == kind && existing.bound(self.now) == Bound::Live;
            return Ok(if same {
                Ok(Outcome::Duplicate(Answer::Runtime(existing)))
            } else {
                Err(Refusal::EpochLapsed.into())
            });
        }
        if let RuntimeKind::Gateway { instance } = &kind {
            let served_until = self.ledger.served_until()?;
            self.ledger.succeed_gateway(instance, served_until, self.now)?;
        }
        let lease_until = self.now.plus_ms(RUNTIME_LEASE_MS);
        let runtime = Runtime { epoch, kind, owner: by.id, lease_until, ended: false };
        self.ledger.put_runtime(&runtime, self.now)?;
        Ok(Ok(Outcome::Committed(Answer::Runtime(runtime))))
    }

    fn renew_runtime(&mut self, epoch: &EpochId, by: &PrincipalId) -> Step<Outcome, L::Error> {
        let runtime =
            accept!(self.ledger.runtime(epoch)?.filter(|r| r.owner == *by).ok_or(Refusal::NotFound));
        if runtime.bound(self.now) != Bound::Live {
            return Ok(Err(Refusal::EpochLapsed.into()));
        }
        let runtime = Runtime { lease_until: self.now.plus_ms(RUNTIME_LEASE_MS), ..runtime };
        self.ledger.put_runtime(&runtime, self.now)?;
        Ok(Ok(Outcome::Committed(Answer::Runtime(runtime))))
    }

    fn create_run(&mut self, id: RunId, agent: String, by: &PrincipalId) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        if let Some(existing) = self.ledger.run(&id)? {
            // Asked again after a lost reply: nothing has happened to it yet.
            let same = existing.owner == by.id && existing.agent == agent && existing.fence == Fence(0);
            return Ok(if same {
                Ok(Outcome::Duplicate(Answer::Run(existing)))
            } else {
                Err(Refusal::RunExists.into())
            });
        }
        let run = Run::create(id, agent, &by, self.now);
        self.ledger.put_run(&run)?;
        Ok(Ok(Outcome::Committed(Answer::Run(run))))
    }

    fn hold_run(&mut self, id: &RunId, command: RunCommand, by: &PrincipalId) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let run = accept!(self.ledger.run(id)?.ok_or(Refusal::NotFound));
        let run = accept!(run.apply(command, &by, self.now));
        self.ledger.put_run(&run)?;
        Ok(Ok(Outcome::Committed(Answer::Run(run))))
    }

    fn append(&mut self, append: Append, by: &PrincipalId) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let Append { run, fence, after, events, state, opens } = append;
        let run = accept!(self.ledger.run(&run)?.ok_or(Refusal::NotFound));
        let command = RunCommand::Append { fence, after, count: events.len() as u64, state };
        let run = accept!(run.apply(command, &by, self.now));
        let mut openings = Vec::with_capacity(opens.len());
        for draft in opens {
            if draft.binding != Binding::Checkpoint(run.id.clone()) {
                return Ok(Err(Refusal::NotFound.into()));
            }
            openings.push(accept!(self.find_or_open(draft, &by)?));
        }
        let mut approvals: Vec<Approval> = Vec::with_capacity(openings.len());
        for opening in openings {
            // The same request twice in one append is one request.
            let opening = match opening {
                Opening::New(change) => match approvals.iter().find(|opened| opened.id == change.approval.id)
                {
                    Some(opened) => Opening::Existing(opened.clone()),
                    None => Opening::New(change),
                },
                existing @ Opening::Existing(_) => existing,
            };
            approvals.push(self.write_opening(opening, &by)?.0);
        }
        self.ledger.append_journal(&run.id, after + 1, &events, self.now)?;
        self.ledger.put_run(&run)?;
        Ok(Ok(Outcome::Committed(Answer::Appended(run, approvals))))
    }

    fn sweep(&mut self, limit: u32) -> Step<Outcome, L::Error> {
        let mut swept = 0;
        for id in self.ledger.due(self.now, limit)? {
            match self.ledger.approval(&id)? {
                Some(Stored::Sound(approval)) => {
                    let (_, _, reconciled) = self.reconciled(*approval)?;
                    swept += u32::from(reconciled);
                }
                Some(Stored::Corrupt { .. }) => {
                    self.set_aside(&id)?;
                    swept += 1;
                }
                None => {}
            }
        }
        Ok(Ok(Outcome::Committed(Answer::Swept(swept))))
    }

    fn open_page_session(
        &mut self,
        hash: holdgate_core::Digest,
        by: &PrincipalId,
        lasts_ms: i64,
    ) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        if !by.may_review() {
            return Ok(Err(Refusal::NotAReviewer.into()));
        }
        self.ledger.put_page_session(hash, &by.id, self.now.plus_ms(lasts_ms), self.now)?;
        Ok(Ok(Outcome::Committed(Answer::Done)))
    }

    /// The identity, if it still is one.
    fn principal(&mut self, id: &PrincipalId) -> Result<Result<Principal, Refusal>, L::Error> {
        Ok(self.ledger.principal(id)?.ok_or(Refusal::NotFound))
    }

    /// The record as time has left it, written down if time changed it, and what waits behind it.
    fn current(&mut self, id: &ApprovalId, by: &Principal) -> Step<(Approval, Bound), L::Error> {
        let approval = match self.ledger.approval(id)? {
            None => return Ok(Err(Refusal::NotFound.into())),
            Some(Stored::Corrupt { .. }) if by.may_review() => {
                return Ok(Err(Refusal::StorageCorrupt.into()));
            }
            Some(Stored::Corrupt { .. }) => return Ok(Err(Refusal::NotFound.into())),
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
        self.ledger.update_approval(&change.approval, self.now)?;
        self.record(&change, &Principal::authority())?;
        Ok((change.approval, bound, true))
    }

    /// Writes down, once, that a record counts as denied because it does not decode.
    fn set_aside(&mut self, id: &ApprovalId) -> Result<(), L::Error> {
        self.ledger.set_aside(id, self.now)?;
        let denied = Event::Resolved { status: Status::Denied, reason: TerminalReason::StorageCorrupt };
        self.ledger.append_event(id, &denied, &Actor::from(&Principal::authority()), self.now)
    }

    fn record(&mut self, change: &Change, by: &Principal) -> Result<(), L::Error> {
        let by = Actor::from(by);
        for event in &change.events {
            self.ledger.append_event(&change.approval.id, event, &by, self.now)?;
        }
        Ok(())
    }

    /// Whether what is to wait behind a request is the requester's own and alive.
    fn check_binding(
        &mut self,
        binding: &Binding,
        fence: Option<Fence>,
        by: &Principal,
    ) -> Result<Result<(), Refusal>, L::Error> {
        Ok(match binding {
            Binding::Runtime(epoch) => match self.ledger.runtime(epoch)? {
                // A gateway lends its own epoch to callers that have none.
                Some(runtime) if runtime.owner != by.id && runtime.kind == RuntimeKind::Caller => {
                    Err(Refusal::NotFound)
                }
                Some(runtime) if runtime.bound(self.now) == Bound::Live => Ok(()),
                Some(_) => Err(Refusal::EpochLapsed),
                None => Err(Refusal::NotFound),
            },
            Binding::Checkpoint(run) => match self.ledger.run(run)? {
                Some(run) if run.owner == by.id => {
                    fence.ok_or(Refusal::FenceLapsed).and_then(|f| run.check_fence(f))
                }
                Some(_) | None => Err(Refusal::NotFound),
            },
        })
    }
}
