//! What clients of the protocol are shown of a record: closed shapes, sanitised, in their vocabulary.
//!
//! Owns the way from a record to those shapes. What came over the protocol is shown as it was asked (sanitised when it
//! was stored); everything else is told whole in the nearest shape, or cannot be allowed from here.

use holdgate_core::approval::{Status, TerminalReason};
use holdgate_core::presentation::masked;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Actor, Approval, Kind};
use holdgate_store::Kinds;
use holdgate_wire::Links;
use serde_json::{Map, Value, json};

/// Longest title, description and detail of a plugin's presentation, in code points.
pub(crate) const TITLE: usize = 80;
pub(crate) const DESCRIPTION: usize = 512;
pub(crate) const DETAIL: usize = 16_384;

/// Which of the two families a kind belongs to. Kinds that the protocol does not know are plugins to it.
pub(crate) fn family(kind: Kind) -> &'static str {
    if kind == Kind::Exec { "exec" } else { "plugin" }
}

/// The kinds that belong to a family.
pub(crate) fn kinds_of(family: &str) -> Kinds {
    if family == "exec" { Kinds::Only(Kind::Exec) } else { Kinds::Except(Kind::Exec) }
}

/// What a reader may be shown of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All that reviewers see, and where it came from and who ended it.
    Whole,
    /// The same without source and resolver: what a session's stream carries.
    Stream,
    /// Only how it stands: for who may answer it without reading it.
    Standing,
}

/// A record as a snapshot.
pub(crate) fn snapshot(approval: &Approval, links: &Links, shown: Shown) -> Value {
    let presentation = if shown == Shown::Standing { standing(approval) } else { presentation(approval) };
    let mut snapshot = json!({
        "id": approval.id.as_str(),
        "status": approval.status().as_str(),
        "presentation": presentation,
        "urlPath": links.path(approval.id.as_str()),
        "createdAtMs": approval.created_at.as_ms(),
        "expiresAtMs": approval.expires_at.as_ms(),
    });
    let Some(end) = approval.end() else {
        return snapshot;
    };
    snapshot["resolvedAtMs"] = end.at.as_ms().into();
    snapshot["reason"] = reason(end.reason).into();
    if let (Status::Allowed | Status::Denied, Some(decision)) = (approval.status(), approval.decision()) {
        snapshot["decision"] = decision.as_str().into();
    }
    if shown == Shown::Whole {
        if let Some(agent) = &approval.source.agent {
            snapshot["source"] = json!({ "agentId": masked(agent) });
        }
        snapshot["resolver"] = resolver(&end.by, end.reason);
    }
    snapshot
}

/// What is told of a record that does not decode.
pub(crate) fn corrupt(id: &str, links: &Links) -> Value {
    json!({
        "id": id,
        "status": "denied",
        "presentation": {
            "kind": "plugin",
            "title": "This record cannot be read",
            "description": "Its stored row is damaged. It counts as denied.",
            "severity": "critical",
            "allowedDecisions": ["deny"],
        },
        "urlPath": links.path(id),
        "createdAtMs": 0,
        "expiresAtMs": 0,
        "resolvedAtMs": 0,
        "reason": TerminalReason::StorageCorrupt.as_str(),
        "decision": "deny",
        "resolver": { "kind": "system" },
    })
}

/// Why it ended, in the protocol's closed vocabulary.
pub(crate) fn reason(reason: TerminalReason) -> &'static str {
    match reason {
        TerminalReason::CallerLost | TerminalReason::Withdrawn => TerminalReason::RunAborted.as_str(),
        other => other.as_str(),
    }
}

/// Who ended it: by label. Ids of devices and people stay with the authority.
fn resolver(by: &Actor, reason: TerminalReason) -> Value {
    let kind = match by.kind {
        PrincipalKind::Administrator | PrincipalKind::Device => "device",
        PrincipalKind::Agent | PrincipalKind::Runtime => "runtime",
        PrincipalKind::Authority => "system",
    };
    match by.kind {
        PrincipalKind::Authority if reason == TerminalReason::NoRoute => {
            json!({ "kind": kind, "id": "no-approval-route" })
        }
        PrincipalKind::Authority => json!({ "kind": kind }),
        _ => json!({ "kind": kind, "id": by.name() }),
    }
}

