//! The WebSocket protocol, version 4: what clients of the OpenClaw gateway speak.
//!
//! Owns framing, the handshake, methods and events. Decides nothing: every method is an adapter over the same service
//! and the same rule of access as HTTP. `docs/protocol.md` lists where this departs from the recorded protocol.

mod frame;
mod session;

use std::sync::Arc;

use holdgate_authority::Service;

/// The protocol version that is spoken.
pub(crate) const PROTOCOL: u32 = 4;

/// What every connection and method may use.
#[derive(Clone)]
pub(crate) struct Rpc {
    /// The authority.
    pub(crate) service: Arc<Service>,
}
