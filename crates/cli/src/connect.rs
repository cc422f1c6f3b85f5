//! From a command to an authority: the gateway that was named, the one that owns the home's database, or, where a
//! command may, the database itself.
//!
//! Owns the order in which they are sought. Decides nothing about approvals.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use holdgate_authority::{Admin, Authority, Local, Role, Service};
use holdgate_client::Remote;
use holdgate_gateway::credential_hash;
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore, owner_of};
use holdgate_store::{Credential, Owner, Store, StoreError};

use crate::environment;
use crate::exit::{Exit, Failure, say};
use crate::home::{DeviceCredential, Home, Identity};
use crate::shell;

/// Where to seek an authority.
#[derive(Clone, Debug)]
pub struct Target {
    /// The gateway that was named, if one was.
    pub url: Option<String>,
    /// The home directory.
    pub home: Home,
}

impl Target {
    /// This program on the same target, for people to copy. The home is named unless it is the one without a name; a
    /// token never is.
    pub fn command(&self) -> String {
        let mut command = shell::our_name();
        if !Home::at(None).is_ok_and(|usual| usual == self.home) {
            command += &format!(" --home {}", shell::word(self.home.dir()));
        }
        if let Some(url) = &self.url {
            command += &format!(" --url {}", shell::word(url));
        }
        command
    }
}

/// What a command does when no gateway serves the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutGateway {
    /// It needs one.
    GiveUp,
    /// It opens the home's database for itself, if there is one.
    Open,
    /// It opens the home's database for itself, and makes it if there is none.
    OpenOrCreate,
}

/// An authority to speak to, as one identity.
pub struct Connection {
    /// The authority.
    pub authority: Arc<dyn Authority>,
    /// The same, to administer it.
    pub admin: Arc<dyn Admin>,
    /// Who serves it.
    pub serves: Serves,
}

/// Who serves a connection's authority.
pub enum Serves {
    /// A gateway.
    Gateway {
        /// Where it answers.
        url: String,
    },
    /// This process. Until it lets go nobody else can open the database, to decide or for anything else. Deadlines
    /// and leases are judged at every read; nothing sweeps, so that a look at a home whose gateway is away ends no
    /// request that waits for its return.
    Here(Arc<SqliteStore>),
}

impl Connection {
    /// Lets go of the database, if this process holds it.
    pub async fn close(self) {
        if let Serves::Here(store) = self.serves {
            store.close().await;
        }
    }
}

/// Whoever acts at the database should know that it is not at a gateway.
pub fn say_that_no_gateway_runs(target: &Target) {
    say(&format!("no gateway is running; using the database in {}", target.home.dir().display()));
}

/// Connects as the administrator, to a gateway or else to the database, acts, and lets go.
///
/// # Errors
/// As [`connect`]; what the act fails with.
pub async fn administer<T>(
    target: &Target,
    act: impl AsyncFnOnce(&dyn Admin) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let connection = connect_when_free(target, Identity::Operator, WithoutGateway::Open).await?;
    if let Serves::Here(_) = connection.serves {
        say_that_no_gateway_runs(target);
    }
    let done = act(&*connection.admin).await;
    connection.close().await;
    done
}

/// Where the gateway is that a reviewer's surface connects to, and with which token.
///
/// # Errors
/// Exit 7 when there is none; otherwise what is wrong with the home or the token.
pub fn gateway(target: &Target) -> Result<(String, String), Failure> {
    let home = &target.home;
    let url = match (&target.url, paired_elsewhere(home, Identity::Operator)?) {
        (Some(url), _) => Some(url.clone()),
        (None, Some(device)) => Some(device.url),
        (None, None) => owner_of(&home.database()).and_then(|owner| owner.url),
    };
    let url = url.ok_or_else(|| {
        Failure::new(
            Exit::Unreachable,
            format!(
                "no gateway serves the home {}; start one with `holdgate serve`, or name one with --url",
                home.dir().display()
            ),
        )
    })?;
    let token = token(home, Identity::Operator, Some(&url))?;
    Ok((url, token))
}

/// Finds the authority and speaks to it as `identity`.
///
/// # Errors
/// Exit 7 when there is no gateway and the command cannot do without; otherwise what is wrong with the home, the
/// database, the URL or the token.
pub async fn connect(
    target: &Target,
    identity: Identity,
    without: WithoutGateway,
) -> Result<Connection, Failure> {
    find(target, identity, without).await.map_err(Sought::into_failure)
}

/// As [`connect`], for a command that only looks itself: another one that looks into the database is gone in a moment,
/// and a gateway that starts has a URL in one. It waits that long.
///
/// # Errors
/// As [`connect`].
pub async fn connect_when_free(
    target: &Target,
    identity: Identity,
    without: WithoutGateway,
) -> Result<Connection, Failure> {
    for _ in 1..LOOKS {
        match find(target, identity, without).await {
            Err(Sought::InUse(_)) => tokio::time::sleep(BETWEEN_LOOKS).await,
            found => return found.map_err(Sought::into_failure),
        }
    }
    connect(target, identity, without).await
}

