//! A secret in every field that may carry one, and everywhere that it could come out.
//!
//! Looked through: log lines of every level, `/metrics`, every frame and body that the gateway sends, and the raw bytes
//! of the database, its log and its index. Two things are kept as they were given, and come out nowhere all the same: the
//! content of an action that waits for a stored run, which is what will run, in the column `approvals.content`; and the
//! names by which requests are found (session, run, agent, boundary). Both have secrets of their own.
//!
//! Who may decide a stored run's action is sent what will run as `content`, on purpose, and nowhere else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use holdgate_authority::{Role, Service};
use holdgate_gateway::{Gateway, SharedOperator, credential_hash, metrics_recorder};
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store as _};
use holdgate_testkit::gateway::Persona;
use holdgate_testkit::v4::{Auth, Client, Connect, Identity, Refused, Trace};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Text that nothing else contains: no part of it may come out.
fn canary(name: &str) -> String {
    let random = uuid_like();
    format!("cnry{name}{random}")
}

/// Twenty-four random hexadecimal digits.
fn uuid_like() -> String {
    holdgate_store::mint::secret("x").unwrap().chars().filter(char::is_ascii_alphanumeric).take(24).collect()
}

/// Every log line of this process, at every level.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Starts to listen, once for the process: the store's own threads log as well.
fn lines() -> Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    let start = || {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        tracing_subscriber::registry().with(log).init();
        lines
    };
    LINES.get_or_init(start).clone()
}

struct Stage {
    dir: tempfile::TempDir,
    store: Arc<SqliteStore>,
    url: String,
    /// Every frame of every WebSocket.
    trace: Trace,
    /// Every body that was received over HTTP.
    bodies: Mutex<String>,
}

