//! Columns to domain and back. Every row is checked again on the way in.
//!
//! A row that does not decode is never an allow: an approval's comes out as [`Stored::Corrupt`], any other
//! fails its read. Owns no statement and no rule.

use std::str::FromStr;

use holdgate_core::action::{Action, Digest, Kind};
use holdgate_core::approval::{
    Actor, Binding, Claim, End, Outcome, Receipt, Source, Status, TerminalReason, Vote,
};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::run::RunState;
use holdgate_core::{Approval, ApprovalId, Canonical, Fence, Phase, Principal, Run, Time};
use rusqlite::types::FromSql;
use rusqlite::{Connection, Error, Row};

use super::sql;
use crate::{JournalEntry, Runtime, RuntimeKind, Stored};

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
        self.row
            .get(at)
            .map_err(|e| format!("column {}: {e}", self.name(at)))
    }

    /// A text that `T` checks.
    fn parse<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T, Why> {
        let text: String = self.next()?;
        text.parse()
            .map_err(|e| format!("column {}: {e}", self.name(self.at - 1)))
    }

    fn parse_optional<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<Option<T>, Why> {
        let text: Option<String> = self.next()?;
        text.map(|t| {
            t.parse()
                .map_err(|e| format!("column {}: {e}", self.name(self.at - 1)))
        })
        .transpose()
    }

    /// A text that `find` knows.
    fn named<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<T, Why> {
        self.named_optional(find)?
            .ok_or_else(|| format!("column {}: it is empty", self.name(self.at - 1)))
    }

    fn named_optional<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Why> {
        let text: Option<String> = self.next()?;
        text.map(|t| {
            find(&t).ok_or_else(|| format!("column {}: {t:?} is not known", self.name(self.at - 1)))
        })
        .transpose()
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, Why> {
        let text: String = self.next()?;
        serde_json::from_str(&text).map_err(|e| format!("column {}: {e}", self.name(self.at - 1)))
    }

    fn time(&mut self) -> Result<Time, Why> {
        self.next().map(Time::from_ms)
    }

    fn time_optional(&mut self) -> Result<Option<Time>, Why> {
        Ok(self.next::<Option<i64>>()?.map(Time::from_ms))
    }

    fn count(&mut self) -> Result<u64, Why> {
        self.count_optional()?
            .ok_or_else(|| format!("column {}: it is empty", self.name(self.at - 1)))
    }

    fn count_optional(&mut self) -> Result<Option<u64>, Why> {
        let number: Option<i64> = self.next()?;
        number
            .map(|n| {
                u64::try_from(n)
                    .map_err(|_| format!("column {}: {n} is below zero", self.name(self.at - 1)))
            })
            .transpose()
    }

    fn actor(&mut self) -> Result<Actor, Why> {
        Ok(Actor {
            id: self.parse()?,
            kind: self.named(PrincipalKind::from_name)?,
            label: self.next()?,
        })
    }

    fn name(&self, at: usize) -> String {
        self.row
            .as_ref()
            .column_name(at)
            .map_or_else(|_| at.to_string(), str::to_owned)
    }
}

/// An approval as [`sql::APPROVAL`] and [`sql::list`] select it, with its votes. `None` if not even its id can
/// be read: then there is nothing to call it by.
pub(super) fn stored(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<Stored>> {
    let id: ApprovalId = match Columns::of(row).parse() {
        Ok(id) => id,
        Err(why) => {
            tracing::error!(why, "an approval without a readable id is left out");
            return Ok(None);
        }
    };
    let decoded = match votes(conn, &id)? {
        Ok(votes) => approval(row, votes),
        Err(why) => Err(why),
    };
    Ok(Some(match decoded {
        Ok(approval) => Stored::Sound(Box::new(approval)),
        Err(why) => {
            tracing::error!(%id, why, "an approval does not decode and counts as denied");
            Stored::Corrupt { id, why }
        }
    }))
}

fn votes(conn: &Connection, id: &ApprovalId) -> rusqlite::Result<Result<Vec<Vote>, Why>> {
    let mut statement = conn.prepare_cached(sql::VOTES)?;
    let mut rows = statement.query([id.as_str()])?;
    let mut votes = Vec::new();
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let mut vote = || -> Result<Vote, Why> {
            let decision = columns.named(Decision::from_name)?;
            Ok(Vote {
                decision,
                voter: columns.actor()?,
                at: columns.time()?,
                reason: columns.next()?,
            })
        };
        match vote() {
            Ok(vote) => votes.push(vote),
            Err(why) => return Ok(Err(format!("vote {}: {why}", votes.len()))),
        }
    }
    Ok(Ok(votes))
}

