//! The SQLite store from outside: the contract of every store, and what only a file can show.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the answer")]

mod batches;
mod checks;
mod contract;
mod damage;
mod faults;
mod notices;
mod opening;
mod placement;
mod stage;
