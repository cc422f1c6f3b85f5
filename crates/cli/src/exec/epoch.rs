//! The epoch of this process: as long as it lives, the authority knows that somebody waits.
//!
//! Owns the renewing in the background and the knowledge of whether the lease still holds. When we die, it lapses by
//! itself and the request ends as `caller-lost`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// An epoch that is being renewed until it is dropped.
pub struct Epoch {
    /// Its name.
    pub name: String,
    authority: Arc<dyn Authority>,
    held_until: Arc<Mutex<Instant>>,
    renewing: JoinHandle<()>,
}

impl Epoch {
    /// Begins an epoch and keeps it.
    ///
    /// # Errors
    /// The authority cannot be reached or refuses.
    pub async fn begin(authority: Arc<dyn Authority>) -> Result<Self, Error> {
        let asked = Instant::now();
        let runtime = authority.start_runtime().await?;
        let lease = Duration::from_millis(runtime.lease_ms.unsigned_abs());
        let held_until = Arc::new(Mutex::new(asked + lease));
        let renewing = tokio::spawn(keep(authority.clone(), runtime.epoch.clone(), lease, held_until.clone()));
        Ok(Self { name: runtime.epoch, authority, held_until, renewing })
    }

    /// Whether the authority counts this process as alive, as far as can be told: by our own clock, or by asking.
    ///
    /// # Errors
    /// It does not, or it cannot be asked.
    pub async fn confirm(&self) -> Result<(), Error> {
        if Instant::now() < *self.held_until.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(());
        }
        self.authority.renew_runtime(&self.name).await.map(|_| ())
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews at a third of the lease, and keeps trying while the gateway is away: a gateway that starts again grants
/// every caller one full lease. Only a definite "no" ends it.
async fn keep(authority: Arc<dyn Authority>, name: String, lease: Duration, held_until: Arc<Mutex<Instant>>) {
    let mut next = lease / 3;
    loop {
        tokio::time::sleep(next).await;
        // From before the call: the authority cannot have counted from earlier than that.
        let asked = Instant::now();
        next = match tokio::time::timeout(lease, authority.renew_runtime(&name)).await {
            Ok(Ok(_)) => {
                *held_until.lock().unwrap_or_else(PoisonError::into_inner) = asked + lease;
                lease / 3
            }
            Ok(Err(error)) if !error.is_transient() => return,
            Ok(Err(_)) | Err(_) => RETRY.min(lease / 3),
        };
    }
}
