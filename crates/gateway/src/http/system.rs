//! Health, metrics, and the span of each request. Which buckets a histogram has is decided here.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdgate_authority::Error;
use holdgate_core::Kind;
use holdgate_wire::Problem;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use serde_json::json as object;
use tracing::field::Empty;

use super::App;
use super::caller::Reader;
use super::problem::{HttpError, json};

/// Prometheus' text form.
const TEXT_FORM: &str = "text/plain; version=0.0.4";
/// `version-trace-span-flags` in hexadecimal.
const TRACEPARENT_BYTES: usize = 55;

/// Whether the process serves. Says nothing about anybody's approvals.
#[utoipa::path(get, path = "/healthz", security(()), responses((status = 200, body = Object)))]
pub(super) async fn health() -> Response {
    json(StatusCode::OK, &object!({ "ok": true, "status": "live" }))
}

/// Upper bounds of what the gateway does by itself, in seconds.
const WORK_SECONDS: [f64; 14] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Upper bounds of how long it takes until a request has ended. People take their time, up to 30 days.
const REVIEW_SECONDS: [f64; 14] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1_800.0, 3_600.0, 86_400.0, 604_800.0];
/// Upper bounds of how many sessions see a request.
const AUDIENCE_SESSIONS: [f64; 8] = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// What records metrics: every histogram that this program has, with its buckets. Without them they would be
/// summaries, which nobody can add up.
///
/// # Errors
/// Never: no list of buckets is empty.
pub fn metrics_recorder() -> Result<PrometheusBuilder, BuildError> {
    let review = Matcher::Full("holdgate_request_to_terminal_seconds".to_owned());
    let audience = Matcher::Full("holdgate_audience_sessions".to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &WORK_SECONDS)?
        .set_buckets_for_metric(review, &REVIEW_SECONDS)?
        .set_buckets_for_metric(audience, &AUDIENCE_SESSIONS)
}

/// Counters and latencies in Prometheus' text form.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain"), (status = "default", body = Problem)))]
pub(super) async fn metrics(State(app): State<App>, _: Reader) -> Result<Response, HttpError> {
    let Some(metrics) = &app.gateway.metrics else {
        return Ok(([(CONTENT_TYPE, TEXT_FORM)], String::new()).into_response());
    };
    // As they are stored now: a gauge that is kept by adding and taking away would drift.
    let counts = app.gateway.service.store().pending_counts().await.map_err(Error::from)?;
    for kind in Kind::ALL {
        let pending = counts.iter().find(|(counted, _)| *counted == kind).map_or(0, |(_, pending)| *pending);
        #[expect(clippy::cast_precision_loss, reason = "no store holds 2^52 requests")]
        metrics::gauge!("holdgate_pending", "kind" => kind.as_str()).set(pending as f64);
    }
    Ok(([(CONTENT_TYPE, TEXT_FORM)], metrics.render()).into_response())
}

/// Counts every request and how long it took, by route and status; never by id. Its span says the same.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = known(request.method());
    // Nothing is recorded where nobody exports it.
    let span = tracing::trace_span!(
        target: "holdgate::span", "http", method, route, traceparent = traceparent(request.headers()), status = Empty
    );
    let started = started();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    span.record("status", status);
    drop(span);
    metrics::histogram!("holdgate_http_request_seconds", "route" => route.clone(), "method" => method)
        .record(started.elapsed().as_secs_f64());
    metrics::counter!("holdgate_http_requests_total", "route" => route, "method" => method, "status" => status.to_string())
        .increment(1);
    response
}

/// Which trace the caller says this belongs to, if it says so once and in a known length. Whoever exports reads it.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all("traceparent").into_iter();
    let first = given.next()?.to_str().ok().filter(|text| text.len() == TRACEPARENT_BYTES);
    first.filter(|_| given.next().is_none())
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
