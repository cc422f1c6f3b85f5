//! Operations on approvals: opening, commands, and what time decides.

use std::collections::BTreeMap;

use holdgate_core::approval::{Binding, Bound, Draft, TerminalReason};
use holdgate_core::audience::{SessionEdges, audience};
use holdgate_core::{
    Access, Approval, ApprovalId, Change, Command, Fence, Principal, PrincipalId, Refusal, Time, access,
};

use super::{Refused, Step, Transaction, accept};
use crate::ledger::Ledger;
use crate::{Answer, By, Caps, IdempotencyKey, Outcome, RuntimeKind, Stored};

/// A request on its way into the store.
pub(super) enum Opening {
    New(Change),
    Existing(Approval),
}

impl<L: Ledger> Transaction<'_, L> {
    pub(super) fn open(
        &mut self,
        draft: Draft,
        fence: Option<Fence>,
        by: &By,
        key: Option<IdempotencyKey>,
        caps: Caps,
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
        let opening = accept!(self.find_or_open(draft, &by, caps, &[])?);
        let (approval, is_new) = self.write_opening(opening, &by)?;
        if let Some(IdempotencyKey { key, body }) = key {
            self.ledger.put_idempotency(&by.id, &key, body, &approval.id, self.now)?;
        }
        let answer = Answer::Approval(Box::new(approval));
        Ok(Ok(if is_new { Outcome::Committed(answer) } else { Outcome::Duplicate(answer) }))
    }

    /// A new request, or the one that asks exactly the same from the same place. Writes nothing new yet, so
    /// that several can be refused as one; `ahead` are those that will be written before it.
    pub(super) fn find_or_open(
        &mut self,
        draft: Draft,
        by: &Principal,
        caps: Caps,
        ahead: &[Opening],
    ) -> Step<Opening, L::Error> {
        if !by.may_request() {
            return Ok(Err(Refusal::NotARequester.into()));
        }
        // A stored run's request is named by what it asks, whatever its requester would call it.
        let is_chosen = draft.id.is_some() && matches!(draft.binding, Binding::Runtime(_));
        let audience = self.audience(&draft)?;
        let change = Approval::open(draft, by, audience, self.now);
        let (id, reference) = (&change.approval.id, change.approval.reference());
        if self.ledger.is_taken(id.as_str())? || self.ledger.is_taken(&reference)? {
            // A chosen id names one request for good; a derived one is found again by asking the same again.
            if is_chosen || self.ledger.approval(id)?.is_none() {
                return Ok(Err(Refusal::IdTaken.into()));
            }
            let id = id.clone();
            let (existing, _) = accept!(self.current(&id, by)?);
            let is_own = existing.requester.id == by.id;
            return Ok(if is_own { Ok(Opening::Existing(existing)) } else { Err(Refusal::NotFound.into()) });
        }
        accept!(self.check_room(&change.approval, by, caps, ahead)?);
        Ok(Ok(Opening::New(change)))
    }

    /// Whether anything new may be asked, and by this identity in this session.
    fn check_room(
        &mut self,
        approval: &Approval,
        by: &Principal,
        caps: Caps,
        ahead: &[Opening],
    ) -> Result<Result<(), Refusal>, L::Error> {
        if self.ledger.is_frozen(&by.id)? {
            return Ok(Err(Refusal::Frozen));
        }
        // The same twice is one.
        let ahead: BTreeMap<&ApprovalId, Option<&String>> = ahead
            .iter()
            .filter_map(|opening| match opening {
                Opening::New(change) => Some((&change.approval.id, change.approval.audience.first())),
                Opening::Existing(_) => None,
            })
            .filter(|(id, _)| **id != approval.id)
            .collect();
        let room = |pending: u32, ahead: usize, limit: u32| pending as usize + ahead < limit as usize;
        if !room(self.ledger.pending_of(&by.id)?, ahead.len(), caps.per_principal) {
            return Ok(Err(Refusal::TooManyPending { whose: "agent", limit: caps.per_principal }));
        }
        if let Some(session) = approval.audience.first() {
            let in_session = ahead.values().filter(|first| **first == Some(session)).count();
            if !room(self.ledger.pending_in(&by.id, session)?, in_session, caps.per_session) {
                return Ok(Err(Refusal::TooManyPending { whose: "session", limit: caps.per_session }));
            }
        }
        Ok(Ok(()))
    }

    /// Who sees the request and its end. A registry that cannot be read leaves the source alone; the request is asked
    /// all the same.
    fn audience(&mut self, draft: &Draft) -> Result<Vec<String>, L::Error> {
        let Some(source) = &draft.source.session else {
            return Ok(Vec::new());
        };
        let agent = draft.source.agent.as_deref();
        Ok(audience(source, agent, |key| self.ledger.session(key).map(|found| found.map(|(edges, _)| edges))))
    }

    pub(super) fn write_opening(
        &mut self,
        opening: Opening,
        by: &Principal,
    ) -> Result<(Approval, bool), L::Error> {
        match opening {
            Opening::Existing(approval) => Ok((approval, false)),
            Opening::New(change) => {
                self.ledger.insert_approval(&change.approval, self.now)?;
                Ok((self.record(change, by)?, true))
            }
        }
    }

    pub(super) fn apply(&mut self, id: &ApprovalId, command: Command, by: &By) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let (approval, bound) = accept!(self.current(id, &by)?);
        if matches!(command, Command::Claim { .. })
            && approval.claim().is_none()
            && self.ledger.is_frozen(&approval.requester.id)?
        {
            return Ok(Err(Refusal::Frozen.into()));
        }
        let change = match approval.apply(command, &by, bound, self.now) {
            Ok(change) => change,
            Err(why) => {
                let winner = (access(&approval, &by) != Access::None).then(|| Box::new(approval));
                return Ok(Err(Refused { why, winner }));
            }
        };
        if !change.applied() {
            return Ok(Ok(Outcome::Duplicate(Answer::Approval(Box::new(change.approval)))));
        }
        let approval = self.write(change, &by)?;
        Ok(Ok(Outcome::Committed(Answer::Approval(Box::new(approval)))))
    }

    /// Calls off what a run asked for. What a person has answered stays answered.
    pub(super) fn cancel_run(&mut self, run: &str, by: &By, limit: u32) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        let requester: Option<PrincipalId> = (!by.is_admin()).then(|| by.id.clone());
        let mut touched = 0;
        for id in self.ledger.pending_of_run(run, requester.as_ref(), limit)? {
            let Ok((approval, bound)) = self.current(&id, &by)? else {
                continue;
            };
            let command = Command::Cancel { reason: TerminalReason::RunAborted };
            match approval.apply(command, &by, bound, self.now) {
                Ok(change) if change.applied() => {
                    self.write(change, &by)?;
                    touched += 1;
                }
                // Time was faster.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Ok(Outcome::Committed(Answer::Touched(touched))))
    }

    pub(super) fn sweep(&mut self, limit: u32) -> Step<Outcome, L::Error> {
        let mut touched = 0;
        for id in self.ledger.due(self.now, limit)? {
            match self.ledger.approval(&id)? {
                Some(Stored::Sound(approval)) => {
                    let (_, _, reconciled) = self.reconciled(*approval)?;
                    touched += u32::from(reconciled);
                }
                Some(Stored::Corrupt { .. }) => {
                    self.set_aside(&id)?;
                    touched += 1;
                }
                None => {}
            }
        }
        Ok(Ok(Outcome::Committed(Answer::Touched(touched))))
    }

    pub(super) fn prune(&mut self, before: Time, limit: u32) -> Step<Outcome, L::Error> {
        let outlived = self.ledger.outlived(before, limit)?;
        for id in &outlived {
            self.ledger.remove_approval(id)?;
        }
        let touched = u32::try_from(outlived.len()).unwrap_or(u32::MAX);
        Ok(Ok(Outcome::Committed(Answer::Touched(touched))))
    }

    pub(super) fn put_session(
        &mut self,
        key: &str,
        edges: &SessionEdges,
        by: &By,
    ) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        if !by.may_request() {
            return Ok(Err(Refusal::NotARequester.into()));
        }
        let is_anothers = self.ledger.session(key)?.is_some_and(|(_, owner)| owner != by.id);
        if is_anothers && !by.is_admin() {
            return Ok(Err(Refusal::NotTheRequester.into()));
        }
        self.ledger.put_session(key, edges, &by.id, self.now)?;
        Ok(Ok(super::DONE))
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
                Some(run) if run.owner == by.id && run.state.is_final() => Err(Refusal::RunEnded),
                Some(run) if run.owner == by.id => {
                    fence.ok_or(Refusal::FenceLapsed).and_then(|f| run.check_fence(f))
                }
                Some(_) | None => Err(Refusal::NotFound),
            },
        })
    }
}
