//! `holdgate token`: credentials of agents and runtimes, and the home's own.
//!
//! A new credential is printed once, on standard output, unless it belongs into a file of the home.

use std::sync::Arc;

use holdgate_gateway::credential_hash;
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore, owner_of};
use holdgate_store::{Credential, Op, Outcome, Store, StoreError};
use holdgate_wire::admin::{CreateToken, IssuedToken, TokenList};
use serde_json::json;

use crate::connect::{Target, administer};
use crate::environment;
use crate::exit::{Exit, Failure, say};
use crate::home::{Home, Identity};
use crate::output::{print, print_json};
use crate::screen::Screen;
use crate::table::{Cell, Table};
use crate::when;

/// Make, list, replace and revoke credentials
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Make a credential of a new agent and print it, once
    Create(Create),
    /// List agents and runtimes
    List,
    /// End an agent or a runtime
    Revoke {
        /// Its id
        id: String,
    },
    /// Replace a credential; the home's own, `operator` and `agent`, stay in their files
    Rotate {
        /// Its id
        id: String,
    },
    /// Make another operator token when it is lost; needs the database, so stop the gateway before
    Recover,
}

#[derive(Clone, Debug, clap::Args)]
struct Create {
    /// Its name: letters, digits, '-', '_' and '.'
    name: String,
    /// A trusted host process, which may resolve what agents ask but read none of it
    #[arg(long)]
    runtime: bool,
    /// Who may review what the agent asks, like person:alice or group:ops; may be given several times
    #[arg(long = "reviewer", value_name = "R", conflicts_with = "runtime")]
    reviewers: Vec<String>,
    /// The only agent whose requests the runtime may resolve
    #[arg(long, value_name = "AGENT", requires = "runtime")]
    for_agent: Option<String>,
}

/// Runs one of the commands.
///
/// # Errors
/// What the authority refused, or that it cannot be reached.
pub async fn run(target: &Target, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    match arguments.command {
        Command::Create(create) => {
            let Create { name, runtime, reviewers, for_agent } = create;
            let kind = if runtime { "runtime" } else { "agent" }.to_owned();
            let wanted = CreateToken { kind, name, reviewers, for_agent };
            let issued = administer(target, async |admin| Ok(admin.create_token(wanted).await?)).await?;
            tell(&issued, json)
        }
        Command::List => {
            let tokens = administer(target, async |admin| Ok(admin.tokens().await?)).await?;
            if json { print_json(&tokens) } else { list(&tokens) }
        }
        Command::Revoke { id } => {
            administer(target, async |admin| Ok(admin.revoke_token(&id).await?)).await?;
            if json {
                return print_json(&json!({ "revoked": id }));
            }
            print(&format!("revoked {id}\n"))?;
            Ok(Exit::Done)
        }
        Command::Rotate { id } => rotate(target, &id, json).await,
        Command::Recover => recover(&target.home, json).await,
    }
}

fn tell(issued: &IssuedToken, json: bool) -> Result<Exit, Failure> {
    if json {
        return print_json(issued);
    }
    say(&format!("the token of {}; it is not shown again", issued.principal.id));
    print(&format!("{}\n", issued.token))?;
    Ok(Exit::Done)
}

fn list(tokens: &TokenList) -> Result<Exit, Failure> {
    let mut table = Table::new(["ID", "KIND", "REVIEWERS", "RESOLVES FOR", "SINCE"], 2);
    for token in &tokens.items {
        let reviewers = token.reviewers.join(", ");
        let range = match (token.kind.as_str(), &token.range) {
            (_, Some(agent)) => agent.as_str(),
            ("runtime", None) => "every agent",
            (_, None) => "-",
        };
        table.push([
            Cell::plain(&token.id),
            Cell::plain(&token.kind),
            Cell::plain(if reviewers.is_empty() { "-" } else { &reviewers }),
            Cell::plain(range),
            Cell::plain(when::local(token.created_at_ms)),
        ]);
    }
    print(&table.render(Screen::of_stdout()))?;
    Ok(Exit::Done)
}

async fn rotate(target: &Target, id: &str, json: bool) -> Result<Exit, Failure> {
    // Another gateway's or another credential's is not this home's.
    let is_homes = target.url.is_none() && environment::token()?.is_none();
    let own = Identity::BOTH.into_iter().find(|own| is_homes && own.principal().id.as_str() == id);
    let issued = administer(target, async |admin| Ok(admin.rotate_token(id).await?)).await?;
    let Some(identity) = own else {
        return tell(&issued, json);
    };
    if let Err(error) = target.home.put_token(identity, &issued.token) {
        // It is the only one that counts now.
        tell(&issued, json)?;
        return Err(error.context("the new token is in force but not in its file").into());
    }
    written(&target.home, identity, json)
}

fn written(home: &Home, identity: Identity, json: bool) -> Result<Exit, Failure> {
    let path = home.token_file(identity);
    if json {
        return print_json(&json!({ "file": path }));
    }
    print(&format!("{} holds a new token; the earlier one is known nowhere any more\n", path.display()))?;
    Ok(Exit::Done)
}

async fn recover(home: &Home, json: bool) -> Result<Exit, Failure> {
    let database = home.database();
    let in_use = |owner: &dyn std::fmt::Display| {
        let why = format!("{} is in use by {owner}; stop that first, then recover", database.display());
        Failure::new(Exit::Failed, why)
    };
    if let Some(owner) = owner_of(&database) {
        return Err(in_use(&owner));
    }
    if !database.exists() {
        let why = format!("there is no {}; `holdgate serve` makes it and a token", database.display());
        return Err(Failure::new(Exit::Failed, why));
    }
    let options = OpenOptions { path: database.clone(), clock: Arc::new(SystemClock::new()) };
    let store = match SqliteStore::open(options) {
        Ok(store) => store,
        Err(StoreError::Owned { owner, .. }) => return Err(in_use(&owner)),
        Err(error) => return Err(anyhow::Error::from(error).into()),
    };
    let recovered = recover_in(home, &*store).await;
    store.close().await;
    recovered?;
    say(
        "the operator's token was recovered, which is recorded; pages signed in with the earlier one are signed out",
    );
    written(home, Identity::Operator, json)
}

async fn recover_in(home: &Home, store: &dyn Store) -> Result<(), Failure> {
    let principal = Identity::Operator.principal();
    if let Ok(token) = home.token(Identity::Operator) {
        let known = store.credential(Credential::Token(credential_hash(&token))).await;
        if known.map_err(anyhow::Error::from)?.is_some_and(|known| known.id == principal.id) {
            let why = "operator.token is in order; to replace it, run `holdgate token rotate operator`";
            return Err(Failure::new(Exit::Failed, why));
        }
    }
    let secret = Identity::Operator.mint()?;
    let put = Op::PutCredential { hash: credential_hash(&secret), principal, recovers: true };
    if !matches!(store.execute(put).await.map_err(anyhow::Error::from)?, Outcome::Committed(_)) {
        return Err(Failure::new(Exit::Failed, "the database does not take another operator token"));
    }
    home.put_token(Identity::Operator, &secret)?;
    Ok(())
}
