//! A gateway under a public URL and a base path, over TLS, and behind a proxy.

use std::path::PathBuf;
use std::sync::Arc;

use holdgate_gateway::{Reach, Tls};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::reached::{Answer, Reached, ask};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A header's value, empty where there is none.
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let head = answer.text.split_once("\r\n\r\n").unwrap().0;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

async fn under(url: &str) -> Reached {
    let url = url.parse().unwrap();
    Reached::start("gate.example", async |reach| Reach { public_url: Some(url), ..reach }).await
}

#[tokio::test]
async fn under_a_base_path_everything_is_there_and_nothing_elsewhere() {
    let gateway = under("https://gate.example/gate").await;
    for (head, status) in [
        ("GET /gate", 200),
        ("GET /gate/", 200),
        ("GET /gate/healthz", 200),
        ("GET /healthz", 200),
        ("GET /gate/openapi.json", 200),
        ("GET /gate/assets/approve.js", 200),
        ("GET /gate/approve/x", 200),
        ("GET /gate/v1/approvals", 401),
        ("GET /", 404),
        ("GET /v1/approvals", 404),
        ("GET /approve/x", 404),
        ("GET /assets/approve.js", 404),
        ("GET /openapi.json", 404),
        ("GET /gateway/v1/approvals", 404),
        ("GET /gate/gate/healthz", 404),
        ("GET /gate/nothing", 404),
    ] {
        assert_eq!(gateway.ask(head, &[], "").await.status, status, "{head}");
    }
    let nothing = gateway.ask("GET /gate/nothing", &[], "").await.json()["detail"].to_string();
    assert!(nothing.contains("at /gate/nothing") && nothing.contains("/gate/openapi.json"), "{nothing}");
    let document = gateway.ask("GET /gate/openapi.json", &[], "").await.json();
    assert_eq!(document["servers"][0]["url"], "/gate/");
    gateway.stop().await;
}

