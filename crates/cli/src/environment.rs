//! What this program takes from environment variables. The only place that reads them; `HOLDGATE_URL` and
//! `HOLDGATE_HOME` are read by the argument parser.

use std::ffi::OsString;

use anyhow::{Context as _, bail};

const TOKEN: &str = "HOLDGATE_TOKEN";
const LOG: &str = "HOLDGATE_LOG";
const LOG_FORMAT: &str = "HOLDGATE_LOG_FORMAT";

/// The token that overrides the file in the home directory, if one is set and not empty.
///
/// # Errors
/// It is set to what cannot be a token. Its text is not repeated.
#[expect(clippy::disallowed_methods, reason = "this is the environment module")]
pub fn token() -> anyhow::Result<Option<String>> {
    let Some(token) = std::env::var_os(TOKEN).filter(|token| !token.is_empty()) else { return Ok(None) };
    match token.into_string() {
        Ok(token) if !token.contains(|c: char| c.is_whitespace() || c.is_control()) => Ok(Some(token)),
        _ => bail!("{TOKEN} holds characters that no token has; set it to the content of a token file"),
    }
}

/// What to log, if somebody says so.
///
/// # Errors
/// It is set to what is no text.
#[expect(clippy::disallowed_methods, reason = "this is the environment module")]
pub fn log_filter() -> anyhow::Result<Option<String>> {
    let filter = std::env::var_os(LOG).filter(|filter| !filter.is_empty());
    filter.map(|filter| filter.into_string().ok().with_context(|| format!("{LOG} is not UTF-8"))).transpose()
}

/// Whether logs are for programs: one JSON object a line.
///
/// # Errors
/// It is set to neither `json` nor `text`.
#[expect(clippy::disallowed_methods, reason = "this is the environment module")]
pub fn logs_json() -> anyhow::Result<bool> {
    match std::env::var_os(LOG_FORMAT) {
        None => Ok(false),
        Some(format) if format.is_empty() || format == "text" => Ok(false),
        Some(format) if format == "json" => Ok(true),
        Some(format) => bail!("{LOG_FORMAT}: {format:?} is no format; it is text or json"),
    }
}

/// Whether OpenTelemetry's own variables ask for an export of spans. All others of them are read by its SDK. One address
/// or the exporter's name asks for it; `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` forbid it.
///
/// # Errors
/// They ask for what no build of this program does. No value is repeated: an address may carry a password.
#[expect(clippy::disallowed_methods, reason = "this is the environment module")]
pub fn exports_spans() -> anyhow::Result<bool> {
    let said = |name: &str| {
        let value = std::env::var_os(name).map(|value| value.to_string_lossy().trim().to_lowercase());
        value.filter(|value| !value.is_empty())
    };
    let exporter = said("OTEL_TRACES_EXPORTER");
    if said("OTEL_SDK_DISABLED").is_some_and(|value| value == "true") || exporter.as_deref() == Some("none") {
        return Ok(false);
    }
    let endpoint = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| said("OTEL_EXPORTER_OTLP_ENDPOINT"));
    if endpoint.is_none() && exporter.is_none() {
        return Ok(false);
    }
    if exporter.is_some_and(|exporter| exporter != "otlp") {
        bail!("OTEL_TRACES_EXPORTER: the only exporter is otlp; none turns it off");
    }
    if endpoint.is_some_and(|endpoint| !endpoint.starts_with("http://")) {
        bail!("OTEL_EXPORTER_OTLP_ENDPOINT: spans go over plain http://; name a collector on this machine");
    }
    let protocol = said("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| said("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if protocol.is_some_and(|protocol| protocol != "http/protobuf") {
        bail!("OTEL_EXPORTER_OTLP_PROTOCOL: the only protocol is http/protobuf");
    }
    Ok(true)
}

/// Whether people asked for text without colour.
#[expect(clippy::disallowed_methods, reason = "this is the environment module")]
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Every variable of this process, for a child that is to have the same.
#[expect(clippy::disallowed_methods, reason = "this is the environment module")]
pub fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}
