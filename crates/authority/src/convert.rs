//! From what callers send to what the domain takes. Everything is checked here, before any lock is taken.

use holdgate_core::approval::{Binding, Draft, Source, Status};
use holdgate_core::canonical::NotCanonical;
use holdgate_core::id::InvalidId;
use holdgate_core::limits::{
    CHECKPOINT_TIMEOUT_MS, NAME_CHARS, REASON_CHARS, RUNTIME_TIMEOUT_MS, TIMEOUT_MS, V4_REQUEST_BYTES,
};
use holdgate_core::presentation::{NotPresentable, present, without_secrets};
use holdgate_core::requirement::{Decision, Reviewer, ReviewerList, Tightening, Unsatisfiable};
use holdgate_core::{Action, ApprovalId, Canonical, Digest, EpochId, Fence, Kind, Principal, Time};
use holdgate_store::{Filter, HistoryFilter, mint};
use holdgate_wire::{Code, CreateApproval, ListApprovals, ListHistory, RequirementRequest};

use crate::Protocol;
use crate::error::Error;
use crate::policy::Policy;

/// A checked request, and the fence that came with it.
pub(crate) struct Prepared {
    pub(crate) draft: Draft,
    pub(crate) fence: Option<Fence>,
}

/// Checks a request for permission by `by`. `own_epoch` is what a caller without an epoch or run is bound to.
pub(crate) fn prepare(
    request: CreateApproval,
    protocol: Protocol,
    own_epoch: Option<&EpochId>,
    policy: &Policy,
    by: &Principal,
) -> Result<Prepared, Error> {
    let kind: Kind = at("kind", request.kind.parse())?;
    if let Some(scope) = request.scope.as_deref().filter(|scope| *scope != kind.scope()) {
        return Err(invalid(
            "scope",
            format!("{scope:?} does not go with kind {}; leave it out", kind.as_str()),
        ));
    }
    let source = request.source.unwrap_or_default();
    let (binding, fence) = match (request.run, request.epoch) {
        (Some(_), Some(_)) => return Err(invalid("epoch", "name an epoch or a run, not both")),
        (Some(run), None) => (Binding::Checkpoint(at("run.id", run.id.parse())?), Some(Fence(run.fence))),
        (None, Some(epoch)) => (Binding::Runtime(at("epoch", epoch.parse())?), None),
        (None, None) => match own_epoch {
            Some(epoch) => (Binding::Runtime(epoch.clone()), None),
            None => {
                return Err(invalid("epoch", "name an epoch or a run: no gateway keeps this request alive"));
            }
        },
    };
    let boundary = boundary(request.boundary, kind, &source, &binding)?;
    let content = Canonical::parse(request.content.get()).map_err(|e| not_canonical(&e))?;
    let presentation = present(kind, &content.to_value()).map_err(|e| not_presentable(&e))?;
    let action = Action::freeze(kind, &boundary, content).map_err(|e| match e {
        holdgate_core::action::NotFrozen::TooLarge { .. } => Error::new(Code::TooLarge, e.to_string()),
        holdgate_core::action::NotFrozen::Boundary(_) => invalid("boundary", e),
    })?;
    let timeout_ms = request.timeout_ms.unwrap_or(match binding {
        Binding::Runtime(_) => RUNTIME_TIMEOUT_MS,
        Binding::Checkpoint(_) => CHECKPOINT_TIMEOUT_MS,
    });
    if !TIMEOUT_MS.contains(&timeout_ms) {
        return Err(invalid(
            "timeoutMs",
            format!("{timeout_ms} is not between 1 and {} (30 days)", TIMEOUT_MS.end()),
        ));
    }
    let asked = tightening(request.requirement.unwrap_or_default(), protocol.keeps_grants)?;
    let unsupported = |why: Unsatisfiable| Error::new(Code::Unsupported, why.to_string());
    let draft = Draft {
        id: protocol.id,
        action,
        presentation,
        reason: text("reason", request.reason)?,
        source: checked_source(source)?,
        binding,
        requirement: policy.requirement(kind, by, asked).map_err(unsupported)?,
        timeout_ms,
        client: name("client", protocol.client)?,
        v4_request: v4_request(protocol.v4_request)?,
    };
    Ok(Prepared { draft, fence })
}

fn v4_request(request: Option<String>) -> Result<Option<String>, Error> {
    match request {
        Some(request) if request.len() > V4_REQUEST_BYTES => {
            Err(Error::new(Code::TooLarge, format!("the request is larger than {V4_REQUEST_BYTES} bytes")))
        }
        request => Ok(request),
    }
}

fn boundary(
    given: Option<String>,
    kind: Kind,
    source: &holdgate_wire::approval::Source,
    binding: &Binding,
) -> Result<String, Error> {
    match (given, binding, kind, &source.task_id, &source.tool_call_id) {
        (Some(boundary), ..) => Ok(boundary),
        (None, _, Kind::Tool, Some(task), Some(call)) => Ok(format!("{task}:{call}")),
        // A live process asks once per call; a stored run must find its request again.
        (None, Binding::Runtime(_), ..) => Ok(mint::name("call")),
        (None, Binding::Checkpoint(_), ..) => Err(invalid(
            "boundary",
            "a stored run names where it stopped, so that it finds this request again",
        )),
    }
}

