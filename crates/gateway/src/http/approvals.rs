//! The calls on approvals.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use holdgate_authority::Authority;
use holdgate_core::limits::WAIT_MS;
use holdgate_wire::{
    Approval, ApprovalPage, Cancel, Claim, Code, CreateApproval, Decide, Decided, ListApprovals, ListHistory,
    MakeClaim, Problem, Revoke, Settle,
};
use serde::Deserialize;

use super::body::Body;
use super::caller::{Reader, Writer};
use super::problem::{HttpError, Id, Params, json};
use super::{App, stream};
use crate::auth;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Asks for permission.
#[utoipa::path(post, path = "/v1/approvals", request_body = CreateApproval, params(
    ("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat")), responses(
    (status = 201, body = Approval), (status = 200, description = "The same had been asked before", body = Approval),
    (status = "default", body = Problem)))]
pub(super) async fn create(
    Writer(caller): Writer,
    headers: HeaderMap,
    Body(request): Body<CreateApproval>,
) -> Result<Response, HttpError> {
    let key = idempotency_key(&headers)?;
    let created = caller.create(request, key).await?;
    Ok(json(if created.is_new { StatusCode::CREATED } else { StatusCode::OK }, &created.approval))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).into_iter();
    let Some(key) = keys.next() else {
        return Ok(None);
    };
    if keys.next().is_some() {
        return Err(Problem::new(Code::InvalidRequest, "Idempotency-Key: it is given twice"));
    }
    let key = key.to_str();
    key.map(Some).map_err(|_| Problem::new(Code::InvalidRequest, "Idempotency-Key: it is not ASCII"))
}

/// Lists approvals, newest first.
#[utoipa::path(get, path = "/v1/approvals", params(ListApprovals),
    responses((status = 200, body = ApprovalPage), (status = "default", body = Problem)))]
pub(super) async fn list(
    Reader(caller): Reader,
    Params(query): Params<ListApprovals>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.list(query).await?))
}

/// Reads an approval.
#[utoipa::path(get, path = "/v1/approvals/{id}", params(("id" = String, Path)),
    responses((status = 200, body = Approval), (status = "default", body = Problem)))]
pub(super) async fn read(Reader(caller): Reader, Id(id): Id) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.get(&id).await?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wait {
    timeout_ms: Option<i64>,
}

/// Waits for an approval's end. Whoever accepts `text/event-stream` gets an event `approval` now, after each change and
/// at its end, which ends the stream; if it may read no more, an event `problem`.
#[utoipa::path(get, path = "/v1/approvals/{id}/wait", params(("id" = String, Path),
    ("timeoutMs" = Option<i64>, Query, description = "At most 60000, which is also the default")), responses(
    (status = 200, description = "It has ended", body = Approval),
    (status = 202, description = "The time is up and it has not", body = Approval),
    (status = "default", body = Problem)))]
pub(super) async fn wait(
    State(app): State<App>,
    Reader(caller): Reader,
    headers: HeaderMap,
    Id(id): Id,
    Params(wait): Params<Wait>,
) -> Result<Response, HttpError> {
    let timeout_ms = wait.timeout_ms.unwrap_or(WAIT_MS);
    if !(0..=WAIT_MS).contains(&timeout_ms) {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("timeoutMs: it is not between 0 and {WAIT_MS}"),
        )
        .into());
    }
    if stream::is_wanted(&headers) {
        return stream::open(app, headers, caller, &id).await;
    }
    let approval = tokio::select! {
        approval = caller.wait(&id, Duration::from_millis(timeout_ms.unsigned_abs())) => approval?,
        // A gateway that stops tells waiters how things stand; they ask again and find its successor.
        () = crate::stopped(app.stopping.clone()) => caller.get(&id).await?,
    };
    // A credential that was replaced meanwhile is told nothing any more.
    auth::authenticate(&app, &headers).await?;
    Ok(json(if approval.is_terminal() { StatusCode::OK } else { StatusCode::ACCEPTED }, &approval))
}

/// Answers an approval.
#[utoipa::path(post, path = "/v1/approvals/{id}/decision", params(("id" = String, Path)), request_body = Decide,
    responses((status = 200, body = Decided), (status = "default", body = Problem)))]
pub(super) async fn decide(
    Writer(caller): Writer,
    Id(id): Id,
    Body(decision): Body<Decide>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.decide(&id, decision).await?))
}

/// Spends an allow. The same claim again is answered the same.
#[utoipa::path(post, path = "/v1/approvals/{id}/claim", params(("id" = String, Path)), request_body = MakeClaim,
    responses((status = 200, body = inline(ClaimAnswer)), (status = "default", body = Problem)))]
pub(super) async fn claim(
    Writer(caller): Writer,
    Id(id): Id,
    Body(claim): Body<MakeClaim>,
) -> Result<Response, HttpError> {
    let claim = caller.claim(&id, claim).await;
    // The same claim again is granted again: this counts answers, not allows that were spent.
    let result = if claim.is_ok() { "granted" } else { "refused" };
    metrics::counter!("holdgate_claim_requests_total", "result" => result).increment(1);
    Ok(json(StatusCode::OK, &ClaimAnswer { claim: claim? }))
}

#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct ClaimAnswer {
    claim: Claim,
}

/// Says what came of a claim.
#[utoipa::path(post, path = "/v1/approvals/{id}/receipt", params(("id" = String, Path)), request_body = Settle,
    responses((status = 200, body = Approval), (status = "default", body = Problem)))]
pub(super) async fn settle(
    Writer(caller): Writer,
    Id(id): Id,
    Body(settle): Body<Settle>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.settle(&id, settle).await?))
}

/// Takes an allow back before it is claimed. The answer stays what it was.
#[utoipa::path(post, path = "/v1/approvals/{id}/revoke", params(("id" = String, Path)), request_body = Revoke,
    responses((status = 200, body = Approval), (status = "default", body = Problem)))]
pub(super) async fn revoke(
    Writer(caller): Writer,
    Id(id): Id,
    Body(revoke): Body<Revoke>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.revoke(&id, revoke).await?))
}

/// Lists approvals that have ended, the last one to end first.
#[utoipa::path(get, path = "/v1/history", params(ListHistory),
    responses((status = 200, body = ApprovalPage), (status = "default", body = Problem)))]
pub(super) async fn history(
    Reader(caller): Reader,
    Params(query): Params<ListHistory>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.history(query).await?))
}

/// Calls a request off.
#[utoipa::path(post, path = "/v1/approvals/{id}/cancel", params(("id" = String, Path)), request_body = Cancel,
    responses((status = 200, body = Approval), (status = "default", body = Problem)))]
pub(super) async fn cancel(
    Writer(caller): Writer,
    Id(id): Id,
    Body(cancel): Body<Cancel>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.cancel(&id, cancel).await?))
}
