//! Group commit: many operations to a transaction, each undone alone, all unknown together.

use std::collections::BTreeSet;

use holdgate_core::approval::Binding;
use holdgate_core::requirement::Decision;
use holdgate_store::{Notice, Op, Store, StoreError};

use crate::stage::{Database, agent, ask, by, clock, commit, populate, vote};

/// A trigger that only a test makes: what `boundary` it names fails in `how`.
fn sabotage(database: &Database, boundary: &str, how: &str) {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS nobody (id TEXT PRIMARY KEY) STRICT;
         CREATE TABLE IF NOT EXISTS dangling (id TEXT REFERENCES nobody (id) DEFERRABLE INITIALLY DEFERRED) STRICT;
         CREATE TRIGGER sabotage AFTER INSERT ON approvals WHEN NEW.boundary = '{boundary}' BEGIN {how}; END;"
    );
    database.raw().execute_batch(&sql).unwrap();
}

/// Makes COMMIT itself fail: a deferred foreign key is checked there.
const AT_COMMIT: &str = "INSERT INTO dangling VALUES ('missing')";

#[tokio::test]
async fn many_operations_share_few_transactions() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let before = store.stats();
    // One thread hands in all 64 before it waits for any.
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..64 {
        let (store, op) = (store.clone(), ask(Binding::Runtime(epoch.clone()), &format!("t:{n}")));
        tasks.spawn(async move { commit(&*store, op).await });
    }
    let opened = tasks.join_all().await;
    let after = store.stats();
    assert_eq!((opened.len(), after.ops - before.ops), (64, 64));
    assert!(after.batches - before.batches <= 16, "{} batches", after.batches - before.batches);
}

#[tokio::test]
async fn what_changes_nothing_costs_no_transaction() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let asked = commit(&*store, ask(Binding::Runtime(epoch), "t:1")).await;
    commit(&*store, vote(&asked, Decision::Deny)).await;
    let before = store.stats();
    store.execute(vote(&asked, Decision::Deny)).await.unwrap();
    store.execute(vote(&asked, Decision::AllowOnce)).await.unwrap();
    store.execute(Op::Sweep { limit: 10 }).await.unwrap();
    assert_eq!(store.stats(), before);
}

#[tokio::test]
async fn an_operation_that_fails_is_undone_alone() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    sabotage(&database, "t:bad", "SELECT RAISE(ABORT, 'sabotaged')");
    let mut notices = store.notices();
    let ops =
        ["t:1", "t:bad", "t:2"].map(|boundary| store.execute(ask(Binding::Runtime(epoch.clone()), boundary)));
    let [first, bad, second] = ops;
    let (first, bad, second) = tokio::join!(first, bad, second);
    assert!(first.is_ok() && second.is_ok());
    let Err(StoreError::Failed(why)) = bad else { panic!("{bad:?}") };
    assert!(why.contains("sabotaged"), "{why}");
    let listed = store.approvals(holdgate_store::Filter { limit: 10, ..Default::default() }).await.unwrap();
    let listed: BTreeSet<_> = listed.into_iter().map(|seen| seen.place.1).collect();
    let mut told = || match notices.try_recv() {
        Ok(Notice::Changed(committed)) => committed.approval.id.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(listed, BTreeSet::from([told(), told()]));
    assert!(notices.try_recv().is_err(), "nothing is told of what was undone");
}

#[tokio::test]
async fn a_commit_that_fails_leaves_every_operation_unknown_and_the_store_usable() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    sabotage(&database, "t:bad", AT_COMMIT);
    let before = store.stats();
    // The first is on its way while the other two queue up, so that these share a batch.
    let ops =
        ["t:1", "t:2", "t:bad"].map(|boundary| store.execute(ask(Binding::Runtime(epoch.clone()), boundary)));
    let [first, second, bad] = ops;
    let (first, second, bad) = tokio::join!(first, second, bad);
    assert!(matches!(bad, Err(StoreError::Unknown(_))), "{bad:?}");
    let committed = [&first, &second].into_iter().filter(|result| result.is_ok()).count();
    for result in [&first, &second] {
        assert!(matches!(result, Ok(_) | Err(StoreError::Unknown(_))), "{result:?}");
    }
    let listed = store.approvals(holdgate_store::Filter { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(listed.len(), committed, "what is unknown was not written");
    assert_eq!(store.stats().ops - before.ops, committed as u64);

    database.raw().execute_batch("DROP TRIGGER sabotage").unwrap();
    for boundary in ["t:bad", "t:3"] {
        commit(&*store, ask(Binding::Runtime(epoch.clone()), boundary)).await;
    }
}

#[tokio::test]
async fn what_is_queued_when_the_store_closes_is_written() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let asking = store.execute(ask(Binding::Runtime(epoch.clone()), "t:1"));
    let (asked, ()) = tokio::join!(asking, store.close());
    assert!(asked.is_ok(), "{asked:?}");
    let late = store.execute(Op::RenewRuntime { epoch, by: by(agent()) }).await;
    assert_eq!(late, Err(StoreError::Closed));
    assert_eq!(store.next_due().await, Err(StoreError::Closed));
    let again = database.store(clock());
    let listed = again.approvals(holdgate_store::Filter { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(listed.len(), 1);
}

/// Takes for ever.
const ENDLESS: &str = "SELECT count(*) FROM \
    (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)";

#[tokio::test]
async fn a_batch_that_takes_too_long_is_undone_when_the_store_closes() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    sabotage(&database, "t:endless", ENDLESS);
    let ops = ["t:endless", "t:1", "t:2"]
        .map(|boundary| store.execute(ask(Binding::Runtime(epoch.clone()), boundary)));
    let [endless, first, second] = ops;
    let (endless, first, second, ()) = tokio::join!(endless, first, second, store.close());
    for result in [endless, first, second] {
        assert!(matches!(result, Err(StoreError::Failed(_) | StoreError::Unknown(_))), "{result:?}");
    }
    let again = database.store(clock());
    let listed = again.approvals(holdgate_store::Filter { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(listed, []);
}
