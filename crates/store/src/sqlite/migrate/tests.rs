//! A database that an earlier version wrote, after this version has opened it.

use holdgate_core::approval::{Bound, Outcome as Came, Status, TerminalReason};
use holdgate_core::presentation::present;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Action, Approval, ApprovalId, Canonical, Command, Kind, PrincipalId, Scopes};
use rusqlite::types::Value;

use super::*;
use crate::ledger::Ledger as _;
use crate::perform::perform;
use crate::sqlite::ledger::SqliteLedger;
use crate::sqlite::read;
use crate::{Answer, By, Credential, Filter, HistoryFilter, Op, Outcome, Stored};

const THEN: i64 = 1_700_000_000_000;
const NOW: Time = Time::from_ms(THEN + 5_000);
const REQUIREMENT: &str = r#"{"reasonRequired":false,"allowedDecisions":["allow-once","deny"]}"#;

/// How a fixture's approval ended: status, decision, reason, when after it was asked, by whom.
type Ending = Option<(&'static str, &'static str, &'static str, i64, &'static str)>;

const ALLOWED: Ending = Some(("allowed", "allow-once", "user", 10, "operator"));

/// Every status that the first schema knew, by the approval's boundary.
const ENDINGS: &[(&str, Ending)] = &[
    ("pending", None),
    ("denied", Some(("denied", "deny", "user", 10, "operator"))),
    ("given up", Some(("denied", "deny", "storage-corrupt", 10, "authority"))),
    ("expired", Some(("expired", "deny", "timeout", 1_000_000, "authority"))),
    ("restarted", Some(("cancelled", "deny", "gateway-restart", 10, "authority"))),
    ("lost", Some(("cancelled", "deny", "caller-lost", 10, "authority"))),
    ("withdrawn", Some(("cancelled", "deny", "withdrawn", 10, "agent"))),
    ("allowed", ALLOWED),
    ("claimed", ALLOWED),
    ("settled", ALLOWED),
];

/// A database as the first version left it, with an approval of every status behind a process and behind a run.
fn written_by_schema_1() -> Connection {
    let mut conn = Connection::open_in_memory().unwrap();
    apply(&mut conn, &STEPS[..1], 0, Time::from_ms(THEN)).unwrap();
    conn.execute_batch(&format!(
        "UPDATE meta SET last_committed = {THEN}, served_until = {THEN};
         INSERT INTO principals VALUES ('operator', 'administrator', 'The operator', {THEN}), ('agent', 'agent', 'a', {THEN});
         INSERT INTO runtimes VALUES ('epo_1', 'caller', NULL, 'agent', {THEN}, {THEN} + 1000000, NULL);
         INSERT INTO runs VALUES ('run_1', 'agent', 'a', 'suspended', 1, NULL, 1, {THEN}, {THEN}),
             ('run_over', 'agent', 'a', 'failed', 1, NULL, 1, {THEN}, {THEN});
         INSERT INTO run_events VALUES ('run_1', 1, {THEN}, '{{}}'), ('run_over', 1, {THEN}, '{{}}');"
    ))
    .unwrap();
    for who in ["operator", "agent"] {
        conn.execute("INSERT INTO tokens VALUES (?1, ?2, ?3)", params![token(who).to_hex(), who, THEN])
            .unwrap();
    }
    conn.execute(
        "INSERT INTO page_sessions VALUES (?1, 'operator', ?2, ?2 + 1000000)",
        params![token("page").to_hex(), THEN],
    )
    .unwrap();
    for (boundary, ending) in ENDINGS {
        asked(&conn, boundary, None, *ending);
        asked(&conn, boundary, Some("run_1"), *ending);
    }
    conn.execute_batch(&format!(
        "UPDATE approvals SET claim_id = 'c', claimed_at = {THEN} + 20, claim_fence = iif(run_id IS NULL, NULL, 1)
             WHERE boundary IN ('claimed', 'settled');
         UPDATE approvals SET receipt_outcome = 'failed', receipt_detail = 'why', settled_at = {THEN} + 30
             WHERE boundary = 'settled';"
    ))
    .unwrap();
    conn
}

fn token(of: &str) -> Digest {
    Digest::of(of.as_bytes())
}

