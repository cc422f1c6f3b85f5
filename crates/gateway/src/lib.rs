//! The gateway: the authority's HTTP API and the reviewer page.
//!
//! Owns the network and nothing behind it. `serve` is given bound listeners and told when to stop.

mod auth;
mod connections;
mod http;
pub mod page;
mod reach;
mod rpc;
mod shares;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::Service;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use auth::credential_hash;
pub use http::metrics_recorder;
pub use reach::{ClientAddress, InvalidPublicUrl, PublicUrl, Reach, Tls, TlsError, Unreachable};
pub use rpc::{SharedOperator, pairing_code_hash};

/// How long open WebSockets may take to hear that the gateway stops.
const PARTING: Duration = Duration::from_millis(1_000);

/// What a gateway serves.
#[derive(Clone)]
pub struct Gateway {
    /// The authority.
    pub service: Arc<Service>,
    /// Renders `/metrics`. Without it the route answers that there are none.
    pub metrics: Option<PrometheusHandle>,
    /// The one operator credential for everybody, if this gateway takes one. Advisory.
    pub shared_operator: Option<SharedOperator>,
}

/// A listener, and how it is reached.
#[derive(Debug)]
pub struct Door {
    /// Bound already.
    pub listener: TcpListener,
    /// Under which names and by what means.
    pub reach: Reach,
}

impl Door {
    /// A plain listener, reached from this machine only.
    ///
    /// # Errors
    /// Fails if it is not bound.
    pub fn plain(listener: TcpListener) -> std::io::Result<Self> {
        Ok(Self { reach: Reach::plain(listener.local_addr()?), listener })
    }
}

/// Serves on one plain listener of this machine until `shutdown` completes; see [`serve`].
///
/// # Errors
/// Fails if the listener is not bound.
pub async fn run(
    listener: TcpListener,
    gateway: Gateway,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    serve(vec![Door::plain(listener)?], gateway, shutdown).await;
    Ok(())
}

/// Serves behind every door until `shutdown` completes, whatever is pending then: waiting callers are told to come
/// back, and connections that linger are cut. While it cannot accept it waits and tries again.
pub async fn serve(doors: Vec<Door>, gateway: Gateway, shutdown: impl Future<Output = ()> + Send + 'static) {
    let (stop, stopping) = watch::channel(false);
    let total = connections::places();
    let shares = shares::Shares::of(total);
    let rpc = rpc::Rpc::new(Arc::clone(&gateway.service), shares, gateway.shared_operator);
    // Before anybody is let in, so that nothing is missed.
    let telling = tokio::spawn(Arc::clone(&rpc.hub).keep(gateway.service.notices()));
    let keeper = tokio::spawn(Arc::clone(&gateway.service).keep());
    tokio::spawn(async move {
        shutdown.await;
        // Nobody listening any more means that serving has ended already.
        let _ = stop.send(true);
    });
    let places = connections::Places::new(total);
    let mut serving = JoinSet::new();
    for Door { listener, reach } in doors {
        let tls = reach.tls.clone();
        let app = http::app(gateway.clone(), rpc.clone(), Arc::new(reach), stopping.clone());
        serving.spawn(connections::serve(listener, app, tls, Arc::clone(&places), stopping.clone()));
    }
    while serving.join_next().await.is_some() {}
    rpc.hub.emptied(PARTING).await;
    telling.abort();
    keeper.abort();
    // What still waits on this gateway is told so now, and not when its lease has lapsed.
    gateway.service.leave().await;
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which only happens after it has sent.
    let _ = stopping.wait_for(|stop| *stop).await;
}
