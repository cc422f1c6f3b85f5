//! The gateway's end of a socket, played by hand with recorded frames.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

const FRAMES: &str = include_str!("../fixtures/v4/frames.txt");

/// A recorded frame.
pub fn recorded(name: &str) -> Value {
    let line = FRAMES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no frame {name}"))).unwrap()
}

/// A recorded response, as one to another request.
pub fn recorded_for(name: &str, id: &str) -> Value {
    let mut frame = recorded(name);
    frame["id"] = id.into();
    frame
}

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    pub id: String,
    pub method: String,
    pub params: Value,
}

/// One end of a connection.
pub struct Peer<S> {
    socket: WebSocketStream<S>,
}

/// Where gateways are played.
pub struct Port {
    listener: TcpListener,
}

impl Port {
    pub async fn bind() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub fn url(&self) -> String {
        format!("ws://{}", self.listener.local_addr().unwrap())
    }

    pub async fn stream(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    pub async fn accept(&self) -> Peer<TcpStream> {
        Peer::accept(self.stream().await).await
    }

    /// Accepts and greets.
    pub async fn greet(&self) -> Peer<TcpStream> {
        let mut peer = self.accept().await;
        peer.greet(recorded("hello")).await;
        peer
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub async fn accept(stream: S) -> Self {
        Self { socket: tokio_tungstenite::accept_async(stream).await.unwrap() }
    }

    /// Challenges, and answers the connect with this; gives the connect's parameters back.
    pub async fn greet(&mut self, answer: Value) -> Value {
        self.send(&recorded("challenge")).await;
        let connect = self.request().await;
        assert_eq!(connect.method, "connect");
        self.send(&answer).await;
        connect.params
    }

    pub async fn send(&mut self, frame: &Value) {
        self.text(&frame.to_string()).await;
    }

    pub async fn text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Sends what the other end may have stopped reading.
    pub async fn try_text(&mut self, text: String) {
        let _ = self.socket.send(Message::text(text)).await;
    }

    pub async fn ping(&mut self) {
        self.socket.send(Message::Ping(vec![1].into())).await.unwrap();
    }

    pub async fn event(&mut self, name: &str, payload: Value, seq: u64) {
        self.send(&json!({"type": "event", "event": name, "payload": payload, "seq": seq})).await;
    }

    pub async fn reply(&mut self, request: &Request, payload: Value) {
        self.send(&json!({"type": "res", "id": request.id, "ok": true, "payload": payload})).await;
    }

    /// The next request.
    pub async fn request(&mut self) -> Request {
        loop {
            if let Message::Text(text) = self.socket.next().await.unwrap().unwrap() {
                let mut frame: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(frame["type"], "req");
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                return Request {
                    id: text(&frame["id"]),
                    method: text(&frame["method"]),
                    params: frame["params"].take(),
                };
            }
        }
    }

    /// Answers lists with the recorded one, until a request with this method comes.
    pub async fn until(&mut self, method: &str) -> Request {
        loop {
            let request = self.request().await;
            match &*request.method {
                found if found == method => return request,
                "exec.approval.list" => self.send(&recorded_for("list", &request.id)).await,
                "plugin.approval.list" | "openclaw.approval.list" => self.reply(&request, json!([])).await,
                other => panic!("{other} was not expected"),
            }
        }
    }

    pub async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.close(Some(frame)).await.unwrap();
    }

    /// The code with which the other end closes. What comes before is passed over.
    pub async fn closed(&mut self) -> Option<u16> {
        while let Some(Ok(message)) = self.socket.next().await {
            if let Message::Close(frame) = message {
                return frame.map(|frame| frame.code.into());
            }
        }
        None
    }
}
