//! The WebSocket protocol, version 4, from the side of a client.
//!
//! Owns the handshake, frames, their bounds, the watch over silence, and [`Surface`], the loop that keeps a
//! reviewer's surface connected and does what [`crate::reviewing`] asks. Owns no rule about approvals and no
//! storage: keys and tokens are given, and what a gateway grants is given back. No credential is ever printed.
//!
//! Speaks plain `ws://` to this machine only, as the HTTP client does; TLS is not spoken yet.

mod address;
mod connection;
mod credential;
mod frame;
mod handshake;
mod surface;

pub use address::Address;
pub use connection::{Connection, Incoming, SendError};
pub use credential::{Credential, Identity, Secret};
pub use frame::Close;
pub use handshake::{ConnectError, Hello, Profile};
pub use surface::{Snapshot, Status, Surface, Unavailable};

/// The version that is spoken.
pub const PROTOCOL: u64 = 4;