fn approval(row: &Row<'_>, votes: Vec<Vote>) -> Result<Approval, Why> {
    let mut columns = Columns::of(row);
    let id: ApprovalId = columns.parse()?;
    let kind: Kind = columns.parse()?;
    let boundary: String = columns.next()?;
    let digest: Digest = columns.parse()?;
    let content: Option<String> = columns.next()?;
    let presentation = columns.json()?;
    let reason = columns.next()?;
    let source = Source {
        agent: columns.next()?,
        session: columns.next()?,
        task_id: columns.next()?,
        tool_call_id: columns.next()?,
        tool_name: columns.next()?,
    };
    let requester = columns.actor()?;
    let binding = match (columns.parse_optional()?, columns.parse_optional()?) {
        (Some(epoch), None) => Binding::Runtime(epoch),
        (None, Some(run)) => Binding::Checkpoint(run),
        (Some(_), Some(_)) | (None, None) => {
            return Err("it is not bound to exactly one epoch or run".to_owned());
        }
    };
    let requirement: Requirement = columns.json()?;
    if !requirement.allowed_decisions.contains(&Decision::Deny) {
        return Err("its requirement offers no deny".to_owned());
    }
    let (created_at, expires_at) = (columns.time()?, columns.time()?);
    let content = frozen(&id, kind, &boundary, digest, content, &binding)?;
    let phase = phase(&mut columns, &binding, &votes, created_at, expires_at)?;
    Ok(Approval {
        id,
        kind,
        boundary,
        digest,
        content,
        presentation,
        reason,
        source,
        requester,
        binding,
        requirement,
        created_at,
        expires_at,
        votes,
        phase,
    })
}

/// The content that a stored run will run, if it is what the digest and the id say.
fn frozen(
    id: &ApprovalId,
    kind: Kind,
    boundary: &str,
    digest: Digest,
    content: Option<String>,
    binding: &Binding,
) -> Result<Option<Canonical>, Why> {
    match (binding, content) {
        (Binding::Runtime(_), None) => Ok(None),
        (Binding::Checkpoint(run), Some(text)) => {
            let content = Canonical::parse(&text).map_err(|e| format!("its content: {e}"))?;
            if content.as_str() != text {
                return Err("its content is not in canonical form".to_owned());
            }
            let action = Action::freeze(kind, boundary, content).map_err(|e| e.to_string())?;
            if action.digest() != digest
                || action.id(run.as_str()) != *id
                || action.boundary() != boundary
            {
                return Err("its content is not what its digest and id were made from".to_owned());
            }
            Ok(Some(action.content().clone()))
        }
        (Binding::Runtime(_), Some(_)) => Err("it keeps the content of a live process".to_owned()),
        (Binding::Checkpoint(_), None) => {
            Err("it lacks the content that its run will run".to_owned())
        }
    }
}

fn phase(
    columns: &mut Columns<'_, '_>,
    binding: &Binding,
    votes: &[Vote],
    created_at: Time,
    expires_at: Time,
) -> Result<Phase, Why> {
    let status = columns.named(Status::from_name)?;
    let decision = columns.named_optional(Decision::from_name)?;
    let reason = columns
        .named_optional(|name| TerminalReason::ALL.into_iter().find(|r| r.as_str() == name))?;
    let at = columns.time_optional()?;
    let by = (
        columns.parse_optional()?,
        columns.named_optional(PrincipalKind::from_name)?,
        columns.next()?,
    );
    let end = match (at, by, reason) {
        (Some(at), (Some(id), Some(kind), Some(label)), Some(reason)) => Some(End {
            at,
            by: Actor { id, kind, label },
            reason,
        }),
        (None, (None, None, None), None) => None,
        _ => return Err("its end is half written".to_owned()),
    };
    let claim = claim(columns)?;
    if end.as_ref().is_some_and(|end| end.at < created_at) {
        return Err("it ended before it began".to_owned());
    }
    if status != Status::Allowed && claim.is_some() {
        return Err(format!("it is {} and claimed", status.as_str()));
    }
    match (status, decision, end) {
        (Status::Pending, None, None) => Ok(Phase::Pending),
        (
            Status::Allowed,
            Some(decision @ (Decision::AllowOnce | Decision::AllowAlways)),
            Some(end),
        ) => {
            answered(decision, &end, votes, expires_at)?;
            if let Some(claim) = &claim {
                claimed(claim, &end, binding)?;
            }
            Ok(Phase::Allowed {
                decision,
                end,
                claim,
            })
        }
        (Status::Denied, Some(Decision::Deny), Some(end)) => match end.reason {
            TerminalReason::User => {
                answered(Decision::Deny, &end, votes, expires_at).map(|()| Phase::Denied(end))
            }
            TerminalReason::StorageCorrupt => Ok(Phase::Denied(end)),
            _ => Err(format!("it is denied with reason {}", end.reason.as_str())),
        },
        (Status::Expired, Some(Decision::Deny), Some(end)) => {
            if end.reason == TerminalReason::Timeout && expires_at.reached_at(end.at) {
                Ok(Phase::Expired(end))
            } else {
                Err(format!(
                    "it expired early or with reason {}",
                    end.reason.as_str()
                ))
            }
        }
        (Status::Cancelled, Some(Decision::Deny), Some(end)) => match end.reason {
            TerminalReason::GatewayRestart
            | TerminalReason::CallerLost
            | TerminalReason::Withdrawn => Ok(Phase::Cancelled(end)),
            _ => Err(format!(
                "it is cancelled with reason {}",
                end.reason.as_str()
            )),
        },
        (status, decision, end) => Err(format!(
            "it is {} with decision {} and {}",
            status.as_str(),
            decision.map_or("none", Decision::as_str),
            if end.is_some() { "an end" } else { "no end" }
        )),
    }
}

