//! Runs over a real store: told as stories, cut at every step, and given every bad answer.

#![expect(clippy::unwrap_used, reason = "a test whose world does not stand has failed")]

mod crash;
mod denial;
mod integrity;
mod lease;
mod mortal;
mod story;
mod team;
mod team_crash;
mod world;
