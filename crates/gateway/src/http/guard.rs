//! Stands before every route: requests under a foreign name or from a foreign page go no further, and what is passed on
//! is the same wherever the gateway is reached.
//!
//! A page of another site can make a browser send requests here, and can point its own name at this address. The `Host`
//! and `Origin` that the browser adds tell such requests from ours. Owns this check, the way from a public path to a
//! route, and noting the client's address; which names are ours is `reach`'s. An upgrade is a request like any other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, OriginalUri, Request, State};
use axum::http::Uri;
use axum::http::header::ORIGIN;
use axum::http::uri::PathAndQuery;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdgate_wire::{Code, Problem};

use super::problem::{HttpError, presentable};
use crate::reach::{Entry, Reach};

/// What answers wherever it is asked: whoever checks that a process lives knows no base path.
const BARE: &str = "/healthz";

pub(super) async fn check(State(reach): State<Arc<Reach>>, mut request: Request, next: Next) -> Response {
    let peer = peer(&request);
    let client = reach.client(peer, request.headers());
    if let Some(problem) = refuse(&reach, peer, &request) {
        tracing::debug!(client = %client.0, %peer, why = %presentable(&problem.detail), "a request was refused");
        return HttpError::from(problem).into_response();
    }
    let Some(uri) = inner(request.uri(), reach.base_path()) else {
        let detail = format!(
            "there is nothing at {}; everything is under {}/",
            request.uri().path(),
            reach.base_path()
        );
        return HttpError::from(Problem::new(Code::NotFound, detail)).into_response();
    };
    let original = OriginalUri(std::mem::replace(request.uri_mut(), uri));
    request.extensions_mut().insert(original);
    request.extensions_mut().insert(client);
    next.run(request).await
}

/// Who is at the other end of the connection.
fn peer(request: &Request) -> IpAddr {
    let told = request.extensions().get::<ConnectInfo<SocketAddr>>();
    // Every connection says; one that did not could be anybody's, and no proxy of ours has this address.
    told.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip().to_canonical())
}

fn refuse(reach: &Reach, peer: IpAddr, request: &Request) -> Option<Problem> {
    let headers = request.headers();
    let misdirected = |detail: &str| Some(Problem::new(Code::MisdirectedRequest, detail));
    let Some((entry, host)) = reach.entry(headers) else {
        return misdirected(match (&reach.public_url, reach.is_local()) {
            (None, _) => "this gateway answers only under the names of this machine's loopback address",
            (Some(_), true) => {
                "this gateway answers only under its public URL and this machine's loopback names"
            }
            (Some(_), false) => "this gateway answers only under its public URL",
        });
    };
    if request.uri().authority().is_some_and(|named| reach.entry_of(named) != Some(entry)) {
        return misdirected("the request's target and its Host are not the same");
    }
    if entry == Entry::Loopback && reach.is_forwarded(peer, headers) {
        return misdirected(
            "the proxy must pass the Host of the public URL on as it came; see its documentation on preserving Host",
        );
    }
    let expected = reach.origin(entry, &host);
    let mut origins = headers.get_all(ORIGIN).into_iter();
    if origins.any(|origin| origin.to_str().ok() != Some(&expected)) {
        return Some(Problem::new(Code::ForbiddenOrigin, "the request comes from a page of another origin"));
    }
    None
}

