//! `holdgate approvals watch`: a reviewer's surface in a terminal, one line for each thing that happens.
//!
//! Owns how cards are written and what is typed. What may be shown, sent and believed is `holdgate_client`'s machine:
//! this file invents no outcome. Texts of the protocol are made visible before they are printed.

use std::collections::BTreeMap;
use std::io::BufRead as _;

use holdgate_client::reviewing::{CardKey, CardView, Decision, End, Origin, State, View};
use holdgate_client::socket::{Address, Credential, Profile, Secret, Snapshot, Status, Surface};
use holdgate_core::presentation::visible;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::exit::{Exit, Failure, say};
use crate::output::print;

/// How many typed lines may wait.
const TYPED: usize = 16;

/// Shows what is pending at the gateway as it comes and goes, and takes answers, until the person or the input ends.
///
/// # Errors
/// The gateway refuses this credential, or its address cannot be used.
pub async fn run(url: &str, token: String) -> Result<Exit, Failure> {
    let address = Address::parse(url).map_err(anyhow::Error::from)?;
    let is_operator = token.starts_with("hgo_");
    let credential = Credential::Token(Secret::new(token));
    let mut profile = Profile::reviewer(env!("CARGO_PKG_VERSION"), Some(credential), None);
    if is_operator {
        profile.scopes.push("operator.admin".to_owned());
    }
    let surface = Surface::start(address, profile, Vec::new());
    let mut snapshots = surface.snapshots();
    let mut typed = typed();
    let mut screen = Lines::default();
    say("a N allows, d N denies, q ends");
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        screen.show(&snapshot)?;
        if let Status::Stopped(why) = &snapshot.status {
            return Err(Failure::new(Exit::Failed, safe(&why.to_string())));
        }
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() { break },
            line = typed.recv() => match line.as_deref().map(str::trim) {
                None | Some("q") => break,
                Some("") => {}
                Some(line) => screen.answer(&surface, line).await,
            },
        }
    }
    surface.close().await;
    Ok(Exit::Done)
}

/// What is typed, line by line. Ends with the input.
fn typed() -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel(TYPED);
    // A thread of its own: a read from a terminal cannot be given up.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receive
}

/// What has been written, so that each thing is written once.
#[derive(Default)]
struct Lines {
    /// The number by which a person calls a card. A card keeps it.
    numbers: BTreeMap<CardKey, usize>,
    /// The last line about each card.
    told: BTreeMap<CardKey, String>,
    status: String,
    view: View,
}

impl Lines {
    fn show(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let status = connection(&snapshot.status);
        if status != self.status {
            say(&status);
            self.status = status;
        }
        for card in &snapshot.view.cards {
            let next = self.numbers.len() + 1;
            let key = &card.shown.key;
            // What had ended before this surface looked is history, which is another command's.
            if !self.numbers.contains_key(key) && matches!(card.state, State::Ended(_)) {
                continue;
            }
            let number = *self.numbers.entry(key.clone()).or_insert(next);
            let line = standing(card);
            if self.told.get(key) != Some(&line) {
                print(&format!("{number:>3}  {line}\n"))?;
                self.told.insert(key.clone(), line);
            }
        }
        self.view = snapshot.view.clone();
        Ok(())
    }

    /// Sends what was typed, for exactly the card that was written with this number.
    async fn answer(&self, surface: &Surface, line: &str) {
        let mut words = line.split_whitespace();
        let decision = match words.next() {
            Some("a") => Decision::AllowOnce,
            Some("d") => Decision::Deny,
            _ => return say("type a N to allow once, d N to deny, q to end"),
        };
        let number: Option<usize> = words.next().and_then(|word| word.parse().ok());
        let key = self.numbers.iter().find(|(_, of)| Some(**of) == number).map(|(key, _)| key);
        let card = key.and_then(|key| self.view.cards.iter().find(|card| card.shown.key == *key));
        let Some(card) = card else {
            return say("there is no approval of that number here");
        };
        if !card.buttons.contains(&decision) {
            return say("that cannot be chosen for it now");
        }
        if let Err(why) = surface.choose(card.shown.clone(), decision).await {
            say(&why.to_string());
        }
    }
}

fn connection(status: &Status) -> String {
    match status {
        Status::Connecting => "connecting".to_owned(),
        Status::Connected(_) => "connected; what is pending follows".to_owned(),
        Status::Waiting { why } => format!("no connection, trying again: {}", safe(why)),
        Status::Stopped(_) => "stopped".to_owned(),
    }
}

/// One line about a card: what it is, and where it stands.
fn standing(card: &CardView) -> String {
    let note = card.note.as_deref().map(|note| format!(" ({})", safe(note))).unwrap_or_default();
    format!("{}  {}: {}{note}", safe(&card.shown.key.id), state(&card.state), what(&card.presentation))
}

fn what(presentation: &Value) -> String {
    let text = |key| presentation.get(key).and_then(Value::as_str);
    safe(text("commandText").or_else(|| text("title")).or_else(|| text("command")).unwrap_or("an action"))
}

fn state(state: &State) -> String {
    match state {
        State::Loading => "being read".to_owned(),
        State::Pending => "pending".to_owned(),
        State::Resolving(decision) => format!("sending {}", decision.as_str()),
        State::OutcomeUnknown(decision) => {
            format!("{} was sent and no answer came; being read back", decision.as_str())
        }
        State::Settling => "ended; being read back".to_owned(),
        State::Ended(end) => ended(end),
    }
}

fn ended(end: &End) -> String {
    match end {
        End::Answered { decision, origin, by } => {
            let verb = if decision.is_allow() { "allowed" } else { "denied" };
            let by = by.as_deref().map(|by| format!(" by {}", safe(by))).unwrap_or_default();
            match origin {
                Origin::Here => format!("{verb} from here"),
                Origin::Elsewhere => format!("{verb} elsewhere{by}"),
                Origin::Unattributed => format!("{verb}{by}"),
            }
        }
        End::Denied { reason } => format!("denied, {}", safe(reason)),
        End::Expired => "expired; silence denied it".to_owned(),
        End::Cancelled { reason } => {
            format!("cancelled, {}", safe(reason.as_deref().unwrap_or("for no stated reason")))
        }
        End::Gone => "no longer here".to_owned(),
    }
}

/// A text of the protocol. A gateway has made it safe already, and is not believed: a text with anything deceptive in it
/// is made visible here, one without is not escaped twice.
fn safe(text: &str) -> String {
    // A backslash by itself deceives nobody: it is how a gateway's escapes begin.
    let is_safe = |c: char| matches!(c, '\\' | ' ') || visible(c.encode_utf8(&mut [0; 4])) == c.to_string();
    let is_plain = text.chars().all(is_safe);
    if is_plain { text.to_owned() } else { visible(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_made_safe_once() {
        assert_eq!(safe("rm \\u{202E}x"), "rm \\u{202E}x");
        assert_eq!(safe("rm \u{202E}x"), "rm \\u{202E}x");
        assert_eq!(safe("a\u{1B}[2Jb\n"), visible("a\u{1B}[2Jb\n"));
    }

    #[test]
    fn an_end_names_whose_answer_stands_only_where_that_is_known() {
        let end =
            |origin| End::Answered { decision: Decision::AllowOnce, origin, by: Some("bob".to_owned()) };
        assert_eq!(ended(&end(Origin::Here)), "allowed from here");
        assert_eq!(ended(&end(Origin::Elsewhere)), "allowed elsewhere by bob");
        assert_eq!(ended(&end(Origin::Unattributed)), "allowed by bob");
    }
}
