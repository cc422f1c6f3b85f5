//! What operators can count: every number on `/metrics` after a script of approvals.

use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Role, Service};
use holdgate_core::Time;
use holdgate_gateway::{Gateway, credential_hash, metrics_recorder};
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store as _};
use holdgate_testkit::clock::ManualClock;
use holdgate_testkit::gateway::Persona;
use holdgate_testkit::v4::{Auth, Client, Connect, Trace};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A gateway that renders what it counts.
struct Observed {
    store: Arc<SqliteStore>,
    url: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Observed {
    async fn start(dir: &std::path::Path, clock: &Arc<ManualClock>, metrics: &PrometheusHandle) -> Self {
        let options = OpenOptions { path: dir.join("holdgate.db"), clock: clock.clone() };
        let store = SqliteStore::open(options).unwrap();
        for persona in Persona::KNOWN {
            let (hash, principal) = (credential_hash(persona.name()), persona.principal());
            store.execute(Op::PutCredential { hash, principal, recovers: false }).await.unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let role = Role::Gateway { instance: "observed".to_owned(), url: url.clone() };
        let service = Service::start(store.clone(), role).await.unwrap();
        let gateway = Gateway { service, metrics: Some(metrics.clone()), shared_operator: None };
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(holdgate_gateway::run(listener, gateway, async {
            let _ = stopped.await;
        }));
        Self { store, url, stop, serving }
    }

    async fn call(&self, by: Persona, path: &str, body: &Value) -> Value {
        let request = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = request.post(format!("{}{path}", self.url)).bearer_auth(by.name());
        request.json(body).send().await.unwrap().json().await.unwrap()
    }

    async fn ask(&self, kind: &str, name: &str) -> Value {
        let content = match kind {
            "exec" => json!({ "argv": [name] }),
            _ => json!({ "kind": "tool_call", "toolName": name, "input": {} }),
        };
        let body =
            json!({ "kind": kind, "content": content, "source": { "session": "s1" }, "timeoutMs": 10_000 });
        self.call(Persona::Agent, "/v1/approvals", &body).await
    }

    async fn decide(&self, by: Persona, asked: &Value, decision: &str) -> Value {
        let path = format!("/v1/approvals/{}/decision", asked["id"].as_str().unwrap());
        self.call(by, &path, &json!({ "decision": decision, "digest": asked["digest"] })).await
    }

    /// The samples of these families, but for what belongs to the transport.
    async fn samples(&self) -> Vec<String> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.get(format!("{}/metrics", self.url)).bearer_auth(Persona::Agent.name());
        let text = request.send().await.unwrap().text().await.unwrap();
        let kept = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("holdgate_http_"));
        kept.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Waits until every commit has been observed: observers follow commits.
    async fn until(&self, sample: &str) -> Vec<String> {
        for _ in 0..1_000 {
            let samples = self.samples().await;
            if samples.iter().any(|line| line == sample) {
                return samples;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{sample} does not come: {:#?}", self.samples().await);
    }

    /// Ends as a killed process does: nothing that waits on it is told.
    async fn die(self) {
        self.serving.abort();
        self.store.close().await;
        drop(self.stop);
    }
}

#[tokio::test]
async fn a_script_of_approvals_gives_exactly_its_numbers() {
    let recorder = metrics_recorder().unwrap().build_recorder();
    let metrics = recorder.handle();
    // This runtime has one thread, so that nothing of another test is counted.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(Time::from_ms(1_800_000_000_000));
    let gateway = Observed::start(dir.path(), &clock, &metrics).await;

    let allowed = gateway.ask("exec", "allowed").await;
    clock.advance(5_000);
    gateway.decide(Persona::Reviewer, &allowed, "allow-once").await;
    gateway.decide(Persona::OtherReviewer, &allowed, "allow-once").await;
    gateway.decide(Persona::OtherReviewer, &allowed, "deny").await;
    let claim = json!({ "claimId": "c1", "digest": allowed["digest"] });
    let path = format!("/v1/approvals/{}", allowed["id"].as_str().unwrap());
    gateway.call(Persona::Agent, &format!("{path}/claim"), &claim).await;
    let receipt = json!({ "claimId": "c1", "outcome": "succeeded" });
    gateway.call(Persona::Agent, &format!("{path}/receipt"), &receipt).await;
    let denied = gateway.ask("tool", "denied").await;
    gateway.decide(Persona::Reviewer, &denied, "deny").await;
    let silent = gateway.ask("exec", "silent").await;
    clock.advance(10_000);
    gateway.decide(Persona::Reviewer, &silent, "allow-once").await;
    unrouted(&gateway).await;
    let orphan = gateway.ask("exec", "orphan").await;

    let samples = gateway.until(r#"holdgate_requests_total{kind="exec"} 4"#).await;
    for expected in [
        r#"holdgate_requests_total{kind="tool"} 1"#,
        r#"holdgate_terminals_total{kind="exec",status="allowed",reason="user"} 1"#,
        r#"holdgate_terminals_total{kind="exec",status="expired",reason="timeout"} 1"#,
        r#"holdgate_terminals_total{kind="exec",status="denied",reason="no-route"} 1"#,
        r#"holdgate_terminals_total{kind="tool",status="denied",reason="user"} 1"#,
        r#"holdgate_resolve_races_total{outcome="winner"} 2"#,
        r#"holdgate_resolve_races_total{outcome="idempotent-retry"} 1"#,
        r#"holdgate_resolve_races_total{outcome="conflict"} 1"#,
        r#"holdgate_resolve_races_total{outcome="expired"} 1"#,
        r#"holdgate_pending{kind="exec"} 1"#,
        r#"holdgate_pending{kind="tool"} 0"#,
        r#"holdgate_routes_total{route="none"} 1"#,
        "holdgate_no_route_total 1",
        r#"holdgate_claims_total{kind="exec"} 1"#,
        r#"holdgate_receipts_total{kind="exec",outcome="succeeded"} 1"#,
        // Five seconds, ten, and none.
        r#"holdgate_request_to_terminal_seconds_bucket{kind="exec",le="5"} 2"#,
        r#"holdgate_request_to_terminal_seconds_bucket{kind="exec",le="15"} 3"#,
        r#"holdgate_request_to_terminal_seconds_sum{kind="exec"} 15"#,
        r#"holdgate_request_to_terminal_seconds_count{kind="exec"} 3"#,
        r#"holdgate_request_to_terminal_seconds_bucket{kind="tool",le="0.1"} 1"#,
        r#"holdgate_audience_sessions_bucket{le="0"} 1"#,
        r#"holdgate_audience_sessions_bucket{le="1"} 5"#,
    ] {
        assert!(samples.iter().any(|line| line == expected), "{expected}: {samples:#?}");
    }
    assert!(!samples.iter().any(|line| line.starts_with("holdgate_orphans_total")), "{samples:#?}");
    assert!(
        !samples.iter().any(|line| line.contains("quantile")),
        "a histogram without buckets: {samples:#?}"
    );
    let ids = [&allowed, &denied, &silent, &orphan].map(|asked| asked["id"].as_str().unwrap().to_owned());
    assert!(!samples.iter().any(|line| ids.iter().any(|id| line.contains(id.as_str()))), "no id is a label");

    gateway.die().await;
    clock.advance(1_000);
    let next = Observed::start(dir.path(), &clock, &metrics).await;
    let samples = next.until(r#"holdgate_orphans_total{reason="gateway-restart"} 1"#).await;
    let cancelled = r#"holdgate_terminals_total{kind="exec",status="cancelled",reason="gateway-restart"} 1"#;
    for expected in [cancelled, r#"holdgate_pending{kind="exec"} 0"#] {
        assert!(samples.iter().any(|line| line == expected), "{expected}: {samples:#?}");
    }
    next.die().await;
}

/// A request that needs a route and has none.
async fn unrouted(gateway: &Observed) {
    let says = Connect::new("agent", Auth::token("agent")).client("gateway-client", "backend");
    let client =
        Client::connect(&gateway.url.replacen("http", "ws", 1), &says, &Trace::default()).await.unwrap();
    let params = json!({ "command": "unrouted", "requireDeliveryRoute": true });
    let reply = client.call("exec.approval.request", &params).await;
    assert!(reply.ok, "{reply:?}");
}
