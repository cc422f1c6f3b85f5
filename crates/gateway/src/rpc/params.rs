//! Parameters: checked against closed shapes, with the protocol's own words for what is wrong with them.
//!
//! Owns the grammar of those words. What a method does with its parameters is `methods`'.

use holdgate_core::canonical::strict_value;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::frame::Failure;

/// One property of a closed object.
pub(crate) struct Field {
    name: &'static str,
    kind: Kind,
    required: bool,
    nullable: bool,
}

/// What a property may hold.
pub(crate) enum Kind {
    /// A string of so many Unicode code points.
    Text(usize, usize),
    /// A whole number.
    Integer(i64, i64),
    /// Any number or string.
    Loose,
    /// `true` or `false`.
    Bool,
    /// `true`.
    True,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A list of strings, so many of them.
    Texts(usize, usize),
    /// A list of these strings, so many of them.
    Choices(&'static [&'static str], usize, usize),
    /// An object of strings.
    TextMap,
    /// A closed object.
    Object(&'static [Field]),
    /// An object with a `kind`, each with its own closed shape.
    Tagged(&'static [(&'static str, &'static [Field])]),
    /// Anything: the method looks at it itself.
    Any,
}

impl Field {
    pub(crate) const fn required(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: true, nullable: false }
    }

    pub(crate) const fn optional(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: false, nullable: false }
    }

    /// May be absent or null, which says the same.
    pub(crate) const fn nullable(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: false, nullable: true }
    }
}

/// How much is said of what is wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    /// That it is wrong.
    Short,
    /// Where and why.
    Full,
}

/// Reads the parameters of `method`.
///
/// # Errors
/// What is wrong with them; nothing else has been looked at by then.
pub(crate) fn read<T: DeserializeOwned>(
    method: &str,
    params: Option<&RawValue>,
    fields: &[Field],
    words: Words,
) -> Result<T, Failure> {
    let invalid = |why: &[String]| {
        let why = if words == Words::Full { format!(": {}", why.join("; ")) } else { String::new() };
        Failure::invalid(format!("invalid {method} params{why}"))
    };
    // A text with half a surrogate pair is no string, and so no parameter; and of a property that is given twice nobody
    // knows which one the caller's host goes by.
    let value = match params.map(|raw| strict_value(raw.get())).transpose() {
        Ok(value) => value.unwrap_or_else(|| Value::Object(Map::new())),
        Err(error) => return Err(invalid(&[format!("must be valid JSON: {error}")])),
    };
    let mut wrong = Vec::new();
    match &value {
        Value::Object(object) => check_object(object, fields, "", &mut wrong),
        _ => wrong.push("must be object".to_owned()),
    }
    if !wrong.is_empty() {
        return Err(invalid(&wrong));
    }
    serde_json::from_value(value).map_err(|error| invalid(&[error.to_string()]))
}

fn check_object(object: &Map<String, Value>, fields: &[Field], path: &str, wrong: &mut Vec<String>) {
    for field in fields {
        match object.get(field.name) {
            None if field.required => {
                wrong.push(at(path, &format!("must have required property '{}'", field.name)));
            }
            None => {}
            Some(Value::Null) if field.nullable => {}
            Some(value) => check(value, &field.kind, &format!("{path}/{}", field.name), wrong),
        }
    }
    for key in object.keys().filter(|key| !fields.iter().any(|field| field.name == key.as_str())) {
        let place = if path.is_empty() { "root" } else { path };
        wrong.push(format!("at {place}: unexpected property '{key}'"));
    }
}

