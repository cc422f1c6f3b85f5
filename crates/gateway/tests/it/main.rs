//! The gateway over real HTTP and a real store, spoken to by people, agents and strangers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod attacks;
mod canary;
mod contract;
mod doors;
mod lifetime;
mod matrix;
mod observed;
mod pages;
mod people;
mod reach;
mod reached;
mod runs;
mod web;
