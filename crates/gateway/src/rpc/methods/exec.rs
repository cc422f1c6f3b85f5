//! `exec.approval.request`: a command that somebody else's host would run.
//!
//! Owns how its parameters become a frozen action, and what of them is kept to be shown. Values of the environment go
//! into the digest and nowhere else.

use std::collections::BTreeMap;

use holdgate_authority::Protocol;
use holdgate_core::limits::V4_REQUEST_BYTES;
use holdgate_core::presentation::{COMMAND_DISPLAY_LIMIT, NotPresentable, masked, multiline, present};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Approval, Canonical, Command, Digest, Kind as ActionKind, Principal};
use holdgate_wire::approval::Source;
use holdgate_wire::{Code, CreateApproval, RequirementRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Call, failure, legacy};
use crate::rpc::frame::Failure;
use crate::rpc::params::{Field, Kind, Words, read};

/// How long a request waits that does not say, in milliseconds.
const TIMEOUT_MS: i64 = 1_800_000;
const ANY: usize = usize::MAX;
/// The longest command that is looked at to see how long it is when its secrets are hidden, in bytes.
const LONGEST_COMMAND: usize = 4 * COMMAND_DISPLAY_LIMIT;

/// What a request asks permission for besides the action itself.
pub(super) const SCOPE: Kind = Kind::Tagged(&[
    (
        "message-send",
        &[
            Field::required("kind", Kind::Text(1, 32)),
            Field::required("target", Kind::Text(1, 128)),
            Field::required("recipientCount", Kind::Integer(1, 1_000_000)),
            Field::optional("recipients", Kind::Texts(0, 5)),
            Field::optional("audience", Kind::Choice(&["internal", "external"])),
        ],
    ),
    (
        "payment",
        &[
            Field::required("kind", Kind::Text(1, 32)),
            Field::required("amount", Kind::Text(1, 40)),
            Field::required("currency", Kind::Text(1, 12)),
            Field::required("target", Kind::Text(1, 128)),
        ],
    ),
    (
        "external-post",
        &[
            Field::required("kind", Kind::Text(1, 32)),
            Field::required("target", Kind::Text(1, 128)),
            Field::required("visibility", Kind::Choice(&["public", "restricted"])),
        ],
    ),
    (
        "standing-grant",
        &[
            Field::required("kind", Kind::Text(1, 32)),
            Field::required("automation", Kind::Text(1, 128)),
            Field::required("command", Kind::Text(1, 256)),
            Field::optional("expiresInDays", Kind::Integer(1, 3_650)),
        ],
    ),
]);

const PLAN: &[Field] = &[
    Field::required("argv", Kind::Texts(0, 4_096)),
    // Required, and null where there is none.
    Field::nullable("cwd", Kind::Text(0, ANY)),
    Field::required("commandText", Kind::Text(0, ANY)),
    Field::nullable("commandPreview", Kind::Text(0, ANY)),
    Field::nullable("agentId", Kind::Text(0, ANY)),
    Field::nullable("sessionKey", Kind::Text(0, ANY)),
    Field::optional("policySnapshot", Kind::Any),
    Field::nullable(
        "mutableFileOperand",
        Kind::Object(&[
            Field::required("argvIndex", Kind::Integer(0, 4_096)),
            Field::required("path", Kind::Text(0, ANY)),
            Field::required("sha256", Kind::Text(0, ANY)),
        ]),
    ),
];

