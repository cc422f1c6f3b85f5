//! Requests that are wrong in one way each, the bounds of a command, and what a reviewer is shown of odd text.

use serde_json::{Value, json};

use super::{ABSENT, Probe, ask, id_of, is_event};

impl Probe<'_> {
    pub(super) async fn validation(&mut self) {
        let requests = [
            ("no command", json!({ "command": ABSENT })),
            ("empty argv/cmd", json!({ "command": " " })),
            ("host=node no nodeId", json!({ "host": "node" })),
            ("host=node no plan", json!({ "host": "node", "nodeId": "n1" })),
            ("timeout 0", json!({ "timeoutMs": 0 })),
            ("extra field", json!({ "foo": 1 })),
            ("id plugin:", json!({ "id": "plugin:x" })),
            ("id bad chars", json!({ "id": "a b" })),
            ("id 129", json!({ "id": "a".repeat(129) })),
            ("id dot", json!({ "id": "." })),
            ("id bom", json!({ "id": "\u{feff}" })),
        ];
        for (name, request) in requests {
            let asked = ask(&self.agent, request).await;
            self.record(format!("request.{name}"), asked.outcome());
            if asked.at("/status") == "accepted" {
                self.deny(&self.admin, &id_of(&asked)).await;
            }
        }
        self.same_id_again().await;
        self.longest_command().await;
        self.odd_text().await;
    }

    async fn same_id_again(&mut self) {
        let chosen = json!({ "id": "dup-1" });
        ask(&self.agent, chosen.clone()).await;
        let again = ask(&self.agent, chosen.clone()).await;
        self.record("request.dup pending id", again.outcome());
        self.deny(&self.admin, "dup-1").await;
        let again = ask(&self.agent, chosen).await;
        self.record("request.dup resolved id", again.outcome());
    }

    async fn longest_command(&mut self) {
        let asked = ask(&self.agent, json!({ "command": "x".repeat(16_384) })).await;
        self.record("request.cmd 16384", asked.outcome());
        self.deny(&self.admin, &id_of(&asked)).await;
        let asked = ask(&self.agent, json!({ "command": "x".repeat(16_385) })).await;
        self.record("request.cmd 16385", asked.outcome());
    }

    async fn odd_text(&mut self) {
        let odd = json!({
            "command": "echo \u{202e}gpj\u{200b}.exe\nrm -rf /\t\u{a0}x",
            "warningText": "line1\r\nline2\u{2028}l3\u{202e}",
            "env": { "B": "2", "A": "1" },
            "cwd": "/tmp/\u{202e}x",
        });
        let id = id_of(&ask(&self.agent, odd).await);
        let get = self.admin.call("approval.get", &json!({ "id": id })).await;
        self.record("sanitise.presentation", get.at("/approval/presentation"));
        let event = self.admin.event(|event| is_event(event, "exec.approval.requested", &id)).await;
        let request = event.map_or(Value::Null, |event| event["payload"]["request"].clone());
        self.record("sanitise.legacy event request", request);
        self.deny(&self.admin, &id).await;

        let secret = "curl -H 'Authorization: Bearer sk-abcdefghijklmnopqrstuvwxyz123456' https://x";
        let id = id_of(&ask(&self.agent, json!({ "command": secret })).await);
        let get = self.admin.call("approval.get", &json!({ "id": id })).await;
        self.record("sanitise.secret", get.at("/approval/presentation/commandText"));
        self.deny(&self.admin, &id).await;
    }
}
