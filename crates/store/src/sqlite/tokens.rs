//! Identities by their token, kept in memory: knowing the caller of a request costs no read.
//!
//! Only what a request may begin with: each operation loads its identity again, under the lock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdgate_core::{Digest, Principal};

/// Most tokens that are remembered; then it starts over.
const KNOWN: usize = 4_096;

/// The tokens that were looked up since any of them changed.
#[derive(Default)]
pub(super) struct Tokens {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    generation: u64,
    principals: HashMap<Digest, Principal>,
}

impl Tokens {
    /// The identity behind a token, if it is remembered; else what to remember a look-up with.
    pub(super) fn get(&self, hash: &Digest) -> Result<Principal, u64> {
        let known = self.lock();
        known.principals.get(hash).cloned().ok_or(known.generation)
    }

    /// Remembers what a look-up that began at `generation` found. If a token has changed since, it may have found
    /// what is no longer so.
    pub(super) fn remember(&self, generation: u64, hash: Digest, principal: &Principal) {
        let mut known = self.lock();
        if known.generation != generation {
            return;
        }
        if known.principals.len() >= KNOWN {
            known.principals.clear();
        }
        known.principals.insert(hash, principal.clone());
    }

    /// Forgets all: a token has changed.
    pub(super) fn forget(&self) {
        let mut known = self.lock();
        known.generation += 1;
        known.principals.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_up_before_a_change_is_not_remembered_after_it() {
        let (tokens, hash) = (Tokens::default(), Digest::of(b"token"));
        let principal = Principal::authority();
        let before = tokens.get(&hash).unwrap_err();
        tokens.forget();
        tokens.remember(before, hash, &principal);
        let now = tokens.get(&hash).unwrap_err();
        tokens.remember(now, hash, &principal);
        assert_eq!(tokens.get(&hash), Ok(principal));
        tokens.forget();
        assert!(tokens.get(&hash).is_err());
    }
}
