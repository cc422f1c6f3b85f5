//! The route table. What each call does is `holdgate-authority`'s; only here are HTTP's words for it.

mod admin;
mod approvals;
mod body;
mod caller;
mod guard;
mod openapi;
mod pages;
pub(crate) mod pairing;
mod problem;
mod runs;
mod socket;
mod stream;
mod system;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::watch;

use crate::Gateway;
use crate::reach::Reach;
use crate::rpc::Rpc;

pub use system::metrics_recorder;

/// What every handler may use.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) gateway: Gateway,
    /// What WebSockets are served with.
    pub(crate) rpc: Rpc,
    /// Where it is reached: base path, links, cookies.
    pub(crate) reach: Arc<Reach>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// The whole application: the guard stands before the routes, so that a request under a foreign name learns
/// nothing about them. The guard also takes the base path off, so that the routes know none.
pub(crate) fn app(gateway: Gateway, rpc: Rpc, reach: Arc<Reach>, stopping: watch::Receiver<bool>) -> Router {
    let guard = axum::middleware::from_fn_with_state(Arc::clone(&reach), guard::check);
    let app = App { gateway, rpc, reach, stopping };
    let routes = Router::new()
        .route("/v1/approvals", post(approvals::create).get(approvals::list))
        .route("/v1/approvals/{id}", get(approvals::read))
        .route("/v1/approvals/{id}/wait", get(approvals::wait))
        .route("/v1/approvals/{id}/decision", post(approvals::decide))
        .route("/v1/approvals/{id}/claim", post(approvals::claim))
        .route("/v1/approvals/{id}/receipt", post(approvals::settle))
        .route("/v1/approvals/{id}/cancel", post(approvals::cancel))
        .route("/v1/approvals/{id}/revoke", post(approvals::revoke))
        .route("/v1/history", get(approvals::history))
        .route("/v1/sessions/{key}", post(runs::put_session))
        .route("/v1/runs/{id}/abort", post(runs::abort))
        .route("/v1/runtimes/{epoch}/end", post(runs::end_runtime))
        .route("/v1/runtimes", post(runs::start_runtime))
        .route("/v1/runtimes/{epoch}/renew", post(runs::renew_runtime))
        .route("/v1/runs", post(runs::create))
        .route("/v1/runs/{id}", get(runs::read))
        .route("/v1/runs/{id}/lease", post(runs::lease))
        .route("/v1/runs/{id}/events", post(runs::append).get(runs::journal))
        .route("/v1/me", get(admin::me))
        .route("/v1/tokens", get(admin::tokens).post(admin::create_token))
        .route("/v1/tokens/{id}/rotate", post(admin::rotate_token))
        .route("/v1/tokens/{id}/revoke", post(admin::revoke_token))
        .route("/v1/devices", get(admin::devices))
        .route("/v1/devices/{id}/revoke", post(admin::revoke_device))
        .route("/v1/pairing", post(admin::offer_pairing))
        .route("/v1/pairing/complete", post(pairing::complete))
        .route("/v1/freeze", post(admin::freeze))
        .route("/v1/thaw", post(admin::thaw))
        .route("/v1/freezes", get(admin::freezes))
        .route("/v1/administration", get(admin::administration))
        .route("/", get(socket::front))
        .route("/ws", get(socket::front))
        .route("/approve/{id}", get(pages::approve))
        .route("/sign-in", get(pages::sign_in_form).post(pages::sign_in))
        .route("/assets/{name}", get(pages::asset))
        .route("/healthz", get(system::health))
        .route("/metrics", get(system::metrics))
        .route("/openapi.json", get(openapi::document))
        .fallback(problem::no_such_call)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(axum::middleware::from_fn(caller::bound))
        .layer(axum::middleware::from_fn(system::measure))
        .with_state(app);
    Router::new().fallback_service(routes).layer(guard)
}
