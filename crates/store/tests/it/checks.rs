//! The schema's own defence: no other program can write a combination that means nothing, or change what is final.

use holdgate_core::approval::{Binding, Outcome as Came};
use holdgate_core::requirement::Decision;
use holdgate_core::{Command, Fence};
use holdgate_store::Op;
use rusqlite::Connection;

use crate::stage::{Database, agent, ask, by, claim, clock, commit, held_run, populate, vote};

/// A database with a request in each phase, each behind a stored run; and one, `live`, behind a process.
async fn populated() -> (Database, Connection) {
    let database = Database::new();
    let store = database.store(clock());
    let epoch = populate(&*store).await;
    let run = held_run(&*store, "run_1").await;
    let fence = Some(Fence(1));
    commit(&*store, ask(Binding::Runtime(epoch), "live")).await;
    for phase in ["pending", "denied", "allowed", "claimed", "settled"] {
        let asked = commit(&*store, ask(Binding::Checkpoint(run.clone()), phase)).await;
        match phase {
            "pending" => continue,
            "denied" => commit(&*store, vote(&asked, Decision::Deny)).await,
            _ => commit(&*store, vote(&asked, Decision::AllowOnce)).await,
        };
        if matches!(phase, "claimed" | "settled") {
            commit(&*store, claim(&asked, "c", fence)).await;
        }
        if phase == "settled" {
            let claim_id = "c".parse().unwrap();
            let command = Command::Settle { claim_id, outcome: Came::Succeeded, detail: None };
            commit(&*store, Op::Apply { id: asked.id, command, by: by(agent()) }).await;
        }
    }
    store.close().await;
    let raw = database.raw();
    raw.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    (database, raw)
}

fn refused(raw: &Connection, sql: &str, because: &str) {
    match raw.execute(sql, []) {
        Err(e) => assert!(e.to_string().contains(because), "{sql}: {e}"),
        Ok(rows) => panic!("{sql}: changed {rows} rows"),
    }
}

/// The request's phase, and what is made of its row.
const FORGERIES: &[(&str, &str)] = &[
    ("pending", "status = 'allowed'"),
    ("pending", "status = 'allowed', decision = 'allow-once'"),
    ("pending", "status = 'anything'"),
    ("pending", "decision = 'deny'"),
    ("pending", "terminal_reason = 'user'"),
    ("pending", "resolved_at = created_at"),
    ("pending", "resolver_id = 'reviewer'"),
    ("pending", "resolver_kind = 'administrator'"),
    ("pending", "resolver_label = 'x'"),
    ("pending", "claim_id = 'c', claimed_at = created_at, claim_fence = 1"),
    ("pending", "expires_at = created_at"),
    ("pending", "content = NULL"),
    ("pending", "content = '{'"),
    ("pending", "presentation = '{'"),
    ("pending", "requirement = '{'"),
    ("pending", "epoch = (SELECT epoch FROM runtimes)"),
    ("pending", "kind = 'anything'"),
    ("pending", "digest = 'x'"),
    ("pending", "digest = upper(digest)"),
    ("pending", "id = 'apr_x'"),
    ("pending", "id = upper(id)"),
    ("live", "content = '{}'"),
    ("live", "epoch = NULL"),
    ("denied", "decision = NULL"),
    ("denied", "decision = 'allow-once'"),
    ("denied", "terminal_reason = NULL"),
    ("denied", "terminal_reason = 'withdrawn'"),
    ("denied", "resolver_kind = 'agent'"),
    ("denied", "resolved_at = expires_at"),
    ("denied", "claim_id = 'c', claimed_at = resolved_at, claim_fence = 1"),
    ("denied", "status = 'expired', terminal_reason = 'timeout', resolver_kind = 'authority'"),
    ("denied", "status = 'expired', terminal_reason = 'timeout', resolved_at = expires_at"),
    ("denied", "status = 'cancelled', terminal_reason = 'user'"),
    ("denied", "status = 'cancelled', terminal_reason = 'caller-lost'"),
    ("allowed", "status = 'pending'"),
    ("allowed", "decision = NULL"),
    ("allowed", "decision = 'deny'"),
    ("allowed", "terminal_reason = NULL"),
    ("allowed", "terminal_reason = 'timeout'"),
    ("allowed", "resolver_kind = 'agent'"),
    ("allowed", "resolver_kind = 'authority'"),
    ("allowed", "resolver_id = NULL"),
    ("allowed", "resolver_kind = NULL"),
    ("allowed", "resolver_label = NULL"),
    ("allowed", "resolved_at = NULL"),
    ("allowed", "resolved_at = created_at - 1"),
    ("allowed", "resolved_at = expires_at"),
    ("allowed", "claimed_at = resolved_at"),
    ("allowed", "claim_fence = 1"),
    ("allowed", "claim_id = 'c'"),
    ("allowed", "claim_id = 'c', claimed_at = resolved_at"),
    ("allowed", "claim_id = 'c', claimed_at = resolved_at, claim_fence = 0"),
    ("allowed", "claim_id = 'c', claimed_at = resolved_at - 1, claim_fence = 1"),
    ("allowed", "receipt_outcome = 'succeeded', settled_at = resolved_at"),
    ("allowed", "receipt_detail = 'x'"),
    ("claimed", "settled_at = claimed_at"),
    ("claimed", "receipt_outcome = 'succeeded'"),
    ("claimed", "receipt_outcome = 'anything', settled_at = claimed_at"),
    ("claimed", "receipt_outcome = 'succeeded', settled_at = claimed_at - 1"),
    ("settled", "receipt_outcome = NULL"),
    ("settled", "settled_at = NULL"),
    ("settled", "claim_id = NULL, claimed_at = NULL, claim_fence = NULL"),
];

