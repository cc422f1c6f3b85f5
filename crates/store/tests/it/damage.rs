//! Damaged rows: whatever was done to one, it is never an allow, never a panic, and stops nothing else.

use std::sync::Arc;

use holdgate_core::approval::{Binding, Bound, Draft, Status};
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{Approval, Digest, Fence, Refusal, Scopes};
use holdgate_store::sqlite::SqliteStore;
use holdgate_store::{Answer, Credential, Device, Filter, Notice, Op, Outcome, Store, StoreError, Stored};
use rusqlite::Connection;

use crate::stage::{Database, agent, ask, by, claim, clock, commit, held_run, populate, seen, vote};

/// A connection that no constraint of the schema holds back.
fn vandal(database: &Database) -> Connection {
    let raw = database.raw();
    raw.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").unwrap();
    drop_triggers(&raw, "%");
    raw
}

/// The same, but what the store keeps beside the rows goes on being kept.
fn vandal_of_rows(database: &Database) -> Connection {
    let raw = database.raw();
    raw.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").unwrap();
    drop_triggers(&raw, "approvals_request_is_frozen");
    raw
}

fn drop_triggers(raw: &Connection, like: &str) {
    let names: Vec<String> = raw
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE ?1")
        .unwrap()
        .query_map([like], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(!names.is_empty());
    for name in names {
        raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
}

const FENCE: Option<Fence> = Some(Fence(1));

/// A request of a stored run that a person has allowed and nobody has claimed.
async fn allowed(store: &Arc<SqliteStore>, run: &str) -> Approval {
    let run = held_run(&**store, run).await;
    let asked = commit(&**store, ask(Binding::Checkpoint(run), "t:1")).await;
    commit(&**store, vote(&asked, Decision::AllowOnce)).await
}

/// What is made of the row of an allow.
const DAMAGES: &[&str] = &[
    "content = '{\"input\":{\"stage\":\"production\"},\"toolName\":\"destroy\"}'",
    "content = content || ' '",
    "content = '{'",
    "content = NULL",
    "digest = replace(digest, substr(digest, 1, 8), '00000000')",
    "digest = 'x'",
    "boundary = 't:2'",
    "kind = 'dispatch'",
    "kind = 'anything'",
    "run_id = 'another'",
    "run_id = NULL",
    "presentation = '{'",
    "presentation = '{}'",
    "requirement = '[]'",
    "requirement = '{\"reasonRequired\":false,\"allowedDecisions\":[\"allow-once\"]}'",
    "requester_kind = 'nobody'",
    "requester_id = ''",
    "status = 'anything'",
    "status = 'pending'",
    "status = 'expired'",
    "status = 'denied'",
    "decision = 'deny'",
    "decision = 'allow-always'",
    "decision = NULL",
    "terminal_reason = 'timeout'",
    "terminal_reason = NULL",
    "resolver_kind = 'agent'",
    "resolver_kind = 'authority'",
    "resolver_id = 'somebody'",
    "resolver_person = 'somebody'",
    "resolver_person = NULL",
    "resolver_person = ''",
    "reference = substr(reference, 2) || '_'",
    "reference = ''",
    "audience = '['",
    "audience = '{}'",
    "audience = '[1]'",
    "audience = '[\"s\"' || replace(printf('%064d', 0), '0', ',\"s\"') || ']'",
    "v4_request = '{'",
    "v4_request = '\"' || printf('%0300000d', 0) || '\"'",
    "requirement = json_set(requirement, '$.approvals', 2)",
    "requirement = json_set(requirement, '$.approvals', 0)",
    "requirement = json_set(requirement, '$.approvals', 17)",
    "requirement = json_set(requirement, '$.denials', 0)",
    "requirement = json_set(requirement, '$.reviewers', json('[[]]'))",
    "requirement = json_set(requirement, '$.reviewers', json('[[\"alice\"]]'))",
    "requirement = json_set(requirement, '$.allowedDecisions', json('[\"allow-always\",\"deny\"]'))",
    "requester_person = ''",
    "revoked_at = resolved_at",
    "revoker_id = 'x'",
    "revocation_reason = 'x'",
    "revoked_at = resolved_at - 1, revoker_id = 'x', revoker_kind = 'agent', revoker_label = 'x'",
    "revoked_at = resolved_at, revoker_id = 'x', revoker_kind = 'anything', revoker_label = 'x'",
    "claim_id = 'c', claimed_at = resolved_at, claim_fence = 1, revoked_at = resolved_at, revoker_id = 'x', \
     revoker_kind = 'agent', revoker_label = 'x'",
    "status = 'denied', decision = 'deny'",
    "status = 'cancelled', decision = 'deny', terminal_reason = 'gateway-restart'",
    "resolver_label = NULL",
    "resolved_at = NULL",
    "resolved_at = created_at - 1",
    "resolved_at = expires_at",
    "claim_id = 'c'",
    "claim_id = 'c', claimed_at = resolved_at",
    "claim_id = 'c', claimed_at = resolved_at - 1, claim_fence = 1",
    "claim_id = 'c', claimed_at = resolved_at, claim_fence = -1",
    "receipt_outcome = 'succeeded', settled_at = resolved_at",
    "claim_id = 'c', claimed_at = resolved_at, claim_fence = 1, receipt_outcome = 'succeeded'",
    "claim_id = 'c', claimed_at = resolved_at, claim_fence = 1, settled_at = resolved_at",
];

#[tokio::test]
async fn no_damage_makes_an_allow() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let vandal = vandal(&database);
    for (n, damage) in DAMAGES.iter().enumerate() {
        let good = allowed(&store, &format!("run_{n}")).await;
        let changed = vandal
            .execute(&format!("UPDATE approvals SET {damage} WHERE id = ?1"), [good.id.as_str()])
            .unwrap_or_else(|e| panic!("{damage}: {e}"));
        assert_eq!(changed, 1);
        is_denied(&store, &good, damage).await;
    }
    for (n, damage) in [
        "DELETE FROM approval_votes WHERE approval_id = ?1",
        "UPDATE approval_votes SET decision = 'deny' WHERE approval_id = ?1",
        "UPDATE approval_votes SET decision = 'anything' WHERE approval_id = ?1",
        "UPDATE approval_votes SET voter_id = 'somebody' WHERE approval_id = ?1",
        "UPDATE approval_votes SET voter_person = 'somebody' WHERE approval_id = ?1",
        "UPDATE approval_votes SET voter_person = NULL WHERE approval_id = ?1",
        "UPDATE approval_votes SET at = at + 1 WHERE approval_id = ?1",
    ]
    .iter()
    .enumerate()
    {
        let good = allowed(&store, &format!("run_vote_{n}")).await;
        assert_eq!(vandal.execute(damage, [good.id.as_str()]).unwrap(), 1);
        is_denied(&store, &good, damage).await;
    }
}

/// A request of a stored run that the administrator and alice, on her phone, have allowed.
async fn allowed_by_two(store: &Arc<SqliteStore>, run: &str) -> Approval {
    let run = held_run(&**store, run).await;
    let Op::Open { draft, fence, by, key, caps } = ask(Binding::Checkpoint(run), "t:1") else {
        unreachable!()
    };
    let requirement = Requirement { approvals: 2, ..Requirement::default() };
    let draft = Box::new(Draft { requirement, ..*draft });
    let asked = commit(&**store, Op::Open { draft, fence, by, key, caps }).await;
    commit(&**store, vote(&asked, Decision::AllowOnce)).await;
    let Op::Apply { id, command, .. } = vote(&asked, Decision::AllowOnce) else { unreachable!() };
    commit(&**store, Op::Apply { id, command, by: crate::stage::by("phone".parse().unwrap()) }).await
}

#[tokio::test]
async fn an_allow_that_took_two_people_needs_both_their_votes() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let (id, label) = ("phone".parse().unwrap(), "phone".to_owned());
    let device = Device { id, label, public_key: None, platform: None, family: None };
    let (person, token) = ("alice".parse().unwrap(), Digest::of(b"token of phone"));
    let admit = Op::Admit { device: Box::new(device), person, scopes: Scopes::APPROVALS, token };
    store.execute(admit).await.unwrap();
    let vandal = vandal(&database);
    for (n, damage) in [
        "DELETE FROM approval_votes WHERE approval_id = ?1 AND position = 0",
        "DELETE FROM approval_votes WHERE approval_id = ?1 AND position = 1",
        "UPDATE approval_votes SET decision = 'deny' WHERE approval_id = ?1 AND position = 0",
        "UPDATE approval_votes SET voter_person = 'alice' WHERE approval_id = ?1 AND position = 0",
        "UPDATE approval_votes SET voter_id = 'phone', voter_kind = 'device' WHERE approval_id = ?1 AND position = 0",
        "UPDATE approval_votes SET voter_person = 'reviewer' WHERE approval_id = ?1 AND position = 1",
        "UPDATE approval_votes SET decision = 'allow-always' WHERE approval_id = ?1",
        "UPDATE approvals SET requirement = json_set(requirement, '$.approvals', 3) WHERE id = ?1",
    ]
    .iter()
    .enumerate()
    {
        let good = allowed_by_two(&store, &format!("run_{n}")).await;
        assert!(vandal.execute(damage, [good.id.as_str()]).unwrap() > 0, "{damage}");
        is_denied(&store, &good, damage).await;
    }
    let good = allowed_by_two(&store, "run_good").await;
    commit(&*store, claim(&good, "c", FENCE)).await;
}

