//! The gateway: the authority's HTTP API and the reviewer page.
//!
//! Owns the network and nothing behind it. `run` is given a bound listener and told when to stop.

mod auth;
mod connections;
mod http;
pub mod page;
mod rpc;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::Service;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use auth::{CREDENTIAL_PREFIXES, credential_hash};
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

/// Serves on `listener` until `shutdown` completes, whatever is pending then: waiting callers are told to come
/// back, and connections that linger are cut. While it cannot accept it waits and tries again.
///
/// # Errors
/// Fails if the listener is not bound.
pub async fn run(
    listener: TcpListener,
    gateway: Gateway,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let port = listener.local_addr()?.port();
    let (stop, stopping) = watch::channel(false);
    let rpc = rpc::Rpc::new(Arc::clone(&gateway.service), gateway.shared_operator);
    // Before anybody is let in, so that nothing is missed.
    let telling = tokio::spawn(Arc::clone(&rpc.hub).keep(gateway.service.notices()));
    let app = http::app(gateway.clone(), rpc.clone(), port, stopping.clone());
    let keeper = tokio::spawn(Arc::clone(&gateway.service).keep());
    tokio::spawn(async move {
        shutdown.await;
        // Nobody listening any more means that serving has ended already.
        let _ = stop.send(true);
    });
    connections::serve(listener, app, connections::places(), stopping).await;
    rpc.hub.emptied(PARTING).await;
    telling.abort();
    keeper.abort();
    Ok(())
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which only happens after it has sent.
    let _ = stopping.wait_for(|stop| *stop).await;
}
