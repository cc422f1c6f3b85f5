//! The approval authority over the network.
//!
//! Owns [`Remote`]: the same calls as a local authority, and what to do when an answer is late, lost or not the
//! answer to what was asked. A call that is safe to repeat is repeated; one that is not is read back. Owns no
//! transition and no credential store.
//!
//! For reviewers it owns two more layers: [`reviewing`], the pure rules of what a surface may show and send, and
//! [`socket`], the WebSocket protocol and the loop that follows those rules.

mod admin;
mod append;
mod asked;
mod call;
mod decide;
mod endpoint;
mod lease;
mod patience;
mod remote;
pub mod reviewing;
pub mod socket;

pub use admin::Stranger;
pub use endpoint::InvalidEndpoint;
pub use remote::Remote;
