//! Where a gateway is sought, and with what credential. Refuses what would send the credential elsewhere.

use std::net::IpAddr;

use reqwest::Url;
use reqwest::header::HeaderValue;

/// Why a gateway cannot be sought there, or not with that token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// It is no URL.
    #[error("{url:?} is not a URL: {why}; a gateway's is like http://127.0.0.1:7420")]
    NotAUrl {
        /// As given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// It asks for TLS, or for something that is not HTTP.
    #[error(
        "{scheme}:// cannot be spoken, only http:// to this machine; reach a gateway elsewhere through a tunnel, for example ssh -L 7420:127.0.0.1:7420 HOST"
    )]
    Scheme {
        /// The scheme as given.
        scheme: String,
    },
    /// It names another machine: the token would cross the network in the clear.
    #[error(
        "{host} is not this machine, and plain HTTP would show the token to the network; reach a gateway elsewhere through a tunnel, for example ssh -L 7420:127.0.0.1:7420 {host}"
    )]
    NotLoopback {
        /// The host as given.
        host: String,
    },
    /// It holds a user name or password. Their text is not repeated here.
    #[error("the gateway's URL holds a user name or a password; a credential is never part of a URL")]
    Credential,
    /// It holds a query or a fragment.
    #[error(
        "{url:?} is more than a scheme, a host, a port and a base path; a gateway's URL is like http://127.0.0.1:7420"
    )]
    MoreThanOrigin {
        /// Without what is too much.
        url: String,
    },
    /// The token cannot be one. Its text is not repeated here.
    #[error("the token is empty or holds characters that no token has")]
    Token,
    /// This machine cannot make HTTP calls at all.
    #[error("no HTTP client can be set up here: {0}")]
    Client(String),
}

/// Checks a gateway's URL.
pub(crate) fn parse(text: &str) -> Result<Url, InvalidEndpoint> {
    let url = Url::parse(text.trim()).map_err(|e| InvalidEndpoint::NotAUrl {
        // What does not parse may hold anything, a password included.
        url: text.split('@').next_back().unwrap_or_default().to_owned(),
        why: e.to_string(),
    })?;
    if url.scheme() != "http" {
        return Err(InvalidEndpoint::Scheme { scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidEndpoint::Credential);
    }
    let host = url.host_str().unwrap_or_default().to_owned();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    if host != "localhost" && !literal.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
        return Err(InvalidEndpoint::NotLoopback { host });
    }
    if url.query().is_some() || url.fragment().is_some() {
        let mut shown = url;
        shown.set_query(None);
        shown.set_fragment(None);
        return Err(InvalidEndpoint::MoreThanOrigin { url: shown.to_string() });
    }
    Ok(url)
}

/// The header that carries a token. Marked so that nothing prints it.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, InvalidEndpoint> {
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(InvalidEndpoint::Token);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| InvalidEndpoint::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_origin_is_accepted() {
        for good in [
            "http://127.0.0.1:7420",
            "http://localhost",
            "http://[::1]:7420/",
            " http://LOCALHOST:1 ",
            "http://localhost:1/a/b/",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_url_that_would_send_the_token_elsewhere_is_refused() {
        for bad in [
            "http://evil.example:7420",
            "http://127.0.0.1.evil.example",
            "http://192.168.1.4",
            "http://0.0.0.0",
        ] {
            assert!(matches!(parse(bad), Err(InvalidEndpoint::NotLoopback { .. })), "{bad}");
        }
        for bad in ["https://127.0.0.1:7420", "ws://127.0.0.1:7420", "file:///etc/passwd", "localhost:7420"] {
            assert!(matches!(parse(bad), Err(InvalidEndpoint::Scheme { .. })), "{bad}");
        }
        assert!(matches!(parse("127.0.0.1:7420"), Err(InvalidEndpoint::NotAUrl { .. })));
    }

    #[test]
    fn a_credential_in_a_url_is_refused_and_not_repeated() {
        for bad in [
            "http://me:hgo_secret@127.0.0.1:7420",
            "http://hgo_secret@[bad/",
            "http://127.0.0.1/?token=hgo_secret",
        ] {
            let refusal = parse(bad).unwrap_err();
            assert!(!refusal.to_string().contains("hgo_secret"), "{refusal}");
        }
        assert_eq!(parse("http://me:pw@127.0.0.1:7420"), Err(InvalidEndpoint::Credential));
    }

    #[test]
    fn a_token_that_is_none_is_refused() {
        for bad in ["", "a b", "a\nb", "a\u{7f}"] {
            assert_eq!(bearer(bad).unwrap_err(), InvalidEndpoint::Token, "{bad:?}");
        }
        assert!(!format!("{:?}", bearer("hgo_1").unwrap()).contains("hgo_1"));
    }
}
