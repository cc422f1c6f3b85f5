//! Brings a database to this program's schema: numbered steps, forward only, each with its checksum.
//!
//! Owns the steps and what may be opened at all. Owns no table.

use holdgate_core::{Digest, Time};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use crate::StoreError;

/// The steps in order; the first is version 1. A released step never changes.
const STEPS: &[&str] = &[include_str!("../migrations/sqlite/0001_approvals_and_runs.sql")];

/// Says in the file's header that a database is Holdgate's: "Hold" in ASCII.
const APPLICATION_ID: i32 = 0x486F_6C64;

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
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    if done == 0 {
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        tx.execute_batch(VERSIONS).map_err(failed)?;
    }
    for (step, version) in STEPS.iter().zip(1i64..).skip(done) {
        tx.execute_batch(step).map_err(failed)?;
        let applied = params![version, Digest::of(step.as_bytes()).to_hex(), now.as_ms()];
        tx.execute(
            "INSERT INTO schema_migrations (version, checksum, applied_at) VALUES (?1, ?2, ?3)",
            applied,
        )
        .map_err(failed)?;
    }
    tx.commit().map_err(failed)
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
