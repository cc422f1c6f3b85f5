//! The command line: parses arguments, runs one command, ends with its exit code.
//!
//! Owns the global options, logging and what happens to errors. Each command is a file of its name.

mod approvals;
mod config;
mod connect;
mod demo;
mod devices;
mod digest;
mod doctor;
mod environment;
mod exec;
mod exit;
mod freeze;
mod home;
mod output;
mod pair;
mod runs;
mod screen;
mod serve;
mod served;
mod shell;
mod table;
mod token;
mod when;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt;

use connect::{Target, WithoutGateway};
use exit::{Exit, Failure, say};
use home::{Home, Identity};

/// How long tasks that are still at work may delay the end of the process.
const LINGER: Duration = Duration::from_millis(200);

/// Durable approvals for AI agents
#[derive(Debug, clap::Parser)]
#[command(name = "holdgate", version, propagate_version = true)]
struct Arguments {
    /// The gateway, like http://127.0.0.1:7420; without it, whatever serves the home
    #[arg(long, global = true, env = "HOLDGATE_URL", value_name = "URL", hide_env_values = true)]
    url: Option<String>,
    /// The directory with the database and the token files; without it, the platform's place for data
    #[arg(long, global = true, env = "HOLDGATE_HOME", value_name = "DIR", hide_env_values = true)]
    home: Option<PathBuf>,
    /// Print JSON on standard output, for programs
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Config(config::Arguments),
    Approvals(approvals::Arguments),
    Exec(exec::Arguments),
    Runs(runs::Arguments),
    Demo(demo::Arguments),
    Pair(pair::Arguments),
    Devices(devices::Arguments),
    Token(token::Arguments),
    Freeze(freeze::FreezeArguments),
    Thaw(freeze::ThawArguments),
    Doctor(doctor::Arguments),
    /// Identify requests: JSON lines in, their ids and digests out
    #[command(after_long_help = digest::long_help())]
    Digest,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    let logging = start_logging(matches!(arguments.command, Command::Serve(_)));
    let ended = logging.map_err(Failure::from).and_then(|_exporting| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
        let ended = runtime.block_on(run(arguments));
        runtime.shutdown_timeout(LINGER);
        // What exports goes last, after everything that may still end a span.
        ended
    });
    ended.unwrap_or_else(|failure| report(&failure, json).into())
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let target = || -> anyhow::Result<Target> {
        let url = arguments.url.clone().filter(|url| !url.is_empty());
        Ok(Target {
            url,
            home: Home::at(arguments.home.clone().filter(|home| !home.as_os_str().is_empty()))?,
        })
    };
    let json = arguments.json;
    Ok(match arguments.command {
        Command::Serve(serve) => serve::run(&target()?.home, serve).await?.into(),
        Command::Config(config) => config::run(&target()?.home, config, json)?.into(),
        Command::Approvals(approvals) => approvals::run(&target()?, approvals, json).await?.into(),
        Command::Exec(exec) => {
            let connection = connect::connect(&target()?, Identity::Agent, WithoutGateway::GiveUp).await?;
            exec::run(connection.authority, exec, environment::variables()).await
        }
        Command::Runs(runs) => runs::run(&target()?, runs, json).await?.into(),
        Command::Demo(demo) => demo::run(target, demo, json).await?,
        Command::Pair(pair) => pair::run(&target()?, pair, json).await?.into(),
        Command::Devices(devices) => devices::run(&target()?, devices, json).await?.into(),
        Command::Token(token) => token::run(&target()?, token, json).await?.into(),
        Command::Freeze(freeze) => freeze::freeze(&target()?, freeze, json).await?.into(),
        Command::Thaw(thaw) => freeze::thaw(&target()?, thaw, json).await?.into(),
        Command::Doctor(doctor) => doctor::run(&target()?, doctor, json).await?.into(),
        Command::Digest => digest::run(std::io::stdin().lock(), std::io::stdout().lock())?.into(),
    })
}

/// Says what went wrong. For programs, the authority's own "no" is the document on standard output.
fn report(failure: &Failure, json: bool) -> Exit {
    use std::io::Write as _;
    say(&format!("{:#}", failure.why));
    if let Some(problem) = failure.problem.as_ref().filter(|_| json) {
        // A reader that is gone reads the exit code.
        let _ = serde_json::to_string_pretty(problem).map(|problem| writeln!(std::io::stdout(), "{problem}"));
    }
    failure.exit
}

/// Logs to standard error. A gateway tells what it does; other commands speak for themselves. What is answered must live
/// as long as anything is told: its end sends the last spans.
fn start_logging(is_gateway: bool) -> anyhow::Result<Exporting> {
    let default = if is_gateway { "warn,holdgate=info" } else { "off" };
    let filter = environment::log_filter()?.unwrap_or_else(|| default.to_owned());
    let filter: Targets = filter
        .parse()
        .with_context(|| format!("HOLDGATE_LOG: {filter:?} is no filter, like info or holdgate=debug"))?;
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let log = if environment::logs_json()? {
        log.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    } else {
        log.with_ansi(std::io::stderr().is_terminal() && !environment::no_color()).boxed()
    };
    let subscriber = tracing_subscriber::registry().with(log.with_filter(filter));
    let exports = if is_gateway { environment::exports_spans() } else { Ok(false) };
    match exports {
        Ok(true) => return Ok(export(subscriber)),
        Ok(false) => {}
        // Nothing depends on spans: the gateway serves without them.
        Err(why) => say(&format!("no spans are exported: {why:#}")),
    }
    subscriber.init();
    Ok(None)
}

#[cfg(feature = "otlp")]
type Exporting = Option<holdgate_telemetry::Telemetry>;
#[cfg(not(feature = "otlp"))]
type Exporting = Option<std::convert::Infallible>;

#[cfg(feature = "otlp")]
fn export<S>(logging: S) -> Exporting
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a> + Send + Sync + 'static,
{
    use holdgate_telemetry::{Export, Telemetry};
    match Telemetry::start() {
        Ok(telemetry) => {
            logging.with(telemetry.layer().with_filter(Export::filter())).init();
            Some(telemetry)
        }
        Err(why) => {
            say(&why.to_string());
            logging.init();
            None
        }
    }
}

#[cfg(not(feature = "otlp"))]
fn export(logging: impl SubscriberInitExt) -> Exporting {
    say("no spans are exported: this build has no exporter; build it with --features otlp");
    logging.init();
    None
}
