//! The WebSocket itself: who gets in, what a broken peer costs, and who hears of what.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod broken;
mod doors;
mod events;
mod stage;
