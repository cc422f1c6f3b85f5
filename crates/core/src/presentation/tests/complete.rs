//! Nothing of an action is missing from what is shown: the content can be read back from the facts.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::visible::{Look, Quote};
use super::{
    Fact, Kind, by_path, decode, hostile_json, hostile_object, hostile_text, present, rebuilt, shown,
    strings, visible,
};

/// Splits a command text as a shell would, and undoes the escapes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = match rest.strip_prefix('\'') {
            None => rest.find(' ').unwrap_or(rest.len()),
            Some(quoted) => {
                // Signs spelt '\'' hold three of them; blank them out to find the one that closes.
                let closed = quoted.replace("'\\''", "....").find('\'').unwrap();
                closed + 2
            }
        };
        let (word, after) = rest.split_at(end);
        words.push(match word.strip_prefix('\'') {
            Some(quoted) => decode(quoted.strip_suffix('\'').unwrap(), Quote::Single),
            None => word.to_owned(),
        });
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    words
}

/// Every leaf with its place as a JSON pointer. Empty objects and arrays are leaves.
fn leaves(pointer: String, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(object) if !object.is_empty() => object.iter().for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            leaves(format!("{pointer}/{key}"), value, found);
        }),
        Value::Array(items) if !items.is_empty() => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| leaves(format!("{pointer}/{index}"), value, found));
        }
        leaf => found.push((pointer, leaf.clone())),
    }
}

fn written(leaf: &Value) -> String {
    let fact = present(Kind::Plan, &json!({ "a": leaf })).unwrap().facts.remove(0);
    fact.text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn content_can_be_read_back_from_its_facts(content in hostile_object()) {
        for kind in [Kind::Plan, Kind::Round, Kind::Dispatch, Kind::Plugin] {
            let shown = shown(kind, Value::Object(content.clone()));
            if content.is_empty() {
                prop_assert_eq!(shown.facts.len(), 1);
            } else {
                prop_assert_eq!(rebuilt(&shown.facts), Value::Object(content.clone()));
            }
        }
    }

    #[test]
    fn arguments_can_be_read_back_from_the_command(
        program in hostile_text().prop_filter("not empty", |text| !text.is_empty()),
        arguments in prop::collection::vec(hostile_text(), 0..5),
    ) {
        let argv: Vec<String> = std::iter::once(program).chain(arguments).collect();
        let shown = shown(Kind::Exec, json!({ "argv": argv }));
        prop_assert_eq!(shell_words(shown.command_text.as_deref().unwrap()), argv.as_slice());
        prop_assert_eq!(shown.facts[0].text.as_str(), shown.command_text.as_deref().unwrap());
        let each = shown.facts[1..].iter().map(|fact| decode(&fact.text[1..fact.text.len() - 1], Quote::Double));
        let each: Vec<_> = each.collect();
        // The command alone says it all when every argument stands in it as it is.
        let is_plain = !argv.contains(&String::new()) && argv.join(" ") == shown.facts[0].text;
        prop_assert!(if is_plain && each.is_empty() { true } else { each == argv }, "{:?}", each);
    }

    #[test]
    fn a_command_shows_every_other_field(extra in hostile_object(), executable in hostile_object(), cwd in hostile_json()) {
        let unknown = |key: &String| !matches!(key.as_str(), "argv" | "command" | "cwd");
        let mut extra: Map<String, Value> = extra.into_iter().filter(|(key, _)| unknown(key)).collect();
        extra.insert("executable".to_owned(), Value::Object(executable));
        extra.insert("operands".to_owned(), json!([{ "z": cwd.clone() }, cwd]));
        let mut content = extra.clone();
        content.insert("argv".to_owned(), json!(["x"]));
        let shown = shown(Kind::Exec, Value::Object(content));
        prop_assert_eq!(rebuilt(by_path(&shown.facts)), Value::Object(extra));
    }

    #[test]
    fn a_tool_call_shows_its_input_and_what_the_model_sent(
        name in hostile_text().prop_filter("not empty", |text| !text.is_empty()),
        raw in hostile_json(), input in hostile_json(), keeps in any::<bool>(),
    ) {
        let input = if keeps { json!([raw, input]) } else { input };
        let raw = if keeps { json!([raw]) } else { raw };
        let shown = shown(Kind::Tool, json!({ "toolName": name, "input": input, "rawInput": raw }));
        let (sent, other): (Vec<&Fact>, Vec<&Fact>) =
            by_path(&shown.facts).partition(|fact| fact.label.ends_with(" (as sent by the model)"));
        prop_assert_eq!(rebuilt(other), json!({ "input": input }));
        let mut all = Vec::new();
        leaves(String::new(), &raw, &mut all);
        for (pointer, leaf) in all {
            let is_shown = sent.iter().any(|fact| fact.text == written(&leaf));
            prop_assert!(is_shown || input.pointer(&pointer) == Some(&leaf), "{} {}", pointer, leaf);
        }
        prop_assert_eq!(shown.tool_name.unwrap(), visible(&name));
    }

    #[test]
    fn every_string_of_a_presentation_is_safe_and_one_line(content in hostile_object(), text in hostile_text()) {
        let mut content = content;
        let text = format!("x{text}");
        content.insert("argv".to_owned(), json!([text, text]));
        content.insert("cwd".to_owned(), json!(text));
        content.insert("toolName".to_owned(), json!(text));
        content.insert("title".to_owned(), json!(text));
        content.insert("task".to_owned(), json!({ "title": text }));
        let content = Value::Object(content);
        for kind in [Kind::Exec, Kind::Tool, Kind::Plugin, Kind::Dispatch, Kind::Round, Kind::Plan] {
            let shown = shown(kind, content.clone());
            for text in strings(&shown) {
                prop_assert!(!text.chars().any(|c| Look::of(c).is_deceptive()), "{:?}", text);
            }
        }
    }
}
