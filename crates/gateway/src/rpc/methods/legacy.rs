//! The older families' reading, waiting and answering: thin adapters, each blind to the other family's ids.

use std::time::Duration;

use holdgate_authority::Found;
use holdgate_core::approval::Status;
use holdgate_core::limits::WAIT_MS;
use holdgate_core::requirement::Decision;
use holdgate_core::{Approval, ApprovalId, Kind as ApprovalKind};
use holdgate_store::{Filter, Kinds};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, canonical, failure};
use crate::rpc::frame::Failure;
use crate::rpc::params::{Field, Kind, Words, read};
use crate::rpc::projection::{family, kinds_of, offered, presentation, reason, request};

/// How many records a list gives at most.
const LIST: u32 = 1_000;

#[derive(Deserialize)]
struct Named {
    id: String,
}

const NAMED: &[Field] = &[Field::required("id", Kind::Text(1, usize::MAX))];

/// A record that is not there, has ended, or is not for this caller.
fn unknown() -> Failure {
    Failure::invalid("unknown or expired approval id").with(json!({
        "reason": "APPROVAL_NOT_FOUND",
        "remediation": "Re-request the action; pending approvals are cleared after expiry or restart.",
    }))
}

/// A pending command, by its id or a beginning of it that is no other's.
pub(super) async fn get(call: &Call<'_>) -> Result<Value, Failure> {
    let Named { id } = read("exec.approval.get", call.params().as_deref(), NAMED, Words::Full)?;
    let service = &call.rpc.service;
    let is_meant =
        |approval: &Approval| approval.kind == ApprovalKind::Exec && approval.status() == Status::Pending;
    // The whole id is that one's, whatever else begins with it.
    let exact = match service.find(&id, &call.principal).await {
        Ok(Found::Sound(approval)) if approval.id.as_str() == id && is_meant(&approval) => Some(approval),
        _ => None,
    };
    let filter = Filter {
        status: Some(Status::Pending),
        kinds: Kinds::Only(ApprovalKind::Exec),
        id_prefix: Some(id),
        limit: 2,
        ..Filter::default()
    };
    let found = match exact {
        Some(exact) => vec![Found::Sound(exact)],
        None => service.list(filter, &call.principal).await.map_err(|e| failure(&e, "lookup"))?.0,
    };
    let approval = match &found[..] {
        [Found::Sound(only)] => only,
        [_, _, ..] => {
            return Err(Failure::invalid("ambiguous approval id prefix; use the full id")
                .with(json!({ "reason": "APPROVAL_ID_AMBIGUOUS" })));
        }
        _ => return Err(unknown()),
    };
    let shown = presentation(approval);
    let mut answer = json!({
        "id": approval.id.as_str(),
        "commandText": shown["commandText"],
        "commandPreview": shown["commandPreview"],
        "allowedDecisions": shown["allowedDecisions"],
        "host": shown["host"],
        "nodeId": shown["nodeId"],
        "agentId": shown["agentId"],
        "expiresAtMs": approval.expires_at.as_ms(),
    });
    if shown["warningText"].is_string() {
        answer["warningText"] = shown["warningText"].clone();
    }
    Ok(answer)
}

/// What is pending of a family, oldest first. If it is too much, the newest: the protocol has no pages for it.
pub(super) async fn list(call: &Call<'_>, of: &str) -> Result<Value, Failure> {
    read::<Value>(&call.request.method, call.params().as_deref(), &[], Words::Full)?;
    let status = Some(Status::Pending);
    let filter = Filter { status, kinds: kinds_of(of), limit: LIST, ..Filter::default() };
    call.replies.reads();
    let page = call.rpc.service.list(filter, &call.principal).await;
    let (newest, _) = page.map_err(|e| failure(&e, "list"))?;
    let sound = newest.iter().rev().filter_map(|found| match found {
        Found::Sound(approval) => Some(entry(approval)),
        Found::Corrupt(_) => None,
    });
    Ok(sound.collect())
}

fn entry(approval: &Approval) -> Value {
    json!({
        "id": approval.id.as_str(),
        "request": request(approval),
        "createdAtMs": approval.created_at.as_ms(),
        "expiresAtMs": approval.expires_at.as_ms(),
        "approvalKind": family(approval.kind),
    })
}

/// Waits for an end, for as long as the record is kept.
pub(super) async fn wait(call: &Call<'_>, of: &str) -> Result<Value, Failure> {
    let Named { id } = read(&call.request.method, call.params().as_deref(), NAMED, Words::Full)?;
    let gone =
        || Failure::invalid("approval expired or not found").with(json!({ "reason": "APPROVAL_NOT_FOUND" }));
    let found = call.rpc.service.find(&id, &call.principal).await.map_err(|e| match failure(&e, "wait") {
        failure if failure.code == "INVALID_REQUEST" => gone(),
        failure => failure,
    })?;
    let Found::Sound(approval) = found else {
        return Ok(json!({ "id": id, "decision": null, "createdAtMs": 0, "expiresAtMs": 0,
            "terminalReason": "storage-corrupt" }));
    };
    if approval.id.as_str() != id || family(approval.kind) != of {
        return Err(gone());
    }
    let ended = until_ended(call, &approval.id).await?;
    let mut answer = decision_of(&ended);
    answer["terminalReason"] = ended.end().map(|end| reason(end.reason)).into();
    Ok(answer)
}

