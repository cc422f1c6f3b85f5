//! Where a gateway is reached: its public address, who may speak to it under which name, and who stands between.
//!
//! Owns every absolute link, the base path, the origin of a request and the address of its client. What a caller sends
//! (`Host`, `X-Forwarded-*`) never becomes part of a link. Owns no route and no socket; certificates are `tls`'s.

mod public_url;
#[cfg(test)]
mod tests;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::Authority;

pub use public_url::{InvalidPublicUrl, PublicUrl};
pub use tls::{Tls, TlsError};

/// The header in which proxies list for whom they pass a request on.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// The headers that only something in between adds. Each proxy and tunnel has its own habit.
const FORWARDED_HEADERS: [&str; 14] = [
    "forwarded",
    FORWARDED_FOR,
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fly-client-ip",
    "fastly-client-ip",
    "via",
];

/// Whether something in between passed a request on, named or not.
pub(crate) fn came_through_a_proxy(headers: &HeaderMap) -> bool {
    FORWARDED_HEADERS.iter().any(|name| headers.contains_key(*name))
}

/// How one listener of a gateway is reached.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The address that reviewers and agents use. Without one, the listener's own.
    pub public_url: Option<PublicUrl>,
    /// The address that is listened on.
    pub listen: SocketAddr,
    /// The proxies whose word on a client's address is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// The certificate to serve with. Without one, the listener speaks plain HTTP.
    pub tls: Option<Arc<Tls>>,
}

/// Why a gateway may not be reached that way. Each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// Credentials would cross the network readable.
    #[error(
        "{0} can be reached from other machines, and plain HTTP would show every token to the network: give a \
         certificate (--tls-certificate and --tls-key), or name the proxy that speaks TLS in front of it \
         (--trusted-proxy), or listen on 127.0.0.1 and reach it through a tunnel"
    )]
    InTheClear(SocketAddr),
    /// Nobody could say under which name requests are meant for it.
    #[error(
        "{0} can be reached from other machines, but under no name: say which URL they use with --public-url, like \
         https://gate.example"
    )]
    NoName(SocketAddr),
    /// A proxy in front of nothing.
    #[error(
        "a trusted proxy is named, but not the URL that it serves: say which with --public-url, like \
         https://gate.example"
    )]
    ProxyWithoutName,
    /// A certificate, but links that do not use it.
    #[error("the gateway serves with a certificate, so its public URL begins with https://, not {0}")]
    PlainNameForTls(PublicUrl),
}

/// Under which of its names a gateway was spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The public URL's.
    Public(&'a PublicUrl),
    /// A name of this machine's loopback address.
    Loopback,
}

/// The address of whoever sent a request, for limits and logs: the peer's, or what a named proxy says of its own.
/// An extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The cookie of a page session, for the origin of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionCookie {
    /// Its name, with the prefix that makes a browser hold its attributes to be true.
    pub(crate) name: String,
    attributes: String,
}

impl SessionCookie {
    /// The value of `Set-Cookie`, good for `max_age_s` seconds.
    pub(crate) fn set(&self, secret: &str, max_age_s: i64) -> String {
        format!("{}={secret}; {}; Max-Age={max_age_s}", self.name, self.attributes)
    }
}

impl Reach {
    /// A plain listener, for this machine only and known by no other name.
    pub fn plain(listen: SocketAddr) -> Self {
        Self { public_url: None, listen, trusted_proxies: Vec::new(), tls: None }
    }

    /// Whether a gateway may be reached so.
    ///
    /// # Errors
    /// What is unsafe or makes no sense, and what to do.
    pub fn check(
        listen: SocketAddr,
        public_url: Option<&PublicUrl>,
        has_proxy: bool,
        has_tls: bool,
    ) -> Result<(), Unreachable> {
        if !listen.ip().to_canonical().is_loopback() {
            if !has_tls && !has_proxy {
                return Err(Unreachable::InTheClear(listen));
            }
            if public_url.is_none() {
                return Err(Unreachable::NoName(listen));
            }
        }
        match public_url {
            None if has_proxy => Err(Unreachable::ProxyWithoutName),
            Some(url) if has_tls && !url.is_https() => Err(Unreachable::PlainNameForTls(url.clone())),
            _ => Ok(()),
        }
    }

