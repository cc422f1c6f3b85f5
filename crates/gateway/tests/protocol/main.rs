//! The gateway as a peer of programs that speak version 4 of the OpenClaw gateway protocol: its answers beside
//! recorded ones, and every frame against the published schema.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod beyond;
mod foreign;
mod normal;
mod ours;
mod probe;
mod recording;
mod schema;
