//! The reviewer page in a real browser, against a running gateway. Each state is reached as it would be in life.

mod chrome;
mod proxy;
#[path = "../it/reached.rs"]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod reached;
mod stage;

mod answering;
mod looks;
mod losing_touch;
mod opening;
mod pairing;
mod reach;
mod several;
