//! Operations on what waits behind approvals: epochs of live processes, and stored runs.

use holdgate_core::approval::{Binding, Bound};
use holdgate_core::limits::RUNTIME_LEASE_MS;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::run::{Run, RunCommand};
use holdgate_core::{Approval, EpochId, Fence, Refusal, RunId};

use super::approvals::Opening;
use super::{Step, Transaction, accept};
use crate::ledger::Ledger;
use crate::{Answer, Append, By, Caps, Outcome, Runtime, RuntimeKind};

impl<L: Ledger> Transaction<'_, L> {
    pub(super) fn start_runtime(
        &mut self,
        epoch: EpochId,
        kind: RuntimeKind,
        by: &By,
    ) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let is_gateway = matches!(kind, RuntimeKind::Gateway { .. });
        if is_gateway && by.kind != PrincipalKind::Authority {
            return Ok(Err(Refusal::NotAnAdministrator.into()));
        }
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

    pub(super) fn renew_runtime(&mut self, epoch: &EpochId, by: &By) -> Step<Outcome, L::Error> {
        let runtime =
            accept!(self.ledger.runtime(epoch)?.filter(|r| r.owner == by.id).ok_or(Refusal::NotFound));
        if runtime.bound(self.now) != Bound::Live {
            return Ok(Err(Refusal::EpochLapsed.into()));
        }
        let runtime = Runtime { lease_until: self.now.plus_ms(RUNTIME_LEASE_MS), ..runtime };
        self.ledger.put_runtime(&runtime, self.now)?;
        Ok(Ok(Outcome::Committed(Answer::Runtime(runtime))))
    }

    pub(super) fn end_runtime(&mut self, epoch: &EpochId, by: &By) -> Step<Outcome, L::Error> {
        let runtime =
            accept!(self.ledger.runtime(epoch)?.filter(|r| r.owner == by.id).ok_or(Refusal::NotFound));
        if runtime.ended {
            return Ok(Ok(Outcome::Duplicate(Answer::Runtime(runtime))));
        }
        let runtime = Runtime { ended: true, ..runtime };
        self.ledger.put_runtime(&runtime, self.now)?;
        Ok(Ok(Outcome::Committed(Answer::Runtime(runtime))))
    }

    pub(super) fn create_run(&mut self, id: RunId, agent: String, by: &By) -> Step<Outcome, L::Error> {
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

    pub(super) fn hold_run(&mut self, id: &RunId, command: RunCommand, by: &By) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let run = accept!(self.ledger.run(id)?.ok_or(Refusal::NotFound));
        let run = accept!(run.apply(command, &by, self.now));
        self.ledger.put_run(&run)?;
        Ok(Ok(Outcome::Committed(Answer::Run(run))))
    }

    pub(super) fn append(&mut self, append: Append, by: &By, caps: Caps) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let Append { run, fence, after, events, state, opens } = append;
        let run = accept!(self.ledger.run(&run)?.ok_or(Refusal::NotFound));
        let command = RunCommand::Append { fence, after, count: events.len() as u64, state };
        let run = accept!(run.apply(command, &by, self.now));
        let mut openings: Vec<Opening> = Vec::with_capacity(opens.len());
        for draft in opens {
            if draft.binding != Binding::Checkpoint(run.id.clone()) {
                return Ok(Err(Refusal::NotFound.into()));
            }
            let opening = accept!(self.find_or_open(draft, &by, caps, &openings)?);
            openings.push(opening);
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
}
