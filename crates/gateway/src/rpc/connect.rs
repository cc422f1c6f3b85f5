//! What a client says when it connects: a closed shape, checked before anything of it is believed.
//!
//! Owns that shape, the protocol's version and its roles. Who the client is, is `credentials`'.

use serde::Deserialize;
use serde_json::json;

use super::PROTOCOL;
use super::device::Shown;
use super::frame::{Failure, Request};
use super::line::Close;
use super::params::{self, Field, Kind, Words};

/// The programs that the protocol knows.
const CLIENT_IDS: &[&str] = &[
    "webchat-ui",
    "openclaw-control-ui",
    "openclaw-browser-copilot",
    "openclaw-tui",
    "webchat",
    "cli",
    "gateway-client",
    "openclaw-macos",
    "openclaw-linux",
    "openclaw-ios",
    "openclaw-watchos",
    "openclaw-android",
    "node-host",
    "openclaw-worker",
    "test",
    "fingerprint",
    "openclaw-probe",
];
const CLIENT_MODES: &[&str] = &["webchat", "cli", "ui", "backend", "node", "worker", "probe", "test"];

const ANY: usize = usize::MAX;
/// Most capabilities, commands and scopes. Clients send a handful.
const LIST: usize = 256;

const CLIENT: &[Field] = &[
    Field::required("id", Kind::Choice(CLIENT_IDS)),
    Field::required("version", Kind::Text(1, ANY)),
    Field::required("platform", Kind::Text(1, ANY)),
    Field::required("mode", Kind::Choice(CLIENT_MODES)),
    Field::optional("displayName", Kind::Text(1, ANY)),
    Field::optional("buildId", Kind::Text(1, 96)),
    Field::optional("deviceFamily", Kind::Text(1, ANY)),
    Field::optional("modelIdentifier", Kind::Text(1, ANY)),
    Field::optional("timeZone", Kind::Text(1, 64)),
    Field::optional("instanceId", Kind::Text(1, ANY)),
];
const DEVICE: &[Field] = &[
    Field::required("id", Kind::Text(1, ANY)),
    Field::required("publicKey", Kind::Text(1, ANY)),
    Field::required("signature", Kind::Text(1, ANY)),
    Field::required("signedAt", Kind::Integer(0, i64::MAX)),
    Field::required("nonce", Kind::Text(1, ANY)),
];
const AUTH: &[Field] = &[
    Field::optional("token", Kind::Text(0, ANY)),
    Field::optional("bootstrapToken", Kind::Text(0, ANY)),
    Field::optional("deviceToken", Kind::Text(0, ANY)),
    Field::optional("password", Kind::Text(0, ANY)),
    Field::optional("approvalRuntimeToken", Kind::Text(0, ANY)),
    Field::optional("agentRuntimeIdentityToken", Kind::Text(0, ANY)),
];
const CONNECT: &[Field] = &[
    Field::required("minProtocol", Kind::Integer(1, i64::MAX)),
    Field::required("maxProtocol", Kind::Integer(1, i64::MAX)),
    Field::required("client", Kind::Object(CLIENT)),
    Field::optional("caps", Kind::Texts(0, LIST)),
    Field::optional("commands", Kind::Texts(0, LIST)),
    Field::optional("computerUse", Kind::Any),
    Field::optional("workerRuns", Kind::Any),
    Field::optional("permissions", Kind::Any),
    Field::optional("pathEnv", Kind::Text(0, ANY)),
    Field::optional("role", Kind::Text(1, ANY)),
    Field::optional("scopes", Kind::Texts(0, LIST)),
    Field::optional("device", Kind::Object(DEVICE)),
    Field::optional("auth", Kind::Object(AUTH)),
    Field::optional("locale", Kind::Text(0, ANY)),
    Field::optional("userAgent", Kind::Text(0, ANY)),
];

/// What a client says of itself, and what it asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Connect {
    min_protocol: i64,
    max_protocol: i64,
    pub(crate) client: Client,
    #[serde(default)]
    pub(crate) caps: Vec<String>,
    #[serde(default = "operator")]
    pub(crate) role: String,
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    pub(crate) device: Option<Shown>,
    #[serde(default)]
    pub(crate) auth: Auth,
}

/// The program at the other end. Nothing is granted because of what it says here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) mode: String,
    pub(crate) platform: String,
    pub(crate) device_family: Option<String>,
    pub(crate) display_name: Option<String>,
}

/// The credentials that a client shows. None of them is ever written anywhere.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Auth {
    pub(crate) token: Option<String>,
    pub(crate) bootstrap_token: Option<String>,
    pub(crate) device_token: Option<String>,
    pub(crate) approval_runtime_token: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth")
    }
}

fn operator() -> String {
    "operator".to_owned()
}

/// A client that is not let in: what it is told, and how its connection is closed.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) failure: Box<Failure>,
    pub(crate) close: Close,
}

impl From<Failure> for Refused {
    /// Closed for the reason that it is told.
    fn from(failure: Failure) -> Self {
        let close = Close::policy(&failure.message);
        Self { failure: Box::new(failure), close }
    }
}

/// Reads the first request of a connection, and settles version and role.
pub(crate) fn read(request: &Request) -> Result<Connect, Refused> {
    if request.method != "connect" {
        return Err(Failure::invalid("invalid handshake: first request must be connect").into());
    }
    let connect: Connect = params::read("connect", request.params.as_deref(), CONNECT, Words::Full)?;
    let (min, max) = (connect.min_protocol, connect.max_protocol);
    if !(min..=max).contains(&i64::from(PROTOCOL)) {
        let failure = Failure::invalid("protocol mismatch").with(json!({
            "code": "PROTOCOL_MISMATCH",
            "clientMinProtocol": min,
            "clientMaxProtocol": max,
            "expectedProtocol": PROTOCOL,
            "minimumProbeProtocol": 3,
        }));
        return Err(Refused { failure: Box::new(failure), close: Close::new(1002, "protocol mismatch") });
    }
    match connect.role.as_str() {
        "operator" => Ok(connect),
        "node" => Err(Failure::invalid("invalid role: this gateway serves operators and no nodes").into()),
        _ => Err(Failure::invalid("invalid role").into()),
    }
}
