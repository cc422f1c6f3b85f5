//! From a credential to an identity. Owns tokens, page sessions and their CSRF tokens; decides nothing else.

use std::net::IpAddr;

use holdgate_authority::administration::looks_like_a_pairing_code;
use holdgate_authority::{Error, Local};
use holdgate_core::{Digest, Principal};
use holdgate_store::{Credential, mint};
use holdgate_wire::Code;
use holdgate_wire::admin::CompletePairing;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE};

use crate::http::{self, App};

/// The header that shows a state-changing call of the page to be the page's own.
pub(crate) const CSRF_HEADER: &str = "x-holdgate-csrf";

/// What is kept of a credential.
pub fn credential_hash(secret: &str) -> Digest {
    Digest::of(secret.as_bytes())
}

/// How a caller showed who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// A bearer token: no browser sends it by itself.
    Token,
    /// The page's cookie: a browser sends it with every request to this origin.
    Cookie,
}

/// The identity behind a request, by its bearer token or else its page session.
pub(crate) async fn authenticate(app: &App, headers: &HeaderMap) -> Result<(Local, Means), Error> {
    let (credential, means) = if let Some(token) = bearer(headers)? {
        (Credential::Token(credential_hash(token)), Means::Token)
    } else if let Some(secret) = session_secret(app, headers) {
        (Credential::PageSession(credential_hash(secret)), Means::Cookie)
    } else {
        return Err(unauthenticated("send the header Authorization: Bearer TOKEN"));
    };
    match app.gateway.service.authenticate(credential).await? {
        Some(principal) => Ok((Local::new(app.gateway.service.clone(), principal), means)),
        None => Err(unauthenticated("the credential is not known here; it may have been replaced")),
    }
}

/// Refuses a state-changing call that only a browser's cookie vouches for, unless the page itself made it.
pub(crate) fn check_csrf(app: &App, headers: &HeaderMap, means: Means) -> Result<(), Error> {
    let expected = session_secret(app, headers).map(csrf_token);
    let given = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    match means {
        Means::Token => Ok(()),
        // Both sides are hashes of a secret that the caller has sent: comparing them leaks nothing new.
        Means::Cookie if expected.is_some() && expected.as_deref() == given => Ok(()),
        Means::Cookie => {
            Err(Error::new(Code::ForbiddenOrigin, format!("the header {CSRF_HEADER} is missing or wrong")))
        }
    }
}

/// The token that the page sends along with its own calls, derived from its session's secret.
pub(crate) fn csrf_token(secret: &str) -> String {
    Digest::of(format!("csrf\0{secret}").as_bytes()).to_hex()
}

/// How somebody wants to sign in to the page.
pub(crate) enum Shown {
    /// With a token.
    Token(String),
    /// With a pairing code: this browser becomes a device of that name, if it was given one.
    Code(String, Option<String>),
}

/// Signs somebody in from an address; answers the `Set-Cookie` value for the origin of the request with these headers.
pub(crate) async fn sign_in(
    app: &App,
    headers: &HeaderMap,
    client: IpAddr,
    shown: Shown,
) -> Result<String, Error> {
    let service = &app.gateway.service;
    let principal = match shown {
        Shown::Token(token) => {
            match service.authenticate(Credential::Token(credential_hash(token.trim()))).await? {
                Some(principal) => principal,
                None if looks_like_a_pairing_code(&token) => pair_browser(app, client, token, None).await?,
                None => return Err(unauthenticated("That token is not known here.")),
            }
        }
        Shown::Code(code, name) => pair_browser(app, client, code, name).await?,
    };
    if !principal.may_review() {
        return Err(Error::new(Code::NotAReviewer, "That token belongs to an agent. Agents never decide."));
    }
    let secret = mint::secret("hgs").map_err(|error| {
        tracing::error!(%error, "no randomness");
        Error::new(Code::Unavailable, "Signing in is not possible at the moment.")
    })?;
    let lasts_ms = service.open_page_session(credential_hash(&secret), &principal).await?;
    Ok(app.reach.session_cookie(headers).set(&secret, lasts_ms / 1_000))
}

/// Makes a browser a device. Its own credential is known to nobody: what it keeps is the session.
async fn pair_browser(
    app: &App,
    client: IpAddr,
    code: String,
    name: Option<String>,
) -> Result<Principal, Error> {
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let label = name.unwrap_or_else(|| "browser".to_owned());
    let asked = CompletePairing { code, label, public_key: None, platform: Some("browser".to_owned()) };
    match http::pairing::pair(app, client, asked).await {
        Ok((_, principal)) => Ok(principal),
        Err(error) if error.code() == Some(Code::PairingCodeInvalid) => Err(Error::new(
            Code::PairingCodeInvalid,
            "That pairing code is not valid. A code works once and for five minutes; ask for a new one.",
        )),
        Err(error) if error.code() == Some(Code::InvalidRequest) => Err(Error::new(
            Code::InvalidRequest,
            "That name cannot be used. Choose another, of at most 64 characters.",
        )),
        Err(error) => Err(error),
    }
}

/// The secret of the page session that came with a request.
pub(crate) fn session_secret<'a>(app: &App, headers: &'a HeaderMap) -> Option<&'a str> {
    let name = app.reach.session_cookie(headers).name;
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, secret)| secret)
}

/// The reviewer who is signed in to the page, if one is.
pub(crate) async fn page_reviewer(app: &App, headers: &HeaderMap) -> Result<Option<Principal>, Error> {
    match session_secret(app, headers) {
        None => Ok(None),
        Some(secret) => {
            app.gateway.service.authenticate(Credential::PageSession(credential_hash(secret))).await
        }
    }
}

fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let mut values = headers.get_all(AUTHORIZATION).into_iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    // Whoever stands between may have looked at another one than we would.
    if values.next().is_some() {
        return Err(unauthenticated("the request has several Authorization headers"));
    }
    let token = value.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthenticated("the Authorization header is not of the form Bearer TOKEN")),
    }
}

fn unauthenticated(detail: &str) -> Error {
    Error::new(Code::Unauthenticated, detail)
}