/// The answers that a client of the protocol is offered. An action that its shapes cannot hold whole can only be
/// denied from there; the page shows it whole.
pub(crate) fn offered(approval: &Approval) -> Vec<Decision> {
    decisions(approval, shape(approval).is_whole)
}

fn decisions(approval: &Approval, is_whole: bool) -> Vec<Decision> {
    let allowed = approval.requirement.allowed_decisions.iter().copied();
    allowed.filter(|decision| is_whole || *decision == Decision::Deny).collect()
}

fn names(decisions: &[Decision]) -> Value {
    decisions.iter().map(|decision| decision.as_str()).collect::<Vec<_>>().into()
}

/// What is shown of the action.
pub(crate) fn presentation(approval: &Approval) -> Value {
    let request = request(approval);
    let decisions = request["allowedDecisions"].clone();
    if approval.kind == Kind::Exec {
        let mut shown = json!({
            "kind": "exec",
            "commandText": request["command"],
            "commandPreview": request.get("commandPreview").cloned().unwrap_or_default(),
            "warningText": request["warningText"],
            "host": request["host"],
            "nodeId": request["nodeId"],
            "agentId": request["agentId"],
            "allowedDecisions": decisions,
        });
        if request["scope"].is_object() {
            shown["scope"] = request["scope"].clone();
        }
        return shown;
    }
    let mut shown = Map::new();
    shown.insert("kind".to_owned(), "plugin".into());
    for key in ["title", "description", "detail", "severity", "pluginId", "toolName", "agentId", "scope"] {
        // A plugin's presentation leaves out what is not there.
        if let Some(value) = request.get(key).filter(|value| !value.is_null()) {
            shown.insert(key.to_owned(), value.clone());
        }
    }
    shown.insert("allowedDecisions".to_owned(), decisions);
    Value::Object(shown)
}

/// What who may not read a record is shown in its place.
fn standing(approval: &Approval) -> Value {
    let decisions = names(&offered(approval));
    let hidden = "not shown to this credential";
    if approval.kind == Kind::Exec {
        json!({ "kind": "exec", "commandText": hidden, "allowedDecisions": decisions })
    } else {
        let (title, description) = ("An action", hidden);
        json!({ "kind": "plugin", "title": title, "description": description, "severity": "warning",
            "allowedDecisions": decisions })
    }
}

/// The request as clients of the protocol are shown it: as it came that way, or as the protocol would say it.
pub(crate) fn request(approval: &Approval) -> Value {
    let Shape { mut request, is_whole } = shape(approval);
    request["allowedDecisions"] = names(&decisions(approval, is_whole));
    // Reviewers are shown labels, not the keys that route events.
    request["sessionKey"] = Value::Null;
    request
}

/// A request in the protocol's shape, and whether that holds the whole action.
struct Shape {
    request: Value,
    is_whole: bool,
}

fn shape(approval: &Approval) -> Shape {
    let came = approval.v4_request.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    match (approval.kind, came) {
        (Kind::Exec, Some(came)) => came_exec(approval, came),
        (_, Some(came)) => came_plugin(approval, came),
        (Kind::Exec, None) => exec(approval),
        (_, None) => plugin(approval),
    }
}

/// What reviewers must know that stands in no field of its own: what is odd about the action, and the facts that
/// `is_shown` does not find elsewhere, a line each.
fn beside(approval: &Approval, is_shown: impl Fn(&str) -> bool) -> Vec<String> {
    let shown = &approval.presentation;
    let facts = shown.facts.iter().filter(|fact| !is_shown(&fact.label));
    shown.flags.iter().cloned().chain(facts.map(|fact| format!("{}: {}", fact.label, fact.text))).collect()
}

