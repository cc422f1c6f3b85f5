//! The faulty store fails as a real one does, and only when told to.

use holdgate_core::approval::Binding;
use holdgate_core::requirement::Decision;
use holdgate_store::{Answer, Op, Outcome, Store, StoreError, Stored};
use holdgate_testkit::{Fault, Faulty};
use tokio::sync::oneshot;

use crate::stage::{Database, ask, clock, commit, populate, vote};

fn is_apply(op: &Op) -> bool {
    matches!(op, Op::Apply { .. })
}

#[tokio::test]
async fn a_fault_before_changes_nothing_and_is_used_up() {
    let database = Database::new();
    let store = Faulty::new(database.store(clock()));
    let epoch = populate(&*store).await;
    store.arm(is_apply, Fault::Fails);
    let asked = commit(&*store, ask(Binding::Runtime(epoch), "t:1")).await;
    let failed = store.execute(vote(&asked, Decision::AllowOnce)).await;
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    let seen = crate::stage::seen(&*store, &asked.id).await;
    assert_eq!(seen.stored, Stored::Sound(Box::new(asked.clone())));
    commit(&*store, vote(&asked, Decision::AllowOnce)).await;
}

#[tokio::test]
async fn a_lost_reply_leaves_the_change_made() {
    let database = Database::new();
    let store = Faulty::new(database.store(clock()));
    let epoch = populate(&*store).await;
    let asked = commit(&*store, ask(Binding::Runtime(epoch), "t:1")).await;
    store.arm(is_apply, Fault::LosesReply);
    let lost = store.execute(vote(&asked, Decision::AllowOnce)).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    let again = store.execute(vote(&asked, Decision::AllowOnce)).await;
    assert!(matches!(again, Ok(Outcome::Duplicate(Answer::Approval(_)))), "{again:?}");
}

#[tokio::test]
async fn a_held_operation_happens_when_it_is_let_go() {
    let database = Database::new();
    let store = Faulty::new(database.store(clock()));
    let epoch = populate(&*store).await;
    let asked = commit(&*store, ask(Binding::Runtime(epoch), "t:1")).await;
    let (let_go, until) = oneshot::channel();
    store.arm(is_apply, Fault::Waits(until));
    let held = tokio::spawn({
        let (store, op) = (store.clone(), vote(&asked, Decision::AllowOnce));
        async move { store.execute(op).await }
    });
    tokio::task::yield_now().await;
    let denied = commit(&*store, vote(&asked, Decision::Deny)).await;
    let_go.send(()).unwrap();
    let late = held.await.unwrap();
    assert!(matches!(late, Ok(Outcome::Refused(_, Some(winner))) if *winner == denied));
}
