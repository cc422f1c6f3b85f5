//! Answers that are wrong in one way each, and what becomes of the approval.

use serde_json::{Value, json};

use super::{Probe, ask, id_of, present};

impl Probe<'_> {
    pub(super) async fn verdicts(&mut self) {
        let telegram = json!({ "channel": "telegram", "accountId": "x", "senderId": "y" });
        let answers = [
            ("badDecision", json!({ "kind": "exec", "decision": "ACCEPT" })),
            ("wrongKind", json!({ "kind": "plugin", "decision": "allow-once" })),
            ("missingKind", json!({ "decision": "allow-once" })),
            ("missingDecision", json!({ "kind": "exec" })),
            ("extraField", json!({ "kind": "exec", "decision": "allow-once", "foo": 1 })),
            (
                "badReviewer",
                json!({ "kind": "exec", "decision": "allow-once", "reviewer": { "channel": "telegram" } }),
            ),
            (
                "reviewerUnknownChannel",
                json!({ "kind": "exec", "decision": "allow-once", "reviewer": telegram }),
            ),
        ];
        for (name, answer) in answers {
            self.wrong_answer(&format!("resolve.{name}"), answer).await;
        }
        self.unavailable_decisions().await;
        self.unreadable_ids().await;
    }

    async fn wrong_answer(&mut self, name: &str, mut answer: Value) {
        let id = id_of(&ask(&self.agent, json!({})).await);
        answer["id"] = json!(id);
        let resolved = self.admin.call("approval.resolve", &answer).await;
        self.record(name, resolved.to_value());
        let get = self.admin.call("approval.get", &json!({ "id": id })).await;
        let status = get.at("/approval/status");
        let after = present(&[("status", status.clone()), ("reason", get.at("/approval/reason"))]);
        self.record(format!("{name}.after"), after);
        if status == "pending" {
            self.deny(&self.admin, &id).await;
        }
    }

    async fn unavailable_decisions(&mut self) {
        let once_only = json!({ "unavailableDecisions": ["allow-always"] });
        let id = id_of(&ask(&self.agent, once_only.clone()).await);
        let always = json!({ "id": id, "kind": "exec", "decision": "allow-always" });
        let resolved = self.admin.call("approval.resolve", &always).await;
        self.record("resolve.allow-always when unavailable", resolved.outcome());

        let id = id_of(&ask(&self.agent, once_only).await);
        let always = json!({ "id": id, "decision": "allow-always" });
        let deny = json!({ "id": id, "decision": "deny" });
        let resolved = self.admin.call("exec.approval.resolve", &always).await;
        self.record("exec.approval.resolve.allow-always when unavailable", resolved.to_value());
        let get = self.admin.call("approval.get", &json!({ "id": id })).await;
        self.record("...still pending?", get.at("/approval/status"));
        self.admin.call("exec.approval.resolve", &deny).await;

        let id = id_of(&ask(&self.agent, json!({ "ask": "always" })).await);
        let get = self.admin.call("approval.get", &json!({ "id": id })).await;
        let allowed = get.at("/approval/presentation/allowedDecisions");
        self.record("ask=always allowedDecisions", allowed);
        self.admin.call("exec.approval.resolve", &json!({ "id": id, "decision": "deny" })).await;

        let unknown = json!({ "id": "x", "decision": "ACCEPT" });
        let resolved = self.admin.call("exec.approval.resolve", &unknown).await;
        self.record("exec.approval.resolve.badDecision", resolved.to_value());
    }

    async fn unreadable_ids(&mut self) {
        let ids = [
            ("missing", Some(r#"{"id":"nope"}"#)),
            ("dot", Some(r#"{"id":"."}"#)),
            ("lone surrogate", Some(r#"{"id":"\ud800"}"#)),
            ("empty", Some(r#"{"id":""}"#)),
            ("noparams", None),
        ];
        for (name, params) in ids {
            let get = self.admin.call_text("approval.get", params).await;
            self.record(format!("approval.get.{name}"), get.to_value());
        }
    }
}
