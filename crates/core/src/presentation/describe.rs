//! What is said of each kind of action: its headline and its facts, in order.
//!
//! Owns the shapes of every kind but `exec`, which is `command`'s. What it does not know it shows by path, so that
//! nothing of the content is missing. How a value is written is `facts`'.

use serde_json::{Map, Value};

use super::NotPresentable;
use super::facts::{Facts, Path, Step, write_key};
use super::secret::{MASK, Masked, Place};
use super::visible::{Quote, within};

/// Most characters of a name, a directory or a tool's input that the headline repeats.
pub(super) const HEADLINE_NAME: usize = 60;
/// Most inputs that the headline repeats.
const HEADLINE_INPUTS: usize = 3;
/// Said of a title that the headline cannot hold.
const LONG_TITLE: &str = "with a long title, below";

/// The parts of a presentation that depend on the kind.
pub(super) struct Described {
    pub(super) headline: String,
    pub(super) command_text: Option<String>,
    pub(super) tool_name: Option<String>,
    pub(super) facts: Facts,
}

type Object = Map<String, Value>;

/// A tool call. The input is what will run; what the model sent is told only where it differs.
pub(super) fn tool(content: &Object) -> Result<Described, NotPresentable> {
    let mut facts = Facts::default();
    let name = non_empty(content.get("toolName"), "toolName")?;
    let shown_name = facts.quoted(name)?;
    facts.push("Tool".to_owned(), shown_name)?;
    let input = content.get("input");
    if let Some(input) = input {
        by_path(&mut facts, content, "input", input)?;
    }
    match (content.get("rawInput"), input) {
        (None, _) => {}
        (raw, input) if raw == input => {
            facts.push("As sent by the model".to_owned(), "the same as the input".to_owned())?;
        }
        (Some(raw), input) => {
            let mut path = Path::with_note(" (as sent by the model)");
            facts.inside(&mut path, Step::Key("rawInput"), |facts, path| {
                differences(facts, path, raw, input)
            })?;
        }
    }
    for (key, value) in content {
        if !matches!(key.as_str(), "toolName" | "input" | "rawInput") {
            by_path(&mut facts, content, key, value)?;
        }
    }
    let target = name_in_code(&Masked::of(name)).unwrap_or_else(|| "with a long name, below,".to_owned());
    let consequential =
        if content.get("consequential") == Some(&Value::Bool(true)) { " (consequential)" } else { "" };
    let headline = format!("Call tool {target}{}{consequential}", inputs(input));
    // The fact above has bounded its length.
    Ok(Described { headline, command_text: None, tool_name: Some(super::masked(name)), facts })
}

/// A plan, before any of it runs.
pub(super) fn plan(content: &Object) -> Result<Described, NotPresentable> {
    let size = task_count(content, "tasks").map_or_else(String::new, |tasks| format!(" of {tasks}"));
    by_paths(content, format!("Execute a plan{size}"))
}

/// The step to the next round of tasks.
pub(super) fn round(content: &Object) -> Result<Described, NotPresentable> {
    let size = task_count(content, "nextTasks").map_or_else(String::new, |tasks| format!(" of {tasks}"));
    by_paths(content, format!("Start the next round{size}"))
}

/// One task about to start.
pub(super) fn dispatch(content: &Object) -> Result<Described, NotPresentable> {
    let title = content.get("task").and_then(|task| task.get("title")).and_then(Value::as_str);
    let headline = match title {
        Some(title) => format!(
            "Start task {}",
            name_in_code(&Masked::of(title)).unwrap_or_else(|| LONG_TITLE.to_owned())
        ),
        None => "Start a task".to_owned(),
    };
    by_paths(content, headline)
}

/// An action of a plugin; it may have a title of its own.
pub(super) fn plugin(content: &Object) -> Result<Described, NotPresentable> {
    let headline = match content.get("title").and_then(Value::as_str) {
        Some(title) => {
            format!(
                "Run plugin action {}",
                name_in_code(&Masked::of(title)).unwrap_or_else(|| LONG_TITLE.to_owned())
            )
        }
        None => format!("Run a plugin action with {}", counted(content.len(), "field")),
    };
    by_paths(content, headline)
}

/// A kind whose content is shown by path alone.
fn by_paths(content: &Object, headline: String) -> Result<Described, NotPresentable> {
    let mut facts = Facts::default();
    if content.is_empty() {
        facts.push("Content".to_owned(), "{}".to_owned())?;
    }
    for (key, value) in content {
        by_path(&mut facts, content, key, value)?;
    }
    Ok(Described { headline, command_text: None, tool_name: None, facts })
}

