//! Notices and facts: what others are told, when, and that who missed it can read the same.

use std::sync::Arc;

use holdgate_core::approval::Binding;
use holdgate_core::requirement::Decision;
use holdgate_core::{Actor, Principal, PrincipalId, Refusal};
use holdgate_store::{Administration, Committed, Notice, Op, Recorded, StoreError};

use super::{Backend, LIFE_MS, Stage, approval, draft, drain, duplicate, hand_in, hash, open, refusal};

/// The facts that a notice tells, numbered as they are kept.
fn facts_of(committed: &Committed) -> Vec<Recorded> {
    let count = committed.events.len() as u64;
    let numbered = (committed.seq + 1 - count..).zip(&committed.events);
    numbered
        .map(|(seq, event)| Recorded {
            seq,
            approval: committed.approval.id.clone(),
            event: *event,
            by: committed.by.clone(),
            at: committed.at,
        })
        .collect()
}

fn changes(told: Vec<Notice>) -> Vec<Arc<Committed>> {
    told.into_iter()
        .map(|notice| match notice {
            Notice::Changed(committed) => committed,
            other => panic!("no change of an approval: {other:?}"),
        })
        .collect()
}

/// Who hears of a change finds it.
pub async fn a_change_is_told_after_it_is_durable(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut notices = stage.store().notices();
    let asked = stage.ask(&epoch, "t:1").await;
    let Notice::Changed(told) = notices.recv().await.unwrap() else { panic!("another notice") };
    assert_eq!(told.approval, asked);
    assert_eq!(stage.stored(&asked.id).await, asked);
    assert_eq!(stage.facts(told.seq - 1).await, facts_of(&told));
    stage.clock.advance(5);
    let denied = approval(stage.vote(&asked, Decision::Deny).await);
    let Notice::Changed(told) = notices.recv().await.unwrap() else { panic!("another notice") };
    assert_eq!((&told.approval, &told.by), (&denied, &Actor::from(&stage.reviewer)));
    assert_eq!(told.at, stage.store().now());
}

/// One notice for each change, whoever made it, in the order in which they were committed.
pub async fn each_change_is_told_once_and_in_order(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let before = stage.facts(0).await.last().map_or(0, |fact| fact.seq);
    let mut notices = stage.store().notices();
    let held = backend.hold().await;
    let mut waiting = Vec::new();
    for n in 0..8 {
        let ask = open(draft(&format!("t:{n}"), Binding::Runtime(epoch.clone())), None, &stage.agent);
        waiting.push(hand_in(&**stage.store(), ask).await.unwrap_or_else(|_| panic!("it is held")));
    }
    assert!(drain(&mut notices).is_empty());
    drop(held);
    let mut opened = Vec::new();
    for answer in waiting {
        opened.push(approval(answer.await.unwrap()));
    }
    let allowed = approval(stage.vote(&opened[0], Decision::AllowOnce).await);
    let claimed = approval(stage.claim(&opened[0], "c", None).await);
    let denied = approval(stage.vote(&opened[1], Decision::Deny).await);
    stage.clock.advance(LIFE_MS);
    assert_eq!(stage.sweep(10).await, 7, "six that nobody answered, and the claim of a caller that is gone");

    let told = changes(drain(&mut notices));
    let first: Vec<_> = told.iter().take(11).map(|committed| committed.approval.clone()).collect();
    opened.extend([allowed, claimed, denied]);
    assert_eq!(first, opened);
    assert_eq!(told.len(), 11 + 7);
    for committed in &told[11..] {
        assert!(committed.by.is_authority());
        assert_eq!(stage.stored(&committed.approval.id).await, committed.approval);
    }
    let facts: Vec<_> = told.iter().flat_map(|committed| facts_of(committed)).collect();
    assert!(facts.is_sorted_by_key(|fact| fact.seq));
    assert_eq!(stage.facts(before).await, facts);
}

/// Refused, done before, undone: nothing has changed, nobody is told, and no fact is written.
pub async fn nothing_is_told_of_what_did_not_happen(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    approval(stage.vote(&asked, Decision::Deny).await);
    let facts = stage.facts(0).await;
    let administered = stage.store().administration(0, 100).await.unwrap();
    let mut notices = stage.store().notices();
    duplicate(stage.vote(&asked, Decision::Deny).await);
    refusal(stage.vote(&asked, Decision::AllowOnce).await);
    refusal(stage.claim(&asked, "c", None).await);
    duplicate(stage.open(draft("t:1", Binding::Runtime(epoch)), None, &stage.agent).await);
    assert_eq!(refusal(stage.pair("no code", "phone", "x").await), Refusal::PairingCodeInvalid);
    refusal(stage.administer(Administration::Revoke { id: "nobody".parse().unwrap() }).await);
    stage.provide(&stage.agent, "token of agent").await;
    let renamed = Principal { label: "The renamed".to_owned(), ..stage.other.clone() };
    let taken = Op::PutCredential { hash: hash("token of agent"), principal: renamed, recovers: true };
    assert!(matches!(stage.store().execute(taken).await, Err(StoreError::Failed(_))));
    stage.sweep(10).await;
    let told = drain(&mut notices);
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(stage.facts(0).await, facts);
    assert_eq!(stage.store().administration(0, 100).await.unwrap(), administered);
}

/// A notice may be lost. From the number of the last one that was heard, the facts say all that came after it.
pub async fn who_missed_notices_reads_the_same_in_the_facts(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut notices = stage.store().notices();
    let heard = stage.ask(&epoch, "heard").await;
    let last = changes(drain(&mut notices))[0].seq;
    let mut missed = Vec::new();
    for n in 0..10 {
        let asked = stage.ask(&epoch, &format!("t:{n}")).await;
        let decision = if n % 2 == 0 { Decision::AllowOnce } else { Decision::Deny };
        approval(stage.vote(&asked, decision).await);
        missed.extend(changes(drain(&mut notices)));
    }
    approval(stage.vote(&heard, Decision::AllowOnce).await);
    missed.extend(changes(drain(&mut notices)));
    stage.reopen().await;
    let said: Vec<_> = missed.iter().flat_map(|committed| facts_of(committed)).collect();
    assert_eq!(said.len(), 10 * 3 + 2);
    assert_eq!(stage.facts(last).await, said);
    assert_eq!(stage.store().events(last, 0).await.unwrap(), []);
    assert_eq!(stage.store().events(u64::MAX, 10).await.unwrap(), []);
}

/// Whatever has an identity's connection open is told to look again: what it may do has changed, or it has ended.
pub async fn a_changed_identity_is_told(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let mut notices = stage.store().notices();
    let mut told = || -> Vec<Option<PrincipalId>> {
        let of_identities = drain(&mut notices).into_iter().map(|notice| match notice {
            Notice::Identity(id) => id,
            other => panic!("{other:?}"),
        });
        of_identities.collect()
    };
    let phone = stage.device_of("alice", "phone").await;
    assert_eq!(told(), [Some(phone.id.clone())]);
    let rotate = Administration::RotateToken { id: stage.agent.id.clone(), hash: hash("new") };
    stage.administer(rotate).await;
    assert_eq!(told(), [Some(stage.agent.id.clone())]);
    stage.put_groups(&[("ops", &["alice"])]).await;
    assert_eq!(told(), [None]);
    stage.put_groups(&[("ops", &["alice"])]).await;
    assert_eq!(told(), []);
    stage.revoke(&phone).await;
    assert_eq!(told(), [Some(phone.id)]);
}
