//! What the presentation as a whole promises: the recorded attacks are seen, and nothing of an action is missing.
//!
//! Owns the readers that undo what `visible` and `facts` write. Only tests undo it: a surface never does.

mod attack;
mod complete;
mod kind;
mod readable;
mod secret;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::visible::Quote;
use super::{Fact, Kind, Presentation, present, visible};

/// The text that was written as `shown` (without its outer quotation signs). The exact inverse.
fn decode(shown: &str, quote: Quote) -> String {
    let mut text = String::new();
    let mut rest = shown;
    while let Some(c) = rest.chars().next() {
        if let Some(escape) = rest.strip_prefix("\\u{") {
            let (hex, after) = escape.split_once('}').unwrap();
            let c = char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap();
            let (run, after) = match after.strip_prefix("[×") {
                Some(count) => count.split_once(']').map(|(n, after)| (n.parse().unwrap(), after)).unwrap(),
                None => (1, after),
            };
            text.extend(std::iter::repeat_n(c, run));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\\\"").filter(|_| quote == Quote::Double) {
            text.push('"');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("'\\''").filter(|_| quote == Quote::Single) {
            text.push('\'');
            rest = after;
        } else {
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text
}

/// Texts made of what is hard to show: runs, escapes in clear, quotation signs, brackets after escapes.
fn hostile_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[ -~]{0,6}",
        2 => prop::sample::select(vec![
            "\\", "\\u{", "\\u{A}", "[×", "[×3]", "\"", "\\\"", "'", "'\\''", "`", "\u{301}", "e\u{301}\u{302}", "é",
            "\r\n", "}", " ", "×",
        ]).prop_map(str::to_owned),
        2 => (prop::sample::select(vec![
            '\t', '\n', ' ', '\u{A0}', '\u{200B}', '\u{202E}', '\u{2800}', '\u{3164}', '\u{E0041}', '\u{301}', '\u{20DD}',
            '\u{E000}', '\u{FFFF}', '\u{2028}', '\u{1B}', 'я',
        ]), 1..14_usize).prop_map(|(c, run)| c.to_string().repeat(run)),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// JSON whose keys and strings are hostile or nearly alike.
fn hostile_json() -> impl Strategy<Value = Value> {
    let key = || prop_oneof![3 => "[a-c.\\[\"0A]{0,3}", 1 => hostile_text()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        prop::sample::select(vec!["7", "true", "null", "{}", "[]", "", "\""]).prop_map(Value::from),
        hostile_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..4)
                .prop_map(|object| Value::Object(object.into_iter().collect())),
        ]
    })
}

fn hostile_object() -> impl Strategy<Value = Map<String, Value>> {
    // No name of a credential: what such a field holds is not read back.
    prop::collection::btree_map("[a-oq-z]{1,3}|[A-OQ-Z. \"]{0,3}", hostile_json(), 0..4)
        .prop_map(|object| object.into_iter().collect())
}

/// The JSON object whose leaves these facts are.
fn rebuilt<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Value {
    let mut root = Value::Object(Map::new());
    for fact in facts {
        let leaf = match fact.text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(text) => Value::from(decode(text, Quote::Double)),
            None => serde_json::from_str(&fact.text).unwrap(),
        };
        *place_of(&mut root, &fact.label) = leaf;
    }
    root
}

/// The place that a label names, made on the way.
fn place_of<'v>(root: &'v mut Value, label: &str) -> &'v mut Value {
    let mut place = root;
    let mut rest = label;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']').unwrap();
            if place.is_null() {
                *place = Value::Array(Vec::new());
            }
            let items = place.as_array_mut().unwrap();
            let index: usize = index.parse().unwrap();
            items.resize(items.len().max(index + 1), Value::Null);
            (place, rest) = (&mut items[index], after);
            continue;
        }
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut signs = quoted.match_indices('"').map(|(at, _)| at);
                let end = signs.find(|&at| !quoted[..at].ends_with('\\')).unwrap();
                (decode(&quoted[..end], Quote::Double), &quoted[end + 1..])
            }
            None => {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        (place, rest) = (place.as_object_mut().unwrap().entry(key).or_insert(Value::Null), after);
    }
    place
}

/// Facts whose label is a path into the content, not our own word.
fn by_path(facts: &[Fact]) -> impl Iterator<Item = &Fact> {
    facts.iter().filter(|fact| !fact.label.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn fact<'a>(shown: &'a Presentation, label: &str) -> &'a str {
    let fact = shown.facts.iter().find(|fact| fact.label == label);
    &fact.unwrap_or_else(|| panic!("no fact {label} in {:#?}", shown.facts)).text
}

fn shown(kind: Kind, content: Value) -> Presentation {
    present(kind, &content).unwrap()
}

/// Every string of the presentation.
fn strings(shown: &Presentation) -> Vec<&str> {
    let facts = shown.facts.iter().flat_map(|fact| [&fact.label, &fact.text]);
    let rest =
        [&shown.headline].into_iter().chain(&shown.command_text).chain(&shown.tool_name).chain(&shown.flags);
    facts.chain(rest).map(String::as_str).collect()
}
