//! Races: many at once, one winner, and nobody is left with a wrong belief.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdgate_core::approval::{Binding, Status};
use holdgate_core::requirement::Decision;
use holdgate_core::run::RunCommand;
use holdgate_core::{Approval, Command, Refusal};
use holdgate_store::{Answer, By, Op, Outcome, Store};

use super::{Backend, Stage, approval, claim, draft, open, vote};

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
            let (id, by) = (asked.id.clone(), By::from(&stage.reviewer));
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
        let command = claim(&asked, &format!("c{n}"), None);
        Op::Apply { id: asked.id.clone(), command, by: By::from(&stage.agent) }
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
        let lease = Op::HoldRun { id: id.clone(), command: RunCommand::Lease, by: By::from(&stage.agent) };
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
    let ops =
        (0..64).map(|n| open(draft(&format!("t:{n}"), Binding::Runtime(epoch.clone())), None, &stage.agent));
    let outcomes = at_once(stage.store(), ops.collect()).await;
    stage.reopen().await;
    for outcome in outcomes {
        let opened = approval(outcome);
        assert_eq!(stage.stored(&opened.id).await, opened);
        assert_eq!(opened.status(), Status::Pending);
    }
}

/// An allow is spent or taken back, never both, whichever comes first.
pub async fn a_claim_and_a_revocation_at_once_have_one_winner(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    for round in 0..20 {
        let asked = stage.ask(&epoch, &format!("t:{round}")).await;
        approval(stage.vote(&asked, Decision::AllowOnce).await);
        let op = |command, by| Op::Apply { id: asked.id.clone(), command, by: By::from(by) };
        let spend = op(claim(&asked, "c", None), &stage.agent);
        let take_back = op(Command::Revoke { reason: None }, &stage.reviewer);
        let outcomes = at_once(stage.store(), vec![spend, take_back]).await;
        let won = stage.stored(&asked.id).await;
        assert_ne!(won.claim().is_some(), won.revocation().is_some());
        let told = |why| Outcome::Refused(why, Some(Box::new(won.clone())));
        let committed = Outcome::Committed(Answer::Approval(Box::new(won.clone())));
        let expected = if won.claim().is_some() {
            [committed, told(Refusal::AlreadyClaimed)]
        } else {
            [told(Refusal::Revoked), committed]
        };
        assert_eq!(outcomes, expected);
    }
}

/// Ten people, a hundred requests, everybody answers everything at once: one answer each, and everybody else is told
/// which.
pub async fn ten_people_answer_a_hundred_requests_at_once(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut people = Vec::new();
    for n in 0..10 {
        people.push(stage.device_of(&format!("person {n}"), &format!("device {n}")).await);
    }
    let mut votes = Vec::new();
    for n in 0..100 {
        let asked = stage.ask(&epoch, &format!("t:{n}")).await;
        for (m, who) in people.iter().enumerate() {
            let decision = if (n + m) % 2 == 0 { Decision::AllowOnce } else { Decision::Deny };
            votes.push((asked.clone(), decision, By::from(who)));
        }
    }
    let op = |(asked, decision, by): &(Approval, Decision, By)| {
        let (command, by) = (vote(asked, *decision), by.clone());
        Op::Apply { id: asked.id.clone(), command, by }
    };
    let outcomes = at_once(stage.store(), votes.iter().map(op).collect()).await;
    let (mut winners, mut agreed, mut lost) = (BTreeSet::new(), 0, 0);
    for ((asked, decision, by), outcome) in votes.iter().zip(outcomes) {
        let won = stage.stored(&asked.id).await;
        assert_eq!(won.votes.len(), 1);
        match outcome {
            Outcome::Committed(Answer::Approval(answer)) => {
                assert_eq!(
                    (won.decision(), &won.end().unwrap().by.id, *answer),
                    (Some(*decision), &by.id, won.clone())
                );
                assert!(winners.insert(won.id), "two have won");
            }
            Outcome::Duplicate(Answer::Approval(answer)) => {
                assert_eq!((won.decision(), *answer), (Some(*decision), won));
                agreed += 1;
            }
            Outcome::Refused(Refusal::AlreadyDecided, Some(told)) => {
                assert_ne!(won.decision(), Some(*decision));
                assert_eq!(*told, won);
                lost += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((winners.len(), agreed, lost), (100, 400, 500));
}
