//! Commands and what they change: the state machine of an approval.

use super::{
    Access, Action, Actor, Approval, Binding, Claim, ClaimId, Decision, Digest, Draft, End, Event, Fence,
    Outcome, Phase, Principal, Receipt, Refusal, Revocation, TerminalReason, Time, Use, Vote, access,
};
use crate::principal::PrincipalKind;

/// What somebody wants done to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answer it.
    Vote {
        /// The answer.
        decision: Decision,
        /// The digest that the reviewer was shown.
        digest: Digest,
        /// Why.
        reason: Option<String>,
    },
    /// End it because its deadline has passed.
    Expire,
    /// Call it off.
    Cancel {
        /// Why: the requester withdrew it, or what waited behind it is gone.
        reason: TerminalReason,
    },
    /// Deny it, because a trusted runtime's verdict on it could not be understood.
    DenyMalformed,
    /// Deny it, because nobody could be shown it.
    DenyUnrouted,
    /// Take its allow back before it is spent.
    Revoke {
        /// Why.
        reason: Option<String>,
    },
    /// Spend its allow.
    Claim {
        /// The claimer's name for this attempt. The same again is the same attempt.
        claim_id: ClaimId,
        /// The digest of what the claimer is about to run.
        digest: Digest,
        /// The run's fence that the claimer holds, for a stored run.
        fence: Option<Fence>,
    },
    /// Say what came of its claim.
    Settle {
        /// The claim.
        claim_id: ClaimId,
        /// What came of it.
        outcome: Outcome,
        /// More, in the claimer's words.
        detail: Option<String>,
    },
}

/// What is known, under the lock, about what waits behind an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A live process renews its lease.
    Live,
    /// The gateway's own epoch has ended or lapsed.
    GatewayGone,
    /// The caller's epoch has ended or lapsed, or there never was one.
    CallerGone,
    /// A stored run that has ended: nothing waits any more.
    RunEnded,
    /// A stored run, with its current fence and whether somebody holds its lease now.
    Run {
        /// The run's current fence.
        fence: Fence,
        /// Whether its lease is live.
        held: bool,
    },
}

/// What a command changed. Written as one: the record and the facts that follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The record as it is now.
    pub approval: Approval,
    /// What became true. Empty when nothing changed: the same command had been applied before.
    pub events: Vec<Event>,
}

impl Change {
    /// Whether anything changed.
    pub fn applied(&self) -> bool {
        !self.events.is_empty()
    }
}

impl Approval {
    /// A new, pending approval. `audience` is what [`mod@crate::audience`] found.
    pub fn open(draft: Draft, by: &Principal, audience: Vec<String>, now: Time) -> Change {
        let run = match &draft.binding {
            Binding::Checkpoint(run) => run.as_str().to_owned(),
            // Callers without an epoch of their own share the gateway's: the requester keeps their ids apart.
            Binding::Runtime(epoch) => format!("{epoch}/{}", by.id),
        };
        let keeps_content = matches!(draft.binding, Binding::Checkpoint(_));
        let mut requirement = draft.requirement;
        // An agent never decides, so nobody need wonder whether this one may.
        requirement.requester_may_decide &= by.person.is_some();
        // A stored run finds its request again by what it asks: that id is not the requester's to choose.
        let chosen = draft.id.filter(|_| !keeps_content);
        let approval = Approval {
            id: chosen.unwrap_or_else(|| draft.action.id(&run)),
            kind: draft.action.kind(),
            boundary: draft.action.boundary().to_owned(),
            digest: draft.action.digest(),
            content: keeps_content.then(|| Action::content(&draft.action).clone()),
            presentation: draft.presentation,
            reason: draft.reason,
            source: draft.source,
            requester: Actor::from(by),
            client: draft.client,
            audience,
            v4_request: draft.v4_request,
            binding: draft.binding,
            requirement,
            created_at: now,
            expires_at: now.plus_ms(draft.timeout_ms),
            votes: Vec::new(),
            phase: Phase::Pending,
        };
        Change { approval, events: vec![Event::Opened] }
    }

    /// What time and the state of the binding have already decided, whether or not anybody wrote it down.
    /// `None` when the record says all there is to say.
    pub fn reconcile(&self, bound: Bound, now: Time) -> Option<Change> {
        let authority = Principal::authority();
        let due = match &self.phase {
            Phase::Pending if self.expires_at.reached_at(now) => Command::Expire,
            Phase::Pending => match bound {
                Bound::GatewayGone => Command::Cancel { reason: TerminalReason::GatewayRestart },
                Bound::CallerGone => Command::Cancel { reason: TerminalReason::CallerLost },
                Bound::RunEnded => Command::Cancel { reason: TerminalReason::RunAborted },
                Bound::Live | Bound::Run { .. } => return None,
            },
            Phase::Allowed { spent: Use::Claimed(claim @ Claim { receipt: None, .. }), .. }
                if !claim.is_held(bound) =>
            {
                let detail =
                    Some("the process that claimed it ended without saying what came of it".to_owned());
                Command::Settle { claim_id: claim.id.clone(), outcome: Outcome::Unknown, detail }
            }
            Phase::Allowed { .. } | Phase::Denied(_) | Phase::Expired(_) | Phase::Cancelled(_) => {
                return None;
            }
        };
        self.apply(due, &authority, bound, now).ok()
    }

