//! Frames: one JSON object each. Owns their shapes and spelling.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A request frame. `params` stays as it was written until a method reads it, so that a text which is no valid string
/// costs the caller its parameters and not its answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    /// The caller's name for this call. Repeated in every answer to it.
    pub(crate) id: String,
    /// What is called.
    pub(crate) method: String,
    /// With what.
    #[serde(default)]
    pub(crate) params: Option<Box<RawValue>>,
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
