//! Every promise of a store, kept by SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use holdgate_store::Store;
use holdgate_testkit::ManualClock;
use holdgate_testkit::contract::Backend;

use crate::stage::Database;

#[async_trait]
impl Backend for Database {
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        self.store(clock)
    }

    async fn hold(&self) -> Box<dyn Send> {
        let writer = self.raw();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        Box::new(writer)
    }
}

holdgate_testkit::store_contract!(Database::new());
