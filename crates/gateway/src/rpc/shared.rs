//! One operator credential for everybody, as clients of the protocol may use it.
//!
//! Owns the two identities behind it. It is advisory: whoever has it is everybody who has it, so a connection that came
//! by it alone may only administer if it says so, and is an agent otherwise.

use holdgate_authority::Error;
use holdgate_authority::administration::new_credential;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Digest, Principal};
use holdgate_store::{Administration, Op, Store};

use crate::credential_hash;

/// The operator whom everybody is who asks to administer, and whose devices they are who show one.
pub(crate) const OPERATOR: &str = "shared-operator";
/// The agent who everybody else is.
pub(crate) const AGENT: &str = "shared-agent";

/// The shared operator credential of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct SharedOperator {
    /// SHA-256 of it.
    token: Digest,
}

impl SharedOperator {
    /// Makes `token` the shared operator credential. Its identities become known to the store; each has a credential
    /// that nobody knows, so that the shared one opens connections of the WebSocket protocol and nothing else.
    ///
    /// # Errors
    /// Fails if the store does, or without randomness.
    pub async fn provision(store: &dyn Store, token: &str) -> Result<Self, Error> {
        for (id, kind, label) in [
            (OPERATOR, PrincipalKind::Administrator, "Shared operator"),
            (AGENT, PrincipalKind::Agent, "Shared agent"),
        ] {
            let id = id.parse().expect("a fixed name is a valid id");
            let principal = Principal::new(id, kind, label);
            let unknown = new_credential(kind)?;
            let hash = credential_hash(&unknown);
            store.execute(Op::PutCredential { hash, principal, recovers: false }).await?;
        }
        Ok(Self { token: credential_hash(token) })
    }

    /// Ends the identities behind a shared credential, if there ever were any: this gateway takes none. Their devices
    /// stay what they are, with credentials of their own.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn withdraw(store: &dyn Store) -> Result<(), Error> {
        for id in [OPERATOR, AGENT] {
            let id = id.parse().expect("a fixed name is a valid id");
            let change = Administration::Revoke { id };
            // Most gateways never had any: then there is nothing to end.
            store.execute(Op::Administer { change, by: (&Principal::authority()).into() }).await?;
        }
        Ok(())
    }

    /// Whether a credential is the shared one. Both sides are hashes: how long this takes tells nothing.
    pub(crate) fn is(&self, token: Digest) -> bool {
        self.token == token
    }
}
