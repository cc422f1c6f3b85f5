//! The WebSocket protocol, version 4: what clients of the OpenClaw gateway speak.
//!
//! Owns framing, the handshake, methods and events. Decides nothing: every method is an adapter over the same service
//! and the same rule of access as HTTP. `docs/protocol.md` lists where this departs from the recorded protocol.

mod attempts;
mod connect;
mod credentials;
mod device;
mod events;
mod frame;
mod handshake;
mod hub;
mod line;
mod methods;
mod params;
mod projection;
mod refusals;
mod session;
mod shared;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod upgrade;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::Service;
use holdgate_core::limits::BODY_BYTES;

pub use holdgate_authority::administration::pairing_code_hash;
pub use shared::SharedOperator;
pub(crate) use upgrade::{accept, is_wanted};

use crate::shares::Shares;
use attempts::Attempts;
use hub::Hub;

/// The protocol version that is spoken.
pub(crate) const PROTOCOL: u32 = 4;
/// How often every connection hears a `tick`.
const TICK: Duration = Duration::from_secs(30);
/// The largest frame and message, once a handshake has succeeded: what a request over HTTP may hold.
const MAX_PAYLOAD: usize = BODY_BYTES;
/// The same before that.
const PREAUTH_BYTES: usize = 64 << 10;

/// What every connection and method may use.
#[derive(Clone)]
pub(crate) struct Rpc {
    /// The authority.
    pub(crate) service: Arc<Service>,
    /// Who is connected.
    pub(crate) hub: Arc<Hub>,
    /// What each identity may take at once.
    pub(crate) shares: Arc<Shares>,
    /// Who was wrong how often.
    attempts: Arc<Attempts>,
    /// The shared operator credential, if there is one.
    shared: Option<SharedOperator>,
    started_at_ms: i64,
}

impl Rpc {
    /// Serves nobody yet.
    pub(crate) fn new(service: Arc<Service>, shares: Arc<Shares>, shared: Option<SharedOperator>) -> Self {
        let started_at_ms = service.store().now().as_ms();
        let hub = Hub::new(Arc::clone(&service));
        Self { service, hub, shares, attempts: Arc::new(Attempts::new()), shared, started_at_ms }
    }

    /// Counts a pairing code before it is looked at, on whichever way it came.
    ///
    /// # Errors
    /// Too many came from this address, or in all: how long to wait.
    pub(crate) fn may_try_a_code(&self, peer: IpAddr) -> Result<(), Duration> {
        self.attempts.code(peer)
    }
}
