//! Who calls, settled before anything else of a request is read: a stranger learns nothing from its own mistakes.

use axum::extract::{FromRequestParts, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use holdgate_authority::Local;
use holdgate_core::Principal;
use holdgate_wire::{Code, Problem};
use hyper::body::Body as _;

use super::App;
use super::problem::HttpError;
use crate::auth;
use crate::shares::{Exhausted, Guest, Taken};

/// From how many bytes on an answer counts. Smaller ones are bounded by their number.
const LARGE: usize = 64 << 10;

/// Who reads: by token or by the page's cookie.
pub(super) struct Reader(pub(super) Local);

/// Who changes something: by token, or by the page's cookie together with the page's own header.
pub(super) struct Writer(pub(super) Local);

impl FromRequestParts<App> for Reader {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let (caller, _) = auth::authenticate(app, &parts.headers).await?;
        enter(app, &parts.extensions, caller.principal())?;
        Ok(Self(caller))
    }
}

impl FromRequestParts<App> for Writer {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let (caller, means) = auth::authenticate(app, &parts.headers).await?;
        auth::check_csrf(app, &parts.headers, means)?;
        enter(app, &parts.extensions, caller.principal())?;
        Ok(Self(caller))
    }
}

/// Somebody who needs no credential for what follows. Taken out of a request before its body is read.
pub(super) struct Stranger;

impl FromRequestParts<App> for Stranger {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let guest = stranger(app)?;
        if let Some(taken) = parts.extensions.get::<Taken>() {
            taken.by(guest);
        }
        Ok(Self)
    }
}

/// Counts somebody among those who have shown no credential.
pub(super) fn stranger(app: &App) -> Result<Guest, Problem> {
    app.rpc.shares.stranger().map_err(|Exhausted| {
        Problem::new(Code::Unavailable, "too many are here who have not shown who they are; try again")
    })
}

/// Counts the request among those of its identity until it is answered.
pub(super) fn enter(app: &App, extensions: &Extensions, caller: &Principal) -> Result<(), Problem> {
    let guest = app.rpc.shares.enter(&caller.id).map_err(|Exhausted| {
        Problem::new(
            Code::RateLimited,
            "this credential has too many requests and connections open; try again",
        )
    })?;
    if let Some(taken) = extensions.get::<Taken>() {
        taken.by(guest);
    }
    Ok(())
}

/// Refuses a large answer to whoever has not read the ones before it.
pub(super) async fn bound(request: Request, next: Next) -> Response {
    let taken = request.extensions().get::<Taken>().cloned().unwrap_or_default();
    let response = next.run(request).await;
    let bytes = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    if bytes > LARGE && taken.room_for(bytes).is_err() {
        let detail =
            "this credential has not read what it was answered on other connections; read it, and try again";
        return HttpError::from(Problem::new(Code::RateLimited, detail)).into_response();
    }
    response
}
