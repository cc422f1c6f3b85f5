//! The client's tests: against a server that misbehaves on purpose, and against a real gateway.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod any_order;
mod desk;
mod listing;
mod lost;
mod parity;
mod peer;
mod reviewing;
mod scripted;
mod socket;
mod surface;
