//! One connection, from hello to close: requests by id, events in order, silence noticed. Owns no reconnecting.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::PROTOCOL;
use super::address::Address;
use super::frame::{self, Close, Frame};
use super::handshake::{Challenge, ConnectError, Hello, Profile};
use crate::reviewing::Refused;

/// How long it may take from connecting to hello.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a frame may take to be written: a gateway that does not read is gone.
const WRITE: Duration = Duration::from_secs(10);
/// How long a close may take to be said.
const PARTING: Duration = Duration::from_secs(1);
/// The most that a frame may have, either way.
const FRAME_BYTES: usize = 26_214_400;
/// The most that a frame may have before hello.
const FIRST_FRAME_BYTES: usize = 64 * 1024;
/// A client closes with this after two intervals without a frame.
const SILENT: u16 = 4000;
const TOO_BIG: u16 = 1009;

/// A connection that was greeted.
#[derive(Debug)]
pub struct Connection<S> {
    socket: WebSocketStream<S>,
    hello: Hello,
    last_id: u64,
    /// Requests without their final response; whether an accepted phase may come before it.
    out: BTreeMap<String, bool>,
    last_seq: Option<u64>,
    heard: Instant,
    closed: Option<Close>,
}

/// What comes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A request was accepted. Its final response is still to come.
    Accepted {
        /// The request's id.
        id: String,
        /// What was accepted.
        payload: Value,
    },
    /// A request's final response.
    Reply {
        /// The request's id.
        id: String,
        /// The payload, or the error.
        outcome: Result<Value, Refused>,
    },
    /// An event.
    Event {
        /// Its name.
        name: String,
        /// Its payload.
        payload: Value,
        /// How many events were missed before it.
        missed: u64,
    },
    /// The connection is over.
    Closed(Close),
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The gateway would refuse so large a frame.
    #[error("the request has {bytes} bytes, and the gateway takes {most}")]
    TooLarge {
        /// What it has.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
    /// The connection is over.
    #[error("the connection is over")]
    Closed,
}