#[tokio::test]
async fn no_forged_tuple_can_be_written() {
    let (_database, raw) = populated().await;
    for trigger in ["approvals_answer_is_final", "approvals_claim_is_final", "approvals_request_is_frozen"] {
        raw.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    for (phase, forgery) in FORGERIES {
        let sql = format!("UPDATE approvals SET {forgery} WHERE boundary = '{phase}'");
        refused(&raw, &sql, "constraint failed");
    }
    for (sql, why) in [
        ("UPDATE approvals SET run_id = 'run_9' WHERE boundary = 'pending'", "FOREIGN KEY"),
        ("UPDATE approvals SET created_at = 'noon' WHERE boundary = 'pending'", "cannot store TEXT"),
    ] {
        refused(&raw, sql, why);
    }
}

#[tokio::test]
async fn what_is_final_cannot_be_changed() {
    let (_database, raw) = populated().await;
    for (phase, change) in [
        ("allowed", "status = 'denied', decision = 'deny'"),
        ("denied", "status = 'allowed', decision = 'allow-once'"),
        ("allowed", "decision = 'allow-always'"),
        ("allowed", "resolver_label = 'somebody'"),
        (
            "denied",
            "status = 'pending', decision = NULL, terminal_reason = NULL, resolved_at = NULL, resolver_id = NULL, \
             resolver_kind = NULL, resolver_label = NULL",
        ),
    ] {
        let sql = format!("UPDATE approvals SET {change} WHERE boundary = '{phase}'");
        refused(&raw, &sql, "answered once");
    }
    for change in ["claim_id = 'd'", "claim_id = NULL, claimed_at = NULL, claim_fence = NULL"] {
        refused(&raw, &format!("UPDATE approvals SET {change} WHERE boundary = 'claimed'"), "claimed once");
    }
    for change in
        ["content = '{}'", "expires_at = expires_at + 1", "requester_id = 'other'", "boundary = 'x'"]
    {
        refused(&raw, &format!("UPDATE approvals SET {change} WHERE boundary = 'pending'"), "never changes");
    }
    raw.execute("INSERT INTO run_events VALUES ('run_1', 1, 0, '{}')", []).unwrap();
    for table in ["approval_events", "run_events"] {
        refused(&raw, &format!("UPDATE {table} SET at = 0"), "append-only");
        refused(&raw, &format!("DELETE FROM {table}"), "append-only");
    }
}

#[tokio::test]
async fn other_tables_hold_only_what_makes_sense() {
    let (_database, raw) = populated().await;
    for sql in [
        "INSERT INTO meta VALUES (2, 0, 0)",
        "UPDATE meta SET served_until = last_committed + 1",
        "INSERT INTO principals VALUES ('x', 'authority', 'x', 0)",
        "INSERT INTO principals VALUES ('authority', 'agent', 'x', 0)",
        "INSERT INTO tokens SELECT 'x', id, 0 FROM principals",
        "INSERT INTO tokens SELECT printf('%064d', 0), 'stranger', 0",
        "INSERT INTO page_sessions SELECT printf('%064d', 0), id, 1, 0 FROM principals",
        "INSERT INTO runtimes VALUES ('e', 'gateway', NULL, 'a', 0, 0, NULL)",
        "INSERT INTO runtimes VALUES ('e', 'caller', 'here', 'a', 0, 0, NULL)",
        "INSERT INTO runtimes VALUES ('e', 'anything', NULL, 'a', 0, 0, NULL)",
        "INSERT INTO runtimes VALUES ('e', 'caller', NULL, 'a', 1, 1, 0)",
        "UPDATE runs SET state = 'anything'",
        "UPDATE runs SET fence = 0",
        "UPDATE runs SET updated_at = created_at - 1",
        "INSERT INTO run_events VALUES ('run_1', 0, 0, '{}')",
        "INSERT INTO run_events VALUES ('run_1', 1, 0, '{')",
        "INSERT INTO run_events VALUES ('run_9', 1, 0, '{}')",
        "UPDATE approval_votes SET voter_kind = 'agent'",
        "UPDATE approval_votes SET decision = 'anything'",
        "INSERT INTO approval_events VALUES (NULL, 'x', 0, '{', 'x', 'x', 'x')",
        "INSERT INTO idempotency_keys VALUES ('x', 'k', 'body', 'x', 0)",
    ] {
        refused(&raw, sql, "constraint failed");
    }
}
