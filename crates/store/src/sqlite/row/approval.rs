//! An approval's row, checked whole: the tuple of its answer, the votes behind it, and that its content is what
//! its digest and id were made from.

use holdgate_core::action::{Action, Digest, Kind};
use holdgate_core::approval::{
    Binding, Claim, End, Outcome, Receipt, Revocation, Source, Status, TerminalReason, Use, Vote,
};
use holdgate_core::limits::{AUDIENCE, QUORUM, V4_REQUEST_BYTES};
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
            let voter = columns.actor()?;
            Ok(Vote { decision, voter, at: columns.time()?, reason: columns.next()? })
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
    let reference: String = columns.next()?;
    let kind: Kind = columns.parse()?;
    let boundary: String = columns.next()?;
    let digest: Digest = columns.parse()?;
    let content: Option<String> = columns.next()?;
    let stored: Presentation = columns.json()?;
    let reason = columns.next()?;
    let source = source(&mut columns)?;
    let requester = columns.actor()?;
    let client = columns.next()?;
    let audience: Vec<String> = columns.json()?;
    if audience.len() > AUDIENCE {
        return Err(format!("its audience has {} sessions", audience.len()));
    }
    let v4_request = v4_request(&mut columns)?;
    let binding = match (columns.parse_optional()?, columns.parse_optional()?) {
        (Some(epoch), None) => Binding::Runtime(epoch),
        (None, Some(run)) => Binding::Checkpoint(run),
        (Some(_), Some(_)) | (None, None) => {
            return Err("it is not bound to exactly one epoch or run".to_owned());
        }
    };
    let requirement = requirement(&mut columns)?;
    let (created_at, expires_at) = (columns.time()?, columns.time()?);
    let content = frozen(&id, kind, &boundary, digest, content, &binding)?;
    // What a stored run will run is there to be shown; what was written down about it need not be believed.
    let presentation = match &content {
        Some(content) => present(kind, &content.to_value()).map_err(|e| e.to_string())?,
        None => stored,
    };
    let around =
        Around { binding: &binding, requirement: &requirement, votes: &votes, created_at, expires_at };
    let phase = phase(&mut columns, &around)?;
    let approval = Approval {
        id,
        kind,
        boundary,
        digest,
        content,
        presentation,
        reason,
        source,
        requester,
        client,
        audience,
        v4_request,
        binding,
        requirement,
        created_at,
        expires_at,
        votes,
        phase,
    };
    if approval.reference() == reference {
        Ok(approval)
    } else {
        Err("its reference is another's".to_owned())
    }
}

fn source(columns: &mut Columns<'_, '_>) -> Result<Source, Why> {
    Ok(Source {
        agent: columns.next()?,
        session: columns.next()?,
        session_id: columns.next()?,
        run_id: columns.next()?,
        task_id: columns.next()?,
        tool_call_id: columns.next()?,
        tool_name: columns.next()?,
    })
}

fn v4_request(columns: &mut Columns<'_, '_>) -> Result<Option<String>, Why> {
    let text: Option<String> = columns.next()?;
    if let Some(text) = &text {
        if text.len() > V4_REQUEST_BYTES {
            return Err(format!("its request for the WebSocket protocol has {} bytes", text.len()));
        }
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|e| format!("its request for the WebSocket protocol: {e}"))?;
    }
    Ok(text)
}

fn requirement(columns: &mut Columns<'_, '_>) -> Result<Requirement, Why> {
    let requirement: Requirement = columns.json()?;
    let people = 1..=QUORUM;
    if !people.contains(&requirement.approvals) || !people.contains(&requirement.denials) {
        return Err("its requirement is a number of people that nobody gathers".to_owned());
    }
    if !requirement.allowed_decisions.contains(&Decision::Deny) {
        return Err("its requirement offers no deny".to_owned());
    }
    Ok(requirement)
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

/// What a phase must agree with.
struct Around<'a> {
    binding: &'a Binding,
    requirement: &'a Requirement,
    votes: &'a [Vote],
    created_at: Time,
    expires_at: Time,
}

fn phase(columns: &mut Columns<'_, '_>, around: &Around<'_>) -> Result<Phase, Why> {
    let status = columns.named(Status::from_name)?;
    let decision = columns.named_optional(Decision::from_name)?;
    let end = end(columns, around.created_at)?;
    let (claim, revocation) = (claim(columns)?, revocation(columns)?);
    if status != Status::Allowed && (claim.is_some() || revocation.is_some()) {
        return Err(format!("it is {} and claimed or revoked", status.as_str()));
    }
    match (status, decision, end) {
        (Status::Pending, None, None) => Ok(Phase::Pending),
        (Status::Allowed, Some(decision), Some(end)) if decision.is_allow() => {
            allowed(decision, &end, around)?;
            let spent = spent(claim, revocation, &end, around.binding)?;
            Ok(Phase::Allowed { decision, end, spent })
        }
        (Status::Denied, Some(Decision::Deny), Some(end)) => {
            denied(&end, around)?;
            Ok(Phase::Denied(end))
        }
        (Status::Expired, Some(Decision::Deny), Some(end))
            if end.reason == TerminalReason::Timeout
                && end.by.is_authority()
                && around.expires_at.reached_at(end.at) =>
        {
            Ok(Phase::Expired(end))
        }
        (Status::Cancelled, Some(Decision::Deny), Some(end)) if is_cancellation(&end) => {
            Ok(Phase::Cancelled(end))
        }
        (status, decision, end) => {
            let decision = decision.map_or("none", Decision::as_str);
            let reason = end.map_or("none", |end| end.reason.as_str());
            Err(format!("it is {} with decision {decision} and reason {reason}", status.as_str()))
        }
    }
}

