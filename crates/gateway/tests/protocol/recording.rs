//! The recorded answers, and where ours differ from them on purpose.
//!
//! A deviation is kept in two places that say the same: `docs/protocol.md` for people, with the reason, and
//! `fixtures/deviations.json` with the exact answer that is expected instead.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::normal::normal;
use crate::probe::Case;

/// The recorded answers to every case, in order.
pub fn golden() -> Vec<Case> {
    let text = include_str!("fixtures/probe-golden-2026.9.6.json");
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    let read = cases.into_iter().map(|mut case| Case {
        name: case["case"].as_str().unwrap().to_owned(),
        observed: case["observed"].take(),
    });
    read.collect()
}

/// What ours answers instead, by case, in normal form.
pub fn deviations() -> Map<String, Value> {
    serde_json::from_str(include_str!("fixtures/deviations.json")).unwrap()
}

/// The cases that the document lists as deviations: the first column of its table, between back-quotes.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/protocol.md");
    let table = page.split("| cases | what ours does | why |").nth(1).expect("the page has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    // Between back-quotes: every second piece.
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Every way in which these answers are not what they should be, as text; none if all is well.
pub fn differences(cases: &[Case], deviations: &Map<String, Value>) -> Vec<String> {
    let golden = golden();
    let names = |cases: &[Case]| cases.iter().map(|case| case.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(cases), names(&golden), "the cases are not those of the recording");
    let judged = cases.iter().zip(&golden).filter_map(|(case, recorded)| {
        let (ours, theirs) = (normal(case), normal(recorded));
        match deviations.get(&case.name) {
            None if ours == theirs => None,
            None => Some(told("differs from the recording", &case.name, &theirs, &ours)),
            Some(_) if ours == theirs => {
                Some(format!("{}: listed as a deviation, but there is none", case.name))
            }
            Some(expected) if ours == *expected => None,
            Some(expected) => Some(told("differs from the listed deviation", &case.name, expected, &ours)),
        }
    });
    judged.collect()
}

fn told(what: &str, name: &str, expected: &Value, ours: &Value) -> String {
    let mut parts = Vec::new();
    parts_that_differ("", expected, ours, &mut parts);
    format!("{name}: {what}\n    {}", parts.join("\n    "))
}

fn parts_that_differ(at: &str, expected: &Value, ours: &Value, parts: &mut Vec<String>) {
    match (expected, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for name in names {
                let (left, right) = (left.get(name), right.get(name));
                let at = format!("{at}/{name}");
                match (left, right) {
                    (Some(left), Some(right)) => parts_that_differ(&at, left, right, parts),
                    (Some(left), None) => parts.push(format!("{at}: {left} is missing")),
                    (None, Some(right)) => parts.push(format!("{at}: {right} is too much")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                parts_that_differ(&format!("{at}/{index}"), left, right, parts);
            }
        }
        _ if expected == ours => {}
        _ => parts.push(format!("{at}: expected {expected}, got {ours}")),
    }
}

#[test]
fn the_document_and_the_expectations_list_the_same_cases() {
    let listed: BTreeSet<String> = deviations().into_iter().map(|(name, _)| name).collect();
    assert_eq!(documented(), listed, "docs/protocol.md and fixtures/deviations.json");
}

#[test]
fn every_listed_deviation_is_one() {
    let golden = golden();
    for (name, expected) in deviations() {
        let recorded = golden.iter().find(|case| case.name == name);
        let recorded = recorded.unwrap_or_else(|| panic!("there is no case {name}"));
        assert_ne!(normal(recorded), expected, "{name} is as recorded");
    }
}

#[test]
fn a_difference_that_nobody_listed_is_found() {
    let none = Map::new();
    let mut cases = golden();
    assert_eq!(differences(&cases, &none), Vec::<String>::new());
    cases[3].observed = serde_json::json!({ "ok": true, "payload": [1] });
    assert_eq!(differences(&cases, &none).len(), 1);
}

#[test]
fn a_deviation_that_is_none_any_more_is_found() {
    let stale = Map::from_iter([("list.revA".to_owned(), serde_json::json!("something else"))]);
    let found = differences(&golden(), &stale);
    assert_eq!(found, ["list.revA: listed as a deviation, but there is none"]);
}
