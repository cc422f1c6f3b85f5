//! The reviewer page in a real browser, against a running gateway. Each state is reached as it would be in life.

mod chrome;
mod proxy;
mod stage;

mod answering;
mod looks;
mod losing_touch;
mod opening;
