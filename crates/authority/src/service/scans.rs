//! Who may go through many records at the same time.
//!
//! Owns the bounds: each identity goes through them once at a time, and few identities together, so that readers of the
//! store are left to others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use holdgate_core::PrincipalId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many scans go on at the same time.
const TOGETHER: usize = 2;

/// The scans under way and those that wait.
pub(super) struct Scans {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<PrincipalId, Weak<Semaphore>>>,
}

/// Leave to go through many records, until it is dropped.
pub(super) struct Scan {
    _own: OwnedSemaphorePermit,
    _among_all: OwnedSemaphorePermit,
}

impl Default for Scans {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(TOGETHER)), of: Mutex::default() }
    }
}

impl Scans {
    /// Leave for one identity. Its own scans wait for each other first, so that however many it asks for, others wait for
    /// one of them at most.
    pub(super) async fn begin(&self, by: &PrincipalId) -> Scan {
        let own = self.of(by);
        let own = own.acquire_owned().await.expect("nobody closes the semaphore");
        let all = Arc::clone(&self.all).acquire_owned().await.expect("nobody closes the semaphore");
        Scan { _own: own, _among_all: all }
    }

    fn of(&self, by: &PrincipalId) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = of.get(by).and_then(Weak::upgrade) {
            return own;
        }
        of.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        of.insert(by.clone(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_asks_for_many_scans_has_one_and_others_find_room() {
        let scans = Arc::new(Scans::default());
        let (eve, ann): (PrincipalId, PrincipalId) = ("eve".parse().unwrap(), "ann".parse().unwrap());
        let first = scans.begin(&eve).await;
        let (held, more) = (Arc::clone(&scans), eve.clone());
        let waiting = tokio::spawn(async move { held.begin(&more).await });
        tokio::task::yield_now().await;
        drop(scans.begin(&ann).await);
        assert!(!waiting.is_finished());
        drop(first);
        drop(waiting.await.unwrap());
        drop(scans.begin(&ann).await);
        assert!(scans.of.lock().unwrap().len() <= 1, "who has left is forgotten");
    }
}
