//! Writes down what time has decided, and keeps the gateway's own epoch alive.
//!
//! Only a wake-up: reads and commits judge deadlines and leases by themselves.

use std::sync::Arc;
use std::time::Duration;

use holdgate_core::Principal;
use holdgate_core::limits::RUNTIME_LEASE_MS;
use holdgate_store::{Answer, Op, Outcome, StoreError};

use crate::service::Service;

/// Most records that one sweep writes: others get their turn between two.
const BATCH: u32 = 256;
/// The longest sleep between two looks, in case the next instant moved without notice.
const LONGEST: Duration = Duration::from_secs(1);

impl Service {
    /// Sweeps until it is dropped or aborted.
    pub async fn keep(self: Arc<Self>) {
        let renew_every = Duration::from_millis(RUNTIME_LEASE_MS.unsigned_abs() / 3);
        let mut renew = tokio::time::interval(renew_every);
        loop {
            let pause = match self.sweep().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "a sweep failed; the next one makes up for it");
                    LONGEST
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = renew.tick() => self.renew_own_epoch().await,
            }
        }
    }

    /// Sweeps what is due; answers how long nothing more will be.
    async fn sweep(&self) -> Result<Duration, StoreError> {
        let store = self.store();
        let Some(due) = store.next_due().await? else {
            return Ok(LONGEST);
        };
        if due.reached_at(store.now()) {
            let outcome = store.execute(Op::Sweep { limit: BATCH }).await?;
            if matches!(outcome, Outcome::Committed(Answer::Swept(count)) if count > 0) {
                return Ok(Duration::ZERO);
            }
            return Ok(LONGEST);
        }
        Ok(Duration::from_millis(due.ms_after(store.now()).unsigned_abs()).min(LONGEST))
    }

    async fn renew_own_epoch(&self) {
        let Some(epoch) = self.own_epoch().cloned() else {
            return;
        };
        if let Err(error) = self.renew_runtime(&epoch, &Principal::authority().id).await {
            tracing::error!(%error, "this gateway's epoch could not be renewed; requests bound to it will end");
        }
    }
}
