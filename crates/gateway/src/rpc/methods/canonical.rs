//! `approval.get`, `approval.resolve`, `approval.history`: one record of any kind, for reviewers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdgate_authority::{Error, Found};
use holdgate_core::approval::Status;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Approval, Command, Time, access};
use holdgate_store::{HistoryFilter, Kinds};
use holdgate_wire::Code;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Call, failure, not_found};
use crate::rpc::frame::Failure;
use crate::rpc::params::{Field, Kind, Words, read};
use crate::rpc::projection::{Shown, corrupt, family, kinds_of, offered, snapshot};

const KINDS: &[&str] = &["exec", "plugin", "system-agent"];
const DECISIONS: &[&str] = &["allow-once", "allow-always", "deny"];
const PAGE_DEFAULT: u32 = 50;

#[derive(Deserialize)]
struct Named {
    id: String,
}

/// Reads a record by its full id.
pub(super) async fn get(call: &Call<'_>) -> Result<Value, Failure> {
    const FIELDS: &[Field] = &[Field::required("id", Kind::Text(1, usize::MAX))];
    let Named { id } = read("approval.get", call.params().as_deref(), FIELDS, Words::Short)?;
    if matches!(id.as_str(), "." | "..") {
        return Err(Failure::invalid("invalid approval.get params"));
    }
    let found = call.rpc.service.find(&id, &call.principal).await.map_err(|e| failure(&e, "lookup"))?;
    if found.id().as_str() != id {
        return Err(not_found());
    }
    Ok(json!({ "approval": view(call, &found) }))
}

fn view(call: &Call<'_>, found: &Found) -> Value {
    match found {
        Found::Sound(approval) => shown(call, approval),
        Found::Corrupt(id) => corrupt(id.as_str(), call.rpc.service.links()),
    }
}

/// A record as this caller may see it.
fn shown(call: &Call<'_>, approval: &Approval) -> Value {
    let may_read = access(approval, &call.principal).may_read();
    let shown = if may_read { Shown::Whole } else { Shown::Standing };
    snapshot(approval, call.rpc.service.links(), shown)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resolve {
    id: String,
    kind: String,
    decision: Decision,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reviewer: Option<Value>,
    #[serde(default)]
    grant_expires_in_days: Option<i64>,
}

/// Answers a record by its id or reference.
pub(super) async fn resolve(call: &Call<'_>) -> Result<Value, Failure> {
    const FIELDS: &[Field] = &[
        Field::required("id", Kind::Text(1, usize::MAX)),
        Field::required("kind", Kind::Choice(KINDS)),
        Field::required("decision", Kind::Choice(DECISIONS)),
        Field::optional("reason", Kind::Text(0, holdgate_core::limits::REASON_CHARS)),
        // Looked at below: what is wrong with it is told like a record that is not there.
        Field::optional("reviewer", Kind::Any),
        Field::optional("grantExpiresInDays", Kind::Integer(1, 3_650)),
    ];
    let params = call.params();
    let read = read("approval.resolve", params.as_deref(), FIELDS, Words::Short);
    let Resolve { id, kind, decision, reason, reviewer, grant_expires_in_days } = match read {
        Ok(params) => params,
        Err(invalid) => return malformed(call, params.as_deref(), invalid).await,
    };
    // Nobody on a channel is known here who could be authorised.
    if reviewer.is_some() {
        return Err(not_found());
    }
    let found = call.rpc.service.decidable(&id, &call.principal).await.map_err(|e| failure(&e, "resolve"))?;
    let Found::Sound(approval) = found else {
        return Ok(json!({ "applied": false, "approval": view(call, &found) }));
    };
    if family(approval.kind) != kind {
        return malformed(call, params.as_deref(), Failure::invalid("invalid approval.resolve params")).await;
    }
    if grant_expires_in_days.is_some() {
        return Err(no_grants());
    }
    if approval.status() == Status::Pending && !offered(&approval).contains(&decision) {
        let allowed: Vec<&str> = offered(&approval).into_iter().map(Decision::as_str).collect();
        let refused = Failure::invalid("this approval does not offer that decision")
            .with(json!({ "reason": "APPROVAL_DECISION_NOT_ALLOWED", "allowedDecisions": allowed }));
        return malformed(call, params.as_deref(), refused).await;
    }
    let (now, applied) = vote(call, &approval, decision, reason).await?;
    Ok(json!({ "applied": applied, "approval": shown(call, &now) }))
}

/// The answer to a deadline for a standing grant.
pub(super) fn no_grants() -> Failure {
    Failure::invalid("this gateway keeps no standing grants, so none can expire")
        .with(json!({ "reason": "APPROVAL_GRANT_UNSUPPORTED" }))
}

/// Answers `approval`; answers how it stands then. The digest is that of the record which the id names: what was asked
/// under an id never changes.
pub(super) async fn vote(
    call: &Call<'_>,
    approval: &Approval,
    decision: Decision,
    reason: Option<String>,
) -> Result<(Approval, bool), Failure> {
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    let command = Command::Vote { decision, digest: approval.digest, reason };
    match call.rpc.service.apply(&approval.id, command, &call.principal).await {
        Ok((now, _)) if now.status() == Status::Pending => Err(needs_more(&now)),
        Ok((now, applied)) => Ok((now, applied)),
        Err(Error::Problem(problem))
            if matches!(problem.code, Code::AlreadyDecided | Code::Expired | Code::Cancelled) =>
        {
            let found = call.rpc.service.decidable(approval.id.as_str(), &call.principal).await;
            match found.map_err(|e| failure(&e, "resolve"))? {
                Found::Sound(winner) => Ok((*winner, false)),
                Found::Corrupt(_) => Err(failure(&Error::Problem(problem), "resolve")),
            }
        }
        Err(error) => Err(failure(&error, "resolve")),
    }
}

/// The answer counts, but it takes more people.
fn needs_more(approval: &Approval) -> Failure {
    let allowed = approval.votes.iter().filter(|vote| vote.decision.is_allow()).count();
    let required = &approval.requirement;
    Failure::invalid("your answer is recorded; this approval needs more people to answer").with(json!({
        "reason": "APPROVAL_NEEDS_MORE",
        "allowed": allowed,
        "approvals": required.approvals,
        "denied": approval.votes.len() - allowed,
        "denials": required.denials,
    }))
}

/// A verdict that cannot be understood. From a trusted runtime it denies; from anybody else it is a mistake, and the
/// request stays as it is.
async fn malformed(call: &Call<'_>, params: Option<&RawValue>, invalid: Failure) -> Result<Value, Failure> {
    if call.principal.kind != PrincipalKind::Runtime {
        return Err(invalid);
    }
    let params = params.map(RawValue::get).unwrap_or_default();
    let Ok(Named { id }) = serde_json::from_str(params) else {
        return Err(invalid);
    };
    let service = &call.rpc.service;
    let found = service.decidable(&id, &call.principal).await.map_err(|e| failure(&e, "resolve"))?;
    let Found::Sound(approval) = found else {
        return Err(not_found());
    };
    match service.apply(&approval.id, Command::DenyMalformed, &call.principal).await {
        Ok((now, applied)) => Ok(json!({ "applied": applied, "approval": shown(call, &now) })),
        Err(_) => match service.decidable(&id, &call.principal).await.map_err(|e| failure(&e, "resolve"))? {
            Found::Sound(winner) => Ok(json!({ "applied": false, "approval": shown(call, &winner) })),
            Found::Corrupt(_) => Err(not_found()),
        },
    }
}

#[derive(Deserialize)]
struct History {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    kind: Option<String>,
}

/// The cursor of a page, inside its encoding.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cursor {
    v: u8,
    resolved_at_ms: i64,
    id: String,
}

