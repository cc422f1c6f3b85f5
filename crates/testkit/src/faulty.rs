//! A store that fails when it is told to: before a change, after it with the reply lost, or late.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use holdgate_core::{ApprovalId, Principal, Run, RunId, Time};
use holdgate_store::{Credential, Filter, JournalEntry, Op, Outcome, Seen, Store, StoreError};
use tokio::sync::{broadcast, oneshot};

/// What goes wrong with one operation.
#[derive(Debug)]
pub enum Fault {
    /// It fails before anything is changed.
    Fails,
    /// It is done, but the reply is lost: the caller hears that nobody knows.
    LosesReply,
    /// It waits until the sender is used or dropped, and is done then.
    Waits(oneshot::Receiver<()>),
}

/// Any store, with faults. Without any armed it behaves as the store that it wraps.
pub struct Faulty {
    inner: Arc<dyn Store>,
    armed: Mutex<Vec<Armed>>,
}

struct Armed {
    on: fn(&Op) -> bool,
    fault: Fault,
}

impl Faulty {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, armed: Mutex::new(Vec::new()) })
    }

    /// Arms one fault for the next operation that `on` picks. Several are used up in the order they were armed.
    pub fn arm(&self, on: fn(&Op) -> bool, fault: Fault) {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).push(Armed { on, fault });
    }

    fn fault(&self, op: &Op) -> Option<Fault> {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let index = armed.iter().position(|armed| (armed.on)(op))?;
        Some(armed.remove(index).fault)
    }
}

#[async_trait]
impl Store for Faulty {
    async fn execute(&self, op: Op) -> Result<Outcome, StoreError> {
        match self.fault(&op) {
            None => self.inner.execute(op).await,
            Some(Fault::Fails) => Err(StoreError::Failed("a fault was armed".to_owned())),
            Some(Fault::LosesReply) => {
                self.inner.execute(op).await?;
                Err(StoreError::Unknown("a fault was armed".to_owned()))
            }
            Some(Fault::Waits(until)) => {
                // A dropped sender releases it as well.
                let _ = until.await;
                self.inner.execute(op).await
            }
        }
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<Seen>, StoreError> {
        self.inner.approval(id).await
    }

    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError> {
        self.inner.approvals(filter).await
    }

    async fn next_due(&self) -> Result<Option<Time>, StoreError> {
        self.inner.next_due().await
    }

    async fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.inner.run(id).await
    }

    async fn run_events(&self, id: &RunId, after: u64, limit: u32) -> Result<Vec<JournalEntry>, StoreError> {
        self.inner.run_events(id, after, limit).await
    }

    async fn credential(&self, credential: Credential) -> Result<Option<Principal>, StoreError> {
        self.inner.credential(credential).await
    }

    fn changes(&self) -> broadcast::Receiver<ApprovalId> {
        self.inner.changes()
    }
}