#[tokio::test]
async fn a_damaged_request_cannot_be_allowed() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let vandal = vandal(&database);
    for (n, damage) in [
        "audience = 'agent:x:main'",
        "requirement = '{}'",
        "requirement = json_set(requirement, '$.approvals', 0)",
        "reference = '../x'",
        "v4_request = 'x'",
        "resolver_person = 'alice'",
        "revoked_at = created_at, revoker_id = 'x', revoker_kind = 'agent', revoker_label = 'x'",
    ]
    .iter()
    .enumerate()
    {
        let run = held_run(&*store, &format!("run_{n}")).await;
        let asked = commit(&*store, ask(Binding::Checkpoint(run), "t:1")).await;
        let damaging = format!("UPDATE approvals SET {damage} WHERE id = ?1");
        assert_eq!(vandal.execute(&damaging, [asked.id.as_str()]).unwrap(), 1);
        is_denied(&store, &asked, damage).await;
    }
}

#[tokio::test]
async fn a_text_that_names_two_approvals_names_none() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let first = commit(&*store, ask(Binding::Runtime(epoch.clone()), "t:1")).await;
    let second = commit(&*store, ask(Binding::Runtime(epoch), "t:2")).await;
    let vandal = vandal(&database);
    vandal
        .execute("UPDATE approvals SET id = ?1 WHERE id = ?2", [&first.reference(), second.id.as_str()])
        .unwrap();
    assert_eq!(store.approval(&first.reference()).await.unwrap(), None);
    assert!(store.approval(first.id.as_str()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_damaged_identity_can_do_nothing() {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let asked = commit(&*store, ask(Binding::Runtime(epoch.clone()), "t:1")).await;
    let vandal = vandal(&database);
    for (damage, repair) in [
        ("scopes = 'operator.everything'", "scopes = 'operator.admin'"),
        ("kind = 'anything'", "kind = 'administrator'"),
        ("reviewers = '[]'", "reviewers = NULL"),
        ("person = ''", "person = 'reviewer'"),
    ] {
        let write = |sql: &str| {
            let sql = format!("UPDATE principals SET {sql} WHERE id = 'reviewer'");
            assert_eq!(vandal.execute(&sql, []).unwrap(), 1);
        };
        write(damage);
        let voted = store.execute(vote(&asked, Decision::AllowOnce)).await;
        assert!(matches!(voted, Err(StoreError::Failed(_))), "{damage}: {voted:?}");
        let token = Credential::Token(Digest::of(b"reviewer"));
        assert!(store.credential(token).await.is_err(), "{damage}");
        write(repair);
    }
    commit(&*store, vote(&asked, Decision::AllowOnce)).await;
}

async fn is_denied(store: &Arc<SqliteStore>, good: &Approval, damage: &str) {
    let seen = seen(&**store, &good.id).await;
    let Stored::Corrupt { id, .. } = &seen.stored else { panic!("{damage}: {:?}", seen.stored) };
    assert_eq!((id, seen.bound), (&good.id, Bound::CallerGone));
    let claimed = store.execute(claim(good, "c", FENCE)).await.unwrap();
    assert_eq!(claimed, Outcome::Refused(Refusal::NotFound, None), "{damage}");
    let voted = store.execute(vote(good, Decision::AllowOnce)).await.unwrap();
    assert_eq!(voted, Outcome::Refused(Refusal::StorageCorrupt, None), "{damage}");
    let newest = store.approvals(Filter { limit: 1, ..Filter::default() }).await.unwrap();
    assert!(
        newest.iter().all(|seen| matches!(seen.stored, Stored::Corrupt { .. })),
        "{damage}: a list shows it"
    );
}

#[tokio::test]
async fn a_damaged_row_is_listed_among_sound_ones() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let (bad, good) = (allowed(&store, "run_1").await, allowed(&store, "run_2").await);
    let vandal = vandal(&database);
    vandal.execute("UPDATE approvals SET presentation = '{' WHERE id = ?1", [bad.id.as_str()]).unwrap();
    let listed = store.approvals(Filter { limit: 10, ..Filter::default() }).await.unwrap();
    assert_eq!(listed.len(), 2);
    for seen in listed {
        match seen.stored {
            Stored::Sound(approval) => assert_eq!(*approval, good),
            Stored::Corrupt { id, why } => {
                assert_eq!(id, bad.id);
                assert!(why.contains("presentation"), "{why}");
            }
        }
    }
}

#[tokio::test]
async fn the_sweep_sets_a_damaged_row_aside_once_and_goes_on() {
    let database = Database::new();
    let clock = clock();
    let store = database.store(clock.clone());
    let epoch = populate(&*store).await;
    let bad = commit(&*store, ask(Binding::Runtime(epoch.clone()), "t:1")).await;
    let good = commit(&*store, ask(Binding::Runtime(epoch), "t:2")).await;
    let vandal = vandal_of_rows(&database);
    vandal.execute("UPDATE approvals SET audience = '{' WHERE id = ?1", [bad.id.as_str()]).unwrap();
    clock.advance(600_000);
    let mut notices = store.notices();
    let sweep = async |limit| match store.execute(Op::Sweep { limit }).await.unwrap() {
        Outcome::Committed(Answer::Touched(count)) => count,
        other => panic!("{other:?}"),
    };
    assert_eq!([sweep(1).await, sweep(1).await, sweep(1).await], [1, 1, 0]);
    assert_eq!(store.next_due().await.unwrap(), None);
    assert_eq!(store.pending_counts().await.unwrap(), []);
    let mut told = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        told.push(match notice {
            Notice::Corrupt(id) => (id, None),
            Notice::Changed(committed) => (committed.approval.id.clone(), Some(committed.approval.status())),
            Notice::Identity(id) => panic!("{id:?}"),
        });
    }
    told.sort_by_key(|(_, status)| status.is_some());
    assert_eq!(told, [(bad.id.clone(), None), (good.id.clone(), Some(Status::Expired))]);
    let expired = Filter { status: Some(Status::Expired), limit: 10, ..Filter::default() };
    let expired = store.approvals(expired).await.unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].place.1, good.id);
    let told: Vec<String> = vandal
        .prepare("SELECT event FROM approval_events WHERE approval_id = ?1 ORDER BY seq")
        .unwrap()
        .query_map([bad.id.as_str()], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        told,
        [r#"{"type":"opened"}"#, r#"{"type":"resolved","status":"denied","reason":"storage-corrupt"}"#]
    );
}

