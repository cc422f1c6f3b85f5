//! The calls on epochs of live processes and on stored runs.

use axum::http::StatusCode;
use axum::response::Response;
use holdgate_authority::Authority;
use holdgate_wire::run::Aborted;
use holdgate_wire::{
    AppendEvents, Appended, CreateRun, JournalPage, LeaseRun, Problem, PutSession, Run, Runtime,
};
use serde::Deserialize;

use super::body::Body;
use super::caller::{Reader, Writer};
use super::problem::{HttpError, Id, Params, json};

/// Begins an epoch of the calling process.
#[utoipa::path(post, path = "/v1/runtimes",
    responses((status = 201, body = Runtime), (status = "default", body = Problem)))]
pub(super) async fn start_runtime(Writer(caller): Writer) -> Result<Response, HttpError> {
    Ok(json(StatusCode::CREATED, &caller.start_runtime().await?))
}

/// Keeps an epoch alive.
#[utoipa::path(post, path = "/v1/runtimes/{epoch}/renew", params(("epoch" = String, Path)),
    responses((status = 200, body = Runtime), (status = "default", body = Problem)))]
pub(super) async fn renew_runtime(Writer(caller): Writer, Id(epoch): Id) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.renew_runtime(&epoch).await?))
}

/// Ends an epoch: what still waits on it is called off.
#[utoipa::path(post, path = "/v1/runtimes/{epoch}/end", params(("epoch" = String, Path)),
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(super) async fn end_runtime(Writer(caller): Writer, Id(epoch): Id) -> Result<Response, HttpError> {
    caller.end_runtime(&epoch).await?;
    Ok(json(StatusCode::OK, &serde_json::Map::new()))
}

/// Ends a run from outside, and calls off what it asked for: a stored run, or one that requests name as their source.
#[utoipa::path(post, path = "/v1/runs/{id}/abort", params(("id" = String, Path)),
    responses((status = 200, body = Aborted), (status = "default", body = Problem)))]
pub(super) async fn abort(Writer(caller): Writer, Id(id): Id) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &Aborted { cancelled: caller.abort_run(&id).await? }))
}

/// Says who owns a session: its owners see in their own stream what it asks for.
#[utoipa::path(post, path = "/v1/sessions/{key}", params(("key" = String, Path)), request_body = PutSession,
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(super) async fn put_session(
    Writer(caller): Writer,
    Id(key): Id,
    Body(session): Body<PutSession>,
) -> Result<Response, HttpError> {
    caller.put_session(&key, session).await?;
    Ok(json(StatusCode::OK, &serde_json::Map::new()))
}

/// Creates a run.
#[utoipa::path(post, path = "/v1/runs", request_body = CreateRun,
    responses((status = 201, body = Run), (status = "default", body = Problem)))]
pub(super) async fn create(
    Writer(caller): Writer,
    Body(run): Body<CreateRun>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::CREATED, &caller.create_run(run).await?))
}

/// Reads a run.
#[utoipa::path(get, path = "/v1/runs/{id}", params(("id" = String, Path)),
    responses((status = 200, body = Run), (status = "default", body = Problem)))]
pub(super) async fn read(Reader(caller): Reader, Id(id): Id) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.run(&id).await?))
}

/// Takes, keeps or releases a run.
#[utoipa::path(post, path = "/v1/runs/{id}/lease", params(("id" = String, Path)), request_body = LeaseRun,
    responses((status = 200, body = Run), (status = "default", body = Problem)))]
pub(super) async fn lease(
    Writer(caller): Writer,
    Id(id): Id,
    Body(lease): Body<LeaseRun>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.lease_run(&id, lease).await?))
}

/// Adds to a run's journal and opens what it now waits for, in one transaction.
#[utoipa::path(post, path = "/v1/runs/{id}/events", params(("id" = String, Path)), request_body = AppendEvents,
    responses((status = 200, body = Appended), (status = "default", body = Problem)))]
pub(super) async fn append(
    Writer(caller): Writer,
    Id(id): Id,
    Body(append): Body<AppendEvents>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.append(&id, append).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    #[serde(default)]
    after: u64,
}

/// Reads a run's journal.
#[utoipa::path(get, path = "/v1/runs/{id}/events", params(("id" = String, Path),
    ("after" = Option<u64>, Query, description = "Only events after this one")),
    responses((status = 200, body = JournalPage), (status = "default", body = Problem)))]
pub(super) async fn journal(
    Reader(caller): Reader,
    Id(id): Id,
    Params(After { after }): Params<After>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.journal(&id, after).await?))
}
