//! What a gateway in this process needs before it serves, made in the one safe order.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use holdgate_authority::{Policy, Role, Service};
use holdgate_gateway::{Door, Reach, SharedOperator};
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
    /// The first is the one that was asked for.
    pub doors: Vec<Door>,
    /// What links begin with.
    pub url: String,
    /// Where this machine's own commands find it.
    pub local_url: String,
    /// The one operator credential for everybody, if it was asked for.
    pub shared_operator: Option<SharedOperator>,
}

impl Served {
    /// The lock first: nobody else may provision or end epochs. The epoch last: a start that fails ends nothing.
    ///
    /// # Errors
    /// What is wrong with the home, the database or the address; exit 1 with the owner if another process has it.
    pub async fn open(
        home: &Home,
        database: PathBuf,
        reach: Reach,
        policy: Policy,
        shares_operator: bool,
    ) -> Result<Self, Failure> {
        home.create()?;
        let options = OpenOptions { path: database, clock: Arc::new(SystemClock::new()) };
        let store = SqliteStore::open(options).map_err(refused)?;
        home.provision(&*store).await?;
        let door = open_door(reach).await?;
        let url = door.reach.url();
        let mut doors = vec![door];
        doors.extend(local_door(&doors[0].reach).await?);
        // They speak plain HTTP to this machine and nothing else.
        let local = &doors[doors.len() - 1].reach;
        let local_url = format!("http://{}{}", local.listen, local.base_path());
        store.set_owner_url(&local_url).map_err(anyhow::Error::from)?;
        let as_store: Arc<dyn Store> = store.clone();
        let role = Role::Gateway { instance: INSTANCE.to_owned(), url: url.clone() };
        let service = Service::start(as_store, role).await?;
        service.put_policy(policy).await?;
        let shared_operator = match shares_operator {
            true => Some(SharedOperator::provision(&*store, &home.shared_token()?).await?),
            false => {
                SharedOperator::withdraw(&*store).await?;
                None
            }
        };
        Ok(Self { store, service, doors, url, local_url, shared_operator })
    }
}

async fn open_door(reach: Reach) -> anyhow::Result<Door> {
    let address = reach.listen;
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; name another address with --listen, port 0 for any free one")
    })?;
    Ok(Door { reach: Reach { listen: listener.local_addr()?, ..reach }, listener })
}

/// A plain door for this machine's own commands, where the one that was asked for is none.
async fn local_door(main: &Reach) -> anyhow::Result<Option<Door>> {
    if main.is_local() && main.tls.is_none() {
        return Ok(None);
    }
    let reach = Reach {
        public_url: main.public_url.clone(),
        ..Reach::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    };
    open_door(reach).await.map(Some)
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
