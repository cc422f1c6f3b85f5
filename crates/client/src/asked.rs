//! The action that a request asks for, worked out here: an answer about another action is no answer.

use holdgate_core::{Action, Canonical, Kind};
use holdgate_wire::CreateApproval;

/// The action of `request`. `None` when the authority is to choose the boundary, or will refuse the request.
pub(crate) fn action_of(request: &CreateApproval) -> Option<Action> {
    let kind: Kind = request.kind.parse().ok()?;
    let source = request.source.as_ref();
    let of_a_call = || {
        let (task, call) = (source?.task_id.as_ref()?, source?.tool_call_id.as_ref()?);
        (kind == Kind::Tool).then(|| format!("{task}:{call}"))
    };
    let boundary = request.boundary.clone().or_else(of_a_call)?;
    let content = Canonical::parse(request.content.get()).ok()?;
    Action::freeze(kind, &boundary, content).ok()
}
