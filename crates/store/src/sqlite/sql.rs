//! Every statement of the SQLite backend, in the order of the [`Ledger`](crate::ledger::Ledger) and
//! [`Store`](crate::Store) methods that use them. Owns no code.

/// Declares the statements and a list of them all, so that a test can prepare each on a fresh database.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: &str = $sql;)*

        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

/// An approval's columns in the order that `row` reads them.
macro_rules! select_approval {
    ($from:literal) => {
        concat!(
            "SELECT a.id, a.reference, a.kind, a.boundary, a.digest, a.content, a.presentation, a.reason, \
             a.source_agent, a.source_session, a.source_session_id, a.source_run_id, a.source_task_id, \
             a.source_tool_call_id, a.source_tool_name, a.requester_id, a.requester_kind, a.requester_label, \
             a.requester_person, a.client_id, a.audience, a.v4_request, a.epoch, a.run_id, a.requirement, \
             a.created_at, a.expires_at, a.status, a.decision, a.terminal_reason, a.resolved_at, \
             a.resolver_id, a.resolver_kind, a.resolver_label, a.resolver_person, a.claim_id, a.claimed_at, \
             a.claim_fence, a.receipt_outcome, a.receipt_detail, a.settled_at, a.revoked_at, a.revoker_id, \
             a.revoker_kind, a.revoker_label, a.revoker_person, a.revocation_reason FROM ",
            $from
        )
    };
}

/// An identity's columns in the order that `row` reads them, and then more.
macro_rules! select_principal {
    ($rest:literal) => {
        concat!(
            "SELECT p.id, p.kind, p.label, p.person, (SELECT json_group_array(g.group_name ORDER BY g.group_name) \
               FROM group_members g WHERE g.person = p.person), p.scopes, p.reviewers, p.range_id",
            $rest
        )
    };
}

/// What is known of an identity's device, and since when it is known.
macro_rules! select_identity {
    ($rest:literal) => {
        concat!(
            "SELECT p.id, p.kind, p.label, p.person, (SELECT json_group_array(g.group_name ORDER BY g.group_name) \
               FROM group_members g WHERE g.person = p.person), p.scopes, p.reviewers, p.range_id, \
             p.public_key, p.platform, p.device_family, p.created_at FROM principals p WHERE p.revoked_at IS NULL ",
            $rest
        )
    };
}

/// The distinct epochs that pending approvals wait on, each found by one step in the index: the cost is the
/// number of epochs, not of approvals. Without `MATERIALIZED` it would be gone through again for each row that it
/// is joined to, and left to itself the planner takes an index that is sorted by something else.
macro_rules! with_waiting_epochs {
    ($rest:literal) => {
        concat!(
            "WITH RECURSIVE waiting (epoch) AS MATERIALIZED ( \
               SELECT min(epoch) FROM approvals INDEXED BY approvals_waiting_on_epoch \
                 WHERE status = 'pending' AND set_aside_at IS NULL AND epoch IS NOT NULL \
               UNION ALL \
               SELECT (SELECT min(epoch) FROM approvals INDEXED BY approvals_waiting_on_epoch \
                 WHERE status = 'pending' AND set_aside_at IS NULL AND epoch > waiting.epoch) \
               FROM waiting WHERE waiting.epoch IS NOT NULL) ",
            $rest
        )
    };
}

