//! The reviewer page over HTTP: who sees it, with which headers. What it looks like is `page`'s.

use axum::Form;
use axum::extract::State;
use axum::extract::rejection::FormRejection;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdgate_authority::{Authority, Error, Local};
use holdgate_wire::Code;
use serde::Deserialize;

use super::App;
use super::problem::{HttpError, Id};
use crate::{auth, page};

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
pub(super) struct SignIn {
    token: String,
    next: String,
}

/// Signs a reviewer in and sends the browser back to the page it came from.
pub(super) async fn sign_in(
    State(app): State<App>,
    form: Result<Form<SignIn>, FormRejection>,
) -> Result<Response, HttpError> {
    let Ok(Form(SignIn { token, next })) = form else {
        return Err(Error::new(Code::InvalidRequest, "the form has the fields token and next").into());
    };
    // Only ever back to an approval of this gateway: anything else would be an open redirect.
    let Some(id) = next.strip_prefix("/approve/").filter(|id| is_plain(id)) else {
        return Err(Error::new(Code::InvalidRequest, "next: it is not the path of an approval").into());
    };
    match auth::sign_in(&app, &token).await {
        Ok(cookie) => {
            let mut response = html(StatusCode::SEE_OTHER, String::new());
            let set = [(LOCATION, format!("/approve/{id}")), (SET_COOKIE, cookie)];
            for (name, value) in set {
                let value = HeaderValue::from_str(&value);
                let value =
                    value.map_err(|_| Error::new(Code::Unavailable, "the cookie could not be written"))?;
                response.headers_mut().insert(name, value);
            }
            Ok(response)
        }
        Err(Error::Problem(problem))
            if matches!(problem.code, Code::Unauthenticated | Code::NotAReviewer) =>
        {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNAUTHORIZED);
            Ok(html(status, page::sign_in_page(id, Some(&problem.detail))))
        }
        Err(error) => Err(error.into()),
    }
}

/// The page's script, style and mark.
pub(super) async fn asset(Id(name): Id) -> Response {
    match page::asset(&name) {
        Some((content_type, body)) => {
            let mut response = with_page_headers(body.into_response());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            // A new program brings a new page: its script must never be an old one.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// An id that stands in a path as it is.
fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'%'))
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
