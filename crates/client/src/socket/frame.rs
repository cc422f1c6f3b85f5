//! The frames of the protocol, read and written. Owns no order in which they come.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::reviewing::Refused;

/// What a gateway sends.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum Frame {
    #[serde(rename = "res")]
    Response {
        id: String,
        ok: bool,
        #[serde(default)]
        payload: Value,
        error: Option<ErrorBody>,
    },
    #[serde(rename = "event")]
    Event {
        event: String,
        #[serde(default)]
        payload: Value,
        seq: Option<u64>,
    },
}

/// The error of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ErrorBody {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) details: Value,
    pub(super) retry_after_ms: Option<u64>,
}

impl ErrorBody {
    /// The finer reason, wherever it was put.
    pub(super) fn reason(&self) -> Option<&str> {
        let said = |name| self.details.get(name).and_then(Value::as_str);
        said("reason").or_else(|| said("code"))
    }
}

impl From<ErrorBody> for Refused {
    fn from(error: ErrorBody) -> Self {
        let reason = error.reason().map(str::to_owned);
        Self { code: error.code, message: error.message, reason }
    }
}

/// Reads a frame. None: it is not one, and is ignored as the protocol has it.
pub(super) fn read(text: &str) -> Option<Frame> {
    serde_json::from_str(text).ok()
}

/// Writes a request.
pub(super) fn request(id: &str, method: &str, params: &Value) -> String {
    json!({"type": "req", "id": id, "method": method, "params": params}).to_string()
}

/// How a connection was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The WebSocket close code. None: the other side went away without one.
    pub code: Option<u16>,
    /// What was said. Outside text.
    pub reason: String,
}
