//! Following a session: its approvals from now on, and what is pending of it already.

use holdgate_core::audience::session_key;
use holdgate_core::limits::{NAME_CHARS, REPLAY_ITEMS};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, failure};
use crate::rpc::frame::Failure;
use crate::rpc::params::{Field, Kind, Words, read};
use crate::rpc::projection::{Shown, snapshot};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subscribe {
    key: String,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    include_approvals: bool,
}

const FIELDS: &[Field] = &[
    Field::required("key", Kind::Text(1, NAME_CHARS)),
    Field::optional("agentId", Kind::Text(1, NAME_CHARS)),
    Field::optional("includeApprovals", Kind::True),
];

/// Follows a session. Being subscribed gives no sight of any record: each is judged by itself.
pub(super) async fn subscribe(call: &Call<'_>) -> Result<Value, Failure> {
    let Subscribe { key, agent_id, include_approvals } =
        read("sessions.messages.subscribe", call.params().as_deref(), FIELDS, Words::Full)?;
    if !include_approvals {
        // There are no messages here to follow.
        return Ok(json!({ "subscribed": true, "key": key }));
    }
    let session = call.session;
    let is_reviewer = session.has_scope("operator.approvals") && session.device.is_some();
    let is_admin = session.has_scope("operator.admin") && call.principal.is_admin();
    if !is_admin && !is_reviewer {
        return Err(Failure::invalid(
            "sessions.messages.subscribe includeApprovals requires a paired device and gateway scope: operator.approvals",
        ));
    }
    let canonical = session_key(&key, agent_id.as_deref()).ok_or_else(|| {
        Failure::invalid("invalid sessions.messages.subscribe params: at /key: must not be blank")
    })?;
    // Subscribed first: what happens during the look-up comes as an event, after this answer or before it.
    if !session.subscribe(canonical.clone()) {
        return Err(Failure::later("this connection follows as many sessions as it may"));
    }
    call.replies.reads();
    let service = &call.rpc.service;
    let replay = service.replay(&canonical, REPLAY_ITEMS, &call.principal).await;
    let (pending, truncated) = replay.map_err(|e| failure(&e, "replay"))?;
    let approvals: Vec<Value> = pending
        .iter()
        .map(|approval| {
            let mut shown = snapshot(approval, service.links(), Shown::Stream);
            if let Some(source) = approval.audience.first() {
                shown["sourceSessionKey"] = source.as_str().into();
            }
            shown
        })
        .collect();
    Ok(json!({
        "subscribed": true,
        "key": key,
        "approvalReplay": {
            "sessionKey": canonical,
            "updatedAtMs": service.store().now().as_ms(),
            "approvals": approvals,
            "truncated": truncated,
        },
    }))
}

/// No longer follows a session.
pub(super) fn unsubscribe(call: &Call<'_>) -> Result<Value, Failure> {
    let Subscribe { key, agent_id, .. } =
        read("sessions.messages.unsubscribe", call.params().as_deref(), FIELDS, Words::Full)?;
    if let Some(canonical) = session_key(&key, agent_id.as_deref()) {
        call.session.unsubscribe(&canonical);
    }
    Ok(json!({ "subscribed": false, "key": key }))
}
