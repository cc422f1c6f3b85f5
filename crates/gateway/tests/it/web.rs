//! The reviewer page as HTTP: signing in, cookies, headers. What it looks like is tested in a browser.

use holdgate_testkit::gateway::{Caller, Persona, Reply, TestGateway};
use reqwest::Method;
use serde_json::json;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

async fn sign_in(gateway: &TestGateway, token: &str, next: &str) -> Reply {
    let body = format!("token={token}&next={next}");
    gateway.anonymous().send(Method::POST, "/sign-in", &[FORM], Some(body)).await
}

async fn signed_in(gateway: &TestGateway, id: &str) -> String {
    let reply = sign_in(gateway, "reviewer", &format!("/approve/{id}")).await;
    assert_eq!(reply.status, 303, "{}", reply.text);
    let cookie = reply.headers["set-cookie"].to_str().unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    cookie.split(';').next().unwrap().to_owned()
}

async fn open(caller: &Caller, path: &str, cookie: &str) -> Reply {
    caller.send(Method::GET, path, &[("cookie", cookie)], None).await
}

#[tokio::test]
async fn a_stranger_sees_a_sign_in_form_and_not_whether_the_approval_exists() {
    let gateway = TestGateway::start().await;
    let (id, _) = gateway.by(Persona::Agent).ask(&["secret-command"]).await;
    let absent = "apr_00000000000000000000000000000000";
    let seen = gateway.anonymous().get(&format!("/approve/{id}")).await;
    let unseen = gateway.anonymous().get(&format!("/approve/{absent}")).await;
    assert_eq!((seen.status, unseen.status), (200, 200));
    assert_eq!(seen.text.replace(&id, absent), unseen.text);
    assert!(seen.text.contains("data-state=\"sign-in\"") && !seen.text.contains("secret-command"));
    gateway.stop().await;
}

#[tokio::test]
async fn only_a_reviewers_token_signs_in_and_only_to_an_approval() {
    let gateway = TestGateway::start().await;
    let (id, _) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let path = format!("/approve/{id}");
    for (token, status) in [("agent", 403), ("outsider", 401), ("", 401)] {
        let reply = sign_in(&gateway, token, &path).await;
        assert_eq!(reply.status, status, "{token}");
        assert!(!reply.headers.contains_key("set-cookie"));
        assert!(reply.text.contains("data-state=\"sign-in\""));
    }
    for next in [
        "https://evil.example/",
        "//evil.example/approve/x",
        "/approve/../x",
        "/approve/a/b",
        "/approve/",
        "/approve/.",
        "/approve/..",
        "/approve/%2e%2E",
        "/v1/approvals",
    ] {
        let reply = sign_in(&gateway, "reviewer", &next.replace('%', "%25").replace(':', "%3A")).await;
        assert_eq!(reply.status, 400, "{next}");
        assert!(!reply.headers.contains_key("set-cookie"));
    }
    let cookie = signed_in(&gateway, &id).await;
    let page = open(&gateway.anonymous(), &path, &cookie).await;
    assert!(page.text.contains(&format!("data-id=\"{id}\"")), "{}", page.text);
    let missing = open(&gateway.anonymous(), "/approve/apr_00000000000000000000000000000000", &cookie).await;
    assert_eq!(missing.status, 404);
    assert!(missing.text.contains("data-state=\"not-found\""));
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_that_cannot_be_used_is_answered_with_a_page() {
    let gateway = TestGateway::start().await;
    let large = format!("token={}&next=/approve/x", "t".repeat(100_000));
    for (headers, body, status) in [
        (&[FORM][..], "token=reviewer", 400),
        (&[FORM], "next=/approve/x", 400),
        (&[FORM], "", 400),
        (&[FORM], "token=a&token=b&next=/approve/x", 400),
        (&[FORM], "token=%FF&next=/approve/x", 401),
        (&[], "token=reviewer&next=/approve/x", 400),
        (&[FORM], &large, 413),
    ] {
        let reply = gateway.anonymous().send(Method::POST, "/sign-in", headers, Some(body.to_owned())).await;
        let body = body.get(..40).unwrap_or(body);
        assert_eq!(reply.status, status, "{body}: {}", reply.text);
        assert_eq!(reply.headers["content-type"], "text/html; charset=utf-8", "{body}");
        assert!(
            reply.text.contains("data-state=\"sign-in\"") && reply.text.contains("role=\"alert\""),
            "{body}"
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_outlives_a_restart_of_the_gateway() {
    let gateway = TestGateway::start().await;
    let cookie = signed_in(&gateway, "apr_00000000000000000000000000000000").await;
    let gateway = gateway.restart().await;
    let listed = open(&gateway.anonymous(), "/v1/approvals", &cookie).await;
    assert_eq!(listed.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing() {
    let gateway = TestGateway::start().await;
    let (id, digest) = gateway.by(Persona::Agent).ask(&["ls"]).await;
    let cookie = signed_in(&gateway, &id).await;
    let path = format!("/v1/approvals/{id}/decision");
    let body = json!({ "decision": "allow-once", "digest": digest }).to_string();
    let post = async |headers: &[(&str, &str)]| {
        gateway.anonymous().send(Method::POST, &path, headers, Some(body.clone())).await
    };
    let forged = [
        post(&[("cookie", &cookie)]).await,
        post(&[("cookie", &cookie), ("x-holdgate-csrf", "")]).await,
        post(&[("cookie", &cookie), ("x-holdgate-csrf", &"0".repeat(64))]).await,
    ];
    for reply in forged {
        assert_eq!(reply.problem(), (403, "forbidden_origin".to_owned()));
    }
    let page = open(&gateway.anonymous(), &format!("/approve/{id}"), &cookie).await;
    let csrf = page.text.split("name=\"csrf\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(post(&[("cookie", &cookie), ("x-holdgate-csrf", csrf)]).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn pages_and_assets_carry_the_strict_headers() {
    let gateway = TestGateway::start().await;
    for path in ["/", "/approve/x", "/assets/approve.js", "/assets/style.css", "/assets/mark.svg"] {
        let reply = gateway.anonymous().get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.headers["content-security-policy"].to_str().unwrap();
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(directive), "{path}: {policy}");
        }
        assert_eq!(reply.headers["x-frame-options"], "DENY");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
    }
    for name in ["..%2fmain.rs", "x"] {
        let reply = gateway.anonymous().get(&format!("/assets/{name}")).await;
        assert_eq!(reply.problem(), (404, "not_found".to_owned()), "{name}");
    }
    gateway.stop().await;
}