    /// Applies a command. Total: every command in every phase has an answer, and the only way into another
    /// phase is through here.
    ///
    /// The caller has loaded `by`, `bound` and `now` in the transaction that will write the change, so
    /// authority, lease, fence and deadline are all judged under the lock.
    ///
    /// # Errors
    /// A [`Refusal`] says why nothing changed.
    pub fn apply(
        &self,
        command: Command,
        by: &Principal,
        bound: Bound,
        now: Time,
    ) -> Result<Change, Refusal> {
        let access = access(self, by);
        if access == Access::None {
            return Err(Refusal::NotFound);
        }
        match command {
            Command::Vote { decision, digest, reason } => {
                self.may_vote(decision, access, by)?;
                self.vote(Vote { decision, voter: Actor::from(by), at: now, reason }, digest, bound)
            }
            Command::DenyMalformed => self.deny(TerminalReason::MalformedVerdict, by, bound, now),
            // Only the authority knows whom it could tell.
            Command::DenyUnrouted if by.kind != PrincipalKind::Authority => Err(Refusal::NotAReviewer),
            Command::DenyUnrouted => self.deny(TerminalReason::NoRoute, by, bound, now),
            Command::Revoke { reason } => self.revoke(reason, access, by, now),
            Command::Expire => self.expire(by, now),
            Command::Cancel { reason } => self.cancel(reason, by, now),
            Command::Claim { claim_id, digest, fence } => self.spend(claim_id, digest, fence, by, bound, now),
            Command::Settle { claim_id, outcome, detail } => self.settle(&claim_id, outcome, detail, by, now),
        }
    }

    /// Whether `by` is somebody whose answer counts here. A runtime resolves what others asked; the person who asked
    /// only where the requirement lets them.
    fn may_vote(&self, decision: Decision, access: Access, by: &Principal) -> Result<(), Refusal> {
        let is_own = self.requester.is_same_voice(&Actor::from(by));
        let is_person = matches!(by.kind, PrincipalKind::Administrator | PrincipalKind::Device);
        let may = match access {
            Access::Review => is_person && (!is_own || self.requirement.requester_may_decide),
            // A runtime is no person, so it does not count towards several; and whom the lists do not admit cannot help
            // to fulfil them. A deny never needs to be listed.
            Access::Resolve => {
                decision == Decision::Deny || (self.requirement.approvals == 1 && self.requirement.admits(by))
            }
            Access::None | Access::Request => false,
        };
        if may { Ok(()) } else { Err(Refusal::NotAReviewer) }
    }

    fn vote(&self, vote: Vote, digest: Digest, bound: Bound) -> Result<Change, Refusal> {
        if digest != self.digest {
            return Err(Refusal::StaleDigest);
        }
        let decision = vote.decision;
        match &self.phase {
            Phase::Pending => self.check_open(bound, vote.at)?,
            Phase::Allowed { decision: stands, .. } if *stands == decision => return Ok(self.unchanged()),
            // Somebody's allow-always that added up to an allow-once is still the answer they gave.
            Phase::Allowed { .. } if decision.is_allow() && self.has_said(&vote) => {
                return Ok(self.unchanged());
            }
            Phase::Denied(_) if decision == Decision::Deny => return Ok(self.unchanged()),
            Phase::Allowed { .. } | Phase::Denied(_) => return Err(Refusal::AlreadyDecided),
            Phase::Expired(_) => return Err(Refusal::Expired),
            Phase::Cancelled(_) => return Err(Refusal::Cancelled),
        }
        if !self.requirement.allowed_decisions.contains(&decision) {
            return Err(Refusal::DecisionNotOffered);
        }
        if self.requirement.reason_required && vote.reason.is_none() {
            return Err(Refusal::ReasonRequired);
        }
        let mut next = self.clone();
        match next.votes.iter_mut().find(|given| given.voter.is_same_voice(&vote.voter)) {
            Some(given) if given.decision == decision => return Ok(self.unchanged()),
            Some(given) if given.decision.is_allow() && decision == Decision::Deny => *given = vote.clone(),
            Some(_) => return Err(Refusal::AlreadyVoted),
            None => next.votes.push(vote.clone()),
        }
        let end = End { at: vote.at, by: vote.voter, reason: TerminalReason::User };
        let (allows, denies): (Vec<&Vote>, Vec<&Vote>) =
            next.votes.iter().partition(|given| given.decision.is_allow());
        let voted = vec![Event::Voted { decision }];
        if denies.len() >= self.requirement.denials as usize {
            next.phase = Phase::Denied(end);
        } else if allows.len() >= self.requirement.approvals.max(1) as usize {
            // What everybody allowed is what is allowed.
            let once = allows.iter().any(|given| given.decision == Decision::AllowOnce);
            let decision = if once { Decision::AllowOnce } else { Decision::AllowAlways };
            next.phase = Phase::Allowed { decision, end, spent: Use::Open };
        } else {
            return Ok(Change { approval: next, events: voted });
        }
        Ok(next.ended(voted))
    }

