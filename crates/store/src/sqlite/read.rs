//! Reads outside the writer: a few connections that cannot write, each read in one snapshot.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use holdgate_core::approval::Bound;
use holdgate_core::limits::{EVENTS_PAGE_BYTES, PAGE_BYTES};
use holdgate_core::{ApprovalId, Digest, Kind, Principal, PrincipalId, Run, RunId, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, InterruptHandle, OptionalExtension as _, Params, Row, params};
use tokio::sync::Semaphore;

use super::file::DatabaseFile;
use super::ledger::SqliteLedger;
use super::{decoy, row, sql};
use crate::ledger::Ledger as _;
use crate::{
    Administered, Credential, Filter, Freeze, HistoryFilter, Identity, JournalEntry, Kinds, Place, Recorded,
    Seen, StoreError, Stored,
};

/// How many reads can run at once.
const READERS: usize = 4;

/// What a list can be narrowed by, in the order of [`Filter`].
pub(super) const CONDITIONS: [&str; 8] = [
    "a.status = ?",
    "a.kind = ?",
    "a.kind <> ?",
    "a.source_agent = ?",
    "a.requester_id = ?",
    "a.id >= ?",
    "a.id < ?",
    "(a.created_at, a.id) < (?, ?)",
];

/// What history can be narrowed by, in the order of [`HistoryFilter`].
pub(super) const ENDED_CONDITIONS: [&str; 4] =
    ["a.kind = ?", "a.kind <> ?", "a.requester_id = ?", "(a.resolved_at, a.id) < (?, ?)"];

/// The connections that read.
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Reader>>>,
    permits: Arc<Semaphore>,
    interrupts: Vec<InterruptHandle>,
}

/// A connection and what must outlive it, in the order in which they end.
struct Reader {
    conn: Connection,
    _file: Arc<DatabaseFile>,
}

impl Readers {
    /// Opens them on a database that is at this program's schema.
    ///
    /// # Errors
    /// Why a connection could not be opened.
    pub(super) fn open(path: &Path, file: &Arc<DatabaseFile>) -> rusqlite::Result<Self> {
        let mut idle = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let conn = super::connect(path)?;
            conn.pragma_update(None, "query_only", true)?;
            idle.push(Reader { conn, _file: Arc::clone(file) });
        }
        let interrupts = idle.iter().map(|reader| reader.conn.get_interrupt_handle()).collect();
        Ok(Self { idle: Arc::new(Mutex::new(idle)), permits: Arc::new(Semaphore::new(READERS)), interrupts })
    }

    /// Runs `read` in one snapshot, on a thread that may block.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after [`Readers::close`]; otherwise what the read failed with.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (idle, permits) = (Arc::clone(&self.idle), Arc::clone(&self.permits));
        let result = tokio::task::spawn_blocking(move || {
            let lock = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let reader = lock().pop().ok_or(StoreError::Closed)?;
            let result = reader.conn.unchecked_transaction().and_then(|snapshot| read(&snapshot));
            // Given back before the permit, so that who gets the permit finds a connection; but what is closed
            // stays closed.
            let mut idle = lock();
            let is_closed = permits.is_closed();
            if !is_closed {
                idle.push(reader);
            }
            drop(idle);
            drop(permit);
            result.map_err(|e| if is_closed { StoreError::Closed } else { StoreError::Failed(e.to_string()) })
        });
        result.await.unwrap_or_else(|e| Err(StoreError::Failed(format!("a read did not finish: {e}"))))
    }

    /// Lets no more reads begin, closes the connections that are idle, and stops the reads that run.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // After those that are idle: an interrupted connection would not move the log into the database when it
        // closes, and the last one should.
        self.interrupts.iter().for_each(InterruptHandle::interrupt);
    }
}