const FIELDS: &[Field] = &[
    Field::optional("id", Kind::Text(1, ANY)),
    Field::optional("command", Kind::Text(1, ANY)),
    Field::optional("commandArgv", Kind::Texts(0, 4_096)),
    Field::optional("systemRunPlan", Kind::Object(PLAN)),
    Field::optional("env", Kind::TextMap),
    Field::nullable("cwd", Kind::Text(0, ANY)),
    Field::nullable("nodeId", Kind::Text(1, ANY)),
    Field::nullable("host", Kind::Text(0, ANY)),
    Field::nullable("security", Kind::Text(0, ANY)),
    Field::nullable("ask", Kind::Text(0, ANY)),
    Field::nullable("warningText", Kind::Text(0, ANY)),
    Field::nullable("scope", SCOPE),
    Field::optional("commandSpans", Kind::Any),
    Field::nullable("resolvedPath", Kind::Text(0, ANY)),
    Field::optional("unavailableDecisions", Kind::Choices(&["allow-always"], 0, 1)),
    Field::nullable("agentId", Kind::Text(0, ANY)),
    Field::nullable("sessionKey", Kind::Text(0, ANY)),
    Field::nullable("sessionId", Kind::Text(0, ANY)),
    Field::nullable("runId", Kind::Text(0, ANY)),
    Field::nullable("toolCallId", Kind::Text(0, ANY)),
    Field::nullable("turnSourceChannel", Kind::Text(0, ANY)),
    Field::nullable("turnSourceTo", Kind::Text(0, ANY)),
    Field::nullable("turnSourceAccountId", Kind::Text(0, ANY)),
    Field::nullable("turnSourceThreadId", Kind::Loose),
    Field::nullable("approvalReviewerDeviceIds", Kind::Texts(0, holdgate_core::limits::REVIEWERS)),
    Field::optional("requireDeliveryRoute", Kind::Bool),
    Field::optional("suppressDelivery", Kind::Bool),
    Field::optional("deliverToApprovalClientsOnly", Kind::Bool),
    Field::optional("timeoutMs", Kind::Integer(1, *holdgate_core::limits::TIMEOUT_MS.end())),
    Field::optional("twoPhase", Kind::Bool),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    argv: Vec<String>,
    cwd: Option<String>,
    command_text: String,
    agent_id: Option<String>,
    session_key: Option<String>,
    mutable_file_operand: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    id: Option<String>,
    command: Option<String>,
    command_argv: Option<Vec<String>>,
    system_run_plan: Option<Plan>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
    node_id: Option<String>,
    host: Option<String>,
    security: Option<String>,
    ask: Option<String>,
    warning_text: Option<String>,
    scope: Option<Value>,
    resolved_path: Option<String>,
    unavailable_decisions: Option<Vec<Decision>>,
    agent_id: Option<String>,
    session_key: Option<String>,
    session_id: Option<String>,
    run_id: Option<String>,
    tool_call_id: Option<String>,
    turn_source_channel: Option<String>,
    turn_source_to: Option<String>,
    turn_source_account_id: Option<String>,
    turn_source_thread_id: Option<Value>,
    approval_reviewer_device_ids: Option<Vec<String>>,
    require_delivery_route: Option<bool>,
    timeout_ms: Option<i64>,
    two_phase: Option<bool>,
}

/// Asks for permission to run a command. Answers twice: that it was accepted, and how it ended.
pub(super) async fn request(call: &Call<'_>) -> Option<Result<Value, Failure>> {
    let prepared = read::<Asked>("exec.approval.request", call.params().as_deref(), FIELDS, Words::Full)
        .and_then(|asked| prepare(call, asked));
    let (create, protocol, phases) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return Some(Err(failure)),
    };
    ask(call, create, protocol, phases).await
}

/// How a request is answered.
pub(super) struct Phases {
    /// Whether an answer that it was accepted comes first.
    pub(super) two: bool,
    /// Whether it is denied at once when nobody can be shown it.
    pub(super) needs_route: bool,
}

/// Opens a request, says that it was accepted, and waits for its end.
pub(super) async fn ask(
    call: &Call<'_>,
    create: CreateApproval,
    protocol: Protocol,
    phases: Phases,
) -> Option<Result<Value, Failure>> {
    let opening = call.session.opening();
    let approval = match call.local().request(create, protocol).await {
        Ok((approval, _)) => {
            opening.opened(&approval.id);
            approval
        }
        Err(error) if error.code() == Some(Code::IdTaken) => {
            return Some(Err(Failure::invalid("approval id already pending")));
        }
        Err(error) => return Some(Err(failure(&error, "request"))),
    };
    let route =
        if call.rpc.hub.reviewers_of(&approval, &call.session.id) > 0 { "approval-client" } else { "none" };
    metrics::counter!("holdgate_routes_total", "route" => route).increment(1);
    if phases.two {
        let accepted = json!({
            "status": "accepted",
            "id": approval.id.as_str(),
            "deliveryRoute": route,
            "createdAtMs": approval.created_at.as_ms(),
            "expiresAtMs": approval.expires_at.as_ms(),
        });
        // Whoever is gone by now finds the record again by its id.
        let _ = call.replies.send(&call.request.id, Ok(accepted)).await;
    }
    if route == "none" && phases.needs_route {
        deny_unrouted(call, &approval).await;
    }
    Some(legacy::until_ended(call, &approval.id).await.map(|ended| legacy::decision_of(&ended)))
}

async fn deny_unrouted(call: &Call<'_>, approval: &Approval) {
    let denied = call.rpc.service.apply(&approval.id, Command::DenyUnrouted, &Principal::authority()).await;
    if let Err(error) = denied {
        // Somebody answered first, or it cannot be stored: then its deadline denies it.
        tracing::debug!(id = %approval.id, %error, "a request without a route was not denied at once");
    }
}

