//! Connections: how many are open, how long each may dawdle, and how they end.
//!
//! Owns accepting and HTTP/1 framing. Knows no route. How long a body may take is `http::body`'s, because only a
//! handler knows whether it waits for one.

mod stall;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use holdgate_core::limits::{CONNECTIONS, HEAD_BYTES, HEAD_MS};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use stall::Stalling;

/// How long open connections may finish what they are answering once the gateway is told to stop.
const DRAIN: Duration = Duration::from_millis(1_000);
/// How long a peer that still sends is listened to after the last answer.
const LINGER: Duration = Duration::from_millis(1_000);
/// How soon accepting is tried again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How often the log says that accepting fails.
const COMPLAIN_AGAIN: Duration = Duration::from_secs(60);

/// How many connections this process may keep open: half of the files that it may open belong to its store and
/// whatever else it does.
pub(crate) fn places() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok());
    half.map_or(CONNECTIONS, |half| half.clamp(1, CONNECTIONS))
}

/// Serves `app` until the gateway stops, then for as long as `DRAIN` to those who are being answered. Whoever comes
/// when every place is taken waits in the listener's backlog.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    places: usize,
    stopping: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(places));
    let mut open = JoinSet::new();
    let mut complained = None;
    loop {
        let (place, stream, peer) = tokio::select! {
            next = accept(&listener, &places, &mut complained) => next,
            () = crate::stopped(stopping.clone()) => break,
        };
        // Those that have ended; they have let go of their places already.
        while open.try_join_next().is_some() {}
        let (app, stopping) = (app.clone(), stopping.clone());
        open.spawn(async move {
            converse(stream, peer, app, stopping).await;
            drop(place);
        });
    }
    drop(listener);
    // What is left then is cut with the set.
    let _ = tokio::time::timeout(DRAIN, async { while open.join_next().await.is_some() {} }).await;
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    complained: &mut Option<Instant>,
) -> (OwnedSemaphorePermit, TcpStream, SocketAddr) {
    let place = Arc::clone(places).acquire_owned().await.expect("nobody closes the semaphore");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (place, stream, peer),
            Err(error) if is_the_peers(error.kind()) => {}
            Err(error) => {
                if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_AGAIN) {
                    tracing::warn!(%error, "connections cannot be accepted at the moment; trying on");
                    *complained = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Whether it is the connection that failed and not the listener.
fn is_the_peers(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
    )
}

/// Answers the requests of one connection until either side has had enough, or it is upgraded.
pub(crate) async fn converse<S>(
    stream: S,
    peer: SocketAddr,
    app: Router,
    stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let routes = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        Box::pin(routes.call(request))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS.unsigned_abs()))
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Stalling::new(stream)), service)
        .with_upgrades();
    let mut connection = Box::pin(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = crate::stopped(stopping.clone()) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    match ended {
        Ok(()) => {
            // An upgraded one has no stream any more: it is somebody else's.
            let Some(parts) = Pin::into_inner(connection).into_parts() else { return };
            tokio::select! {
                () = part(parts.io.into_inner()) => {}
                () = crate::stopped(stopping) => {}
            }
        }
        // Of use to whoever looks into one caller's trouble; otherwise this is what networks do.
        Err(error) => tracing::debug!(%error, "a connection broke"),
    }
}

/// Closes a connection so that the last answer arrives. A peer may still be sending a body that nobody wants; closed
/// at once, the connection would be reset and the answer lost with it.
async fn part(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut unwanted = vec![0; 8 << 10];
    let read_on = async { while matches!(stream.read(&mut unwanted).await, Ok(read) if read > 0) {} };
    // Whoever goes on for longer is cut.
    let _ = tokio::time::timeout(LINGER, read_on).await;
}
