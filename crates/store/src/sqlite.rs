//! The SQLite backend: one file, one writer thread, a few readers, one process that owns it all.
//!
//! Owns opening and closing. The parts: `owner` and `file` (the locks), `migrate` (the schema), `queue` and `writer` (group
//! commit), `ledger` (the rows of a transaction), `read`, `row` (columns to domain), `sql` (the statements).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use holdgate_core::{Kind, Principal, PrincipalId, Run, RunId, Time};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, InterruptHandle};
use tokio::sync::{broadcast, oneshot};

use crate::clock::{AuthorityClock, Clock};
use crate::{
    Administered, Credential, Filter, Freeze, HistoryFilter, Identity, JournalEntry, Notice, Op, Outcome,
    Place, Recorded, Seen, Store, StoreError,
};

#[cfg(test)]
mod cost;
mod decoy;
mod examine;
mod file;
mod ledger;
mod migrate;
mod owner;
mod queue;
mod read;
mod row;
mod sql;
mod tokens;
mod writer;

pub use examine::{Examined, examine};
use file::Placement;
use owner::OwnerLock;
pub use owner::owner_of;
use queue::{Job, Queue};
use read::Readers;
use tokens::Tokens;
use writer::{Shared, Writer};

/// How many notices a slow listener may fall behind before it loses some.
const NOTICES: usize = 4_096;

/// How long a connection waits for another program that has the file locked, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// How long a store that closes waits for what is queued.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it then waits for the writer to undo what it was doing.
const PARTING: Duration = Duration::from_millis(250);
/// How often the writer is told so: a statement that begins just after is not stopped by what came before it.
const INSIST: Duration = Duration::from_millis(20);

/// What it takes to open a store.
pub struct OpenOptions {
    /// The database file. Created, readable by its owner only, if there is none; its directory must exist.
    pub path: PathBuf,
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
}

/// What the writer has committed since the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Transactions.
    pub batches: u64,
    /// Operations that changed something.
    pub ops: u64,
}

/// A store in one SQLite file, which this process owns until the store is closed or dropped.
pub struct SqliteStore {
    shared: Arc<Shared>,
    readers: Readers,
    held: Mutex<Option<Held>>,
}

/// What ends with the store: first the writer, then the ownership.
struct Held {
    writer: JoinHandle<()>,
    interrupt: InterruptHandle,
    owner: OwnerLock,
}

impl SqliteStore {
    /// Opens a database, brings it to this program's schema and takes it as this process's own. Blocks shortly.
    ///
    /// # Errors
    /// [`StoreError::Owned`] if another process has it; [`StoreError::NewerSchema`]; otherwise what is wrong with
    /// the file or its directory. The database is then as it was.
    pub fn open(options: OpenOptions) -> Result<Arc<Self>, StoreError> {
        let path = canonical(&options.path).map_err(|e| {
            StoreError::Unusable(format!("{} has no usable directory: {e}", options.path.display()))
        })?;
        let name = path.display().to_string();
        file::check(&path)?;
        let (owner, file) = OwnerLock::take(&path)?;
        let file = Arc::new(file);

        let unusable =
            |e: rusqlite::Error| StoreError::Unusable(format!("cannot open {name} as a database: {e}"));
        let mut conn = connect(&path).map_err(unusable)?;
        migrate::check(&conn, &name)?;
        conn.pragma_update(None, "journal_mode", "wal").map_err(unusable)?;
        migrate::migrate(&mut conn, &name, options.clock.wall())?;
        let last_committed =
            conn.query_row(sql::LAST_COMMITTED, [], |row| row.get(0)).map(Time::from_ms).map_err(unusable)?;
        let readers = Readers::open(&path, &file).map_err(unusable)?;
        let placement = Placement::of(&path, &file)
            .map_err(|e| StoreError::Unusable(format!("{name} is not in its place: {e}")))?;

        let shared = Arc::new(Shared {
            queue: Queue::default(),
            clock: AuthorityClock::new(options.clock, last_committed),
            notices: broadcast::Sender::new(NOTICES),
            tokens: Tokens::default(),
            batches: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            stops: AtomicBool::new(false),
        });
        let interrupt = conn.get_interrupt_handle();
        let writer = Writer::new(conn, file, placement, Arc::clone(&shared), last_committed);
        let writer = std::thread::Builder::new()
            .name("holdgate-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|e| StoreError::Unusable(format!("no thread could be started to write {name}: {e}")))?;
        Ok(Arc::new(Self { shared, readers, held: Mutex::new(Some(Held { writer, interrupt, owner })) }))
    }

    /// Tells others who find the file owned where this process's gateway answers.
    ///
    /// # Errors
    /// Why that cannot be written down.
    pub fn set_owner_url(&self, url: &str) -> Result<(), StoreError> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().ok_or(StoreError::Closed)?.owner.announce(Some(url.to_owned()))
    }

