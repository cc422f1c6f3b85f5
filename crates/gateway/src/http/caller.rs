//! Who calls, settled before anything else of a request is read: a stranger learns nothing from its own mistakes.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use holdgate_authority::Local;

use super::App;
use super::problem::HttpError;
use crate::auth;

/// Who reads: by token or by the page's cookie.
pub(super) struct Reader(pub(super) Local);

/// Who changes something: by token, or by the page's cookie together with the page's own header.
pub(super) struct Writer(pub(super) Local);

impl FromRequestParts<App> for Reader {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let (caller, _) = auth::authenticate(app, &parts.headers).await?;
        Ok(Self(caller))
    }
}

impl FromRequestParts<App> for Writer {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let (caller, means) = auth::authenticate(app, &parts.headers).await?;
        auth::check_csrf(app, &parts.headers, means)?;
        Ok(Self(caller))
    }
}
