//! An approval as server-sent events: as it is now, after each change, and as it ended.
//!
//! Owns that stream. It is the long poll for whoever can read one: the same reader, the same waits.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use holdgate_authority::{Found, Local};
use holdgate_core::Approval;
use holdgate_core::approval::Status;
use holdgate_core::limits::WAIT_MS;
use holdgate_wire::Problem;
use serde::Serialize;

use super::App;
use super::problem::HttpError;
use crate::auth;

/// How often a stream that has nothing to tell shows that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Whether a caller reads events.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted.flat_map(|line| line.split(',')).filter_map(|item| item.split(';').next());
    types.any(|accepted| accepted.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Streams an approval until it has ended or the gateway stops.
///
/// # Errors
/// `not_found`, before anything is streamed.
pub(super) async fn open(
    app: App,
    headers: HeaderMap,
    caller: Local,
    id: &str,
) -> Result<Response, HttpError> {
    let first = app.gateway.service.find(id, caller.principal()).await?;
    if first.id().as_str() != id {
        return Err(Problem::refused(&holdgate_core::Refusal::NotFound, None).into());
    }
    let events = events(app, headers, caller, first);
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE));
    Ok(([(CACHE_CONTROL, "no-store")], stream).into_response())
}

/// What a stream does next.
enum Next {
    Tell(Local, Found),
    Await(Box<Approval>),
}

fn events(
    app: App,
    headers: HeaderMap,
    caller: Local,
    first: Found,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    unfold(Some(Next::Tell(caller, first)), move |next| {
        let (app, headers) = (app.clone(), headers.clone());
        async move {
            let known = match next? {
                Next::Tell(caller, found) => Ok((caller, found)),
                Next::Await(seen) => tokio::select! {
                    changed = change(&app, &headers, &seen) => changed,
                    // Whoever comes again finds the gateway's successor.
                    () = crate::stopped(app.stopping.clone()) => return None,
                },
            };
            let (event, next) = match known {
                Ok((caller, found)) => tell(&app, &caller, found),
                Err(HttpError(problem)) => (event("problem", &problem), None),
            };
            Some((Ok(event), next))
        }
    })
}

/// A record as an event, and what comes after it.
fn tell(app: &App, caller: &Local, found: Found) -> (Event, Option<Next>) {
    let links = app.gateway.service.links();
    match found {
        Found::Sound(approval) => {
            let shown = holdgate_wire::Approval::of(&approval, caller.principal(), links);
            let goes_on = approval.status() == Status::Pending;
            (event("approval", &shown), goes_on.then_some(Next::Await(approval)))
        }
        Found::Corrupt(id) => {
            (event("approval", &holdgate_wire::Approval::corrupt(id.as_str(), links)), None)
        }
    }
}

/// The next change, for the caller as it is by then: its credential may have been replaced meanwhile.
async fn change(app: &App, headers: &HeaderMap, seen: &Approval) -> Result<(Local, Found), HttpError> {
    let longest = Duration::from_millis(WAIT_MS.unsigned_abs());
    loop {
        let (caller, _) = auth::authenticate(app, headers).await?;
        let service = &app.gateway.service;
        let found = service.wait_for_change(&seen.id, seen, longest, caller.principal()).await?;
        let is_same = matches!(&found, Found::Sound(approval) if **approval == *seen);
        if !is_same {
            // Whoever lost its credential during the wait is told nothing any more.
            let (caller, _) = auth::authenticate(app, headers).await?;
            return Ok((caller, found));
        }
    }
}

fn event(name: &str, body: &impl Serialize) -> Event {
    // Every shape of the API has text keys and finite numbers, and JSON has no line breaks.
    let data = serde_json::to_string(body).unwrap_or_default();
    Event::default().event(name).data(data)
}