#[tokio::test]
async fn a_damaged_run_ends_what_waits_behind_it_and_is_not_made_anew() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let good = allowed(&store, "run_1").await;
    vandal(&database).execute("UPDATE runs SET state = 'anything'", []).unwrap();
    let seen = seen(&*store, &good.id).await;
    assert!(matches!(seen.stored, Stored::Corrupt { .. }));
    assert!(store.execute(claim(&good, "c", FENCE)).await.is_err());
    let create =
        Op::CreateRun { id: "run_1".parse().unwrap(), agent: "releaser".to_owned(), by: by(agent()) };
    assert!(store.execute(create).await.is_err());
    assert!(store.run(&"run_1".parse().unwrap()).await.is_err());
}

#[tokio::test]
async fn what_a_stored_run_will_run_is_shown_whatever_was_written_about_it() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let run = held_run(&*store, "told").await;
    let asked = commit(&*store, ask(Binding::Checkpoint(run), "t:1")).await;
    let lie = r#"{"kind":"tool","headline":"Do nothing","facts":[],"flags":[]}"#;
    let changed = vandal(&database)
        .execute("UPDATE approvals SET presentation = ?1 WHERE id = ?2", [lie, asked.id.as_str()]);
    assert_eq!(changed.unwrap(), 1);
    let seen = seen(&*store, &asked.id).await;
    let Stored::Sound(read) = seen.stored else { panic!("{seen:?}") };
    assert_eq!(read.presentation, asked.presentation);
}

#[tokio::test]
async fn a_row_without_a_readable_id_does_not_end_a_list() {
    let database = Database::new();
    let store = database.store(clock());
    populate(&*store).await;
    let mut asked = Vec::new();
    for n in 0..4 {
        asked.push(allowed(&store, &format!("run_{n}")).await.id);
    }
    let vandal = vandal(&database);
    for (n, damaged) in [(1, "."), (2, "..")] {
        vandal.execute("UPDATE approvals SET id = ?1 WHERE id = ?2", [damaged, asked[n].as_str()]).unwrap();
    }
    let listed = store.approvals(Filter { limit: 2, ..Filter::default() }).await.unwrap();
    assert_eq!(listed.len(), 2, "a short list is at its end");
}