const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Why no authority was found.
enum Sought {
    /// A process that serves no gateway has the database.
    InUse(Failure),
    /// Anything else.
    Failed(Failure),
}

impl Sought {
    fn into_failure(self) -> Failure {
        let (Self::InUse(failure) | Self::Failed(failure)) = self;
        failure
    }
}

impl<E: Into<Failure>> From<E> for Sought {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

async fn find(target: &Target, identity: Identity, without: WithoutGateway) -> Result<Connection, Sought> {
    let home = &target.home;
    if let Some(url) = &target.url {
        return Ok(remote(url, home, identity)?);
    }
    if let Some(device) = paired_elsewhere(home, identity)? {
        return Ok(remote(&device.url, home, identity)?);
    }
    Ok(match (owner_of(&home.database()), without) {
        (Some(Owner { url: Some(url), .. }), _) => remote(&url, home, identity)?,
        (Some(owner), _) => return Err(Sought::InUse(owned(home, &owner))),
        (None, WithoutGateway::OpenOrCreate) => open(home, identity, without).await?,
        (None, WithoutGateway::Open) if exists(home)? => open(home, identity, without).await?,
        (None, WithoutGateway::Open | WithoutGateway::GiveUp) => {
            return Err(Sought::Failed(Failure::new(
                Exit::Unreachable,
                format!(
                    "no gateway serves the home {}; start one with `holdgate serve`, or name one with --url",
                    home.dir().display()
                ),
            )));
        }
    })
}

/// The device that this home makes of its machine, where it has no database of its own.
fn paired_elsewhere(home: &Home, identity: Identity) -> anyhow::Result<Option<DeviceCredential>> {
    if identity == Identity::Agent || exists(home)? { Ok(None) } else { home.device() }
}

fn exists(home: &Home) -> anyhow::Result<bool> {
    let path = home.database();
    path.try_exists().with_context(|| format!("cannot look for {}", path.display()))
}

fn remote(url: &str, home: &Home, identity: Identity) -> Result<Connection, Failure> {
    let token = token(home, identity, Some(url))?;
    let remote = Arc::new(Remote::new(url, &token).context("the gateway cannot be used")?);
    let url = remote.url().to_owned();
    Ok(Connection { authority: remote.clone(), admin: remote, serves: Serves::Gateway { url } })
}

async fn open(home: &Home, identity: Identity, without: WithoutGateway) -> Result<Connection, Sought> {
    let may_create = without == WithoutGateway::OpenOrCreate;
    if may_create {
        home.create()?;
    }
    let options = OpenOptions { path: home.database(), clock: Arc::new(SystemClock::new()) };
    let store = match SqliteStore::open(options) {
        Ok(store) => store,
        // Somebody was faster, since we looked.
        Err(StoreError::Owned { owner: Owner { url: Some(url), .. }, .. }) => {
            return Ok(remote(&url, home, identity)?);
        }
        Err(StoreError::Owned { owner, .. }) => return Err(Sought::InUse(owned(home, &owner))),
        Err(error) => return Err(anyhow::Error::from(error).into()),
    };
    if may_create {
        home.provision(&*store).await?;
    }
    let as_store: Arc<dyn Store> = store.clone();
    let service = Service::start(as_store, Role::Embedded).await?;
    // The file's owner could write anything into it; asking for the token all the same keeps one authorisation for
    // every way in, and says early that a token is not this database's.
    let hash = credential_hash(&token(home, identity, None)?);
    let known = service.authenticate(Credential::Token(hash)).await?;
    let principal = known.with_context(|| {
        format!(
            "the token is not known to {}; start `holdgate serve` in this home once",
            home.database().display()
        )
    })?;
    let local = Arc::new(Local::new(service, principal));
    Ok(Connection { authority: local.clone(), admin: local, serves: Serves::Here(store) })
}

/// The credential to show: what the environment says, the home's file, or, on a machine that is a paired device, the
/// device's, to its own gateway only.
fn token(home: &Home, identity: Identity, url: Option<&str>) -> anyhow::Result<String> {
    if let Some(token) = environment::token()? {
        return Ok(token);
    }
    let device = if identity == Identity::Operator { home.device()? } else { None };
    let is_its = |of: &str| url.is_some_and(|url| url.trim_end_matches('/') == of.trim_end_matches('/'));
    match device {
        Some(device) if is_its(&device.url) => Ok(device.token),
        Some(device) => bail!(
            "this machine is paired as a device with {}, and its token goes nowhere else; leave --url away",
            device.url
        ),
        None => home.token(identity),
    }
}

fn owned(home: &Home, owner: &Owner) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!(
            "{} is in use by {owner}; try again when it has ended, or start `holdgate serve` then",
            home.database().display()
        ),
    )
}
