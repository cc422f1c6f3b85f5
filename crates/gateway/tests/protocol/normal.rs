//! Makes two observations of one case comparable: what differs from run to run becomes a word.
//!
//! Ids, device ids, times, cursors and sequence numbers are replaced. What they say to each other stays: an
//! expiry is written as its distance from the creation, a place in a sequence as its rank.

use serde_json::{Map, Value, json};

use crate::probe::Case;

/// Fields that hold a time in milliseconds.
const TIMES: [&str; 6] = ["createdAtMs", "expiresAtMs", "resolvedAtMs", "updatedAtMs", "issuedAtMs", "ts"];

/// The case whose observation is a list of events and their sequence numbers.
const ORDER: &str = "event order for resolver: res vs events";

/// The case whose observation is a list of field names for each entry of a list.
const FIELDS: &str = "list.admin";

/// What was observed, without what differs from run to run.
pub fn normal(case: &Case) -> Value {
    match case.name.as_str() {
        ORDER => ranked(&case.observed),
        FIELDS => sorted(&case.observed),
        _ => value(&case.observed),
    }
}

/// Lists of field names: their order says nothing.
fn sorted(lists: &Value) -> Value {
    let lists = lists.as_array().into_iter().flatten().map(|list| {
        let mut names: Vec<_> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.sort_unstable();
        json!(names)
    });
    lists.collect()
}

fn value(from: &Value) -> Value {
    match from {
        Value::String(text) => json!(without_ids(text)),
        Value::Array(items) => items.iter().map(value).collect(),
        Value::Object(fields) => Value::Object(object(fields)),
        other => other.clone(),
    }
}

fn object(fields: &Map<String, Value>) -> Map<String, Value> {
    let created = fields.get("createdAtMs").and_then(Value::as_i64);
    let is_reply = fields.get("type").is_some_and(|kind| kind == "res");
    let replaced = fields.iter().map(|(name, field)| {
        let new = match (name.as_str(), field) {
            ("expiresAtMs", Value::Number(at)) if created.is_some() => {
                let after = at.as_i64().unwrap_or_default() - created.unwrap_or_default();
                json!(format!("<created + {after}>"))
            }
            (name, Value::Number(_)) if TIMES.contains(&name) => json!("<time>"),
            ("seq", Value::Number(_)) => json!("<seq>"),
            ("nextCursor", Value::String(_)) => json!("<cursor>"),
            ("id", Value::String(_)) if is_reply => json!("<request>"),
            (_, field) => value(field),
        };
        (name.clone(), new)
    });
    replaced.collect()
}

/// `[event, seq]` pairs: ticks come when they come, and the first number depends on who else has connected.
fn ranked(pairs: &Value) -> Value {
    let mut rank = 0;
    let kept = pairs.as_array().into_iter().flatten().filter(|pair| {
        let event = pair[0].as_str().unwrap_or_default();
        event != "tick" && !event.starts_with("device.pair.") && event != "health"
    });
    let numbered = kept.map(|pair| {
        let seq = if pair[1].is_null() {
            Value::Null
        } else {
            rank += 1;
            json!(rank)
        };
        json!([pair[0], seq])
    });
    numbered.collect()
}

/// A text in which every id is a word: UUIDs, minted ids, and hashes of 32 bytes in hex.
fn without_ids(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(first) = rest.chars().next() {
        let found =
            [(uuid_length(rest), "<id>"), (minted_length(rest), "<id>"), (hash_length(rest), "<device>")];
        let (length, word) = found.into_iter().find(|(length, _)| *length > 0).unwrap_or((0, ""));
        if length > 0 {
            out.push_str(word);
            rest = &rest[length..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

fn hex_run(text: &str) -> usize {
    text.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count()
}

fn uuid_length(text: &str) -> usize {
    let mut at = 0;
    for (part, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if part > 0 {
            if text.as_bytes().get(at) != Some(&b'-') {
                return 0;
            }
            at += 1;
        }
        let Some(rest) = text.get(at..) else { return 0 };
        if hex_run(rest) < length {
            return 0;
        }
        at += length;
    }
    at
}

fn minted_length(text: &str) -> usize {
    let rests = ["apr_", "pair_"].into_iter().filter_map(|prefix| text.strip_prefix(prefix));
    let minted = rests.filter(|rest| hex_run(rest) >= 32).map(|rest| text.len() - rest.len() + 32);
    minted.max().unwrap_or(0)
}

fn hash_length(text: &str) -> usize {
    if hex_run(text) == 64 { 64 } else { 0 }
}

#[test]
fn an_id_inside_a_text_becomes_a_word() {
    let uuid = "65e78fed-546d-4245-a0d1-c322170d00e7";
    assert_eq!(without_ids(&format!("/approve/plugin%3A{uuid}")), "/approve/plugin%3A<id>");
    assert_eq!(without_ids(&format!("(requestId: {uuid})")), "(requestId: <id>)");
    assert_eq!(
        without_ids(&format!("/approve/apr_{}", "0a".repeat(16))),
        "/approve/apr_"[..9].to_owned() + "<id>"
    );
    assert_eq!(without_ids(&"ab".repeat(32)), "<device>");
    assert_eq!(without_ids("deadbeef-dead is no id"), "deadbeef-dead is no id");
}

#[test]
fn an_expiry_is_written_as_its_distance_from_the_creation() {
    let case = Case { name: "a".to_owned(), observed: json!({ "createdAtMs": 5, "expiresAtMs": 65 }) };
    assert_eq!(normal(&case), json!({ "createdAtMs": "<time>", "expiresAtMs": "<created + 60>" }));
}

#[test]
fn a_tick_does_not_move_the_order_of_events() {
    let observed = json!([["connect.challenge", null], ["tick", 1], ["a", 2], ["tick", 3], ["b", 4]]);
    let case = Case { name: ORDER.to_owned(), observed };
    assert_eq!(normal(&case), json!([["connect.challenge", null], ["a", 1], ["b", 2]]));
}
