//! A gateway that is reached in some particular way, on a real store, spoken to in bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use holdgate_authority::{Role, Service};
use holdgate_gateway::{Door, Gateway, Reach, credential_hash, serve};
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store};
use holdgate_testkit::gateway::Persona;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A gateway with one door.
pub struct Reached {
    /// Where it listens.
    pub address: SocketAddr,
    /// The name that it is asked under.
    pub host: String,
    store: Arc<SqliteStore>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    _dir: TempDir,
}

impl Reached {
    /// Serves on a free port; `reach` makes of the plain reach of it what is wanted.
    pub async fn start(host: &str, reach: impl AsyncFnOnce(Reach) -> Reach) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holdgate.db");
        let store = SqliteStore::open(OpenOptions { path, clock: Arc::new(SystemClock::new()) }).unwrap();
        for persona in Persona::KNOWN {
            let hash = credential_hash(persona.name());
            store
                .execute(Op::PutCredential { hash, principal: persona.principal(), recovers: false })
                .await
                .unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reach = reach(Reach::plain(address)).await;
        let role = Role::Gateway { instance: "test".to_owned(), url: reach.url() };
        let as_store: Arc<dyn Store> = store.clone();
        let service = Service::start(as_store, role).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let gateway = Gateway { service, metrics: None, shared_operator: None };
        let serving = tokio::spawn(serve(vec![Door { listener, reach }], gateway, async {
            let _ = stopped.await;
        }));
        Self { address, host: host.to_owned(), store, stop, serving, _dir: dir }
    }

    /// Stops it.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
        self.store.close().await;
    }

    /// One request on a plain connection of its own.
    pub async fn ask(&self, head: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        ask(stream, &self.host, head, headers, body).await
    }

    /// Asks for permission as the agent, under a base path; answers the record.
    pub async fn request(&self, base: &str) -> Value {
        let body = json!({ "kind": "exec", "content": { "argv": ["git", "push"] } }).to_string();
        let headers = [("authorization", "Bearer agent")];
        let answer = self.ask(&format!("POST {base}/v1/approvals"), &headers, &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json()
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Head and body.
    pub text: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(self.text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

/// Sends one request, `METHOD PATH`, and reads to the end.
pub async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    head: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    Answer { status: status.unwrap_or_else(|| panic!("{text:?}")), text }
}
