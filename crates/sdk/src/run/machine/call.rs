//! One call of a run: where it stands, and what is to be done about it.

use super::Effect;
use crate::model::{Message, RequestedCall};
use crate::run::journal::{Ending, Event};
use crate::run::outcome::{CallResult, CallSummary, ReceiptState, Rejection, Review};
use crate::run::review::{Known, Place, Question, TASK, claim_of};

/// One call of the run.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) requested: RequestedCall,
    /// What a person is asked, once it is durable.
    pub(crate) question: Option<Question>,
    pub(super) phase: Phase,
    /// Whether the gate thinks about it. Known to this process only.
    pub(super) is_at_gate: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// The model asked for it.
    Requested,
    /// The gate wants a person asked. Known to this process only.
    Asking(Question),
    /// A person is asked.
    Waiting(Known),
    /// It has started.
    Started { claim: Option<String>, interrupted: Option<Interrupted> },
    /// It ended.
    Ended { claim: Option<String>, ending: Ending, receipt: Option<ReceiptState> },
    /// It will never run.
    Rejected(Rejection),
}

/// Whether the journal says already that a call's outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    Unsaid,
    Said,
    /// And this process has tried in vain.
    GivenUp,
}

impl Call {
    pub(super) fn new(requested: RequestedCall) -> Self {
        Self { requested, question: None, phase: Phase::Requested, is_at_gate: false }
    }

    pub(super) fn apply(&mut self, place: Place<'_>, event: &Event) -> Result<(), String> {
        let phase = match (&self.phase, event) {
            (Phase::Requested | Phase::Waiting(_), Event::CallRejected { rejection, .. }) => {
                Phase::Rejected(rejection.clone())
            }
            (Phase::Requested | Phase::Asking(_), Event::CallSuspended { question, .. }) => {
                question.verify(place, &self.requested)?;
                self.question = Some(question.clone());
                Phase::Waiting(Known::Pending)
            }
            (Phase::Requested, Event::CallStarted { claim: None, .. }) => {
                Phase::Started { claim: None, interrupted: None }
            }
            (Phase::Waiting(_), Event::CallStarted { claim: Some(claim), .. }) => {
                let is_ours = *claim == claim_id(place, &self.requested.id);
                is_ours.then_some(()).ok_or("its claim is not of this call")?;
                Phase::Started { claim: Some(claim.clone()), interrupted: None }
            }
            // A later process runs an idempotent call again.
            (Phase::Started { claim: before, .. }, Event::CallStarted { claim, .. }) if before == claim => {
                Phase::Started { claim: claim.clone(), interrupted: None }
            }
            (Phase::Started { claim, .. }, Event::CallEnded { ending, .. }) => Phase::Ended {
                claim: claim.clone(),
                ending: ending.clone(),
                receipt: claim.is_some().then_some(ReceiptState::Owed),
            },
            (Phase::Started { claim, .. }, Event::CallUnknown { .. }) => {
                Phase::Started { claim: claim.clone(), interrupted: Some(Interrupted::Said) }
            }
            (
                Phase::Ended { claim, ending, receipt: Some(ReceiptState::Owed) },
                Event::CallSettled { refused, .. },
            ) => {
                let receipt = refused.clone().map_or(ReceiptState::Delivered, ReceiptState::Refused);
                Phase::Ended { claim: claim.clone(), ending: ending.clone(), receipt: Some(receipt) }
            }
            _ => return Err(format!("the call {:?} is not at that point", self.requested.id)),
        };
        self.phase = phase;
        self.is_at_gate = false;
        Ok(())
    }

    /// What a process would ask a person, before it is durable.
    pub(crate) fn asking(&self) -> Option<&Question> {
        match &self.phase {
            Phase::Asking(question) => Some(question),
            _ => None,
        }
    }

    /// What its claim's receipt has to say, if one is owed: the claim, and how the call ended.
    pub(crate) fn owed(&self) -> Option<(&str, &Ending)> {
        match &self.phase {
            Phase::Ended { claim: Some(claim), ending, receipt: Some(ReceiptState::Owed) } => {
                Some((claim, ending))
            }
            _ => None,
        }
    }

    /// The approval behind it.
    pub(crate) fn review(&self) -> Option<Review> {
        self.question.as_ref().map(|question| Review {
            approval_id: question.approval.clone(),
            digest: question.digest.clone(),
        })
    }

    pub(super) fn id(&self) -> String {
        self.requested.id.clone()
    }

    pub(super) fn is_done(&self) -> bool {
        match &self.phase {
            Phase::Ended { receipt, .. } => *receipt != Some(ReceiptState::Owed),
            Phase::Rejected(_) => true,
            Phase::Requested | Phase::Asking(_) | Phase::Waiting(_) | Phase::Started { .. } => false,
        }
    }

    pub(super) fn recovery(&self) -> Option<Effect> {
        match self.phase {
            Phase::Started {
                interrupted: Some(interrupted @ (Interrupted::Unsaid | Interrupted::Said)),
                ..
            } => Some(Effect::Recover(self.id(), interrupted)),
            _ => None,
        }
    }

    pub(super) fn settlement(&self) -> Option<Effect> {
        self.owed().map(|_| Effect::Settle(self.id()))
    }

    pub(super) fn gating(&self) -> Option<Effect> {
        (matches!(self.phase, Phase::Requested) && !self.is_at_gate).then(|| Effect::Gate(self.id()))
    }

    /// Whether it has started in this process and not ended.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Started { interrupted: None, .. })
    }

    pub(super) fn answer(&self) -> Option<Effect> {
        match &self.phase {
            Phase::Waiting(Known::Allowed) => Some(Effect::Run(self.id())),
            Phase::Waiting(Known::Ended(why)) => Some(Effect::Reject(self.id(), why.clone())),
            _ => None,
        }
    }

    fn result(&self) -> Option<CallResult> {
        match &self.phase {
            Phase::Ended { ending: Ending::Succeeded(value), .. } => {
                Some(CallResult::Succeeded(value.clone()))
            }
            Phase::Ended { ending: Ending::Failed(why), .. } => Some(CallResult::Failed(why.clone())),
            Phase::Rejected(why) => Some(CallResult::Rejected(why.clone())),
            Phase::Requested | Phase::Asking(_) | Phase::Waiting(_) | Phase::Started { .. } => None,
        }
    }

    pub(super) fn message(&self) -> Option<Message> {
        let result = self.result()?;
        Some(Message::Tool { call_id: self.id(), tool: self.requested.tool.clone(), result })
    }

    pub(super) fn summary(&self) -> CallSummary {
        let receipt = match &self.phase {
            Phase::Ended { receipt, .. } => receipt.clone(),
            _ => None,
        };
        CallSummary {
            call_id: self.id(),
            tool: self.requested.tool.clone(),
            result: self.result(),
            review: self.review(),
            receipt,
        }
    }
}

/// The claim of a call.
pub(crate) fn claim_id(place: Place<'_>, call: &str) -> String {
    let Place { run, task } = place;
    // The calls of a single agent's run were named before there were others.
    claim_of(&if task == TASK { format!("{run}\n{call}") } else { format!("{run}\n{task}\n{call}") })
}
