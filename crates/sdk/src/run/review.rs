//! What a person reviews: frozen, named, and compared again before it goes on.
//!
//! Owns the frozen content of a tool call and both comparisons: journal with record, today's value with the reviewed
//! one. What the other gates stop is `board`'s to say. Pure: reads and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use holdgate_core::approval::{Outcome as Receipt, Status};
use holdgate_core::limits::{REASON_CHARS, TIMEOUT_MS};
use holdgate_core::presentation::present;
use holdgate_core::{Action, Canonical, Digest, Kind};
use holdgate_wire::approval::Source;
use holdgate_wire::{Approval, CreateApproval};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::outcome::{Cause, Rejection};
use crate::agent::Agent;
use crate::model::RequestedCall;
use crate::tool::Tool;

/// The one task of a single agent's run. Part of every boundary.
pub(crate) const TASK: &str = "main";

/// Where a call or a gate stands: its run and its task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) run: &'a str,
    pub(crate) task: &'a str,
}

/// The claim of whatever `text` names. The same in every process, so that a claim whose reply was lost can be made
/// again.
pub(crate) fn claim_of(text: &str) -> String {
    let hex = Digest::of(text.as_bytes()).to_hex();
    format!("clm_{}", &hex[..32])
}

/// A call whose input was validated just now.
#[derive(Clone)]
pub(crate) struct Checked {
    pub(crate) tool: Arc<dyn Tool>,
    /// What the model sent.
    pub(crate) raw: Value,
    /// What the tool will get.
    pub(crate) input: Value,
}

/// What a person is asked about one call, as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Question {
    /// The approval's id.
    pub(crate) approval: String,
    /// The digest of what is reviewed.
    pub(crate) digest: String,
    /// The frozen content: canonical JSON, byte for byte.
    pub(crate) content: String,
    /// Why, in the gate's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// How long until silence denies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<i64>,
}

/// What this process knows of a request's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has not looked.
    Nothing,
    /// There is none yet.
    Pending,
    /// Allowed.
    Allowed,
    /// Anything else.
    Ended(Rejection),
}

/// Validates a call with the agent's tools of today.
pub(crate) fn check(agent: &Agent, call: &RequestedCall) -> Result<Checked, Rejection> {
    let tool = agent
        .tool(&call.tool)
        .ok_or_else(|| Rejection::new(Cause::UnknownTool, format_args!("{:?}", call.tool)))?;
    let invalid = |why: &dyn std::fmt::Display| Rejection::new(Cause::InvalidInput, why);
    // Both as canonical JSON stands for them: what is shown, hashed and run is one value.
    let raw = Canonical::parse(&call.arguments).map_err(|e| invalid(&e))?.to_value();
    let input = tool.check(&raw).map_err(|e| invalid(&e))?;
    let input = Canonical::from_value(&input).map_err(|e| invalid(&e))?.to_value();
    Ok(Checked { tool: Arc::clone(tool), raw, input })
}

