//! The client's tests: against a server that misbehaves on purpose, and against a real gateway.

mod lost;
mod parity;
mod scripted;
