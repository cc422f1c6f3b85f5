//! The API described for programs.

use axum::http::StatusCode;
use axum::response::Response;
use utoipa::OpenApi;

use super::problem::json;
use super::{approvals, runs, system};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdgate",
        description = "Durable approvals for AI agents. Send Authorization: Bearer TOKEN."
    ),
    paths(
        approvals::create,
        approvals::list,
        approvals::read,
        approvals::wait,
        approvals::decide,
        approvals::claim,
        approvals::settle,
        approvals::cancel,
        runs::start_runtime,
        runs::renew_runtime,
        runs::create,
        runs::read,
        runs::lease,
        runs::append,
        runs::journal,
        system::health,
        system::metrics,
    )
)]
struct Document;

pub(super) async fn document() -> Response {
    json(StatusCode::OK, &Document::openapi())
}
