//! The API described for programs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use utoipa::openapi::Server;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::problem::json;
use super::{App, admin, approvals, pairing, runs, system};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdgate",
        description = "Durable approvals for AI agents. Send Authorization: Bearer TOKEN."
    ),
    modifiers(&BearerToken),
    // Every call's, except where the call says otherwise.
    security(("token" = [])),
    paths(
        approvals::create,
        approvals::list,
        approvals::read,
        approvals::wait,
        approvals::decide,
        approvals::claim,
        approvals::settle,
        approvals::cancel,
        approvals::revoke,
        approvals::history,
        runs::start_runtime,
        runs::renew_runtime,
        runs::end_runtime,
        runs::abort,
        runs::put_session,
        runs::create,
        runs::read,
        runs::lease,
        runs::append,
        runs::journal,
        admin::me,
        admin::tokens,
        admin::create_token,
        admin::rotate_token,
        admin::revoke_token,
        admin::devices,
        admin::revoke_device,
        admin::offer_pairing,
        pairing::complete,
        admin::freeze,
        admin::thaw,
        admin::freezes,
        admin::administration,
        system::health,
        system::metrics,
    )
)]
struct Document;

/// How a caller shows who it is.
struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

pub(super) async fn document(State(app): State<App>) -> Response {
    let mut document = Document::openapi();
    // Relative: whoever reads it here calls here, under whichever name.
    document.servers = Some(vec![Server::new(format!("{}/", app.reach.base_path()))]);
    json(StatusCode::OK, &document)
}
