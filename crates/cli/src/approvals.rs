//! `holdgate approvals`: list, history, show, allow, deny, revoke, watch, wait.
//!
//! Owns what each prints and its exit code. Authorisation is the authority's: an agent's token is refused here as
//! everywhere.

mod show;
mod watch;

use std::time::Duration;

use holdgate_authority::Authority;
use holdgate_core::Kind;
use holdgate_core::approval::Status;
use holdgate_core::limits::PAGE_ITEMS;
use holdgate_core::requirement::Decision;
use holdgate_wire::{Approval, ApprovalPage, Decide, ListApprovals, ListHistory, Revoke};
use tokio::time::{Instant, sleep};

use crate::connect::{self, Serves, Target, WithoutGateway, connect_when_free};
use crate::exec::timeout;
use crate::exit::{Exit, Failure, say};
use crate::home::Identity;
use crate::output::{print, print_json};
use crate::screen::Screen;
use crate::table::{Cell, Table};
use crate::when;

/// How long one wait lasts before the home is looked at again: its gateway may have moved.
const WAIT: Duration = Duration::from_secs(5);
/// The pause before a home without a gateway is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See and answer what agents ask for
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List what is pending, newest first
    List(List),
    /// List what has ended, newest end first
    History(History),
    /// Show one request: the whole action, who asks, where it stands
    Show {
        /// The approval's id
        id: String,
    },
    /// Let exactly what `show` prints run, once
    Allow(Answer),
    /// Let it not run
    Deny(Answer),
    /// Take back an allow that nobody has claimed yet
    Revoke(Answer),
    /// Show what is pending as it comes and goes, and answer it
    Watch,
    /// Wait until a request is decided
    Wait {
        /// The approval's id
        id: String,
        /// How long to wait, like 10m, 90s or 1h30m; without it, until the request ends
        #[arg(long, value_name = "DURATION", value_parser = timeout::parse)]
        timeout: Option<Duration>,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct List {
    /// Only in this status, instead of pending
    #[arg(long, value_parser = status, conflicts_with = "all")]
    status: Option<Status>,
    /// In any status
    #[arg(long)]
    all: bool,
    /// Only of this kind: exec, plugin, tool, dispatch, round or plan
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,
    /// Only from the agent of this name
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Where to begin: the nextCursor of an earlier list
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct History {
    /// Only of this kind: exec, plugin, tool, dispatch, round or plan
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of it
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Where to begin: the nextCursor of an earlier history
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct Answer {
    /// The approval's id
    id: String,
    /// Why, for the requester and the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Runs one of the commands.
///
/// # Errors
/// What the authority refused, or that it cannot be reached.
pub async fn run(target: &Target, arguments: Arguments, json: bool) -> Result<Exit, Failure> {
    match arguments.command {
        Command::List(query) => once(target, async |authority| list(authority, query, json).await).await,
        Command::History(query) => {
            once(target, async |authority| history(authority, query, json).await).await
        }
        Command::Watch => {
            let (url, token) = connect::gateway(target)?;
            watch::run(&url, token).await
        }
        Command::Revoke(answer) => {
            once(target, async |authority| revoke(authority, answer, json).await).await
        }
        Command::Show { id } => {
            once(target, async |authority| show(authority, &id, &target.command(), json).await).await
        }
        Command::Allow(answer) => {
            once(target, async |authority| decide(authority, answer, Decision::AllowOnce, json).await).await
        }
        Command::Deny(answer) => {
            once(target, async |authority| decide(authority, answer, Decision::Deny, json).await).await
        }
        Command::Wait { id, timeout } => wait(target, &id, timeout, json).await,
    }
}

/// Connects as the reviewer, acts, and lets go.
async fn once(
    target: &Target,
    act: impl AsyncFnOnce(&dyn Authority) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let connection = connect_when_free(target, Identity::Operator, WithoutGateway::Open).await?;
    if let Serves::Here(_) = connection.serves {
        connect::say_that_no_gateway_runs(target);
    }
    let done = act(&*connection.authority).await;
    connection.close().await;
    done
}

async fn list(authority: &dyn Authority, query: List, json: bool) -> Result<Exit, Failure> {
    let status = if query.all { None } else { Some(query.status.unwrap_or(Status::Pending)) };
    let mut page = ApprovalPage { items: Vec::new(), next_cursor: query.cursor };
    let limit = query.limit as usize;
    loop {
        let room = u32::try_from(limit - page.items.len()).unwrap_or(PAGE_ITEMS).min(PAGE_ITEMS);
        let more = authority
            .list(ListApprovals {
                status: status.map(|status| status.as_str().to_owned()),
                kind: query.kind.map(|kind| kind.as_str().to_owned()),
                agent: query.agent.clone(),
                cursor: page.next_cursor.take(),
                limit: Some(room),
            })
            .await?;
        page.items.extend(more.items);
        page.next_cursor = more.next_cursor;
        if page.next_cursor.is_none() || page.items.len() >= limit {
            break;
        }
    }
    if !json && page.items.is_empty() {
        let what = status.map_or("approvals", |status| status.as_str());
        say(&format!("nothing {}", if status.is_some() { what } else { "to list" }));
        return Ok(Exit::Done);
    }
    listed(page, json)
}

async fn history(authority: &dyn Authority, query: History, json: bool) -> Result<Exit, Failure> {
    let mut page = ApprovalPage { items: Vec::new(), next_cursor: query.cursor };
    let limit = if query.all { usize::MAX } else { query.limit as usize };
    loop {
        let room = u32::try_from(limit - page.items.len()).unwrap_or(PAGE_ITEMS).min(PAGE_ITEMS);
        let more = authority
            .history(ListHistory {
                kind: query.kind.map(|kind| kind.as_str().to_owned()),
                cursor: page.next_cursor.take(),
                limit: Some(room),
            })
            .await?;
        page.items.extend(more.items);
        page.next_cursor = more.next_cursor;
        if page.next_cursor.is_none() || page.items.len() >= limit {
            break;
        }
    }
    if !json && page.items.is_empty() {
        say("nothing has ended");
        return Ok(Exit::Done);
    }
    listed(page, json)
}

fn listed(page: ApprovalPage, json: bool) -> Result<Exit, Failure> {
    if json {
        return print_json(&page);
    }
    print(&table(&page.items).render(Screen::of_stdout()))?;
    if let Some(cursor) = page.next_cursor {
        say(&format!("there is more: add --limit N, or --cursor {cursor}"));
    }
    Ok(Exit::Done)
}

fn table(items: &[Approval]) -> Table<7> {
    let now_ms = when::now_ms();
    let mut table = Table::new(["STATUS", "ID", "KIND", "WHAT", "WHO", "AGE", "LEFT"], 3);
    for item in items {
        let left = match item.status {
            Status::Pending => when::left(item.expires_at_ms, now_ms),
            Status::Allowed | Status::Denied | Status::Expired | Status::Cancelled => "-".to_owned(),
        };
        let (word, colour) = show::word(item);
        let standing = Cell::coloured(
            show::tally(item).map_or(word.to_owned(), |tally| format!("{word} {tally}")),
            colour,
        );
        // Who signed in, then what it calls itself: only the first is known.
        let who = match &item.source.agent {
            Some(agent) => format!("{} (\"{agent}\")", item.requester.label),
            None => item.requester.label.clone(),
        };
        table.push([
            standing,
            Cell::plain(&item.id),
            Cell::plain(item.kind.as_str()),
            Cell::plain(&item.presentation.headline),
            Cell::plain(&who),
            Cell::plain(when::age(item.created_at_ms, now_ms)),
            Cell::plain(left),
        ]);
    }
    table
}

async fn show(authority: &dyn Authority, id: &str, ourselves: &str, json: bool) -> Result<Exit, Failure> {
    let approval = read(authority, id).await?;
    if json {
        return print_json(&approval);
    }
    print(&show::text(&approval, Screen::of_stdout(), when::now_ms(), ourselves))?;
    Ok(Exit::Done)
}

async fn read(authority: &dyn Authority, id: &str) -> Result<Approval, Failure> {
    authority.get(id).await.map_err(|error| about(id, error.into()))
}

/// Says which record a failure is about, where the authority's own words cannot.
fn about(id: &str, failure: Failure) -> Failure {
    match failure.exit {
        // Quoted: what names nothing may hold anything.
        Exit::NotFound => Failure { why: failure.why.context(format!("{id:?}")), ..failure },
        _ => failure,
    }
}

/// Answers with the digest of what `show` prints for that id. What stands there cannot change: the id follows from it.
async fn decide(
    authority: &dyn Authority,
    answer: Answer,
    decision: Decision,
    json: bool,
) -> Result<Exit, Failure> {
    let Answer { id, reason } = answer;
    let shown = read(authority, &id).await?;
    say(&format!("{}: {}", decision.as_str(), shown.presentation.headline));
    say(&format!("digest {}", shown.digest));
    let decided = match authority.decide(&id, Decide { decision, digest: shown.digest, reason }).await {
        Ok(decided) => decided,
        Err(error) => return Err(lost(error.into())),
    };
    if json {
        return print_json(&decided);
    }
    let stood = if decided.applied { "" } else { "; the same answer stood already" };
    let approval = &decided.approval;
    let how = if approval.is_terminal() {
        show::end(approval)
    } else {
        format!(
            "{} recorded; {} and it waits for more people",
            decision.as_str(),
            show::needed(approval, decision)
        )
    };
    print(&format!("{} {how}{stood}\n", approval.id))?;
    Ok(Exit::Done)
}

/// Takes back an allow. Too late once somebody claimed it: what runs is not called back.
async fn revoke(authority: &dyn Authority, answer: Answer, json: bool) -> Result<Exit, Failure> {
    let Answer { id, reason } = answer;
    let revoked = authority.revoke(&id, Revoke { reason }).await.map_err(|error| about(&id, error.into()))?;
    if json {
        return print_json(&revoked);
    }
    print(&format!("{} {}\n", revoked.id, show::status(&revoked)))?;
    Ok(Exit::Done)
}

/// Tells who won, when an answer came too late to count.
fn lost(failure: Failure) -> Failure {
    let stands =
        failure.problem.as_ref().and_then(|problem| problem.approval.as_deref()).filter(|a| a.is_terminal());
    match stands {
        Some(stands) if matches!(failure.exit, Exit::AnsweredOtherwise | Exit::Over) => {
            let why = format!("this answer does not count: {} was {}", stands.id, show::end(stands));
            Failure { why: anyhow::Error::msg(why), ..failure }
        }
        _ => failure,
    }
}

/// Waits through gateways that go away, come back elsewhere, or are not there yet. A home without a gateway is only
/// looked at now and then: as long as this process held its database, nobody could decide.
async fn wait(target: &Target, id: &str, timeout: Option<Duration>, json: bool) -> Result<Exit, Failure> {
    let until = timeout.map(|timeout| Instant::now() + timeout);
    let left = || until.map_or(WAIT, |until| until.saturating_duration_since(Instant::now()));
    let (mut has_seen_it, mut has_said_so) = (false, false);
    loop {
        let wait = if has_seen_it { left().min(WAIT) } else { Duration::ZERO };
        let found = look(target, id, wait).await;
        if !has_said_so && matches!(found, Ok((_, None))) {
            connect::say_that_no_gateway_runs(target);
            has_said_so = true;
        }
        match found {
            Ok((approval, _)) if approval.is_terminal() || left().is_zero() => {
                return waited(&approval, json);
            }
            Ok((approval, by)) => {
                if !has_seen_it {
                    let place = by.as_ref().map_or(String::new(), |url| format!(" at {url}"));
                    say(&format!("waiting{place} for {id}: {}", approval.presentation.headline));
                }
                has_seen_it = true;
                if by.is_some() {
                    continue;
                }
            }
            // Once it has been seen it is waited for, whether or not its gateway is there.
            Err(failure) if failure.exit == Exit::Unreachable && has_seen_it && !left().is_zero() => {}
            Err(failure) => return Err(failure),
        }
        sleep(left().min(LOOK_AGAIN)).await;
    }
}

/// Reads the record. A gateway, whose address is answered too, waits for its end for so long.
async fn look(target: &Target, id: &str, wait: Duration) -> Result<(Approval, Option<String>), Failure> {
    let connection = connect_when_free(target, Identity::Operator, WithoutGateway::Open).await?;
    let url = match &connection.serves {
        Serves::Gateway { url } => Some(url.clone()),
        Serves::Here(_) => None,
    };
    let found = match &url {
        Some(_) if !wait.is_zero() => connection.authority.wait(id, wait).await,
        _ => connection.authority.get(id).await,
    };
    connection.close().await;
    Ok((found.map_err(|error| about(id, error.into()))?, url))
}

fn waited(approval: &Approval, json: bool) -> Result<Exit, Failure> {
    if json {
        print_json(approval)?;
    } else {
        let how = if approval.is_terminal() { show::end(approval) } else { show::status(approval) };
        print(&format!("{} {how}\n", approval.id))?;
    }
    Ok(match approval.status {
        // Whoever waits would go on.
        Status::Allowed if approval.revocation.is_some() => Exit::Over,
        Status::Allowed => Exit::Done,
        Status::Denied => Exit::Denied,
        Status::Expired | Status::Cancelled => Exit::Over,
        Status::Pending => Exit::Pending,
    })
}

fn status(name: &str) -> Result<Status, String> {
    Status::from_name(name)
        .ok_or_else(|| format!("it is one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

fn kind(name: &str) -> Result<Kind, String> {
    name.parse().map_err(|_| format!("it is one of {}", Kind::ALL.map(Kind::as_str).join(", ")))
}
