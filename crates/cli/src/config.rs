//! The configuration of a gateway: its file, the flags that win over it, and what both together mean.
//!
//! Owns `holdgate.toml` and the command `holdgate config`. A configuration that is not right in every point is none: the
//! gateway does not start with it, and one that serves keeps what it has.

mod file;
mod policy;
mod reload;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use holdgate_core::Kind;
use holdgate_core::requirement::Decision;
use holdgate_gateway::{PublicUrl, Reach, Tls};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure, say};
use crate::home::Home;
pub use file::Written;
use file::{File, KindRequirement, Text};
pub use policy::{Floor, Limits, Policy, Reviewer};
pub use reload::{Live, reload};

/// Where a gateway listens unless it is told otherwise.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// The configuration's name in a home.
const FILE: &str = "holdgate.toml";

/// Check the configuration, or have a running gateway read it again
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Say what is in force, or what is wrong: exit 0 or 1
    Check {
        /// The file, instead of holdgate.toml in the home
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,
    },
    /// Have the gateway of this home read its configuration and certificate again
    Reload,
}

/// Runs `holdgate config`.
///
/// # Errors
/// What is wrong with the configuration, or that no gateway serves the home.
pub fn run(home: &Home, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    match arguments.command {
        Command::Check { config } => check(&Source::of(home, config), json),
        Command::Reload => reload(home),
    }
}

fn check(source: &Source, json: bool) -> Result<Exit, Failure> {
    let config = Config::load(source, &Flags::default())?;
    // What a start would find out as well.
    config.reach()?;
    config.warnings(source).iter().for_each(|warning| say(warning));
    let said = config.describe();
    let path = source.path.display();
    if json {
        let in_force: serde_json::Map<_, _> = said.into_iter().collect();
        println!("{:#}", json!({ "config": path.to_string(), "inForce": in_force }));
    } else {
        println!("# {path}{}", if source.exists() { "" } else { " does not exist; these are the defaults" });
        said.iter().for_each(|(key, value)| println!("{key} = {value}"));
    }
    Ok(Exit::Done)
}

/// Where a configuration is read from.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    /// One that was named must exist; the home's need not.
    is_named: bool,
}

impl Source {
    /// The named file, or else the home's.
    pub fn of(home: &Home, named: Option<PathBuf>) -> Self {
        match named {
            Some(path) => Self { path, is_named: true },
            None => Self { path: home.dir().join(FILE), is_named: false },
        }
    }

    fn exists(&self) -> bool {
        self.path.exists()
    }

    fn read(&self) -> anyhow::Result<File> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => file::parse(&self.path, &text),
            // Where the home itself is wrong, whoever makes it says so.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                    && !self.is_named =>
            {
                Ok(File::default())
            }
            Err(error) => Err(error).with_context(|| {
                format!(
                    "cannot read the configuration {}; it must be a readable UTF-8 file",
                    self.path.display()
                )
            }),
        }
    }
}

/// What was said on the command line. Each wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// The address that reviewers and agents use.
    pub public_url: Option<PublicUrl>,
    /// Proxies whose word is believed; none: what the file says.
    pub trusted_proxies: Vec<IpAddr>,
    /// The certificate and its key.
    pub tls: Option<TlsFiles>,
    /// Whether one operator token may be used by everybody.
    pub shared_operator_token: bool,
}

/// The files of a certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The gateway's own certificate first.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A configuration that is right in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The address that reviewers and agents use.
    pub public_url: Option<PublicUrl>,
    /// Proxies whose word on a client's address is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// The certificate to serve with.
    pub tls: Option<TlsFiles>,
    /// Whether one operator token may be used by everybody.
    pub shared_operator_token: bool,
    policy: Policy,
}

