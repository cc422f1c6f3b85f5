//! Health and metrics.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json as object;

use super::App;
use super::caller::Reader;
use super::problem::json;

/// Whether the process serves. Says nothing about anybody's approvals.
#[utoipa::path(get, path = "/healthz", security(()), responses((status = 200, body = Object)))]
pub(super) async fn health() -> Response {
    json(StatusCode::OK, &object!({ "ok": true, "status": "live" }))
}

/// Counters and latencies in Prometheus' text form.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(app): State<App>, _: Reader) -> Response {
    let text = app.gateway.metrics.as_ref().map(|metrics| metrics.render()).unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Counts every request and how long it took, by route and status; never by id.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = known(request.method());
    let started = started();
    let response = next.run(request).await;
    let status = response.status().as_u16().to_string();
    metrics::histogram!("holdgate_http_request_seconds", "route" => route.clone(), "method" => method)
        .record(started.elapsed().as_secs_f64());
    metrics::counter!("holdgate_http_requests_total", "route" => route, "method" => method, "status" => status)
        .increment(1);
    response
}

/// The method's name. A caller may make up any number of others, each of which would be a series of its own.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        _ => "other",
    }
}

#[expect(clippy::disallowed_methods, reason = "a latency is no point in time; nothing is decided by it")]
fn started() -> Instant {
    Instant::now()
}
