//! `holdgate pair`: a code for one device, and the other end of it.
//!
//! A code is typed on the page or read from a terminal. It is never an argument, which other users can see.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use anyhow::Context as _;
use holdgate_authority::Admin;
use holdgate_client::Stranger;
use holdgate_core::AdministrationEvent;
use holdgate_wire::admin::Paired;
use holdgate_wire::admin::{CompletePairing, OfferPairing, Pairing};
use serde_json::json;
use tokio::time::sleep;

use crate::connect::{Connection, Serves, Target, WithoutGateway, connect};
use crate::exit::{Exit, Failure, say};
use crate::home::{DeviceCredential, Identity};
use crate::output::{print, print_json};
use crate::when;

/// How often it is looked whether the code was used.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Pair a device of a person's, by a code that is typed there
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Whose device it becomes
    #[arg(long, value_name = "NAME", default_value = "operator", conflicts_with = "join")]
    person: String,
    /// Let it administer as well
    #[arg(long, conflicts_with = "join")]
    admin: bool,
    /// Pair this machine with the gateway there; the code is asked for, or read from standard input
    #[arg(long, value_name = "URL")]
    join: Option<String>,
    /// What reviewers call this machine
    #[arg(long, value_name = "NAME", requires = "join")]
    label: Option<String>,
}

/// Runs either end.
///
/// # Errors
/// What the gateway refused, or that there is none.
pub async fn run(target: &Target, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    match &arguments.join {
        Some(url) => join(target, url, arguments.label, json).await,
        None => offer(target, arguments, json).await,
    }
}

async fn offer(target: &Target, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    let Connection { admin, serves, .. } =
        connect(target, Identity::Operator, WithoutGateway::GiveUp).await?;
    let Serves::Gateway { url } = serves else {
        return Err(Failure::new(Exit::Unreachable, "pairing needs a gateway; start `holdgate serve`"));
    };
    // Read before the code exists: what comes later is its use.
    let before = last_fact(&*admin).await?;
    let offer = OfferPairing { person: arguments.person.clone(), admin: arguments.admin };
    let pairing = admin.offer_pairing(offer).await?;
    if json {
        return print_json(&pairing);
    }
    print(&format!("{}\n", pairing.code))?;
    let until = when::soon(pairing.expires_at_ms, when::now_ms());
    let person = &arguments.person;
    say(&format!("this code pairs one device of {person}, once, until {until}"));
    let page = pairing.url.clone().unwrap_or_else(|| format!("{url}/sign-in"));
    say(&format!("in a browser, type it at {page} or on the page of any approval"));
    say(&format!("on another machine, type it into: holdgate pair --join {url}"));
    used(&*admin, &pairing, person, before).await
}

async fn last_fact(admin: &dyn Admin) -> Result<u64, Failure> {
    let mut last = 0;
    while let Some(fact) = admin.administration(last).await?.items.last() {
        last = fact.seq;
    }
    Ok(last)
}

/// Waits until the code was used, or cannot be any more.
async fn used(admin: &dyn Admin, pairing: &Pairing, person: &str, before: u64) -> Result<Exit, Failure> {
    let mut after = before;
    loop {
        let is_over = when::now_ms() >= pairing.expires_at_ms;
        for fact in admin.administration(after).await?.items {
            after = fact.seq;
            match fact.event {
                AdministrationEvent::Paired { principal, person: of } if of == person => {
                    say(&format!("paired: \"{}\" ({principal}) is a device of {person}", fact.by.label));
                    return Ok(Exit::Done);
                }
                _ => {}
            }
        }
        if is_over {
            say("the code was not used and is not good any more");
            return Ok(Exit::Over);
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn join(target: &Target, url: &str, label: Option<String>, json: bool) -> Result<Exit, Failure> {
    let gateway = Stranger::before(url).context("the gateway cannot be used")?;
    if target.home.token_file(Identity::Operator).exists() {
        say(
            "this home has an operator token, which its commands go on using; name another --home for the device",
        );
    }
    let label = label.unwrap_or_else(machine);
    let code = read_code()?;
    let platform = Some(std::env::consts::OS.to_owned());
    let Paired { device, token } =
        gateway.pair(&CompletePairing { code, label, public_key: None, platform }).await?;
    target.home.create()?;
    target.home.put_device(&DeviceCredential { token, url: gateway.url().to_owned() })?;
    if json {
        return print_json(&json!({ "device": device, "file": target.home.device_file() }));
    }
    let file = target.home.device_file();
    print(&format!(
        "paired as {}, a device of {}; its token is in {}\n",
        device.id,
        device.person,
        file.display()
    ))?;
    Ok(Exit::Done)
}

fn read_code() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        say("type the pairing code, like 7K2MD-0QXR9:");
    }
    let mut line = String::new();
    stdin.lock().read_line(&mut line).context("the code cannot be read")?;
    let code = line.trim();
    anyhow::ensure!(!code.is_empty(), "there is no code on standard input; `holdgate pair` makes one");
    Ok(code.to_owned())
}

/// What this machine is called.
fn machine() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let name: String = name.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
    if name.is_empty() { "command line".to_owned() } else { name }
}
