//! Leave to run one call.
//!
//! A [`Permit`] is made here alone, by an answer of the gate or by a claim that the authority granted, and running a
//! tool takes one by value: what was not allowed cannot be run by mistake, nor twice.

use std::sync::Arc;

use holdgate_wire::{Code, MakeClaim};
use serde_json::Value;
use tokio::task::JoinSet;

use super::line::{Line, Recorded, refused};
use super::persist::persist;
use crate::gate::{Gate, ToolCall, Verdict};
use crate::run::RunError;
use crate::run::journal::{Ending, RESULT_BYTES};
use crate::run::machine::claim_id;
use crate::run::outcome::{Cause, Rejection};
use crate::run::review::{Checked, Place, Question};
use crate::tool::{Tool, ToolContext, ToolError};

/// Leave to run one call once.
pub(super) struct Permit {
    tool: Arc<dyn Tool>,
    input: Value,
    context: ToolContext,
    claim: Option<String>,
}

/// What the gate makes of a call.
pub(super) enum Answer {
    Permit(Permit),
    AskAPerson { reason: Option<String>, timeout: Option<std::time::Duration> },
    No(Rejection),
}

impl Permit {
    /// Puts a call to the gate. Anything but its clear answer is a no.
    pub(super) async fn by_gate(gate: Option<&Arc<dyn Gate>>, call: ToolCall, checked: Checked) -> Answer {
        let place = Place { run: &call.run_id, task: &call.task_id };
        let context = context(place, &call.call_id, None);
        let permit = Permit { tool: checked.tool, input: checked.input, context, claim: None };
        let Some(gate) = gate.map(Arc::clone) else {
            return if call.is_consequential {
                Answer::No(Rejection { cause: Cause::NoGate, detail: None })
            } else {
                Answer::Permit(permit)
            };
        };
        match alone(async move { gate.on_tool_call(&call).await }).await {
            Some(Ok(Verdict::Allow)) => Answer::Permit(permit),
            Some(Ok(Verdict::Deny { reason })) => {
                Answer::No(Rejection { cause: Cause::GateDenied, detail: reason })
            }
            Some(Ok(Verdict::Suspend { reason, timeout })) => Answer::AskAPerson { reason, timeout },
            Some(Err(error)) => Answer::No(Rejection::new(Cause::GateFailed, error)),
            None => Answer::No(Rejection::new(Cause::GateFailed, "it panicked")),
        }
    }

    /// The permit of a call whose allow was spent for it.
    pub(super) fn by_claim(
        place: Place<'_>,
        call: &str,
        question: &Question,
        checked: Checked,
        claim: Claimed,
    ) -> Self {
        let context = context(place, call, Some(&question.approval));
        Permit { tool: checked.tool, input: checked.input, context, claim: Some(claim.into_id()) }
    }

    /// The claim behind it, if a person allowed the call.
    pub(super) fn claim(&self) -> Option<&str> {
        self.claim.as_deref()
    }

    /// Runs the call, once its start is in the journal.
    pub(super) async fn execute(self, _started: Recorded) -> Ending {
        let Permit { tool, input, context, .. } = self;
        match alone(async move { tool.call(input, context).await }).await {
            Some(ended) => ending(ended),
            None => Ending::Failed("the tool panicked".to_owned()),
        }
    }
}

/// A claim that the authority granted. Made by [`spend`] alone.
pub(super) struct Claimed(String);

impl Claimed {
    pub(super) fn into_id(self) -> String {
        self.0
    }
}

/// Spends a person's allow. The claim's name follows from what it is for, so that the same claimed again, after a lost
/// reply or a crash, is the same claim. A rejection if the allow is spent or taken back.
pub(super) async fn spend(
    line: &Line,
    question: &Question,
    claim_id: String,
) -> Result<Result<Claimed, Rejection>, RunError> {
    let claim =
        MakeClaim { claim_id: claim_id.clone(), digest: question.digest.clone(), fence: Some(line.fence()) };
    let authority = line.authority();
    match persist(|| authority.claim(&question.approval, claim.clone())).await {
        Ok(granted) if granted.claim_id == claim_id => Ok(Ok(Claimed(claim_id))),
        Ok(granted) => {
            let other = format!("the authority granted the claim {} instead", granted.claim_id);
            Ok(Err(Rejection::new(Cause::AllowSpent, other)))
        }
        Err(error) if matches!(error.code(), Some(Code::AlreadyClaimed | Code::Revoked)) => {
            Ok(Err(Rejection::new(Cause::AllowSpent, error)))
        }
        Err(error) => Err(refused(line.run(), error)),
    }
}

/// How a call ended, within its bound.
pub(super) fn ending(ended: Result<Value, ToolError>) -> Ending {
    match ended {
        Ok(value) => kept(value),
        Err(ToolError(why)) => Ending::Failed(kept_text(why)),
    }
}

/// The idempotency key of a call: the approval's id where a person approved it.
pub(super) fn key(place: Place<'_>, call: &str, approval: Option<&str>) -> String {
    approval.map_or_else(|| claim_id(place, call), str::to_owned)
}

fn context(place: Place<'_>, call: &str, approval: Option<&str>) -> ToolContext {
    let key = key(place, call, approval);
    ToolContext {
        run_id: place.run.to_owned(),
        task_id: place.task.to_owned(),
        call_id: call.to_owned(),
        idempotency_key: key,
    }
}

/// Runs somebody else's code so that its panic is an answer: `None`. Ends with us, not later.
pub(super) async fn alone<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let mut one = JoinSet::new();
    one.spawn(work);
    one.join_next().await?.ok()
}

/// A result within its bound. The effect has happened; only its report can be left out.
fn kept(value: Value) -> Ending {
    let bytes = value.to_string().len();
    if bytes <= RESULT_BYTES {
        return Ending::Succeeded(value);
    }
    let note =
        format!("it succeeded; its result of {bytes} bytes is more than {RESULT_BYTES} and was not kept");
    Ending::Succeeded(Value::String(note))
}

fn kept_text(text: String) -> String {
    if text.len() <= RESULT_BYTES {
        return text;
    }
    format!("it failed; its message of {} bytes is more than {RESULT_BYTES} and was not kept", text.len())
}
