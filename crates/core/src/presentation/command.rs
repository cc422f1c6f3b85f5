//! What is said of a command: the line, its arguments, and what they were resolved to.
//!
//! Owns the shape of `exec` content and how an argument list becomes one line that cannot be misread. Every other kind
//! is `describe`'s.

use serde_json::{Map, Value};

use super::describe::{Described, HEADLINE_NAME, by_path, counted, name_in_code, non_empty, plural};
use super::facts::{Facts, Path, Step};
use super::secret::{Masked, Place};
use super::visible::{Overflow, Quote, within, write_within};
use super::{COMMAND_DISPLAY_LIMIT, NotPresentable};

/// Most characters of a command that the headline repeats.
const HEADLINE_COMMAND: usize = 80;

/// A command: `argv`, or `command` from a caller that has only the line, and what it was resolved to.
pub(super) fn exec(content: &Map<String, Value>) -> Result<Described, NotPresentable> {
    let mut facts = Facts::default();
    let argv = content.get("argv").filter(|argv| !argv.is_null());
    let (frozen, command) = match (argv, content.get("command")) {
        (None, Some(line)) => ("command", line_command(&mut facts, line)?),
        (argv, _) => ("argv", argv_command(&mut facts, argv)?),
    };
    if let Some(executable) = content.get("executable") {
        program(&mut facts, executable)?;
    }
    if let Some(cwd) = content.get("cwd") {
        directory(&mut facts, cwd)?;
    }
    if let Some(environment) = content.get("environment") {
        variables(&mut facts, environment)?;
    }
    if let Some(list) = content.get("operands") {
        operands(&mut facts, list)?;
    }
    let is_told =
        |key: &str| key == frozen || matches!(key, "executable" | "cwd" | "environment" | "operands");
    for (key, value) in content.iter().filter(|(key, _)| !is_told(key)) {
        by_path(&mut facts, content, key, value)?;
    }
    let headline = format!("Run {}{}", command.target, place(content.get("cwd")));
    Ok(Described { headline, command_text: Some(command.shown), tool_name: None, facts })
}

/// The command as shown, and what the headline calls it.
struct Shown {
    shown: String,
    target: String,
}

/// A line that somebody else's shell will read.
fn line_command(facts: &mut Facts, line: &Value) -> Result<Shown, NotPresentable> {
    let line = non_empty(Some(line), "command")?;
    let shown = within(&Masked::of(line), Quote::None, COMMAND_DISPLAY_LIMIT).map_err(too_long)?;
    facts.push_bounded("Command".to_owned(), shown.clone());
    let target = in_code(&shown).unwrap_or_else(|| "the command below".to_owned());
    Ok(Shown { shown, target })
}

/// A list of arguments; no shell is in between.
fn argv_command(facts: &mut Facts, argv: Option<&Value>) -> Result<Shown, NotPresentable> {
    let argv = arguments(argv)?;
    let shown = command_line(&argv)?;
    facts.push_bounded("Command".to_owned(), shown.clone());
    // Plain words are borders enough. As soon as one argument is more than a word, each is told by itself as well.
    let is_plain = argv.iter().all(|argument| is_word(argument));
    for (index, argument) in argv.iter().enumerate().filter(|_| !is_plain) {
        // Bounded by the command, of which it is a part.
        let argument = within(argument, Quote::Double, usize::MAX).map_err(too_long)?;
        facts.push_bounded(format!("Argument {index}"), argument);
    }
    let target = in_code(&shown).unwrap_or_else(|| {
        let count = counted(argv.len() - 1, "argument");
        match name_in_code(&argv[0]) {
            Some(program) => format!("{program} with {count}"),
            None => format!("a program with a long name, below, with {count}"),
        }
    });
    Ok(Shown { shown, target })
}