fn check(value: &Value, kind: &Kind, path: &str, wrong: &mut Vec<String>) {
    let mut say = |what: String| wrong.push(at(path, &what));
    match (kind, value) {
        (Kind::Any, _) => {}
        (Kind::Text(least, most), Value::String(text)) => {
            let length = text.chars().count();
            if length < *least {
                say(format!("must not have fewer than {least} characters"));
            } else if length > *most {
                say(format!("must not have more than {most} characters"));
            }
        }
        (Kind::Text(..), _) => say("must be string".to_owned()),
        (Kind::Integer(least, most), Value::Number(number)) => match number.as_i64() {
            None => say("must be integer".to_owned()),
            Some(number) if number < *least => say(format!("must be >= {least}")),
            Some(number) if number > *most => say(format!("must be <= {most}")),
            Some(_) => {}
        },
        (Kind::Integer(..), _) => say("must be integer".to_owned()),
        (Kind::Loose, Value::String(_) | Value::Number(_)) => {}
        (Kind::Loose, _) => say("must be string".to_owned()),
        (Kind::Bool, Value::Bool(_)) | (Kind::True, Value::Bool(true)) => {}
        (Kind::Bool, _) => say("must be boolean".to_owned()),
        (Kind::True, _) => say("must be equal to constant".to_owned()),
        (Kind::Choice(choices), Value::String(text)) if choices.contains(&text.as_str()) => {}
        (Kind::Choice(_), _) => say("must be equal to one of the allowed values".to_owned()),
        (Kind::Texts(least, most) | Kind::Choices(_, least, most), Value::Array(items)) => {
            if items.len() < *least {
                say(format!("must not have fewer than {least} items"));
            } else if items.len() > *most {
                say(format!("must not have more than {most} items"));
            }
            let item_kind = match kind {
                Kind::Choices(choices, ..) => Kind::Choice(choices),
                _ => Kind::Text(0, usize::MAX),
            };
            for (index, item) in items.iter().enumerate() {
                check(item, &item_kind, &format!("{path}/{index}"), wrong);
            }
        }
        (Kind::Texts(..) | Kind::Choices(..), _) => say("must be array".to_owned()),
        (Kind::TextMap, Value::Object(object)) => {
            for (key, value) in object.iter().filter(|(_, value)| !value.is_string()) {
                // Neither the value nor, beyond the key, anything of it: it may be a secret.
                let _ = value;
                wrong.push(at(&format!("{path}/{key}"), "must be string"));
            }
        }
        (Kind::Object(fields), Value::Object(object)) => check_object(object, fields, path, wrong),
        (Kind::Tagged(shapes), Value::Object(object)) => {
            let tag = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            match shapes.iter().find(|(name, _)| *name == tag) {
                Some((_, fields)) => check_object(object, fields, path, wrong),
                None => say("must match a schema in anyOf".to_owned()),
            }
        }
        (Kind::TextMap | Kind::Object(_) | Kind::Tagged(_), _) => say("must be object".to_owned()),
    }
}

fn at(path: &str, what: &str) -> String {
    if path.is_empty() { what.to_owned() } else { format!("at {path}: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field::required("id", Kind::Text(1, 4)),
        Field::optional("limit", Kind::Integer(1, 100)),
        Field::nullable("cwd", Kind::Text(0, 9)),
        Field::optional("include", Kind::True),
        Field::optional("plan", Kind::Object(&[Field::required("argv", Kind::Texts(0, 2))])),
    ];

    fn why(params: &str) -> String {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        match read::<Value>("m", Some(&raw), FIELDS, Words::Full) {
            Ok(_) => String::new(),
            Err(failure) => failure.message,
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_the_protocols_words() {
        for (params, message) in [
            (r#"{"id":"a","cwd":null,"limit":100}"#, ""),
            ("{}", "invalid m params: must have required property 'id'"),
            ("[]", "invalid m params: must be object"),
            (r#"{"id":1}"#, "invalid m params: at /id: must be string"),
            (r#"{"id":"abcde"}"#, "invalid m params: at /id: must not have more than 4 characters"),
            (r#"{"id":"a","limit":0}"#, "invalid m params: at /limit: must be >= 1"),
            (r#"{"id":"a","limit":1.5}"#, "invalid m params: at /limit: must be integer"),
            (r#"{"id":"a","foo":1}"#, "invalid m params: at root: unexpected property 'foo'"),
            (r#"{"id":"a","include":false}"#, "invalid m params: at /include: must be equal to constant"),
            (r#"{"id":"a","plan":{}}"#, "invalid m params: at /plan: must have required property 'argv'"),
            (r#"{"id":"a","plan":{"argv":[1]}}"#, "invalid m params: at /plan/argv/0: must be string"),
        ] {
            assert_eq!(why(params), message, "{params}");
        }
    }

    #[test]
    fn a_property_that_is_given_twice_is_refused_at_any_depth() {
        for twice in [r#"{"id":"a","id":"b"}"#, r#"{"id":"a","plan":{"argv":[],"argv":["rm"]}}"#] {
            assert!(why(twice).contains("is given twice"), "{twice}: {}", why(twice));
        }
    }

    #[test]
    fn a_length_counts_code_points() {
        assert_eq!(why("{\"id\":\"\u{1F600}\u{1F600}\u{1F600}\u{1F600}\"}"), "");
    }

    #[test]
    fn half_a_surrogate_pair_is_no_parameter() {
        let raw = RawValue::from_string(r#"{"id":"\ud800"}"#.to_owned()).unwrap();
        let failure = read::<Value>("approval.get", Some(&raw), FIELDS, Words::Short).unwrap_err();
        assert_eq!(failure.message, "invalid approval.get params");
    }
}
