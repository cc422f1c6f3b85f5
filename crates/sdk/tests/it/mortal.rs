//! A process that dies at a chosen step: before a call of the authority, after it with the reply lost, or inside a
//! tool. What it was doing is dropped where it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use holdgate_authority::{Authority, Created, Error};
use holdgate_wire::{
    AppendEvents, Appended, Approval, ApprovalPage, Cancel, Claim, CreateApproval, CreateRun, Decide,
    Decided, JournalPage, LeaseRun, ListApprovals, MakeClaim, Run, Runtime, Settle,
};
use tokio::sync::Notify;

/// Burns down one step at a time. At zero the process dies.
#[derive(Clone)]
pub struct Fuse {
    left: Arc<AtomicUsize>,
    dead: Arc<Notify>,
}

impl Fuse {
    pub fn of(steps: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(steps)), dead: Arc::default() }
    }

    pub async fn burn(&self) {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.unwrap_or(0) <= 1 {
            self.dead.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Runs `life` until it ends (`Some`) or dies.
    pub async fn cut<T>(&self, life: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            ended = life => Some(ended),
            () = self.dead.notified() => None,
        }
    }
}

/// The authority as a mortal process calls it.
pub struct Mortal {
    pub inner: Arc<dyn Authority>,
    pub fuse: Fuse,
}

/// The authority with leases that must be renewed every few milliseconds.
pub struct Hasty(pub Arc<dyn Authority>);

macro_rules! authorities {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Authority for Mortal {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$answer, Error> {
                self.fuse.burn().await;
                let answer = self.inner.$name($($arg),*).await;
                self.fuse.burn().await;
                answer
            })*

            async fn lease_run(&self, id: &str, lease: LeaseRun) -> Result<Run, Error> {
                self.fuse.burn().await;
                let answer = self.inner.lease_run(id, lease).await;
                self.fuse.burn().await;
                answer
            }
        }

        #[async_trait]
        impl Authority for Hasty {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$answer, Error> {
                self.0.$name($($arg),*).await
            })*

            async fn lease_run(&self, id: &str, lease: LeaseRun) -> Result<Run, Error> {
                let run = self.0.lease_run(id, lease).await?;
                Ok(Run { lease_ms: 30, ..run })
            }
        }
    };
}

authorities! {
    create(request: CreateApproval, key: Option<&str>) -> Created;
    get(id: &str) -> Approval;
    wait(id: &str, timeout: Duration) -> Approval;
    list(query: ListApprovals) -> ApprovalPage;
    decide(id: &str, decision: Decide) -> Decided;
    claim(id: &str, claim: MakeClaim) -> Claim;
    settle(id: &str, settle: Settle) -> Approval;
    cancel(id: &str, cancel: Cancel) -> Approval;
    history(query: holdgate_wire::ListHistory) -> ApprovalPage;
    revoke(id: &str, revoke: holdgate_wire::Revoke) -> Approval;
    put_session(key: &str, session: holdgate_wire::PutSession) -> ();
    end_runtime(epoch: &str) -> ();
    abort_run(id: &str) -> u32;
    start_runtime() -> Runtime;
    renew_runtime(epoch: &str) -> Runtime;
    create_run(run: CreateRun) -> Run;
    run(id: &str) -> Run;
    append(id: &str, append: AppendEvents) -> Appended;
    journal(id: &str, after: u64) -> JournalPage;
}
