//! Connections: how many are open, how long each may dawdle, and how they end.
//!
//! Owns accepting, TLS handshakes and HTTP/1 framing, up to the point where a connection is upgraded: from there on its
//! stream is whoever asked for it, and only its place is counted here. Knows no route. How long a body may take is
//! `http::body`'s, because only a handler knows whether it waits for one.

mod places;
mod stall;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::response::Response;
use holdgate_core::limits::{CONNECTIONS, HEAD_BYTES, HEAD_MS};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::reach::Tls;
use crate::shares::Taken;
pub(crate) use places::Places;
use places::{Busy, Seat};
use stall::Stalling;

/// How long open connections may finish what they are answering once the gateway is told to stop.
const DRAIN: Duration = Duration::from_millis(1_000);
/// How long a peer that still sends is listened to after the last answer.
const LINGER: Duration = Duration::from_millis(1_000);
/// How long the handshake of a TLS connection may take.
const HANDSHAKE: Duration = Duration::from_millis(10_000);
/// How long a connection that has to make room may finish what it is sending.
const LEAVE: Duration = Duration::from_millis(500);
/// How much of a response is given out at once.
const PIECE: usize = 64 << 10;
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

/// Serves `app` until the gateway stops, then for as long as `DRAIN` to those who are being answered or were upgraded.
/// Whoever comes when every place is taken and no connection is idle waits in the listener's backlog.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    tls: Option<Arc<Tls>>,
    places: Arc<Places>,
    stopping: watch::Receiver<bool>,
) {
    let mut open = JoinSet::new();
    let mut complained = None;
    loop {
        let (stream, peer, place) = tokio::select! {
            next = admit(&listener, &places, &mut complained) => next,
            () = crate::stopped(stopping.clone()) => break,
        };
        // Those that have ended; they have let go of their places already.
        while open.try_join_next().is_some() {}
        let caller = Caller { peer, seat: Seat::new(Arc::clone(&places)), place };
        let (app, stopping, tls) = (app.clone(), stopping.clone(), tls.clone());
        open.spawn(async move {
            match tls {
                None => converse(stream, caller, app, stopping).await,
                Some(tls) => {
                    if let Some(stream) = shake_hands(stream, &tls, &caller, stopping.clone()).await {
                        converse(stream, caller, app, stopping).await;
                    }
                }
            }
        });
    }
    drop(listener);
    let drained = async {
        while open.join_next().await.is_some() {}
        places.all_free().await;
    };
    // What is left then is cut with the set.
    let _ = timeout(DRAIN, drained).await;
}

/// The next connection and a place for it.
async fn admit(
    listener: &TcpListener,
    places: &Places,
    complained: &mut Option<Instant>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // What is written is whole: an event must not wait until the peer has acknowledged the one before it,
                // which takes it 40 ms. A connection that is gone already shows that when it is read.
                let _ = stream.set_nodelay(true);
                return (stream, peer, places.take().await);
            }
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

/// A connection over TLS, unless its peer speaks something else, is too slow, or has to make room.
async fn shake_hands<S>(
    stream: S,
    tls: &Tls,
    caller: &Caller,
    stopping: watch::Receiver<bool>,
) -> Option<tokio_rustls::server::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.acceptor().accept(stream)) => shaken,
        () = caller.seat.told_to_go() => return None,
        () = crate::stopped(stopping) => return None,
    };
    match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!(peer = %caller.peer, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(peer = %caller.peer, "a TLS handshake took too long"),
    }
    None
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

/// Who is at the other end of a connection, and its place among the others.
pub(crate) struct Caller {
    /// The peer's address, an extension of each of its requests as axum's `ConnectInfo`.
    peer: SocketAddr,
    /// Says whether it is idle.
    seat: Arc<Seat>,
    place: OwnedSemaphorePermit,
}

/// Somebody with all the room that there is.
#[cfg(test)]
pub(crate) fn alone() -> Caller {
    let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
    Caller { peer: SocketAddr::from(([127, 0, 0, 1], 1)), seat: Seat::new(Places::new(1)), place }
}

/// Answers the requests of one connection until either side has had enough, or it is upgraded.
pub(crate) async fn converse<S>(stream: S, caller: Caller, app: Router, stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Caller { peer, seat, place } = caller;
    let routes = TowerToHyperService::new(app);
    let service = service_fn(|mut request: Request<Incoming>| {
        let taken = Taken::default();
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(taken.clone());
        let busy = seat.busy();
        let answer = routes.call(request);
        Box::pin(async move { Ok::<_, Infallible>(answering(answer.await?, busy, taken)) })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS.unsigned_abs()))
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Stalling::new(stream, place)), service)
        .with_upgrades();
    let mut connection = Box::pin(connection);
    let mut has_to_go = false;
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = crate::stopped(stopping.clone()) => None,
        () = seat.told_to_go() => {
            has_to_go = true;
            None
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            if has_to_go {
                // One that is halfway through a head would stay for as long as a head may take.
                let _ = timeout(LEAVE, connection).await;
                return;
            }
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
        Err(error) => tracing::debug!(%peer, %error, "a connection broke"),
    }
}

/// The response, with its connection busy, and what its request has taken kept, until it is sent.
fn answering(response: Response, busy: Busy, taken: Taken) -> Response<Answer> {
    let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let busy = if is_upgrade {
        busy.for_good();
        None
    } else {
        Some(busy)
    };
    response.map(|body| Answer { body, rest: Bytes::new(), _busy: busy, _taken: taken })
}

/// A body that keeps its connection busy. It is given out in pieces: as long as the peer does not read, it is there.
struct Answer {
    body: Body,
    /// What is left of the last piece of the body.
    rest: Bytes,
    _busy: Option<Busy>,
    _taken: Taken,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
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
    let _ = timeout(LINGER, read_on).await;
}
