//! `holdgate serve`: the gateway of one home.
//!
//! Owns the order in which it starts and ends. What it answers is the gateway's; where credentials live is the home's.

use std::future::Future;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use holdgate_authority::Service;
use holdgate_gateway::{Gateway, PublicUrl};
use holdgate_store::{Op, Store, StoreError};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Config, Flags, Live, Source, TlsFiles, Written};
use crate::exit::{Exit, Failure, say};
use crate::home::{Home, Identity};
use crate::served::Served;

/// How often the store is asked whether it still writes.
const PROBE: Duration = Duration::from_secs(2);
/// How often recorded latencies are folded into their histograms, whether or not anybody reads them.
const FOLD_METRICS: Duration = Duration::from_secs(5);

/// Serve approvals to agents, reviewers and other commands
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where to listen [default: 127.0.0.1:7420]; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", value_parser = SocketAddr::read)]
    pub listen: Option<SocketAddr>,
    /// The database, instead of the home's own
    #[arg(long, value_name = "sqlite:PATH", value_parser = sqlite)]
    pub db: Option<PathBuf>,
    /// The configuration, instead of holdgate.toml in the home; what is said here wins over it
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// The address that reviewers and agents use, with its base path if it has one: `https://example.com/gate`
    #[arg(long, value_name = "URL", value_parser = PublicUrl::read)]
    pub public_url: Option<PublicUrl>,
    /// The certificate chain to serve with, as PEM
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "PATH", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// A proxy in front that says for whom it asks; may be given several times
    #[arg(long = "trusted-proxy", value_name = "IP", value_parser = IpAddr::read)]
    pub trusted_proxies: Vec<IpAddr>,
    /// Let everybody use the one operator token; who answers cannot be told apart then
    #[arg(long)]
    pub shared_operator_token: bool,
}

impl Arguments {
    fn flags(&self) -> Flags {
        let tls = self.tls_certificate.clone().zip(self.tls_key.clone());
        Flags {
            listen: self.listen,
            public_url: self.public_url.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            shared_operator_token: self.shared_operator_token,
        }
    }
}

/// Serves until it is told to stop, whatever is pending then.
///
/// # Errors
/// What is wrong with the configuration, the home, the database or the address; or that the store has stopped writing.
pub async fn run(home: &Home, arguments: Arguments) -> Result<Exit, Failure> {
    // Before anything is announced: whoever reads the announcement may send a signal.
    let told_to_stop = told_to_stop()?;
    let told_to_reload = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let (source, flags) = (Source::of(home, arguments.config.clone()), arguments.flags());
    let config = Config::load(&source, &flags)?;
    let reach = config.reach().map_err(|why| {
        let exit = if arguments.listen.is_some() { Exit::Usage } else { Exit::Failed };
        Failure { exit, ..why.into() }
    })?;
    take_every_file();
    let metrics = metrics()?;
    let database = arguments.db.clone().unwrap_or_else(|| home.database());
    let live = Live::new(source.clone(), flags, config.clone(), reach.tls.clone());
    let policy = config.policy().in_force()?;
    let served = Served::open(home, database, reach, policy, config.shared_operator_token).await?;
    let main = &served.doors[0].reach;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on {}://{}", main.own_scheme(), main.listen)?;
    stdout.flush()?;
    drop(stdout);
    introduce(home, &arguments, &served);
    config.warnings(&source).iter().for_each(|warning| say(warning));
    served.until(told_to_stop, told_to_reload, live, metrics).await
}

impl Served {
    /// Serves until it is told to stop, or nothing can be stored any more.
    async fn until(
        self,
        told_to_stop: impl Future<Output = ()> + Send + 'static,
        told_to_reload: Signal,
        live: Live,
        metrics: PrometheusHandle,
    ) -> Result<Exit, Failure> {
        let Self { store, service, doors, shared_operator, .. } = self;
        let reloaded = Arc::clone(&service);
        let gateway = Gateway { service, metrics: Some(metrics.clone()), shared_operator };
        let serving = pin!(holdgate_gateway::serve(doors, gateway, told_to_stop));
        let ended = tokio::select! {
            () = serving => Ok(()),
            error = store_ended(&*store) => Err(anyhow::Error::from(error).context("the store no longer writes; start again")),
            () = fold(&metrics) => Ok(()),
            () = keep_reloading(told_to_reload, live, &reloaded) => Ok(()),
        };
        store.close().await;
        ended?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

/// Reads the configuration again whenever it is told to. Never ends.
async fn keep_reloading(mut told: Signal, mut live: Live, service: &Service) {
    while told.recv().await.is_some() {
        let mut fresh = None;
        live.reload(|config| fresh = Some(config.policy().in_force()));
        let put = match fresh {
            Some(Ok(policy)) => {
                let (approvals, denials) = (policy.floor.approvals, policy.floor.denials);
                let put = service.put_policy(policy).await;
                put.map(|()| tracing::info!(approvals, denials, "the least that a request takes"))
                    .map_err(anyhow::Error::from)
            }
            Some(Err(why)) => Err(why),
            None => continue,
        };
        if let Err(why) = put {
            tracing::error!("THE CONFIGURATION IS NOT IN FORCE, everything stays as it was: {why:#}");
        }
    }
    std::future::pending().await
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
    holdgate_gateway::metrics_recorder()
        .and_then(PrometheusBuilder::install_recorder)
        .context("metrics cannot be recorded")
}

/// What people who start a gateway need to know, once.
fn introduce(home: &Home, arguments: &Arguments, served: &Served) {
    say(&format!("home {}", home.dir().display()));
    if served.doors[0].reach.public_url.is_some() {
        say(&format!("links begin with {}", served.url));
    }
    say(&format!(
        "sign in on a reviewer page with the token in {}; agents use {}",
        home.token_file(Identity::Operator).display(),
        home.token_file(Identity::Agent).display()
    ));
    if arguments.db.is_some() {
        let url = &served.local_url;
        say(&format!("the database is not the home's: other commands find this gateway with --url {url}"));
    }
    if home.is_separation_advisory() {
        say(
            "this OS user can read both token files: separation from an agent with a shell under this user is \
             advisory until a reviewer decides from another device or user",
        );
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
