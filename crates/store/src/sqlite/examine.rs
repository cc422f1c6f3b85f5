//! A look at a database that may be somebody else's: changes nothing, and takes nothing over.

use std::path::Path;

use holdgate_core::Time;
use rusqlite::{Connection, OpenFlags};

use super::{BUSY, canonical, file, migrate, sql};
use crate::StoreError;

/// What a look at a database found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The version of its schema, and the one that this program brings it to.
    pub schema: (u32, u32),
    /// What SQLite's own check finds damaged.
    pub damage: Option<String>,
    /// The time of its last commit.
    pub last_committed: Time,
}

/// Looks at the database at `path`, whoever owns it. Takes as long as reading it once.
///
/// # Errors
/// It cannot be read, is no database of ours, or is newer than this program.
pub fn examine(path: &Path) -> Result<Examined, StoreError> {
    let unusable = |e: &dyn std::fmt::Display| {
        StoreError::Unusable(format!("{} cannot be read as a database: {e}", path.display()))
    };
    let path = canonical(path).map_err(|e| unusable(&e))?;
    file::check(&path)?;
    let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let conn = conn.map_err(|e| unusable(&e))?;
    conn.busy_timeout(BUSY).map_err(|e| unusable(&e))?;
    let schema = migrate::versions(&conn, &path.display().to_string())?;
    let check: String =
        conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(|e| unusable(&e))?;
    let last_committed = match schema.0 {
        0 => Time::from_ms(0),
        _ => conn
            .query_row(sql::LAST_COMMITTED, [], |row| row.get(0))
            .map(Time::from_ms)
            .map_err(|e| unusable(&e))?,
    };
    Ok(Examined { schema, damage: (check != "ok").then_some(check), last_committed })
}
