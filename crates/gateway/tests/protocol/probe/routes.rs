//! Requests after the administrator has left, and one that nobody answers in time.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Probe, ask, id_of};

/// How long a gateway may take to notice that a socket has closed.
const NOTICE: Duration = Duration::from_millis(100);

impl Probe<'_> {
    pub(super) async fn routes(&mut self) {
        self.admin.close().await;
        tokio::time::sleep(NOTICE).await;
        let asked = ask(&self.agent, json!({})).await;
        self.record("request.no-route twoPhase", asked.outcome());
        let get = self.rev_a.call("approval.get", &json!({ "id": id_of(&asked) })).await;
        self.record("no-route record", get.at("/approval"));

        let asked = ask(&self.agent, json!({ "requireDeliveryRoute": false })).await;
        self.record("request.requireDeliveryRoute=false", asked.outcome());
        self.deny(&self.rev_a, &id_of(&asked)).await;
        let asked = ask(&self.agent, json!({ "turnSourceChannel": "telegram", "turnSourceTo": "1" })).await;
        self.record("request.turnSource unknown channel", asked.outcome());
        self.timeout().await;
    }

    async fn timeout(&mut self) {
        let asked = ask(&self.agent, json!({ "requireDeliveryRoute": false, "timeoutMs": 300 })).await;
        let id = id_of(&asked);
        let this = json!({ "id": id });
        let waited = self.agent.call("exec.approval.waitDecision", &this).await;
        self.record("wait timeout", waited.to_value());
        let get = self.rev_a.call("approval.get", &this).await;
        self.record("expired record", get.at("/approval"));
        let allow = json!({ "id": id, "kind": "exec", "decision": "allow-once" });
        let resolved = self.rev_a.call("approval.resolve", &allow).await;
        self.record("resolve after expiry", resolved.payload.unwrap_or(Value::Null));
        let allow = json!({ "id": id, "decision": "allow-once" });
        let resolved = self.rev_a.call("exec.approval.resolve", &allow).await;
        self.record("legacy resolve after expiry", resolved.to_value());
        let events = self.agent.events();
        let names = events.iter().filter_map(|event| event["event"].as_str());
        let heard: Vec<_> = names.filter(|name| name.contains("approval")).collect();
        self.record("event on expiry", json!(heard));
    }
}
