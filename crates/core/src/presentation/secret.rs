//! Masks secrets in what is shown.
//!
//! Owns which parts of a text, and which leaves of content, are secrets, and that `***` stands for each. Masks too much
//! rather than too little of a value, but never what a shell would run. How the rest is written is `visible`'s.

mod bare;
mod field;
mod name;
mod quote;
mod shape;
mod value;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::visible::{lines_visible, visible};
use bare::{Unit, bare, spelt};
use name::{Credential, credential, is_header, is_identifying, is_switch};

/// What stands for a secret.
pub(super) const MASK: &str = "***";

/// The text with its secrets masked as `***` and then made [`visible()`]. One line.
///
/// Secrets are tokens of known shape, `Bearer` tokens, private keys, passwords in URLs, and values whose field, header,
/// variable, option or query parameter is named like a credential. Time is linear in the text's length.
pub fn masked(text: &str) -> String {
    visible(Masked::of(text).as_str())
}

/// The text with its secrets masked as `***` and otherwise as it is: to be kept, not to be shown.
pub fn without_secrets(text: &str) -> String {
    Masked::of(text).as_str().to_owned()
}

/// The text with its secrets masked, line breaks kept as `\n` (`\r\n`, U+2028 and U+2029 too), and everything else
/// made visible as by [`visible()`]. The indentation of a line stays if it is less than eight spaces.
pub fn multiline(text: &str) -> String {
    lines_visible(Masked::of(text).as_str())
}

/// A stretch of a text that is secret, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    /// A shell could read more than one word in it.
    is_odd: bool,
}

impl Span {
    fn of(units: &[Unit]) -> Self {
        let start = units.first().map_or(0, Unit::start);
        Self { start, end: units.last().map_or(start, Unit::end), is_odd: value::is_odd(units) }
    }

    /// The span in a header, whose spaces and semicolons are ordinary.
    fn in_header(self) -> Self {
        Self { is_odd: false, ..self }
    }

    /// The span, unless there is nothing to hide.
    fn unless_open(units: &[Unit]) -> Option<Self> {
        (!value::is_open(units)).then(|| Self::of(units))
    }
}

/// What the place of a leaf in its content says about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Nothing: the text itself is looked through.
    #[default]
    Open,
    /// It is a secret.
    Secret,
    /// It is a secret if it is a text.
    SecretText,
    /// It is a whole header.
    Header,
    /// It is `user:password`.
    Login,
}

impl Place {
    /// The place of a field of an object that is itself in this place.
    pub(super) fn field(self, object: &Map<String, Value>, key: &str) -> Self {
        let name = spelt(&bare(key));
        let beside = ["name", "key", "header"].iter().find_map(|key| object.get(*key)?.as_str());
        // `{"name": "API_TOKEN", "value": "…"}`
        let beside = beside.filter(|_| key == "value").and_then(|name| credential(&spelt(&bare(name))));
        match credential(&name).or(beside) {
            Some(Credential::Any) => Self::Secret,
            Some(Credential::TextOnly) if self == Self::Open => Self::SecretText,
            None if self.is_inherited() && is_identifying(&name) => Self::Open,
            _ => self,
        }
    }

    /// The place of an item of a list that is itself in this place. In a list of arguments, the one before may be an
    /// option.
    pub(super) fn item(self, items: &[Value], index: usize) -> Self {
        let before = index.checked_sub(1).and_then(|before| items[before].as_str());
        let (Some(before), Some(text)) = (before, items.get(index).and_then(Value::as_str)) else {
            return self;
        };
        let before = spelt(&bare(before));
        if self.is_inherited() {
            return self;
        }
        let is_curl = || items[0].as_str().is_some_and(|program| program.rsplit('/').next() == Some("curl"));
        let is_pair = items.len() == 2 && is_header(&before);
        let is_option = before.starts_with('-') && !before.contains(['=', ' ']) && !is_switch(&before);
        let names = is_option && credential(&before).is_some() && !value::is_option(text);
        match before.as_str() {
            option if field::HEADER_OPTIONS.contains(&option) => Self::Header,
            option if field::LOGIN_OPTIONS.contains(&option) && is_curl() => Self::Login,
            _ if is_pair || names => Self::Secret,
            _ => self,
        }
    }