    fn has_said(&self, vote: &Vote) -> bool {
        self.votes
            .iter()
            .any(|given| given.decision == vote.decision && given.voter.is_same_voice(&vote.voter))
    }

    /// Whether a pending request can still be answered.
    fn check_open(&self, bound: Bound, now: Time) -> Result<(), Refusal> {
        match bound {
            _ if self.expires_at.reached_at(now) => Err(Refusal::Expired),
            Bound::GatewayGone | Bound::CallerGone | Bound::RunEnded => Err(Refusal::Cancelled),
            Bound::Live | Bound::Run { .. } => Ok(()),
        }
    }

    /// A deny that no person gave. The deadline comes first.
    fn deny(
        &self,
        reason: TerminalReason,
        by: &Principal,
        bound: Bound,
        now: Time,
    ) -> Result<Change, Refusal> {
        if !matches!(by.kind, PrincipalKind::Runtime | PrincipalKind::Authority) {
            return Err(Refusal::NotAReviewer);
        }
        match &self.phase {
            Phase::Pending => {
                self.check_open(bound, now)?;
                let mut next = self.clone();
                next.phase = Phase::Denied(End { at: now, by: Actor::from(by), reason });
                Ok(next.ended(Vec::new()))
            }
            Phase::Denied(_) => Ok(self.unchanged()),
            Phase::Allowed { .. } => Err(Refusal::AlreadyDecided),
            Phase::Expired(_) => Err(Refusal::Expired),
            Phase::Cancelled(_) => Err(Refusal::Cancelled),
        }
    }

    /// The answer stays what it was; that it will not be used is a fact of its own.
    fn revoke(
        &self,
        reason: Option<String>,
        access: Access,
        by: &Principal,
        now: Time,
    ) -> Result<Change, Refusal> {
        if !matches!(access, Access::Review | Access::Request) {
            return Err(Refusal::NotAReviewer);
        }
        match &self.phase {
            Phase::Allowed { decision, end, spent: Use::Open } => {
                let revocation = Revocation { at: now, by: Actor::from(by), reason };
                let mut next = self.clone();
                next.phase =
                    Phase::Allowed { decision: *decision, end: end.clone(), spent: Use::Revoked(revocation) };
                Ok(Change { approval: next, events: vec![Event::Revoked] })
            }
            Phase::Allowed { spent: Use::Revoked(_), .. } => Ok(self.unchanged()),
            Phase::Allowed { spent: Use::Claimed(_), .. } => Err(Refusal::AlreadyClaimed),
            Phase::Pending | Phase::Denied(_) | Phase::Expired(_) | Phase::Cancelled(_) => {
                Err(Refusal::NotAllowed)
            }
        }
    }

    fn expire(&self, by: &Principal, now: Time) -> Result<Change, Refusal> {
        match self.phase {
            Phase::Pending if !Actor::from(by).is_authority() => Err(Refusal::NotAReviewer),
            Phase::Pending if !self.expires_at.reached_at(now) => Err(Refusal::NotAllowed),
            Phase::Pending => {
                let mut next = self.clone();
                next.phase =
                    Phase::Expired(End { at: now, by: Actor::from(by), reason: TerminalReason::Timeout });
                Ok(next.ended(Vec::new()))
            }
            Phase::Expired(_) => Ok(self.unchanged()),
            Phase::Allowed { .. } | Phase::Denied(_) => Err(Refusal::AlreadyDecided),
            Phase::Cancelled(_) => Err(Refusal::Cancelled),
        }
    }

