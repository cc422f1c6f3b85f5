//! What the frequent work costs while 10,000 approvals wait, in steps of SQLite's virtual machine: a plan without
//! a scan can still be gone through once for every row. Owns no statement.

use holdgate_core::approval::{Binding, Draft, Source};
use holdgate_core::limits::PAGE_ITEMS;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{Action, Approval, Canonical, Command, Digest, EpochId, Kind, Principal, Scopes, Time};
use rusqlite::{Connection, StatementStatus};

use super::ledger::SqliteLedger;
use super::{keep_plans, migrate, read, sql};
use crate::perform::perform;
use crate::{Answer, By, Caps, Filter, HistoryFilter, Op, Outcome, RuntimeKind};

const WAITING: usize = 10_000;
/// Nobody is held back by how much waits.
const CAPS: Caps = Caps { per_principal: u32::MAX, per_session: u32::MAX };
/// Some steps for each that waits. Work that is done again for every row takes a hundred times as many.
const ONE_PASS: i64 = 100 * WAITING as i64;
/// Work that does not depend on how many wait: that of a few hundred rows.
const SOME_ROWS: i64 = 200_000;
/// Work on one record.
const ONE_ROW: i64 = 2_000;
const SWEEP: u32 = 256;
const START: Time = Time::from_ms(1_700_000_000_000);

/// A database in memory.
struct Waiting {
    conn: Connection,
    last: Option<Approval>,
}

impl Waiting {
    /// Requests in number, spread evenly over so many epochs.
    fn on_epochs(epochs: usize) -> Self {
        let mut conn = Connection::open_in_memory().unwrap();
        keep_plans(&conn).unwrap();
        migrate::migrate(&mut conn, "memory", START).unwrap();
        conn.execute_batch("BEGIN").unwrap();
        let mut waiting = Self { conn, last: None };
        for (id, kind) in [("agent", PrincipalKind::Agent), ("reviewer", PrincipalKind::Administrator)] {
            let hash = Digest::of(id.as_bytes());
            let principal = Principal::new(id.parse().unwrap(), kind, id);
            waiting.perform(Op::PutCredential { hash, principal, recovers: false }, START);
        }
        for n in 0..epochs {
            waiting
                .perform(Op::StartRuntime { epoch: epoch(n), kind: RuntimeKind::Caller, by: agent() }, START);
        }
        for n in 0..WAITING {
            let draft = Box::new(draft(epoch(n % epochs), n));
            let asked =
                waiting.perform(Op::Open { draft, fence: None, by: agent(), key: None, caps: CAPS }, START);
            let Answer::Approval(asked) = asked else { panic!("{asked:?}") };
            waiting.last = Some(*asked);
        }
        waiting
    }