/// How a field of a known object is told. A value of another type is shown by path instead.
#[derive(Clone, Copy)]
enum Told {
    /// A string, quoted.
    Quoted,
    /// 64 hexadecimal digits.
    Sha256,
    /// A whole number with a noun after it.
    Counted(&'static str),
    /// A whole number with words before it; in quotes if it was written as a string.
    Numbered(&'static str),
    /// `true` told in words.
    Remark(&'static str),
}

/// Said of a file whose approved bytes are what runs, whatever becomes of the file.
const SEALED: &str = "runs from a sealed copy of the approved bytes";

const FILE: &[(&str, Told)] = &[
    ("path", Told::Quoted),
    ("sha256", Told::Sha256),
    ("bytes", Told::Counted("byte")),
    ("pinned", Told::Remark(SEALED)),
];
const DIRECTORY: &[(&str, Told)] =
    &[("path", Told::Quoted), ("device", Told::Numbered("device ")), ("inode", Told::Numbered("inode "))];
const ENVIRONMENT: &[(&str, Told)] = &[("count", Told::Counted("variable")), ("sha256", Told::Sha256)];
const OPERAND: &[(&str, Told)] = &[
    ("path", Told::Quoted),
    ("argument", Told::Numbered("argument ")),
    ("sha256", Told::Sha256),
    ("bytes", Told::Counted("byte")),
    ("modifiedMs", Told::Numbered("modified at Unix millisecond ")),
    ("unhashed", Told::Remark("content not hashed: only size and time are checked")),
    ("pinned", Told::Remark(SEALED)),
];

impl Told {
    fn tell(self, facts: &Facts, value: &Value) -> Result<Option<String>, NotPresentable> {
        Ok(match (self, value) {
            (Self::Quoted, Value::String(text)) => Some(facts.quoted(text)?),
            (Self::Sha256, Value::String(digest)) if is_sha256(digest) => Some(format!("sha256 {digest}")),
            (Self::Counted(noun), Value::Number(n)) if n.is_u64() => {
                Some(format!("{n} {}", plural(noun, n.as_u64())))
            }
            (Self::Numbered(words), Value::Number(n)) if n.is_u64() => Some(format!("{words}{n}")),
            (Self::Numbered(words), Value::String(n)) if is_whole_number(n) => {
                Some(format!("{words}\"{n}\""))
            }
            (Self::Remark(words), Value::Bool(true)) => Some(words.to_owned()),
            _ => None,
        })
    }
}

/// Adds one fact of the known fields of an object, in our order, and the rest of it by path.
fn known(
    facts: &mut Facts,
    label: &str,
    key: &str,
    value: &Value,
    fields: &[(&str, Told)],
) -> Result<(), NotPresentable> {
    facts.inside(&mut Path::default(), Step::Key(key), |facts, path| {
        known_at(facts, label, path, value, fields)
    })
}

fn known_at(
    facts: &mut Facts,
    label: &str,
    path: &mut Path,
    value: &Value,
    fields: &[(&str, Told)],
) -> Result<(), NotPresentable> {
    let Value::Object(object) = value else {
        return facts.leaves(path, value);
    };
    let mut told = Vec::new();
    let mut told_keys = Vec::new();
    for &(key, how) in fields {
        let Some(value) = object.get(key) else {
            continue;
        };
        if let Some(words) = how.tell(facts, value)? {
            told.push(words);
            told_keys.push(key);
        }
    }
    if told.is_empty() {
        return facts.leaves(path, value);
    }
    facts.push(label.to_owned(), told.join(", "))?;
    for (key, value) in object.iter().filter(|(key, _)| !told_keys.contains(&key.as_str())) {
        facts.inside(path, Step::Field(object, key), |facts, path| facts.leaves(path, value))?;
    }
    Ok(())
}

/// The working directory: Holdgate's own object, or another caller's bare path.
fn directory(facts: &mut Facts, value: &Value) -> Result<(), NotPresentable> {
    match value {
        Value::String(path) => {
            let path = facts.quoted(path)?;
            facts.push("Directory".to_owned(), path)
        }
        _ => known(facts, "Directory", "cwd", value, DIRECTORY),
    }
}

fn operands(facts: &mut Facts, value: &Value) -> Result<(), NotPresentable> {
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
        return by_path(facts, &Map::new(), "operands", value);
    };
    each_known(facts, &mut Path::default(), "Operand", "operands", items, OPERAND)
}

/// The program, and after it the programs that run it if it is a script.
fn program(facts: &mut Facts, value: &Value) -> Result<(), NotPresentable> {
    let interpreters = value.get("interpreters").and_then(Value::as_array).filter(|items| !items.is_empty());
    let (Value::Object(object), Some(items)) = (value, interpreters) else {
        return known(facts, "Program", "executable", value, FILE);
    };
    let mut file = object.clone();
    file.remove("interpreters");
    known(facts, "Program", "executable", &Value::Object(file), FILE)?;
    facts.inside(&mut Path::default(), Step::Key("executable"), |facts, path| {
        each_known(facts, path, "Interpreter", "interpreters", items, FILE)
    })
}

/// The environment, and after it the names in it that can make programs run something else.
fn variables(facts: &mut Facts, value: &Value) -> Result<(), NotPresentable> {
    let names = value.get("steering").and_then(Value::as_array).filter(|names| !names.is_empty());
    let names = names.and_then(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let (Value::Object(object), Some(names)) = (value, names) else {
        return known(facts, "Environment", "environment", value, ENVIRONMENT);
    };
    let mut counted = object.clone();
    counted.remove("steering");
    known(facts, "Environment", "environment", &Value::Object(counted), ENVIRONMENT)?;
    for name in names {
        let name = facts.quoted(name)?;
        facts.push("Variable that steers programs".to_owned(), name)?;
    }
    Ok(())
}

/// One fact for each known object of a list.
fn each_known(
    facts: &mut Facts,
    path: &mut Path,
    label: &str,
    key: &str,
    items: &[Value],
    fields: &[(&str, Told)],
) -> Result<(), NotPresentable> {
    facts.inside(path, Step::Key(key), |facts, path| {
        for (index, item) in items.iter().enumerate() {
            facts.inside(path, Step::Item(items, index), |facts, path| {
                known_at(facts, label, path, item, fields)
            })?;
        }
        Ok(())
    })
}

/// The arguments with their secrets masked; one that comes after `--password` is all secret.
fn arguments(argv: Option<&Value>) -> Result<Vec<Masked<'_>>, NotPresentable> {
    let malformed = |at: String, expected| NotPresentable::Malformed { at, expected };
    let items = argv.and_then(Value::as_array).filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| malformed("argv".to_owned(), "a non-empty array of strings"))?;
    let strings = items.iter().enumerate().map(|(index, item)| match item {
        Value::String(text) if index > 0 || !text.is_empty() => {
            Ok(Masked::at(text, Place::Open.item(items, index)))
        }
        _ if index == 0 => Err(malformed("argv[0]".to_owned(), "a non-empty string")),
        _ => Err(malformed(format!("argv[{index}]"), "a string")),
    });
    strings.collect()
}

/// The arguments as one line. No two argument lists come out alike.
fn command_line(argv: &[Masked<'_>]) -> Result<String, NotPresentable> {
    let mut line = String::new();
    let mut used = 0;
    for (index, argument) in argv.iter().enumerate() {
        if index > 0 {
            line.push(' ');
            used += 1;
        }
        let room = COMMAND_DISPLAY_LIMIT - used.min(COMMAND_DISPLAY_LIMIT);
        used += write_within(&mut line, argument, shell_quote(argument), room)
            .map_err(|over| too_long(Overflow { chars: used + over.chars }))?;
    }
    Ok(line)
}

/// Quotes what a shell, or an eye, might not take for one word.
fn shell_quote(argument: &Masked<'_>) -> Quote {
    if is_word(argument) { Quote::None } else { Quote::Single }
}

fn is_word(argument: &Masked<'_>) -> bool {
    let argument = argument.as_str();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_./:=@%+,-".contains(&b);
    !argument.is_empty() && argument.bytes().all(is_plain)
}

fn too_long(over: Overflow) -> NotPresentable {
    NotPresentable::TooLong { shown: over.chars, limit: COMMAND_DISPLAY_LIMIT }
}

/// The command between backticks, if the headline can hold it.
fn in_code(command: &str) -> Option<String> {
    let is_short = command.chars().nth(HEADLINE_COMMAND).is_none();
    (is_short && !command.contains('`')).then(|| format!("`{command}`"))
}

/// Where a command runs, as the end of its headline. Empty if the content does not say.
fn place(cwd: Option<&Value>) -> String {
    let path = match cwd {
        Some(Value::Object(cwd)) => cwd.get("path").and_then(Value::as_str),
        Some(Value::String(path)) => Some(path.as_str()),
        _ => None,
    };
    let Some(path) = path else {
        return String::new();
    };
    let path = Masked::of(path);
    match within(&path, shell_quote(&path), HEADLINE_NAME) {
        Ok(path) => format!(" in {path}"),
        Err(_) => " in the directory below".to_owned(),
    }
}

fn is_sha256(digest: &str) -> bool {
    digest.len() == 64 && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_whole_number(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}