impl Config {
    /// Reads and checks everything that needs no network and no certificate.
    ///
    /// # Errors
    /// The file, the line or key, what is wrong and what to do.
    pub fn load(source: &Source, flags: &Flags) -> anyhow::Result<Self> {
        let file = source.read()?;
        let policy = policy_of(&file).with_context(|| source.path.display().to_string())?;
        let beside = source.path.parent().unwrap_or(Path::new(""));
        let tls = file.tls.map(|files| TlsFiles {
            certificate: beside.join(files.certificate),
            key: beside.join(files.key),
        });
        let mut trusted_proxies = flags.trusted_proxies.clone();
        if trusted_proxies.is_empty() {
            trusted_proxies = file.trusted_proxies.into_iter().map(|Text(proxy)| proxy).collect();
        }
        Ok(Self {
            listen: flags.listen.or(file.listen.map(|Text(listen)| listen)).unwrap_or(LISTEN),
            public_url: flags.public_url.clone().or(file.public_url.map(|Text(url)| url)),
            trusted_proxies,
            tls: flags.tls.clone().or(tls),
            shared_operator_token: flags.shared_operator_token || file.shared_operator_token,
            policy,
        })
    }

    /// What the gateway demands of every request: the part that is replaced when the file is read again.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How the gateway is reached, with the certificate in hand. The address is the one to bind.
    ///
    /// # Errors
    /// What is unsafe or cannot be read, and what to do.
    pub fn reach(&self) -> anyhow::Result<Reach> {
        let (has_proxy, has_tls) = (!self.trusted_proxies.is_empty(), self.tls.is_some());
        Reach::check(self.listen, self.public_url.as_ref(), has_proxy, has_tls)?;
        let tls = self.tls.as_ref().map(|files| Tls::load(&files.certificate, &files.key)).transpose()?;
        Ok(Reach {
            public_url: self.public_url.clone(),
            listen: self.listen,
            trusted_proxies: self.trusted_proxies.clone(),
            tls,
        })
    }

    /// What is allowed but should be known.
    pub fn warnings(&self, source: &Source) -> Vec<String> {
        let mut warnings = Vec::new();
        if mode(&source.path).is_some_and(|mode| mode & 0o022 != 0) {
            let path = source.path.display();
            warnings.push(format!("warning: other users can change {path}; run chmod go-w on it"));
        }
        if let Some(files) =
            self.tls.as_ref().filter(|files| mode(&files.key).is_some_and(|mode| mode & 0o007 != 0))
        {
            let path = files.key.display();
            warnings.push(format!("warning: every user can read the key {path}; run chmod o= on it"));
        }
        if let Some(url) = self.public_url.as_ref().filter(|url| !url.is_https() && !url.is_loopback()) {
            warnings.push(format!(
                "warning: the public URL {url} is plain HTTP: whoever can listen on the way to it can take over a \
                 reviewer's session"
            ));
        }
        if self.shared_operator_token {
            warnings.push(
                "one operator token is shared: who answers with it cannot be told apart, so counting people and \
                 excluding the requester are advisory for it; pair a device for each person instead"
                    .to_owned(),
            );
        }
        warnings
    }

    /// What is in force, as keys of the file and their values. Holds no secret.
    fn describe(&self) -> Vec<(String, Value)> {
        let mut said = vec![("listen".to_owned(), json!(self.listen))];
        let mut add = |key: &str, value: Value| said.push((key.to_owned(), value));
        if let Some(url) = &self.public_url {
            add("public-url", json!(url.to_string()));
        }
        add("trusted-proxies", json!(self.trusted_proxies));
        add("shared-operator-token", json!(self.shared_operator_token));
        if let Some(files) = &self.tls {
            add("tls.certificate", json!(files.certificate));
            add("tls.key", json!(files.key));
        }
        said.extend(self.policy.describe());
        said
    }
}

fn mode(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|metadata| metadata.permissions().mode() & 0o777)
}