/// The approval that a text names as its id or its reference, and what waits behind it.
pub(super) fn approval(conn: &Connection, locator: &str, now: Time) -> rusqlite::Result<Option<Seen>> {
    let mut found = list(conn, sql::LOCATED, [locator], now, OPENED, 2)?;
    if found.is_empty() {
        decoy::read(conn, locator, |found| seen(conn, found, now, OPENED))?;
    }
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// Approvals, newest first.
pub(super) fn approvals(conn: &Connection, filter: &Filter, now: Time) -> rusqlite::Result<Vec<Seen>> {
    let Filter { status, kinds, agent, requester, id_prefix, before, limit } = filter;
    let (only, except) = told_apart(*kinds);
    let id_prefix = id_prefix.as_deref().filter(|prefix| !prefix.is_empty());
    let narrowings = [
        status.map(|status| vec![text(status.as_str())]),
        only,
        except,
        agent.as_ref().map(|agent| vec![text(agent)]),
        requester.as_ref().map(|id| vec![text(id.as_str())]),
        id_prefix.map(|prefix| vec![text(prefix)]),
        id_prefix.and_then(after_all_that_begin_with).map(|end| vec![end.into()]),
        before.as_ref().map(place),
    ];
    let (conditions, values) = narrowed(&CONDITIONS, narrowings, *limit);
    let found = list(
        conn,
        &sql::list(&conditions),
        rusqlite::params_from_iter(values),
        now,
        OPENED,
        *limit as usize,
    )?;
    if let (true, Some(prefix)) = (found.is_empty(), id_prefix) {
        // As for one approval: it may be that one which somebody looks for.
        decoy::read(conn, prefix, |found| seen(conn, found, now, OPENED))?;
    }
    Ok(found)
}

fn text(text: &str) -> Value {
    Value::from(text.to_owned())
}

fn place((at, id): &Place) -> Vec<Value> {
    vec![at.as_ms().into(), text(id.as_str())]
}

/// The one kind and the kind that is left out.
fn told_apart(kinds: Kinds) -> (Option<Vec<Value>>, Option<Vec<Value>>) {
    let named = |kind: Kind| Some(vec![text(kind.as_str())]);
    match kinds {
        Kinds::All => (None, None),
        Kinds::Only(kind) => (named(kind), None),
        Kinds::Except(kind) => (None, named(kind)),
    }
}

/// The conditions that are asked for, and the values for them and for the limit.
fn narrowed<const N: usize>(
    conditions: &[&'static str; N],
    narrowings: [Option<Vec<Value>>; N],
    limit: u32,
) -> (Vec<&'static str>, Vec<Value>) {
    let asked =
        conditions.iter().zip(narrowings).filter_map(|(condition, values)| Some((*condition, values?)));
    let (conditions, values): (Vec<_>, Vec<_>) = asked.unzip();
    let mut values: Vec<_> = values.into_iter().flatten().collect();
    values.push((i64::from(limit) + UNREADABLE).into());
    (conditions, values)
}

/// The first text after all that begin with `prefix`, byte by byte. `None` if nothing comes after them.
fn after_all_that_begin_with(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // UTF-8 sorts as code points do; the range steps over the surrogates, which are none.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// Approvals that have ended, the last one to end first. Their places are when they ended.
pub(super) fn history(conn: &Connection, filter: &HistoryFilter, now: Time) -> rusqlite::Result<Vec<Seen>> {
    let HistoryFilter { kinds, requester, before, limit } = filter;
    let (only, except) = told_apart(*kinds);
    let of = requester.as_ref().map(|id| vec![text(id.as_str())]);
    let narrowings = [only, except, of, before.as_ref().map(place)];
    let (conditions, values) = narrowed(&ENDED_CONDITIONS, narrowings, *limit);
    list(conn, &sql::history(&conditions), rusqlite::params_from_iter(values), now, ENDED, *limit as usize)
}

/// Pending approvals that a session's stream shows, oldest first.
pub(super) fn pending_of_session(
    conn: &Connection,
    session_key: &str,
    after: Option<&Place>,
    limit: u32,
    now: Time,
) -> rusqlite::Result<Vec<Seen>> {
    let (at, id) = after.map_or((i64::MIN, ""), |(at, id)| (at.as_ms(), id.as_str()));
    let most = i64::from(limit) + UNREADABLE;
    list(conn, sql::PENDING_OF_SESSION, params![session_key, at, id, most], now, OPENED, limit as usize)
}

/// How many rows without a readable id one list steps over. They are nothing to anybody, and must not make a list look
/// as if it were at its end.
const UNREADABLE: i64 = 64;

/// What a list goes by.
const OPENED: &str = "created_at";
const ENDED: &str = "resolved_at";

fn list(
    conn: &Connection,
    statement: &str,
    params: impl Params,
    now: Time,
    place: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Seen>> {
    let mut statement = conn.prepare_cached(statement)?;
    let mut rows = statement.query(params)?;
    let (mut list, mut bytes) = (Vec::new(), 0);
    while list.len() < limit
        && bytes < PAGE_BYTES
        && let Some(found) = rows.next()?
    {
        let Some(seen) = seen(conn, found, now, place)? else { continue };
        bytes += seen.text_bytes();
        list.push(seen);
    }
    Ok(list)
}

/// A row and what waits behind it. `None` if there is nothing to call it by.
fn seen(conn: &Connection, found: &Row<'_>, now: Time, place: &str) -> rusqlite::Result<Option<Seen>> {
    let Some(stored) = row::stored(conn, found)? else {
        return Ok(None);
    };
    let at = Time::from_ms(found.get(place)?);
    let corrupt = |id: ApprovalId, why: String| Seen {
        place: (at, id.clone()),
        stored: Stored::Corrupt { id, why },
        // Nothing waits behind what cannot be read.
        bound: Bound::CallerGone,
    };
    let approval = match stored {
        Stored::Sound(approval) => approval,
        Stored::Corrupt { id, why } => return Ok(Some(corrupt(id, why))),
    };
    match SqliteLedger::new(conn).bound(&approval, now) {
        Ok(bound) => {
            let place = (at, approval.id.clone());
            Ok(Some(Seen { place, stored: Stored::Sound(approval), bound }))
        }
        // What it waits on does not decode: then neither does it.
        Err(Error::FromSqlConversionFailure(_, _, why)) => {
            tracing::error!(id = %approval.id, %why, "what waits behind an approval does not decode");
            Ok(Some(corrupt(approval.id, why.to_string())))
        }
        Err(e) => Err(e),
    }
}

/// When time next decides something.
pub(super) fn next_due(conn: &Connection) -> rusqlite::Result<Option<Time>> {
    let at: Option<i64> = conn.prepare_cached(sql::NEXT_DUE)?.query_row([], |row| row.get(0))?;
    Ok(at.map(Time::from_ms))
}

/// One run.
pub(super) fn run(conn: &Connection, id: &RunId) -> rusqlite::Result<Option<Run>> {
    SqliteLedger::new(conn).run(id)
}

/// A part of a run's journal.
pub(super) fn run_events(
    conn: &Connection,
    id: &RunId,
    after: u64,
    limit: u32,
) -> rusqlite::Result<Vec<JournalEntry>> {
    let mut statement = conn.prepare_cached(sql::RUN_EVENTS)?;
    let mut rows = statement.query(params![id.as_str(), position(after), limit])?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(found) = rows.next()? {
        let entry = row::journal_entry(found)?;
        bytes += entry.event.len();
        if bytes > EVENTS_PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(entry);
    }
    Ok(page)
}

/// The identity behind a credential.
pub(super) fn credential(
    conn: &Connection,
    credential: Credential,
    now: Time,
) -> rusqlite::Result<Option<Principal>> {
    let decode: fn(&Row<'_>) -> rusqlite::Result<Principal> = row::principal;
    let hex = Digest::to_hex;
    match credential {
        Credential::Token(hash) => conn.prepare_cached(sql::TOKEN_PRINCIPAL)?.query_row([hex(hash)], decode),
        Credential::PageSession(hash) => {
            conn.prepare_cached(sql::SESSION_PRINCIPAL)?.query_row(params![hex(hash), now.as_ms()], decode)
        }
    }
    .optional()
}

/// The facts about approvals after one of them.
pub(super) fn events(conn: &Connection, after: u64, limit: u32) -> rusqlite::Result<Vec<Recorded>> {
    all(conn, sql::EVENTS, params![position(after), limit], row::recorded)
}

/// One identity that is not revoked.
pub(super) fn identity(conn: &Connection, id: &PrincipalId) -> rusqlite::Result<Option<Identity>> {
    conn.prepare_cached(sql::IDENTITY)?.query_row([id.as_str()], row::identity).optional()
}

/// Every identity that is not revoked.
pub(super) fn identities(conn: &Connection) -> rusqlite::Result<Vec<Identity>> {
    all(conn, sql::IDENTITIES, [], row::identity)
}

/// What is frozen.
pub(super) fn freezes(conn: &Connection) -> rusqlite::Result<Vec<Freeze>> {
    all(conn, sql::FREEZES, [], row::freeze)
}

/// What was administered after a fact.
pub(super) fn administration(
    conn: &Connection,
    after: u64,
    limit: u32,
) -> rusqlite::Result<Vec<Administered>> {
    all(conn, sql::ADMINISTRATION, params![position(after), limit], row::administered)
}

/// How many approvals are pending, by kind.
pub(super) fn pending_counts(conn: &Connection) -> rusqlite::Result<Vec<(Kind, u64)>> {
    all(conn, sql::PENDING_COUNTS, [], row::pending_count)
}

fn all<T>(
    conn: &Connection,
    statement: &str,
    params: impl Params,
    decode: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare_cached(statement)?.query_map(params, decode)?.collect()
}

/// SQLite's integers are signed: past their end there is nothing either.
fn position(after: u64) -> i64 {
    i64::try_from(after).unwrap_or(i64::MAX)
}