/// What a requester asks to be required. Standing grants are offered only where the caller keeps them.
fn tightening(asked: RequirementRequest, keeps_grants: bool) -> Result<Tightening, Error> {
    let offered = asked.allowed_decisions;
    if !keeps_grants && offered.as_ref().is_some_and(|offered| offered.contains(&Decision::AllowAlways)) {
        return Err(Error::new(Code::Unsupported, Unsatisfiable::AllowAlways.to_string()));
    }
    let offered = if keeps_grants { offered } else { Some(offered.unwrap_or(vec![Decision::AllowOnce])) };
    Ok(Tightening {
        approvals: asked.approvals,
        denials: asked.denials,
        requester_may_decide: asked.requester_may_decide,
        reason_required: asked.reason_required,
        allowed_decisions: offered,
        reviewers: asked.reviewers.map(|names| reviewers("requirement.reviewers", &names)).transpose()?,
    })
}

/// A list of reviewers as a caller wrote it.
pub(crate) fn reviewers(field: &str, names: &[String]) -> Result<ReviewerList, Error> {
    let parsed: Result<Vec<Reviewer>, _> = names.iter().map(|name| name.parse()).collect();
    let list = ReviewerList::try_from(at(field, parsed)?);
    list.map_err(|why| Error::new(Code::Unsupported, why.to_string()))
}

fn checked_source(source: holdgate_wire::approval::Source) -> Result<Source, Error> {
    Ok(Source {
        agent: name("source.agent", source.agent)?,
        session: name("source.session", source.session)?,
        session_id: name("source.sessionId", source.session_id)?,
        run_id: name("source.runId", source.run_id)?,
        task_id: name("source.taskId", source.task_id)?,
        tool_call_id: name("source.toolCallId", source.tool_call_id)?,
        tool_name: name("source.toolName", source.tool_name)?,
    })
}

/// Checks which approvals to list.
pub(crate) fn filter(query: ListApprovals) -> Result<Filter, Error> {
    let limit = page_limit(query.limit)?;
    let status = query.status.map(|name| {
        Status::from_name(&name)
            .ok_or_else(|| invalid("status", "it is one of pending, allowed, denied, expired, cancelled"))
    });
    let kind = query.kind.map(|name| at("kind", name.parse()));
    Ok(Filter {
        status: status.transpose()?,
        kinds: kind.transpose()?.into(),
        agent: query.agent,
        requester: None,
        id_prefix: None,
        before: query.cursor.as_deref().map(read_cursor).transpose()?,
        limit,
    })
}

/// Checks which approvals that have ended to list.
pub(crate) fn history_filter(query: ListHistory) -> Result<HistoryFilter, Error> {
    Ok(HistoryFilter {
        kinds: query.kind.map(|name| at("kind", name.parse())).transpose()?.into(),
        requester: None,
        before: query.cursor.as_deref().map(read_cursor).transpose()?,
        limit: page_limit(query.limit)?,
    })
}

fn page_limit(limit: Option<u32>) -> Result<u32, Error> {
    match limit {
        Some(limit @ 1..=holdgate_core::limits::PAGE_ITEMS) => Ok(limit),
        None => Ok(holdgate_core::limits::PAGE_ITEMS_DEFAULT),
        Some(limit) => Err(invalid("limit", format!("{limit} is not between 1 and 100"))),
    }
}

/// Where the page after `last` begins.
pub(crate) fn cursor(created_at_ms: i64, id: &str) -> String {
    format!("{created_at_ms}.{id}")
}

fn read_cursor(cursor: &str) -> Result<(Time, ApprovalId), Error> {
    let parts = cursor.split_once('.').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    let (at, id) = parts.ok_or_else(|| invalid("cursor", "it is not the nextCursor of a page"))?;
    Ok((Time::from_ms(at), id))
}

/// An approval's id as a caller wrote it. What cannot be an id names nothing.
pub(crate) fn approval_id(text: &str) -> Result<ApprovalId, Error> {
    text.parse().map_err(|_| holdgate_wire::Problem::refused(&holdgate_core::Refusal::NotFound, None).into())
}

/// A digest as a caller wrote it.
pub(crate) fn digest(text: &str) -> Result<Digest, Error> {
    at("digest", text.parse())
}

/// A reason or detail within its bound, with the secrets in it masked: it is kept. An empty one is none.
pub(crate) fn text(field: &str, text: Option<String>) -> Result<Option<String>, Error> {
    match text {
        Some(text) if text.chars().count() > REASON_CHARS => {
            Err(invalid(field, format!("it is longer than {REASON_CHARS} characters")))
        }
        other => Ok(other.filter(|text| !text.trim().is_empty()).map(|text| without_secrets(&text))),
    }
}

/// A short name within its bound.
pub(crate) fn name(field: &str, name: Option<String>) -> Result<Option<String>, Error> {
    match name {
        Some(name) if name.chars().count() > NAME_CHARS => {
            Err(invalid(field, format!("it is longer than {NAME_CHARS} characters")))
        }
        other => Ok(other),
    }
}

/// An identifier, or an error that says which field.
pub(crate) fn at<T>(field: &str, parsed: Result<T, InvalidId>) -> Result<T, Error> {
    parsed.map_err(|e| invalid(field, e))
}

pub(crate) fn invalid(field: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidRequest, format!("{field}: {why}"))
}

fn not_canonical(error: &NotCanonical) -> Error {
    invalid("content", error)
}

fn not_presentable(error: &NotPresentable) -> Error {
    match error {
        NotPresentable::TooLong { .. } => Error::new(Code::TooLarge, error.to_string()),
        NotPresentable::Malformed { .. } => invalid("content", error),
    }
}
