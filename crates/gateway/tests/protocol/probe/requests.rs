//! A request without a device: who sees it, who decides it, what everybody hears of it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Probe, ask, id_of, is_event};

/// How long an event that must not come is waited for.
const SILENCE: Duration = Duration::from_millis(250);

const REQUESTED: &str = "exec.approval.requested";
const RESOLVED: &str = "exec.approval.resolved";

impl Probe<'_> {
    pub(super) async fn requests(&mut self) {
        let asked = ask(&self.agent, json!({})).await;
        let id = id_of(&asked);
        self.record("request.noDevice.withAdminConnected", asked.outcome());
        self.who_hears(&id).await;
        self.who_reads(&id).await;
        let id = self.who_decides_too_much(id).await;
        self.who_decides(&id).await;
    }

    async fn who_hears(&mut self, id: &str) {
        let event = self.admin.event(|event| is_event(event, REQUESTED, id)).await;
        let mut heard = json!({ "admin": event.is_some() });
        for (name, client) in [("revA", &self.rev_a), ("requester", &self.agent)] {
            let hears = client.event_within(SILENCE, |event| is_event(event, REQUESTED, id)).await;
            heard[name] = json!(hears.is_some());
        }
        self.record("event.requested.recipients", heard);
        self.record("event.requested.payload", event.unwrap_or(Value::Null));
    }

    async fn who_reads(&mut self, id: &str) {
        let none = json!({});
        let this = json!({ "id": id });
        let prefix = json!({ "id": id.chars().take(8).collect::<String>() });
        let by_ref = json!({ "id": reference(id) });
        let list = self.rev_a.call("exec.approval.list", &none).await;
        self.record("list.revA", list.to_value());
        let list = self.admin.call("exec.approval.list", &none).await;
        self.record("list.admin", field_names(&list.outcome()));
        let get = self.rev_a.call("approval.get", &this).await;
        self.record("approval.get.revA (unbound record, other device w/ operator.approvals)", get.to_value());
        let get = self.readonly.call("approval.get", &this).await;
        self.record("approval.get.readonly", get.to_value());
        let get = self.agent.call("approval.get", &this).await;
        self.record("approval.get.requester.noDevice", get.to_value());
        let get = self.rev_a.call("exec.approval.get", &this).await;
        self.record("exec.approval.get.revA", get.to_value());
        let get = self.admin.call("exec.approval.get", &this).await;
        self.record("exec.approval.get.admin", get.to_value());
        let get = self.agent.call("exec.approval.get", &prefix).await;
        self.record("exec.approval.get.requester.prefix8", get.to_value());
        let get = self.admin.call("approval.get", &prefix).await;
        self.record("approval.get.prefix", get.to_value());
        let get = self.admin.call("approval.get", &by_ref).await;
        self.record("approval.get.byRef", get.to_value());
    }

    /// The recording refuses this decision. Where it is none to refuse, a fresh request takes the decided one's place,
    /// so that what follows stays comparable.
    async fn who_decides_too_much(&mut self, id: String) -> String {
        let deny = json!({ "id": id, "decision": "deny" });
        let denied = self.rev_a.call("exec.approval.resolve", &deny).await;
        self.record("exec.approval.resolve.revA (legacy not visible)", denied.to_value());
        if !denied.ok {
            return id;
        }
        self.agent.extra(1).await;
        id_of(&ask(&self.agent, json!({})).await)
    }

    async fn who_decides(&mut self, id: &str) {
        let (wait, resolve) = ("exec.approval.waitDecision", "approval.resolve");
        let legacy = "exec.approval.resolve";
        let answer = |id: &str, decision: &str| json!({ "id": id, "kind": "exec", "decision": decision });
        let word = |decision: &str| json!({ "id": id, "decision": decision });
        let this = json!({ "id": id });

        let waiting = self.agent.start(wait, &this).await;
        let resolved = self.rev_a.call(resolve, &answer(&reference(id), "allow-once")).await;
        let waited = waiting.reply().await;
        self.record("approval.resolve.byRef.revA", resolved.to_value());
        self.record("waitDecision", waited.to_value());
        let extra = self.agent.extra(1).await;
        self.record("requester.final res after accepted", json!(extra));
        let event = self.admin.event(|event| is_event(event, RESOLVED, id)).await;
        self.record("event.resolved.admin", event.unwrap_or(Value::Null));

        let again = self.rev_b.call(resolve, &answer(id, "allow-once")).await;
        self.record("approval.resolve.same.revB", again.to_value());
        let other = self.admin.call(resolve, &answer(id, "deny")).await;
        self.record("approval.resolve.conflict.admin", other.at("/applied"));
        let again = self.admin.call(legacy, &word("allow-once")).await;
        self.record("exec.approval.resolve.same.admin", again.to_value());
        let other = self.admin.call(legacy, &word("deny")).await;
        self.record("exec.approval.resolve.conflict.admin", other.to_value());
        let waited = self.agent.call(wait, &this).await;
        self.record("waitDecision.after", waited.to_value());
        let get = self.admin.call("exec.approval.get", &this).await;
        self.record("exec.approval.get.after", get.to_value());
    }

    /// A request from a paired device: that device and others.
    pub(super) async fn device_requests(&mut self) {
        let asked = ask(&self.req_dev, json!({})).await;
        let id = id_of(&asked);
        let this = json!({ "id": id });
        self.record("request.withDevice", asked.outcome());
        let own = self.req_dev.call("exec.approval.get", &this).await;
        self.record("legacy.get by requester device", json!(own.ok));
        let other = self.rev_a.call("exec.approval.get", &this).await;
        self.record("legacy.get by other device", json!(other.ok));
        let other = self.rev_a.call("approval.get", &this).await;
        self.record("unified.get by other device (no reviewer list)", json!(other.ok));
        let allow = json!({ "id": id, "kind": "exec", "decision": "allow-once" });
        let own = self.req_dev.call("approval.resolve", &allow).await;
        self.record("unified self resolve by requester device", own.at("/applied"));

        let reviewers = [Self::device_id("revA")];
        let asked = ask(&self.agent, json!({ "approvalReviewerDeviceIds": reviewers })).await;
        let id = id_of(&asked);
        let other = self.rev_b.call("approval.get", &json!({ "id": id })).await;
        self.record("reviewerIds from untrusted requester ignored: revB get", json!(other.ok));
        self.deny(&self.admin, &id).await;
    }
}

/// The short reference of an exec approval: what stands for its id where the id does not fit.
fn reference(id: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("exec\0{id}")))
}

/// The field names of each entry of a list.
fn field_names(list: &Value) -> Value {
    let entries = list.as_array().into_iter().flatten();
    let names =
        entries.map(|entry| entry.as_object().into_iter().flatten().map(|(name, _)| json!(name)).collect());
    names.collect::<Vec<Value>>().into()
}
