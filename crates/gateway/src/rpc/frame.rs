//! Frames: one JSON object each. Owns their shapes and spelling.

use std::collections::BTreeMap;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A request frame. `params` stays as it was written until a method reads it, so that a text which is no valid string
/// costs the caller its parameters and not its answer.
#[derive(Debug)]
pub(crate) struct Request {
    /// The caller's name for this call. Repeated in every answer to it.
    pub(crate) id: String,
    /// What is called.
    pub(crate) method: String,
    /// With what.
    pub(crate) params: Option<Box<RawValue>>,
}

/// The longest name of a call, of a method and of a trace, in code points.
const ID_CHARS: usize = 256;
const METHOD_CHARS: usize = 128;
const TRACE_CHARS: usize = 128;

/// What came in.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// No JSON: nobody to answer.
    NotJson,
    /// JSON, but no request.
    Invalid {
        /// The name to answer under.
        id: String,
        /// What is wrong, in the protocol's words.
        why: String,
    },
    /// A call.
    Request(Request),
}

/// The properties of a frame, and one that is given more than once: nobody knows which is meant.
struct Fields<'a> {
    fields: BTreeMap<String, &'a RawValue>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let (mut fields, mut twice) = (BTreeMap::new(), None);
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            if fields.insert(key.clone(), value).is_some() {
                twice.get_or_insert(key);
            }
        }
        Ok(Fields { fields, twice })
    }
}

/// Reads a frame.
pub(crate) fn read(text: &str) -> Incoming {
    let Ok(Fields { mut fields, twice }) = serde_json::from_str::<Fields<'_>>(text) else {
        return match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => Incoming::Invalid { id: "invalid".to_owned(), why: "must be object".to_owned() },
            Err(_) => Incoming::NotJson,
        };
    };
    let mut wrong: Vec<String> =
        twice.iter().map(|key| format!("at root: property '{key}' is given twice")).collect();
    let kind = string(&mut fields, "type", usize::MAX, &mut wrong);
    let id = string(&mut fields, "id", ID_CHARS, &mut wrong);
    let method = string(&mut fields, "method", METHOD_CHARS, &mut wrong);
    if kind.is_some_and(|kind| kind != "req") {
        wrong.push("at /type: must be equal to constant".to_owned());
    }
    for name in ["traceparent", "expectedProfileId"] {
        if fields.contains_key(name) {
            string(&mut fields, name, TRACE_CHARS, &mut wrong);
        }
    }
    let params = fields.remove("params").map(ToOwned::to_owned);
    wrong.extend(fields.keys().map(|key| format!("at root: unexpected property '{key}'")));
    match (id, method) {
        (Some(id), Some(method)) if wrong.is_empty() => Incoming::Request(Request { id, method, params }),
        (id, _) => {
            Incoming::Invalid { id: id.unwrap_or_else(|| "invalid".to_owned()), why: wrong.join("; ") }
        }
    }
}

fn string(
    fields: &mut BTreeMap<String, &RawValue>,
    name: &str,
    most: usize,
    wrong: &mut Vec<String>,
) -> Option<String> {
    let why = match fields.remove(name).map(|raw| serde_json::from_str::<String>(raw.get())) {
        None => format!("must have required property '{name}'"),
        Some(Err(_)) => format!("at /{name}: must be string"),
        Some(Ok(text)) if text.is_empty() => format!("at /{name}: must not have fewer than 1 characters"),
        Some(Ok(text)) if text.chars().count() > most => {
            format!("at /{name}: must not have more than {most} characters")
        }
        Some(Ok(text)) => return Some(text),
    };
    wrong.push(why);
    None
}

/// Why a call failed, as clients read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failure {
    /// `INVALID_REQUEST`, `FORBIDDEN`, `NOT_PAIRED` or `UNAVAILABLE`.
    pub(crate) code: &'static str,
    /// A sentence.
    pub(crate) message: String,
    /// Finer reasons for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
    /// Whether the same call may succeed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
    /// When, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<i64>,
}

impl Failure {
    /// The caller's mistake, in these words.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("INVALID_REQUEST", message)
    }

    /// A failure of some code.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, retry_after_ms: None }
    }

    /// Not now: the same call may succeed later.
    pub(crate) fn later(message: impl Into<String>) -> Self {
        Self { retryable: Some(true), ..Self::new("UNAVAILABLE", message) }
    }

    /// The same with finer reasons.
    #[must_use]
    pub(crate) fn with(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    /// A scope that the connection lacks.
    pub(crate) fn missing_scope(scope: &str) -> Self {
        Self::new("FORBIDDEN", format!("missing scope: {scope}"))
            .with(json!({ "code": "MISSING_SCOPE", "missingScope": scope, "requiredScopes": [scope] }))
    }
}

/// The text of a response frame. One request may get two: first that it was accepted, then its end.
pub(crate) fn response(id: &str, answer: &Result<Value, Failure>) -> String {
    match answer {
        Ok(payload) => json!({ "type": "res", "id": id, "ok": true, "payload": payload }),
        Err(error) => json!({ "type": "res", "id": id, "ok": false, "error": error }),
    }
    .to_string()
}

/// The text of an event frame that is not numbered: what comes before a connection has events.
pub(crate) fn event(name: &str, payload: &Value) -> String {
    json!({ "type": "event", "event": name, "payload": payload }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_says_something_twice_is_refused() {
        let twice = r#"{"type":"req","id":"1","method":"health","method":"approval.resolve"}"#;
        let Incoming::Invalid { id, why } = read(twice) else { panic!("it was read") };
        assert_eq!((id.as_str(), why.as_str()), ("1", "at root: property 'method' is given twice"));
    }

    #[test]
    fn what_is_no_request_is_said_under_the_frames_own_id() {
        for (text, id, why) in [
            (r#"{"type":"req","id":"z1"}"#, "z1", "must have required property 'method'"),
            (r#"{"type":"req","id":7,"method":"m"}"#, "invalid", "at /id: must be string"),
            (
                r#"{"type":"req","id":"","method":"m"}"#,
                "invalid",
                "at /id: must not have fewer than 1 characters",
            ),
            (r#"{"type":"req","id":"a","method":null}"#, "a", "at /method: must be string"),
            (r#"{"type":"res","id":"a","method":"m"}"#, "a", "at /type: must be equal to constant"),
            (r#"{"type":"req","id":"a","method":"m","x":1}"#, "a", "at root: unexpected property 'x'"),
            (r#"{"type":"req","id":"\ud800","method":"m"}"#, "invalid", "at /id: must be string"),
            ("[]", "invalid", "must be object"),
            ("7", "invalid", "must be object"),
        ] {
            match read(text) {
                Incoming::Invalid { id: found, why: said } => {
                    assert_eq!((found.as_str(), said.as_str()), (id, why), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_json_is_no_frame() {
        for text in ["", "not json", "{", "{}x", "\u{feff}{}", "{\"a\":01}", "nul"] {
            assert!(matches!(read(text), Incoming::NotJson), "{text}");
        }
    }

    #[test]
    fn parameters_are_kept_as_they_were_written() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for params in [r#"{"id":"\ud800"}"#, "1e400", "[ 1 ]", &deep] {
            let text =
                format!(r#"{{"type":"req","id":"a","method":"m","params":{params},"traceparent":"t"}}"#);
            match read(&text) {
                Incoming::Request(request) => assert_eq!(request.params.unwrap().get(), params),
                other => panic!("{other:?}"),
            }
        }
    }
}
