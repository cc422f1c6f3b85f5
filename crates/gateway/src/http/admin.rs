//! The calls of administrators: credentials, devices, pairing codes, freezes. And who a caller is.
//!
//! Who may not administer is told so before anything else of the call is read, whatever it names.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use holdgate_authority::{Admin, Local};
use holdgate_core::Refusal;
use holdgate_wire::Problem;
use holdgate_wire::admin::{
    AdministeredPage, CreateToken, DeviceList, Freeze, FreezeList, IssuedToken, Me, OfferPairing, Pairing,
    Thaw, TokenList,
};
use serde::Deserialize;

use super::App;
use super::body::Body;
use super::caller::{Reader, Writer};
use super::problem::{HttpError, Id, Params, json};

/// An administrator who looks.
pub(super) struct Looking(Local);

/// An administrator who changes something.
pub(super) struct Changing(Local);

impl FromRequestParts<App> for Looking {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let Reader(caller) = Reader::from_request_parts(parts, app).await?;
        checked(caller).map(Self)
    }
}

impl FromRequestParts<App> for Changing {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let Writer(caller) = Writer::from_request_parts(parts, app).await?;
        checked(caller).map(Self)
    }
}

fn checked(caller: Local) -> Result<Local, HttpError> {
    if caller.principal().is_admin() {
        Ok(caller)
    } else {
        Err(Problem::refused(&Refusal::NotAnAdministrator, None).into())
    }
}

fn done() -> Response {
    json(StatusCode::OK, &serde_json::Map::new())
}

/// Who the caller is. For everybody.
#[utoipa::path(get, path = "/v1/me",
    responses((status = 200, body = Me), (status = "default", body = Problem)))]
pub(super) async fn me(Reader(caller): Reader) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.me().await?))
}

/// Lists agents and runtimes. Never shows a credential.
#[utoipa::path(get, path = "/v1/tokens",
    responses((status = 200, body = TokenList), (status = "default", body = Problem)))]
pub(super) async fn tokens(Looking(caller): Looking) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.tokens().await?))
}

/// Makes a credential of a new agent or runtime. This answer alone has it.
#[utoipa::path(post, path = "/v1/tokens", request_body = CreateToken,
    responses((status = 201, body = IssuedToken), (status = "default", body = Problem)))]
pub(super) async fn create_token(
    Changing(caller): Changing,
    Body(token): Body<CreateToken>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::CREATED, &caller.create_token(token).await?))
}

/// Puts another credential in the place of an identity's own. This answer alone has it.
#[utoipa::path(post, path = "/v1/tokens/{id}/rotate", params(("id" = String, Path)),
    responses((status = 200, body = IssuedToken), (status = "default", body = Problem)))]
pub(super) async fn rotate_token(Changing(caller): Changing, Id(id): Id) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.rotate_token(&id).await?))
}

/// Ends an agent or a runtime. Its records stay.
#[utoipa::path(post, path = "/v1/tokens/{id}/revoke", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(super) async fn revoke_token(Changing(caller): Changing, Id(id): Id) -> Result<Response, HttpError> {
    caller.revoke_token(&id).await?;
    Ok(done())
}

/// Lists paired devices.
#[utoipa::path(get, path = "/v1/devices",
    responses((status = 200, body = DeviceList), (status = "default", body = Problem)))]
pub(super) async fn devices(Looking(caller): Looking) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.devices().await?))
}

/// Ends a device and all that is signed in on it.
#[utoipa::path(post, path = "/v1/devices/{id}/revoke", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(super) async fn revoke_device(Changing(caller): Changing, Id(id): Id) -> Result<Response, HttpError> {
    caller.revoke_device(&id).await?;
    Ok(done())
}

/// Makes a code that pairs one device, once, within five minutes.
#[utoipa::path(post, path = "/v1/pairing", request_body = OfferPairing,
    responses((status = 200, body = Pairing), (status = "default", body = Problem)))]
pub(super) async fn offer_pairing(
    Changing(caller): Changing,
    Body(offer): Body<OfferPairing>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.offer_pairing(offer).await?))
}

/// Stops new requests and claims, of one agent or of all.
#[utoipa::path(post, path = "/v1/freeze", request_body = Freeze,
    responses((status = 200, body = FreezeList), (status = "default", body = Problem)))]
pub(super) async fn freeze(
    Changing(caller): Changing,
    Body(freeze): Body<Freeze>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.freeze(freeze).await?))
}

/// Lets them go on.
#[utoipa::path(post, path = "/v1/thaw", request_body = Thaw,
    responses((status = 200, body = FreezeList), (status = "default", body = Problem)))]
pub(super) async fn thaw(Changing(caller): Changing, Body(thaw): Body<Thaw>) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.thaw(thaw).await?))
}

/// Lists what is frozen.
#[utoipa::path(get, path = "/v1/freezes",
    responses((status = 200, body = FreezeList), (status = "default", body = Problem)))]
pub(super) async fn freezes(Looking(caller): Looking) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.freezes().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    #[serde(default)]
    after: u64,
}

/// Reads what was administered, in order.
#[utoipa::path(get, path = "/v1/administration",
    params(("after" = Option<u64>, Query, description = "Only facts after this one")),
    responses((status = 200, body = AdministeredPage), (status = "default", body = Problem)))]
pub(super) async fn administration(
    Looking(caller): Looking,
    Params(After { after }): Params<After>,
) -> Result<Response, HttpError> {
    Ok(json(StatusCode::OK, &caller.administration(after).await?))
}
