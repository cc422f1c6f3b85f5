//! The gateway: the authority's HTTP API and the reviewer page.
//!
//! Owns the network and nothing behind it. `run` is given a bound listener and told when to stop.

mod auth;
mod connections;
mod http;
pub mod page;

use std::future::Future;
use std::sync::Arc;

use holdgate_authority::Service;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use auth::{CREDENTIAL_PREFIXES, credential_hash};

/// What a gateway serves.
#[derive(Clone)]
pub struct Gateway {
    /// The authority.
    pub service: Arc<Service>,
    /// Renders `/metrics`. Without it the route answers that there are none.
    pub metrics: Option<PrometheusHandle>,
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
    let app = http::app(gateway.clone(), port, stopping.clone());
    let keeper = tokio::spawn(Arc::clone(&gateway.service).keep());
    tokio::spawn(async move {
        shutdown.await;
        // Nobody listening any more means that serving has ended already.
        let _ = stop.send(true);
    });
    connections::serve(listener, app, connections::places(), stopping).await;
    keeper.abort();
    Ok(())
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which only happens after it has sent.
    let _ = stopping.wait_for(|stop| *stop).await;
}
