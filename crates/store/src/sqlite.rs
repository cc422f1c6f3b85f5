//! The SQLite backend: one file, one writer thread, a few readers, one process that owns it all.
//!
//! Owns opening and closing. The parts: `owner` (the lock), `migrate` (the schema), `queue` and `writer` (group
//! commit), `ledger` (the rows of a transaction), `read`, `row` (columns to domain), `sql` (the statements).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use holdgate_core::{ApprovalId, Principal, Run, RunId, Time};
use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot};

use crate::clock::{AuthorityClock, Clock};
use crate::{Credential, Filter, JournalEntry, Op, Outcome, Seen, Store, StoreError};

#[cfg(test)]
mod cost;
mod ledger;
mod migrate;
mod owner;
mod queue;
mod read;
mod row;
mod sql;
mod tokens;
mod writer;

use owner::OwnerLock;
pub use owner::owner_of;
use queue::{Job, Queue};
use read::Readers;
use tokens::Tokens;
use writer::{Shared, Writer};

/// How many hints a slow listener may fall behind before it loses some.
const HINTS: usize = 4_096;

/// How long a connection waits for another program that has the file locked, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// What every SQLite database begins with.
const HEADER: &[u8] = b"SQLite format 3\0";

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
        refuse_other_files(&path)?;
        let owner = OwnerLock::take(&path)?;
        private_file()
            .create(true)
            .open(&path)
            .map_err(|e| StoreError::Unusable(format!("cannot write {name}: {e}")))?;

        let unusable =
            |e: rusqlite::Error| StoreError::Unusable(format!("cannot open {name} as a database: {e}"));
        let mut conn = connect(&path).map_err(unusable)?;
        migrate::check(&conn, &name)?;
        conn.pragma_update(None, "journal_mode", "wal").map_err(unusable)?;
        migrate::migrate(&mut conn, &name, options.clock.wall())?;
        let last_committed =
            conn.query_row(sql::LAST_COMMITTED, [], |row| row.get(0)).map(Time::from_ms).map_err(unusable)?;
        let readers = Readers::open(&path).map_err(unusable)?;

        let shared = Arc::new(Shared {
            queue: Queue::default(),
            clock: AuthorityClock::new(options.clock, last_committed),
            changes: broadcast::Sender::new(HINTS),
            tokens: Tokens::default(),
            batches: AtomicU64::new(0),
            ops: AtomicU64::new(0),
        });
        let writer = Writer::new(conn, Arc::clone(&shared), last_committed);
        let writer = std::thread::Builder::new()
            .name("holdgate-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|e| StoreError::Unusable(format!("no thread could be started to write {name}: {e}")))?;
        Ok(Arc::new(Self { shared, readers, held: Mutex::new(Some(Held { writer, owner })) }))
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
    /// [`StoreError::Closed`].
    pub async fn close(&self) {
        let held = self.begin_to_close();
        // The wait is as long as a batch; a join blocks, so it has a thread that may.
        if tokio::task::spawn_blocking(move || finish(held)).await.is_err() {
            tracing::error!("the store did not close in order");
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
        finish(self.begin_to_close());
    }
}

fn finish(held: Option<Held>) {
    if let Some(Held { writer, owner }) = held {
        // The writer reports its own end.
        let _ = writer.join();
        drop(owner);
    }
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

    async fn approval(&self, id: &ApprovalId) -> Result<Option<Seen>, StoreError> {
        let (id, shared) = (id.clone(), Arc::clone(&self.shared));
        self.readers.read(move |conn| read::approval(conn, &id, shared.clock.now())).await
    }

    async fn approvals(&self, filter: Filter) -> Result<Vec<Seen>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.readers.read(move |conn| read::approvals(conn, &filter, shared.clock.now())).await
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

    fn changes(&self) -> broadcast::Receiver<ApprovalId> {
        self.shared.changes.subscribe()
    }
}

/// A connection with the settings that durability and defence rest on.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(64);
    // FULL: with NORMAL a power loss takes acknowledged decisions with it.
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    Ok(conn)
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

/// Refuses a file that SQLite did not write, before anything is created beside it.
fn refuse_other_files(path: &Path) -> Result<(), StoreError> {
    use std::io::Read as _;
    let mut start = Vec::new();
    match fs::File::open(path).and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut start)) {
        Ok(0) => Ok(()),
        Ok(_) if start == HEADER => Ok(()),
        Ok(_) => Err(StoreError::Unusable(format!("{} is no database; name another file", path.display()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(StoreError::Unusable(format!("cannot read {}: {e}", path.display()))),
    }
}

/// How this process opens files that nobody else should read.
fn private_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
