//! The binary as people and scripts meet it: what it prints, where, and with which exit code.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod approvals;
mod away;
mod digest;
mod exec;
mod people;
mod reach;
mod serve;
mod teams;
mod watch;
mod world;
