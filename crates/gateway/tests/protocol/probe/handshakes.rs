//! Connecting rightly and wrongly, and frames that are no requests.

use std::time::Duration;

use holdgate_testkit::v4::{Auth, Client, Connect, Payload};
use serde_json::{Value, json};

use super::{APPROVER, Probe, present};

/// How long a close that must not come is waited for.
const SILENCE: Duration = Duration::from_millis(50);

impl Probe<'_> {
    pub(super) async fn handshakes(&mut self) {
        self.signatures().await;
        self.protocols_and_tokens().await;
        self.device_tokens().await;
        self.first_frame().await;
        self.odd_frames().await;
    }

    /// A device of its own that may read.
    fn reader(&self, name: &str) -> Connect {
        self.named(name).device().scopes(&["operator.read"])
    }

    async fn signatures(&mut self) {
        let name = "v2 signature";
        let older = Connect { payload: Payload::V2, ..self.reader(name) };
        self.shake(older).await;
        let name = "bad nonce";
        let wrong = Connect { nonce: Some("zzz".to_owned()), ..self.reader(name) };
        self.shake(wrong).await;
        let name = "stale signedAt";
        let late = Connect { signed_at_offset_ms: -121_000, ..self.reader(name) };
        self.shake(late).await;
    }

    async fn protocols_and_tokens(&mut self) {
        for (name, min_protocol, max_protocol) in
            [("protocol 3 operator", 3, 3), ("protocol 3-4", 3, 4), ("protocol 4-9", 4, 9)]
        {
            let range = Connect { min_protocol, max_protocol, ..self.reader(name) };
            self.shake(range).await;
        }
        let wrong = Connect { auth: Auth::token("nope"), ..self.reader("bad token") };
        self.shake(wrong).await;
        let none = Connect { auth: Auth::default(), ..self.reader("no auth") };
        self.shake(none).await;
        let unknown = Connect { client_id: "my-rust-client".to_owned(), ..self.reader("unknown client id") };
        self.shake(unknown).await;
        let unknown = Connect { role: "king".to_owned(), ..self.reader("bad role") };
        self.shake(unknown).await;
        let bare = self.named("no device cli").scopes(&["operator.read"]);
        self.shake(bare).await;
        let unknown = self.named("unknown scope").device().scopes(&["operator.bogus"]);
        self.shake(unknown).await;
        let none = self.named("no scopes").device();
        self.shake(none).await;
    }

    async fn device_tokens(&mut self) {
        let device = self.named("paired").device().scopes(&APPROVER);
        let identity = device.identity.clone();
        let paired = self.dial(device).await;
        let token = paired.hello()["auth"]["deviceToken"].as_str().unwrap_or_default().to_owned();
        paired.close().await;
        let again = |name: &str, auth: Auth, scopes: &[&str]| Connect {
            identity: identity.clone(),
            ..Connect::new(name, auth).scopes(scopes)
        };
        let by_device = Auth::device_token(&token);
        self.shake(again("device token reconnect", by_device.clone(), &APPROVER)).await;
        self.shake(again("device token as auth.token", Auth::token(&token), &["operator.read"])).await;
        self.shake(again("device token scope upgrade", by_device.clone(), &["operator.admin"])).await;
        let moved = again("platform change", by_device, &["operator.read"]);
        self.shake(Connect { platform: "darwin".to_owned(), ..moved }).await;
    }

    async fn shake(&mut self, connect: Connect) {
        let observed = match Client::connect(&self.peer.url, &connect, &self.trace).await {
            Ok(client) => {
                let mut auth = client.hello()["auth"].clone();
                if let Some(fields) = auth.as_object_mut() {
                    fields.remove("recoveryScope");
                    if let Some(token) = fields.get_mut("deviceToken") {
                        *token = json!("<present>");
                    }
                }
                client.close().await;
                json!({ "ok": true, "auth": auth })
            }
            Err(refused) => {
                let close = refused.close.map_or(Value::Null, |close| close.to_value());
                present(&[("error", refused.error), ("close", close)])
            }
        };
        self.record(format!("hs.{}", connect.name), observed);
    }

    async fn first_frame(&mut self) {
        let client = Client::open(&self.peer.url, "rawfirst", &self.trace).await;
        client.challenge().await;
        client.send_text(r#"{"type":"req","id":"1","method":"health","params":{}}"#).await;
        let close = client.ended().await.map_or(Value::Null, |close| close.to_value());
        let extra = client.extra(1).await;
        self.record("hs.first frame not connect", present(&[("extra", json!(extra)), ("close", close)]));
    }

    async fn odd_frames(&mut self) {
        self.req_dev.send_text("not json").await;
        tokio::time::sleep(SILENCE).await;
        let close = self.req_dev.closed().map_or(Value::Null, |close| close.to_value());
        let extra = self.req_dev.extra(1).await;
        self.record("frame.not json", present(&[("extra", json!(extra)), ("close", close)]));
        self.req_dev.send_text(r#"{"type":"req","id":"z1"}"#).await;
        let extra = self.req_dev.extra(1).await;
        tokio::time::sleep(SILENCE).await;
        let close = self.req_dev.closed().map_or(Value::Null, |close| close.to_value());
        self.record("frame.no method", present(&[("extra", json!(extra)), ("close", close)]));
    }
}