    fn cancel(&self, reason: TerminalReason, by: &Principal, now: Time) -> Result<Change, Refusal> {
        let of_authority = Actor::from(by).is_authority();
        if !of_authority && by.id != self.requester.id && !by.is_admin() {
            return Err(Refusal::NotTheRequester);
        }
        match self.phase {
            Phase::Pending if self.expires_at.reached_at(now) => Err(Refusal::Expired),
            Phase::Pending => {
                let mut next = self.clone();
                next.phase = Phase::Cancelled(End { at: now, by: Actor::from(by), reason });
                Ok(next.ended(Vec::new()))
            }
            Phase::Cancelled(_) => Ok(self.unchanged()),
            Phase::Expired(_) => Err(Refusal::Expired),
            // Too late to call the request off, but not to call off what it allowed.
            Phase::Allowed { spent: Use::Open | Use::Revoked(_), .. } => {
                self.revoke(None, access(self, by), by, now)
            }
            Phase::Allowed { .. } | Phase::Denied(_) => Err(Refusal::AlreadyDecided),
        }
    }

    fn spend(
        &self,
        claim_id: ClaimId,
        digest: Digest,
        fence: Option<Fence>,
        by: &Principal,
        bound: Bound,
        now: Time,
    ) -> Result<Change, Refusal> {
        if by.id != self.requester.id {
            return Err(Refusal::NotTheRequester);
        }
        if digest != self.digest {
            return Err(Refusal::StaleDigest);
        }
        let Phase::Allowed { decision, end, spent } = &self.phase else {
            return Err(Refusal::NotAllowed);
        };
        // Only a stored run has holders to tell apart.
        let fence = fence.filter(|_| matches!(self.binding, Binding::Checkpoint(_)));
        let claim = match spent {
            Use::Open => None,
            Use::Claimed(claim) => Some(claim),
            Use::Revoked(_) => return Err(Refusal::Revoked),
        };
        match bound {
            Bound::Live => {}
            // The same claim asked again stays answered: its reply was lost, or its holder is slow.
            Bound::GatewayGone | Bound::CallerGone if claim.is_some_and(|c| c.id == claim_id) => {}
            Bound::GatewayGone | Bound::CallerGone => return Err(Refusal::EpochLapsed),
            Bound::RunEnded => return Err(Refusal::RunEnded),
            Bound::Run { fence: current, .. } if fence == Some(current) => {}
            Bound::Run { .. } => return Err(Refusal::FenceLapsed),
        }
        let (claim, event) = match claim {
            None => (Claim { id: claim_id, at: now, fence, receipt: None }, Event::Claimed),
            Some(claim) if claim.id != claim_id => return Err(Refusal::AlreadyClaimed),
            Some(claim) if claim.fence == fence => return Ok(self.unchanged()),
            Some(claim) => (Claim { fence, ..claim.clone() }, Event::ClaimTaken),
        };
        let mut next = self.clone();
        next.phase = Phase::Allowed { decision: *decision, end: end.clone(), spent: Use::Claimed(claim) };
        Ok(Change { approval: next, events: vec![event] })
    }

    fn settle(
        &self,
        claim_id: &ClaimId,
        outcome: Outcome,
        detail: Option<String>,
        by: &Principal,
        now: Time,
    ) -> Result<Change, Refusal> {
        if by.id != self.requester.id && !Actor::from(by).is_authority() {
            return Err(Refusal::NotTheRequester);
        }
        let Phase::Allowed { decision, end, spent: Use::Claimed(claim) } = &self.phase else {
            return Err(Refusal::NotClaimed);
        };
        if claim.id != *claim_id {
            return Err(Refusal::NotClaimed);
        }
        match &claim.receipt {
            Some(receipt) if receipt.outcome == outcome => return Ok(self.unchanged()),
            // What the claimer says late replaces only what nobody knew.
            Some(receipt) if receipt.outcome != Outcome::Unknown => {
                return Err(Refusal::AlreadySettled);
            }
            Some(_) | None => {}
        }
        let claim = Claim { receipt: Some(Receipt { outcome, at: now, detail }), ..claim.clone() };
        let mut next = self.clone();
        next.phase = Phase::Allowed { decision: *decision, end: end.clone(), spent: Use::Claimed(claim) };
        Ok(Change { approval: next, events: vec![Event::Settled { outcome }] })
    }

    fn unchanged(&self) -> Change {
        Change { approval: self.clone(), events: Vec::new() }
    }

    fn ended(self, mut events: Vec<Event>) -> Change {
        let reason = self.end().map(|end| end.reason);
        events.extend(reason.map(|reason| Event::Resolved { status: self.status(), reason }));
        Change { approval: self, events }
    }
}

impl Claim {
    /// Whether the process that made this claim still stands behind it.
    fn is_held(&self, bound: Bound) -> bool {
        match bound {
            Bound::Live => true,
            Bound::GatewayGone | Bound::CallerGone | Bound::RunEnded => false,
            Bound::Run { fence, held } => held && self.fence == Some(fence),
        }
    }
}
