//! The reviewer page over HTTP: who sees it, with which headers. What it looks like is `page`'s.

use axum::Form;
use axum::extract::{Extension, FromRequest, OriginalUri, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use holdgate_authority::{Authority, Error, Local};
use holdgate_core::limits::HEAD_BYTES;
use holdgate_core::presentation::masked;
use holdgate_wire::{Code, Problem};
use serde::Deserialize;

use super::caller::Stranger;
use super::problem::{HttpError, Id, no_such_call, presentable};
use super::{App, body, caller};
use crate::reach::ClientAddress;
use crate::{auth, page};

/// Where approvals are shown; one segment follows.
const PAGE: &str = "/approve/";
/// Where browsers sign in.
const SIGN_IN: &str = "/sign-in";

/// What stands at the gateway's own address.
pub(super) async fn front(State(app): State<App>) -> Response {
    html(StatusCode::OK, page::front_page(app.reach.base_path()))
}

/// The page of one approval. Reading it changes nothing, whatever the query says: links get prefetched.
pub(super) async fn approve(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
    request: Request,
) -> Result<Response, HttpError> {
    let base = app.reach.base_path();
    // What is not an id at all is nobody's secret.
    let Some(id) = uri.path().strip_prefix(PAGE).and_then(segment) else {
        return Ok(html(StatusCode::NOT_FOUND, page::not_found_page(base, "")));
    };
    let Some(reviewer) = auth::page_reviewer(&app, &headers).await? else {
        return Ok(html(StatusCode::OK, page::sign_in_page(base, &id, None)));
    };
    caller::enter(&app, request.extensions(), &reviewer)?;
    let service = &app.gateway.service;
    match Local::new(service.clone(), reviewer).get(&id).await {
        Ok(approval) => {
            let csrf = auth::session_secret(&app, &headers).map(auth::csrf_token).unwrap_or_default();
            let now_ms = service.store().now().as_ms();
            Ok(html(StatusCode::OK, page::approval_page(base, &approval, &csrf, now_ms)))
        }
        Err(error) if error.code() == Some(Code::NotFound) => {
            Ok(html(StatusCode::NOT_FOUND, page::not_found_page(base, &id)))
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
struct SignIn {
    token: Option<String>,
    code: Option<String>,
    device: Option<String>,
    next: Option<String>,
}

/// Signs a reviewer in and sends the browser back to the page it came from. A person sees the answer, so every answer
/// is a page.
pub(super) async fn sign_in(
    _: Stranger,
    State(app): State<App>,
    Extension(client): Extension<ClientAddress>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let base = app.reach.base_path();
    let form = match form(request).await {
        Ok(form) => form,
        Err(problem) => return sign_in_again(base, &Next::Here, &problem),
    };
    // Only ever back to a page of this gateway's own: anything else would be an open redirect.
    let next = form.next.as_deref().and_then(|next| next.strip_prefix(base));
    let next = match next.map(|next| (next == SIGN_IN, next.strip_prefix(PAGE).and_then(segment))) {
        Some((true, _)) => Next::Here,
        Some((false, Some(id))) => Next::Approval(id),
        Some((false, None)) | None => {
            let detail = "This form does not name an approval. Open the link that you were sent once more.";
            return sign_in_again(base, &Next::Here, &Problem::new(Code::InvalidRequest, detail));
        }
    };
    let shown = match (form.token, form.code) {
        (Some(token), None) => auth::Shown::Token(token),
        (None, Some(code)) => auth::Shown::Code(code, form.device),
        (None, None) | (Some(_), Some(_)) => {
            let detail = "The form came without a token or a pairing code.";
            return sign_in_again(base, &next, &Problem::new(Code::InvalidRequest, detail));
        }
    };
    match auth::sign_in(&app, &headers, client.0, shown).await.map(|cookie| see(base, &next, &cookie)) {
        Ok(Some(response)) => response,
        Err(Error::Problem(problem)) => {
            tracing::info!(client = %client.0, code = ?problem.code, "a sign-in was refused");
            sign_in_again(base, &next, &problem)
        }
        Ok(None) | Err(Error::Unreachable { .. }) => {
            let problem = Problem::new(Code::Unavailable, "Signing in is not possible at the moment.");
            sign_in_again(base, &next, &problem)
        }
    }
}

/// Where a sign-in leads.
enum Next {
    /// To an approval.
    Approval(String),
    /// To the page that says who is signed in.
    Here,
}

impl Next {
    fn path(&self, base: &str) -> String {
        match self {
            Next::Approval(id) => page::path_of(base, id),
            Next::Here => format!("{base}{SIGN_IN}"),
        }
    }
}

/// Where a browser is paired that has no approval's link yet.
pub(super) async fn sign_in_form(State(app): State<App>, headers: HeaderMap) -> Result<Response, HttpError> {
    let base = app.reach.base_path();
    Ok(match auth::page_reviewer(&app, &headers).await? {
        None => html(StatusCode::OK, page::pair_page(base, None)),
        Some(reviewer) => html(StatusCode::OK, page::signed_in_page(base, &masked(&reviewer.label))),
    })
}

async fn form(request: Request) -> Result<SignIn, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = body::read(body, HEAD_BYTES).await?;
    let form = Form::<SignIn>::from_request(Request::from_parts(parts, bytes.into()), &()).await;
    form.map(|Form(form)| form).map_err(|_| Problem::new(Code::InvalidRequest, "The form could not be read."))
}

fn see(base: &str, next: &Next, cookie: &str) -> Option<Response> {
    let mut response = html(StatusCode::SEE_OTHER, String::new());
    for (name, value) in [(LOCATION, next.path(base).as_str()), (SET_COOKIE, cookie)] {
        response.headers_mut().insert(name, HeaderValue::from_str(value).ok()?);
    }
    Some(response)
}

fn sign_in_again(base: &str, next: &Next, problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let detail = presentable(&problem.detail);
    let page = match next {
        Next::Approval(id) => page::sign_in_page(base, id, Some(&detail)),
        Next::Here => page::pair_page(base, Some(&detail)),
    };
    let mut response = html(status, page);
    if let Some(ms) = problem.retry_after_ms {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ms.max(0) / 1_000 + 1));
    }
    response
}

/// The page's script, style and mark.
pub(super) async fn asset(app: State<App>, uri: OriginalUri, Id(name): Id) -> Response {
    match page::asset(&name) {
        Some((content_type, body)) => {
            let mut response = with_page_headers(body.into_response());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            // A new program brings a new page: its script must never be an old one.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
        None => no_such_call(app, uri).await.into_response(),
    }
}

/// The id that one segment of a path names. `None` when it is not one segment, does not decode, or is one that a path
/// cannot hold: browsers read dots alone as another path, escaped or not.
fn segment(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        let digit =
            |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(match byte {
            b'%' => digit(rest.next())? << 4 | digit(rest.next())?,
            byte => byte,
        });
    }
    let id = String::from_utf8(bytes).ok()?;
    let is_one = !id.contains('/') && !id.bytes().all(|byte| byte == b'.');
    is_one.then_some(id)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_way_through_a_path_whatever_it_holds() {
        for id in [
            "apr_1",
            "plugin:9b2f",
            "two words",
            "a.js",
            "50%",
            "%2F",
            "é\u{202E}",
            "a?b#c",
            "..x",
            "a\\b",
            "+",
        ] {
            let path = page::path_of("/gate", id);
            assert_eq!(path.strip_prefix("/gate/approve/").and_then(segment).as_deref(), Some(id), "{path}");
        }
    }

    #[test]
    fn what_is_not_one_segment_names_nothing() {
        for bad in [
            "", ".", "..", "%2e%2E", ".%2E", "a/b", "a%2Fb", "a%2fb", "%2f", "%ZZ", "%", "%4", "a%", "%FF",
            "%+1",
        ] {
            assert_eq!(segment(bad), None, "{bad}");
        }
    }
}
