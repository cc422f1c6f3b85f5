//! What a reviewer's surface may show and do, as a pure machine.
//!
//! Owns the rules that keep a surface honest when sockets drop, replies are late and others answer first: which
//! methods are spoken, when a decision may be sent, what an acknowledgement proves, and what ends a card. Owns no
//! socket, no clock and no screen: [`Input`]s go in, [`Effect`]s and a [`View`] come out.
//!
//! - A card ends by the gateway's own record of it, never by a guess. While the outcome of a decision is not known,
//!   the card is frozen, across reconnects, until the record was read.
//! - A decision is taken on what was rendered: another rendering, another gateway or a reused id is another card.

mod call;
mod card;
mod choosing;
mod event;
mod family;
mod input;
mod machine;
mod record;
mod reply;
mod view;

pub use card::{CardKey, End, Origin, Shown};
pub use family::{Closed, Family};
pub use holdgate_core::requirement::Decision;
pub use input::{Call, Declined, Effect, Failure, Input, Refused, Tag};
pub use machine::Reviewing;
pub use view::{CardView, Link, State, View};
