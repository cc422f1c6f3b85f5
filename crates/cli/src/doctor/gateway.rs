//! Whether a gateway answers, which one, and whether it knows us.

use std::time::Duration;

use holdgate_client::Stranger;
use holdgate_gateway::PublicUrl;
use holdgate_store::Owner;
use holdgate_store::sqlite::owner_of;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Check;
use crate::config::{Config, Flags, Source};
use crate::connect::{Target, WithoutGateway, connect};
use crate::home::Identity;

/// How long the public address may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at whatever serves the target.
pub async fn checks(target: &Target) -> Vec<Check> {
    let device = target.home.device().ok().flatten();
    let owner = owner_of(&target.home.database());
    let url = match (&target.url, &owner, device) {
        (Some(url), _, _) => Some(url.clone()),
        (None, Some(Owner { url: Some(url), .. }), _) => Some(url.clone()),
        (None, None, Some(device)) if !target.home.database().exists() => Some(device.url),
        _ => None,
    };
    let mut checks = match (url, owner) {
        (Some(url), _) => served(target, &url).await,
        (None, Some(owner)) => vec![Check::advisory(
            "gateway",
            format!("the database is in use by {owner}"),
            "wait until it has ended; only a gateway can be asked meanwhile",
        )],
        (None, None) => vec![Check::advisory(
            "gateway",
            "none serves this home",
            "start one with `holdgate serve`: reviewers have no page without it",
        )],
    };
    checks.extend(public(target).await);
    checks
}

async fn served(target: &Target, url: &str) -> Vec<Check> {
    let todo = "see whether it runs and what it logs; start it again with `holdgate serve`";
    let stranger = match Stranger::before(url) {
        Ok(stranger) => stranger,
        Err(error) => return vec![Check::wrong("gateway", error.to_string(), "name another with --url")],
    };
    let ours = env!("CARGO_PKG_VERSION");
    let version = match stranger.version().await {
        Ok(version) => version,
        Err(error) => return vec![Check::wrong("gateway", error.to_string(), todo)],
    };
    let found = format!("{url} serves version {version}");
    let mut checks = vec![if version == ours {
        Check::ok("gateway", found)
    } else {
        Check::advisory("gateway", format!("{found}, this program is {ours}"), "use one version of both")
    }];
    checks.push(known(target).await);
    checks
}

async fn known(target: &Target) -> Check {
    let todo = "put the right token there; if it is lost, stop the gateway and run `holdgate token recover`";
    let connection = match connect(target, Identity::Operator, WithoutGateway::GiveUp).await {
        Ok(connection) => connection,
        Err(failure) => return Check::wrong("sign-in", format!("{:#}", failure.why), todo),
    };
    let me = connection.admin.me().await;
    connection.close().await;
    match me {
        Ok(me) => Check::ok("sign-in", format!("the gateway knows us as {} ({})", me.label, me.kind)),
        Err(error) => Check::wrong("sign-in", error.to_string(), todo),
    }
}

/// Whether anything answers where links lead. Only what is configured is called on.
async fn public(target: &Target) -> Option<Check> {
    let config = Config::load(&Source::of(&target.home, None), &Flags::default()).ok()?;
    let url = config.public_url?;
    let address = address(&url);
    Some(match timeout(PATIENCE, TcpStream::connect(&address)).await {
        Ok(Ok(_)) => Check::ok("public URL", format!("something answers at {url}")),
        Ok(Err(error)) => Check::wrong(
            "public URL",
            format!("nothing answers at {url}: {error}"),
            "start what stands before the gateway",
        ),
        Err(_) => Check::wrong(
            "public URL",
            format!("nothing answers at {url} in time"),
            "see whether its name leads here",
        ),
    })
}

/// Host and port.
fn address(url: &PublicUrl) -> String {
    let origin = url.origin();
    let authority = origin.split_once("://").map_or(origin.as_str(), |(_, authority)| authority);
    let has_port =
        authority.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    if has_port { authority.to_owned() } else { format!("{authority}:{}", url.port()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_port() {
        for (url, expected) in [
            ("https://gate.example/gate", "gate.example:443"),
            ("http://gate.example", "gate.example:80"),
            ("https://gate.example:8443", "gate.example:8443"),
            ("http://[::1]:1", "[::1]:1"),
            ("https://[2001:db8::1]", "[2001:db8::1]:443"),
        ] {
            assert_eq!(address(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
