//! The calls on epochs of live processes and on stored runs.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use holdgate_authority::Authority;
use holdgate_wire::{
    AppendEvents, Appended, CreateRun, JournalPage, LeaseRun, Problem, Run, Runtime,
};
use serde::Deserialize;

use super::App;
use super::approvals::{reader, writer};
use super::problem::{Body, HttpError, Id, Params, json};

/// Begins an epoch of the calling process.
#[utoipa::path(post, path = "/v1/runtimes",
    responses((status = 201, body = Runtime), (status = "default", body = Problem)))]
pub(super) async fn start_runtime(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::CREATED,
        &writer(&app, &headers).await?.start_runtime().await?,
    ))
}

/// Keeps an epoch alive.
#[utoipa::path(post, path = "/v1/runtimes/{epoch}/renew", params(("epoch" = String, Path)),
    responses((status = 200, body = Runtime), (status = "default", body = Problem)))]
pub(super) async fn renew_runtime(
    State(app): State<App>,
    headers: HeaderMap,
    Id(epoch): Id,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::OK,
        &writer(&app, &headers).await?.renew_runtime(&epoch).await?,
    ))
}

/// Creates a run.
#[utoipa::path(post, path = "/v1/runs", request_body = CreateRun,
    responses((status = 201, body = Run), (status = "default", body = Problem)))]
pub(super) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    Body(run): Body<CreateRun>,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::CREATED,
        &writer(&app, &headers).await?.create_run(run).await?,
    ))
}

/// Reads a run.
#[utoipa::path(get, path = "/v1/runs/{id}", params(("id" = String, Path)),
    responses((status = 200, body = Run), (status = "default", body = Problem)))]
pub(super) async fn read(
    State(app): State<App>,
    headers: HeaderMap,
    Id(id): Id,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::OK,
        &reader(&app, &headers).await?.run(&id).await?,
    ))
}

/// Takes, keeps or releases a run.
#[utoipa::path(post, path = "/v1/runs/{id}/lease", params(("id" = String, Path)), request_body = LeaseRun,
    responses((status = 200, body = Run), (status = "default", body = Problem)))]
pub(super) async fn lease(
    State(app): State<App>,
    headers: HeaderMap,
    Id(id): Id,
    Body(lease): Body<LeaseRun>,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::OK,
        &writer(&app, &headers).await?.lease_run(&id, lease).await?,
    ))
}

/// Adds to a run's journal and opens what it now waits for, in one transaction.
#[utoipa::path(post, path = "/v1/runs/{id}/events", params(("id" = String, Path)), request_body = AppendEvents,
    responses((status = 200, body = Appended), (status = "default", body = Problem)))]
pub(super) async fn append(
    State(app): State<App>,
    headers: HeaderMap,
    Id(id): Id,
    Body(append): Body<AppendEvents>,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::OK,
        &writer(&app, &headers).await?.append(&id, append).await?,
    ))
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
    State(app): State<App>,
    headers: HeaderMap,
    Id(id): Id,
    Params(After { after }): Params<After>,
) -> Result<Response, HttpError> {
    Ok(json(
        StatusCode::OK,
        &reader(&app, &headers).await?.journal(&id, after).await?,
    ))
}
