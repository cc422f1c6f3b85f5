//! One connection from its upgrade to its end.
//!
//! Owns reading and writing, signs of life, and how a connection is closed. Who is at the other end is `handshake`'s,
//! what is said `methods`' and `hub`'s.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error as WsError};
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tracing::Instrument as _;

use super::frame::{self, Failure, Incoming};
use super::handshake::{self, Entered};
use super::line::{Answer, Close, Line};
use super::methods::METHODS;
use super::session::Session;
use super::stream::Bounded;
use super::upgrade::Peer;
use super::{MAX_PAYLOAD, PREAUTH_BYTES, Rpc, TICK, methods};
use crate::shares::Guest;

pub(crate) use super::line::Replies;

/// How much is read at once. Every connection keeps as much, so it is small.
const READ_BYTES: usize = 4 << 10;
/// What may come before a handshake besides the frame that it is in: its header, pings and answers to pings.
const PREAUTH_ROOM: usize = 1 << 10;
/// After how many ticks without a sign of life a peer is taken for gone.
const SILENT_TICKS: u32 = 3;
/// How long a peer has to take the last frames, and then to go.
const PART: Duration = Duration::from_millis(1_000);

pub(super) type Socket<S> = WebSocketStream<Bounded<S>>;

/// How a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// By us.
    Close(Close),
    /// By the peer, or by the network.
    Gone,
}

impl From<Close> for End {
    fn from(close: Close) -> Self {
        Self::Close(close)
    }
}

/// Serves one connection to its end.
pub(super) async fn serve<S>(
    stream: S,
    rpc: Rpc,
    (peer, stranger): (Peer, Guest),
    stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_PAYLOAD))
        .max_frame_size(Some(MAX_PAYLOAD));
    let stream = Bounded::new(stream, PREAUTH_BYTES + PREAUTH_ROOM);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let end = match handshake::shake(&mut socket, &rpc, peer, stopping.clone()).await {
        Ok(entered) => {
            // From here on it is counted as who it is.
            drop(stranger);
            socket.get_mut().open();
            let end;
            (socket, end) = converse(socket, &rpc, entered, stopping).await;
            end
        }
        Err(end) => end,
    };
    part(socket, end).await;
}

/// Answers calls and tells events until either side has had enough.
async fn converse<S>(
    socket: Socket<S>,
    rpc: &Rpc,
    entered: Entered,
    stopping: watch::Receiver<bool>,
) -> (Socket<S>, End)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Entered { session, line, mut answers, member: _member } = entered;
    let (mut sink, mut stream) = socket.split();
    // In ticks.
    let heard = AtomicU32::new(0);
    let mut end = {
        let reading = pin!(read(&mut stream, rpc, &session, &line, &heard));
        let writing = pin!(write(&mut sink, rpc, &session, &line, &mut answers, &heard));
        tokio::select! {
            end = reading => end,
            end = writing => end,
            close = line.closed() => close.into(),
            () = crate::stopped(stopping) => {
                line.tell("shutdown", &"{}".into());
                Close::new(1012, "service restart").into()
            }
        }
    };
    if let End::Close(_) = end
        && timeout(PART, finish(&mut sink, &line, &mut answers)).await.is_err()
    {
        // A close frame would come after what it does not take.
        end = End::Gone;
    }
    let socket = sink.reunite(stream).expect("both are halves of one socket");
    (socket, end)
}

/// Sends what is ready before a connection is closed.
async fn finish<S>(
    sink: &mut SplitSink<Socket<S>, Message>,
    line: &Line,
    answers: &mut mpsc::Receiver<Answer>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    answers.close();
    while let Ok(Answer { text, room: _room }) = answers.try_recv() {
        if sink.send(Message::text(text)).await.is_err() {
            return;
        }
    }
    while let Some(queued) = line.take() {
        if sink.send(Message::text(queued.frame())).await.is_err() {
            return;
        }
    }
}

