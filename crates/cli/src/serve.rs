//! `holdgate serve`: the gateway of one home.
//!
//! Owns the order in which it starts and ends. What it answers is the gateway's; where credentials live is the home's.

use std::future::Future;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use holdgate_gateway::Gateway;
use holdgate_store::{Op, Store, StoreError};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure, say};
use crate::home::{Home, Identity};
use crate::served::Served;

/// How often the store is asked whether it still writes.
const PROBE: Duration = Duration::from_secs(2);
/// How often recorded latencies are folded into their histograms, whether or not anybody reads them.
const FOLD_METRICS: Duration = Duration::from_secs(5);
/// Upper bounds of the latency histograms, in seconds. Waiting for a person has its own long tail.
const LATENCY_BUCKETS: [f64; 14] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Serve approvals to agents, reviewers and other commands
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420", value_parser = loopback)]
    pub listen: SocketAddr,
    /// The database, instead of the home's own
    #[arg(long, value_name = "sqlite:PATH", value_parser = sqlite)]
    pub db: Option<PathBuf>,
}

/// Serves until it is told to stop, whatever is pending then.
///
/// # Errors
/// What is wrong with the home, the database or the address; or that the store has stopped writing.
pub async fn run(home: &Home, arguments: Arguments) -> Result<Exit, Failure> {
    // Before anything is announced: whoever reads the announcement may send the signal.
    let told_to_stop = told_to_stop()?;
    take_every_file();
    let metrics = metrics()?;
    let database = arguments.db.clone().unwrap_or_else(|| home.database());
    let served = Served::open(home, database, arguments.listen).await?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on {}", served.url)?;
    stdout.flush()?;
    drop(stdout);
    introduce(home, &arguments, &served.url);
    served.until(told_to_stop, metrics).await
}

impl Served {
    /// Serves until it is told to stop, or nothing can be stored any more.
    async fn until(
        self,
        told_to_stop: impl Future<Output = ()> + Send + 'static,
        metrics: PrometheusHandle,
    ) -> Result<Exit, Failure> {
        let Self { store, service, listener, url } = self;
        let gateway = Gateway { service, metrics: Some(metrics.clone()), shared_operator: None };
        let serving = pin!(holdgate_gateway::run(listener, gateway, told_to_stop));
        let ended = tokio::select! {
            served = serving => served.with_context(|| format!("the gateway at {url} failed")),
            error = store_ended(&*store) => Err(anyhow::Error::from(error).context("the store no longer writes; start again")),
            () = fold(&metrics) => Ok(()),
        };
        store.close().await;
        ended?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

/// Ends when the store's writer has: a gateway that can store nothing is better gone, and started again.
async fn store_ended(store: &dyn Store) -> StoreError {
    loop {
        tokio::time::sleep(PROBE).await;
        // Asks for nothing, behind everything else; only a writer that lives can answer.
        if let Err(error @ StoreError::Closed) = store.execute(Op::Sweep { limit: 0 }).await {
            return error;
        }
    }
}

/// Never ends.
async fn fold(metrics: &PrometheusHandle) {
    loop {
        tokio::time::sleep(FOLD_METRICS).await;
        metrics.run_upkeep();
    }
}

/// A gateway holds a connection for every waiter: it takes as many open files as it may have.
fn take_every_file() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, fewer connections are open at once.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn told_to_stop() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
    })
}

fn metrics() -> anyhow::Result<PrometheusHandle> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &LATENCY_BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .context("metrics cannot be recorded")
}

/// What people who start a gateway need to know, once.
fn introduce(home: &Home, arguments: &Arguments, url: &str) {
    say(&format!("home {}", home.dir().display()));
    say(&format!(
        "sign in on a reviewer page with the token in {}; agents use {}",
        home.token_file(Identity::Operator).display(),
        home.token_file(Identity::Agent).display()
    ));
    if arguments.db.is_some() {
        say(&format!("the database is not the home's: other commands find this gateway with --url {url}"));
    }
    if home.is_separation_advisory() {
        say(
            "this OS user can read both token files: separation from an agent with a shell under this user is \
             advisory until a reviewer decides from another device or user",
        );
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.parse().ok(),
    };
    match address {
        Some(address) if address.ip().is_loopback() => Ok(address),
        Some(address) => Err(format!(
            "{} is not this machine's loopback address, and the gateway speaks plain HTTP: tokens would cross the \
             network in the clear; listen on 127.0.0.1 and reach it through a tunnel",
            address.ip()
        )),
        None => Err("it is not an address and a port, like 127.0.0.1:7420".to_owned()),
    }
}

fn sqlite(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err("it is not of the form sqlite:PATH".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdgate_store::clock::SystemClock;
    use holdgate_store::sqlite::{OpenOptions, SqliteStore};

    use super::*;

    #[test]
    fn only_the_loopback_address_is_listened_on() {
        for good in ["127.0.0.1:0", "[::1]:7420", "localhost:80", "127.9.9.9:1"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("0.0.0.0:7420", "in the clear"),
            ("[::]:1", "in the clear"),
            ("192.168.0.2:1", "in the clear"),
            ("7420", "not an address"),
        ] {
            assert!(loopback(bad).unwrap_err().contains(why), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_store_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holdgate.db");
        let store = SqliteStore::open(OpenOptions { path, clock: Arc::new(SystemClock::new()) }).unwrap();
        let watched = tokio::time::timeout(10 * PROBE, store_ended(&*store)).await;
        assert!(watched.is_err(), "a store that writes is not given up");
        store.close().await;
        assert_eq!(store_ended(&*store).await, StoreError::Closed);
    }

    #[test]
    fn a_database_is_named_by_its_kind_and_path() {
        assert_eq!(sqlite("sqlite:/a/b.db").unwrap(), PathBuf::from("/a/b.db"));
        for bad in ["/a/b.db", "sqlite:", "postgres://x"] {
            assert!(sqlite(bad).is_err(), "{bad}");
        }
    }
}
