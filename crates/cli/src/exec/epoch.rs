//! The epoch of this process: as long as it lives, the authority knows that somebody waits.
//!
//! Owns the renewing in the background. When we die, the epoch lapses by itself and the request ends as
//! `caller-lost`.

use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use tokio::task::JoinHandle;

/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// An epoch that is being renewed until it is dropped.
pub struct Epoch {
    /// Its name.
    pub name: String,
    renewing: JoinHandle<()>,
}

impl Epoch {
    /// Begins an epoch and keeps it.
    ///
    /// # Errors
    /// The authority cannot be reached or refuses.
    pub async fn begin(authority: Arc<dyn Authority>) -> Result<Self, Error> {
        let runtime = authority.start_runtime().await?;
        let lease = Duration::from_millis(runtime.lease_ms.unsigned_abs());
        let name = runtime.epoch;
        let renewing = tokio::spawn(keep(authority, name.clone(), lease));
        Ok(Self { name, renewing })
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews at a third of the lease, and keeps trying while the gateway is away: a gateway that starts again grants
/// every caller one full lease. Only a definite "no" ends it.
async fn keep(authority: Arc<dyn Authority>, name: String, lease: Duration) {
    let mut next = lease / 3;
    loop {
        tokio::time::sleep(next).await;
        next = match tokio::time::timeout(lease, authority.renew_runtime(&name)).await {
            Ok(Ok(_)) => lease / 3,
            Ok(Err(error)) if !error.is_transient() => return,
            Ok(Err(_)) | Err(_) => RETRY.min(lease / 3),
        };
    }
}
