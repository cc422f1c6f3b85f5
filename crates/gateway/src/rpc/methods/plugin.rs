//! `plugin.approval.request`: an action of a plugin in somebody else's host.

use holdgate_authority::Protocol;
use holdgate_core::audience::{agent_of, session_key};
use holdgate_core::presentation::{masked, multiline};
use holdgate_core::requirement::Decision;
use holdgate_wire::approval::Source;
use holdgate_wire::{CreateApproval, RequirementRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Call;
use super::exec::{Phases, SCOPE, ask, check_size, given, reviewers, safe_texts};
use crate::rpc::frame::Failure;
use crate::rpc::params::{Field, Kind, Words, read};
use crate::rpc::projection::{DESCRIPTION, DETAIL, TITLE};

/// How long a request waits that does not say, in milliseconds.
const TIMEOUT_MS: i64 = 120_000;
const ANY: usize = usize::MAX;

const FIELDS: &[Field] = &[
    Field::nullable("pluginId", Kind::Text(1, ANY)),
    Field::required("title", Kind::Text(1, TITLE)),
    Field::required("description", Kind::Text(1, DESCRIPTION)),
    Field::nullable("detail", Kind::Text(1, DETAIL)),
    Field::nullable("severity", Kind::Choice(&["info", "warning", "critical"])),
    Field::nullable("scope", SCOPE),
    Field::nullable("toolName", Kind::Text(0, ANY)),
    Field::nullable("toolCallId", Kind::Text(0, ANY)),
    Field::optional(
        "mcpTool",
        Kind::Object(&[
            Field::required("server", Kind::Text(1, ANY)),
            Field::required("tool", Kind::Text(1, ANY)),
        ]),
    ),
    Field::nullable("allowedDecisions", Kind::Choices(&["allow-once", "allow-always", "deny"], 1, 3)),
    Field::nullable("agentId", Kind::Text(0, ANY)),
    Field::nullable("sessionKey", Kind::Text(0, ANY)),
    Field::nullable("approvalReviewerDeviceIds", Kind::Texts(0, holdgate_core::limits::REVIEWERS)),
    Field::nullable("turnSourceChannel", Kind::Text(0, ANY)),
    Field::nullable("turnSourceTo", Kind::Text(0, ANY)),
    Field::nullable("turnSourceAccountId", Kind::Text(0, ANY)),
    Field::nullable("turnSourceThreadId", Kind::Loose),
    Field::optional("timeoutMs", Kind::Integer(1, 600_000)),
    Field::optional("twoPhase", Kind::Bool),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    plugin_id: Option<String>,
    title: String,
    description: String,
    detail: Option<String>,
    severity: Option<String>,
    scope: Option<Value>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
    mcp_tool: Option<Value>,
    allowed_decisions: Option<Vec<Decision>>,
    agent_id: Option<String>,
    session_key: Option<String>,
    approval_reviewer_device_ids: Option<Vec<String>>,
    turn_source_channel: Option<String>,
    turn_source_to: Option<String>,
    turn_source_account_id: Option<String>,
    turn_source_thread_id: Option<Value>,
    timeout_ms: Option<i64>,
    two_phase: Option<bool>,
}

/// Asks for permission for a plugin. Answers twice: that it was accepted, and how it ended.
pub(super) async fn request(call: &Call<'_>) -> Option<Result<Value, Failure>> {
    let prepared = read::<Asked>("plugin.approval.request", call.params().as_deref(), FIELDS, Words::Full)
        .and_then(|asked| prepare(call, asked));
    match prepared {
        Ok((create, protocol, phases)) => ask(call, create, protocol, phases).await,
        Err(failure) => Some(Err(failure)),
    }
}

fn prepare(call: &Call<'_>, asked: Asked) -> Result<(CreateApproval, Protocol, Phases), Failure> {
    check_size(call, 0)?;
    let (title, description) = (masked(&asked.title), multiline(&asked.description));
    let detail = asked.detail.as_deref().map(multiline);
    if title.chars().count() > TITLE || description.chars().count() > DESCRIPTION {
        return Err(Failure::invalid(
            "approval title or description exceeds the display limit after sanitization",
        ));
    }
    if detail.as_ref().is_some_and(|detail| detail.chars().count() > DETAIL) {
        return Err(Failure::invalid("approval detail exceeds the display limit after sanitization"));
    }
    let key = asked.session_key.as_deref().and_then(|key| session_key(key, None));
    let agent = given(&asked.agent_id).or_else(|| Some(agent_of(&key?)?.to_owned()));
    let id = format!("plugin:{}", holdgate_store::mint::uuid());
    let create = CreateApproval {
        kind: "plugin".to_owned(),
        scope: None,
        boundary: Some(id.clone()),
        content: content(&asked)?,
        reason: None,
        timeout_ms: Some(asked.timeout_ms.unwrap_or(TIMEOUT_MS)),
        epoch: None,
        run: None,
        source: Some(Source {
            agent: agent.clone(),
            session: given(&asked.session_key),
            tool_call_id: given(&asked.tool_call_id),
            tool_name: given(&asked.tool_name),
            ..Source::default()
        }),
        requirement: Some(RequirementRequest {
            allowed_decisions: Some(
                asked.allowed_decisions.clone().unwrap_or_else(|| Decision::ALL.to_vec()),
            ),
            reviewers: reviewers(call, asked.approval_reviewer_device_ids.as_deref()),
            ..RequirementRequest::default()
        }),
    };
    let safe = |text: &Option<String>| text.as_deref().map(masked);
    let view = json!({
        "title": title,
        "description": description,
        "detail": detail,
        "severity": asked.severity.as_deref().unwrap_or("warning"),
        "pluginId": safe(&asked.plugin_id),
        "toolName": safe(&asked.tool_name),
        "toolCallId": safe(&asked.tool_call_id),
        "mcpTool": asked.mcp_tool.as_ref().map(safe_texts),
        "scope": asked.scope.as_ref().map(safe_texts),
        "agentId": agent.as_deref().map(masked),
        "turnSourceChannel": safe(&asked.turn_source_channel),
        "turnSourceTo": safe(&asked.turn_source_to),
        "turnSourceAccountId": safe(&asked.turn_source_account_id),
        "turnSourceThreadId": asked.turn_source_thread_id.as_ref().map(safe_texts),
    });
    let protocol = Protocol {
        id: id.parse().ok(),
        client: Some(call.session.client_id.clone()),
        v4_request: Some(view.to_string()),
        keeps_grants: true,
    };
    Ok((create, protocol, Phases { two: asked.two_phase.unwrap_or_default(), needs_route: true }))
}

/// What would be done, as far as the host says.
fn content(asked: &Asked) -> Result<Box<serde_json::value::RawValue>, Failure> {
    let mut content = Map::new();
    let texts = [
        ("title", Some(&asked.title)),
        ("description", Some(&asked.description)),
        ("detail", asked.detail.as_ref()),
        ("pluginId", asked.plugin_id.as_ref()),
        ("toolName", asked.tool_name.as_ref()),
        ("severity", asked.severity.as_ref()),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            content.insert(key.to_owned(), value.as_str().into());
        }
    }
    for (key, value) in [("scope", &asked.scope), ("mcpTool", &asked.mcp_tool)] {
        if let Some(value) = value {
            content.insert(key.to_owned(), value.clone());
        }
    }
    let text = Value::Object(content).to_string();
    serde_json::value::RawValue::from_string(text).map_err(|error| Failure::invalid(error.to_string()))
}