fn task_count(content: &Object, key: &str) -> Option<String> {
    content.get(key).and_then(Value::as_array).map(|tasks| counted(tasks.len(), "task"))
}

/// Adds the leaves of one top-level field.
pub(super) fn by_path(
    facts: &mut Facts,
    content: &Object,
    key: &str,
    value: &Value,
) -> Result<(), NotPresentable> {
    facts.inside(&mut Path::default(), Step::Field(content, key), |facts, path| facts.leaves(path, value))
}

/// Adds what `raw` has that the input does not, and says `absent` of what only the input has.
fn differences(
    facts: &mut Facts,
    path: &mut Path,
    raw: &Value,
    input: Option<&Value>,
) -> Result<(), NotPresentable> {
    match (raw, input) {
        (raw, Some(input)) if raw == input => Ok(()),
        (Value::Object(raw), Some(Value::Object(input))) if !raw.is_empty() => {
            for (key, value) in raw {
                facts.inside(path, Step::Field(raw, key), |facts, path| {
                    differences(facts, path, value, input.get(key))
                })?;
            }
            for key in input.keys().filter(|key| !raw.contains_key(*key)) {
                facts.inside(path, Step::Field(input, key), |facts, path| {
                    facts.push(path.label(), "absent".to_owned())
                })?;
            }
            Ok(())
        }
        (Value::Array(raw), Some(Value::Array(input))) if !raw.is_empty() => {
            for (index, value) in raw.iter().enumerate() {
                facts.inside(path, Step::Item(raw, index), |facts, path| {
                    differences(facts, path, value, input.get(index))
                })?;
            }
            for index in raw.len()..input.len() {
                facts.inside(path, Step::Item(input, index), |facts, path| {
                    facts.push(path.label(), "absent".to_owned())
                })?;
            }
            Ok(())
        }
        (raw, _) => facts.leaves(path, raw),
    }
}

/// What a tool is called with, as the end of its headline: the first few plain values if they are short.
fn inputs(input: Option<&Value>) -> String {
    let object = match input {
        None | Some(Value::Null) => return " without input".to_owned(),
        Some(Value::Object(object)) if object.is_empty() => return " without input".to_owned(),
        Some(Value::Object(object)) => object,
        Some(Value::Array(items)) => {
            return format!(" with a list of {}", counted(items.len(), "item"));
        }
        Some(scalar) => {
            return headline_scalar(scalar, Place::Open)
                .map_or(" with the input below".to_owned(), |it| format!(" with {it}"));
        }
    };
    let mut shown: Vec<String> = Vec::new();
    let mut room = HEADLINE_NAME;
    for (key, value) in object {
        let mut input = String::new();
        let fits = write_key(&mut input, key, room).is_ok();
        let Some(value) = headline_scalar(value, Place::Open.field(object, key)).filter(|_| fits) else {
            continue;
        };
        input = [input.as_str(), " ", value.as_str()].concat();
        let chars = input.chars().count();
        if shown.len() < HEADLINE_INPUTS && chars <= room {
            room -= chars;
            shown.push(input);
        }
    }
    match (shown.is_empty(), object.len() - shown.len()) {
        (true, all) => format!(" with {}", counted(all, "input")),
        (false, 0) => format!(" with {}", shown.join(", ")),
        (false, more) => format!(" with {} and {more} more", shown.join(", ")),
    }
}

fn headline_scalar(value: &Value, place: Place) -> Option<String> {
    match value {
        // A text of several lines is read where it is laid out, not in one line.
        Value::String(text) if text.contains('\n') => None,
        Value::String(text) => within(&Masked::at(text, place), Quote::Double, HEADLINE_NAME).ok(),
        Value::Number(_) if place.hides_numbers() => Some(MASK.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// The name between backticks, unless it is too long for a headline.
pub(super) fn name_in_code(name: &Masked<'_>) -> Option<String> {
    within(name, Quote::Code, HEADLINE_NAME).ok()
}

/// The string, or what is wrong with it.
pub(super) fn non_empty<'a>(value: Option<&'a Value>, at: &str) -> Result<&'a str, NotPresentable> {
    let text = value.and_then(Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| NotPresentable::Malformed { at: at.to_owned(), expected: "a non-empty string" })
}

/// `3 tasks`.
pub(super) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {}", plural(noun, u64::try_from(n).ok()))
}

/// The noun for that many; without a number, many.
pub(super) fn plural(noun: &str, n: Option<u64>) -> String {
    if n == Some(1) { noun.to_owned() } else { format!("{noun}s") }
}
