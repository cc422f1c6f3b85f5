//! What this program takes from environment variables. The only place that reads them; `HOLDGATE_URL` and
//! `HOLDGATE_HOME` are read by the argument parser.

use std::ffi::OsString;

use anyhow::{Context as _, bail};

const TOKEN: &str = "HOLDGATE_TOKEN";
const LOG: &str = "HOLDGATE_LOG";

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
