//! The approval that is read in the place of one that is not there.
//!
//! Owns which one that is. An approval that its reader may not see was read and decoded before that was known; so is
//! this one, so that the answers take the same way and their times tell nothing. Nobody can choose it: by the newest,
//! say, whoever makes a large one would measure the difference.

use std::hash::BuildHasher as _;
use std::sync::LazyLock;

use rusqlite::{Connection, Row};

use super::sql;

/// Another key in every process.
static KEY: LazyLock<std::hash::RandomState> = LazyLock::new(std::hash::RandomState::new);

/// The letters of a reference, in their order.
const LETTERS: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// Decodes the approval that stands in for what `locator` does not name, only for the time that it takes. The same
/// locator always leads to the same approval while none is added.
pub(super) fn read<T>(
    conn: &Connection,
    locator: &str,
    decode: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<()> {
    let hash = KEY.hash_one(locator);
    let letter = |place| char::from(LETTERS[(hash >> (6 * place)) as usize % LETTERS.len()]);
    let from: String = (0..10_u32).map(letter).collect();
    let mut statement = conn.prepare_cached(sql::DECOY)?;
    // Round at the end, where nothing comes after.
    for from in [from.as_str(), ""] {
        let mut rows = statement.query([from])?;
        if let Some(found) = rows.next()? {
            return decode(found).map(drop);
        }
    }
    Ok(())
}