impl Stage {
    async fn start(
        shared: &str,
        metrics: metrics_exporter_prometheus::PrometheusHandle,
    ) -> (Self, oneshot::Sender<()>) {
        let dir = tempfile::tempdir().unwrap();
        let options =
            OpenOptions { path: dir.path().join("holdgate.db"), clock: Arc::new(SystemClock::new()) };
        let store = SqliteStore::open(options).unwrap();
        for persona in Persona::KNOWN {
            let (hash, principal) = (credential_hash(persona.name()), persona.principal());
            store.execute(Op::PutCredential { hash, principal, recovers: false }).await.unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let role = Role::Gateway { instance: "canary".to_owned(), url: url.clone() };
        let service = Service::start(store.clone(), role).await.unwrap();
        let shared_operator = Some(SharedOperator::provision(&*store, shared).await.unwrap());
        let (stop, stopped) = oneshot::channel();
        let gateway = Gateway { service, metrics: Some(metrics), shared_operator };
        tokio::spawn(holdgate_gateway::run(listener, gateway, async {
            let _ = stopped.await;
        }));
        (Self { dir, store, url, trace: Trace::default(), bodies: Mutex::default() }, stop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> (u16, String) {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let mut request = client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), format!("{:?}", response.headers()));
        let text = response.text().await.unwrap();
        self.bodies.lock().unwrap().push_str(&format!("{path} {headers} {text}\n"));
        (status, text)
    }

    async fn by(&self, token: &str, path: &str, body: Value) -> (u16, Value) {
        let bearer = format!("Bearer {token}");
        let (status, text) =
            self.send(Method::POST, path, &[("authorization", &bearer)], Some(body.to_string())).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> String {
        self.send(Method::GET, path, &[("authorization", "Bearer reviewer")], None).await.1
    }

    async fn connect(&self, connect: Connect) -> Result<Client, Refused> {
        Client::connect(&self.url.replacen("http", "ws", 1), &connect, &self.trace).await
    }

    /// Everything that the gateway said over WebSockets.
    fn frames(&self) -> String {
        let lines = self.trace.lines();
        let received = lines.iter().filter(|line| line.direction != holdgate_testkit::v4::Direction::Sent);
        received.map(|line| format!("{line:?}\n")).collect()
    }

    /// The database, its write-ahead log and its index, as they lie on the disk now.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Where a secret stands although it must not.
async fn found(stage: &Stage, log: &Lines, secret: &str) -> Vec<String> {
    let metrics = stage.get("/metrics").await;
    let places = [
        ("log", String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned()),
        ("metrics", metrics),
        ("HTTP", stage.bodies.lock().unwrap().clone()),
        ("WebSocket", stage.frames()),
    ];
    let said = places.iter().flat_map(|(place, text)| {
        text.lines().filter(|line| line.contains(secret)).map(move |line| format!("{place}: {line}"))
    });
    let stored = stage.files().into_iter().filter(|(_, bytes)| contains(bytes, secret));
    said.chain(stored.map(|(path, bytes)| format!("{}: {}", path.display(), around(&bytes, secret))))
        .collect()
}

fn around(bytes: &[u8], secret: &str) -> String {
    let at = bytes.windows(secret.len()).position(|window| window == secret.as_bytes()).unwrap_or_default();
    String::from_utf8_lossy(&bytes[at.saturating_sub(120)..(at + 60).min(bytes.len())]).into_owned()
}

async fn credentials_of_nobody(stage: &Stage, secret: &str) {
    for credential in [secret.to_owned(), format!("hgo_{secret}")] {
        let bearer = format!("Bearer {credential}");
        let cookie = format!("holdgate-7420={credential}; __Host-holdgate-7420={credential}");
        for path in ["/v1/approvals", "/metrics", "/approve/x", "/v1/nothing"] {
            stage.send(Method::GET, path, &[("authorization", &bearer)], None).await;
            stage.send(Method::GET, path, &[("cookie", &cookie)], None).await;
        }
        let origin = stage.url.clone();
        let form = [("content-type", "application/x-www-form-urlencoded"), ("origin", origin.as_str())];
        stage.send(Method::POST, "/sign-in", &form, Some(format!("token={credential}"))).await;
        stage.by("nobody", "/v1/pairing/complete", json!({ "code": credential, "label": "phone" })).await;
        for auth in [
            Auth::token(&credential),
            Auth::device_token(&credential),
            Auth { bootstrap_token: Some(credential.clone()), ..Auth::default() },
            Auth { approval_runtime_token: Some(credential.clone()), ..Auth::token("agent") },
        ] {
            let says =
                Connect { identity: Some(Identity::named("stranger")), ..Connect::new("stranger", auth) };
            let _refused = stage.connect(says).await;
        }
        let socket = Client::open(&stage.url.replacen("http", "ws", 1), "raw", &stage.trace).await;
        socket.challenge().await;
        let says = Connect::new("raw", Auth::token("agent"));
        let mut params = says.params(&json!({ "nonce": "n", "ts": 0 }));
        params["auth"]["password"] = json!(credential);
        params["auth"]["unknown"] = json!(credential);
        socket.call("connect", &params).await;
    }
}

/// Every way to put a secret into what is asked. Each must be refused or shown without it.
async fn requests_with(stage: &Stage, agent: &Client, secret: &str) {
    let env = json!({ "API_TOKEN": secret, "PLAIN": secret });
    for params in [
        json!({ "command": "deploy", "env": env, "host": "gateway" }),
        json!({ "command": format!("curl -H 'Authorization: Bearer {secret}' https://a.example") }),
        json!({ "command": "curl", "commandArgv": ["curl", "-H", format!("Authorization: Bearer {secret}")] }),
        json!({ "command": format!("git clone https://user:{secret}@git.example/a") }),
        json!({ "command": format!("login --password {secret}"), "warningText": format!("token={secret}") }),
    ] {
        let reply = agent.call("exec.approval.request", &routeless(params)).await;
        assert!(reply.ok, "{reply:?}");
    }
    let plugin = json!({ "title": format!("password={secret}"), "description": format!("Authorization: Bearer {secret}"),
        "twoPhase": true });
    let reply = agent.call("plugin.approval.request", &plugin).await;
    assert!(reply.ok, "{reply:?}");
    let exec = |argv: Value| json!({ "kind": "exec", "content": { "argv": argv } });
    let tool = |input: Value| json!({ "kind": "tool", "content": { "kind": "tool_call", "toolName": "t", "input": input } });
    for body in [
        exec(json!(["curl", "-H", format!("Authorization: Bearer {secret}"), "https://a.example"])),
        exec(json!(["git", "clone", format!("https://user:{secret}@git.example/a")])),
        exec(json!(["login", "--password", secret])),
        exec(json!(["env", format!("API_TOKEN={secret}"), "deploy"])),
        tool(json!({ "password": secret, "apiKey": secret, "nested": { "client_secret": secret } })),
        json!({ "kind": "exec", "content": { "argv": ["ls"] }, "reason": format!("with the token={secret}") }),
        json!({ "kind": "exec", "content": { "argv": ["ls"] }, format!("password={secret}"): 1 }),
        json!({ "kind": format!("password={secret}"), "content": {} }),
    ] {
        stage.by("agent", "/v1/approvals", body).await;
    }
    let path = format!("/v1/approvals?agent=password%3D{secret}&unknown=token%3D{secret}");
    stage.get(&path).await;
    stage.get(&format!("/password={secret}")).await;
    agent.call("approval.get", &json!({ "id": "x", "password": secret })).await;
}

/// Names are no place for a secret, and are kept as they are given: requests are found by them.
async fn names_with(stage: &Stage, agent: &Client, secret: &str) {
    let name = format!("password={secret}");
    let content = json!({ "argv": ["ls", "-a"] });
    let source = json!({ "session": name, "sessionId": name, "agent": name, "runId": name, "taskId": name });
    let body = json!({ "kind": "exec", "content": content, "boundary": name, "source": source });
    assert_eq!(stage.by("agent", "/v1/approvals", body).await.0, 201);
    let params = json!({ "command": "ls -b", "agentId": name, "sessionKey": name, "sessionId": name, "runId": name,
        "turnSourceChannel": name, "turnSourceTo": name });
    let reply = agent.call("exec.approval.request", &routeless(params)).await;
    assert!(reply.ok, "{reply:?}");
}

/// Is answered as soon as it is taken, and waits for reviewers that are not there.
fn routeless(mut params: Value) -> Value {
    params["twoPhase"] = json!(true);
    params["requireDeliveryRoute"] = json!(false);
    params
}

/// Answers everything with a reason that carries a secret, and reads it back in every form.
async fn reviews_with(stage: &Stage, reviewer: &Client, secret: &str) {
    let listed: Value = serde_json::from_str(&stage.get("/v1/approvals?limit=100").await).unwrap();
    let items = listed["items"].as_array().unwrap_or_else(|| panic!("{listed}"));
    assert!(items.len() >= 12, "most of what was asked was taken: {listed}");
    for (index, item) in items.iter().enumerate() {
        let path = format!("/v1/approvals/{}", item["id"].as_str().unwrap());
        let decision = if index % 2 == 0 { "allow-once" } else { "deny" };
        let body =
            json!({ "decision": decision, "digest": item["digest"], "reason": format!("password={secret}") });
        stage.by("reviewer", &format!("{path}/decision"), body).await;
        let claim = json!({ "claimId": "c1", "digest": item["digest"] });
        if stage.by("agent", &format!("{path}/claim"), claim).await.0 == 200 {
            let receipt =
                json!({ "claimId": "c1", "outcome": "failed", "detail": format!("token={secret}") });
            stage.by("agent", &format!("{path}/receipt"), receipt).await;
        }
        stage.get(&path).await;
        stage.get(&format!("/approve/{}", item["id"].as_str().unwrap())).await;
    }
    stage.get("/v1/history?limit=100").await;
    for method in ["approval.history", "approval.list", "exec.approval.list", "plugin.approval.list"] {
        reviewer.call(method, &json!({})).await;
    }
}

/// Credentials that the gateway makes are told once, to whoever asked for them. They are nowhere else.
async fn made(stage: &Stage) -> Vec<String> {
    let mut made = Vec::new();
    for kind in ["agent", "runtime"] {
        let (status, token) =
            stage.by("reviewer", "/v1/tokens", json!({ "kind": kind, "name": format!("new-{kind}") })).await;
        assert_eq!(status, 201, "{token}");
        made.push(token["token"].as_str().unwrap().to_owned());
    }
    let (_, offered) = stage.by("reviewer", "/v1/pairing", json!({ "person": "alice" })).await;
    let code = offered["code"].as_str().unwrap().to_owned();
    let (status, paired) =
        stage.by("nobody", "/v1/pairing/complete", json!({ "code": code, "label": "phone" })).await;
    assert_eq!(status, 201, "{paired}");
    made.push(paired["token"].as_str().unwrap().to_owned());
    made.push(code);
    // They were told just now; from here on they must not be.
    stage.bodies.lock().unwrap().clear();
    for token in &made[..3] {
        let bearer = format!("Bearer {token}");
        assert_ne!(stage.send(Method::GET, "/v1/me", &[("authorization", &bearer)], None).await.0, 401);
    }
    for path in ["/v1/tokens", "/v1/devices", "/v1/administration"] {
        stage.get(path).await;
    }
    made
}

/// What a stored run asks for is kept as it is, because it is what will run.
async fn stored_run_with(stage: &Stage, secret: &str) {
    stage.by("agent", "/v1/runs", json!({ "id": "r1", "agent": "releaser" })).await;
    let (_, lease) = stage.by("agent", "/v1/runs/r1/lease", json!({})).await;
    let content = json!({ "kind": "tool_call", "toolName": "t", "input": { "password": secret } });
    let request = json!({ "kind": "tool", "boundary": "main:1", "content": content });
    let body = json!({ "fence": lease["fence"], "after": 0, "events": [{ "type": "asks" }], "state": "suspended", "approvals": [request] });
    let (status, appended) = stage.by("agent", "/v1/runs/r1/events", body).await;
    assert_eq!(status, 200, "{appended}");
}

/// Every text and blob of every table and column that contains `text`.
fn columns_with(database: &Path, text: &str) -> Vec<String> {
    let conn = rusqlite::Connection::open(database).unwrap();
    let names = |sql: &str| -> Vec<String> {
        let mut statement = conn.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let mut found = Vec::new();
    for table in names("SELECT name FROM sqlite_schema WHERE type = 'table'") {
        for column in names(&format!("SELECT name FROM pragma_table_info('{table}')")) {
            let sql = format!(
                "SELECT count(*) FROM \"{table}\" WHERE instr(CAST(\"{column}\" AS BLOB), CAST(?1 AS BLOB))"
            );
            let count: i64 = conn.query_row(&sql, [text], |row| row.get(0)).unwrap();
            if count > 0 {
                found.push(format!("{table}.{column}"));
            }
        }
    }
    found
}

#[tokio::test]
async fn a_secret_comes_out_nowhere() {
    let log = lines();
    let recorder = metrics_recorder().unwrap().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (wrong, asked, reason, shared) =
        (canary("wrong"), canary("asked"), canary("reason"), canary("shared"));
    let (stage, stop) = Stage::start(&shared, recorder.handle()).await;

    let says = Connect::new("reviewer", Auth::token("reviewer")).scopes(&["operator.admin"]).approvals();
    let reviewer = stage.connect(says).await.unwrap();
    let says = Connect::new("shared", Auth::token(&shared)).scopes(&["operator.admin"]).approvals();
    let sharing = stage.connect(says).await.unwrap();
    let says = Connect::new("agent", Auth::token("agent")).client("gateway-client", "backend");
    let agent = stage.connect(says).await.unwrap();
    let subscribed = json!({ "key": "agent:main:main" });
    reviewer.call("sessions.messages.subscribe", &subscribed).await;

    credentials_of_nobody(&stage, &wrong).await;
    requests_with(&stage, &agent, &asked).await;
    let named = canary("named");
    names_with(&stage, &agent, &named).await;
    reviews_with(&stage, &reviewer, &reason).await;
    let made = made(&stage).await;
    sharing.call("approval.list", &json!({})).await;

    assert!(contains(&log.0.lock().unwrap(), "transition"), "the log is heard");
    assert!(stage.frames().contains("approval.requested"), "events are heard");
    for secret in [&wrong, &asked, &reason, &shared].into_iter().chain(&made) {
        let found = found(&stage, &log, secret).await;
        assert!(found.is_empty(), "{secret}: {found:#?}");
    }

    let kept = canary("kept");
    stored_run_with(&stage, &kept).await;
    for secret in [&kept, &named] {
        let found = found(&stage, &log, secret).await;
        let is_file = |place: &String| place.starts_with(&stage.dir.path().display().to_string());
        assert!(found.iter().any(is_file), "it is kept");
        assert!(found.iter().all(is_file), "{found:#?}");
    }
    let pending: Value =
        serde_json::from_str(&stage.get("/v1/approvals?kind=tool&status=pending").await).unwrap();
    let mut shown = pending["items"][0].clone();
    let content = shown.as_object_mut().unwrap().remove("content").unwrap();
    assert!(content.to_string().contains(&kept) && !shown.to_string().contains(&kept), "{shown}");
    // Whoever stops it lets go of the file.
    drop(stop);
    stage.store.close().await;
    assert_eq!(columns_with(&stage.dir.path().join("holdgate.db"), &kept), ["approvals.content"]);
}