fn is_cancellation(end: &End) -> bool {
    match end.reason {
        TerminalReason::GatewayRestart | TerminalReason::CallerLost => end.by.is_authority(),
        TerminalReason::RunAborted | TerminalReason::Withdrawn => true,
        TerminalReason::User
        | TerminalReason::MalformedVerdict
        | TerminalReason::NoRoute
        | TerminalReason::Timeout
        | TerminalReason::StorageCorrupt => false,
    }
}

fn end(columns: &mut Columns<'_, '_>, created_at: Time) -> Result<Option<End>, Why> {
    let reason = columns
        .named_optional(|name| TerminalReason::ALL.into_iter().find(|reason| reason.as_str() == name))?;
    match (columns.time_optional()?, columns.actor_optional()?, reason) {
        (Some(at), Some(by), Some(reason)) if at >= created_at => Ok(Some(End { at, by, reason })),
        (None, None, None) => Ok(None),
        _ => Err("its end is half written, or before its beginning".to_owned()),
    }
}

/// An allow is what enough voices gave, all of it offered; if one of them gave it for once, it is for once.
fn allowed(decision: Decision, end: &End, around: &Around<'_>) -> Result<(), Why> {
    if !around.requirement.allowed_decisions.contains(&decision) {
        return Err(format!("it was answered {}, which it does not offer", decision.as_str()));
    }
    answered(end, around, Decision::is_allow, around.requirement.approvals)?;
    let once = around.votes.iter().any(|vote| vote.decision == Decision::AllowOnce);
    if once == (decision == Decision::AllowOnce) {
        Ok(())
    } else {
        Err("its answer is not what its votes add up to".to_owned())
    }
}

fn denied(end: &End, around: &Around<'_>) -> Result<(), Why> {
    let in_time = !around.expires_at.reached_at(end.at);
    match (end.reason, end.by.kind) {
        (TerminalReason::User, _) => {
            answered(end, around, |decision| decision == Decision::Deny, around.requirement.denials)
        }
        (TerminalReason::MalformedVerdict, PrincipalKind::Runtime | PrincipalKind::Authority) if in_time => {
            Ok(())
        }
        (TerminalReason::NoRoute, PrincipalKind::Authority) if in_time => Ok(()),
        (TerminalReason::StorageCorrupt, PrincipalKind::Authority) => Ok(()),
        (reason, kind) => {
            Err(format!("it was denied by one of kind {}, because of {}", kind.as_str(), reason.as_str()))
        }
    }
}

/// An answer is the last of enough distinct voices, given in time, by somebody who is no agent.
fn answered(end: &End, around: &Around<'_>, counts: fn(Decision) -> bool, needed: u32) -> Result<(), Why> {
    if end.reason != TerminalReason::User {
        return Err(format!("it was answered with reason {}", end.reason.as_str()));
    }
    if matches!(end.by.kind, PrincipalKind::Agent | PrincipalKind::Authority) {
        return Err(format!("it was answered by an identity of kind {}", end.by.kind.as_str()));
    }
    if around.expires_at.reached_at(end.at) {
        return Err("it was answered after its deadline".to_owned());
    }
    let mut voices: Vec<&Vote> = Vec::new();
    for vote in around.votes.iter().filter(|vote| counts(vote.decision)) {
        if !voices.iter().any(|counted| counted.voter.is_same_voice(&vote.voter)) {
            voices.push(vote);
        }
    }
    if voices.len() < needed as usize {
        return Err(format!("{} of {needed} votes stand behind its answer", voices.len()));
    }
    if voices.iter().any(|vote| vote.voter == end.by && vote.at == end.at) {
        Ok(())
    } else {
        Err("no vote of who answered stands behind its answer".to_owned())
    }
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

fn revocation(columns: &mut Columns<'_, '_>) -> Result<Option<Revocation>, Why> {
    match (columns.time_optional()?, columns.actor_optional()?, columns.next()?) {
        (Some(at), Some(by), reason) => Ok(Some(Revocation { at, by, reason })),
        (None, None, None) => Ok(None),
        _ => Err("its revocation is half written".to_owned()),
    }
}

/// What became of an allow: one thing at most, and not before it was given.
fn spent(
    claim: Option<Claim>,
    revocation: Option<Revocation>,
    end: &End,
    binding: &Binding,
) -> Result<Use, Why> {
    match (claim, revocation) {
        (None, None) => Ok(Use::Open),
        (Some(claim), None) => {
            if claim.at < end.at || claim.receipt.as_ref().is_some_and(|receipt| receipt.at < claim.at) {
                return Err("its claim or receipt came before what it follows from".to_owned());
            }
            if matches!(binding, Binding::Checkpoint(_)) && claim.fence.is_none_or(|fence| fence.0 == 0) {
                return Err("a stored run's claim has no fence".to_owned());
            }
            Ok(Use::Claimed(claim))
        }
        (None, Some(revocation)) if revocation.at >= end.at => Ok(Use::Revoked(revocation)),
        (None, Some(_)) => Err("it was revoked before it was allowed".to_owned()),
        (Some(_), Some(_)) => Err("it is claimed and revoked".to_owned()),
    }
}
