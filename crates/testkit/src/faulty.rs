//! A store that fails when it is told to: before a change, after it with the reply lost, or late.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use holdgate_core::{Kind, Principal, PrincipalId, Run, RunId, Time};
use holdgate_store::{
    Administered, Credential, Filter, Freeze, HistoryFilter, Identity, JournalEntry, Notice, Op, Outcome,
    Place, Recorded, Seen, Store, StoreError,
};
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

    async fn approval(&self, locator: &str) -> Result<Option<Seen>, StoreError> {
        self.inner.approval(locator).await
    }

    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError> {
        self.inner.approvals(filter).await
    }

    async fn history(&self, filter: HistoryFilter) -> Result<Vec<Seen>, StoreError> {
        self.inner.history(filter).await
    }

    async fn pending_of_session(
        &self,
        session_key: &str,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Vec<Seen>, StoreError> {
        self.inner.pending_of_session(session_key, after, limit).await
    }

    async fn events(&self, after: u64, limit: u32) -> Result<Vec<Recorded>, StoreError> {
        self.inner.events(after, limit).await
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

    async fn identity(&self, id: &PrincipalId) -> Result<Option<Identity>, StoreError> {
        self.inner.identity(id).await
    }

    async fn identities(&self) -> Result<Vec<Identity>, StoreError> {
        self.inner.identities().await
    }

    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.inner.freezes().await
    }

    async fn administration(&self, after: u64, limit: u32) -> Result<Vec<Administered>, StoreError> {
        self.inner.administration(after, limit).await
    }

    async fn pending_counts(&self) -> Result<Vec<(Kind, u64)>, StoreError> {
        self.inner.pending_counts().await
    }

    fn notices(&self) -> broadcast::Receiver<Notice> {
        self.inner.notices()
    }
}
