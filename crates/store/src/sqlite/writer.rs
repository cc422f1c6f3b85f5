//! The one thread that writes: queued operations, many to a transaction, each in its own savepoint.
//!
//! Owns the transaction, what is answered when one fails, and what is told to others after it. What an
//! operation does is [`perform`]'s.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdgate_core::Time;
use rusqlite::{Connection, params};
use tokio::sync::{broadcast, oneshot};

use super::file::{DatabaseFile, Placement};
use super::ledger::SqliteLedger;
use super::queue::{Job, Queue};
use super::tokens::Tokens;
use super::{Stats, sql};
use crate::clock::AuthorityClock;
use crate::perform::perform;
use crate::{Notice, Outcome, StoreError};

/// What the writer shares with the store.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) clock: AuthorityClock,
    pub(super) notices: broadcast::Sender<Notice>,
    pub(super) tokens: Tokens,
    pub(super) batches: AtomicU64,
    pub(super) ops: AtomicU64,
    /// The store closes and waits no longer.
    pub(super) stops: AtomicBool,
}

impl Shared {
    /// What has been committed so far.
    pub(super) fn stats(&self) -> Stats {
        Stats { batches: self.batches.load(Ordering::Relaxed), ops: self.ops.load(Ordering::Relaxed) }
    }
}

/// The writer's end of a database.
pub(super) struct Writer {
    conn: Connection,
    /// Ends after the connection.
    _file: Arc<DatabaseFile>,
    placement: Placement,
    /// The files were removed or replaced: nothing more can become durable.
    is_misplaced: bool,
    shared: Arc<Shared>,
    /// The time of the last commit. The time of a batch is never before it.
    last_committed: Time,
    /// Whether a gateway has begun its epoch here: from then on, others can renew their leases.
    serves: bool,
}

type Reply = oneshot::Sender<Result<Outcome, StoreError>>;

/// The transaction is gone in the middle of a batch: SQLite rolls back by itself when its disk fails.
struct BatchLost(String);

impl Writer {
    pub(super) fn new(
        conn: Connection,
        file: Arc<DatabaseFile>,
        placement: Placement,
        shared: Arc<Shared>,
        last_committed: Time,
    ) -> Self {
        Self { conn, _file: file, placement, is_misplaced: false, shared, last_committed, serves: false }
    }

