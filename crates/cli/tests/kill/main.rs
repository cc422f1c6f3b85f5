//! kill -9 of runner, gateway and exec at every step between request and receipt.
//!
//! The invariants are checked over what the processes left behind: a log of side effects, and the authority's records.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod exec;
mod proxy;
mod restart;
mod runner;
mod world;