    /// What has been committed since the store was opened.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Writes what is queued, then lets go of the file. From now on everything is answered
    /// [`StoreError::Closed`]. What cannot be written within about a second is undone; who waits for it is told.
    pub async fn close(&self) {
        let Some(Held { writer, interrupt, owner }) = self.begin_to_close() else {
            return;
        };
        let (tell, mut ended) = oneshot::channel();
        // A join blocks. A thread of the runtime's would keep the runtime from ending as long as the writer does.
        let joined = std::thread::Builder::new().name("holdgate-close".to_owned()).spawn(move || {
            finish(writer, owner);
            let _ = tell.send(());
        });
        if let Err(error) = joined {
            tracing::error!(%error, "the store did not close in order");
        }
        if tokio::time::timeout(PATIENCE, &mut ended).await.is_ok() {
            return;
        }
        tracing::warn!("what is being written takes too long; it is undone");
        self.shared.stops.store(true, Ordering::SeqCst);
        self.shared.queue.abandon();
        let insist = async {
            loop {
                interrupt.interrupt();
                tokio::time::sleep(INSIST).await;
            }
        };
        tokio::select! {
            _ = &mut ended => {}
            _ = tokio::time::timeout(PARTING, insist) => {
                tracing::error!("the writer does not end; what it was writing stays unanswered");
            }
        }
    }

    fn begin_to_close(&self) -> Option<Held> {
        self.shared.queue.close();
        self.readers.close();
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Some(Held { writer, owner, .. }) = self.begin_to_close() {
            finish(writer, owner);
        }
    }
}

fn finish(writer: JoinHandle<()>, owner: OwnerLock) {
    // The writer reports its own end.
    let _ = writer.join();
    drop(owner);
}

#[async_trait]
impl Store for SqliteStore {
    async fn execute(&self, op: Op) -> Result<Outcome, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(Job { op, reply })?;
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Unknown("the writer ended before it answered".to_owned())))
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    async fn approval(&self, locator: &str) -> Result<Option<Seen>, StoreError> {
        let (locator, shared) = (locator.to_owned(), Arc::clone(&self.shared));
        self.readers.read(move |conn| read::approval(conn, &locator, shared.clock.now())).await
    }

    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |conn| read::approvals(conn, &filter, shared.clock.now())).await
    }

    async fn history(&self, filter: HistoryFilter) -> Result<Vec<Seen>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |conn| read::history(conn, &filter, shared.clock.now())).await
    }

    async fn pending_of_session(
        &self,
        session_key: &str,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Vec<Seen>, StoreError> {
        let (key, shared) = (session_key.to_owned(), Arc::clone(&self.shared));
        let now = move || shared.clock.now();
        self.readers
            .read(move |conn| read::pending_of_session(conn, &key, after.as_ref(), limit, now()))
            .await
    }

    async fn events(&self, after: u64, limit: u32) -> Result<Vec<Recorded>, StoreError> {
        self.readers.read(move |conn| read::events(conn, after, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Time>, StoreError> {
        self.readers.read(read::next_due).await
    }

    async fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        let id = id.clone();
        self.readers.read(move |conn| read::run(conn, &id)).await
    }

    async fn run_events(&self, id: &RunId, after: u64, limit: u32) -> Result<Vec<JournalEntry>, StoreError> {
        let id = id.clone();
        self.readers.read(move |conn| read::run_events(conn, &id, after, limit)).await
    }

    async fn credential(&self, credential: Credential) -> Result<Option<Principal>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let look_up = self.readers.read(move |conn| read::credential(conn, credential, shared.clock.now()));
        // A page session also ends by time, so it is always looked up.
        let Credential::Token(hash) = credential else { return look_up.await };
        match self.shared.tokens.get(&hash) {
            Ok(principal) => Ok(Some(principal)),
            Err(generation) => {
                let found = look_up.await?;
                if let Some(principal) = &found {
                    self.shared.tokens.remember(generation, hash, principal);
                }
                Ok(found)
            }
        }
    }

    async fn identity(&self, id: &PrincipalId) -> Result<Option<Identity>, StoreError> {
        let id = id.clone();
        self.readers.read(move |conn| read::identity(conn, &id)).await
    }

    async fn identities(&self) -> Result<Vec<Identity>, StoreError> {
        self.readers.read(read::identities).await
    }

    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.readers.read(read::freezes).await
    }

    async fn administration(&self, after: u64, limit: u32) -> Result<Vec<Administered>, StoreError> {
        self.readers.read(move |conn| read::administration(conn, after, limit)).await
    }

    async fn pending_counts(&self) -> Result<Vec<(Kind, u64)>, StoreError> {
        self.readers.read(read::pending_counts).await
    }

    fn notices(&self) -> broadcast::Receiver<Notice> {
        self.shared.notices.subscribe()
    }
}

/// A connection with the settings that durability and defence rest on.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(BUSY)?;
    keep_plans(&conn)?;
    // FULL: with NORMAL a power loss takes acknowledged decisions with it.
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    Ok(conn)
}

/// Statements are prepared once and their plans do not depend on what is bound: else SQLite would prepare many of
/// them anew each time they run.
fn keep_plans(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(128);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// The one name of the file at `path`, whether or not it exists yet.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(e)?;
            let parent =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(fs::canonicalize(parent)?.join(name))
        }
        found => found,
    }
}
