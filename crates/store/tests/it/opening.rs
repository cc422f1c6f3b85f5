//! Opening: one owner, nothing that is not Holdgate's, nothing newer; and then nothing is touched.

use std::fs;
use std::path::Path;

use holdgate_store::sqlite::{OpenOptions, SqliteStore, owner_of};
use holdgate_store::{Owner, StoreError};

use crate::stage::{Database, clock, populate};

fn refusal(database: &Database) -> String {
    database.try_open().err().expect("it must not open").to_string()
}

#[tokio::test]
async fn a_second_owner_is_told_who_the_first_is() {
    let database = Database::new();
    assert_eq!(owner_of(&database.path()), None, "no database, no owner");
    let first = database.try_open().unwrap();
    let me = Owner { pid: std::process::id(), url: None };
    assert_eq!(owner_of(&database.path()), Some(me));
    first.set_owner_url("http://127.0.0.1:7420").unwrap();
    let owner = Owner { pid: std::process::id(), url: Some("http://127.0.0.1:7420".to_owned()) };
    assert_eq!(owner_of(&database.path()), Some(owner.clone()));
    match database.try_open() {
        Err(StoreError::Owned { path, owner: told }) => {
            assert_eq!(told, owner);
            assert!(path.ends_with("holdgate.db"), "{path}");
        }
        _ => panic!("a second owner opened it"),
    }
    populate(&*first).await;

    first.close().await;
    assert_eq!(owner_of(&database.path()), None);
    assert_eq!(first.set_owner_url("http://127.0.0.1:1"), Err(StoreError::Closed));
    let second = database.try_open().unwrap();
    assert!(matches!(database.try_open(), Err(StoreError::Owned { .. })));
    drop(second);
    database.try_open().unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn another_name_of_the_file_is_the_same_file() {
    let database = Database::new();
    let store = database.try_open().unwrap();
    let link = database.path().with_file_name("link.db");
    std::os::unix::fs::symlink(database.path(), &link).unwrap();
    let dotted = database.path().parent().unwrap().join("./holdgate.db");
    for path in [link, dotted] {
        assert!(owner_of(&path).is_some());
        let opened = SqliteStore::open(OpenOptions { path, clock: clock() });
        assert!(matches!(opened, Err(StoreError::Owned { .. })));
    }
    drop(store);
}

#[test]
fn a_file_under_two_names_is_refused_and_left_alone() {
    let database = Database::new();
    drop(database.try_open().unwrap());
    let before = fs::read(database.path()).unwrap();
    let link = database.path().with_file_name("link.db");
    fs::hard_link(database.path(), &link).unwrap();
    for path in [database.path(), link.clone()] {
        let opened = SqliteStore::open(OpenOptions { path, clock: clock() });
        let why = opened.err().expect("it must not open").to_string();
        assert!(why.contains("hard links") && why.contains("remove the other names"), "{why}");
    }
    assert!(!link.with_file_name("link.db.owner").exists());
    assert_eq!(fs::read(database.path()).unwrap(), before);
    fs::remove_file(link).unwrap();
    database.try_open().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_file_is_owned_by_whatever_name_and_without_its_sidecar() {
    let database = Database::new();
    let store = database.try_open().unwrap();
    fs::remove_file(format!("{}.owner", database.path().display())).unwrap();
    let moved = database.path().with_file_name("moved.db");
    for path in [database.path(), moved.clone()] {
        if path == moved {
            fs::rename(database.path(), &moved).unwrap();
        }
        assert_eq!(owner_of(&path), Some(Owner { pid: 0, url: None }));
        let opened = SqliteStore::open(OpenOptions { path: path.clone(), clock: clock() });
        assert!(matches!(opened, Err(StoreError::Owned { .. })), "{}", path.display());
    }
    store.close().await;
    assert_eq!(owner_of(&moved), None);
}

/// The kernel's list of record locks, which any closed handle of the file would have emptied.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn looking_at_an_open_file_takes_no_lock_of_sqlites_away() {
    use std::os::unix::fs::MetadataExt as _;
    let database = Database::new();
    let store = database.try_open().unwrap();
    populate(&*store).await;
    let inode = fs::metadata(database.path()).unwrap().ino();
    let locks = || {
        let all = fs::read_to_string("/proc/locks").unwrap();
        all.lines().filter(|line| line.contains("POSIX") && line.contains(&format!(":{inode} "))).count()
    };
    let held = locks();
    assert!(held > 0, "SQLite holds a lock while a log is in use");
    for sidecar_is_there in [true, false] {
        if !sidecar_is_there {
            fs::remove_file(format!("{}.owner", database.path().display())).unwrap();
        }
        assert!(owner_of(&database.path()).is_some());
        assert!(database.try_open().is_err());
        assert_eq!(locks(), held);
    }
}

#[test]
fn an_owner_that_has_not_said_who_it_is_still_owns() {
    let database = Database::new();
    drop(database.try_open().unwrap());
    let sidecar = format!("{}.owner", database.path().display());
    for half_written in ["", r#"{"pid":12"#] {
        fs::write(&sidecar, half_written).unwrap();
        let lock = fs::File::open(&sidecar).unwrap();
        lock.lock().unwrap();
        assert!(refusal(&database).contains("has not said who it is"));
        assert_eq!(owner_of(&database.path()), Some(Owner { pid: 0, url: None }));
    }
    // What a crashed owner left behind is worth nothing without its lock.
    fs::write(&sidecar, r#"{"pid":1,"url":"http://gone"}"#).unwrap();
    assert_eq!(owner_of(&database.path()), None);
    database.try_open().unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let database = Database::new();
    let store = database.try_open().unwrap();
    populate(&*store).await;
    let mut files = 0;
    for entry in fs::read_dir(database.path().parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        files += 1;
    }
    assert_eq!(files, 4, "database, write-ahead log, its index, owner");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let database = Database::new();
    for content in [&b"my notes"[..], b"SQLite format 3\0 and then nonsense", &[0; 8192]] {
        fs::write(database.path(), content).unwrap();
        let why = refusal(&database);
        assert!(why.contains("holdgate.db") && why.contains("database"), "{why}");
        assert_eq!(fs::read(database.path()).unwrap(), content);
    }
}

#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let database = Database::new();
    database.raw().execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    let before = fs::read(database.path()).unwrap();
    let why = refusal(&database);
    assert!(why.contains("another program"), "{why}");
    assert_eq!(fs::read(database.path()).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let database = Database::new();
    drop(database.try_open().unwrap());
    database.raw().execute("INSERT INTO schema_migrations VALUES (99, 'x', 0)", []).unwrap();
    let before = fs::read(database.path()).unwrap();
    match database.try_open() {
        Err(StoreError::NewerSchema { path, found: 99, known: 2 }) => assert!(path.ends_with("holdgate.db")),
        other => panic!("{:?}", other.err()),
    }
    assert_eq!(fs::read(database.path()).unwrap(), before);
}

#[test]
fn a_schema_step_of_another_form_is_refused() {
    let database = Database::new();
    drop(database.try_open().unwrap());
    database.raw().execute("UPDATE schema_migrations SET checksum = 'x'", []).unwrap();
    let why = refusal(&database);
    assert!(why.contains("schema step 1"), "{why}");
    database.raw().execute("DELETE FROM schema_migrations", []).unwrap();
    assert!(database.try_open().is_err(), "tables without their record are not this program's either");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let database = Database::new();
    fs::write(database.path(), "").unwrap();
    let mut unusable = vec![database.path().with_file_name("missing"), database.path()];
    // A directory that even root cannot write to.
    if Path::new("/proc/self").is_dir() {
        unusable.push("/proc/self".into());
    }
    for directory in unusable {
        let path = directory.join("holdgate.db");
        let opened = SqliteStore::open(OpenOptions { path: path.clone(), clock: clock() });
        let why = opened.err().expect("it must not open").to_string();
        assert!(why.contains("holdgate.db") && why.contains("directory"), "{why}");
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let database = Database::new();
    fs::write(database.path(), "").unwrap();
    let store = database.try_open().unwrap();
    populate(&*store).await;
}
