//! Test support: a clock that tests move, a store that fails when told to, the contract of every store, and a
//! running gateway with people and agents to speak to it, and a raw client of its WebSocket protocol.
//!
//! Only ever a dev-dependency. Owns no behaviour that a product could use.

pub mod clock;
pub mod contract;
pub mod counting;
pub mod faulty;
#[cfg(feature = "gateway")]
pub mod gateway;
pub mod process;
#[cfg(feature = "v4")]
pub mod v4;

pub use clock::ManualClock;
pub use counting::Counting;
pub use faulty::{Fault, Faulty};