async fn read<S>(
    stream: &mut SplitStream<Socket<S>>,
    rpc: &Rpc,
    session: &Arc<Session>,
    line: &Arc<Line>,
    heard: &AtomicU32,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = match stream.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return end_of(&error, "payload too large"),
            None => return End::Gone,
        };
        heard.store(0, Ordering::Relaxed);
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => return binary(),
            // The answer goes out with the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => continue,
        };
        let request = match frame::read(&text) {
            Incoming::NotJson => continue,
            Incoming::Invalid { id, why } => {
                let failure = Failure::invalid(format!("invalid request frame: {why}"));
                let replies = Replies::new(Arc::clone(line), line.place().await);
                if replies.send(&id, Err(failure)).await.is_err() {
                    return End::Gone;
                }
                continue;
            }
            Incoming::Request(request) => request,
        };
        drop(text);
        let replies = Replies::new(Arc::clone(line), line.place().await);
        let (rpc, session) = (rpc.clone(), Arc::clone(session));
        let span = span(&request.method);
        let answering = async move {
            if request.method == "connect" {
                let failure = Failure::invalid("connect is only valid as the first request");
                // A connection that is gone needs no answer.
                let _ = replies.send(&request.id, Err(failure)).await;
                return;
            }
            tokio::select! {
                () = methods::call(&rpc, &session, request, &replies) => {}
                () = replies.abandoned() => {}
            }
        };
        tokio::spawn(answering.instrument(span));
    }
}

/// The span of one call. What a caller makes up is no name.
fn span(method: &str) -> tracing::Span {
    let method = METHODS.iter().find(|known| **known == method).copied().unwrap_or("unknown");
    tracing::trace_span!(target: "holdgate::span", "rpc", method, outcome = "none")
}

async fn write<S>(
    sink: &mut SplitSink<Socket<S>, Message>,
    rpc: &Rpc,
    session: &Session,
    line: &Line,
    answers: &mut mpsc::Receiver<Answer>,
    heard: &AtomicU32,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut ticks = interval_at(Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut room = None;
        let message = tokio::select! {
            answer = answers.recv() => match answer {
                Some(answer) => {
                    room = answer.room;
                    Message::text(answer.text)
                }
                // The line holds the other end.
                None => pending().await,
            },
            queued = line.next_event() => {
                if queued.tells_of_loss {
                    session.forget_subscriptions();
                }
                Message::text(queued.frame())
            }
            _ = ticks.tick() => {
                if heard.fetch_add(1, Ordering::Relaxed) >= SILENT_TICKS {
                    return Close::new(1001, "no sign of life").into();
                }
                line.tell("tick", &tick_at(rpc.service.store().now().as_ms()));
                Message::Ping(Bytes::new())
            }
        };
        if let Err(error) = sink.send(message).await {
            tracing::debug!(connection = session.id, %error, "a connection broke");
            return End::Gone;
        }
        // It is sent.
        drop(room);
    }
}

/// Closes a connection so that the last frames arrive: with what the peer still sends unread it would be reset, and
/// they would be lost.
async fn part<S>(mut socket: Socket<S>, end: End)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let End::Close(Close { code, reason }) = end else {
        return;
    };
    let frame = CloseFrame { code: code.into(), reason: reason.into() };
    // Whoever does not take it in time is cut.
    let Ok(Ok(())) = timeout(PART, socket.close(Some(frame))).await else {
        return;
    };
    let mut stream = socket.into_inner().into_inner();
    let mut unwanted = [0; 1 << 10];
    let leave = async {
        let _ = stream.shutdown().await;
        while matches!(stream.read(&mut unwanted).await, Ok(read) if read > 0) {}
    };
    let _ = timeout(PART, leave).await;
}

/// How a connection ends that broke the rules of framing.
pub(super) fn end_of(error: &WsError, too_large: &str) -> End {
    match error {
        WsError::Capacity(CapacityError::MessageTooLong { .. }) => Close::new(1009, too_large).into(),
        WsError::Utf8(_) => Close::new(1007, "invalid text").into(),
        WsError::Protocol(error) => {
            tracing::debug!(%error, "a peer broke the rules of framing");
            Close::new(1002, "protocol error").into()
        }
        _ => End::Gone,
    }
}

pub(super) fn binary() -> End {
    Close::new(1003, "binary frames are not understood").into()
}

/// What a `tick` says.
fn tick_at(now_ms: i64) -> Arc<str> {
    json!({ "ts": now_ms }).to_string().into()
}