fn action(boundary: &str) -> Action {
    let content = Canonical::parse(r#"{"toolName":"deploy","input":{}}"#).unwrap();
    Action::freeze(Kind::Tool, boundary, content).unwrap()
}

fn id(boundary: &str, run: Option<&str>) -> ApprovalId {
    action(boundary).id(run.unwrap_or("epo_1/agent"))
}

fn asked(conn: &Connection, boundary: &str, run: Option<&str>, ending: Ending) {
    let (action, id) = (action(boundary), id(boundary, run));
    let shown = present(Kind::Tool, &action.content().to_value()).unwrap();
    conn.execute(
        "INSERT INTO approvals (id, kind, boundary, digest, content, presentation, source_agent, requester_id,
             requester_kind, requester_label, epoch, run_id, requirement, created_at, expires_at, status)
         VALUES (?1, 'tool', ?2, ?3, ?4, ?5, 'a', 'agent', 'agent', 'a', ?6, ?7, ?8, ?9, ?9 + 1000000, 'pending')",
        params![
            id.as_str(),
            boundary,
            action.digest().to_hex(),
            run.map(|_| action.content().as_str()),
            serde_json::to_string(&shown).unwrap(),
            if run.is_none() { Some("epo_1") } else { None },
            run,
            REQUIREMENT,
            THEN
        ],
    )
    .unwrap();
    let fact = "INSERT INTO approval_events (approval_id, at, event, actor_id, actor_kind, actor_label)
                VALUES (?1, ?2, ?3, ?4, ?5, ?4)";
    let mut facts = vec![(THEN, r#"{"type":"opened"}"#.to_owned(), "agent", "agent")];
    if let Some((status, decision, reason, after, by)) = ending {
        let kind = if by == "operator" { "administrator" } else { by };
        let end = params![id.as_str(), status, decision, reason, THEN + after, by, kind];
        conn.execute(
            "UPDATE approvals SET status = ?2, decision = ?3, terminal_reason = ?4, resolved_at = ?5, resolver_id = ?6,
                 resolver_kind = ?7, resolver_label = ?6 WHERE id = ?1",
            end,
        )
        .unwrap();
        if reason == "user" {
            conn.execute(
                "INSERT INTO approval_votes VALUES (?1, 0, ?2, 'operator', 'administrator', 'operator', ?3, 'so')",
                params![id.as_str(), decision, THEN + after],
            )
            .unwrap();
            facts.push((THEN + after, format!(r#"{{"type":"voted","decision":"{decision}"}}"#), by, kind));
        }
        let event = format!(r#"{{"type":"resolved","status":"{status}","reason":"{reason}"}}"#);
        facts.push((THEN + after, event, by, kind));
    }
    for (at, event, by, kind) in facts {
        conn.execute(fact, params![id.as_str(), at, event, by, kind]).unwrap();
    }
    conn.execute(
        "INSERT INTO idempotency_keys VALUES ('agent', ?1, ?2, ?1, ?3)",
        params![id.as_str(), token("body").to_hex(), THEN],
    )
    .unwrap();
}

fn migrated(mut conn: Connection) -> Connection {
    migrate(&mut conn, "memory", NOW).unwrap();
    let enforced: bool = conn.query_row("PRAGMA foreign_keys", [], |row| row.get(0)).unwrap();
    assert!(enforced, "foreign keys act again");
    let ignored: bool = conn.query_row("PRAGMA ignore_check_constraints", [], |row| row.get(0)).unwrap();
    assert!(!ignored, "CHECKs act again");
    conn
}

fn sound(conn: &Connection, locator: &str) -> Approval {
    let seen = read::approval(conn, locator, NOW).unwrap().unwrap();
    match seen.stored {
        Stored::Sound(approval) => *approval,
        Stored::Corrupt { why, .. } => panic!("{locator}: {why}"),
    }
}

fn count(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn by(id: &str) -> By {
    By { id: id.parse().unwrap(), scopes: Scopes::ALL }
}

#[test]
fn every_record_of_an_earlier_version_is_found_again() {
    let conn = migrated(written_by_schema_1());
    for (boundary, ending) in ENDINGS {
        for run in [None, Some("run_1")] {
            let id = id(boundary, run);
            let found = sound(&conn, id.as_str());
            assert_eq!(sound(&conn, &found.reference()), found);
            assert_eq!(found.status().as_str(), ending.map_or("pending", |end| end.0), "{boundary}");
            assert_eq!(found.content.is_some(), run.is_some());
            assert_eq!(found.end().map(|end| end.reason.as_str()), ending.map(|end| end.2));
            let operator: PrincipalId = "operator".parse().unwrap();
            if found.end().is_some_and(|end| end.reason == TerminalReason::User) {
                let person = Some("operator".parse().unwrap());
                assert_eq!((&found.votes[0].voter.id, &found.votes[0].voter.person), (&operator, &person));
                assert_eq!(found.votes[0].reason.as_deref(), Some("so"));
            }
            assert_eq!(found.claim().is_some(), matches!(*boundary, "claimed" | "settled"));
            let came = found.claim().and_then(|claim| claim.receipt.as_ref()).map(|receipt| receipt.outcome);
            assert_eq!(came, (*boundary == "settled").then_some(Came::Failed));
        }
    }
    let all = u32::try_from(2 * ENDINGS.len()).unwrap();
    let listed = read::approvals(&conn, &Filter { limit: 100, ..Filter::default() }, NOW).unwrap();
    let ended = read::history(&conn, &HistoryFilter { limit: 100, ..HistoryFilter::default() }, NOW).unwrap();
    assert_eq!((listed.len(), ended.len()), (all as usize, all as usize - 2));
    assert_eq!(read::pending_counts(&conn).unwrap(), [(Kind::Tool, 2)]);
    assert_eq!(SqliteLedger::new(&conn).pending_of(&"agent".parse().unwrap()).unwrap(), 2);
    let facts = read::events(&conn, 0, 100).unwrap();
    assert_eq!(facts.len(), 46);
    assert!(
        facts.iter().all(|fact| fact.by.person.is_some() == (fact.by.kind == PrincipalKind::Administrator))
    );
    assert_eq!(count(&conn, "SELECT count(*) FROM idempotency_keys"), i64::from(all));
    assert_eq!(count(&conn, "SELECT count(*) FROM run_events"), 2);
    let complaints: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(complaints, "ok", "nothing of it breaks a rule of the new schema");
}

#[test]
fn who_could_act_before_still_can_and_as_much() {
    let conn = migrated(written_by_schema_1());
    let operator = read::credential(&conn, Credential::Token(token("operator")), NOW).unwrap().unwrap();
    assert!(operator.is_admin());
    assert_eq!(operator.person.as_ref().unwrap().as_str(), "operator");
    let page = read::credential(&conn, Credential::PageSession(token("page")), NOW).unwrap();
    assert_eq!(page, Some(operator));
    let agent = read::credential(&conn, Credential::Token(token("agent")), NOW).unwrap().unwrap();
    assert_eq!((agent.scopes, agent.person), (Scopes::REQUEST, None));

    let pending = sound(&conn, id("pending", Some("run_1")).as_str());
    let command = Command::Vote { decision: Decision::AllowOnce, digest: pending.digest, reason: None };
    let voted = Op::Apply { id: pending.id.clone(), command, by: by("operator") };
    let answer = perform(&mut SqliteLedger::new(&conn), voted, NOW).unwrap();
    let Outcome::Committed(Answer::Approval(allowed)) = answer else { panic!("{answer:?}") };
    assert_eq!(allowed.status(), Status::Allowed);
    assert_eq!(sound(&conn, pending.id.as_str()), *allowed);
    assert_eq!(read::pending_counts(&conn).unwrap(), [(Kind::Tool, 1)]);
}

#[test]
fn what_waits_for_a_run_that_had_ended_is_called_off() {
    let conn = written_by_schema_1();
    asked(&conn, "too late", Some("run_over"), None);
    let conn = migrated(conn);
    let late = id("too late", Some("run_over"));
    assert_eq!(read::next_due(&conn).unwrap(), Some(Time::from_ms(0)));
    assert_eq!(read::approval(&conn, late.as_str(), NOW).unwrap().unwrap().bound, Bound::RunEnded);
    perform(&mut SqliteLedger::new(&conn), Op::Sweep { limit: 10 }, NOW).unwrap();
    assert_eq!(sound(&conn, late.as_str()).end().unwrap().reason, TerminalReason::RunAborted);
    assert_eq!(count(&conn, "SELECT count(*) FROM ended_runs"), 0);
}

#[test]
fn a_damaged_row_is_carried_over_as_it_was_found() {
    let conn = written_by_schema_1();
    conn.execute_batch(
        "PRAGMA ignore_check_constraints = ON;
         DROP TRIGGER approvals_request_is_frozen;
         UPDATE approvals SET presentation = '{' WHERE boundary = 'pending' AND run_id IS NULL;
         UPDATE approvals SET kind = 'anything' WHERE boundary = 'denied' AND run_id IS NULL;
         UPDATE approvals SET requirement = '[]', set_aside_at = created_at WHERE boundary = 'pending' AND run_id IS NOT NULL;
         DELETE FROM approval_votes WHERE approval_id IN (SELECT id FROM approvals WHERE boundary = 'allowed');
         PRAGMA ignore_check_constraints = OFF;",
    )
    .unwrap();
    let conn = migrated(conn);
    for (boundary, run) in [
        ("pending", None),
        ("denied", None),
        ("pending", Some("run_1")),
        ("allowed", None),
        ("allowed", Some("run_1")),
    ] {
        let id = id(boundary, run);
        let seen = read::approval(&conn, id.as_str(), NOW).unwrap().unwrap();
        assert!(matches!(seen.stored, Stored::Corrupt { .. }), "{boundary}");
    }
    let kept: Value = conn
        .query_row(
            "SELECT presentation FROM approvals WHERE id = ?1",
            [id("pending", None).as_str()],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(kept, Value::Text("{".to_owned()));
    assert_eq!(sound(&conn, id("settled", None).as_str()).status(), Status::Allowed);
    assert_eq!(read::pending_counts(&conn).unwrap(), [(Kind::Tool, 1)], "what was set aside is not pending");
}

#[test]
fn a_step_that_fails_changes_nothing() {
    let mut conn = written_by_schema_1();
    conn.execute_batch("CREATE TABLE freezes (in_the_way INTEGER)").unwrap();
    assert!(matches!(migrate(&mut conn, "memory", NOW), Err(StoreError::Unusable(_))));
    assert_eq!(count(&conn, "SELECT max(version) FROM schema_migrations"), 1);
    assert_eq!(count(&conn, "SELECT count(*) FROM approvals"), i64::try_from(2 * ENDINGS.len()).unwrap());
    let enforced: bool = conn.query_row("PRAGMA foreign_keys", [], |row| row.get(0)).unwrap();
    assert!(enforced);
}