    /// Writes until the queue is closed and empty. However it ends, nobody is left waiting.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while let Some(jobs) = shared.queue.next() {
                self.batch(jobs);
                if self.is_misplaced {
                    return;
                }
                if !self.conn.is_autocommit() {
                    tracing::error!(
                        "a transaction could neither be committed nor rolled back; the store closes"
                    );
                    return;
                }
            }
        }));
        if ended.is_err() {
            tracing::error!("the writer panicked; the store closes");
        }
        shared.queue.abandon();
    }

    fn batch(&mut self, jobs: Vec<Job>) {
        if let Err(e) = self.statement("BEGIN IMMEDIATE") {
            tracing::error!(error = %e, "no transaction could be begun");
            let failed = StoreError::Failed(format!("no transaction could be begun: {e}"));
            return jobs.into_iter().for_each(|job| answer(job.reply, Err(failed.clone())));
        }
        // Read under the lock, once: everything in a batch happens at the same time.
        let now = self.shared.clock.now().max(self.last_committed);
        let written_before = self.conn.total_changes();
        let mut ledger = SqliteLedger::new(&self.conn);
        let mut answers = Vec::with_capacity(jobs.len());
        let mut jobs = jobs.into_iter();
        for Job { op, reply } in jobs.by_ref() {
            let noticed_before = ledger.notices.len();
            let performed = if self.shared.stops.load(Ordering::SeqCst) {
                Err(BatchLost("the store closes".to_owned()))
            } else {
                in_savepoint(&self.conn, || perform(&mut ledger, op, now))
            };
            match performed {
                Ok(result) => {
                    if result.is_err() {
                        ledger.notices.truncate(noticed_before);
                    }
                    answers.push((reply, result));
                }
                Err(BatchLost(why)) => {
                    tracing::error!(why, "a batch was rolled back");
                    let failed = StoreError::Failed(format!("the transaction was rolled back: {why}"));
                    let waiting = answers.into_iter().map(|(reply, _)| reply).chain([reply]);
                    waiting
                        .chain(jobs.map(|job| job.reply))
                        .for_each(|reply| answer(reply, Err(failed.clone())));
                    return self.roll_back();
                }
            }
        }
        let SqliteLedger { notices, gateway_started, identities_changed, .. } = ledger;
        if let Err(why) = self.check_placement() {
            self.roll_back();
            let failed = StoreError::Failed(why);
            return answers.into_iter().for_each(|(reply, _)| answer(reply, Err(failed.clone())));
        }
        if self.conn.total_changes() == written_before {
            // Nothing to make durable; what was answered rests on commits that are.
            self.roll_back();
            return answers.into_iter().for_each(|(reply, result)| answer(reply, result));
        }
        let serves = self.serves || gateway_started;
        let committed = self.commit(now, serves);
        if identities_changed {
            self.shared.tokens.forget();
        }
        match committed {
            Ok(()) => {
                self.last_committed = now;
                self.serves = serves;
                self.committed(now, notices, answers);
            }
            Err(error) => {
                tracing::error!(%error, "a batch could not be committed");
                self.roll_back();
                answers.into_iter().for_each(|(reply, _)| answer(reply, Err(error.clone())));
            }
        }
    }

    fn check_placement(&mut self) -> Result<(), String> {
        self.placement.check().inspect_err(|why| {
            tracing::error!(why, "the database is not in its place; the store closes");
            self.is_misplaced = true;
        })
    }

    fn commit(&mut self, now: Time, serves: bool) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(sql::PUT_META)
            .and_then(|mut statement| statement.execute(params![now.as_ms(), serves]))
            .map_err(|e| StoreError::Failed(e.to_string()))?;
        self.statement("COMMIT").map_err(|e| StoreError::Unknown(e.to_string()))?;
        // Nothing is acknowledged that went into a file without a name.
        self.check_placement().map_err(StoreError::Unknown)
    }

    fn committed(&self, now: Time, notices: Vec<Notice>, answers: Vec<(Reply, Result<Outcome, StoreError>)>) {
        self.shared.clock.committed(now);
        let ops = answers.iter().filter(|(_, result)| matches!(result, Ok(Outcome::Committed(_)))).count();
        self.shared.ops.fetch_add(ops as u64, Ordering::Relaxed);
        self.shared.batches.fetch_add(1, Ordering::Relaxed);
        for notice in notices {
            // Nobody listens: nobody needs to know.
            let _ = self.shared.notices.send(notice);
        }
        answers.into_iter().for_each(|(reply, result)| answer(reply, result));
    }

    fn roll_back(&self) {
        if !self.conn.is_autocommit()
            && let Err(e) = self.statement("ROLLBACK")
        {
            tracing::error!(error = %e, "a transaction could not be rolled back");
        }
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        statement(&self.conn, sql)
    }
}

fn answer(reply: Reply, result: Result<Outcome, StoreError>) {
    // Who asked may have gone; what was written stays.
    let _ = reply.send(result);
}

fn statement(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}

/// Does `work` in a savepoint of its own: if it fails or panics, only what it wrote is undone.
fn in_savepoint<T>(
    conn: &Connection,
    work: impl FnOnce() -> rusqlite::Result<T>,
) -> Result<Result<T, StoreError>, BatchLost> {
    let lost = |e: rusqlite::Error| BatchLost(e.to_string());
    statement(conn, "SAVEPOINT op").map_err(lost)?;
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            statement(conn, "RELEASE op").map_err(lost)?;
            return Ok(Ok(value));
        }
        Ok(Err(e)) => e.to_string(),
        Err(_) => "the operation panicked".to_owned(),
    };
    tracing::error!(why = failed, "an operation was undone");
    if conn.is_autocommit() {
        return Err(BatchLost(failed));
    }
    statement(conn, "ROLLBACK TO op").and_then(|()| statement(conn, "RELEASE op")).map_err(lost)?;
    Ok(Err(StoreError::Failed(failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_transaction() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x INTEGER); BEGIN; INSERT INTO t VALUES (1)").unwrap();
        conn
    }

    fn rows(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_panic_undoes_its_own_operation_and_no_other() {
        let conn = in_transaction();
        let result = in_savepoint(&conn, || -> rusqlite::Result<()> {
            conn.execute("INSERT INTO t VALUES (2)", [])?;
            panic!("a defect")
        });
        assert!(matches!(result, Ok(Err(StoreError::Failed(_)))));
        assert!(matches!(in_savepoint(&conn, || conn.execute("INSERT INTO t VALUES (3)", [])), Ok(Ok(1))));
        assert_eq!(rows(&conn), 2);
    }

    #[test]
    fn a_transaction_that_is_gone_loses_the_batch() {
        let conn = in_transaction();
        let result = in_savepoint(&conn, || -> rusqlite::Result<()> {
            conn.execute_batch("ROLLBACK")?;
            Err(rusqlite::Error::InvalidQuery)
        });
        assert!(matches!(result, Err(BatchLost(_))));
        assert_eq!(rows(&conn), 0);
    }
}
