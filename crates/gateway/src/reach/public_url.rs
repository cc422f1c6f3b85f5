//! The URL under which a gateway is known. Owns what may be one and how it is written.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::Authority;

/// The URL that a gateway is reached at: scheme, host, port and base path. Written without a slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    /// In lower case; an IPv6 address in brackets.
    host: String,
    port: u16,
    /// Empty, or one or more segments, each with a slash before it.
    base: String,
}

/// Why a text is no URL that a gateway can be known by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; a public URL is like https://gate.example or https://example.com/gate")]
pub struct InvalidPublicUrl {
    /// What is wrong with it.
    pub why: &'static str,
}

impl PublicUrl {
    /// Whether browsers speak TLS to it.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Whether it names this machine's loopback address.
    pub fn is_loopback(&self) -> bool {
        let literal = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        self.host == "localhost"
            || literal.unwrap_or(&self.host).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Empty, or like `/gate`.
    pub fn base_path(&self) -> &str {
        &self.base
    }

    /// The port, whether or not it is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Scheme, host and port, as a browser writes an origin.
    pub fn origin(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        match self.port == default_port(self.is_https) {
            true => format!("{scheme}://{}", self.host),
            false => format!("{scheme}://{}:{}", self.host, self.port),
        }
    }

    /// Whether a `Host` header names this URL's host and port.
    pub(super) fn is_at(&self, host: &Authority) -> bool {
        let port = match host.port() {
            Some(port) => Some(port.as_u16()),
            // Written as `host:`, or with no port at all.
            None => host.as_str().ends_with(host.host()).then(|| default_port(self.is_https)),
        };
        port == Some(self.port) && host.host().eq_ignore_ascii_case(&self.host)
    }
}

impl FromStr for PublicUrl {
    type Err = InvalidPublicUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPublicUrl> {
        let no = |why| InvalidPublicUrl { why };
        let text = text.trim();
        // The parser drops a fragment without a word.
        if text.contains(['?', '#']) {
            return Err(no("it has a query or a fragment"));
        }
        let uri: Uri = text.parse().map_err(|_| no("it is not a URL"))?;
        let is_https = match uri.scheme_str() {
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(no("it does not begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| no("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(no("it holds a user name, and a credential is never part of a URL"));
        }
        let host = authority.host().to_ascii_lowercase();
        if !is_host(&host) {
            return Err(no("its host is neither a name in ASCII letters (xn--… for others) nor an address"));
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().len() == host.len() => default_port(is_https),
            None => return Err(no("its port is no number between 1 and 65535")),
        };
        if port == 0 {
            return Err(no("its port is no number between 1 and 65535"));
        }
        let base = uri.path().trim_end_matches('/').to_owned();
        if !base.split('/').skip(1).all(is_segment) {
            return Err(no("its path holds more than letters, digits and . _ ~ - between single slashes"));
        }
        Ok(Self { is_https, host, port, base })
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.base)
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

fn is_host(host: &str) -> bool {
    if let Some(literal) = host.strip_prefix('[') {
        return literal.strip_suffix(']').is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    }
    !host.is_empty()
        && host.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        })
}

/// Nothing that would have to be escaped, in a path or in a cookie; nothing that names another directory.
fn is_segment(segment: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    !segment.is_empty() && segment.bytes().all(is_plain) && !segment.bytes().all(|b| b == b'.')
}
