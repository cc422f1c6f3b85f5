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
    for phase in ["pending", "denied", "allowed", "claimed", "settled", "revoked"] {
        let asked = commit(&*store, ask(Binding::Checkpoint(run.clone()), phase)).await;
        match phase {
            "pending" => continue,
            "denied" => commit(&*store, vote(&asked, Decision::Deny)).await,
            _ => commit(&*store, vote(&asked, Decision::AllowOnce)).await,
        };
        if matches!(phase, "claimed" | "settled") {
            commit(&*store, claim(&asked, "c", fence)).await;
        }
        if phase == "revoked" {
            let command = Command::Revoke { reason: None };
            commit(&*store, Op::Apply { id: asked.id.clone(), command, by: by(agent()) }).await;
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
    ("pending", "id = ''"),
    ("pending", "id = '.'"),
    ("pending", "id = '..'"),
    ("pending", "id = printf('%0257d', 0)"),
    ("pending", "id = 'a' || char(0) || printf('%01024d', 0)"),
    ("pending", "reference = 'x'"),
    ("pending", "reference = substr(reference, 2) || '+'"),
    ("pending", "audience = '['"),
    ("pending", "audience = '{}'"),
    ("pending", "audience = '[\"s\"' || replace(printf('%064d', 0), '0', ',\"s\"') || ']'"),
    ("pending", "v4_request = '{'"),
    ("pending", "updated_at = created_at - 1"),
    ("pending", "resolver_person = 'reviewer'"),
    ("pending", "revoked_at = created_at, revoker_id = 'agent', revoker_kind = 'agent', revoker_label = 'x'"),
    ("pending", "revocation_reason = 'x'"),
    ("live", "content = '{}'"),
    ("live", "epoch = NULL"),
    ("denied", "decision = NULL"),
    ("denied", "decision = 'allow-once'"),
    ("denied", "terminal_reason = NULL"),
    ("denied", "terminal_reason = 'withdrawn'"),
    ("denied", "terminal_reason = 'grant'"),
    ("denied", "terminal_reason = 'malformed-verdict'"),
    ("denied", "terminal_reason = 'no-route'"),
    ("denied", "terminal_reason = 'no-route', resolver_kind = 'runtime'"),
    ("denied", "terminal_reason = 'storage-corrupt'"),
    ("denied", "terminal_reason = 'malformed-verdict', resolver_kind = 'runtime', resolved_at = expires_at"),
    ("denied", "revoked_at = resolved_at, revoker_id = 'x', revoker_kind = 'agent', revoker_label = 'x'"),
    ("denied", "resolver_kind = 'agent'"),
    ("denied", "resolved_at = expires_at"),
    ("denied", "claim_id = 'c', claimed_at = resolved_at, claim_fence = 1"),
    ("denied", "status = 'expired', terminal_reason = 'timeout', resolver_kind = 'authority'"),
    ("denied", "status = 'expired', terminal_reason = 'timeout', resolved_at = expires_at"),
    ("denied", "status = 'cancelled', terminal_reason = 'user'"),
    ("denied", "status = 'cancelled', terminal_reason = 'caller-lost'"),
    ("denied", "status = 'cancelled', terminal_reason = 'gateway-restart'"),
    ("denied", "status = 'cancelled', terminal_reason = 'run-aborted', decision = NULL"),
    ("denied", "status = 'cancelled', terminal_reason = 'timeout', resolver_kind = 'authority'"),
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
    ("allowed", "revoked_at = resolved_at"),
    ("allowed", "revoker_id = 'x', revoker_kind = 'agent', revoker_label = 'x'"),
    ("allowed", "revocation_reason = 'x'"),
    ("allowed", "revoker_person = 'x'"),
    (
        "allowed",
        "revoked_at = resolved_at - 1, revoker_id = 'x', revoker_kind = 'agent', revoker_label = 'x'",
    ),
    ("claimed", "revoked_at = resolved_at, revoker_id = 'x', revoker_kind = 'agent', revoker_label = 'x'"),
    ("revoked", "claim_id = 'c', claimed_at = resolved_at, claim_fence = 1"),
    ("revoked", "revoked_at = NULL"),
    ("revoked", "revoker_id = NULL"),
    ("revoked", "revoker_kind = NULL"),
    ("revoked", "revoker_label = NULL"),
    ("revoked", "revoked_at = resolved_at - 1"),
    ("revoked", "status = 'denied', decision = 'deny'"),
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
    for trigger in ["answer_is_final", "claim_is_final", "revocation_is_final", "request_is_frozen"] {
        raw.execute_batch(&format!("DROP TRIGGER approvals_{trigger}")).unwrap();
    }
    for (phase, forgery) in FORGERIES {
        let sql = format!("UPDATE approvals SET {forgery} WHERE boundary = '{phase}'");
        refused(&raw, &sql, "constraint failed");
    }
    for column in ["id", "reference", "audience", "requirement", "presentation", "updated_at"] {
        refused(
            &raw,
            &format!("UPDATE approvals SET {column} = NULL WHERE boundary = 'pending'"),
            "NOT NULL",
        );
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
        ("allowed", "resolver_person = 'somebody'"),
        ("revoked", "resolver_person = NULL"),
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
    for change in [
        "revoked_at = NULL, revoker_id = NULL, revoker_kind = NULL, revoker_label = NULL, revoker_person = NULL",
        "revoked_at = revoked_at + 1",
        "revoker_label = 'somebody'",
        "revocation_reason = 'another'",
    ] {
        refused(&raw, &format!("UPDATE approvals SET {change} WHERE boundary = 'revoked'"), "revoked once");
    }
    for change in [
        "id = 'another'",
        "reference = reference || 'x'",
        "content = '{}'",
        "expires_at = expires_at + 1",
        "requester_id = 'other'",
        "requester_person = 'somebody'",
        "boundary = 'x'",
        "client_id = 'x'",
        "audience = '[]'",
        "v4_request = '{}'",
        "source_session = 'x'",
        "source_session_id = 'x'",
        "source_run_id = 'x'",
        "requirement = '{}'",
    ] {
        refused(&raw, &format!("UPDATE approvals SET {change} WHERE boundary = 'pending'"), "never changes");
    }
    raw.execute("INSERT INTO run_events VALUES ('run_1', 1, 0, '{}')", []).unwrap();
    let issued = r#"{"type":"groups-changed"}"#;
    let values = "(1, 0, ?1, 'x', 'device', 'x', NULL)";
    raw.execute(&format!("INSERT INTO administration_events VALUES {values}"), [issued]).unwrap();
    for table in ["approval_events", "run_events", "administration_events"] {
        refused(&raw, &format!("UPDATE {table} SET at = 0"), "append-only");
        refused(&raw, &format!("DELETE FROM {table}"), "append-only");
    }
}

#[tokio::test]
async fn what_is_open_cannot_be_removed_and_a_name_is_not_given_twice() {
    let (_database, raw) = populated().await;
    raw.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    for open in ["pending", "live", "claimed"] {
        refused(&raw, &format!("DELETE FROM approvals WHERE boundary = '{open}'"), "has not ended");
    }
    let columns: String = raw
        .query_row("SELECT group_concat(name, ', ') FROM pragma_table_info('approvals')", [], |row| {
            row.get(0)
        })
        .unwrap();
    let copy = |id: &str, reference: &str| {
        let values = columns.replacen("id, reference", &format!("{id}, {reference}"), 1);
        format!("INSERT INTO approvals ({columns}) SELECT {values} FROM approvals WHERE boundary = 'denied'")
    };
    let (free, of_pending) =
        ("substr(reference, 2) || '_'", "(SELECT reference FROM approvals WHERE boundary = 'pending')");
    for (id, reference, why) in [
        ("id", free, "UNIQUE"),
        ("'x'", "reference", "UNIQUE"),
        (of_pending, free, "this name is another approval's"),
        ("reference", free, "this name is another approval's"),
        (free, free, "this name is another approval's"),
    ] {
        refused(&raw, &copy(id, reference), why);
    }
    // An id of the form of a reference, which only a chosen one can be, and then somebody whose reference it is.
    let like = format!("substr({of_pending}, 2) || '_'");
    raw.execute(&copy(&like, free), []).unwrap();
    refused(&raw, &copy("'y'", &like), "this name is another approval's");
}

#[tokio::test]
async fn other_tables_hold_only_what_makes_sense() {
    let (_database, raw) = populated().await;
    for sql in [
        "INSERT INTO meta VALUES (2, 0, 0)",
        "UPDATE meta SET served_until = last_committed + 1",
        "INSERT INTO principals (id, kind, label, created_at, scopes) VALUES ('x', 'authority', 'x', 0, '')",
        "INSERT INTO principals (id, kind, label, created_at, scopes) VALUES ('authority', 'agent', 'x', 0, '')",
        "INSERT INTO principals (id, kind, label, created_at, scopes) VALUES ('x', 'device', 'x', 0, '')",
        "UPDATE principals SET person = 'agent' WHERE kind = 'agent'",
        "UPDATE principals SET person = NULL WHERE kind = 'administrator'",
        "UPDATE principals SET reviewers = '{}'",
        "UPDATE principals SET reviewers = '['",
        "UPDATE principals SET range_id = 'agent'",
        "UPDATE principals SET public_key = printf('%064d', 0)",
        "UPDATE principals SET platform = 'linux'",
        "UPDATE principals SET kind = 'device', public_key = 'x' WHERE kind = 'administrator'",
        "UPDATE principals SET revoked_at = created_at - 1",
        "INSERT INTO tokens (hash, principal_id, created_at) SELECT 'x', id, 0 FROM principals",
        "INSERT INTO tokens (hash, principal_id, created_at) SELECT hash, 'reviewer', 0 FROM tokens",
        "INSERT INTO tokens (hash, principal_id, created_at) SELECT printf('%064d', 0), 'stranger', 0",
        "INSERT INTO pairing_codes VALUES ('x', 'p', '', 0, 1)",
        "INSERT INTO pairing_codes VALUES (printf('%064d', 0), 'p', '', 1, 0)",
        "INSERT INTO administration_events VALUES (NULL, 0, '{', 'x', 'x', 'x', NULL)",
        "INSERT INTO pending_tallies VALUES ('anything', 'x', 1)",
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
        "INSERT INTO approval_events VALUES (NULL, 'x', 0, '{', 'x', 'x', 'x', NULL)",
        "INSERT INTO idempotency_keys VALUES ('x', 'k', 'body', 'x', 0)",
    ] {
        refused(&raw, sql, "constraint failed");
    }
}
