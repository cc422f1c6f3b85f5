//! The gateway's own address: a page for browsers, a WebSocket for whoever asks for one.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use holdgate_wire::{Code, Problem};

use super::problem::HttpError;
use super::{App, pages};
use crate::rpc;

/// What stands there.
pub(super) async fn front(State(app): State<App>, request: Request) -> Response {
    if !rpc::is_wanted(&request) {
        return pages::front(State(app)).await;
    }
    match rpc::accept(app.rpc, app.stopping, request) {
        Ok(response) => response,
        Err(why) => HttpError::from(Problem::new(Code::InvalidRequest, why)).into_response(),
    }
}
