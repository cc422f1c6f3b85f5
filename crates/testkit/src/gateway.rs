//! A running gateway with people and agents to speak to it, over real HTTP and a real store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdgate_authority::{Policy, Role, Service};
use holdgate_core::Principal;
use holdgate_core::principal::PrincipalKind;
use holdgate_gateway::{Gateway, SharedOperator, credential_hash};
use holdgate_store::clock::{Clock, SystemClock};
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::Counting;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Who speaks. Each persona's token is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persona {
    /// A person who may decide.
    Reviewer,
    /// Another person who may decide.
    OtherReviewer,
    /// An agent.
    Agent,
    /// Another agent.
    OtherAgent,
    /// Somebody with a token that this gateway does not know.
    Outsider,
}

impl Persona {
    /// Everybody that the gateway knows.
    pub const KNOWN: [Persona; 4] = [Self::Reviewer, Self::OtherReviewer, Self::Agent, Self::OtherAgent];

    /// The persona's name, id and token.
    pub const fn name(self) -> &'static str {
        match self {
            Persona::Reviewer => "reviewer",
            Persona::OtherReviewer => "other-reviewer",
            Persona::Agent => "agent",
            Persona::OtherAgent => "other-agent",
            Persona::Outsider => "outsider",
        }
    }

    /// Who the persona is to the authority.
    pub fn principal(self) -> Principal {
        let kind = match self {
            Persona::Reviewer | Persona::OtherReviewer => PrincipalKind::Administrator,
            Persona::Agent | Persona::OtherAgent | Persona::Outsider => PrincipalKind::Agent,
        };
        let id = self.name().parse().expect("a persona's name is a valid id");
        Principal::new(id, kind, self.name())
    }
}

/// A gateway on a free port of the loopback address, with its own directory.
pub struct TestGateway {
    /// Where it answers.
    pub url: String,
    /// Its store.
    pub store: Arc<SqliteStore>,
    /// Counts what its service asks of the store.
    pub counting: Arc<Counting>,
    /// Its service.
    pub service: Arc<Service>,
    options: Options,
    client: reqwest::Client,
    running: Option<(oneshot::Sender<()>, JoinHandle<std::io::Result<()>>)>,
}

/// What stays the same over restarts.
#[derive(Clone)]
struct Options {
    dir: Arc<TempDir>,
    clock: Arc<dyn Clock>,
    policy: Policy,
    shares_operator: bool,
}

/// The shared operator credential of a gateway that takes one.
const SHARED_TOKEN: &str = "shared-operator-token-for-tests-0123456789";

impl TestGateway {
    /// Starts on an empty directory.
    pub async fn start() -> Self {
        Self::start_at(Arc::new(SystemClock::new())).await
    }

    /// Starts on an empty directory with these clocks.
    pub async fn start_at(clock: Arc<dyn Clock>) -> Self {
        Self::serve(Options { clock, ..options() }, None).await
    }

    /// Starts on an empty directory with this configuration.
    pub async fn start_with(policy: Policy) -> Self {
        Self::serve(Options { policy, ..options() }, None).await
    }

    /// Starts on an empty directory, with a shared operator credential as clients of the WebSocket protocol use it.
    pub async fn start_for_v4() -> Self {
        Self::serve(Options { shares_operator: true, ..options() }, None).await
    }

    /// Stops, then starts again on the same directory, as a new process would.
    pub async fn restart(self) -> Self {
        let options = self.options.clone();
        let address = self.url.trim_start_matches("http://").to_owned();
        self.stop().await;
        Self::serve(options, Some(address)).await
    }

    async fn serve(options: Options, address: Option<String>) -> Self {
        let open = OpenOptions { path: database(options.dir.path()), clock: Arc::clone(&options.clock) };
        let store = SqliteStore::open(open).expect("the store opens");
        for persona in Persona::KNOWN {
            let hash = credential_hash(persona.name());
            let op = Op::PutCredential { hash, principal: persona.principal(), recovers: false };
            store.execute(op).await.expect("a credential is stored");
        }
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let role = Role::Gateway { instance: "test".to_owned(), url: url.clone() };
        let counting = Counting::new(store.clone());
        let service = Service::start(counting.clone(), role).await.expect("the service starts");
        service.put_policy(options.policy.clone()).await.expect("the configuration is stored");
        let shared_operator = match options.shares_operator {
            true => Some(SharedOperator::provision(&*store, SHARED_TOKEN).await.expect("it is stored")),
            false => None,
        };
        let (stop, stopped) = oneshot::channel();
        let gateway = Gateway { service: Arc::clone(&service), metrics: None, shared_operator };
        let serving = tokio::spawn(holdgate_gateway::run(listener, gateway, async {
            // A dropped sender stops it as well.
            let _ = stopped.await;
        }));
        let redirect = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().redirect(redirect).no_proxy().build().expect("a client");
        Self { url, store, counting, service, options, client, running: Some((stop, serving)) }
    }

    /// Stops it and lets go of the database.
    pub async fn stop(mut self) {
        if let Some((stop, serving)) = self.running.take() {
            // The gateway may have ended by itself already.
            let _ = stop.send(());
            serving.await.expect("the gateway does not panic").expect("the gateway serves to its end");
        }
        self.store.close().await;
    }

    /// The database file.
    pub fn database(&self) -> PathBuf {
        database(self.options.dir.path())
    }

    /// Where it speaks the WebSocket protocol.
    pub fn ws_url(&self) -> String {
        self.url.replacen("http", "ws", 1)
    }

    /// The shared operator credential. Known only to a gateway that was started for it.
    pub fn shared_token(&self) -> &'static str {
        SHARED_TOKEN
    }

    /// Speaks as this persona.
    pub fn by(&self, persona: Persona) -> Caller {
        Caller { client: self.client.clone(), url: self.url.clone(), token: Some(persona.name()) }
    }

    /// Speaks without a credential.
    pub fn anonymous(&self) -> Caller {
        Caller { client: self.client.clone(), url: self.url.clone(), token: None }
    }
}

fn options() -> Options {
    let dir = Arc::new(tempfile::tempdir().expect("a temporary directory can be made"));
    Options { dir, clock: Arc::new(SystemClock::new()), policy: Policy::default(), shares_operator: false }
}

fn database(dir: &Path) -> PathBuf {
    dir.join("holdgate.db")
}

/// One voice.
#[derive(Clone)]
pub struct Caller {
    client: reqwest::Client,
    url: String,
    token: Option<&'static str>,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub text: String,
}

impl Reply {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The status and the problem's code.
    pub fn problem(&self) -> (u16, String) {
        (self.status, self.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    /// A text field of the body.
    pub fn field(&self, pointer: &str) -> String {
        self.json().pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl Caller {
    /// GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], None).await
    }

    /// POST of a JSON value.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, &[], Some(body.to_string())).await
    }

    /// Any request: method, headers, and the body as text.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Reply {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(token) = self.token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.expect("the gateway answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Reply { status, headers, text: response.text().await.expect("the answer is text") }
    }

    /// Asks for permission to run a command; answers its id and digest.
    pub async fn ask(&self, argv: &[&str]) -> (String, String) {
        let reply = self
            .post("/v1/approvals", serde_json::json!({ "kind": "exec", "content": { "argv": argv } }))
            .await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        (reply.field("/id"), reply.field("/digest"))
    }

    /// Answers a request.
    pub async fn decide(&self, id: &str, digest: &str, decision: &str) -> Reply {
        let body = serde_json::json!({ "decision": decision, "digest": digest });
        self.post(&format!("/v1/approvals/{id}/decision"), body).await
    }
}
