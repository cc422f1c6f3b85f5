//! Brings a database to this program's schema: numbered steps, forward only, each with its checksum.
//!
//! Owns the steps and what may be opened at all. Owns no table.

use holdgate_core::action::reference;
use holdgate_core::{Digest, Time};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use crate::StoreError;

#[cfg(test)]
mod tests;

/// The steps in order; the first is version 1. A released step never changes.
const STEPS: &[&str] = &[
    include_str!("../migrations/sqlite/0001_approvals_and_runs.sql"),
    include_str!("../migrations/sqlite/0002_people_sessions_and_ends.sql"),
];

/// Says in the file's header that a database is Holdgate's: "Hold" in ASCII.
const APPLICATION_ID: i32 = 0x486F_6C64;

/// What the steps call an approval's short name by.
const REFERENCE: &str = "holdgate_reference";

const VERSIONS: &str = "CREATE TABLE schema_migrations (
    version INTEGER PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT";

/// What a database file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Empty,
    Ours { version: u32 },
}

/// Refuses what is not Holdgate's, is newer, or has a step that this program knows otherwise. Writes nothing.
///
/// # Errors
/// Says what was found, in `path`, and what to do.
pub(super) fn check(conn: &Connection, path: &str) -> Result<(), StoreError> {
    inspect(conn, path).map(|_| ())
}

/// The schema's version, and the one that this program brings it to.
///
/// # Errors
/// As [`check`].
pub(super) fn versions(conn: &Connection, path: &str) -> Result<(u32, u32), StoreError> {
    let known = u32::try_from(STEPS.len()).unwrap_or(u32::MAX);
    Ok(match inspect(conn, path)? {
        Found::Empty => (0, known),
        Found::Ours { version } => (version, known),
    })
}

/// Applies the steps that are missing, all in one transaction.
///
/// # Errors
/// As [`check`]; or the step that failed, with nothing changed.
pub(super) fn migrate(conn: &mut Connection, path: &str, now: Time) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| {
        StoreError::Unusable(format!("{path} could not be brought to this version: {e}"))
    };
    let done = match inspect(conn, path)? {
        Found::Empty => 0,
        Found::Ours { version } => version as usize,
    };
    if done == STEPS.len() {
        return Ok(());
    }
    let enforced: bool = conn.query_row("PRAGMA foreign_keys", [], |row| row.get(0)).map_err(failed)?;
    // Neither can be switched inside the transaction. A table that others refer to is rebuilt without its
    // foreign keys, and a row that was damaged before must not keep its database from being opened.
    conn.pragma_update(None, "foreign_keys", false).map_err(failed)?;
    conn.pragma_update(None, "ignore_check_constraints", true).map_err(failed)?;
    let applied = apply(conn, STEPS, done, now);
    conn.pragma_update(None, "ignore_check_constraints", false).map_err(failed)?;
    conn.pragma_update(None, "foreign_keys", enforced).map_err(failed)?;
    applied.map_err(failed)
}

fn apply(conn: &mut Connection, steps: &[&str], done: usize, now: Time) -> rusqlite::Result<()> {
    conn.create_scalar_function(REFERENCE, 2, FunctionFlags::SQLITE_UTF8, |call| {
        let (kind, id): (String, String) = (call.get(0)?, call.get(1)?);
        Ok(match (kind.parse(), id.parse()) {
            (Ok(kind), Ok(id)) => reference(kind, &id),
            // A damaged row keeps its place under a name that nobody is told.
            _ => Digest::of(format!("{kind}\0{id}").as_bytes()).to_hex()[..43].to_owned(),
        })
    })?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if done == 0 {
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.execute_batch(VERSIONS)?;
    }
    let dangling_before = dangling(&tx)?;
    for (step, version) in steps.iter().zip(1i64..).skip(done) {
        tx.execute_batch(step)?;
        let applied = params![version, Digest::of(step.as_bytes()).to_hex(), now.as_ms()];
        tx.execute(
            "INSERT INTO schema_migrations (version, checksum, applied_at) VALUES (?1, ?2, ?3)",
            applied,
        )?;
    }
    if dangling(&tx)? > dangling_before {
        return Err(rusqlite::Error::ToSqlConversionFailure("it would leave references to nothing".into()));
    }
    tx.commit()?;
    conn.remove_function(REFERENCE, 2)
}

/// How many rows refer to one that is not there.
fn dangling(conn: &Connection) -> rusqlite::Result<usize> {
    conn.prepare("PRAGMA foreign_key_check")?
        .query_map([], |_| Ok(()))?
        .try_fold(0, |n, row| row.map(|()| n + 1))
}

fn inspect(conn: &Connection, path: &str) -> Result<Found, StoreError> {
    let unreadable =
        |e: rusqlite::Error| StoreError::Unusable(format!("{path} cannot be read as a database: {e}"));
    let application: i32 =
        conn.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(unreadable)?;
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(unreadable)?;
    if application == 0 && tables == 0 {
        return Ok(Found::Empty);
    }
    if application != APPLICATION_ID {
        return Err(StoreError::Unusable(format!(
            "{path} is a database of another program; name another file for Holdgate's"
        )));
    }
    let newest: i64 = conn
        .query_row("SELECT coalesce(max(version), 0) FROM schema_migrations", [], |row| row.get(0))
        .map_err(unreadable)?;
    let (found, known) =
        (u32::try_from(newest).unwrap_or(u32::MAX), u32::try_from(STEPS.len()).unwrap_or(u32::MAX));
    if found > known {
        return Err(StoreError::NewerSchema { path: path.to_owned(), found, known });
    }
    for (step, version) in STEPS.iter().zip(1i64..=newest) {
        let recorded: Option<String> = conn
            .query_row("SELECT checksum FROM schema_migrations WHERE version = ?1", [version], |row| {
                row.get(0)
            })
            .optional()
            .map_err(unreadable)?;
        if recorded != Some(Digest::of(step.as_bytes()).to_hex()) {
            return Err(StoreError::Unusable(format!(
                "{path} was made with another form of schema step {version}; open it with the program that made it"
            )));
        }
    }
    Ok(Found::Ours { version: found })
}
