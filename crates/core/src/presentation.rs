//! What a reviewer is shown of a frozen action, and how it is made safe to look at.
//!
//! Owns the headline, the facts and the flags of every kind, and both display limits. A presentation is the whole
//! action or nothing: it is never cut. Does not lay text out; surfaces do, with strings that are already safe.

mod command;
mod describe;
mod facts;
mod flags;
mod secret;
#[cfg(test)]
mod tests;
mod visible;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::Kind;

pub use flags::flags;
pub use secret::{masked, multiline, without_secrets};
pub use visible::visible;

use flags::Oddities;
use secret::Place;

/// Longest command that can be reviewed, in characters as shown.
pub const COMMAND_DISPLAY_LIMIT: usize = 16_384;
/// Most that the other facts of one action may take together, in characters as shown, labels included.
pub const DISPLAY_LIMIT: usize = 65_536;

/// An action as a reviewer sees it. Every string in it is [`masked()`] and is one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Presentation {
    /// Where the caller stopped.
    pub kind: Kind,
    /// First line: verb, object, blast radius. Written from the content, never by the agent.
    pub headline: String,
    /// The whole command, for `exec`. Arguments are quoted as a shell reads them, so that their borders are plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_text: Option<String>,
    /// Name of the tool, for `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The whole action. Every leaf of the content is in here, as it is or with its secrets masked as `***`.
    pub facts: Vec<Fact>,
    /// What is odd about it, as sentences. See [`flags()`].
    pub flags: Vec<String>,
}

/// One line of the action: what it is and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    /// Our own word, which starts with a capital (`Program`), or a path into the content (`input.files[2]`).
    pub label: String,
    /// The value. Strings of the content are in double quotes, so that `"7"` is not `7`.
    pub text: String,
}

/// Why an action cannot be put to a reviewer. It is then refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPresentable {
    /// Reading it is too much for one decision. `shown` is where counting stopped: it takes at least that much.
    #[error(
        "the action takes at least {shown} characters to show and {limit} is the limit: it is refused, never truncated. \
         Split it, or put the long part in a file and name the file"
    )]
    TooLong {
        /// Characters counted, in the text as shown.
        shown: usize,
        /// The limit it went past.
        limit: usize,
    },
    /// The content does not have the shape of its kind.
    #[error("the action's {at} must be {expected}")]
    Malformed {
        /// Where in the content.
        at: String,
        /// What belongs there.
        expected: &'static str,
    },
}

/// What a reviewer is shown of an action of this kind with this content.
pub fn present(kind: Kind, content: &Value) -> Result<Presentation, NotPresentable> {
    let Value::Object(object) = content else {
        return Err(NotPresentable::Malformed { at: "content".to_owned(), expected: "an object" });
    };
    let described = match kind {
        Kind::Exec => command::exec(object)?,
        Kind::Tool => describe::tool(object)?,
        Kind::Plugin => describe::plugin(object)?,
        Kind::Dispatch => describe::dispatch(object)?,
        Kind::Round => describe::round(object)?,
        Kind::Plan => describe::plan(object)?,
    };
    let mut oddities = Oddities::default();
    note_fields(&mut oddities, object, Place::Open);
    let hidden = oddities.longest_hidden();
    if hidden > COMMAND_DISPLAY_LIMIT {
        // No credential is as long as that. What else it is could not be reviewed.
        return Err(NotPresentable::TooLong { shown: hidden, limit: COMMAND_DISPLAY_LIMIT });
    }
    Ok(Presentation {
        kind,
        headline: described.headline,
        command_text: described.command_text,
        tool_name: described.tool_name,
        facts: described.facts.into_list(),
        flags: oddities.sentences(),
    })
}

/// Notes every string and key. The nesting has been bounded by then.
fn note_all<'a>(oddities: &mut Oddities<'a>, value: &'a Value, place: Place) {
    match value {
        Value::String(text) => oddities.note(text, place),
        Value::Array(items) => {
            let places = (0..items.len()).map(|index| place.item(items, index));
            items.iter().zip(places).for_each(|(item, place)| note_all(oddities, item, place));
        }
        Value::Object(object) => note_fields(oddities, object, place),
        Value::Number(_) if place.hides_numbers() => oddities.note_hidden(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn note_fields<'a>(oddities: &mut Oddities<'a>, object: &'a Map<String, Value>, place: Place) {
    for (key, value) in object {
        oddities.note(key, Place::Open);
        note_all(oddities, value, place.field(object, key));
    }
}