fn prepare(call: &Call<'_>, mut asked: Asked) -> Result<(CreateApproval, Protocol, Phases), Failure> {
    // What the plan says is what the host will do, whatever else the caller says.
    if let Some(plan) = &mut asked.system_run_plan {
        asked.command = Some(plan.command_text.clone());
        asked.command_argv = Some(std::mem::take(&mut plan.argv));
        asked.cwd = plan.cwd.clone();
        asked.agent_id = plan.agent_id.clone().or(asked.agent_id);
        asked.session_key = plan.session_key.clone().or(asked.session_key);
    }
    let env_bytes = asked.env.iter().flat_map(BTreeMap::values).map(String::len).sum();
    check_size(call, env_bytes)?;
    let argv = asked.command_argv.take().filter(|argv| !argv.is_empty());
    let command = match (&asked.command, &argv) {
        (Some(command), _) if !command.trim().is_empty() => command.clone(),
        (_, Some(argv)) => argv.join(" "),
        _ => return Err(Failure::invalid("command is required")),
    };
    if asked.host.as_deref() == Some("node") {
        if asked.node_id.is_none() {
            return Err(Failure::invalid("nodeId is required for host=node"));
        }
        if asked.system_run_plan.is_none() {
            return Err(Failure::invalid("systemRunPlan is required for host=node"));
        }
    }
    let id = asked.id.take().map(chosen_id).transpose()?;
    let arguments = argv.iter().flatten().map(String::len).sum::<usize>();
    if command.len().max(arguments) > LONGEST_COMMAND {
        return Err(too_long());
    }
    let shown = shown_command(&command, argv.as_deref())?;
    if shown.chars().count() > COMMAND_DISPLAY_LIMIT {
        return Err(too_long());
    }
    let env_keys: Option<Vec<String>> =
        asked.env.as_ref().map(|env| env.keys().map(|name| masked(name)).collect());
    let v4_request = view(&asked, &shown, env_keys);
    let content = content(&asked, &command, argv.as_deref())?;
    let create = CreateApproval {
        kind: "exec".to_owned(),
        scope: None,
        boundary: id.as_ref().map(|id: &holdgate_core::ApprovalId| id.as_str().to_owned()),
        content,
        reason: None,
        timeout_ms: Some(asked.timeout_ms.unwrap_or(TIMEOUT_MS)),
        epoch: None,
        run: None,
        source: Some(source(&asked)),
        requirement: Some(requirement(call, &asked)),
    };
    let protocol = Protocol {
        id: id.or_else(minted),
        client: Some(call.session.client_id.clone()),
        v4_request: Some(v4_request.to_string()),
        keeps_grants: true,
    };
    let needs_route = asked.require_delivery_route.unwrap_or(true);
    Ok((create, protocol, Phases { two: asked.two_phase.unwrap_or_default(), needs_route }))
}

/// The command as reviewers are shown it. Where arguments are given they are what runs, so they are what is shown, each
/// with its borders, whatever line comes with them.
fn shown_command(command: &str, argv: Option<&[String]>) -> Result<String, Failure> {
    let Some(argv) = argv else {
        return Ok(masked(command));
    };
    let arguments = present(ActionKind::Exec, &json!({ "argv": argv })).map_err(|why| match why {
        NotPresentable::TooLong { .. } => too_long(),
        NotPresentable::Malformed { .. } => Failure::invalid("command is required"),
    })?;
    Ok(arguments.command_text.unwrap_or(arguments.headline))
}

/// Refuses what could not be kept before any work is done for it. Values of the environment are not kept.
pub(super) fn check_size(call: &Call<'_>, not_kept: usize) -> Result<(), Failure> {
    if call.params_bytes.saturating_sub(not_kept) <= V4_REQUEST_BYTES {
        return Ok(());
    }
    Err(Failure::invalid(format!("the request is larger than {V4_REQUEST_BYTES} bytes"))
        .with(json!({ "reason": "TOO_LARGE" })))
}

fn too_long() -> Failure {
    Failure::invalid("command exceeds exec approval display limit")
        .with(json!({ "reason": "EXEC_APPROVAL_COMMAND_DISPLAY_LIMIT" }))
}

/// An id for a request that names none.
fn minted() -> Option<holdgate_core::ApprovalId> {
    holdgate_store::mint::uuid().parse().ok()
}

