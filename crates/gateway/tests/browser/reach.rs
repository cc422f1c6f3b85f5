//! The page of a gateway that lies below a path of its host, or speaks TLS.

use std::time::Duration;

use fantoccini::{Client, Locator};
use holdgate_gateway::{Reach, Tls};

use crate::chrome::{Chrome, PHONE, is_installed};
use crate::proxy::Proxy;
use crate::reached::Reached;

/// How long anything may take before the story counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn until(page: &Client, css: &str) {
    page.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await.expect(css);
}

async fn sign_in(page: &Client) {
    let token = page.find(Locator::Css("#token")).await.expect("there is a form");
    token.send_keys("reviewer").await.expect("it can be typed into");
    page.find(Locator::Css("#sign-in")).await.expect("a button").click().await.expect("it can be pressed");
}

#[tokio::test]
async fn under_a_base_path_a_reviewer_signs_in_and_answers() {
    if !is_installed("under_a_base_path_a_reviewer_signs_in_and_answers") {
        return;
    }
    // What stands before it keeps the path and the name, as a proxy must.
    let mut before = None;
    let gateway = Reached::start("localhost", async |reach| {
        let proxy = Proxy::before(reach.listen.to_string()).await;
        let public_url = format!("{}/gate", proxy.url).parse().ok();
        before = Some(proxy);
        Reach { public_url, ..reach }
    })
    .await;
    let record = gateway.request("/gate").await;
    let url = record["url"].as_str().expect("a gateway has links");
    let proxy = before.expect("it was started");
    assert!(url.starts_with(&format!("{}/gate/approve/", proxy.url)), "{url}");

    let chrome = Chrome::start(PHONE).await;
    let page = chrome.client.clone();
    page.goto(url).await.expect("the page opens");
    until(&page, "main[data-state=sign-in]").await;
    sign_in(&page).await;
    until(&page, "main[data-state=pending]").await;
    assert_eq!(page.current_url().await.expect("there is a page").as_str(), url);
    page.find(Locator::Css("#deny")).await.expect("a button").click().await.expect("it can be pressed");
    until(&page, "main[data-state=denied]").await;
    drop((chrome, page, proxy));

    let path = format!("GET /gate/v1/approvals/{}", record["id"].as_str().expect("a record has an id"));
    let read = gateway.ask(&path, &[("authorization", "Bearer agent")], "").await;
    assert_eq!(read.json()["status"], "denied");
    gateway.stop().await;
}

#[tokio::test]
async fn over_tls_the_browser_keeps_the_bound_cookie() {
    if !is_installed("over_tls_the_browser_keeps_the_bound_cookie") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (certificate, key) = (dir.path().join("c.pem"), dir.path().join("k.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(&certificate, made.cert.pem()).expect("it can be written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("it can be written");
    for base in ["", "/gate"] {
        let tls = Some(Tls::load(&certificate, &key).expect("a certificate and its key"));
        let gateway = Reached::start("localhost", async |reach| {
            let public_url = format!("https://localhost:{}{base}", reach.listen.port()).parse().ok();
            Reach { public_url, tls, ..reach }
        })
        .await;
        let chrome = Chrome::start(PHONE).await;
        let page = chrome.client.clone();
        let url = format!("https://localhost:{}{base}/approve/plugin%3Amissing", gateway.address.port());
        page.goto(&url).await.expect("the page opens");
        until(&page, "main[data-state=sign-in]").await;
        sign_in(&page).await;
        // Whoever is not signed in would be asked again.
        until(&page, "main[data-state=not-found]").await;
        let cookies = page.get_all_cookies().await.expect("the driver tells");
        let prefix = if base.is_empty() { "__Host-" } else { "__Secure-" };
        assert!(cookies.len() == 1 && cookies[0].name().starts_with(prefix), "{cookies:?}");
        drop((chrome, page));
        gateway.stop().await;
    }
}
