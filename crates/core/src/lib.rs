//! The domain of Holdgate: what an approval is and what may happen to it.
//!
//! Owns every rule that decides whether an action may run. Owns no I/O, no clock, no randomness and
//! nothing asynchronous: time and ids come in with the call.

pub mod action;
pub mod presentation;