    /// What absolute links begin with: no slash at the end.
    pub fn url(&self) -> String {
        match &self.public_url {
            Some(url) => url.to_string(),
            None => format!("{}://{}", self.own_scheme(), self.listen),
        }
    }

    /// What every path begins with: empty, or like `/gate`.
    pub fn base_path(&self) -> &str {
        self.public_url.as_ref().map_or("", PublicUrl::base_path)
    }

    /// Whether connections come from this machine only.
    pub fn is_local(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// The scheme that the listener itself speaks.
    pub fn own_scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The name that a request came under; `None` if it is none of ours, is missing or is not one.
    pub(crate) fn entry(&self, headers: &HeaderMap) -> Option<(Entry<'_>, Authority)> {
        let mut hosts = headers.get_all(HOST).into_iter();
        let host: Authority = hosts.next()?.to_str().ok()?.parse().ok()?;
        if hosts.next().is_some() {
            return None;
        }
        Some((self.entry_of(&host)?, host))
    }

    /// Which of our names this is.
    pub(crate) fn entry_of(&self, host: &Authority) -> Option<Entry<'_>> {
        if host.as_str().contains('@') {
            return None;
        }
        match &self.public_url {
            Some(url) if url.is_at(host) => Some(Entry::Public(url)),
            _ if self.is_local() && is_loopback(host) => Some(Entry::Loopback),
            _ => None,
        }
    }

    /// The one origin whose pages may send requests under that name.
    pub(crate) fn origin(&self, entry: Entry<'_>, host: &Authority) -> String {
        match entry {
            Entry::Public(url) => url.origin(),
            Entry::Loopback => format!("{}://{host}", self.own_scheme()),
        }
    }

    /// Whether a named proxy passes this request on for somebody else.
    pub(crate) fn is_forwarded(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        self.is_proxy(peer) && came_through_a_proxy(headers)
    }

    /// Who sent a request that came from `peer`. Each proxy adds on the right whom it heard, so the first address
    /// from there that is not a proxy of ours is the client; what stands further left is only the client's word.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        let mut client = peer.to_canonical();
        let told = headers.get_all(FORWARDED_FOR).into_iter().rev();
        let told = told.filter_map(|value| value.to_str().ok()).flat_map(|value| value.rsplit(','));
        for address in told {
            if !self.is_proxy(client) {
                break;
            }
            match address_in(address.trim()) {
                Some(address) => client = address,
                None => break,
            }
        }
        ClientAddress(client)
    }

    /// The page's cookie for a request with these headers, which have passed the guard.
    pub(crate) fn session_cookie(&self, headers: &HeaderMap) -> SessionCookie {
        let entry = self.entry(headers).map(|(entry, _)| entry);
        let (is_https, port) = match entry {
            Some(Entry::Public(url)) => (url.is_https(), url.port()),
            Some(Entry::Loopback) | None => (self.tls.is_some(), self.listen.port()),
        };
        let base = self.base_path();
        // Browsers share cookies between the ports of a host; the port keeps two gateways' apart.
        let (prefix, secure) = match (is_https, base) {
            (true, "") => ("__Host-", "; Secure"),
            (true, _) => ("__Secure-", "; Secure"),
            (false, _) => ("", ""),
        };
        let path = if base.is_empty() { "/" } else { base };
        SessionCookie {
            name: format!("{prefix}holdgate-{port}"),
            attributes: format!("HttpOnly; SameSite=Strict; Path={path}{secure}"),
        }
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|proxy| proxy.to_canonical() == address.to_canonical())
    }
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn address_in(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || literal.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