impl Connection<TcpStream> {
    /// Connects, proves who connects, and waits for the hello. Takes ten seconds at most.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn open(address: &Address, profile: &Profile) -> Result<Self, ConnectError> {
        let opening = async {
            let stream = TcpStream::connect(address.host_and_port())
                .await
                .map_err(|error| unreachable(address, error.to_string()))?;
            // A decision is one small frame: it does not wait for more.
            let _ = stream.set_nodelay(true);
            Self::greet(stream, address, profile).await
        };
        timeout(HANDSHAKE, opening)
            .await
            .unwrap_or_else(|_| Err(unreachable(address, "it said no hello in time".to_owned())))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The handshake over a stream that is already open. Bounded by nothing but the caller's patience.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn greet(stream: S, address: &Address, profile: &Profile) -> Result<Self, ConnectError> {
        let config = WebSocketConfig::default()
            .read_buffer_size(16 * 1024)
            .write_buffer_size(0)
            .max_message_size(Some(FRAME_BYTES))
            .max_frame_size(Some(FRAME_BYTES));
        let (mut socket, _) =
            tokio_tungstenite::client_async_with_config(address.socket_url(), stream, Some(config))
                .await
                .map_err(|error| refused_upgrade(address, &error))?;
        let challenge = match next_frame(&mut socket, address).await? {
            Frame::Event { event, payload, .. } if event == "connect.challenge" => Challenge::read(&payload),
            _ => None,
        };
        let challenge =
            challenge.ok_or_else(|| no_gateway(address, "its first frame is no challenge".to_owned()))?;
        let connect = frame::request("r1", "connect", &profile.connect(&challenge));
        if connect.len() > FIRST_FRAME_BYTES {
            return Err(no_gateway(
                address,
                "the credentials are larger than a first frame may be".to_owned(),
            ));
        }
        socket.send(Message::text(connect)).await.map_err(|error| unreachable(address, error.to_string()))?;
        let mut last_seq = None;
        loop {
            match next_frame(&mut socket, address).await? {
                Frame::Response { id, ok: true, payload, .. } if id == "r1" => {
                    if payload.get("protocol").is_some_and(|version| *version != PROTOCOL) {
                        return Err(no_gateway(address, "it speaks another version".to_owned()));
                    }
                    let hello = Hello::read(&payload)
                        .ok_or_else(|| no_gateway(address, "its hello lacks policy or auth".to_owned()))?;
                    return Ok(Self {
                        socket,
                        hello,
                        last_id: 1,
                        out: BTreeMap::new(),
                        last_seq,
                        heard: Instant::now(),
                        closed: None,
                    });
                }
                Frame::Response { id, ok: false, error, .. } if id == "r1" => {
                    let close = timeout(PARTING, closing(&mut socket)).await.ok().flatten();
                    return Err(ConnectError::refused(&error.unwrap_or_default(), profile, close.as_ref()));
                }
                Frame::Response { .. } => {}
                Frame::Event { seq, .. } => last_seq = seq.or(last_seq),
            }
        }
    }

    /// What the gateway granted.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends a request; answers its id. With `two_phase` a response that says `accepted` is not taken for the final.
    ///
    /// # Errors
    /// It is too large, or the connection is over.
    pub async fn send(&mut self, method: &str, params: &Value, two_phase: bool) -> Result<String, SendError> {
        if self.closed.is_some() {
            return Err(SendError::Closed);
        }
        let id = format!("r{}", self.last_id + 1);
        let text = frame::request(&id, method, params);
        let most = self.hello.max_payload_bytes;
        if text.len() > most {
            return Err(SendError::TooLarge { bytes: text.len(), most });
        }
        self.last_id += 1;
        match timeout(WRITE, self.socket.send(Message::text(text))).await {
            Ok(Ok(())) => {
                self.out.insert(id.clone(), two_phase);
                Ok(id)
            }
            Ok(Err(error)) => Err(self.broke(error.to_string())),
            Err(_) => Err(self.broke("it does not read what is sent".to_owned())),
        }
    }

    /// Waits no longer for a response: if it comes, it is ignored.
    pub fn forget(&mut self, id: &str) {
        self.out.remove(id);
    }

    /// The next thing that comes in. After `Closed` there is only that. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Incoming {
        loop {
            if let Some(close) = &self.closed {
                return Incoming::Closed(close.clone());
            }
            let silent_at = self.heard + 2 * self.hello.tick_interval;
            match timeout_at(silent_at, self.socket.next()).await {
                Err(_) => self.close(SILENT, "tick timeout").await,
                Ok(Some(Ok(Message::Text(text)))) => {
                    self.heard = Instant::now();
                    if let Some(incoming) = frame::read(&text).and_then(|frame| self.take(frame)) {
                        return incoming;
                    }
                }
                Ok(Some(Ok(Message::Close(said)))) => {
                    self.closed = Some(close_of(said));
                    // Answers the close, if the gateway still listens.
                    let _ = timeout(PARTING, self.socket.close(None)).await;
                }
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(WsError::Capacity(error)))) => self.close(TOO_BIG, &error.to_string()).await,
                Ok(Some(Err(error))) => {
                    self.broke(error.to_string());
                }
                Ok(None) => {
                    self.broke("the gateway went away".to_owned());
                }
            }
        }
    }

    /// Closes with this code, and says why.
    pub async fn close(&mut self, code: u16, reason: &str) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(Close { code: Some(code), reason: reason.to_owned() });
        let said = CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() };
        // A gateway that is silent may not hear it either.
        let _ = timeout(PARTING, self.socket.close(Some(said))).await;
    }

    fn broke(&mut self, reason: String) -> SendError {
        self.closed = Some(Close { code: None, reason });
        SendError::Closed
    }

    fn take(&mut self, frame: Frame) -> Option<Incoming> {
        match frame {
            Frame::Response { id, ok, payload, error } => {
                let two_phase = *self.out.get(&id)?;
                if two_phase && ok && payload.get("status").and_then(Value::as_str) == Some("accepted") {
                    return Some(Incoming::Accepted { id, payload });
                }
                self.out.remove(&id);
                let outcome = if ok { Ok(payload) } else { Err(error.unwrap_or_default().into()) };
                Some(Incoming::Reply { id, outcome })
            }
            Frame::Event { event, payload, seq } => {
                let missed = match (self.last_seq, seq) {
                    (Some(last), Some(seq)) => seq.saturating_sub(last.saturating_add(1)),
                    _ => 0,
                };
                self.last_seq = seq.or(self.last_seq);
                Some(Incoming::Event { name: event, payload, missed })
            }
        }
    }
}

/// The next frame of a handshake. What is none is passed over.
async fn next_frame<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    address: &Address,
) -> Result<Frame, ConnectError> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                if let Some(frame) = frame::read(&text) {
                    return Ok(frame);
                }
            }
            Some(Ok(Message::Close(said))) => {
                let close = close_of(said);
                let code = close.code.map(|code| format!(" ({code})")).unwrap_or_default();
                return Err(unreachable(address, format!("it closed: {}{code}", close.reason)));
            }
            Some(Ok(_)) => {}
            Some(Err(WsError::Capacity(error))) => return Err(no_gateway(address, error.to_string())),
            Some(Err(error)) => return Err(unreachable(address, error.to_string())),
            None => return Err(unreachable(address, "it went away".to_owned())),
        }
    }
}

/// The close that follows a refusal.
async fn closing<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Option<Close> {
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Close(said) = message {
            return Some(close_of(said));
        }
    }
    None
}

fn close_of(said: Option<CloseFrame>) -> Close {
    match said {
        Some(said) => Close { code: Some(said.code.into()), reason: said.reason.as_str().to_owned() },
        None => Close { code: None, reason: "closed without a word".to_owned() },
    }
}

fn refused_upgrade(address: &Address, error: &WsError) -> ConnectError {
    match error {
        WsError::Io(error) => unreachable(address, error.to_string()),
        error => no_gateway(address, error.to_string()),
    }
}

fn unreachable(address: &Address, why: String) -> ConnectError {
    ConnectError::Unreachable { address: address.name(), why }
}

fn no_gateway(address: &Address, why: String) -> ConnectError {
    ConnectError::NotAGateway { address: address.name(), why }
}
