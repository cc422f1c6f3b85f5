//! A raw client of the WebSocket protocol, version 4: it says what it is told to say, right or wrong, and keeps
//! everything that comes back.
//!
//! Owns no rule of the protocol beyond the handshake; it is for tests of a server, not for use.

mod connect;
mod identity;
mod inbox;
mod trace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

pub use connect::{Auth, Connect};
pub use identity::{Identity, Payload};
pub use trace::{Direction, Line, Trace};

use inbox::Inbox;

/// How long a client waits for what must come. Only a failing test waits that long.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What a gateway may send in one message, as version 4 has it.
const MAX_PAYLOAD_BYTES: usize = 26_214_400;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How a connection ended. Code 1005: without a code; 1006: without a close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The close code.
    pub code: u16,
    /// The reason given.
    pub reason: String,
}

impl Close {
    /// `{code, reason}`.
    pub fn to_value(&self) -> Value {
        json!({ "code": self.code, "reason": self.reason })
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Whether the gateway did it.
    pub ok: bool,
    /// What it answered.
    pub payload: Option<Value>,
    /// Why it refused: the error object, or a text if the connection ended first.
    pub error: Option<Value>,
}

impl Reply {
    /// `{ok, payload}` or `{ok, error}`.
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "ok": self.ok });
        for (name, part) in [("payload", &self.payload), ("error", &self.error)] {
            if let Some(part) = part {
                value[name] = part.clone();
            }
        }
        value
    }

    /// The payload, or else the error.
    pub fn outcome(&self) -> Value {
        self.payload.clone().or_else(|| self.error.clone()).unwrap_or(Value::Null)
    }

    /// A part of the payload; null if there is none.
    pub fn at(&self, pointer: &str) -> Value {
        let payload = self.payload.as_ref();
        payload.and_then(|payload| payload.pointer(pointer)).cloned().unwrap_or(Value::Null)
    }
}

/// A connection that the gateway refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The error of the `connect` request.
    pub error: Value,
    /// How the gateway closed afterwards.
    pub close: Option<Close>,
}

/// A request on its way.
pub struct Call<'a> {
    client: &'a Client,
    id: String,
}

impl Call<'_> {
    /// The payload of the `accepted` phase; none if the answer came without it.
    pub async fn accepted(&self) -> Option<Value> {
        self.client.inbox.accepted(&self.id).await
    }

    /// The answer.
    ///
    /// # Panics
    /// When none comes.
    pub async fn reply(self) -> Reply {
        let reply = self.client.inbox.reply(&self.id).await;
        reply.unwrap_or_else(|| panic!("{} has no answer to {}", self.client.name, self.id))
    }
}

/// One connection.
pub struct Client {
    name: String,
    trace: Trace,
    inbox: Arc<Inbox>,
    sink: Mutex<Option<SplitSink<Socket, Message>>>,
    requests: AtomicU64,
    hello: Value,
}

