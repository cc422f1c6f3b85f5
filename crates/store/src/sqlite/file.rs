//! The database file itself: its lock, what its names stand for, and when a handle of it may be closed.
//!
//! A name is not a file. The sidecar's lock (`owner`) is of a name: after a hard link, a bind mount or a deleted
//! sidecar, another process could open the same file by another name, with another log. So the file is locked too.
//!
//! SQLite's own locks are POSIX record locks. They belong to the process, and closing any handle of the file drops
//! them all: another program's last connection would then take the log away from under this process. Therefore
//! every connection holds the [`DatabaseFile`], whose handle closes only after the last of them, and a file that
//! this process has open (`OPEN`) is never opened just to look at it. The lock is a `flock`, which on Linux knows
//! nothing of record locks, so that it does not stand in SQLite's way; elsewhere the two may be one and the same,
//! and the sidecar has to do.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::StoreError;

/// What every SQLite database begins with.
const HEADER: &[u8] = b"SQLite format 3\0";

/// The database files that this process has open. Whoever opens a handle of one holds this until the handle is
/// either entered here or closed.
static OPEN: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

/// A file, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|file| Self::of(&file))
    }
}

/// A database file that this process owns. Held by every connection to it, each of which closes first.
pub(super) struct DatabaseFile {
    /// Closed, and with it unlocked, after `drop`.
    _locked: File,
    id: FileId,
}

/// Whether a file's lock could be had.
pub(super) enum Lock {
    Taken(DatabaseFile),
    /// Another opening has it, in this process or another.
    Held,
}

impl DatabaseFile {
    /// Takes the lock on the file at `path`, creating it, readable by its owner only, if there is none.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub(super) fn take(path: &Path) -> Result<Lock, StoreError> {
        let unusable = |e: io::Error| StoreError::Unusable(format!("cannot write {}: {e}", path.display()));
        let mut open = open_here();
        if is_open(&open, path) {
            return Ok(Lock::Held);
        }
        let file = private_file().create(true).open(path).map_err(unusable)?;
        let found = file.metadata().map_err(unusable)?;
        refuse_links(path, &found)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Lock::Held),
            Err(TryLockError::Error(e)) => return Err(unusable(e)),
        }
        let id = FileId::of(&found);
        open.insert(id);
        Ok(Lock::Taken(Self { _locked: file, id }))
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        // The last connection is closed. Who opens the file now waits for its lock, and so for the handle's end.
        open_here().remove(&self.id);
    }
}

/// Refuses a file that SQLite did not write, or that has another name, before anything is created beside it.
///
/// # Errors
/// What was found, and what to do.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    let unreadable = |e: io::Error| StoreError::Unusable(format!("cannot read {}: {e}", path.display()));
    let open = open_here();
    match fs::metadata(path) {
        Ok(found) => refuse_links(path, &found)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unreadable(e)),
    }
    if is_open(&open, path) {
        return Ok(());
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut start));
    match read.map_err(unreadable)? {
        0 => Ok(()),
        _ if start == HEADER => Ok(()),
        _ => Err(StoreError::Unusable(format!("{} is no database; name another file", path.display()))),
    }
}

/// Whether anybody, this process or another, has locked the file at `path`.
pub(super) fn is_locked(path: &Path) -> bool {
    let open = open_here();
    if is_open(&open, path) {
        return true;
    }
    let locked = File::open(path).map(|file| matches!(try_lock_shared(&file), Err(TryLockError::WouldBlock)));
    locked.unwrap_or(false)
}

/// How this process opens files that nobody else should read.
pub(super) fn private_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// What the names of a database and its log stood for when it was opened.
pub(super) struct Placement {
    files: [(PathBuf, FileId); 2],
}

impl Placement {
    /// Looks at a database that a connection has open and has read from, so that its log exists.
    ///
    /// # Errors
    /// That one of the files is not there, or is not the locked one.
    pub(super) fn of(path: &Path, file: &DatabaseFile) -> io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        let placement = Self { files: [(path.to_owned(), file.id), (log.clone(), FileId::at(&log)?)] };
        placement.check().map_err(io::Error::other)?;
        Ok(placement)
    }

    /// Whether the names still stand for the files that are being written. What is written to a file without its
    /// name is gone when this process is.
    ///
    /// # Errors
    /// Which file is not in its place.
    pub(super) fn check(&self) -> Result<(), String> {
        for (path, opened) in &self.files {
            match FileId::at(path) {
                Ok(found) if found == *opened => {}
                Ok(_) => return Err(format!("{} was replaced while it was in use", path.display())),
                Err(e) => return Err(format!("{} was removed while it was in use: {e}", path.display())),
            }
        }
        Ok(())
    }
}

fn open_here() -> MutexGuard<'static, BTreeSet<FileId>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_open(open: &BTreeSet<FileId>, path: &Path) -> bool {
    FileId::at(path).is_ok_and(|id| open.contains(&id))
}

/// SQLite finds a log by the database's name: two names of one file are two logs, and one of them is lost.
fn refuse_links(path: &Path, found: &Metadata) -> Result<(), StoreError> {
    match found.nlink() {
        // None is left: removed between looking and opening. The next commit would notice; opening does already.
        0 | 1 => Ok(()),
        links => Err(StoreError::Unusable(format!(
            "{} is one of {links} names (hard links) of the same file, and a database under two names loses data; \
             remove the other names, or copy the file",
            path.display()
        ))),
    }
}

fn try_lock(file: &File) -> Result<(), TryLockError> {
    if cfg!(target_os = "linux") { file.try_lock() } else { Ok(()) }
}

fn try_lock_shared(file: &File) -> Result<(), TryLockError> {
    if cfg!(target_os = "linux") { file.try_lock_shared() } else { Ok(()) }
}