impl Question {
    /// Freezes a call for review.
    pub(crate) fn freeze(
        place: Place<'_>,
        agent: &str,
        call: &RequestedCall,
        checked: &Checked,
        reason: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Self, Rejection> {
        let content = json!({
            "kind": "tool_call",
            "toolName": call.tool,
            "rawInput": checked.raw,
            "input": checked.input,
            "agentName": agent,
            "taskId": place.task,
            "toolCallId": call.id,
            "consequential": checked.tool.is_consequential(),
        });
        Self::freeze_content(
            Kind::Tool,
            place.run,
            &boundary(place.task, &call.id),
            &content,
            reason,
            timeout,
        )
    }

    /// Freezes what a gate stops, for review.
    pub(crate) fn freeze_content(
        kind: Kind,
        run: &str,
        boundary: &str,
        content: &Value,
        reason: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Self, Rejection> {
        let not_reviewable = |why: &dyn std::fmt::Display| Rejection::new(Cause::NotReviewable, why);
        if reason.as_deref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
            let why = format!("the gate's reason is longer than {REASON_CHARS} characters");
            return Err(Rejection::new(Cause::GateFailed, why));
        }
        let timeout_ms = timeout.map(|timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
        if timeout_ms.is_some_and(|ms| !TIMEOUT_MS.contains(&ms)) {
            return Err(Rejection::new(Cause::GateFailed, "its time limit is not between 1 ms and 30 days"));
        }
        let canonical = Canonical::from_value(content).map_err(|e| not_reviewable(&e))?;
        present(kind, content).map_err(|e| not_reviewable(&e))?;
        let action = Action::freeze(kind, boundary, canonical).map_err(|e| not_reviewable(&e))?;
        Ok(Self {
            approval: action.id(run).to_string(),
            digest: action.digest().to_hex(),
            content: action.content().as_str().to_owned(),
            reason,
            timeout_ms,
        })
    }

    /// The request to open.
    pub(crate) fn request(&self, task: &str, agent: &str, call: &RequestedCall) -> CreateApproval {
        let source = Source {
            agent: Some(agent.to_owned()),
            task_id: Some(task.to_owned()),
            tool_call_id: Some(call.id.clone()),
            tool_name: Some(call.tool.clone()),
            ..Source::default()
        };
        self.request_as(Kind::Tool, boundary(task, &call.id), source)
    }

    /// The request to open, of any kind.
    pub(crate) fn request_as(&self, kind: Kind, boundary: String, source: Source) -> CreateApproval {
        CreateApproval {
            kind: kind.as_str().to_owned(),
            scope: Some(kind.scope().to_owned()),
            boundary: Some(boundary),
            content: RawValue::from_string(self.content.clone()).expect("canonical JSON is JSON"),
            reason: self.reason.clone(),
            timeout_ms: self.timeout_ms,
            epoch: None,
            run: None,
            source: Some(source),
            requirement: None,
        }
    }

    /// Whether the journal agrees with itself: the content is of this call, and digest and id follow from it.
    pub(crate) fn verify(&self, place: Place<'_>, call: &RequestedCall) -> Result<(), String> {
        let content = Canonical::parse(&self.content).map_err(|e| format!("its content: {e}"))?;
        let value = content.to_value();
        let raw = Canonical::parse(&call.arguments).map_err(|e| format!("the call's arguments: {e}"))?;
        let is_of_call = value["toolName"] == call.tool.as_str()
            && value["toolCallId"] == call.id.as_str()
            && value["taskId"] == place.task
            && value["rawInput"] == raw.to_value();
        if !is_of_call {
            return Err("its content is not of the call that the model asked for".to_owned());
        }
        self.verify_ids(Kind::Tool, place.run, &boundary(place.task, &call.id), content)
    }

    /// Whether the journal agrees with itself on what a gate stopped: the content is `expected`, and digest and id
    /// follow from it.
    pub(crate) fn verify_content(
        &self,
        kind: Kind,
        run: &str,
        boundary: &str,
        expected: &Value,
    ) -> Result<(), String> {
        let content = Canonical::parse(&self.content).map_err(|e| format!("its content: {e}"))?;
        let expected = Canonical::from_value(expected).map_err(|e| format!("its content: {e}"))?;
        if content != expected {
            return Err("its content is not what the run had come to".to_owned());
        }
        self.verify_ids(kind, run, boundary, content)
    }

    fn verify_ids(&self, kind: Kind, run: &str, boundary: &str, content: Canonical) -> Result<(), String> {
        let action = Action::freeze(kind, boundary, content).map_err(|e| e.to_string())?;
        if action.digest().to_hex() != self.digest {
            return Err(format!("its content has the digest {}, not {}", action.digest(), self.digest));
        }
        if action.id(run).as_str() != self.approval {
            return Err(format!("its content has the id {}, not {}", action.id(run), self.approval));
        }
        Ok(())
    }

    /// What the authority's record says, if it is the record of this question.
    pub(crate) fn known(&self, kind: Kind, claim: &str, record: &Approval) -> Result<Known, String> {
        if record.id != self.approval {
            return Err(format!("the authority answered with {}", record.id));
        }
        if record.kind != kind {
            return Err(format!("the authority has it as kind {}", record.kind.as_str()));
        }
        if record.digest != self.digest {
            return Err(format!("the authority has the digest {}, the run {}", record.digest, self.digest));
        }
        let said = record.receipt.as_ref().map(|receipt| receipt.outcome);
        let is_ours = record.claim.as_ref().is_none_or(|made| made.claim_id == claim);
        if is_ours && said.is_some_and(|outcome| outcome != Receipt::Unknown) {
            return Err("the authority has a receipt for it, yet the run never started it".to_owned());
        }
        let ended = |cause| {
            let detail = record.answer_reason().map(str::to_owned);
            Known::Ended(Rejection { cause, detail })
        };
        Ok(match record.status {
            Status::Pending => Known::Pending,
            Status::Allowed => Known::Allowed,
            Status::Denied => ended(Cause::Denied),
            Status::Expired => ended(Cause::Expired),
            Status::Cancelled => ended(Cause::Cancelled),
        })
    }

    /// The reviewed call, if today's tools make the same of it.
    pub(crate) fn check_again(&self, agent: &Agent, call: &RequestedCall) -> Result<Checked, String> {
        let checked = check(agent, call).map_err(|rejection| rejection.to_string())?;
        let content = Canonical::parse(&self.content).map_err(|e| e.to_string())?.to_value();
        if content["input"] != checked.input {
            let was = content["input"].to_string();
            return Err(format!("the input is now {}; {was} was reviewed", checked.input));
        }
        if content["agentName"] != agent.name() {
            return Err(format!(
                "the agent is now {:?}; {} was reviewed",
                agent.name(),
                content["agentName"]
            ));
        }
        if content["consequential"] != checked.tool.is_consequential() {
            return Err("the tool's word on whether it is consequential has changed".to_owned());
        }
        Ok(checked)
    }
}

fn boundary(task: &str, call: &str) -> String {
    format!("{task}:{call}")
}
