//! One process owns a database file: the lock that says so, and who holds it.
//!
//! Owns the sidecar `<database>.owner`, the lock on the database's name; `file` has the one on the file itself. The
//! operating system lets go of a lock when its process ends, however it ends; the sidecar's text is only what to tell
//! others.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{self, DatabaseFile, Lock, private_file};
use crate::{Owner, StoreError};

/// How often, and how long apart, a locked file is looked at again: its owner may be about to exit, to write
/// down who it is, or may itself only have looked.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The lock on a database file. Dropping it lets go.
pub(super) struct OwnerLock {
    sidecar: File,
    path: PathBuf,
}

impl OwnerLock {
    /// Takes the lock on the database at `database`, a canonical path, and on the file that it names.
    ///
    /// # Errors
    /// [`StoreError::Owned`] with who holds either; or why the sidecar or the file cannot be written.
    pub(super) fn take(database: &Path) -> Result<(Self, DatabaseFile), StoreError> {
        let path = sidecar_of(database);
        let mut sidecar = private_file().create(true).truncate(false).open(&path).map_err(|e| {
            StoreError::Unusable(format!(
                "cannot write {}: {e}; its directory must exist and be writable",
                path.display()
            ))
        })?;
        let mut owner = None;
        for look in 0..LOOKS {
            match sidecar.try_lock() {
                Ok(()) => {
                    // The name is free; the file may be in use by another name.
                    if let Lock::Taken(file) = DatabaseFile::take(database)? {
                        let lock = Self { sidecar, path };
                        lock.announce(None)?;
                        return Ok((lock, file));
                    }
                    unlock(&sidecar, &path)?;
                }
                Err(TryLockError::WouldBlock) => owner = read(&mut sidecar),
                Err(TryLockError::Error(e)) => {
                    return Err(StoreError::Unusable(format!("cannot lock {}: {e}", path.display())));
                }
            }
            if look + 1 < LOOKS {
                std::thread::sleep(BETWEEN_LOOKS);
            }
        }
        Err(StoreError::Owned { path: database.display().to_string(), owner: owner.unwrap_or(UNKNOWN) })
    }

    /// Writes down where the owner's gateway answers.
    ///
    /// # Errors
    /// Why the sidecar cannot be written.
    pub(super) fn announce(&self, url: Option<String>) -> Result<(), StoreError> {
        let owner = Owner { pid: std::process::id(), url };
        let write = || -> std::io::Result<()> {
            let text = serde_json::to_vec(&owner)?;
            let mut file = &self.sidecar;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&text)?;
            file.set_len(text.len() as u64)
        };
        write().map_err(|e| StoreError::Unusable(format!("cannot write {}: {e}", self.path.display())))
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // So that nobody is sent to a gateway that is gone. If it fails, the freed lock still says so.
        let _ = self.sidecar.set_len(0);
    }
}

/// An owner that has not written down who it is.
const UNKNOWN: Owner = Owner { pid: 0, url: None };

/// Who owns the database at `path` now, by this name or another. `None` when nobody does, or there is no such
/// database. Opens no database.
pub fn owner_of(path: &Path) -> Option<Owner> {
    let path = super::canonical(path).ok()?;
    let mut sidecar = File::open(sidecar_of(&path)).ok();
    for look in 0..LOOKS {
        let named = sidecar.as_mut().filter(|sidecar| sidecar.try_lock_shared().is_err());
        let is_named = named.is_some();
        // Without the lock, what is written there is of an owner that is gone.
        if let Some(owner) = named.and_then(read) {
            return Some(owner);
        }
        if !is_named {
            // Not to be in the way of who opens it just now.
            sidecar = None;
            if !file::is_locked(&path) {
                return None;
            }
        }
        if look + 1 < LOOKS {
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
    Some(UNKNOWN)
}

fn unlock(sidecar: &File, path: &Path) -> Result<(), StoreError> {
    sidecar.unlock().map_err(|e| StoreError::Unusable(format!("cannot unlock {}: {e}", path.display())))
}

fn sidecar_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".owner");
    name.into()
}

/// Who a sidecar names. `None` when it is empty or being written.
fn read(sidecar: &mut File) -> Option<Owner> {
    let mut text = String::new();
    sidecar.seek(SeekFrom::Start(0)).ok()?;
    sidecar.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
