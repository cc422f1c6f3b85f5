//! The events of one commit, for whom they are and what they say. Built once, however many connections get them.

use std::sync::Arc;

use holdgate_core::approval::Status;
use holdgate_core::{Actor, Approval, Event};
use holdgate_store::Committed;
use holdgate_wire::Links;
use serde_json::{Value, json};

use super::projection::{self, Shown, family, snapshot};

/// One event as it goes to every connection that gets it.
pub(crate) struct Projected {
    /// Its name.
    pub(crate) event: &'static str,
    /// Its payload, as JSON.
    pub(crate) payload: Arc<str>,
    /// Who gets it, among those who may see and answer the record.
    pub(crate) to: Recipients,
}

/// Who gets an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recipients {
    /// Whoever shows approvals of a family.
    Family(&'static str),
    /// Whoever follows a session.
    Session(String),
}

/// What a commit tells, in order: first a session's stream, then the family's own event.
pub(crate) fn of(committed: &Committed, links: &Links) -> Vec<Projected> {
    let approval = &committed.approval;
    let mut projected = Vec::new();
    for event in &committed.events {
        match event {
            Event::Opened => {
                // What follows in the same commit has events of its own.
                let pending =
                    Approval { phase: holdgate_core::Phase::Pending, votes: Vec::new(), ..approval.clone() };
                streams(&pending, committed, links, &mut projected);
                projected.push(requested(&pending));
            }
            Event::Voted { .. } if approval.status() == Status::Pending => projected.push(voted(approval)),
            Event::Resolved { .. } => {
                streams(approval, committed, links, &mut projected);
                projected.push(resolved(approval, committed));
            }
            Event::Voted { .. }
            | Event::Revoked
            | Event::Claimed
            | Event::ClaimTaken
            | Event::Settled { .. } => {}
        }
    }
    projected
}

fn streams(approval: &Approval, committed: &Committed, links: &Links, projected: &mut Vec<Projected>) {
    let is_pending = approval.status() == Status::Pending;
    for key in &approval.audience {
        let payload = json!({
            "sessionKey": key,
            "sourceSessionKey": approval.audience.first(),
            "updatedAtMs": committed.at.as_ms(),
            "phase": if is_pending { "pending" } else { "terminal" },
            "approval": snapshot(approval, links, Shown::Stream),
        });
        projected.push(to("session.approval", payload, Recipients::Session(key.clone())));
    }
}

fn requested(approval: &Approval) -> Projected {
    let family = family(approval.kind);
    let payload = json!({
        "approvalKind": family,
        "id": approval.id.as_str(),
        "request": projection::request(approval),
        "createdAtMs": approval.created_at.as_ms(),
        "expiresAtMs": approval.expires_at.as_ms(),
    });
    let event = if family == "exec" { "exec.approval.requested" } else { "plugin.approval.requested" };
    to(event, payload, Recipients::Family(family))
}

fn resolved(approval: &Approval, committed: &Committed) -> Projected {
    let family = family(approval.kind);
    let by = approval.end().map(|end| &end.by).filter(|by| !by.is_authority());
    let payload = json!({
        "id": approval.id.as_str(),
        "decision": approval.decision().map(|decision| decision.as_str()),
        "resolvedBy": by.map(Actor::name),
        "ts": committed.at.as_ms(),
        "request": projection::request(approval),
    });
    let event = if family == "exec" { "exec.approval.resolved" } else { "plugin.approval.resolved" };
    to(event, payload, Recipients::Family(family))
}

/// An answer that did not end the request. The protocol has no event for it; this one is ours.
fn voted(approval: &Approval) -> Projected {
    let votes: Vec<holdgate_wire::approval::Vote> = approval.votes.iter().map(Into::into).collect();
    let required = &approval.requirement;
    let payload = json!({
        "id": approval.id.as_str(),
        "votes": serde_json::to_value(votes).unwrap_or(Value::Null),
        "approvals": required.approvals,
        "denials": required.denials,
    });
    to("approval.voted", payload, Recipients::Family(family(approval.kind)))
}

fn to(event: &'static str, payload: Value, to: Recipients) -> Projected {
    Projected { event, payload: payload.to_string().into(), to }
}