    /// Whether a number here is shown as a mask.
    pub(super) fn hides_numbers(self) -> bool {
        self == Self::Secret
    }

    fn is_inherited(self) -> bool {
        matches!(self, Self::Secret | Self::SecretText)
    }
}

/// A text whose secrets have been masked. Nothing else is ever written into a presentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Masked<'a>(Cow<'a, str>);

impl<'a> Masked<'a> {
    /// A text that stands alone.
    pub(super) fn of(text: &'a str) -> Self {
        Self::at(text, Place::Open)
    }

    /// A text at this place of the content.
    pub(super) fn at(text: &'a str, place: Place) -> Self {
        let spans = spans(text, place);
        if spans.is_empty() {
            return Self(Cow::Borrowed(text));
        }
        let mut out = String::with_capacity(text.len());
        let mut kept = 0;
        for span in spans {
            out.push_str(&text[kept..span.start]);
            out.push_str(MASK);
            kept = span.end;
        }
        out.push_str(&text[kept..]);
        Self(Cow::Owned(out))
    }

    /// The text as it may be written.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is not secret of a text, and what there is to know about the rest.
pub(super) struct Parts<'a> {
    pub(super) open: Vec<&'a str>,
    /// Something is hidden.
    pub(super) is_hidden: bool,
    /// A shell could read more than one word in something hidden.
    pub(super) is_odd: bool,
    /// Characters of the longest secret.
    pub(super) longest: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn of(text: &'a str, place: Place) -> Self {
        let spans = spans(text, place);
        let mut open = Vec::new();
        let mut kept = 0;
        for span in &spans {
            open.push(&text[kept..span.start]);
            kept = span.end;
        }
        open.push(&text[kept..]);
        let longest = spans.iter().map(|span| text[span.start..span.end].chars().count()).max();
        Self {
            open,
            is_hidden: !spans.is_empty(),
            is_odd: spans.iter().any(|span| span.is_odd),
            longest: longest.unwrap_or(0),
        }
    }
}

/// The secrets of a text, in order, apart from each other.
fn spans(text: &str, place: Place) -> Vec<Span> {
    let units = bare(text);
    let mut found = Vec::new();
    match place {
        Place::Secret | Place::SecretText => hide_all(text, &units, &mut found),
        Place::Header => {
            let name = units.iter().take_while(|unit| unit.is_name()).count();
            let colon = units.get(name).is_some_and(|unit| unit.c == b':');
            if colon && credential(&spelt(&units[..name])).is_some() {
                let blanks = units[name + 1..].iter().take_while(|unit| unit.is_blank()).count();
                let value = value::without_scheme(&units[name + 1 + blanks..]);
                found.extend(Span::unless_open(value).map(Span::in_header));
            }
        }
        Place::Login => {
            let colon = units.iter().position(|unit| unit.c == b':');
            found.extend(colon.and_then(|colon| Span::unless_open(&units[colon + 1..])));
        }
        Place::Open => {}
    }
    shape::find(&units, &mut found);
    field::find(&units, &mut found);
    joined(found)
}

/// A leaf that is a secret as a whole, but for the authentication scheme it begins with.
fn hide_all(text: &str, units: &[Unit], found: &mut Vec<Span>) {
    let value = value::without_scheme(units);
    if value::is_plain(value) {
        return;
    }
    // Nothing at its end is left over, seen or not.
    found.extend(Span::unless_open(value).map(|span| Span { end: text.len(), ..span }));
}

/// The spans in order; those that overlap or touch are one.
fn joined(mut found: Vec<Span>) -> Vec<Span> {
    found.retain(|span| span.start < span.end);
    found.sort_unstable_by_key(|span| span.start);
    let mut joined: Vec<Span> = Vec::with_capacity(found.len());
    for span in found {
        match joined.last_mut().filter(|last| span.start <= last.end) {
            Some(last) => {
                last.end = last.end.max(span.end);
                last.is_odd |= span.is_odd;
            }
            None => joined.push(span),
        }
    }
    joined
}