fn policy_of(file: &File) -> anyhow::Result<Policy> {
    let mut groups = BTreeMap::new();
    for (name, people) in &file.groups {
        named("groups", name)?;
        if people.is_empty() {
            bail!(
                "groups.{name}: it is empty, so nobody in it could decide; name its people or drop the group"
            );
        }
        let people: BTreeSet<_> = people.iter().map(|Text(person)| person.0.clone()).collect();
        groups.insert(name.clone(), people);
    }
    let mut agents = BTreeMap::new();
    for (name, agent) in &file.agents {
        named("agents", name)?;
        agents.insert(name.clone(), reviewers(&format!("agents.{name}"), &agent.reviewers, &groups)?);
    }
    let all = &file.requirement;
    let general = KindRequirement {
        approvals: all.approvals,
        denials: all.denials,
        requester_may_decide: all.requester_may_decide,
        reason_required: all.reason_required,
        allowed_decisions: all.allowed_decisions.clone(),
        reviewers: all.reviewers.clone(),
    };
    let requirement = floor("requirement", &general, &Floor::default(), &groups)?;
    let own = [&all.exec, &all.plugin, &all.tool, &all.dispatch, &all.round, &all.plan];
    let mut kinds = Vec::new();
    for (kind, own) in Kind::ALL.into_iter().zip(own) {
        if let Some(own) = own {
            let key = format!("requirement.{}", kind.as_str());
            kinds.push((kind, floor(&key, own, &requirement, &groups)?));
        }
    }
    let limits = Limits {
        pending_per_agent: file.limits.pending_per_agent.map(|count| count.0),
        pending_per_session: file.limits.pending_per_session.map(|count| count.0),
    };
    Ok(Policy { requirement, kinds, groups, agents, limits })
}

fn named(table: &str, name: &str) -> anyhow::Result<()> {
    file::check_name(name).map_err(|why| anyhow::anyhow!("{table}.{name:?}: {why}"))
}

/// The floor that a table sets, where it is silent the one that it stands under.
fn floor(key: &str, given: &KindRequirement, under: &Floor, groups: &Groups) -> anyhow::Result<Floor> {
    let mut floor = under.clone();
    floor.approvals = given.approvals.map_or(floor.approvals, |count| count.0);
    floor.denials = given.denials.map_or(floor.denials, |count| count.0);
    floor.requester_may_decide = given.requester_may_decide.unwrap_or(floor.requester_may_decide);
    floor.reason_required = given.reason_required.unwrap_or(floor.reason_required);
    if let Some(given) = &given.allowed_decisions {
        let mut decisions: Vec<_> = given.iter().map(|Text(decision)| *decision).collect();
        if decisions.iter().all(|decision| *decision == Decision::Deny) {
            bail!(
                "{key}.allowed-decisions: nothing in it allows, so nothing could ever run; add \"allow-once\""
            );
        }
        // Denying is always possible.
        decisions.push(Decision::Deny);
        decisions.sort_unstable();
        decisions.dedup();
        floor.allowed_decisions = decisions;
    }
    if let Some(given) = &given.reviewers {
        floor.reviewers = Some(reviewers(key, given, groups)?);
    }
    if let Some(people) = floor.reviewers.as_ref().and_then(|reviewers| people(reviewers, groups))
        && people < floor.approvals as usize
    {
        bail!(
            "{key}.approvals: {} people must allow, but its reviewers are {people}; name more of them, or ask for \
             fewer",
            floor.approvals
        );
    }
    Ok(floor)
}

type Groups = BTreeMap<String, BTreeSet<String>>;

fn reviewers(key: &str, given: &[Text<Reviewer>], groups: &Groups) -> anyhow::Result<Vec<Reviewer>> {
    if given.is_empty() {
        bail!("{key}.reviewers: it is empty, so nobody could ever decide; name somebody or drop the key");
    }
    for Text(reviewer) in given {
        if let Reviewer::Group(name) = reviewer
            && !groups.contains_key(name)
        {
            bail!("{key}.reviewers: there is no group {name:?}; add it to [groups] or correct the name");
        }
    }
    Ok(given.iter().map(|Text(reviewer)| reviewer.clone()).collect())
}

/// How many people these are; `None` when a device is among them, which may be anybody's.
fn people(reviewers: &[Reviewer], groups: &Groups) -> Option<usize> {
    let mut people = BTreeSet::new();
    for reviewer in reviewers {
        match reviewer {
            Reviewer::Person(name) => drop(people.insert(name)),
            Reviewer::Group(name) => people.extend(groups.get(name)?),
            Reviewer::Device(_) => return None,
        }
    }
    Some(people.len())
}
