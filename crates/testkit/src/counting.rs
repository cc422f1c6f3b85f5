//! A store that counts what is asked of it, around a real one: two answers that took the same way asked for the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use holdgate_core::{Kind, Principal, PrincipalId, Run, RunId, Time};
use holdgate_store::{
    Administered, Credential, Filter, Freeze, HistoryFilter, Identity, JournalEntry, Notice, Op, Outcome,
    Place, Recorded, Seen, Store, StoreError,
};
use tokio::sync::broadcast;

/// How often what was asked, by the name of the method, and of operations by what they are about.
pub type Calls = BTreeMap<&'static str, u64>;

/// A store that counts.
pub struct Counting {
    inner: Arc<dyn Store>,
    calls: Mutex<Calls>,
}

impl Counting {
    /// Around this store.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, calls: Mutex::default() })
    }

    /// What was asked since this was called last, but for what a gateway asks by itself.
    pub fn take(&self) -> Calls {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self, name: &'static str) {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }
}

#[async_trait]
impl Store for Counting {
    async fn execute(&self, op: Op) -> Result<Outcome, StoreError> {
        match &op {
            Op::Apply { .. } => self.count("apply"),
            Op::Open { .. } => self.count("open"),
            // Among these is what a gateway does by itself.
            _ => {}
        }
        self.inner.execute(op).await
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    async fn approval(&self, locator: &str) -> Result<Option<Seen>, StoreError> {
        self.count("approval");
        self.inner.approval(locator).await
    }

    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError> {
        self.count("approvals");
        self.inner.approvals(filter).await
    }

    async fn history(&self, filter: HistoryFilter) -> Result<Vec<Seen>, StoreError> {
        self.count("history");
        self.inner.history(filter).await
    }

    async fn pending_of_session(
        &self,
        session_key: &str,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Vec<Seen>, StoreError> {
        self.count("pending_of_session");
        self.inner.pending_of_session(session_key, after, limit).await
    }

    async fn events(&self, after: u64, limit: u32) -> Result<Vec<Recorded>, StoreError> {
        self.count("events");
        self.inner.events(after, limit).await
    }

    async fn next_due(&self) -> Result<Option<Time>, StoreError> {
        self.inner.next_due().await
    }

    async fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.count("run");
        self.inner.run(id).await
    }

    async fn run_events(&self, id: &RunId, after: u64, limit: u32) -> Result<Vec<JournalEntry>, StoreError> {
        self.count("run_events");
        self.inner.run_events(id, after, limit).await
    }

    async fn credential(&self, credential: Credential) -> Result<Option<Principal>, StoreError> {
        self.count("credential");
        self.inner.credential(credential).await
    }

    async fn identity(&self, id: &PrincipalId) -> Result<Option<Identity>, StoreError> {
        self.count("identity");
        self.inner.identity(id).await
    }

    async fn identities(&self) -> Result<Vec<Identity>, StoreError> {
        self.count("identities");
        self.inner.identities().await
    }

    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.count("freezes");
        self.inner.freezes().await
    }

    async fn administration(&self, after: u64, limit: u32) -> Result<Vec<Administered>, StoreError> {
        self.count("administration");
        self.inner.administration(after, limit).await
    }

    async fn pending_counts(&self) -> Result<Vec<(Kind, u64)>, StoreError> {
        self.inner.pending_counts().await
    }

    fn notices(&self) -> broadcast::Receiver<Notice> {
        self.inner.notices()
    }
}
