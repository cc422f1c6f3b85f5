//! Columns to domain. Every row is checked again on the way in.
//!
//! A row that does not decode is never an allow: an approval's comes out as [`Stored::Corrupt`](crate::Stored), any
//! other fails its read. Owns no statement and no rule.

use std::str::FromStr;

use holdgate_core::principal::PrincipalKind;
use holdgate_core::run::RunState;
use holdgate_core::{Actor, ApprovalId, Digest, Fence, Kind, Run, Time};
use rusqlite::types::FromSql;
use rusqlite::{Error, Row};

use crate::{Administered, JournalEntry, Recorded, Runtime, RuntimeKind};

mod approval;
mod identity;

pub(super) use approval::stored;
pub(super) use identity::{device, freeze, hex, identity, pairing, principal, session};

/// What is wrong with a row.
type Why = String;

/// Reads a row's columns from left to right.
struct Columns<'r, 'stmt> {
    row: &'r Row<'stmt>,
    at: usize,
}

impl<'r, 'stmt> Columns<'r, 'stmt> {
    fn of(row: &'r Row<'stmt>) -> Self {
        Self { row, at: 0 }
    }

    fn next<T: FromSql>(&mut self) -> Result<T, Why> {
        let at = self.at;
        self.at += 1;
        self.row.get(at).map_err(|e| format!("column {}: {e}", self.name(at)))
    }

    /// A text that `T` checks.
    fn parse<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T, Why> {
        let text: String = self.next()?;
        text.parse().map_err(|e| format!("column {}: {e}", self.name(self.at - 1)))
    }

    fn parse_optional<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<Option<T>, Why> {
        let text: Option<String> = self.next()?;
        text.map(|t| t.parse().map_err(|e| format!("column {}: {e}", self.name(self.at - 1)))).transpose()
    }

    /// A text that `find` knows.
    fn named<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<T, Why> {
        self.named_optional(find)?.ok_or_else(|| format!("column {}: it is empty", self.name(self.at - 1)))
    }

    fn named_optional<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Why> {
        let text: Option<String> = self.next()?;
        text.map(|t| find(&t).ok_or_else(|| format!("column {}: {t:?} is not known", self.name(self.at - 1))))
            .transpose()
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, Why> {
        self.json_optional()?.ok_or_else(|| format!("column {}: it is empty", self.name(self.at - 1)))
    }

    fn json_optional<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, Why> {
        let text: Option<String> = self.next()?;
        text.map(|text| {
            serde_json::from_str(&text).map_err(|e| format!("column {}: {e}", self.name(self.at - 1)))
        })
        .transpose()
    }

    fn time(&mut self) -> Result<Time, Why> {
        self.next().map(Time::from_ms)
    }

    fn time_optional(&mut self) -> Result<Option<Time>, Why> {
        Ok(self.next::<Option<i64>>()?.map(Time::from_ms))
    }

    fn count(&mut self) -> Result<u64, Why> {
        self.count_optional()?.ok_or_else(|| format!("column {}: it is empty", self.name(self.at - 1)))
    }

    fn count_optional(&mut self) -> Result<Option<u64>, Why> {
        let number: Option<i64> = self.next()?;
        number
            .map(|n| {
                u64::try_from(n).map_err(|_| format!("column {}: {n} is below zero", self.name(self.at - 1)))
            })
            .transpose()
    }

    fn actor(&mut self) -> Result<Actor, Why> {
        Ok(Actor {
            id: self.parse()?,
            kind: self.named(PrincipalKind::from_name)?,
            label: self.next()?,
            person: self.parse_optional()?,
        })
    }

    /// An actor that is there as a whole, or not at all.
    fn actor_optional(&mut self) -> Result<Option<Actor>, Why> {
        let (id, kind) = (self.parse_optional()?, self.named_optional(PrincipalKind::from_name)?);
        match (id, kind, self.next()?, self.parse_optional()?) {
            (Some(id), Some(kind), Some(label), person) => Ok(Some(Actor { id, kind, label, person })),
            (None, None, None, None) => Ok(None),
            _ => Err(format!("column {}: an identity is half written", self.name(self.at - 1))),
        }
    }

    fn name(&self, at: usize) -> String {
        self.row.as_ref().column_name(at).map_or_else(|_| at.to_string(), str::to_owned)
    }
}

/// What [`RUNTIME`](super::sql::RUNTIME) selects.
pub(super) fn runtime(row: &Row<'_>) -> rusqlite::Result<Runtime> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<Runtime, Why> {
        let epoch = columns.parse()?;
        let kind = match (columns.next::<String>()?.as_str(), columns.next()?) {
            ("gateway", Some(instance)) => RuntimeKind::Gateway { instance },
            ("caller", None) => RuntimeKind::Caller,
            (kind, _) => return Err(format!("an epoch of kind {kind:?}")),
        };
        let (owner, lease_until) = (columns.parse()?, columns.time()?);
        Ok(Runtime { epoch, kind, owner, lease_until, ended: columns.time_optional()?.is_some() })
    };
    decode().map_err(undecodable)
}

/// What [`RUN`](super::sql::RUN) selects.
pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<Run, Why> {
        Ok(Run {
            id: columns.parse()?,
            owner: columns.parse()?,
            agent: columns.next()?,
            state: columns.named(RunState::from_name)?,
            fence: Fence(columns.count()?),
            held_until: columns.time_optional()?,
            last_seq: columns.count()?,
            created_at: columns.time()?,
            updated_at: columns.time()?,
        })
    };
    decode().map_err(undecodable)
}

/// What [`RUN_EVENTS`](super::sql::RUN_EVENTS) selects.
pub(super) fn journal_entry(row: &Row<'_>) -> rusqlite::Result<JournalEntry> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<JournalEntry, Why> {
        Ok(JournalEntry { seq: columns.count()?, at: columns.time()?, event: columns.next()? })
    };
    decode().map_err(undecodable)
}

/// What [`IDEMPOTENCY`](super::sql::IDEMPOTENCY) selects.
pub(super) fn idempotency(row: &Row<'_>) -> rusqlite::Result<(Digest, ApprovalId)> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> { Ok((columns.parse()?, columns.parse()?)) };
    decode().map_err(undecodable)
}

/// What [`EVENTS`](super::sql::EVENTS) selects.
pub(super) fn recorded(row: &Row<'_>) -> rusqlite::Result<Recorded> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> {
        let (seq, approval, event) = (columns.count()?, columns.parse()?, columns.json()?);
        Ok(Recorded { seq, approval, event, by: columns.actor()?, at: columns.time()? })
    };
    decode().map_err(undecodable)
}

/// What [`ADMINISTRATION`](super::sql::ADMINISTRATION) selects.
pub(super) fn administered(row: &Row<'_>) -> rusqlite::Result<Administered> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> {
        let (seq, event) = (columns.count()?, columns.json()?);
        Ok(Administered { seq, event, by: columns.actor()?, at: columns.time()? })
    };
    decode().map_err(undecodable)
}

/// What [`PENDING_COUNTS`](super::sql::PENDING_COUNTS) selects.
pub(super) fn pending_count(row: &Row<'_>) -> rusqlite::Result<(Kind, u64)> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> { Ok((columns.parse()?, columns.count()?)) };
    decode().map_err(undecodable)
}

fn undecodable(why: Why) -> Error {
    Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
}
