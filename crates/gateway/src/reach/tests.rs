//! What may be a public URL, what may be reached how, and whom a forwarded address is believed of.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::*;

fn url(text: &str) -> PublicUrl {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn a_public_url_is_written_in_one_way() {
    for (given, written, base) in [
        ("https://gate.example", "https://gate.example", ""),
        ("https://gate.example/", "https://gate.example", ""),
        ("HTTPS://Gate.Example:443/", "https://gate.example", ""),
        (" https://gate.example:8443/gate/ ", "https://gate.example:8443/gate", "/gate"),
        ("http://localhost:7420", "http://localhost:7420", ""),
        ("http://127.0.0.1:80/a/b", "http://127.0.0.1/a/b", "/a/b"),
        ("https://[::1]:7420/a.b~c_d-1", "https://[::1]:7420/a.b~c_d-1", "/a.b~c_d-1"),
    ] {
        assert_eq!((url(given).to_string().as_str(), url(given).base_path()), (written, base), "{given}");
    }
}

#[test]
fn what_is_no_public_url_says_why() {
    for (bad, why) in [
        ("", "not a URL"),
        ("gate.example", "does not begin with"),
        ("//gate.example", "not"),
        ("ftp://gate.example", "does not begin with"),
        ("wss://gate.example", "does not begin with"),
        ("https://", "not a URL"),
        ("https://me@gate.example", "credential"),
        ("https://me:pw@gate.example", "credential"),
        ("https://gate.example?x=1", "query"),
        ("https://gate.example/#x", "fragment"),
        ("https://gate..example", "host"),
        ("https://gäte.example", "not a URL"),
        ("https://gate.example:0", "port"),
        ("https://gate.example:", "port"),
        ("https://gate.example:99999", "port"),
        ("https://[::1", "not a URL"),
        ("https://gate.example/a//b", "path"),
        ("https://gate.example/a/../b", "path"),
        ("https://gate.example/a%20b", "path"),
        ("https://gate.example/a;b", "path"),
    ] {
        let refused = bad.parse::<PublicUrl>().unwrap_err().to_string();
        assert!(refused.contains(why), "{bad}: {refused}");
        assert!(!refused.contains("pw"), "{refused}");
    }
}

#[test]
fn what_others_can_reach_needs_protection_and_a_name() {
    let https = url("https://gate.example");
    let http = url("http://gate.example");
    for (listen, public, has_proxy, has_tls, why) in [
        ("127.0.0.1:7420", None, false, false, None),
        ("[::1]:7420", Some(&https), false, false, None),
        ("127.0.0.1:7420", Some(&http), false, false, None),
        ("127.0.0.1:7420", None, false, true, None),
        ("127.0.0.1:7420", Some(&https), true, false, None),
        ("0.0.0.0:7420", Some(&https), false, true, None),
        ("0.0.0.0:7420", Some(&https), true, false, None),
        ("0.0.0.0:7420", None, false, false, Some("--tls-certificate")),
        ("0.0.0.0:7420", Some(&https), false, false, Some("--trusted-proxy")),
        ("[::]:7420", Some(&https), false, false, Some("plain HTTP")),
        ("192.168.0.2:1", None, false, false, Some("tunnel")),
        ("[::ffff:192.168.0.2]:1", None, false, false, Some("tunnel")),
        ("192.168.0.2:1", None, false, true, Some("--public-url")),
        ("192.168.0.2:1", None, true, false, Some("--public-url")),
        ("127.0.0.1:7420", None, true, false, Some("--public-url")),
        ("127.0.0.1:7420", Some(&http), false, true, Some("begins with https://")),
    ] {
        let checked = Reach::check(listen.parse().unwrap(), public, has_proxy, has_tls);
        match why {
            None => assert_eq!(checked, Ok(()), "{listen} {public:?}"),
            Some(why) => {
                let refused = checked.unwrap_err().to_string();
                assert!(refused.contains(why), "{listen} {public:?}: {refused}");
            }
        }
    }
}

#[test]
fn links_come_from_the_configuration_alone() {
    let plain = Reach::plain("127.0.0.1:7420".parse().unwrap());
    assert_eq!((plain.url().as_str(), plain.base_path()), ("http://127.0.0.1:7420", ""));
    let public = Reach { public_url: Some(url("https://gate.example/gate/")), ..plain };
    assert_eq!((public.url().as_str(), public.base_path()), ("https://gate.example/gate", "/gate"));
}

#[test]
fn a_forwarded_address_is_believed_of_a_named_proxy_only() {
    let proxies = ["127.0.0.1", "10.0.0.1", "2001:db8::1"].map(|ip| ip.parse().unwrap()).to_vec();
    let reach = Reach { trusted_proxies: proxies, ..Reach::plain("127.0.0.1:7420".parse().unwrap()) };
    let forwarded = "x-forwarded-for";
    for (peer, told, client) in [
        ("127.0.0.1", &[][..], "127.0.0.1"),
        ("127.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ("::ffff:127.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ("192.0.2.7", &["203.0.113.9"], "192.0.2.7"),
        // Only the last proxy's own word counts; what is left of it came from the client.
        ("127.0.0.1", &["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", &["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", &["203.0.113.9, 10.0.0.1"], "203.0.113.9"),
        ("127.0.0.1", &["198.51.100.1, 203.0.113.9, 2001:db8::1 , 10.0.0.1"], "203.0.113.9"),
        ("127.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
        ("127.0.0.1", &["[2001:db8::9]:4711"], "2001:db8::9"),
        ("127.0.0.1", &["[2001:db8::9]"], "2001:db8::9"),
        ("127.0.0.1", &["unknown"], "127.0.0.1"),
        ("127.0.0.1", &["203.0.113.9, "], "127.0.0.1"),
        ("127.0.0.1", &["203.0.113.9, nonsense, 10.0.0.1"], "10.0.0.1"),
    ] {
        let told: Vec<_> = told.iter().map(|told| (forwarded, *told)).collect();
        let found = reach.client(peer.parse().unwrap(), &headers(&told));
        assert_eq!(found, ClientAddress(client.parse().unwrap()), "{peer} {told:?}");
    }
}

#[test]
fn a_cookie_is_bound_to_the_origin_as_tightly_as_it_can_be() {
    let local: SocketAddr = "127.0.0.1:7420".parse().unwrap();
    for (public, host, expected) in [
        (None, "127.0.0.1:7420", "holdgate-7420=s; HttpOnly; SameSite=Strict; Path=/; Max-Age=9"),
        (
            Some("https://gate.example"),
            "gate.example",
            "__Host-holdgate-443=s; HttpOnly; SameSite=Strict; Path=/; Secure; Max-Age=9",
        ),
        (
            Some("https://gate.example:8443/gate"),
            "gate.example:8443",
            "__Secure-holdgate-8443=s; HttpOnly; SameSite=Strict; Path=/gate; Secure; Max-Age=9",
        ),
        (
            Some("http://gate.example/gate"),
            "gate.example",
            "holdgate-80=s; HttpOnly; SameSite=Strict; Path=/gate; Max-Age=9",
        ),
        (
            Some("https://gate.example/gate"),
            "localhost:7420",
            "holdgate-7420=s; HttpOnly; SameSite=Strict; Path=/gate; Max-Age=9",
        ),
    ] {
        let reach = Reach { public_url: public.map(url), ..Reach::plain(local) };
        assert_eq!(reach.session_cookie(&headers(&[("host", host)])).set("s", 9), expected, "{public:?}");
    }
}
