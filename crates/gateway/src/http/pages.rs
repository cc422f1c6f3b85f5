//! The reviewer page over HTTP: who sees it, with which headers. What it looks like is `page`'s.

use axum::Form;
use axum::extract::{FromRequest, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use holdgate_authority::{Authority, Error, Local};
use holdgate_core::limits::HEAD_BYTES;
use holdgate_wire::{Code, Problem};
use serde::Deserialize;

use super::problem::{HttpError, Id, no_such_call, presentable};
use super::{App, body};
use crate::{auth, page};

/// What stands at the gateway's own address.
pub(super) async fn front() -> Response {
    html(StatusCode::OK, page::front_page())
}

/// The page of one approval. Reading it changes nothing, whatever the query says: links get prefetched.
pub(super) async fn approve(
    State(app): State<App>,
    headers: HeaderMap,
    Id(id): Id,
) -> Result<Response, HttpError> {
    let Some(reviewer) = auth::page_reviewer(&app, &headers).await? else {
        return Ok(html(StatusCode::OK, page::sign_in_page(&id, None)));
    };
    let service = &app.gateway.service;
    match Local::new(service.clone(), reviewer).get(&id).await {
        Ok(approval) => {
            let csrf = auth::session_secret(&app, &headers).map(auth::csrf_token).unwrap_or_default();
            let now_ms = service.store().now().as_ms();
            Ok(html(StatusCode::OK, page::approval_page(&approval, &csrf, now_ms)))
        }
        Err(error) if error.code() == Some(Code::NotFound) => {
            Ok(html(StatusCode::NOT_FOUND, page::not_found_page(&id)))
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
struct SignIn {
    token: Option<String>,
    next: Option<String>,
}

/// Signs a reviewer in and sends the browser back to the page it came from. A person sees the answer, so every answer
/// is a page.
pub(super) async fn sign_in(State(app): State<App>, request: Request) -> Response {
    let form = match form(request).await {
        Ok(form) => form,
        Err(problem) => return sign_in_again("", &problem),
    };
    // Only ever back to an approval of this gateway: anything else would be an open redirect.
    let next = form.next.as_deref().and_then(|next| next.strip_prefix("/approve/")).filter(|id| is_plain(id));
    let Some(id) = next else {
        let detail = "This form does not name an approval. Open the link that you were sent once more.";
        return sign_in_again("", &Problem::new(Code::InvalidRequest, detail));
    };
    let Some(token) = form.token else {
        return sign_in_again(id, &Problem::new(Code::InvalidRequest, "The form came without a token."));
    };
    match auth::sign_in(&app, &token).await.map(|cookie| see(id, &cookie)) {
        Ok(Some(response)) => response,
        Err(Error::Problem(problem)) => sign_in_again(id, &problem),
        Ok(None) | Err(Error::Unreachable { .. }) => {
            sign_in_again(id, &Problem::new(Code::Unavailable, "Signing in is not possible at the moment."))
        }
    }
}

async fn form(request: Request) -> Result<SignIn, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = body::read(body, HEAD_BYTES).await?;
    let form = Form::<SignIn>::from_request(Request::from_parts(parts, bytes.into()), &()).await;
    form.map(|Form(form)| form).map_err(|_| Problem::new(Code::InvalidRequest, "The form could not be read."))
}

fn see(id: &str, cookie: &str) -> Option<Response> {
    let mut response = html(StatusCode::SEE_OTHER, String::new());
    for (name, value) in [(LOCATION, format!("/approve/{id}").as_str()), (SET_COOKIE, cookie)] {
        response.headers_mut().insert(name, HeaderValue::from_str(value).ok()?);
    }
    Some(response)
}

fn sign_in_again(id: &str, problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    html(status, page::sign_in_page(id, Some(&presentable(&problem.detail))))
}

/// The page's script, style and mark.
pub(super) async fn asset(uri: Uri, Id(name): Id) -> Response {
    match page::asset(&name) {
        Some((content_type, body)) => {
            let mut response = with_page_headers(body.into_response());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            // A new program brings a new page: its script must never be an old one.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
        None => no_such_call(uri).await.into_response(),
    }
}

/// An id that stands in a path as it is. One of dots alone would name another path.
fn is_plain(id: &str) -> bool {
    let is_dots = id.to_ascii_lowercase().replace("%2e", ".").bytes().all(|b| b == b'.');
    !is_dots && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'%'))
}

fn html(status: StatusCode, body: String) -> Response {
    let mut response = with_page_headers((status, body).into_response());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

fn with_page_headers(mut response: Response) -> Response {
    for (name, value) in page::HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
