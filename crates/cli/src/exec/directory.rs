//! The directory that a command runs in.
//!
//! Owns which name it goes by, its identity (device and inode), and how files are opened from it. A directory is
//! held open once it is looked at, so that what is checked later is the same directory whatever its path says.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::environment::Environment;

/// An open directory and the path it was reached by.
pub struct Directory {
    /// Absolute; links in it are kept as the user wrote them.
    pub path: PathBuf,
    /// The device that holds it, in decimal: a 64-bit number does not survive every JSON reader.
    pub device: String,
    /// Its inode on that device, in decimal.
    pub inode: String,
    fd: OwnedFd,
}

impl Directory {
    /// The directory this process is in, by the name the user knows it: `PWD` of the environment if that is an
    /// absolute path without `.` and `..` that leads here, else the physical path.
    pub fn current(environment: &Environment) -> Result<Self> {
        let here = Self::open(Path::new("."))?;
        let logical = environment.get("PWD").map(Path::new).filter(|path| is_plain(path));
        if let Some(there) = logical.and_then(|path| Self::open(path).ok())
            && there.is(&here)
        {
            return Ok(there);
        }
        let physical = std::env::current_dir().context("the current directory has no path any more")?;
        let there = Self::open(&physical)?;
        anyhow::ensure!(there.is(&here), "the current directory was moved away from {}", physical.display());
        Ok(there)
    }

    /// Opens a directory by its path.
    pub fn open(path: &Path) -> Result<Self> {
        let say = || format!("cannot open the directory {}", path.display());
        let fd = rustix::fs::open(path, Self::flags() | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .with_context(say)?;
        let stat = rustix::fs::fstat(&fd).with_context(say)?;
        Ok(Self {
            path: path.to_owned(),
            device: stat.st_dev.to_string(),
            inode: stat.st_ino.to_string(),
            fd,
        })
    }

    /// A directory that may be entered need not be readable; where the system can open it all the same, we do.
    fn flags() -> OFlags {
        #[cfg(target_os = "linux")]
        return OFlags::PATH;
        #[cfg(not(target_os = "linux"))]
        return OFlags::RDONLY;
    }

    /// Whether both are the same directory, by device and inode.
    pub fn is(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }

    /// What a path leads to, seen from here; links are followed.
    pub fn stat(&self, path: &Path) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.fd, path, AtFlags::empty())
    }

    /// Opens a regular file for reading, seen from here. `None` if it is something else: a pipe or a device must
    /// not even be opened, which can block or have an effect.
    pub fn open_regular(&self, path: &Path) -> rustix::io::Result<Option<(File, Stat)>> {
        if !is_regular(&self.stat(path)?) {
            return Ok(None);
        }
        // Non-blocking, in case a pipe took the place of the file after the look.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = rustix::fs::openat(&self.fd, path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(is_regular(&stat).then(|| (File::from(fd), stat)))
    }

    /// Whether this user may execute what the path leads to, seen from here.
    pub fn may_execute(&self, path: &Path) -> bool {
        rustix::fs::accessat(&self.fd, path, rustix::fs::Access::EXEC_OK, AtFlags::empty()).is_ok()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a stat is one of a regular file.
pub fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

/// Whether a path can serve as a logical directory name.
fn is_plain(path: &Path) -> bool {
    let stepless = |part| matches!(part, Component::RootDir | Component::Normal(_));
    // `components` drops a `.` in the middle by itself; such a path is only spelled oddly, it names no other place.
    path.is_absolute() && path.components().all(stepless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn with_pwd(path: &Path) -> Environment {
        Environment::for_child([("PWD".into(), path.into())])
    }

    #[test]
    fn the_current_directory_goes_by_its_logical_name_only_if_that_leads_here() {
        let home = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let link = home.path().join("link");
        symlink(&here, &link).unwrap();
        assert_eq!(Directory::current(&with_pwd(&link)).unwrap().path, link);
        assert_eq!(Directory::current(&with_pwd(home.path())).unwrap().path, here);
        assert_eq!(Directory::current(&with_pwd(Path::new("."))).unwrap().path, here);
        assert_eq!(Directory::current(&with_pwd(&home.path().join("../link"))).unwrap().path, here);
        assert_eq!(Directory::current(&Environment::for_child([])).unwrap().path, here);
    }

    #[test]
    fn an_open_directory_stays_the_same_when_its_path_leads_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let (one, two, link) = (home.path().join("one"), home.path().join("two"), home.path().join("link"));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&two).unwrap();
        std::fs::write(one.join("file"), "one").unwrap();
        symlink(&one, &link).unwrap();
        let directory = Directory::open(&link).unwrap();
        std::fs::remove_file(&link).unwrap();
        symlink(&two, &link).unwrap();
        assert!(directory.open_regular(Path::new("file")).unwrap().is_some());
        assert!(!directory.is(&Directory::open(&link).unwrap()));
        assert!(directory.is(&Directory::open(&one).unwrap()));
    }

    #[test]
    fn a_pipe_is_no_regular_file_and_is_not_opened() {
        let home = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(home.path().join("pipe")).status().unwrap();
        assert!(made.success());
        let directory = Directory::open(home.path()).unwrap();
        assert!(directory.open_regular(Path::new("pipe")).unwrap().is_none());
        assert!(directory.open_regular(Path::new("/dev/null")).unwrap().is_none());
        assert!(directory.open_regular(Path::new(".")).unwrap().is_none());
    }
}
