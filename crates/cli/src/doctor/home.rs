//! What can be told from the files alone.

use std::path::Path;

use holdgate_store::clock::{Clock as _, SystemClock};
use holdgate_store::sqlite::{Examined, examine};

use super::Check;
use crate::config::{Config, Flags, Source};
use crate::home::{Home, Identity, mode};
use crate::when;

/// Less room than this, in bytes, and records may soon not be written.
const LITTLE_ROOM: u64 = 1 << 30;
/// With less than this they cannot be relied on to be.
const NO_ROOM: u64 = 64 << 20;
/// A clock before this has never been set: 2025, in Unix milliseconds.
const LONG_AGO_MS: i64 = 1_735_689_600_000;
/// How far a clock may be behind the last commit, in milliseconds, before requests visibly live longer.
const BEHIND_MS: i64 = 5_000;

/// Looks at the home.
pub fn checks(home: &Home) -> Vec<Check> {
    let dir = home.dir();
    if !dir.is_dir() {
        let found = format!("there is no directory {}", dir.display());
        return vec![Check::wrong("home", found, "start `holdgate serve` once, or name another with --home")];
    }
    let mut checks = vec![directory(dir)];
    checks.extend(tokens(home));
    let is_device = matches!(home.device(), Ok(Some(_)));
    let examined = database(&home.database(), is_device, &mut checks);
    checks.push(clock(examined.as_ref()));
    checks.extend(room(dir));
    checks.extend(configuration(home));
    if home.is_separation_advisory() {
        checks.push(Check::advisory(
            "separation",
            "this OS user can read both token files, and so can an agent with a shell under this user",
            "review from a paired device (`holdgate pair`), or run agents as another user",
        ));
    }
    checks
}

fn directory(dir: &Path) -> Check {
    let shown = dir.display();
    match mode(dir) {
        Some(mode) if mode & 0o022 != 0 => Check::wrong(
            "home",
            format!("other users can replace files in {shown} (mode {mode:03o})"),
            format!("chmod 700 {}", crate::shell::word(dir)),
        ),
        Some(mode) if mode & 0o055 != 0 => Check::advisory(
            "home",
            format!("other users can look into {shown} (mode {mode:03o})"),
            format!("chmod 700 {}", crate::shell::word(dir)),
        ),
        _ => Check::ok("home", shown.to_string()),
    }
}

fn tokens(home: &Home) -> Vec<Check> {
    match home.device() {
        Ok(Some(device)) => {
            let found = format!("this machine is a device of the gateway at {}", device.url);
            return vec![private(&home.device_file()).unwrap_or_else(|| Check::ok("device token", found))];
        }
        Ok(None) => {}
        Err(error) => {
            return vec![Check::wrong("device token", format!("{error:#}"), "`holdgate pair --join URL`")];
        }
    }
    let check = |identity| {
        let (name, todo) = match identity {
            Identity::Operator => ("operator token", "stop the gateway, then `holdgate token recover`"),
            Identity::Agent => ("agent token", "delete it if it is there; `holdgate serve` writes another"),
        };
        let path = home.token_file(identity);
        match home.token(identity) {
            Ok(_) => private(&path).unwrap_or_else(|| Check::ok(name, path.display().to_string())),
            Err(error) => Check::wrong(name, format!("{error:#}"), todo),
        }
    };
    Identity::BOTH.map(check).into()
}

/// What is wrong with a secret's file that others can read.
fn private(path: &Path) -> Option<Check> {
    let mode = mode(path).filter(|mode| mode & 0o077 != 0)?;
    let found = format!("{} is open to other users (mode {mode:03o})", path.display());
    let todo =
        format!("chmod 600 {}; then replace it with `holdgate token rotate`", crate::shell::word(path));
    Some(Check::wrong("token files", found, todo))
}

fn database(path: &Path, is_device: bool, checks: &mut Vec<Check>) -> Option<Examined> {
    let shown = path.display();
    if !path.exists() && is_device {
        return None;
    }
    if !path.exists() {
        checks.push(Check::advisory("database", format!("there is no {shown}"), "`holdgate serve` makes it"));
        return None;
    }
    checks.extend(private_database(path));
    let examined = match examine(path) {
        Ok(examined) => examined,
        Err(error) => {
            let todo = "restore the file from a backup, or use the program that wrote it";
            checks.push(Check::wrong("database", error.to_string(), todo));
            return None;
        }
    };
    let (found, known) = examined.schema;
    checks.push(match &examined.damage {
        Some(damage) => Check::wrong(
            "database",
            format!("{shown} is damaged: {damage}"),
            "stop the gateway and restore the file from a backup",
        ),
        None if found < known => Check::advisory(
            "database",
            format!("{shown} has schema version {found}; this program's is {known}"),
            "it is brought to it by the next `holdgate serve`; keep a copy before",
        ),
        None => Check::ok("database", format!("{shown}, schema version {found}, intact")),
    });
    Some(examined)
}

fn private_database(path: &Path) -> Option<Check> {
    let mode = mode(path).filter(|mode| mode & 0o077 != 0)?;
    let found = format!("{} is open to other users (mode {mode:03o})", path.display());
    Some(Check::wrong("database", found, format!("chmod 600 {}", crate::shell::word(path))))
}

fn clock(examined: Option<&Examined>) -> Check {
    let now = SystemClock::new().wall();
    let behind = examined.map_or(0, |examined| examined.last_committed.ms_after(now));
    if now.as_ms() < LONG_AGO_MS {
        let found = format!("it is {} here", when::local(now.as_ms()));
        return Check::wrong("clock", found, "set this machine's clock");
    }
    if behind > BEHIND_MS {
        let found = format!("it is {} ms behind the last commit, so deadlines are late", behind);
        return Check::wrong("clock", found, "set this machine's clock");
    }
    Check::ok("clock", when::local(now.as_ms()))
}

fn room(dir: &Path) -> Option<Check> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} MiB are free for {}", free >> 20, dir.display());
    Some(match free {
        0..NO_ROOM => Check::wrong("disk", found, "make room: what cannot be stored is denied"),
        NO_ROOM..LITTLE_ROOM => Check::advisory("disk", found, "make room soon"),
        LITTLE_ROOM.. => Check::ok("disk", found),
    })
}

fn configuration(home: &Home) -> Vec<Check> {
    let source = Source::of(home, None);
    let config = match Config::load(&source, &Flags::default()) {
        Ok(config) => config,
        Err(error) => {
            return vec![Check::wrong("configuration", format!("{error:#}"), "`holdgate config check`")];
        }
    };
    if let Err(error) = config.reach() {
        return vec![Check::wrong("configuration", format!("{error:#}"), "`holdgate config check`")];
    }
    let warnings = config.warnings(&source);
    if warnings.is_empty() {
        return vec![Check::ok("configuration", "it can be served with")];
    }
    let advisory = |warning: String| {
        let found = warning.strip_prefix("warning: ").unwrap_or(&warning).to_owned();
        Check::advisory("configuration", found, "see docs/operating.md")
    };
    warnings.into_iter().map(advisory).collect()
}
