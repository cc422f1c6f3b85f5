//! A client of the WebSocket protocol that keeps nothing: what a bench measures is not what its client remembers.

use futures_util::{SinkExt as _, StreamExt as _};
use holdgate_testkit::gateway::Persona;
use holdgate_testkit::v4::{Auth, Connect};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::Failure;

/// One connection, used by one at a time.
pub struct Wire {
    socket: WebSocketStream<TcpStream>,
    calls: u64,
}

impl Wire {
    /// An agent.
    pub async fn agent(url: &str) -> Result<Self, Failure> {
        Self::connect(url, &Connect::new("agent", Auth::token("agent")).client("gateway-client", "backend"))
            .await
    }

    /// An administrator, who is told of approvals if it `shows` them.
    pub async fn reviewer(url: &str, shows: bool) -> Result<Self, Failure> {
        Self::reviewer_as(Persona::Reviewer, url, shows).await
    }

    /// The same as one of the administrators.
    pub async fn reviewer_as(persona: Persona, url: &str, shows: bool) -> Result<Self, Failure> {
        let says = Connect::new(persona.name(), Auth::token(persona.name())).scopes(&["operator.admin"]);
        Self::connect(url, &if shows { says.approvals() } else { says }).await
    }

    async fn connect(url: &str, says: &Connect) -> Result<Self, Failure> {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        let (socket, _) = tokio_tungstenite::client_async(url.replacen("http", "ws", 1), stream).await?;
        let mut wire = Self { socket, calls: 0 };
        let challenge = wire.next().await?;
        let hello = wire.call("connect", &says.params(&challenge["payload"])).await?;
        assert_eq!(hello["ok"], true, "{hello}");
        Ok(wire)
    }

    /// Sends a request; answers its number.
    pub async fn say(&mut self, method: &str, params: &Value) -> Result<String, Failure> {
        self.calls += 1;
        let id = self.calls.to_string();
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(request.to_string())).await?;
        Ok(id)
    }

    /// The next frame.
    pub async fn next(&mut self) -> Result<Value, Failure> {
        loop {
            match self.socket.next().await.ok_or("the gateway has closed")?? {
                Message::Text(text) => return Ok(serde_json::from_str(&text)?),
                Message::Close(close) => return Err(format!("closed: {close:?}").into()),
                _ => {}
            }
        }
    }

    /// The first frame for which this holds.
    pub async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        loop {
            let frame = self.next().await?;
            if is_it(&frame) {
                return Ok(frame);
            }
        }
    }

    /// A request and its only answer.
    pub async fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        let id = self.say(method, params).await?;
        self.until(|frame| frame["type"] == "res" && frame["id"] == *id).await
    }

    /// One approval from request to receipt, as over HTTP.
    pub async fn approval(&mut self, reviewer: &mut Self, client: usize, n: usize) -> Result<(), Failure> {
        let argv = json!(["deploy", "--service", format!("checkout-{client}"), "--revision", n.to_string()]);
        let body = json!({ "kind": "exec", "content": { "argv": argv }, "reason": "the nightly release" });
        let asked = self.call("approval.request", &body).await?;
        let approval = &asked["payload"]["approval"];
        let (id, digest) = (&approval["id"], &approval["digest"]);
        let allow = json!({ "id": id, "digest": digest, "decision": "allow-once" });
        let claim = json!({ "id": id, "digest": digest, "claimId": "c" });
        let settle = json!({ "id": id, "claimId": "c", "outcome": "succeeded" });
        let answers = [
            reviewer.call("approval.decide", &allow).await?,
            self.call("approval.claim", &claim).await?,
            self.call("approval.settle", &settle).await?,
        ];
        assert!(answers.iter().all(|answer| answer["ok"] == true), "{answers:?}");
        Ok(())
    }
}