statements! {
    PRINCIPAL = select_principal!(" FROM principals p WHERE p.id = ?1 AND p.revoked_at IS NULL \
         AND EXISTS (SELECT 1 FROM tokens k WHERE k.principal_id = p.id)");
    APPROVAL = select_approval!("approvals a WHERE a.id = ?1");
    /// What is read in the place of an approval that is not there.
    DECOY = select_approval!("approvals a WHERE a.reference >= ?1 ORDER BY a.reference LIMIT 1");
    VOTES = "SELECT decision, voter_id, voter_kind, voter_label, voter_person, at, reason FROM approval_votes \
             WHERE approval_id = ?1 ORDER BY position";
    RUNTIME = "SELECT epoch, kind, instance, owner_id, lease_until, ended_at FROM runtimes WHERE epoch = ?1";
    RUN = "SELECT id, owner_id, agent, state, fence, held_until, last_seq, created_at, updated_at FROM runs WHERE id = ?1";
    IDEMPOTENCY = "SELECT body, approval_id FROM idempotency_keys WHERE principal_id = ?1 AND key = ?2";
    /// By what is there, or by what was and has been removed: its id is in its facts.
    IS_TAKEN = "SELECT EXISTS (SELECT 1 FROM approvals WHERE id = ?1) OR EXISTS (SELECT 1 FROM approvals WHERE reference = ?1) \
         OR EXISTS (SELECT 1 FROM approval_events WHERE approval_id = ?1) \
         OR EXISTS (SELECT 1 FROM removed_references WHERE reference = ?1)";
    TALLY = "SELECT pending FROM pending_tallies WHERE of = ?1 AND name = ?2";
    /// Each requester has a tally of its own in a session, so that nobody fills another's.
    TALLY_IN_SESSION = "SELECT pending FROM pending_tallies WHERE of = 'session' AND name = json_array(?1, ?2)";
    IS_FROZEN = "SELECT EXISTS (SELECT 1 FROM freezes WHERE agent IN ('', ?1))";
    SESSION = "SELECT controller, requester, parent, spawned_by, owner_id FROM sessions WHERE key = ?1";
    PENDING_OF_RUN = "SELECT id FROM ( \
           SELECT id, created_at FROM approvals INDEXED BY approvals_waiting_on_run \
             WHERE status = 'pending' AND set_aside_at IS NULL AND run_id = ?1 AND (?2 IS NULL OR requester_id = ?2) \
           UNION \
           SELECT id, created_at FROM approvals INDEXED BY approvals_waiting_for_source \
             WHERE status = 'pending' AND set_aside_at IS NULL AND source_run_id = ?1 AND (?2 IS NULL OR requester_id = ?2)) \
         ORDER BY created_at, id LIMIT ?3";
    /// Not of a run that goes on, nor with a claim of which nobody knows what came.
    OUTLIVED = "SELECT a.id FROM approvals a INDEXED BY approvals_by_end LEFT JOIN runs r ON r.id = a.run_id \
         WHERE a.status <> 'pending' AND a.resolved_at < ?1 AND (a.claim_id IS NULL OR a.receipt_outcome IS NOT NULL) \
           AND (a.run_id IS NULL OR r.id IS NULL OR r.state IN ('finished', 'failed', 'aborted')) \
         ORDER BY a.resolved_at, a.id LIMIT ?2";

    DUE_BY_DEADLINE = "SELECT id FROM approvals INDEXED BY approvals_by_deadline \
             WHERE status = 'pending' AND set_aside_at IS NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
    DUE_BY_EPOCH = with_waiting_epochs!(
        // CROSS JOIN keeps the order: the approvals of an epoch that lives are not looked at.
        "SELECT a.id FROM waiting w LEFT JOIN runtimes t ON t.epoch = w.epoch \
         CROSS JOIN approvals a INDEXED BY approvals_waiting_on_epoch \
         WHERE w.epoch IS NOT NULL AND (t.epoch IS NULL OR t.ended_at IS NOT NULL OR t.lease_until <= ?1) \
           AND a.epoch = w.epoch AND a.status = 'pending' AND a.set_aside_at IS NULL LIMIT ?2"
    );
    /// Whatever the time.
    DUE_BY_RUN = "SELECT a.id FROM ended_runs e CROSS JOIN approvals a INDEXED BY approvals_waiting_on_run \
         WHERE a.run_id = e.run_id AND a.status = 'pending' AND a.set_aside_at IS NULL AND ?1 IS NOT NULL LIMIT ?2";
    /// Unsettled claims whose holder is gone: its epoch, or its lease of the run with the claim's fence.
    DUE_BY_CLAIM = "SELECT a.id FROM approvals a INDEXED BY approvals_unsettled \
         LEFT JOIN runtimes t ON t.epoch = a.epoch LEFT JOIN runs r ON r.id = a.run_id \
         WHERE a.claim_id IS NOT NULL AND a.receipt_outcome IS NULL AND a.set_aside_at IS NULL AND CASE \
           WHEN a.epoch IS NOT NULL THEN t.epoch IS NULL OR t.ended_at IS NOT NULL OR t.lease_until <= ?1 \
           ELSE r.state IN ('finished', 'failed', 'aborted') OR r.fence IS NOT a.claim_fence \
             OR r.held_until IS NULL OR r.held_until <= ?1 END \
         ORDER BY a.claimed_at LIMIT ?2";

    INSERT_APPROVAL = "INSERT INTO approvals (id, reference, kind, boundary, digest, content, presentation, reason, \
             source_agent, source_session, source_session_id, source_run_id, source_task_id, source_tool_call_id, \
             source_tool_name, requester_id, requester_kind, requester_label, requester_person, client_id, audience, \
             v4_request, epoch, run_id, requirement, created_at, expires_at, updated_at, status) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
             ?23, ?24, ?25, ?26, ?27, ?28, 'pending')";
    UPDATE_APPROVAL = "UPDATE approvals SET status = ?2, decision = ?3, terminal_reason = ?4, resolved_at = ?5, \
             resolver_id = ?6, resolver_kind = ?7, resolver_label = ?8, resolver_person = ?9, claim_id = ?10, \
             claimed_at = ?11, claim_fence = ?12, receipt_outcome = ?13, receipt_detail = ?14, settled_at = ?15, \
             revoked_at = ?16, revoker_id = ?17, revoker_kind = ?18, revoker_label = ?19, revoker_person = ?20, \
             revocation_reason = ?21, updated_at = ?22 WHERE id = ?1";
    PUT_VOTE = "INSERT INTO approval_votes (approval_id, position, decision, voter_id, voter_kind, voter_label, \
             voter_person, at, reason) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (approval_id, position) DO UPDATE SET \
             decision = excluded.decision, voter_id = excluded.voter_id, voter_kind = excluded.voter_kind, \
             voter_label = excluded.voter_label, voter_person = excluded.voter_person, at = excluded.at, \
             reason = excluded.reason \
         WHERE (decision, voter_id, at) IS NOT (excluded.decision, excluded.voter_id, excluded.at)";
    SET_ASIDE = "UPDATE approvals SET set_aside_at = ?2 WHERE id = ?1 AND set_aside_at IS NULL";
    REMOVE_VOTES = "DELETE FROM approval_votes WHERE approval_id = ?1";
    REMOVE_KEYS = "DELETE FROM idempotency_keys WHERE approval_id = ?1";
    REMOVE_APPROVAL = "DELETE FROM approvals WHERE id = ?1";
    APPEND_EVENT = "INSERT INTO approval_events (approval_id, at, event, actor_id, actor_kind, actor_label, actor_person) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    APPEND_ADMINISTRATION = "INSERT INTO administration_events (at, event, actor_id, actor_kind, actor_label, actor_person) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    PUT_IDEMPOTENCY = "INSERT INTO idempotency_keys (principal_id, key, body, approval_id, at) VALUES (?1, ?2, ?3, ?4, ?5)";
    PUT_RUNTIME = "INSERT INTO runtimes (epoch, kind, instance, owner_id, started_at, lease_until, ended_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (epoch) DO UPDATE SET \
             lease_until = excluded.lease_until, ended_at = coalesce(ended_at, excluded.ended_at)";
    END_EARLIER_EPOCHS = "UPDATE runtimes SET ended_at = ?2 \
         WHERE kind = 'gateway' AND instance = ?1 AND ended_at IS NULL";
    SPARE_CALLERS = "UPDATE runtimes SET lease_until = max(lease_until, ?2) \
         WHERE kind = 'caller' AND instance IS NULL AND ended_at IS NULL AND lease_until > ?1 AND lease_until <= ?3";
    SPARE_RUNNERS = "UPDATE runs SET held_until = max(held_until, ?2) WHERE held_until > ?1 AND held_until <= ?3";
    PUT_RUN = "INSERT INTO runs (id, owner_id, agent, state, fence, held_until, last_seq, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO UPDATE SET state = excluded.state, \
             fence = excluded.fence, held_until = excluded.held_until, last_seq = excluded.last_seq, \
             updated_at = excluded.updated_at";
    /// No trigger: one on this table would make each new run look for who refers to it.
    REMEMBER_ENDED_RUN = "INSERT INTO ended_runs SELECT ?1 WHERE EXISTS (SELECT 1 FROM approvals \
             WHERE status = 'pending' AND set_aside_at IS NULL AND run_id = ?1) ON CONFLICT DO NOTHING";
    APPEND_JOURNAL = "INSERT INTO run_events (run_id, seq, at, event) VALUES (?1, ?2, ?3, ?4)";

    PUT_PRINCIPAL = "INSERT INTO principals (id, kind, label, created_at, person, scopes, reviewers, range_id, public_key, \
             platform, device_family) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
         ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, label = excluded.label, person = excluded.person, \
             scopes = excluded.scopes, reviewers = excluded.reviewers, range_id = excluded.range_id, \
             public_key = excluded.public_key, platform = excluded.platform, device_family = excluded.device_family, \
             revoked_at = NULL";
    OWNER_OF_TOKEN = "SELECT principal_id FROM tokens WHERE hash = ?1";
    PUT_TOKEN = "INSERT INTO tokens (hash, principal_id, created_at) VALUES (?1, ?2, ?3)";
    DROP_TOKENS = "DELETE FROM tokens WHERE principal_id = ?1 AND number NOT IN \
         (SELECT number FROM tokens WHERE principal_id = ?1 ORDER BY number DESC LIMIT ?2)";
    DROP_PAGE_SESSIONS = "DELETE FROM page_sessions WHERE principal_id = ?1";
    REVOKE_PRINCIPAL = "UPDATE principals SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
    DEVICE = "SELECT id, label, public_key, platform, device_family FROM principals WHERE id = ?1 AND kind = 'device'";
    /// All that have lapsed: administrators make codes, so they are few.
    PRUNE_PAIRINGS = "DELETE FROM pairing_codes WHERE expires_at <= ?1";
    PUT_PAIRING = "INSERT INTO pairing_codes (hash, person, scopes, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    TAKE_PAIRING = "DELETE FROM pairing_codes WHERE hash = ?1 AND expires_at > ?2 RETURNING person, scopes";
    PUT_FREEZE = "INSERT INTO freezes (agent, at, by, reason) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (agent) DO UPDATE SET at = excluded.at, by = excluded.by, reason = excluded.reason";
    DROP_FREEZE = "DELETE FROM freezes WHERE agent = ?1";
    GROUP_MEMBERS = "SELECT group_name, person FROM group_members";
    DROP_GROUPS = "DELETE FROM group_members";
    PUT_GROUP_MEMBER = "INSERT INTO group_members (group_name, person) VALUES (?1, ?2)";
    PUT_SESSION = "INSERT INTO sessions (key, owner_id, controller, requester, parent, spawned_by, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (key) DO UPDATE SET owner_id = excluded.owner_id, \
             controller = excluded.controller, requester = excluded.requester, parent = excluded.parent, \
             spawned_by = excluded.spawned_by, updated_at = excluded.updated_at";
    PUT_PAGE_SESSION = "INSERT INTO page_sessions (hash, principal_id, created_at, expires_at) VALUES (?1, ?2, ?3, ?4)";
    /// A bounded number at a time: nothing needs them gone at once.
    PRUNE_PAGE_SESSIONS = "DELETE FROM page_sessions WHERE hash IN \
         (SELECT hash FROM page_sessions WHERE expires_at <= ?1 LIMIT 64)";
    SERVED_UNTIL = "SELECT served_until FROM meta WHERE id = 1";

    LAST_COMMITTED = "SELECT last_committed FROM meta WHERE id = 1";
    PUT_META = "UPDATE meta SET last_committed = ?1, served_until = iif(?2, ?1, served_until) WHERE id = 1";

    /// Two at most: a text that names more than one names none.
    LOCATED = select_approval!("approvals a WHERE a.id = ?1 OR a.reference = ?1 LIMIT 2");
    PENDING_OF_SESSION = select_approval!(
        "approval_audience s CROSS JOIN approvals a ON a.id = s.approval_id WHERE s.session_key = ?1 \
         AND (s.created_at, s.approval_id) > (?2, ?3) ORDER BY s.created_at, s.approval_id LIMIT ?4"
    );
    EVENTS = "SELECT seq, approval_id, event, actor_id, actor_kind, actor_label, actor_person, at FROM approval_events \
         WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    NEXT_DUE = with_waiting_epochs!(
        "SELECT min(at) FROM ( \
           SELECT min(expires_at) AS at FROM approvals INDEXED BY approvals_by_deadline \
             WHERE status = 'pending' AND set_aside_at IS NULL \
           UNION ALL \
           SELECT min(CASE WHEN t.epoch IS NULL OR t.ended_at IS NOT NULL THEN 0 ELSE t.lease_until END) \
             FROM waiting w LEFT JOIN runtimes t ON t.epoch = w.epoch WHERE w.epoch IS NOT NULL \
           UNION ALL \
           SELECT iif(EXISTS (SELECT 1 FROM ended_runs), 0, NULL) \
           UNION ALL \
           SELECT min(CASE \
               WHEN a.epoch IS NOT NULL THEN CASE WHEN t.epoch IS NULL OR t.ended_at IS NOT NULL THEN 0 ELSE t.lease_until END \
               WHEN r.state IN ('finished', 'failed', 'aborted') OR r.fence IS NOT a.claim_fence OR r.held_until IS NULL \
                 THEN 0 ELSE r.held_until END) \
             FROM approvals a INDEXED BY approvals_unsettled LEFT JOIN runtimes t ON t.epoch = a.epoch LEFT JOIN runs r ON r.id = a.run_id \
             WHERE a.claim_id IS NOT NULL AND a.receipt_outcome IS NULL AND a.set_aside_at IS NULL)"
    );
    RUN_EVENTS = "SELECT seq, at, event FROM run_events WHERE run_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    TOKEN_PRINCIPAL = select_principal!(" FROM tokens k JOIN principals p ON p.id = k.principal_id \
         WHERE k.hash = ?1 AND p.revoked_at IS NULL");
    SESSION_PRINCIPAL = select_principal!(" FROM page_sessions s JOIN principals p ON p.id = s.principal_id \
         WHERE s.hash = ?1 AND s.expires_at > ?2 AND p.revoked_at IS NULL \
           AND EXISTS (SELECT 1 FROM tokens k WHERE k.principal_id = p.id)");
    IDENTITY = select_identity!("AND p.id = ?1");
    IDENTITIES = select_identity!("ORDER BY p.id");
    FREEZES = "SELECT agent, at, by, reason FROM freezes ORDER BY agent";
    ADMINISTRATION = "SELECT seq, event, actor_id, actor_kind, actor_label, actor_person, at FROM administration_events \
         WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    PENDING_COUNTS = "SELECT name, pending FROM pending_tallies WHERE of = 'kind' AND pending > 0 ORDER BY name";

    LIST = select_approval!("approvals a ");
}

