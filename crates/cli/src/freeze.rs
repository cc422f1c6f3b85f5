//! `holdgate freeze` and `holdgate thaw`: nothing new is asked for and nothing that was allowed begins, until it is let
//! go on.

use holdgate_wire::admin::{Freeze, FreezeList, Frozen, Thaw};

use crate::connect::{Target, administer};
use crate::exit::{Exit, Failure, say};
use crate::output::{print, print_json};
use crate::when;

/// Stop new requests and claims, of one agent or of all
#[derive(Clone, Debug, clap::Args)]
pub struct FreezeArguments {
    /// Only of this agent
    agent: Option<String>,
    /// Why, for whoever finds it frozen
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Let requests and claims go on
#[derive(Clone, Debug, clap::Args)]
pub struct ThawArguments {
    /// What was frozen for this agent; without it, what was frozen for all
    agent: Option<String>,
}

/// Freezes.
///
/// # Errors
/// What the authority refused, or that it cannot be reached.
pub async fn freeze(target: &Target, arguments: FreezeArguments, json: bool) -> Result<Exit, Failure> {
    let FreezeArguments { agent, reason } = arguments;
    let left = administer(target, async |admin| Ok(admin.freeze(Freeze { agent, reason }).await?)).await?;
    report(&left, json)
}

/// Thaws.
///
/// # Errors
/// What the authority refused, or that it cannot be reached.
pub async fn thaw(target: &Target, arguments: ThawArguments, json: bool) -> Result<Exit, Failure> {
    let agent = arguments.agent;
    let thaw = Thaw { agent: agent.clone() };
    let left = administer(target, async |admin| Ok(admin.thaw(thaw).await?)).await?;
    if !json {
        say(&format!("thawed {}", agent.as_deref().unwrap_or("everything that was frozen as a whole")));
    }
    report(&left, json)
}

fn report(freezes: &FreezeList, json: bool) -> Result<Exit, Failure> {
    if json {
        return print_json(freezes);
    }
    if freezes.items.is_empty() {
        print("nothing is frozen\n")?;
    }
    for frozen in &freezes.items {
        print(&format!("{}\n", sentence(frozen)))?;
    }
    Ok(Exit::Done)
}

/// What one freeze means.
pub fn sentence(frozen: &Frozen) -> String {
    let what = frozen.agent.as_ref().map_or("everything is".to_owned(), |agent| format!("{agent} is"));
    let why = frozen.reason.as_ref().map_or(String::new(), |reason| format!(": \"{reason}\""));
    format!("{what} frozen since {} by {}{why}", when::local(frozen.at_ms), frozen.by)
}
