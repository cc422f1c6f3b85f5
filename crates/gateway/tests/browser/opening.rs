//! Who gets to see a page, and what the page refuses to be talked into.

use fantoccini::Locator;
use holdgate_testkit::gateway::Persona;
use serde_json::json;

use crate::chrome::{DESKTOP, PHONE};
use crate::stage::{id, story};

const MISSING: &str = "apr_00000000000000000000000000000000";

#[tokio::test]
async fn a_reviewer_signs_in_and_lands_on_the_approval() {
    story("a_reviewer_signs_in_and_lands_on_the_approval", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.open(id(&record)).await;
        stage.until("sign-in").await;
        stage.picture("sign-in").await;
        for token in [Persona::Outsider.name(), Persona::Agent.name()] {
            stage.sign_in(token).await;
            stage.until_true("document.querySelector('.problem') !== null").await;
            assert_eq!(stage.state().await, "sign-in");
            stage.open(id(&record)).await;
        }
        stage.sign_in(Persona::Reviewer.name()).await;
        stage.until("pending").await;
        let url = stage.page.current_url().await.expect("there is a page");
        assert_eq!(url.path(), format!("/approve/{}", id(&record)));
        assert_eq!(url.query(), None);
        assert_eq!(stage.value("document.cookie").await, json!(""), "scripts cannot read the session");
    })
    .await;
}

#[tokio::test]
async fn an_approval_that_does_not_exist_looks_like_any_other_until_sign_in() {
    story("an_approval_that_does_not_exist_looks_like_any_other_until_sign_in", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        let mut seen = Vec::new();
        for id in [id(&record), MISSING] {
            stage.open(id).await;
            let source = stage.page.source().await.expect("the page has a source");
            seen.push(source.replace(id, "ID"));
        }
        assert_eq!(seen[0], seen[1]);
        stage.sign_in(Persona::Reviewer.name()).await;
        stage.until("not-found").await;
        stage.open("nothing-like-an-id").await;
        stage.until("not-found").await;
        stage.picture("not-found").await;
    })
    .await;
}

#[tokio::test]
async fn an_approval_that_was_decided_before_shows_what_was_decided() {
    story("an_approval_that_was_decided_before_shows_what_was_decided", PHONE, async |stage| {
        let allowed = stage.ask_simply().await;
        let denied = stage.ask_simply().await;
        stage.decide_elsewhere(&allowed, "allow-once").await;
        stage.decide_elsewhere(&denied, "deny").await;
        stage.review(&denied).await;
        stage.until("denied").await;
        stage.until_true("document.getElementById('status').textContent.includes('By other-reviewer')").await;
        assert!(stage.page.find(Locator::Css("#deny")).await.is_err(), "there is nothing to press");
        stage.picture("denied-before").await;
        stage.open(id(&allowed)).await;
        stage.until("allowed").await;
        stage.until_attr("data-execution", "waiting").await;
    })
    .await;
}

#[tokio::test]
async fn query_parameters_decide_nothing_and_lead_nowhere() {
    story("query_parameters_decide_nothing_and_lead_nowhere", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        let query = "?decision=allow-once&gatewayUrl=wss://evil.example&token=x#allow-once";
        stage.open(&format!("{}{query}", id(&record))).await;
        stage.until("pending").await;
        stage.click("#deny").await;
        stage.until("denied").await;
        let foreign = "performance.getEntriesByType('resource').map((entry) => entry.name)\
            .filter((name) => !name.startsWith(location.origin + '/'))";
        assert_eq!(stage.value(foreign).await, json!([]));
        assert_eq!(stage.record(id(&record)).await["decision"], "deny");
    })
    .await;
}

#[tokio::test]
async fn hostile_text_is_shown_and_never_becomes_markup() {
    story("hostile_text_is_shown_and_never_becomes_markup", PHONE, async |stage| {
        let attack = "</script><img src=x onerror=document.title=1>";
        let request = json!({
            "kind": "exec",
            "content": { "argv": ["rm\u{200b}", "-rf", attack, "a\u{202e}gpj.exe", "one\ntwo", "c\u{443}rl"] },
            "reason": format!("trust me {attack} \u{2067}"),
            "source": { "agent": format!("nice {attack}"), "session": attack },
        });
        let record = stage.ask(request).await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.read_to_the_end().await;
        let action = stage.text("#action").await;
        for shown in ["\\u{200B}", "\\u{202E}", "\\u{A}", attack] {
            assert!(action.contains(shown), "{shown} is not in {action}");
        }
        assert_eq!(stage.value("document.querySelectorAll('main img').length").await, json!(0));
        let source = stage.text("body").await;
        assert!(!source.contains(['\u{200b}', '\u{202e}', '\u{2067}']), "{source}");
        let flags = stage.text(".flags").await;
        assert!(flags.to_lowercase().contains("mixed scripts in c\\u{443}rl"), "{flags}");
        stage.picture("hostile").await;
        stage.value("scrollTo(0, 0) ?? null").await;
        stage.picture("hostile-top").await;
        stage.click("#deny").await;
        stage.until("denied").await;
        assert_ne!(stage.value("document.title").await, json!("1"));
    })
    .await;
}

#[tokio::test]
async fn the_browser_itself_refuses_markup_and_inline_code_on_the_page() {
    story("the_browser_itself_refuses_markup_and_inline_code_on_the_page", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        let refused = "['innerHTML', 'outerHTML'].map((sink) => { \
            try { document.getElementById('note')[sink] = '<b>x</b>'; return 'taken'; } catch (e) { return e.name; } })";
        assert_eq!(stage.value(refused).await, json!(["TypeError", "TypeError"]));
        let fetched = "fetch('https://example.com/').then(() => 'reached', () => 'refused')";
        assert_eq!(stage.value(fetched).await, json!("refused"));
        let style = "(() => { const node = document.createElement('p'); node.setAttribute('style', 'color: red'); \
            document.body.append(node); const red = getComputedStyle(node).color; node.remove(); return red; })()";
        assert_ne!(stage.value(style).await, json!("rgb(255, 0, 0)"));
    })
    .await;
}