impl Client {
    /// Opens the socket and says nothing.
    ///
    /// # Panics
    /// When the gateway does not accept a WebSocket.
    pub async fn open(url: &str, name: &str, trace: &Trace) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_PAYLOAD_BYTES))
            .max_frame_size(Some(MAX_PAYLOAD_BYTES));
        let (socket, _) =
            connect_async_with_config(url, Some(config), true).await.expect("a WebSocket opens");
        let (sink, mut stream) = socket.split();
        let inbox = Arc::new(Inbox::new());
        let (reader, from, traced) = (Arc::clone(&inbox), name.to_owned(), trace.clone());
        tokio::spawn(async move {
            let mut close = Close { code: 1006, reason: String::new() };
            while let Some(message) = stream.next().await {
                match message {
                    Ok(Message::Text(text)) => {
                        traced.add(&from, Direction::Received, &text);
                        reader.take(&text);
                    }
                    Ok(Message::Close(frame)) => {
                        let (code, reason) = frame.map_or((1005, String::new()), |frame| {
                            (u16::from(frame.code), frame.reason.to_string())
                        });
                        close = Close { code, reason };
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            drop(stream);
            traced.add(&from, Direction::Closed, &close.to_value().to_string());
            reader.end(close);
        });
        Self {
            name: name.to_owned(),
            trace: trace.clone(),
            inbox,
            sink: Mutex::new(Some(sink)),
            requests: AtomicU64::new(0),
            hello: Value::Null,
        }
    }

    /// Opens the socket, answers the challenge and waits for hello.
    ///
    /// # Errors
    /// With the gateway's error and how it closed.
    pub async fn connect(url: &str, connect: &Connect, trace: &Trace) -> Result<Self, Refused> {
        let mut client = Self::open(url, &connect.name, trace).await;
        let challenge = client.challenge().await;
        let reply = client.call("connect", &connect.params(&challenge)).await;
        if reply.ok {
            client.hello = reply.payload.unwrap_or(Value::Null);
            return Ok(client);
        }
        let close = client.ended().await;
        Err(Refused { error: reply.error.unwrap_or(Value::Null), close })
    }

    /// The challenge's payload.
    ///
    /// # Panics
    /// When none comes.
    pub async fn challenge(&self) -> Value {
        let event = self.event(|event| event["event"] == "connect.challenge").await;
        event.map(|event| event["payload"].clone()).expect("a gateway challenges who connects")
    }

    /// The connection's name in the trace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the gateway said in hello; null before.
    pub fn hello(&self) -> &Value {
        &self.hello
    }

    /// Sends a request and waits for its answer. A first `accepted` phase counts as the answer.
    pub async fn call(&self, method: &str, params: &Value) -> Reply {
        self.call_text(method, Some(&params.to_string())).await
    }

    /// The same with parameters as they are to be written, or without any.
    pub async fn call_text(&self, method: &str, params: Option<&str>) -> Reply {
        self.begin(method, params, false).await.reply().await
    }

    /// Sends a request whose answer is awaited later.
    pub async fn start(&self, method: &str, params: &Value) -> Call<'_> {
        self.begin(method, Some(&params.to_string()), false).await
    }

    /// Sends a request whose answer is the final phase.
    pub async fn start_final(&self, method: &str, params: &Value) -> Call<'_> {
        self.begin(method, Some(&params.to_string()), true).await
    }

    async fn begin(&self, method: &str, params: Option<&str>, expects_final: bool) -> Call<'_> {
        let id = format!("r{}", self.requests.fetch_add(1, Ordering::Relaxed) + 1);
        self.inbox.expect(&id, expects_final);
        let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        self.send_text(&format!(r#"{{"type":"req","id":{},"method":{}{params}}}"#, json!(id), json!(method)))
            .await;
        Call { client: self, id }
    }

    /// Sends any text as one message. A gateway that has closed already does not hear it.
    pub async fn send_text(&self, text: &str) {
        self.trace.add(&self.name, Direction::Sent, text);
        self.send(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn send(&self, message: Message) {
        if let Some(sink) = self.sink.lock().await.as_mut() {
            // What cannot be sent any more shows in how the connection ended.
            let _ = sink.send(message).await;
        }
    }

    /// The first event for which this holds, waiting for it; none if it does not come.
    pub async fn event(&self, matches: impl Fn(&Value) -> bool) -> Option<Value> {
        self.event_within(PATIENCE, matches).await
    }

    /// The same with another patience.
    pub async fn event_within(&self, patience: Duration, matches: impl Fn(&Value) -> bool) -> Option<Value> {
        let found = self
            .inbox
            .until(patience, |received| received.events.iter().find(|event| matches(event)).cloned());
        found.await
    }

    /// Every event so far, as whole frames.
    pub fn events(&self) -> Vec<Value> {
        self.inbox.lock().events.clone()
    }

    /// Replies to no open request, once there are this many; fewer if no more come. They are taken away.
    pub async fn extra(&self, count: usize) -> Vec<Value> {
        let enough = self.inbox.until(PATIENCE, |received| (received.extra.len() >= count).then_some(()));
        enough.await;
        std::mem::take(&mut self.inbox.lock().extra)
    }

    /// How the connection ended, if it has.
    pub fn closed(&self) -> Option<Close> {
        self.inbox.lock().closed.clone()
    }

    /// How the connection ends, waiting for it; none if it does not.
    pub async fn ended(&self) -> Option<Close> {
        self.inbox.until(PATIENCE, |received| received.closed.clone()).await
    }

    /// Closes without a code, waits for the gateway's close, and lets go of the socket.
    pub async fn close(&self) {
        self.send(Message::Close(None)).await;
        self.ended().await;
        self.sink.lock().await.take();
    }
}
