//! What a gateway in this process needs before it serves, made in the one safe order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use holdgate_authority::{Role, Service};
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Store, StoreError};
use tokio::net::TcpListener;

use crate::exit::{Exit, Failure};
use crate::home::Home;

/// The gateway's stable name: a home has one.
const INSTANCE: &str = "default";

/// A gateway that has everything it needs and is about to serve.
pub struct Served {
    pub store: Arc<SqliteStore>,
    pub service: Arc<Service>,
    pub listener: TcpListener,
    pub url: String,
}

impl Served {
    /// The lock first: nobody else may provision or end epochs. The epoch last: a start that fails ends nothing.
    ///
    /// # Errors
    /// What is wrong with the home, the database or the address; exit 1 with the owner if another process has it.
    pub async fn open(home: &Home, database: PathBuf, address: SocketAddr) -> Result<Self, Failure> {
        home.create()?;
        let options = OpenOptions { path: database, clock: Arc::new(SystemClock::new()) };
        let store = SqliteStore::open(options).map_err(refused)?;
        home.provision(&*store).await?;
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address}; name another address with --listen, port 0 for any free one")
        })?;
        let url = format!("http://{}", listener.local_addr()?);
        store.set_owner_url(&url).map_err(anyhow::Error::from)?;
        let as_store: Arc<dyn Store> = store.clone();
        let role = Role::Gateway { instance: INSTANCE.to_owned(), url: url.clone() };
        let service = Service::start(as_store, role).await?;
        Ok(Self { store, service, listener, url })
    }
}

fn refused(error: StoreError) -> Failure {
    match error {
        StoreError::Owned { path, owner } => Failure::new(
            Exit::Failed,
            format!("{path} is already served or in use by {owner}; stop that first, or name another --home"),
        ),
        error => anyhow::Error::from(error).into(),
    }
}
