//! The page at both widths, light and dark, by keyboard and by thumb.

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::chrome::{DESKTOP, PHONE, Window};
use crate::stage::story;

fn request() -> Value {
    json!({
        "kind": "tool",
        "content": { "toolName": "publish_release", "input": {
            "version": "1.4.0", "notes": "Fixes the upload retry.\nAdds a dry run.", "paths": ["/srv/release/app", "/srv/release/app.sig"],
        }},
        "reason": "The notes are done and the tests pass, so I would like to publish now.",
        "source": { "agent": "release-agent", "session": "Friday release", "taskId": "publish" },
    })
}

#[tokio::test]
async fn the_buttons_are_in_view_and_large_enough_at_both_widths() {
    for window in [PHONE, DESKTOP] {
        story("the_buttons_are_in_view_and_large_enough_at_both_widths", window, async |stage| {
            let record = stage.ask(request()).await;
            stage.review(&record).await;
            stage.until("pending").await;
            stage.picture("tool").await;
            let fits = "['deny', 'allow-once'].every((id) => { const box = document.getElementById(id).getBoundingClientRect(); \
                return box.height >= 48 && box.width >= 120 && box.top >= 0 && box.bottom <= innerHeight \
                  && box.left >= 0 && box.right <= document.documentElement.clientWidth; })";
            assert_eq!(stage.value(fits).await, json!(true));
            let inner = "[...document.querySelectorAll('#action, #action *')].filter((node) => \
                ['auto', 'scroll', 'hidden'].includes(getComputedStyle(node).overflowY)).length";
            assert_eq!(stage.value(inner).await, json!(0), "the action never scrolls inside itself");
        })
        .await;
    }
}

#[tokio::test]
async fn the_page_has_a_dark_dress() {
    for window in [PHONE, DESKTOP] {
        let dark = Window { is_dark: true, ..window };
        story("the_page_has_a_dark_dress", dark, async |stage| {
            let record = stage.ask(request()).await;
            stage.review(&record).await;
            stage.until("pending").await;
            stage.picture("tool").await;
            let card = "getComputedStyle(document.querySelector('.card')).backgroundColor";
            assert_eq!(stage.value(card).await, json!("rgb(25, 30, 28)"));
            stage.read_to_the_end().await;
            stage.click("#allow-once").await;
            stage.until("allowed").await;
            stage.picture("tool-allowed").await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_keyboard_reaches_deny_before_approve_and_enter_presses_it() {
    story("a_keyboard_reaches_deny_before_approve_and_enter_presses_it", DESKTOP, async |stage| {
        let record = stage.ask(json!({ "kind": "exec", "content": { "argv": ["true"] } })).await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.until_true("!document.getElementById('allow-once').disabled").await;
        let tab = String::from(char::from(Key::Tab));
        let mut order = Vec::new();
        for _ in 0..3 {
            let focused = stage.page.active_element().await.expect("something has the focus");
            focused.send_keys(&tab).await.expect("a key can be pressed");
            order.push(stage.value("document.activeElement.id").await);
        }
        assert_eq!(order, [json!("reason"), json!("deny"), json!("allow-once")]);
        stage.picture("focus").await;
        let enter = String::from(char::from(Key::Enter));
        let focused = stage.page.active_element().await.expect("approve has the focus");
        focused.send_keys(&enter).await.expect("a key can be pressed");
        stage.until("allowed").await;
    })
    .await;
}