/// The record once it has ended.
pub(super) async fn until_ended(call: &Call<'_>, id: &ApprovalId) -> Result<Approval, Failure> {
    call.replies.waits()?;
    loop {
        let longest = Duration::from_millis(WAIT_MS.unsigned_abs());
        let found = call.rpc.service.wait(id, longest, &call.principal).await;
        match found.map_err(|e| failure(&e, "wait"))? {
            Found::Sound(approval) if approval.status() != Status::Pending => return Ok(*approval),
            Found::Sound(_) => {}
            Found::Corrupt(_) => return Err(unknown()),
        }
    }
}

/// What who asked is told: an allow, a person's deny, or nothing, which is a deny.
pub(super) fn decision_of(approval: &Approval) -> Value {
    use holdgate_core::approval::TerminalReason;
    let is_answer = approval
        .end()
        .is_some_and(|end| matches!(end.reason, TerminalReason::User | TerminalReason::MalformedVerdict));
    let decision = approval.decision().filter(|_| is_answer).map(Decision::as_str);
    json!({
        "id": approval.id.as_str(),
        "decision": decision,
        "createdAtMs": approval.created_at.as_ms(),
        "expiresAtMs": approval.expires_at.as_ms(),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resolve {
    id: String,
    decision: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reviewer: Option<Value>,
    #[serde(default)]
    grant_expires_in_days: Option<i64>,
}

/// Answers a record of a family, by its full id.
pub(super) async fn resolve(call: &Call<'_>, of: &str) -> Result<Value, Failure> {
    const REVIEWER: &[Field] = &[
        Field::required("channel", Kind::Text(1, usize::MAX)),
        Field::required("accountId", Kind::Text(1, usize::MAX)),
        Field::required("senderId", Kind::Text(1, usize::MAX)),
    ];
    const FIELDS: &[Field] = &[
        Field::required("id", Kind::Text(1, usize::MAX)),
        Field::required("decision", Kind::Text(1, usize::MAX)),
        Field::optional("reason", Kind::Text(0, holdgate_core::limits::REASON_CHARS)),
        Field::optional("reviewer", Kind::Object(REVIEWER)),
        Field::optional("grantExpiresInDays", Kind::Integer(1, 3_650)),
    ];
    let Resolve { id, decision, reason, reviewer, grant_expires_in_days } =
        read(&call.request.method, call.params().as_deref(), FIELDS, Words::Full)?;
    let decision = Decision::from_name(&decision).ok_or_else(|| Failure::invalid("invalid decision"))?;
    if reviewer.is_some() {
        return Err(unknown());
    }
    let found = call.rpc.service.decidable(&id, &call.principal).await;
    let approval = match found.map_err(|e| unknown_or(failure(&e, "resolve")))? {
        Found::Sound(approval) if approval.id.as_str() == id && family(approval.kind) == of => approval,
        Found::Sound(_) | Found::Corrupt(_) => return Err(unknown()),
    };
    if grant_expires_in_days.is_some() {
        return Err(canonical::no_grants());
    }
    if approval.status() == Status::Pending && !offered(&approval).contains(&decision) {
        return Err(not_offered(&approval, decision, of));
    }
    let (now, _) = canonical::vote(call, &approval, decision, reason).await?;
    match now.status() {
        Status::Expired | Status::Cancelled => Err(unknown()),
        _ if now.decision() == Some(decision) => Ok(json!({ "ok": true })),
        _ => Err(Failure::invalid("approval already resolved")
            .with(json!({ "reason": "APPROVAL_ALREADY_RESOLVED" }))),
    }
}

fn not_offered(approval: &Approval, decision: Decision, of: &str) -> Failure {
    let named = decision.as_str();
    if of == "exec" {
        let reason = format!("APPROVAL_{}_UNAVAILABLE", named.replace('-', "_").to_uppercase());
        return Failure::invalid(format!("{named} is unavailable for this command"))
            .with(json!({ "reason": reason }));
    }
    let allowed: Vec<&str> = offered(approval).into_iter().map(Decision::as_str).collect();
    Failure::invalid(format!("{named} is unavailable for this plugin approval"))
        .with(json!({ "allowedDecisions": allowed }))
}

/// These methods have their own words for what is not there.
fn unknown_or(failure: Failure) -> Failure {
    let is_not_found =
        failure.details.as_ref().is_some_and(|details| details["reason"] == "APPROVAL_NOT_FOUND");
    if is_not_found { unknown() } else { failure }
}