/// The statement that lists approvals under the given conditions, newest first. Put together, because one
/// statement for every filter would use no index.
pub(super) fn list(conditions: &[&str]) -> String {
    let filter =
        if conditions.is_empty() { String::new() } else { format!("WHERE {} ", conditions.join(" AND ")) };
    format!("{LIST}{filter}ORDER BY a.created_at DESC, a.id DESC LIMIT ?")
}

/// The statement that lists what has ended under the given conditions, the last one first.
pub(super) fn history(conditions: &[&str]) -> String {
    let filter: String = conditions.iter().map(|condition| format!("AND {condition} ")).collect();
    format!("{LIST}WHERE a.status <> 'pending' {filter}ORDER BY a.resolved_at DESC, a.id DESC LIMIT ?")
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::{keep_plans, migrate, read};

    #[test]
    fn every_statement_prepares_on_a_fresh_database() {
        let conn = fresh();
        for (name, sql) in ALL {
            conn.prepare(sql).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        for chosen in subsets(&read::CONDITIONS) {
            conn.prepare(&list(&chosen)).unwrap_or_else(|e| panic!("list by {chosen:?}: {e}"));
        }
        for chosen in subsets(&read::ENDED_CONDITIONS) {
            conn.prepare(&history(&chosen)).unwrap_or_else(|e| panic!("history by {chosen:?}: {e}"));
        }
    }

    fn subsets(all: &[&'static str]) -> Vec<Vec<&'static str>> {
        let chosen = |mask: usize| all.iter().enumerate().filter(move |(i, _)| mask & (1 << i) != 0);
        (0..1 << all.len()).map(|mask| chosen(mask).map(|(_, condition)| *condition).collect()).collect()
    }

    /// What is read as a whole, because it is short or asked for as a whole.
    const WHOLE: [&str; 5] = ["LIST", "IDENTITIES", "FREEZES", "GROUP_MEMBERS", "DROP_GROUPS"];

    /// How a statement is gone about, step by step, on an empty database.
    fn plan(conn: &Connection, sql: &str) -> Vec<String> {
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let unbound = plan.parameter_count();
        let nulls = rusqlite::params_from_iter(std::iter::repeat_n(rusqlite::types::Null, unbound));
        plan.query_map(nulls, |row| row.get(3)).unwrap().map(Result::unwrap).collect()
    }

    fn fresh() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        keep_plans(&conn).unwrap();
        migrate::migrate(&mut conn, "memory", holdgate_core::Time::from_ms(0)).unwrap();
        conn
    }

    #[test]
    fn what_runs_often_reads_no_whole_table() {
        let conn = fresh();
        let tables: Vec<String> = conn
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(tables.len() > 15);
        // The only table of which a scan ends after one row, and short: what the next sweep works off.
        let is_kept_short = |table: &str| table == "ended_runs";
        for (name, sql) in ALL.iter().filter(|(name, _)| !WHOLE.contains(name)) {
            for step in plan(&conn, sql) {
                let is_scan = tables.iter().filter(|table| !is_kept_short(table)).any(|table| {
                    // Or by the letter that the statement calls it.
                    step == format!("SCAN {table}") || (step.starts_with("SCAN ") && step.len() == 6)
                });
                assert!(!is_scan || step == "SCAN e" || step == "SCAN w", "{name}: {step}");
            }
        }
    }

    #[test]
    fn pages_come_from_an_index_in_order() {
        let conn = fresh();
        let prefix = [read::CONDITIONS[5], read::CONDITIONS[6]];
        let [only, except, of, before] = read::ENDED_CONDITIONS;
        for (what, sql, index) in [
            ("one", LOCATED.to_owned(), "approvals_1 (id=?)"),
            ("one by reference", LOCATED.to_owned(), "approvals_2 (reference=?)"),
            ("one in the place of another", DECOY.to_owned(), "approvals_2 (reference>?)"),
            ("history", history(&[]), "approvals_by_end"),
            ("history, on", history(&[before]), "approvals_by_end ((resolved_at,id)<(?,?))"),
            ("history of a kind", history(&[only]), "approvals_by_kind_and_end (kind=?)"),
            (
                "history of a kind, on",
                history(&[only, before]),
                "approvals_by_kind_and_end (kind=? AND (resolved_at,id)<(?,?))",
            ),
            (
                "history of other kinds, on",
                history(&[except, before]),
                "approvals_by_end ((resolved_at,id)<(?,?))",
            ),
            (
                "history of a requester, on",
                history(&[of, before]),
                "approvals_by_requester_and_end (requester_id=? AND (resolved_at,id)<(?,?))",
            ),
            (
                "session",
                PENDING_OF_SESSION.to_owned(),
                "PRIMARY KEY (session_key=? AND (created_at,approval_id)>(?,?))",
            ),
            ("all", list(&[]), "approvals_by_age"),
            ("pending", list(&[read::CONDITIONS[0]]), "approvals_by_status (status=?)"),
            ("of a requester", list(&[read::CONDITIONS[4]]), "approvals_by_requester (requester_id=?)"),
            ("by prefix", list(&prefix), "approvals_1 (id>? AND id<?)"),
        ] {
            let steps = plan(&conn, &sql);
            assert!(steps.iter().any(|step| step.contains(index)), "{what}: {steps:?}");
            let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(!sorts || what == "by prefix", "{what}: {steps:?}");
        }
    }
}
