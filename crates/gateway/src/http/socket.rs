//! The gateway's own address: a page for browsers, a WebSocket for whoever asks for one.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use holdgate_wire::{Code, Problem};

use super::problem::HttpError;
use super::{App, caller, pages};
use crate::rpc;

/// What stands there.
pub(super) async fn front(State(app): State<App>, request: Request) -> Response {
    if !rpc::is_wanted(&request) {
        return pages::front(State(app)).await;
    }
    let stranger = match caller::stranger(&app) {
        Ok(stranger) => stranger,
        Err(problem) => return HttpError::from(problem).into_response(),
    };
    match rpc::accept(app.rpc, stranger, app.stopping, request) {
        Ok(response) => response,
        Err(why) => HttpError::from(Problem::new(Code::InvalidRequest, why)).into_response(),
    }
}
