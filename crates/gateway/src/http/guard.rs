//! Stands before every route: requests under a foreign name or from a foreign page go no further.
//!
//! A page of another site can make a browser send requests here, and can point its own name at this
//! address. The `Host` and `Origin` that the browser adds tell such requests from ours.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdgate_wire::{Code, Problem};

use super::problem::HttpError;

pub(super) async fn check(request: Request, next: Next) -> Response {
    match refuse(&request) {
        Some(problem) => HttpError::from(problem).into_response(),
        None => next.run(request).await,
    }
}

fn refuse(request: &Request) -> Option<Problem> {
    let headers = request.headers();
    let Some(host) = host(headers) else {
        return Some(Problem::new(Code::MisdirectedRequest, "the request names no host, or several"));
    };
    let named = [Some(&host), request.uri().authority()];
    if !named.into_iter().flatten().all(is_loopback) {
        let detail = "this gateway answers only under the names of this machine's loopback address";
        return Some(Problem::new(Code::MisdirectedRequest, detail));
    }
    let mut origins = headers.get_all(ORIGIN).into_iter();
    if origins.any(|origin| origin.to_str().ok() != Some(&format!("http://{host}"))) {
        return Some(Problem::new(Code::ForbiddenOrigin, "the request comes from a page of another origin"));
    }
    None
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(HOST).into_iter();
    let host = hosts.next()?.to_str().ok()?.parse().ok()?;
    hosts.next().is_none().then_some(host)
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let has_user = authority.as_str().contains('@');
    !has_user
        && (host.eq_ignore_ascii_case("localhost")
            || literal.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, origin: Option<&str>) -> Option<Code> {
        let mut request = axum::http::Request::builder().uri("/v1/approvals").header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        refuse(&request.body(axum::body::Body::empty()).unwrap()).map(|problem| problem.code)
    }

    #[test]
    fn the_names_of_the_loopback_address_are_ours() {
        for host in ["127.0.0.1:7420", "localhost:7420", "LOCALHOST", "[::1]:7420", "127.8.8.8"] {
            assert_eq!(refused(host, None), None, "{host}");
            assert_eq!(refused(host, Some(&format!("http://{host}"))), None, "{host}");
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
            "0.0.0.0:7420",
            "192.168.0.1",
            "",
        ] {
            assert_eq!(refused(host, None), Some(Code::MisdirectedRequest), "{host}");
        }
    }

    #[test]
    fn a_foreign_origin_is_refused() {
        for origin in [
            "http://evil.example:8080",
            "null",
            "http://localhost:7420",
            "https://127.0.0.1:7420",
            "http://127.0.0.1:9999",
        ] {
            assert_eq!(refused("127.0.0.1:7420", Some(origin)), Some(Code::ForbiddenOrigin), "{origin}");
        }
    }

    #[test]
    fn an_absolute_target_cannot_name_another_host() {
        let request =
            axum::http::Request::builder().uri("http://evil.example/healthz").header(HOST, "127.0.0.1");
        let problem = refuse(&request.body(axum::body::Body::empty()).unwrap()).unwrap();
        assert_eq!(problem.code, Code::MisdirectedRequest);
    }
}
