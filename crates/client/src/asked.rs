//! The durable id of a request, worked out here from what is asked: an answer about another id is no answer.

use holdgate_core::{Action, Canonical, Kind};
use holdgate_wire::CreateApproval;

/// The id of `request` from `place`, its run or its epoch. `None` when the authority is to choose the boundary, or
/// will refuse the request.
pub(crate) fn id_of(request: &CreateApproval, place: &str) -> Option<String> {
    let kind: Kind = request.kind.parse().ok()?;
    let source = request.source.as_ref();
    let of_a_call = || {
        let (task, call) = (source?.task_id.as_ref()?, source?.tool_call_id.as_ref()?);
        (kind == Kind::Tool).then(|| format!("{task}:{call}"))
    };
    let boundary = request.boundary.clone().or_else(of_a_call)?;
    let content = Canonical::parse(request.content.get()).ok()?;
    Some(Action::freeze(kind, &boundary, content).ok()?.id(place).to_string())
}
