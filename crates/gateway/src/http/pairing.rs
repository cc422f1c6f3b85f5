//! Pairing a device with a code: the one change that needs no credential, and is counted for it.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use holdgate_authority::Error;
use holdgate_core::Principal;
use holdgate_wire::admin::{CompletePairing, Paired};
use holdgate_wire::{Code, Problem};

use super::App;
use super::body::Body;
use super::caller::Stranger;
use super::problem::{HttpError, json};
use crate::reach::ClientAddress;

/// Pairs a device. This answer alone has its credential.
#[utoipa::path(post, path = "/v1/pairing/complete", request_body = CompletePairing, security(()),
    responses((status = 201, body = Paired), (status = "default", body = Problem)))]
pub(super) async fn complete(
    _: Stranger,
    State(app): State<App>,
    Extension(ClientAddress(client)): Extension<ClientAddress>,
    Body(asked): Body<CompletePairing>,
) -> Result<Response, HttpError> {
    let (paired, _) = pair(&app, client, asked).await?;
    Ok(json(StatusCode::CREATED, &paired))
}

/// Pairs a device for whoever is at an address, unless too many codes came from there or in all.
pub(crate) async fn pair(
    app: &App,
    client: IpAddr,
    asked: CompletePairing,
) -> Result<(Paired, Principal), Error> {
    app.rpc.may_try_a_code(client).map_err(too_many)?;
    app.gateway.service.complete_pairing(asked).await
}

fn too_many(wait: Duration) -> Error {
    let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    let seconds = wait_ms / 1_000 + 1;
    let detail = format!("Too many pairing codes were tried. Wait {seconds} seconds before the next one.");
    Problem { retry_after_ms: Some(wait_ms), ..Problem::new(Code::RateLimited, detail) }.into()
}
