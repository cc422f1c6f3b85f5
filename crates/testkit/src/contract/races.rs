//! Races: many at once, one winner, and nobody is left with a wrong belief.

use std::sync::Arc;

use holdgate_core::approval::{Binding, Status};
use holdgate_core::requirement::Decision;
use holdgate_core::run::RunCommand;
use holdgate_core::{Command, Refusal};
use holdgate_store::{Answer, Op, Outcome, Store};

use super::{Backend, Stage, approval, draft, vote};

/// Sends all operations at once, each from a task of its own.
async fn at_once(store: &Arc<dyn Store>, ops: Vec<Op>) -> Vec<Outcome> {
    let start = Arc::new(tokio::sync::Barrier::new(ops.len()));
    let tasks = ops.into_iter().map(|op| {
        let (store, start) = (Arc::clone(store), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            store.execute(op).await.unwrap()
        })
    });
    let mut outcomes = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

/// The first answer stands; the same answer again is told so; the other is refused and shown the winner.
pub async fn allow_and_deny_at_once_have_one_winner_and_every_loser_is_told(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    for round in 0..20 {
        let asked = stage.ask(&epoch, &format!("t:{round}")).await;
        let decisions = [Decision::AllowOnce, Decision::Deny].into_iter().cycle().take(16);
        let ops = decisions.clone().map(|decision| {
            let (id, by) = (asked.id.clone(), stage.reviewer.id.clone());
            Op::Apply { id, command: vote(&asked, decision), by }
        });
        let outcomes = at_once(stage.store(), ops.collect()).await;
        let won = stage.stored(&asked.id).await;
        assert_eq!(won.votes.len(), 1);
        let mut winners = 0;
        for (decision, outcome) in decisions.zip(outcomes) {
            match outcome {
                Outcome::Committed(Answer::Approval(answer)) => {
                    winners += 1;
                    assert_eq!((won.decision(), *answer), (Some(decision), won.clone()));
                }
                Outcome::Duplicate(Answer::Approval(answer)) => {
                    assert_eq!((won.decision(), *answer), (Some(decision), won.clone()));
                }
                Outcome::Refused(Refusal::AlreadyDecided, Some(winner)) => {
                    assert_ne!(won.decision(), Some(decision));
                    assert_eq!(*winner, won);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(winners, 1);
    }
}

/// An allow is spent by exactly one of those who try.
pub async fn many_claims_at_once_have_one_winner(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    approval(stage.vote(&asked, Decision::AllowOnce).await);
    let ops = (0..32).map(|n| {
        let claim_id = format!("c{n}").parse().unwrap();
        let command = Command::Claim { claim_id, digest: asked.digest, fence: None };
        Op::Apply { id: asked.id.clone(), command, by: stage.agent.id.clone() }
    });
    let outcomes = at_once(stage.store(), ops.collect()).await;
    let won = stage.stored(&asked.id).await;
    let committed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Committed(_))).count();
    let told = outcomes.iter().filter(|outcome| {
        matches!(outcome, Outcome::Refused(Refusal::AlreadyClaimed, Some(winner)) if **winner == won)
    });
    assert_eq!((committed, told.count()), (1, 31));
}

/// One process restores a run; the others are told for how long it is held.
pub async fn two_processes_that_want_one_run_have_one_winner(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    for round in 0..10 {
        let id = stage.create_run(&format!("run_{round}")).await;
        let lease = Op::HoldRun { id: id.clone(), command: RunCommand::Lease, by: stage.agent.id.clone() };
        let outcomes = at_once(stage.store(), vec![lease.clone(), lease]).await;
        let won = outcomes.iter().filter(|o| matches!(o, Outcome::Committed(Answer::Run(_)))).count();
        let told = outcomes.iter().filter(
            |o| matches!(o, Outcome::Refused(Refusal::RunHeld { lapses_in_ms }, _) if *lapses_in_ms > 0),
        );
        assert_eq!((won, told.count()), (1, 1));
        assert_eq!(stage.store().run(&id).await.unwrap().unwrap().fence.0, 1);
    }
}

/// Nothing that was acknowledged is missing.
pub async fn many_requests_at_once_are_all_kept(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let ops = (0..64).map(|n| Op::Open {
        draft: Box::new(draft(&format!("t:{n}"), Binding::Runtime(epoch.clone()))),
        fence: None,
        by: stage.agent.id.clone(),
        key: None,
    });
    let outcomes = at_once(stage.store(), ops.collect()).await;
    stage.reopen().await;
    for outcome in outcomes {
        let opened = approval(outcome);
        assert_eq!(stage.stored(&opened.id).await, opened);
        assert_eq!(opened.status(), Status::Pending);
    }
}
