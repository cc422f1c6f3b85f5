//! From a fresh socket to a session: challenge, `connect`, hello.
//!
//! Owns the order of the steps and how long they may take. What is checked in each is in the modules that it calls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use holdgate_store::mint;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::connect::{self, Refused};
use super::credentials::{self, Caller, Granted};
use super::frame::{self, Incoming, Request};
use super::hub::{Member, Open};
use super::line::{Answer, Close, EVENT_BYTES, Line};
use super::session::{Session, Settled};
use super::socket::{End, Socket, binary, end_of};
use super::upgrade::Peer;
use super::{MAX_PAYLOAD, PREAUTH_BYTES, PROTOCOL, Rpc, TICK, device, methods, refusals};
use crate::shares::Exhausted;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
const TOO_LARGE: &str = "preauth payload too large";

/// A connection that has got in.
pub(super) struct Entered {
    pub(super) session: Arc<Session>,
    pub(super) line: Arc<Line>,
    pub(super) answers: mpsc::Receiver<Answer>,
    pub(super) member: Member,
}

/// Settles who is at the other end, and says hello.
pub(super) async fn shake<S>(
    socket: &mut Socket<S>,
    rpc: &Rpc,
    peer: Peer,
    stopping: watch::Receiver<bool>,
) -> Result<Entered, End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    tokio::select! {
        shaken = timeout(HANDSHAKE, steps(socket, rpc, peer)) => {
            shaken.unwrap_or_else(|_| Err(Close::policy("handshake timeout").into()))
        }
        () = crate::stopped(stopping) => Err(Close::new(1012, "service restart").into()),
    }
}

async fn steps<S>(socket: &mut Socket<S>, rpc: &Rpc, peer: Peer) -> Result<Entered, End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = mint::secret("nonce").map_err(|error| {
        tracing::error!(%error, "no randomness");
        End::from(Close::new(1011, "no challenge can be made"))
    })?;
    let challenge = json!({ "nonce": nonce, "ts": rpc.service.store().now().as_ms() });
    send(socket, frame::event("connect.challenge", &challenge)).await?;
    let request = first_request(socket).await?;
    match settle(rpc, &request, &nonce, peer).await {
        Ok((entered, hello)) => {
            send(socket, frame::response(&request.id, &Ok(hello))).await?;
            Ok(entered)
        }
        Err(Refused { failure, close }) => {
            send(socket, frame::response(&request.id, &Err(*failure))).await?;
            Err(close.into())
        }
    }
}

async fn first_request<S>(socket: &mut Socket<S>) -> Result<Request, End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let text = match socket.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => return Err(binary()),
            Some(Ok(_)) => continue,
            Some(Err(_)) if socket.get_ref().is_spent() => return Err(Close::new(1009, TOO_LARGE).into()),
            Some(Err(error)) => return Err(end_of(&error, TOO_LARGE)),
            None => return Err(End::Gone),
        };
        if text.len() > PREAUTH_BYTES {
            return Err(Close::new(1009, TOO_LARGE).into());
        }
        return match frame::read(&text) {
            Incoming::Request(request) => Ok(request),
            Incoming::NotJson | Incoming::Invalid { .. } => {
                Err(Close::policy("invalid request frame").into())
            }
        };
    }
}

/// Everything that has to be right, in order: parameters, version, role, device, credential.
async fn settle(rpc: &Rpc, request: &Request, nonce: &str, peer: Peer) -> Result<(Entered, Value), Refused> {
    let connect = connect::read(request)?;
    let now_ms = rpc.service.store().now().as_ms();
    let device = connect.device.as_ref().map(|shown| device::prove(shown, &connect, nonce, now_ms));
    let device = device.transpose()?;
    let caller = Caller { connect: &connect, device, peer: peer.address, is_local: peer.is_local };
    let granted = credentials::grant(rpc, &caller).await?;
    let id = mint::name("conn");
    let hello = hello(rpc, &id, &granted, now_ms);
    let Granted { principal, limit, scopes, device, held, .. } = granted;
    let connect::Connect { client, caps, .. } = connect;
    let client_id = client.id;
    let session = Arc::new(Session::new(Settled { id, client_id, caps, scopes, device, limit, principal }));
    let guest = rpc.shares.enter(&session.principal().id).map_err(|Exhausted| refusals::crowded())?;
    let (line, answers) = Line::new(guest);
    // Before hello: what is committed from now on is told after it.
    let open = Open { session: Arc::clone(&session), line: Arc::clone(&line), held };
    let member = rpc.hub.enter(open).await;
    Ok((Entered { session, line, answers, member }, hello))
}

fn hello(rpc: &Rpc, id: &str, granted: &Granted, now_ms: i64) -> Value {
    let mut auth = json!({ "method": granted.method, "role": "operator", "scopes": granted.scopes });
    if let Some((token, issued_at_ms)) = &granted.device_token {
        auth["deviceToken"] = token.as_str().into();
        auth["issuedAtMs"] = (*issued_at_ms).into();
    }
    json!({
        "type": "hello-ok",
        "protocol": PROTOCOL,
        "server": { "version": env!("CARGO_PKG_VERSION"), "connId": id },
        "features": { "methods": methods::METHODS, "events": methods::EVENTS },
        "snapshot": {
            "presence": [],
            "health": {},
            "stateVersion": { "presence": 0, "health": 0 },
            "uptimeMs": now_ms - rpc.started_at_ms,
        },
        "auth": auth,
        "policy": {
            "maxPayload": MAX_PAYLOAD,
            "maxBufferedBytes": EVENT_BYTES,
            "tickIntervalMs": TICK.as_millis(),
        },
    })
}

async fn send<S>(socket: &mut Socket<S>, text: String) -> Result<(), End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    socket.send(Message::text(text)).await.map_err(|_| End::Gone)
}