/// A command as it was asked for over the protocol. Our own lines come first; below them the requester's words stand
/// as such, so that it cannot speak in our name.
fn came_exec(approval: &Approval, mut request: Value) -> Shape {
    let mut warning = beside(approval, |label| {
        let is_argument = label.strip_prefix("Argument ").is_some_and(|n| n.parse::<u32>().is_ok());
        is_argument || matches!(label, "Command" | "command" | "host" | "nodeId")
    });
    warning.extend(asked_by(approval));
    warning.extend(said(&request["warningText"]));
    request["warningText"] = text(&warning);
    // A field without a bound of its own.
    Shape { request, is_whole: true }
}

/// A plugin's action as it was asked for over the protocol.
fn came_plugin(approval: &Approval, mut request: Value) -> Shape {
    let mut detail = beside(approval, |label| !is_in(label, "mcpTool"));
    detail.extend(asked_by(approval));
    detail.extend(said(&request["detail"]));
    let whole = within(&detail.join("\n"), DETAIL);
    let is_whole = whole.is_some();
    if is_whole {
        request["detail"] = text(&detail);
    } else {
        request["description"] = ELSEWHERE.into();
    }
    Shape { request, is_whole }
}

/// The requester's own words, marked as such.
fn said(words: &Value) -> Option<String> {
    words.as_str().map(|words| format!("The requester says: {words}"))
}

/// Who asked, where that is another name than the one that the request gives its agent.
fn asked_by(approval: &Approval) -> Option<String> {
    let claimed = approval.source.agent.as_deref()?;
    (claimed != approval.requester.label).then(|| format!("Asked by: {}", approval.requester.name()))
}

/// Whether a path into the content leads to the field of that name or into it.
fn is_in(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Said of what is too long for a shape.
const ELSEWHERE: &str = "It is too long to be shown here. Open its page to see it whole and to allow it.";

fn text(lines: &[String]) -> Value {
    if lines.is_empty() { Value::Null } else { lines.join("\n").into() }
}

fn exec(approval: &Approval) -> Shape {
    let shown = &approval.presentation;
    let request = json!({
        "command": shown.command_text.as_deref().unwrap_or(&shown.headline),
        "cwd": null, "host": null, "nodeId": null, "scope": null, "sessionKey": null, "toolCallId": null,
        "warningText": text(&beside(approval, |label| label == "Command")),
        "agentId": agent(approval), "runId": run(approval),
    });
    Shape { request, is_whole: true }
}

fn plugin(approval: &Approval) -> Shape {
    let shown = &approval.presentation;
    let title =
        within(&shown.headline, TITLE).unwrap_or_else(|| format!("{} to review", title(approval.kind)));
    let whole = within(&beside(approval, |_| false).join("\n"), DETAIL);
    let description = match (&whole, within(&shown.headline, DESCRIPTION)) {
        (None, _) => ELSEWHERE.to_owned(),
        (Some(_), Some(headline)) => headline,
        (Some(_), None) => "The whole action is in the detail.".to_owned(),
    };
    let is_whole = whole.is_some();
    let request = json!({
        "title": title, "description": description, "detail": whole.filter(|detail| !detail.is_empty()),
        "severity": if shown.flags.is_empty() { "info" } else { "warning" },
        "pluginId": null, "toolName": shown.tool_name, "toolCallId": approval.source.tool_call_id.as_deref().map(masked),
        "agentId": agent(approval), "sessionKey": null, "runId": run(approval),
    });
    Shape { request, is_whole }
}

fn agent(approval: &Approval) -> Option<String> {
    approval.source.agent.as_deref().map(masked)
}

fn run(approval: &Approval) -> Option<String> {
    approval.source.run_id.as_deref().map(masked)
}

fn within(text: &str, most: usize) -> Option<String> {
    (text.chars().count() <= most).then(|| text.to_owned())
}

fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Exec => "A command",
        Kind::Plugin => "A plugin's action",
        Kind::Tool => "A tool call",
        Kind::Dispatch => "A task",
        Kind::Round => "A round of tasks",
        Kind::Plan => "A plan",
    }
}
