//! The demo's own gateway: a temporary home, a free port, in this process.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use anyhow::Context as _;
use holdgate_authority::Policy;
use holdgate_gateway::{Gateway, Reach};
use holdgate_store::mint;
use holdgate_store::sqlite::SqliteStore;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::exit::Failure;
use crate::home::Home;
use crate::served::Served;

/// A gateway that serves until it is stopped.
pub struct OwnGateway {
    pub home: Home,
    pub url: String,
    store: Arc<SqliteStore>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl OwnGateway {
    /// Makes a home that nobody else has and serves it.
    ///
    /// # Errors
    /// What cannot be made, or no free port.
    pub async fn start() -> Result<Self, Failure> {
        let dir = std::env::temp_dir().join(short_name(&mint::name("holdgate-demo")));
        // Not recursive: a directory that exists is somebody else's.
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot make the demo's home {}", dir.display()))?;
        let home = Home::at(Some(dir))?;
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let Served { store, service, doors, url, .. } =
            Served::open(&home, home.database(), Reach::plain(free), Policy::default(), false).await?;
        let (stop, stopped) = oneshot::channel();
        let gateway = Gateway { service, metrics: None, shared_operator: None };
        let serving = tokio::spawn(holdgate_gateway::serve(doors, gateway, async {
            // Stopped or dropped: either way it is over.
            let _ = stopped.await;
        }));
        Ok(Self { home, url, store, stop, serving })
    }

    /// Stops serving and lets go of the database.
    ///
    /// # Errors
    /// The gateway had broken down.
    pub async fn stop(self) -> anyhow::Result<()> {
        // It may have ended by itself, which the next line tells.
        let _ = self.stop.send(());
        let served = self.serving.await.context("the gateway broke down");
        self.store.close().await;
        served
    }
}

/// The prefix and the last digits, which are random: a path that people copy is better short.
fn short_name(minted: &str) -> String {
    const DIGITS: usize = 10;
    let (prefix, digits) = minted.rsplit_once('_').unwrap_or(("holdgate-demo", minted));
    format!("{prefix}-{}", &digits[digits.len().saturating_sub(DIGITS)..])
}
