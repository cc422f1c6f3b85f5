//! An approval's row, checked whole: the tuple of its answer, the votes behind it, and that its content is what
//! its digest and id were made from.

use holdgate_core::action::{Action, Digest, Kind};
use holdgate_core::approval::{
    Actor, Binding, Claim, End, Outcome, Receipt, Source, Status, TerminalReason, Vote,
};
use holdgate_core::presentation::{Presentation, present};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{Approval, ApprovalId, Canonical, Fence, Phase, Time};
use rusqlite::{Connection, Row};

use super::{Columns, Why};
use crate::Stored;
use crate::sqlite::sql;

/// An approval as [`sql::APPROVAL`] and [`sql::list`] select it, with its votes. `None` if not even its id can
/// be read: then there is nothing to call it by.
pub(in crate::sqlite) fn stored(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<Stored>> {
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
            Ok(Vote { decision, voter: columns.actor()?, at: columns.time()?, reason: columns.next()? })
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
    let stored: Presentation = columns.json()?;
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
    // What a stored run will run is there to be shown; what was written down about it need not be believed.
    let presentation = match &content {
        Some(content) => present(kind, &content.to_value()).map_err(|e| e.to_string())?,
        None => stored,
    };
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
            if action.digest() != digest || action.id(run.as_str()) != *id || action.boundary() != boundary {
                return Err("its content is not what its digest and id were made from".to_owned());
            }
            Ok(Some(action.content().clone()))
        }
        (Binding::Runtime(_), Some(_)) => Err("it keeps the content of a live process".to_owned()),
        (Binding::Checkpoint(_), None) => Err("it lacks the content that its run will run".to_owned()),
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
    let end = end(columns, created_at)?;
    let claim = claim(columns)?;
    if status != Status::Allowed && claim.is_some() {
        return Err(format!("it is {} and claimed", status.as_str()));
    }
    let reason = end.as_ref().map(|end| end.reason);
    match (status, decision, end) {
        (Status::Pending, None, None) => Ok(Phase::Pending),
        (Status::Allowed, Some(decision @ (Decision::AllowOnce | Decision::AllowAlways)), Some(end)) => {
            answered(decision, &end, votes, expires_at)?;
            claim.iter().try_for_each(|claim| claimed(claim, &end, binding))?;
            Ok(Phase::Allowed { decision, end, claim })
        }
        (Status::Denied, Some(Decision::Deny), Some(end)) if end.reason == TerminalReason::StorageCorrupt => {
            Ok(Phase::Denied(end))
        }
        (Status::Denied, Some(Decision::Deny), Some(end)) => {
            answered(Decision::Deny, &end, votes, expires_at)?;
            Ok(Phase::Denied(end))
        }
        (Status::Expired, Some(Decision::Deny), Some(end))
            if end.reason == TerminalReason::Timeout && expires_at.reached_at(end.at) =>
        {
            Ok(Phase::Expired(end))
        }
        (Status::Cancelled, Some(Decision::Deny), Some(end)) if is_cancellation(end.reason) => {
            Ok(Phase::Cancelled(end))
        }
        (status, decision, _) => {
            let decision = decision.map_or("none", Decision::as_str);
            let reason = reason.map_or("none", TerminalReason::as_str);
            Err(format!("it is {} with decision {decision} and reason {reason}", status.as_str()))
        }
    }
}

fn is_cancellation(reason: TerminalReason) -> bool {
    matches!(reason, TerminalReason::GatewayRestart | TerminalReason::CallerLost | TerminalReason::Withdrawn)
}

fn end(columns: &mut Columns<'_, '_>, created_at: Time) -> Result<Option<End>, Why> {
    let reason = columns
        .named_optional(|name| TerminalReason::ALL.into_iter().find(|reason| reason.as_str() == name))?;
    let at = columns.time_optional()?;
    let by = (columns.parse_optional()?, columns.named_optional(PrincipalKind::from_name)?, columns.next()?);
    match (at, by, reason) {
        (Some(at), (Some(id), Some(kind), Some(label)), Some(reason)) if at >= created_at => {
            Ok(Some(End { at, by: Actor { id, kind, label }, reason }))
        }
        (None, (None, None, None), None) => Ok(None),
        _ => Err("its end is half written, or before its beginning".to_owned()),
    }
}

/// A person's answer is one of the votes, given in time by somebody who is no agent.
fn answered(decision: Decision, end: &End, votes: &[Vote], expires_at: Time) -> Result<(), Why> {
    if end.reason != TerminalReason::User {
        return Err(format!("it was answered with reason {}", end.reason.as_str()));
    }
    if end.by.kind != PrincipalKind::Administrator {
        return Err(format!("it was answered by an identity of kind {}", end.by.kind.as_str()));
    }
    if expires_at.reached_at(end.at) {
        return Err("it was answered after its deadline".to_owned());
    }
    let is_voted =
        votes.iter().any(|vote| vote.decision == decision && vote.voter == end.by && vote.at == end.at);
    if is_voted { Ok(()) } else { Err("no vote stands behind its answer".to_owned()) }
}

fn claim(columns: &mut Columns<'_, '_>) -> Result<Option<Claim>, Why> {
    let (id, at, fence) = (columns.parse_optional()?, columns.time_optional()?, columns.count_optional()?);
    let outcome = columns.named_optional(|name| Outcome::ALL.into_iter().find(|o| o.as_str() == name))?;
    let (detail, settled_at) = (columns.next()?, columns.time_optional()?);
    let receipt = match (outcome, settled_at, detail) {
        (Some(outcome), Some(at), detail) => Some(Receipt { outcome, at, detail }),
        (None, None, None) => None,
        _ => return Err("its receipt is half written".to_owned()),
    };
    match (id, at) {
        (Some(id), Some(at)) => Ok(Some(Claim { id, at, fence: fence.map(Fence), receipt })),
        (None, None) if fence.is_none() && receipt.is_none() => Ok(None),
        _ => Err("its claim is half written".to_owned()),
    }
}

fn claimed(claim: &Claim, end: &End, binding: &Binding) -> Result<(), Why> {
    if claim.at < end.at || claim.receipt.as_ref().is_some_and(|receipt| receipt.at < claim.at) {
        return Err("its claim or receipt came before what it follows from".to_owned());
    }
    if matches!(binding, Binding::Checkpoint(_)) && claim.fence.is_none() {
        return Err("a stored run's claim has no fence".to_owned());
    }
    Ok(())
}
