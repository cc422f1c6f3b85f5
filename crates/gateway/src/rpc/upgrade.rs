//! From an HTTP request to a WebSocket.
//!
//! Owns the upgrade. Neither extensions nor subprotocols are ever accepted. That the request came under our own name
//! and from no foreign page, the guard has checked before.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{Rpc, socket};
use crate::reach::{ClientAddress, came_through_a_proxy};
use crate::shares::Guest;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its address.
    pub(crate) address: IpAddr,
    /// Whether it is on this machine.
    pub(crate) is_local: bool,
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_wanted(request: &Request) -> bool {
    request.method() == Method::GET && lists(request.headers(), &UPGRADE, "websocket")
}

/// Makes a WebSocket of a request's connection, and serves it from then on.
///
/// # Errors
/// What is wrong with the request.
pub(crate) fn accept(
    rpc: Rpc,
    stranger: Guest,
    stopping: watch::Receiver<bool>,
    mut request: Request,
) -> Result<Response<Body>, &'static str> {
    let headers = request.headers();
    if !lists(headers, &CONNECTION, "upgrade") {
        return Err("the header Connection does not say Upgrade");
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err("the header Sec-WebSocket-Version is not 13");
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or("the header Sec-WebSocket-Key is missing")?;
    let key = derive_accept_key(key.as_bytes());
    let peer = peer(&request);
    let upgrading = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrading.await {
            Ok(upgraded) => socket::serve(TokioIo::new(upgraded), rpc, (peer, stranger), stopping).await,
            Err(error) => tracing::debug!(%error, "a connection broke before it was upgraded"),
        }
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, key)
        .body(Body::empty());
    response.map_err(|_| "the header Sec-WebSocket-Key is not one")
}

/// Who asks. Whoever comes through a proxy, a named one or not, counts as being somewhere else: what this machine's own
/// programs may do is not for everybody whom a proxy lets through.
fn peer(request: &Request) -> Peer {
    let connected =
        request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_canonical());
    let client = request.extensions().get::<ClientAddress>().map(|client| client.0.to_canonical());
    let is_proxied = came_through_a_proxy(request.headers());
    let is_local = !is_proxied && [connected, client].into_iter().flatten().all(|ip| ip.is_loopback());
    let address = client.or(connected);
    Peer {
        is_local: is_local && address.is_some(),
        address: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    }
}

/// Whether a header lists a word.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|line| line.split(',')).any(|item| item.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_through_something_in_between_is_not_on_this_machine() {
        let from = |headers: &[&str]| {
            let mut request = Request::builder().uri("/");
            for name in headers {
                request = request.header(*name, "127.0.0.1");
            }
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))));
            peer(&request)
        };
        assert!(from(&["user-agent"]).is_local);
        for name in
            ["Forwarded", "X-Forwarded-Host", "X-Real-IP", "Via", "CF-Connecting-IP", "True-Client-IP"]
        {
            assert!(!from(&["user-agent", name]).is_local, "{name}");
        }
    }
}
