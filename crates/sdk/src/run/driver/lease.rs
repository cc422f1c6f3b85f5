//! The lease on a run, kept in the background while this process works on it.

use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::Authority;
use holdgate_wire::LeaseRun;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// How soon a renewal that got no answer is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// A lease that is renewed until it is stopped or dropped.
pub(super) struct Lease {
    stop: Option<oneshot::Sender<()>>,
    renewing: JoinHandle<()>,
    lost: watch::Receiver<bool>,
}

impl Lease {
    /// Keeps the lease that was just taken with `fence`.
    pub(super) fn keep(authority: Arc<dyn Authority>, run: String, fence: u64, lease_ms: i64) -> Self {
        let lease = Duration::from_millis(lease_ms.unsigned_abs());
        let (stop, stopping) = oneshot::channel();
        let (losing, lost) = watch::channel(false);
        let renewing = tokio::spawn(async move {
            let keep = Keep { authority, run, fence, lease };
            if keep.until(stopping).await == Held::Lost {
                // Nobody listening means that the work is over.
                let _ = losing.send(true);
            }
        });
        Self { stop: Some(stop), renewing, lost }
    }

    /// Completes when the authority has said that the lease is another's.
    pub(super) async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // The renewing was stopped by us: it cannot be lost any more.
            std::future::pending().await
        }
    }

    /// Stops renewing, and waits for a renewal that is under way: it must not come after the run was let go.
    pub(super) async fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
            let _ = (&mut self.renewing).await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

#[derive(PartialEq)]
enum Held {
    Stopped,
    Lost,
}

struct Keep {
    authority: Arc<dyn Authority>,
    run: String,
    fence: u64,
    lease: Duration,
}

impl Keep {
    async fn until(&self, mut stopping: oneshot::Receiver<()>) -> Held {
        let mut next = self.lease / 3;
        loop {
            tokio::select! {
                _ = &mut stopping => return Held::Stopped,
                () = tokio::time::sleep(next) => {}
            }
            let renewal = LeaseRun { fence: Some(self.fence), release: false };
            let renewed = tokio::time::timeout(self.lease / 3, self.authority.lease_run(&self.run, renewal));
            next = match renewed.await {
                Ok(Ok(_)) => self.lease / 3,
                Ok(Err(error)) if !error.is_transient() => return Held::Lost,
                // Away is not lost: nothing can be written without the fence, whoever holds it by then.
                Ok(Err(_)) | Err(_) => RETRY.min(self.lease / 3),
            };
        }
    }
}