fn chosen_id(id: String) -> Result<holdgate_core::ApprovalId, Failure> {
    if id.starts_with("plugin:") {
        return Err(Failure::invalid("approval ids starting with plugin: are reserved"));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    let parsed = if id.len() <= 128 && id.chars().all(is_plain) { id.parse().ok() } else { None };
    parsed.ok_or_else(|| {
        Failure::invalid(
            "approval id must be 1-128 characters using only letters, numbers, '.', '_', ':', or '-', and cannot be '.' or '..'",
        )
        .with(json!({ "code": "EXEC_APPROVAL_ID_INVALID", "reason": "INVALID_APPROVAL_ID" }))
    })
}

/// What would run: all that changes what the host does.
fn content(
    asked: &Asked,
    command: &str,
    argv: Option<&[String]>,
) -> Result<Box<serde_json::value::RawValue>, Failure> {
    let mut content = Map::new();
    content.insert("command".to_owned(), command.into());
    if let Some(argv) = argv {
        content.insert("argv".to_owned(), argv.into());
    }
    let texts = [("cwd", &asked.cwd), ("host", &asked.host), ("nodeId", &asked.node_id)];
    for (key, value) in texts {
        if let Some(value) = value {
            content.insert(key.to_owned(), value.as_str().into());
        }
    }
    if let Some(env) = &asked.env {
        content.insert("environment".to_owned(), environment(env)?);
    }
    if let Some(operand) = asked.system_run_plan.as_ref().and_then(|plan| plan.mutable_file_operand.clone()) {
        content.insert("mutableFileOperand".to_owned(), operand);
    }
    if let Some(scope) = &asked.scope {
        content.insert("scope".to_owned(), scope.clone());
    }
    let text = Value::Object(content).to_string();
    serde_json::value::RawValue::from_string(text).map_err(|error| Failure::invalid(error.to_string()))
}

/// The environment by digest and names.
fn environment(env: &BTreeMap<String, String>) -> Result<Value, Failure> {
    let text = json!(env).to_string();
    let canonical = Canonical::parse(&text).map_err(|error| Failure::invalid(format!("env: {error}")))?;
    let names: Vec<&str> = env.keys().map(String::as_str).collect();
    let sha256 = Digest::of(canonical.as_str().as_bytes()).to_hex();
    Ok(json!({ "count": env.len(), "sha256": sha256, "steering": names }))
}

fn source(asked: &Asked) -> Source {
    Source {
        agent: given(&asked.agent_id),
        session: given(&asked.session_key),
        session_id: given(&asked.session_id),
        run_id: given(&asked.run_id),
        task_id: None,
        tool_call_id: given(&asked.tool_call_id),
        tool_name: None,
    }
}

/// A text that says something.
pub(super) fn given(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.trim().is_empty())
}

fn requirement(call: &Call<'_>, asked: &Asked) -> RequirementRequest {
    let withheld = asked.unavailable_decisions.as_deref().unwrap_or_default();
    let always_asks = asked.ask.as_deref() == Some("always");
    let is_withheld = |decision: &Decision| {
        withheld.contains(decision) || (always_asks && *decision == Decision::AllowAlways)
    };
    RequirementRequest {
        allowed_decisions: Some(
            Decision::ALL.into_iter().filter(|decision| !is_withheld(decision)).collect(),
        ),
        reviewers: reviewers(call, asked.approval_reviewer_device_ids.as_deref()),
        ..RequirementRequest::default()
    }
}

/// Devices that a trusted runtime names as the only reviewers. From anybody else the field means nothing.
pub(super) fn reviewers(call: &Call<'_>, devices: Option<&[String]>) -> Option<Vec<String>> {
    let devices = devices.filter(|devices| !devices.is_empty())?;
    let is_trusted = call.principal.kind == PrincipalKind::Runtime;
    is_trusted.then(|| devices.iter().map(|device| format!("device:{device}")).collect())
}

/// The request as reviewers are shown it, every text made safe.
fn view(asked: &Asked, command: &str, env_keys: Option<Vec<String>>) -> Value {
    let safe = |text: &Option<String>| text.as_deref().map(masked);
    let mut view = json!({
        "command": command,
        // A summary in the requester's words, and in no digest.
        "commandPreview": null,
        "cwd": safe(&asked.cwd),
        "nodeId": safe(&asked.node_id),
        "host": safe(&asked.host),
        "security": safe(&asked.security),
        "ask": safe(&asked.ask),
        "warningText": asked.warning_text.as_deref().map(multiline),
        "scope": asked.scope.as_ref().map(safe_texts),
        "agentId": safe(&asked.agent_id).filter(|agent| !agent.is_empty()),
        "resolvedPath": safe(&asked.resolved_path),
        "sessionId": safe(&asked.session_id),
        "runId": safe(&asked.run_id),
        "toolCallId": safe(&asked.tool_call_id),
        "turnSourceChannel": safe(&asked.turn_source_channel),
        "turnSourceTo": safe(&asked.turn_source_to),
        "turnSourceAccountId": safe(&asked.turn_source_account_id),
        "turnSourceThreadId": asked.turn_source_thread_id.as_ref().map(safe_texts),
    });
    if let Some(keys) = env_keys {
        view["envKeys"] = keys.into();
    }
    view
}

/// A small object with every text in it made safe.
pub(super) fn safe_texts(value: &Value) -> Value {
    match value {
        Value::String(text) => masked(text).into(),
        Value::Array(items) => items.iter().map(safe_texts).collect(),
        Value::Object(object) => {
            object.iter().map(|(key, value)| (masked(key), safe_texts(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
