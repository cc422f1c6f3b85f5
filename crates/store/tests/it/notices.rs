//! Listeners that fall behind, and names that only this database can hold.

use holdgate_core::approval::{Binding, Draft};
use holdgate_core::{Approval, EpochId};
use holdgate_store::{Notice, Op, Store};
use tokio::sync::broadcast::error::RecvError;

use crate::stage::{Database, ask, clock, commit, populate};

#[tokio::test]
async fn who_falls_behind_is_told_so_and_reads_what_it_missed() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let (mut slow, mut quick) = (store.notices(), store.notices());
    let mut told = Vec::new();
    // As many as may be waiting, until the slow one has lost some.
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..450 {
            let (store, op) =
                (store.clone(), ask(Binding::Runtime(epoch.clone()), &format!("t:{round}:{n}")));
            tasks.spawn(async move { commit(&*store, op).await });
        }
        tasks.join_all().await;
        while let Ok(Notice::Changed(committed)) = quick.try_recv() {
            told.push((committed.seq, committed.approval.id.clone(), committed.events[0]));
        }
    }
    assert_eq!(told.len(), 4_500);
    let behind = slow.recv().await;
    assert!(matches!(behind, Err(RecvError::Lagged(_))), "{behind:?}");
    let read = store.events(0, 10_000).await.unwrap();
    let read: Vec<_> = read.into_iter().map(|fact| (fact.seq, fact.approval, fact.event)).collect();
    assert!(read == told, "the facts say what the notices said");
}

fn named(id: &str, epoch: &EpochId) -> Op {
    let Op::Open { draft, fence, by, key, caps } = ask(Binding::Runtime(epoch.clone()), "t:1") else {
        unreachable!()
    };
    let draft = Box::new(Draft { id: Some(id.parse().unwrap()), ..*draft });
    Op::Open { draft, fence, by, key, caps }
}

#[tokio::test]
async fn a_text_does_not_end_at_a_nul() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let asked: Approval = commit(&*store, named("a", &epoch)).await;
    assert!(store.approval("a").await.unwrap().is_some());
    for locator in ["a\0", "a\0b", "\0"] {
        assert_eq!(store.approval(locator).await.unwrap(), None, "{:?}", asked.id);
    }
}
