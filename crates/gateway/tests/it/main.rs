//! The gateway over real HTTP and a real store, spoken to by people, agents and strangers.

mod access;
mod attacks;
mod contract;
mod doors;
mod lifetime;
mod runs;
mod web;