/// Lists what has ended, the last to end first.
pub(super) async fn history(call: &Call<'_>) -> Result<Value, Failure> {
    const FIELDS: &[Field] = &[
        Field::optional("cursor", Kind::Text(1, 512)),
        Field::optional("limit", Kind::Integer(1, 100)),
        Field::optional("kind", Kind::Choice(KINDS)),
    ];
    let params = call.params();
    let History { cursor, limit, kind } = read("approval.history", params.as_deref(), FIELDS, Words::Short)?;
    let before = cursor.as_deref().map(read_cursor).transpose()?;
    let kinds = match kind.as_deref() {
        None => Kinds::All,
        Some("system-agent") => return Ok(json!({ "items": [] })),
        Some(of) => kinds_of(of),
    };
    let filter = HistoryFilter { kinds, requester: None, before, limit: limit.unwrap_or(PAGE_DEFAULT) };
    call.replies.reads();
    let page = call.rpc.service.history(filter, &call.principal).await;
    let (found, next) = page.map_err(|e| failure(&e, "history"))?;
    let items: Vec<Value> = found.iter().map(|found| view(call, found)).collect();
    let mut answer = json!({ "items": items });
    if let Some((at, id)) = next {
        answer["nextCursor"] = write_cursor(at.as_ms(), id.as_str()).into();
    }
    Ok(answer)
}

fn write_cursor(resolved_at_ms: i64, id: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({ "v": 1, "resolvedAtMs": resolved_at_ms, "id": id }).to_string())
}

/// A cursor that is not exactly one of ours is refused: it would start a page nowhere.
fn read_cursor(cursor: &str) -> Result<(Time, holdgate_core::ApprovalId), Failure> {
    let read = || {
        let text = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let Cursor { v, resolved_at_ms, id } = serde_json::from_slice(&text).ok()?;
        let is_ours = v == 1 && write_cursor(resolved_at_ms, &id) == cursor;
        Some((Time::from_ms(resolved_at_ms), id.parse().ok()?)).filter(|_| is_ours)
    };
    read().ok_or_else(|| Failure::invalid("invalid approval.history cursor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_that_was_tampered_with_is_refused() {
        let cursor = write_cursor(17, "a");
        let (at, id) = read_cursor(&cursor).unwrap();
        assert_eq!((at.as_ms(), id.as_str()), (17, "a"));
        let padded = format!("{cursor}=");
        let spaced = URL_SAFE_NO_PAD.encode(r#"{"v":1, "resolvedAtMs":17,"id":"a"}"#);
        let other_version = URL_SAFE_NO_PAD.encode(r#"{"id":"a","resolvedAtMs":17,"v":2}"#);
        for bad in ["AAAA", "", padded.as_str(), spaced.as_str(), other_version.as_str()] {
            assert!(read_cursor(bad).is_err(), "{bad}");
        }
    }
}
