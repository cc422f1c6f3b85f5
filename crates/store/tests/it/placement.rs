//! Files that are removed or replaced while they are in use: nothing is acknowledged into them.

use std::fs;
use std::path::PathBuf;

use holdgate_core::approval::Binding;
use holdgate_core::requirement::Decision;
use holdgate_store::{Op, Store, StoreError};

use crate::stage::{Database, ask, clock, commit, populate, vote};

fn log_of(database: &Database) -> PathBuf {
    format!("{}-wal", database.path().display()).into()
}

/// Its name, and how it is done.
type Attack = (&'static str, fn(&Database));

/// What somebody does to the files of a running gateway.
const ATTACKS: [Attack; 5] = [
    ("everything removed", |database| {
        for file in fs::read_dir(database.path().parent().unwrap()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }),
    ("the database removed", |database| fs::remove_file(database.path()).unwrap()),
    ("the log removed", |database| fs::remove_file(log_of(database)).unwrap()),
    ("another file in the database's place", |database| {
        let other = database.path().with_file_name("other.db");
        fs::copy(database.path(), &other).unwrap();
        fs::rename(other, database.path()).unwrap();
    }),
    ("another file in the log's place", |database| {
        let other = database.path().with_file_name("other-wal");
        fs::write(&other, "").unwrap();
        fs::rename(other, log_of(database)).unwrap();
    }),
];

#[tokio::test]
async fn nothing_is_acknowledged_into_files_that_are_gone() {
    for (attack, perform) in ATTACKS {
        let database = Database::new();
        let store = database.store(clock());
        let epoch = populate(&*store).await;
        let asked = commit(&*store, ask(Binding::Runtime(epoch), "t:1")).await;
        perform(&database);
        let voted = store.execute(vote(&asked, Decision::AllowOnce)).await;
        let Err(StoreError::Failed(why)) = voted else { panic!("{attack}: {voted:?}") };
        assert!(why.contains("holdgate.db") && why.contains("while it was in use"), "{attack}: {why}");
        assert_closes(&*store, attack).await;
    }
}

#[tokio::test]
async fn an_idle_store_notices_too() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    fs::remove_file(log_of(&database)).unwrap();
    assert!(matches!(store.execute(Op::Sweep { limit: 0 }).await, Err(StoreError::Failed(_))));
    assert_closes(&*store, "the log removed").await;
}

#[tokio::test]
async fn what_was_acknowledged_before_the_log_was_removed_is_kept_when_the_store_closes() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let asked = commit(&*store, ask(Binding::Runtime(epoch), "t:1")).await;
    fs::remove_file(log_of(&database)).unwrap();
    assert!(store.execute(vote(&asked, Decision::AllowOnce)).await.is_err());
    store.close().await;
    drop(store);
    let again = database.store(clock());
    assert!(again.approval(asked.id.as_str()).await.unwrap().is_some());
}

/// Whoever watches the store is told that it is over.
async fn assert_closes(store: &dyn Store, attack: &str) {
    // Queued before the writer has ended, it is nobody's to answer; after, it is refused.
    let mut last = Ok(());
    for _ in 0..100 {
        last = store.execute(Op::Sweep { limit: 0 }).await.map(drop);
        match &last {
            Err(StoreError::Closed) => return,
            Err(StoreError::Unknown(_)) => tokio::task::yield_now().await,
            _ => break,
        }
    }
    panic!("{attack}: {last:?}");
}
