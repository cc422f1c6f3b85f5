//! Errors as responses, and parameters that say where they are wrong.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, OriginalUri, Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use holdgate_authority::Error;
use holdgate_core::limits::DETAIL_CHARS;
use holdgate_core::presentation::masked;
use holdgate_wire::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::App;

/// A problem on its way out.
pub(super) struct HttpError(pub(super) Problem);

impl From<Problem> for HttpError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        match error {
            Error::Problem(problem) => Self(*problem),
            // A local authority has nobody to reach; if it ever says so, nothing may run.
            Error::Unreachable { .. } => {
                Self(Problem::new(Code::Unavailable, "the authority cannot be reached"))
            }
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let Self(mut problem) = self;
        problem.detail = presentable(&problem.detail);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let mut response = json(status, &problem);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if problem.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if problem.retry_after_ms.is_some() || matches!(problem.code, Code::RateLimited | Code::Unavailable) {
            let seconds = problem.retry_after_ms.map_or(1, |ms| ms.max(0) / 1_000 + 1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The detail as it may be shown: it quotes what a caller sent, which may be long and may deceive.
pub(super) fn presentable(detail: &str) -> String {
    let shown = masked(detail.get(..detail.floor_char_boundary(DETAIL_CHARS * 4)).unwrap_or_default());
    if shown.chars().count() <= DETAIL_CHARS {
        return shown;
    }
    shown.chars().take(DETAIL_CHARS - 1).chain(['…']).collect()
}

/// A JSON response that no cache keeps.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => {
            let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
            (status, headers, body).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "a response could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Query parameters. Unknown ones are refused where the type says so.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        let parsed = query.map(|Query(params)| Params(params));
        parsed.map_err(|e| Problem::new(Code::InvalidRequest, format!("the query: {}", e.body_text())).into())
    }
}

/// The one parameter of a path. What does not decode names nothing.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let path: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        let id = path.map(|Path(id)| Id(id));
        id.map_err(|_| Problem::refused(&holdgate_core::Refusal::NotFound, None).into())
    }
}

pub(super) async fn no_such_call(State(app): State<App>, OriginalUri(uri): OriginalUri) -> HttpError {
    let base = app.reach.base_path();
    let detail = format!("there is nothing at {}; the calls are listed at {base}/openapi.json", uri.path());
    Problem::new(Code::NotFound, detail).into()
}

pub(super) async fn wrong_method(method: Method, OriginalUri(uri): OriginalUri) -> HttpError {
    Problem::new(Code::MethodNotAllowed, format!("{} does not take {method}", uri.path())).into()
}