/// The request's target without the base path; `None` for what lies outside it. The base path itself is the front.
fn inner(uri: &Uri, base: &str) -> Option<Uri> {
    let path = uri.path();
    let rest = match path.strip_prefix(base) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ if path == BARE => path,
        _ => return None,
    };
    let target = match uri.query() {
        Some(query) => format!("{rest}?{query}").parse::<PathAndQuery>(),
        None => rest.parse(),
    };
    target.ok().map(Uri::from)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header::HOST;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn local() -> Reach {
        Reach::plain("127.0.0.1:7420".parse().unwrap())
    }

    fn public(listen: &str, url: &str) -> Reach {
        let public_url = Some(url.parse().unwrap());
        Reach { public_url, ..Reach::plain(listen.parse().unwrap()) }
    }

    fn refused_by(reach: &Reach, target: &str, headers: &[(&str, &str)]) -> Option<Code> {
        let mut request = axum::http::Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refuse(reach, PEER, &request.body(Body::empty()).unwrap()).map(|problem| problem.code)
    }

    fn refused(reach: &Reach, host: &str, origin: Option<&str>) -> Option<Code> {
        let headers: Vec<_> = [Some((HOST.as_str(), host)), origin.map(|origin| (ORIGIN.as_str(), origin))]
            .into_iter()
            .flatten()
            .collect();
        refused_by(reach, "/v1/approvals", &headers)
    }

    #[test]
    fn the_names_of_the_loopback_address_are_ours() {
        for host in ["127.0.0.1:7420", "localhost:7420", "LOCALHOST", "[::1]:7420", "127.8.8.8"] {
            for reach in [local(), public("127.0.0.1:7420", "https://gate.example/gate")] {
                assert_eq!(refused(&reach, host, None), None, "{host}");
                assert_eq!(refused(&reach, host, Some(&format!("http://{host}"))), None, "{host}");
            }
        }
    }

    #[test]
    fn a_rebound_name_is_refused() {
        for host in [
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost@evil.example",
            "evil@localhost",
            "gate.example.evil.example",
            "me@gate.example",
            "gate.example:8443",
            "gate.example:80",
            "gate.example:",
            "0.0.0.0:7420",
            "192.168.0.1",
            "",
        ] {
            for reach in [local(), public("127.0.0.1:7420", "https://gate.example")] {
                assert_eq!(refused(&reach, host, None), Some(Code::MisdirectedRequest), "{host}");
            }
        }
    }

    #[test]
    fn a_gateway_that_others_reach_answers_under_its_public_name_alone() {
        let reach = public("0.0.0.0:7420", "https://Gate.example");
        for (host, is_ours) in [
            ("gate.example", true),
            ("GATE.EXAMPLE:443", true),
            ("127.0.0.1:7420", false),
            ("localhost", false),
        ] {
            assert_eq!(refused(&reach, host, None).is_none(), is_ours, "{host}");
        }
    }

    #[test]
    fn a_foreign_origin_is_refused() {
        let reach = public("127.0.0.1:7420", "https://gate.example:8443/gate");
        for (host, origin, is_ours) in [
            ("127.0.0.1:7420", "http://127.0.0.1:7420", true),
            ("127.0.0.1:7420", "http://evil.example:8080", false),
            ("127.0.0.1:7420", "null", false),
            ("127.0.0.1:7420", "http://localhost:7420", false),
            ("127.0.0.1:7420", "https://127.0.0.1:7420", false),
            ("127.0.0.1:7420", "http://127.0.0.1:9999", false),
            ("127.0.0.1:7420", "https://gate.example:8443", false),
            ("gate.example:8443", "https://gate.example:8443", true),
            ("gate.example:8443", "https://gate.example:8443/gate", false),
            ("gate.example:8443", "https://gate.example", false),
            ("gate.example:8443", "http://gate.example:8443", false),
            ("gate.example:8443", "http://127.0.0.1:7420", false),
        ] {
            let expected = (!is_ours).then_some(Code::ForbiddenOrigin);
            assert_eq!(refused(&reach, host, Some(origin)), expected, "{host} {origin}");
        }
    }

    #[test]
    fn several_origins_and_several_hosts_are_refused() {
        let hosts = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        assert_eq!(refused_by(&local(), "/", &hosts), Some(Code::MisdirectedRequest));
        let origins =
            [("host", "127.0.0.1"), ("origin", "http://127.0.0.1"), ("origin", "http://evil.example")];
        assert_eq!(refused_by(&local(), "/", &origins), Some(Code::ForbiddenOrigin));
    }

    #[test]
    fn an_absolute_target_cannot_name_another_host() {
        let reach = public("127.0.0.1:7420", "https://gate.example");
        for (target, host, is_ours) in [
            ("http://evil.example/healthz", "127.0.0.1", false),
            ("http://127.0.0.1/healthz", "gate.example", false),
            ("https://gate.example/healthz", "gate.example", true),
            ("http://127.0.0.1/healthz", "127.0.0.1", true),
        ] {
            assert_eq!(refused_by(&reach, target, &[("host", host)]).is_none(), is_ours, "{target} {host}");
        }
    }

    #[test]
    fn an_upgrade_passes_the_same_guard() {
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
        for (host, origin, expected) in [
            ("127.0.0.1:7420", None, None),
            ("127.0.0.1:7420", Some("http://127.0.0.1:7420"), None),
            ("127.0.0.1:7420", Some("http://evil.example"), Some(Code::ForbiddenOrigin)),
            ("evil.example", None, Some(Code::MisdirectedRequest)),
        ] {
            let mut headers = vec![("host", host)];
            headers.extend(upgrade);
            headers.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(refused_by(&local(), "/ws", &headers), expected, "{host} {origin:?}");
        }
    }

    #[test]
    fn what_a_proxy_passes_on_must_come_under_the_public_name() {
        let reach = Reach { trusted_proxies: vec![PEER], ..public("127.0.0.1:7420", "https://gate.example") };
        let forwarded = ("x-forwarded-for", "203.0.113.9");
        for (headers, expected) in [
            (vec![("host", "gate.example"), forwarded], None),
            (vec![("host", "127.0.0.1:7420"), forwarded], Some(Code::MisdirectedRequest)),
            (vec![("host", "127.0.0.1:7420"), ("forwarded", "for=x")], Some(Code::MisdirectedRequest)),
            // A command on the proxy's own machine.
            (vec![("host", "127.0.0.1:7420")], None),
            // These are never believed.
            (
                vec![("host", "evil.example"), ("x-forwarded-host", "gate.example")],
                Some(Code::MisdirectedRequest),
            ),
            (
                vec![
                    ("host", "gate.example"),
                    ("x-forwarded-proto", "http"),
                    ("origin", "http://gate.example"),
                ],
                Some(Code::ForbiddenOrigin),
            ),
        ] {
            assert_eq!(refused_by(&reach, "/", &headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_path_leads_where_it_would_without_the_base_path() {
        for (base, target, expected) in [
            ("", "/v1/approvals?limit=1", Some("/v1/approvals?limit=1")),
            ("", "/", Some("/")),
            ("/gate", "/gate/v1/approvals?limit=1", Some("/v1/approvals?limit=1")),
            ("/gate", "/gate", Some("/")),
            ("/gate", "/gate/", Some("/")),
            ("/gate", "/gate?x", Some("/?x")),
            ("/gate", "/gate/approve/a%2Fb", Some("/approve/a%2Fb")),
            ("/gate", "/gate//v1", Some("//v1")),
            ("/gate", "/healthz", Some("/healthz")),
            ("/gate", "/healthz/", None),
            ("/gate", "/v1/approvals", None),
            ("/gate", "/", None),
            ("/gate", "/gateway/v1", None),
            ("/gate", "/Gate/v1", None),
            ("/gate", "/x/gate/v1", None),
            ("/a/b", "/a/b/ws", Some("/ws")),
        ] {
            let uri = inner(&target.parse().unwrap(), base);
            assert_eq!(uri.map(|uri| uri.to_string()).as_deref(), expected, "{base} {target}");
        }
    }
}