    fn perform(&self, op: Op, now: Time) -> Answer {
        match perform(&mut SqliteLedger::new(&self.conn), op, now).unwrap() {
            Outcome::Committed(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// How many steps all statements take that `work` runs.
    fn steps<T>(&self, work: impl FnOnce(&Connection) -> T) -> (T, i64) {
        let listed: [String; 3] = [sql::list(&[]), sql::list(&[PENDING]), sql::list(&[PENDING, BEFORE])];
        let all = || sql::ALL.iter().map(|(_, sql)| *sql).chain(listed.iter().map(String::as_str));
        let taken = |sql| {
            let statement = self.conn.prepare_cached(sql).unwrap();
            i64::from(statement.reset_status(StatementStatus::VmStep))
        };
        let _before: i64 = all().map(taken).sum();
        let result = work(&self.conn);
        (result, all().map(taken).sum())
    }
}

const PENDING: &str = read::CONDITIONS[0];
const BEFORE: &str = read::CONDITIONS[7];

fn agent() -> By {
    By { id: "agent".parse().unwrap(), scopes: Scopes::ALL }
}

fn reviewer() -> By {
    By { id: "reviewer".parse().unwrap(), scopes: Scopes::ALL }
}

fn epoch(n: usize) -> EpochId {
    format!("epo_{n:032x}").parse().unwrap()
}

fn draft(epoch: EpochId, n: usize) -> Draft {
    let content = Canonical::parse(r#"{"toolName":"deploy","input":{}}"#).unwrap();
    let presentation = holdgate_core::presentation::present(Kind::Tool, &content.to_value()).unwrap();
    Draft {
        id: None,
        action: Action::freeze(Kind::Tool, &format!("t:{n}"), content).unwrap(),
        presentation,
        reason: None,
        source: Source { session: Some("main".to_owned()), ..Source::default() },
        binding: Binding::Runtime(epoch),
        requirement: Requirement::default(),
        timeout_ms: 600_000,
        client: None,
        v4_request: None,
    }
}

#[test]
fn frequent_work_does_not_grow_with_the_square_of_what_waits() {
    // One gateway lends its epoch to all; or every caller has its own.
    for (epochs, to_look) in [(1, ONE_ROW), (WAITING, ONE_PASS)] {
        let waiting = Waiting::on_epochs(epochs);
        let lapsed = START.plus_ms(holdgate_core::limits::RUNTIME_LEASE_MS);
        let check = |what: &str, steps: i64, bound: i64| {
            assert!(0 < steps && steps <= bound, "{what} over {epochs} epochs: {steps} of {bound} steps");
        };

        let (due, steps) = waiting.steps(read::next_due);
        assert_eq!(due.unwrap(), Some(lapsed));
        check("to ask when time next decides", steps, to_look);

        let (swept, steps) = waiting.steps(|_| waiting.perform(Op::Sweep { limit: SWEEP }, START));
        assert_eq!(swept, Answer::Touched(0));
        check("to sweep when nothing is due", steps, to_look);

        let (page, steps) = waiting.steps(|conn| {
            let status = Some(holdgate_core::approval::Status::Pending);
            let first = Filter { status, limit: PAGE_ITEMS, ..Filter::default() };
            let page = read::approvals(conn, &first, START).unwrap();
            let before = page.last().map(|seen| seen.place.clone());
            read::approvals(conn, &Filter { before, ..first }, START).unwrap()
        });
        assert_eq!(page.len(), PAGE_ITEMS as usize);
        check("to list two pages", steps, SOME_ROWS);

        let (streamed, steps) = waiting.steps(|conn| {
            let limit = PAGE_ITEMS;
            let newest =
                read::history(conn, &HistoryFilter { limit, ..HistoryFilter::default() }, START).unwrap();
            assert!(newest.is_empty());
            read::pending_of_session(conn, "main", None, limit, START).unwrap()
        });
        assert_eq!(streamed.len(), PAGE_ITEMS as usize);
        check("to stream a session", steps, SOME_ROWS);

        let ask = Op::Open {
            draft: Box::new(draft(epoch(0), WAITING)),
            fence: None,
            by: agent(),
            key: None,
            caps: CAPS,
        };
        let (_, steps) = waiting.steps(|_| waiting.perform(ask, START));
        check("to ask", steps, ONE_ROW);

        let last = waiting.last.as_ref().unwrap();
        let command = Command::Vote { decision: Decision::Deny, digest: last.digest, reason: None };
        let vote = Op::Apply { id: last.id.clone(), command, by: reviewer() };
        let (_, steps) = waiting.steps(|_| waiting.perform(vote, START));
        check("to decide", steps, ONE_ROW);

        let (swept, steps) = waiting.steps(|_| waiting.perform(Op::Sweep { limit: SWEEP }, lapsed));
        assert_eq!(swept, Answer::Touched(SWEEP));
        check("to sweep lapsed epochs", steps, to_look + SOME_ROWS);

        let expired = START.plus_ms(600_000);
        let (swept, steps) = waiting.steps(|_| waiting.perform(Op::Sweep { limit: SWEEP }, expired));
        assert_eq!(swept, Answer::Touched(SWEEP));
        check("to sweep what has expired", steps, to_look + SOME_ROWS);
    }
}

#[test]
fn what_is_not_there_takes_as_many_steps_as_what_is_hidden() {
    let waiting = Waiting::on_epochs(1);
    let stranger = Principal::new("stranger".parse().unwrap(), PrincipalKind::Agent, "stranger");
    let hash = Digest::of(b"stranger");
    waiting.perform(Op::PutCredential { hash, principal: stranger.clone(), recovers: false }, START);
    let hidden = &waiting.last.as_ref().unwrap().id;
    let missing = format!("apr_{:032x}", 0).parse().unwrap();
    let read = |id: &holdgate_core::ApprovalId| {
        let (seen, steps) = waiting.steps(|conn| read::approval(conn, id.as_str(), START).unwrap());
        assert_eq!(seen.is_some(), id == hidden);
        steps
    };
    let decide = |id: &holdgate_core::ApprovalId| {
        let command = Command::Vote { decision: Decision::Deny, digest: Digest::of(b""), reason: None };
        let vote = Op::Apply { id: id.clone(), command, by: By::from(&stranger) };
        let (refused, steps) =
            waiting.steps(|conn| perform(&mut SqliteLedger::new(conn), vote, START).unwrap());
        assert_eq!(refused, Outcome::Refused(holdgate_core::Refusal::NotFound, None));
        steps
    };
    for (what, hidden, missing) in
        [("to read", read(hidden), read(&missing)), ("to decide", decide(hidden), decide(&missing))]
    {
        let differ = hidden.abs_diff(missing);
        assert!(hidden > 0 && differ <= 40, "{what}: {hidden} steps if hidden, {missing} if missing");
    }
}
