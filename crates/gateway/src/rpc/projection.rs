//! What clients of the protocol are shown of a record: closed shapes, sanitised, in their vocabulary.
//!
//! Owns the way from a record to those shapes. What came over the protocol is shown as it was asked (sanitised when it
//! was stored); everything else is told whole in the nearest shape, or cannot be allowed from here.

use holdgate_core::approval::{Status, TerminalReason};
use holdgate_core::presentation::masked;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Actor, Approval, Kind};
use holdgate_wire::Links;
use serde_json::{Map, Value, json};

/// Longest title, description and detail of a plugin's presentation, in code points.
const TITLE: usize = 80;
const DESCRIPTION: usize = 512;
const DETAIL: usize = 16_384;

/// Which of the two families a kind belongs to. Kinds that the protocol does not know are plugins to it.
pub(crate) fn family(kind: Kind) -> &'static str {
    if kind == Kind::Exec { "exec" } else { "plugin" }
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
        _ => json!({ "kind": kind, "id": masked(&by.label) }),
    }
}

/// The answers that a client of the protocol is offered. An action that its shapes cannot hold whole can only be
/// denied from there; the page shows it whole.
pub(crate) fn offered(approval: &Approval) -> Vec<Decision> {
    let is_whole = approval.v4_request.is_some() || told(approval).is_some();
    let offered = approval.requirement.allowed_decisions.iter().copied();
    offered.filter(|decision| is_whole || *decision == Decision::Deny).collect()
}

fn names(decisions: &[Decision]) -> Value {
    decisions.iter().map(|decision| decision.as_str()).collect::<Vec<_>>().into()
}

/// What is shown of the action.
pub(crate) fn presentation(approval: &Approval) -> Value {
    let request = request(approval);
    let decisions = names(&offered(approval));
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
    let came = approval.v4_request.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut request = came.unwrap_or_else(|| {
        let agent = approval.source.agent.as_deref().map(masked);
        let run = approval.source.run_id.as_deref().map(masked);
        if approval.kind == Kind::Exec {
            exec_request(approval, agent, run)
        } else {
            plugin_request(approval, agent, run)
        }
    });
    request["allowedDecisions"] = names(&offered(approval));
    // Reviewers are shown labels, not the keys that route events.
    request["sessionKey"] = Value::Null;
    request
}

fn exec_request(approval: &Approval, agent: Option<String>, run: Option<String>) -> Value {
    let shown = &approval.presentation;
    let facts = shown.facts.iter().filter(|fact| fact.label != "Command");
    let told: Vec<String> = shown
        .flags
        .iter()
        .cloned()
        .chain(facts.map(|fact| format!("{}: {}", fact.label, fact.text)))
        .collect();
    let warning = if told.is_empty() { Value::Null } else { told.join("\n").into() };
    json!({
        "command": shown.command_text.as_deref().unwrap_or(&shown.headline),
        "cwd": null, "host": null, "nodeId": null, "warningText": warning, "scope": null,
        "agentId": agent, "sessionKey": null, "runId": run, "toolCallId": null,
    })
}

fn plugin_request(approval: &Approval, agent: Option<String>, run: Option<String>) -> Value {
    let shown = &approval.presentation;
    let title =
        within(&shown.headline, TITLE).unwrap_or_else(|| format!("{} to review", title(approval.kind)));
    let whole = told(approval);
    let description = match (&whole, within(&shown.headline, DESCRIPTION)) {
        (None, _) => {
            "It is too long to be shown here. Open its page to see it whole and to allow it.".to_owned()
        }
        (Some(_), Some(headline)) => headline,
        (Some(_), None) => "The whole action is in the detail.".to_owned(),
    };
    json!({
        "title": title, "description": description, "detail": whole.filter(|detail| !detail.is_empty()),
        "severity": if shown.flags.is_empty() { "info" } else { "warning" },
        "pluginId": null, "toolName": shown.tool_name, "toolCallId": approval.source.tool_call_id.as_deref().map(masked),
        "agentId": agent, "sessionKey": null, "runId": run,
    })
}

/// The whole action as text, if the protocol's shapes can hold it.
fn told(approval: &Approval) -> Option<String> {
    let shown = &approval.presentation;
    let facts = shown.facts.iter().map(|fact| format!("{}: {}", fact.label, fact.text));
    let lines: Vec<String> = shown.flags.iter().cloned().chain(facts).collect();
    let text = lines.join("\n");
    // A command's facts go into a field without a bound of its own.
    if approval.kind == Kind::Exec { Some(text) } else { within(&text, DETAIL) }
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
