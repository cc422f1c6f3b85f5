//! Reading the configuration again while a gateway serves.
//!
//! Owns what may change then and what may not. A configuration that is wrong in any point changes nothing.

use std::sync::Arc;

use anyhow::Context as _;
use holdgate_gateway::Tls;
use holdgate_store::Owner;
use holdgate_store::sqlite::owner_of;
use rustix::process::{Pid, Signal, kill_process};

use super::{Config, Flags, Source};
use crate::exit::{Exit, Failure, say};
use crate::home::Home;

/// The configuration of a gateway that serves.
pub struct Live {
    source: Source,
    flags: Flags,
    config: Config,
    tls: Option<Arc<Tls>>,
}

impl Live {
    /// The configuration that a gateway started with, and its certificate.
    pub fn new(source: Source, flags: Flags, config: Config, tls: Option<Arc<Tls>>) -> Self {
        Self { source, flags, config, tls }
    }

    /// Reads the file and the certificate again, hands what is in force then to `on_reload`, and says in the log what
    /// came of it.
    pub fn reload(&mut self, on_reload: impl FnOnce(&Config)) {
        let path = self.source.path.display().to_string();
        match self.replace() {
            Ok(later) => {
                on_reload(&self.config);
                tracing::info!(config = path, "the configuration was read again and is in force");
                for key in later {
                    tracing::warn!(
                        "{key} has changed in the configuration: that takes effect when the gateway starts again"
                    );
                }
            }
            Err(error) => tracing::error!(
                "THE CONFIGURATION WAS NOT READ AGAIN, everything stays as it was: {error:#}; `holdgate config check` \
                 says when it is right"
            ),
        }
    }

    /// Answers the keys that have changed but only count from the next start on.
    pub(super) fn replace(&mut self) -> anyhow::Result<Vec<&'static str>> {
        let fresh = Config::load(&self.source, &self.flags)?;
        // Checked as for a start, certificate included: the next one must not be a surprise.
        fresh.reach()?;
        if let (Some(tls), Some(files)) = (&self.tls, &fresh.tls) {
            tls.reload(&files.certificate, &files.key)?;
        }
        let running = &self.config;
        let later = [
            ("listen", running.listen != fresh.listen),
            ("public-url", running.public_url != fresh.public_url),
            ("trusted-proxies", running.trusted_proxies != fresh.trusted_proxies),
            ("shared-operator-token", running.shared_operator_token != fresh.shared_operator_token),
            ("tls", running.tls.is_some() != fresh.tls.is_some()),
        ];
        let tls = if self.tls.is_some() && fresh.tls.is_some() { fresh.tls } else { running.tls.clone() };
        self.config = Config { tls, policy: fresh.policy, ..running.clone() };
        Ok(later.into_iter().filter_map(|(key, has_changed)| has_changed.then_some(key)).collect())
    }
}

/// Has the gateway that serves a home read its configuration again.
///
/// # Errors
/// Exit 7 when none serves it; or why it cannot be told.
pub fn reload(home: &Home) -> Result<Exit, Failure> {
    let database = home.database();
    let none = |what: &str| {
        Failure::new(
            Exit::Unreachable,
            format!("{what}; a gateway that starts reads its configuration anyway"),
        )
    };
    match owner_of(&database) {
        // Only a gateway takes the signal for what it is; it would end any other process.
        Some(Owner { pid, url: Some(url) }) => {
            let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let process =
                process.with_context(|| format!("the gateway at {url} has not said which process it is"))?;
            kill_process(process, Signal::HUP)
                .with_context(|| format!("cannot signal process {pid}, the gateway at {url}"))?;
            say(&format!(
                "told the gateway at {url} (process {pid}) to read its configuration again; its log says what came of it"
            ));
            Ok(Exit::Done)
        }
        Some(owner) => {
            Err(none(&format!("{} is in use by {owner}, which is no gateway", database.display())))
        }
        None => Err(none(&format!("no gateway serves the home {}", home.dir().display()))),
    }
}