#[tokio::test]
async fn links_forms_redirects_and_cookies_follow_the_public_url() {
    let gateway = under("https://gate.example/gate").await;
    let record = gateway.request("/gate").await;
    let id = record["id"].as_str().unwrap();
    let path = format!("/gate/approve/{id}");
    assert_eq!(record["urlPath"], path);
    assert_eq!(record["url"], format!("https://gate.example{path}"));

    let page = gateway.ask(&format!("GET {path}"), &[], "").await;
    assert!(
        page.text.contains("action=\"/gate/sign-in\"") && page.text.contains(&format!("value=\"{path}\""))
    );
    let form = [FORM, ("origin", "https://gate.example")];
    let signed = gateway.ask("POST /gate/sign-in", &form, &format!("token=reviewer&next={path}")).await;
    assert_eq!((signed.status, header(&signed, "location")), (303, path.as_str()), "{}", signed.text);
    let cookie = header(&signed, "set-cookie");
    assert!(cookie.starts_with("__Secure-holdgate-443=hgs_"), "{cookie}");
    assert!(
        cookie.contains("; Path=/gate; Secure;") && cookie.contains("HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    let shown = gateway.ask(&format!("GET {path}"), &[("cookie", cookie)], "").await;
    assert!(
        shown.text.contains("data-state=\"loading\"")
            && shown.text.contains("src=\"/gate/assets/approve.js\"")
    );
    for next in
        [format!("/approve/{id}"), format!("/gate/gate/approve/{id}"), format!("/gateway/approve/{id}")]
    {
        let refused = gateway.ask("POST /gate/sign-in", &form, &format!("token=reviewer&next={next}")).await;
        assert_eq!(refused.status, 400, "{next}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_base_path_the_cookie_belongs_to_the_host_alone() {
    let gateway = under("https://gate.example").await;
    let signed = gateway.ask("POST /sign-in", &[FORM], "token=reviewer&next=/approve/x").await;
    let cookie = header(&signed, "set-cookie");
    assert!(cookie.starts_with("__Host-holdgate-443=") && cookie.contains("; Path=/; Secure"), "{cookie}");
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_caller_says_of_itself_never_becomes_a_link_or_a_name() {
    let gateway = under("https://gate.example").await;
    let said = [
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "host=evil.example"),
        ("authorization", "Bearer agent"),
    ];
    let body = r#"{"kind":"exec","content":{"argv":["ls"]}}"#;
    let record = gateway.ask("POST /v1/approvals", &said, body).await.json();
    assert!(record["url"].as_str().unwrap().starts_with("https://gate.example/approve/"), "{record}");
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let foreign = [("x-forwarded-host", "gate.example")];
    assert_eq!(ask(stream, "evil.example", "GET /healthz", &foreign, "").await.status, 421);
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let local =
        ask(stream, "127.0.0.1:1", "GET /v1/approvals", &[("authorization", "Bearer agent")], "").await;
    let item = &local.json()["items"][0];
    assert!(
        item["url"].as_str().unwrap().starts_with("https://gate.example/"),
        "not of the name it came under"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_page_address_that_names_nothing_is_the_page_that_says_so() {
    let gateway = under("https://gate.example/gate").await;
    for segment in ["a%2Fb", "%2f..%2f", "%ZZ", "%", "%FF", "%2e%2e", ".."] {
        let page = gateway.ask(&format!("GET /gate/approve/{segment}"), &[], "").await;
        assert_eq!(page.status, 404, "{segment}");
        assert!(page.text.contains("data-state=\"not-found\""), "{segment}: {}", page.text);
    }
    for segment in ["plugin%3A9b2f", "plugin:9b2f", "two%20words", "x.js", "%25", "%00"] {
        let page = gateway.ask(&format!("GET /gate/approve/{segment}"), &[], "").await;
        assert_eq!(page.status, 200, "{segment}");
        assert!(page.text.contains("data-state=\"sign-in\""), "{segment}");
    }
    let form = [FORM];
    let body = "token=agent&next=/gate/approve/plugin%253A9b2f";
    let again = gateway.ask("POST /gate/sign-in", &form, body).await;
    assert!(again.text.contains("value=\"/gate/approve/plugin%3A9b2f\""), "escaped once: {}", again.text);
    gateway.stop().await;
}

/// A certificate for `localhost` in files.
struct Certified {
    certificate: PathBuf,
    key: PathBuf,
    _dir: TempDir,
}

impl Certified {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = Self { certificate: dir.path().join("c.pem"), key: dir.path().join("k.pem"), _dir: dir };
        made.renew();
        made
    }

    fn renew(&self) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&self.certificate, made.cert.pem()).unwrap();
        std::fs::write(&self.key, made.signing_key.serialize_pem()).unwrap();
    }

    async fn start(&self) -> (Reached, Arc<Tls>) {
        let tls = Tls::load(&self.certificate, &self.key).unwrap();
        let with = Some(Arc::clone(&tls));
        (Reached::start("localhost", async |reach| Reach { tls: with, ..reach }).await, tls)
    }

    /// Connects as a client that trusts what the file holds now, and offers these protocols.
    async fn connect(&self, to: &Reached, protocols: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificate).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let stream = TcpStream::connect(to.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

#[tokio::test]
async fn over_tls_links_and_cookies_are_those_of_tls() {
    let certified = Certified::new();
    let (gateway, _) = certified.start().await;
    let stream = certified.connect(&gateway, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let body = r#"{"kind":"exec","content":{"argv":["ls"]}}"#;
    let agent = [("authorization", "Bearer agent")];
    let record = ask(stream, "localhost", "POST /v1/approvals", &agent, body).await.json();
    let base = format!("https://{}/approve/", gateway.address);
    assert!(record["url"].as_str().unwrap().starts_with(&base), "{record}");
    let stream = certified.connect(&gateway, &[]).await.unwrap();
    let form = [FORM, ("origin", "https://localhost")];
    let signed = ask(stream, "localhost", "POST /sign-in", &form, "token=reviewer&next=/approve/x").await;
    assert_eq!(signed.status, 303);
    assert!(header(&signed, "set-cookie").starts_with("__Host-"), "{}", signed.text);
    let stream = certified.connect(&gateway, &[]).await.unwrap();
    let plain = ask(stream, "localhost", "GET /healthz", &[("origin", "http://localhost")], "").await;
    assert_eq!(plain.status, 403, "a page that came in the clear is another origin");
    gateway.stop().await;
}

#[tokio::test]
async fn whoever_speaks_no_tls_or_another_protocol_is_closed() {
    let certified = Certified::new();
    let (gateway, _) = certified.start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(certified.connect(&gateway, &[b"h2"]).await.is_err());
    gateway.stop().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_while_the_gateway_serves() {
    let certified = Certified::new();
    let (gateway, tls) = certified.start().await;
    let before = certified.connect(&gateway, &[]).await.unwrap();
    std::fs::write(&certified.key, "no key").unwrap();
    assert!(tls.reload(&certified.certificate, &certified.key).is_err());
    assert!(certified.connect(&gateway, &[]).await.is_ok(), "the old one stays");
    certified.renew();
    assert!(certified.connect(&gateway, &[]).await.is_err(), "the new one is not served yet");
    tls.reload(&certified.certificate, &certified.key).unwrap();
    let after = certified.connect(&gateway, &[]).await.unwrap();
    for stream in [before, after] {
        assert_eq!(ask(stream, "localhost", "GET /healthz", &[], "").await.status, 200);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_peer_that_starts_no_handshake_does_not_hold_up_the_end() {
    let certified = Certified::new();
    let (gateway, _) = certified.start().await;
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    let other = certified.connect(&gateway, &[]).await.unwrap();
    assert_eq!(ask(other, "localhost", "GET /healthz", &[], "").await.status, 200, "others are served");
    gateway.stop().await;
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
}