/// A person's answer is one of the votes, given in time by somebody who is no agent.
fn answered(decision: Decision, end: &End, votes: &[Vote], expires_at: Time) -> Result<(), Why> {
    if end.reason != TerminalReason::User {
        return Err(format!(
            "it was answered with reason {}",
            end.reason.as_str()
        ));
    }
    if end.by.kind != PrincipalKind::Administrator {
        return Err(format!(
            "it was answered by an identity of kind {}",
            end.by.kind.as_str()
        ));
    }
    if expires_at.reached_at(end.at) {
        return Err("it was answered after its deadline".to_owned());
    }
    let is_voted = votes
        .iter()
        .any(|vote| vote.decision == decision && vote.voter == end.by && vote.at == end.at);
    if is_voted {
        Ok(())
    } else {
        Err("no vote stands behind its answer".to_owned())
    }
}

fn claim(columns: &mut Columns<'_, '_>) -> Result<Option<Claim>, Why> {
    let (id, at, fence) = (
        columns.parse_optional()?,
        columns.time_optional()?,
        columns.count_optional()?,
    );
    let outcome =
        columns.named_optional(|name| Outcome::ALL.into_iter().find(|o| o.as_str() == name))?;
    let (detail, settled_at) = (columns.next()?, columns.time_optional()?);
    let receipt = match (outcome, settled_at, detail) {
        (Some(outcome), Some(at), detail) => Some(Receipt {
            outcome,
            at,
            detail,
        }),
        (None, None, None) => None,
        _ => return Err("its receipt is half written".to_owned()),
    };
    match (id, at) {
        (Some(id), Some(at)) => Ok(Some(Claim {
            id,
            at,
            fence: fence.map(Fence),
            receipt,
        })),
        (None, None) if fence.is_none() && receipt.is_none() => Ok(None),
        _ => Err("its claim is half written".to_owned()),
    }
}

fn claimed(claim: &Claim, end: &End, binding: &Binding) -> Result<(), Why> {
    if claim.at < end.at
        || claim
            .receipt
            .as_ref()
            .is_some_and(|receipt| receipt.at < claim.at)
    {
        return Err("its claim or receipt came before what it follows from".to_owned());
    }
    if matches!(binding, Binding::Checkpoint(_)) && claim.fence.is_none() {
        return Err("a stored run's claim has no fence".to_owned());
    }
    Ok(())
}

/// What [`sql::PRINCIPAL`] and its like select.
pub(super) fn principal(row: &Row<'_>) -> rusqlite::Result<Principal> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<Principal, Why> {
        Ok(Principal {
            id: columns.parse()?,
            kind: columns.named(PrincipalKind::from_name)?,
            label: columns.next()?,
        })
    };
    decode().map_err(undecodable)
}

/// What [`sql::RUNTIME`] selects.
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
        Ok(Runtime {
            epoch,
            kind,
            owner,
            lease_until,
            ended: columns.time_optional()?.is_some(),
        })
    };
    decode().map_err(undecodable)
}

/// What [`sql::RUN`] selects.
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

/// What [`sql::RUN_EVENTS`] selects.
pub(super) fn journal_entry(row: &Row<'_>) -> rusqlite::Result<JournalEntry> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<JournalEntry, Why> {
        Ok(JournalEntry {
            seq: columns.count()?,
            at: columns.time()?,
            event: columns.next()?,
        })
    };
    decode().map_err(undecodable)
}

/// What [`sql::IDEMPOTENCY`] selects.
pub(super) fn idempotency(row: &Row<'_>) -> rusqlite::Result<(Digest, ApprovalId)> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> { Ok((columns.parse()?, columns.parse()?)) };
    decode().map_err(undecodable)
}

fn undecodable(why: Why) -> Error {
    Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
}
