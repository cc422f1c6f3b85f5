//! Many at once: resolvers that race, thousands of connected reviewers, agents that flood.
//!
//! Nothing here asserts how long something takes; what is asserted is who wins, who is told what, and who comes through.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crowd;
mod flood;
mod races;
mod stage;
