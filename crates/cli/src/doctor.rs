//! `holdgate doctor`: what is wrong with a home and its gateway, and what is merely advisory.
//!
//! Owns the order of the checks and what each advises. It looks and changes nothing; what it finds is for people.

mod gateway;
mod home;

use holdgate_authority::{Admin, Authority};
use holdgate_core::approval::Status;
use holdgate_core::limits::PAGE_ITEMS;
use holdgate_wire::{Approval, ListApprovals};
use serde::Serialize;

use crate::connect::{Target, WithoutGateway, connect_when_free};
use crate::exit::{Exit, Failure};
use crate::freeze;
use crate::home::Identity;
use crate::output::{print, print_json};
use crate::screen::{Colour, Screen};

/// Say what is wrong with this home and its gateway, and what is merely advisory
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Arguments {}

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Advisory,
    /// To be put right.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), todo: None }
    }

    /// Worth knowing, and what could be done.
    pub fn advisory(name: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { name, state: State::Advisory, found: found.into(), todo: Some(todo.into()) }
    }

    /// Wrong, and what to do.
    pub fn wrong(name: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { name, state: State::Wrong, found: found.into(), todo: Some(todo.into()) }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    checks: &'a [Check],
}

/// Looks at everything; exit 0 if nothing is wrong, else 1.
///
/// # Errors
/// Standard output cannot be written.
pub async fn run(target: &Target, _: Arguments, json: bool) -> Result<Exit, Failure> {
    let mut checks = home::checks(&target.home);
    checks.extend(gateway::checks(target).await);
    // Opening a home that is broken would say the same again, or repair it on the way.
    if checks.iter().all(|check| check.state != State::Wrong) {
        checks.extend(records(target).await);
    }
    let is_fine = checks.iter().all(|check| check.state != State::Wrong);
    if json {
        print_json(&Report { ok: is_fine, checks: &checks })?;
    } else {
        print(&text(&checks, Screen::of_stdout()))?;
    }
    Ok(if is_fine { Exit::Done } else { Exit::Failed })
}

fn text(checks: &[Check], screen: Screen) -> String {
    let mut text = String::new();
    for check in checks {
        let (word, colour) = match check.state {
            State::Ok => ("ok      ", Colour::Green),
            State::Advisory => ("advisory", Colour::Yellow),
            State::Wrong => ("wrong   ", Colour::Red),
        };
        let word = screen.paint(colour, word);
        text.push_str(&format!("{word}  {}: {}\n", check.name, check.found));
        if let Some(todo) = &check.todo {
            text.push_str(&format!("          -> {todo}\n"));
        }
    }
    text
}

/// What waits, what was never settled, and what is frozen.
async fn records(target: &Target) -> Vec<Check> {
    let connection = match connect_when_free(target, Identity::Operator, WithoutGateway::Open).await {
        Ok(connection) => connection,
        Err(failure) => {
            let todo = "put it right, then run this again";
            return vec![Check::wrong("records", format!("{:#}", failure.why), todo)];
        }
    };
    let mut checks = counts(&*connection.authority).await.unwrap_or_else(|error| {
        vec![Check::wrong("records", error.to_string(), "look into the log of the gateway")]
    });
    checks.extend(frozen(&*connection.admin).await);
    connection.close().await;
    checks
}

async fn counts(authority: &dyn Authority) -> Result<Vec<Check>, holdgate_authority::Error> {
    let page = async |status: Status| {
        let query =
            ListApprovals { status: Some(status.as_str().to_owned()), limit: Some(PAGE_ITEMS), ..all() };
        authority.list(query).await
    };
    let (pending, expired, allowed) =
        (page(Status::Pending).await?, page(Status::Expired).await?, page(Status::Allowed).await?);
    let number =
        |items: usize, has_more: bool| if has_more { format!("{items} or more") } else { items.to_string() };
    let found = format!(
        "{} pending, {} expired",
        number(pending.items.len(), pending.next_cursor.is_some()),
        number(expired.items.len(), expired.next_cursor.is_some())
    );
    let is_open = |approval: &&Approval| approval.claim.is_some() && approval.receipt.is_none();
    let unsettled = allowed.items.iter().filter(is_open).count();
    Ok(vec![
        Check::ok("records", found),
        match unsettled {
            0 => Check::ok("claims", "every claim of the newest allows has its receipt"),
            count => Check::advisory(
                "claims",
                format!("{count} claimed actions have no receipt yet"),
                "they may be running; if not, look at what they left: `holdgate approvals list --status allowed`",
            ),
        },
    ])
}

fn all() -> ListApprovals {
    ListApprovals { status: None, kind: None, agent: None, cursor: None, limit: None }
}

async fn frozen(admin: &dyn Admin) -> Vec<Check> {
    match admin.freezes().await {
        Ok(freezes) if freezes.items.is_empty() => vec![Check::ok("freezes", "nothing is frozen")],
        Ok(freezes) => {
            let advisory = |frozen: &holdgate_wire::admin::Frozen| {
                let agent = frozen.agent.as_ref().map_or(String::new(), |agent| format!(" {agent}"));
                let cure = format!("`holdgate thaw{agent}` lets it go on");
                Check::advisory("freezes", freeze::sentence(frozen), cure)
            };
            freezes.items.iter().map(advisory).collect()
        }
        // A reviewer's device may look at records but not at this.
        Err(error) if error.code() == Some(holdgate_wire::Code::MissingScope) => Vec::new(),
        Err(error) => vec![Check::wrong("freezes", error.to_string(), "look into the log of the gateway")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_says_how_it_is_and_what_to_do() {
        let checks = [Check::ok("a", "fine"), Check::wrong("b", "bad", "mend it")];
        let said = text(&checks, Screen { width: None, has_colour: false });
        assert_eq!(said, "ok        a: fine\nwrong     b: bad\n          -> mend it\n");
    }
}
