//! Following a session, plugin approvals, history, and scopes that are missing.

use holdgate_testkit::v4::Client;
use serde_json::{Value, json};

use super::{Probe, ask, id_of, is_event};

const CHILD: &str = "agent:main:child1";
const SUBSCRIBE: &str = "sessions.messages.subscribe";

impl Probe<'_> {
    pub(super) async fn sessions(&mut self) {
        let admin = self.named("admin2").device().approvals().scopes(&["operator.admin"]);
        let admin = self.dial(admin).await;
        self.followers(&admin).await;
        self.plugins(&admin).await;
        self.plugin_bounds(&admin).await;
        self.history().await;
        self.missing_scopes().await;
        admin.close().await;
    }

    async fn followers(&mut self, admin: &Client) {
        let child = json!({ "sessionKey": CHILD });
        let follow = json!({ "key": CHILD, "includeApprovals": true });
        let id = id_of(&ask(&self.agent, child.clone()).await);
        // A stream that is followed while its request is being told gets it both ways, which is no case of this one.
        admin.event(|event| is_event(event, "exec.approval.requested", &id)).await;
        let subscribed = admin.call(SUBSCRIBE, &follow).await;
        self.record("subscribe includeApprovals admin", subscribed.to_value());
        let subscribed = self.agent.call(SUBSCRIBE, &follow).await;
        self.record("subscribe includeApprovals noDevice", subscribed.to_value());
        let subscribed = self.readonly.call(SUBSCRIBE, &follow).await;
        self.record("subscribe includeApprovals readonly dev", subscribed.to_value());
        let refused = json!({ "key": "agent:main:other", "includeApprovals": false });
        let subscribed = admin.call(SUBSCRIBE, &refused).await;
        self.record("subscribe includeApprovals=false", subscribed.to_value());
        let subscribed = self.rev_a.call(SUBSCRIBE, &follow).await;
        self.record("subscribe revA", subscribed.to_value());

        self.deny(&self.rev_a, &id).await;
        admin.event(|event| is_session_event(event, &id, "terminal")).await;
        let events = admin.events();
        let of_session: Vec<_> = events.iter().filter(|event| event["event"] == "session.approval").collect();
        self.record("session.approval terminal", json!(of_session));

        let id = id_of(&ask(&self.agent, child).await);
        let pending = admin.event(|event| is_session_event(event, &id, "pending")).await;
        self.record("session.approval pending", pending.unwrap_or(Value::Null));
        self.deny(admin, &id).await;
        admin.event(|event| is_session_event(event, &id, "terminal")).await;
        admin.event(|event| is_event(event, "exec.approval.resolved", &id)).await;
        let events = admin.events();
        let order: Vec<_> = events.iter().map(|event| json!([event["event"], event.get("seq")])).collect();
        self.record("event order for resolver: res vs events", json!(order));
    }

    async fn plugins(&mut self, admin: &Client) {
        let request = json!({
            "title": "T\u{202e}",
            "description": "line1\nline2",
            "severity": "critical",
            "toolName": "t",
            "pluginId": "p",
            "allowedDecisions": ["allow-once"],
            "timeoutMs": 60_000,
            "twoPhase": true,
            "sessionKey": "agent:main:main",
        });
        let asked = admin.call("plugin.approval.request", &request).await;
        let id = id_of(&asked);
        let this = json!({ "id": id });
        self.record("plugin request", asked.outcome());
        let get = self.rev_a.call("approval.get", &this).await;
        self.record("plugin get", get.payload.unwrap_or(Value::Null));
        let list = admin.call("plugin.approval.list", &json!({})).await;
        self.record("plugin list", list.payload.unwrap_or(Value::Null));
        let always = json!({ "id": id, "decision": "allow-always" });
        let resolved = admin.call("plugin.approval.resolve", &always).await;
        self.record("plugin resolve unavailable", resolved.to_value());
        let once = json!({ "id": id, "decision": "allow-once" });
        let resolved = admin.call("plugin.approval.resolve", &once).await;
        self.record("plugin legacy resolve", resolved.to_value());
        let waited = admin.call("plugin.approval.waitDecision", &this).await;
        self.record("plugin wait", waited.to_value());
    }

    async fn plugin_bounds(&mut self, admin: &Client) {
        // In two phases, so that a gateway that takes one of them answers at once as well.
        let request = |title: String, timeout_ms: i64| {
            json!({
                "title": title, "description": "d", "timeoutMs": timeout_ms, "twoPhase": true,
            })
        };
        let requests = [
            ("plugin bad title 81", request("x".repeat(81), 60_000)),
            ("plugin timeout 600001", request("x".to_owned(), 600_001)),
            ("plugin title expands past 80 after escape", request("\u{200b}".repeat(20), 60_000)),
        ];
        for (name, request) in requests {
            let asked = admin.call("plugin.approval.request", &request).await;
            // One that is taken stays pending: the history that comes next is of what has ended.
            self.record(name, asked.outcome());
        }
    }

    async fn history(&mut self) {
        let page = self.rev_a.call("approval.history", &json!({ "limit": 2 })).await;
        self.record("approval.history", page.payload.unwrap_or(Value::Null));
        let requests = [
            ("approval.history bad cursor", json!({ "cursor": "AAAA" })),
            ("approval.history limit 0", json!({ "limit": 0 })),
            ("approval.history limit 1001", json!({ "limit": 1001 })),
        ];
        for (name, request) in requests {
            let page = self.rev_a.call("approval.history", &request).await;
            self.record(name, page.error.unwrap_or(Value::Null));
        }
    }

    async fn missing_scopes(&mut self) {
        let none = json!({});
        let list = self.readonly.call("exec.approval.list", &none).await;
        self.record("missing scope", list.to_value());
        let unknown = self.readonly.call("approval.nope", &none).await;
        self.record("unknown method", unknown.to_value());
        let policy = self.rev_a.call("exec.approvals.get", &none).await;
        self.record("exec.approvals.get by approvals scope", policy.to_value());
    }
}

fn is_session_event(event: &Value, id: &str, phase: &str) -> bool {
    is_event(event, "session.approval", id) && event["payload"]["phase"] == phase
}
