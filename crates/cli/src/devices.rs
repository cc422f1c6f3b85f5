//! `holdgate devices`: who can answer from where, and the end of it.

use holdgate_wire::admin::{Device, DeviceList};

use crate::connect::{Target, administer};
use crate::exit::{Exit, Failure, say};
use crate::output::{print, print_json};
use crate::screen::Screen;
use crate::table::{Cell, Table};
use crate::when;

/// List and revoke paired devices
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List paired devices
    List,
    /// End a device: its token, its sign-ins and its open connections
    Revoke {
        /// The device's id
        id: String,
    },
}

/// Runs one of the commands.
///
/// # Errors
/// What the authority refused, or that it cannot be reached.
pub async fn run(target: &Target, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    match arguments.command {
        Command::List => {
            let devices = administer(target, async |admin| Ok(admin.devices().await?)).await?;
            if json { print_json(&devices) } else { list(&devices) }
        }
        Command::Revoke { id } => {
            administer(target, async |admin| Ok(admin.revoke_device(&id).await?)).await?;
            if json {
                return print_json(&serde_json::json!({ "revoked": id }));
            }
            print(&format!("revoked {id}\n"))?;
            Ok(Exit::Done)
        }
    }
}

fn list(devices: &DeviceList) -> Result<Exit, Failure> {
    if devices.items.is_empty() {
        say("no device is paired; `holdgate pair` makes a code for one");
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["ID", "PERSON", "LABEL", "PLATFORM", "MAY", "PAIRED"], 2);
    for device in &devices.items {
        table.push([
            Cell::plain(&device.id),
            Cell::plain(&device.person),
            Cell::plain(&device.label),
            Cell::plain(device.platform.as_deref().unwrap_or("-")),
            Cell::plain(may(device)),
            Cell::plain(when::local(device.created_at_ms)),
        ]);
    }
    print(&table.render(Screen::of_stdout()))?;
    Ok(Exit::Done)
}

fn may(device: &Device) -> &'static str {
    let has = |name: &str| device.scopes.iter().any(|scope| scope == name);
    match (has("operator.admin"), has("operator.approvals")) {
        (true, _) => "administer",
        (false, true) => "review",
        (false, false) => "ask",
    }
}
