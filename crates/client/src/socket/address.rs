//! Where a gateway's socket is. Follows the same rule as HTTP: a credential never leaves this machine in the clear.

use crate::endpoint::{self, InvalidEndpoint};

/// A gateway's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    authority: String,
    host: String,
    port: u16,
}

impl Address {
    /// Reads `http://HOST:PORT` or `ws://HOST:PORT`.
    ///
    /// # Errors
    /// What is wrong with it, as for the HTTP client: another machine, another scheme, a credential in it.
    pub fn parse(text: &str) -> Result<Self, InvalidEndpoint> {
        let text = text.trim();
        let url = match text.strip_prefix("ws://") {
            Some(rest) => endpoint::parse(&format!("http://{rest}"))?,
            None => endpoint::parse(text)?,
        };
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(80);
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self { authority: format!("{host}:{port}"), host: literal.to_owned(), port })
    }

    /// The gateway's name: the same for every way of writing its address.
    pub fn name(&self) -> String {
        format!("http://{}", self.authority)
    }

    pub(super) fn socket_url(&self) -> String {
        format!("ws://{}/", self.authority)
    }

    pub(super) fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gateway_has_one_name() {
        for text in ["ws://LOCALHOST:7420", "http://localhost:7420/", " http://localhost:7420"] {
            assert_eq!(Address::parse(text).unwrap().name(), "http://localhost:7420");
        }
        let six = Address::parse("http://[::1]:7420").unwrap();
        assert_eq!((six.host_and_port(), &*six.socket_url()), (("::1", 7420), "ws://[::1]:7420/"));
    }

    #[test]
    fn an_address_that_would_show_a_credential_is_refused() {
        for bad in ["ws://192.168.1.4:1", "wss://127.0.0.1:1", "https://127.0.0.1", "ws://me:pw@127.0.0.1"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
