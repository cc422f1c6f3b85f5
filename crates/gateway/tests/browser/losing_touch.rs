//! Lost replies, lost gateways, lost sessions and hidden pages: nothing about an outcome is invented.

use serde_json::json;

use crate::chrome::{DESKTOP, PHONE};
use crate::proxy::Line;
use crate::stage::{id, story};

#[tokio::test]
async fn a_lost_reply_says_nothing_until_the_record_was_read_back() {
    story("a_lost_reply_says_nothing_until_the_record_was_read_back", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.read_to_the_end().await;
        stage.proxy.set(Line::LoseReply);
        stage.click("#allow-once").await;
        stage.until("connection-error").await;
        assert_eq!(stage.proxy.line(), Line::Cut);
        assert_eq!(stage.record(id(&record)).await["status"], "allowed", "the gateway has recorded it");
        assert!(!stage.is_enabled("#deny").await && !stage.is_enabled("#allow-once").await);
        assert!(stage.text("#status").await.contains("not known yet"));
        stage.picture("lost-reply").await;
        stage.proxy.set(Line::Open);
        stage.until("allowed").await;
        assert!(stage.text("#status").await.contains("from this page"));
    })
    .await;
}

#[tokio::test]
async fn a_lost_request_unlocks_the_buttons_once_the_record_is_known_to_be_pending() {
    let name = "a_lost_request_unlocks_the_buttons_once_the_record_is_known_to_be_pending";
    story(name, PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.proxy.set(Line::LoseRequest);
        stage.click("#deny").await;
        stage.until("connection-error").await;
        assert_eq!(stage.record(id(&record)).await["status"], "pending");
        stage.proxy.set(Line::Open);
        stage.until("pending").await;
        assert!(stage.text("#note").await.contains("has not been recorded"));
        stage.picture("lost-request").await;
        stage.click("#deny").await;
        stage.until("denied").await;
    })
    .await;
}

#[tokio::test]
async fn an_answered_page_says_when_it_no_longer_knows_how_far_the_action_came() {
    let name = "an_answered_page_says_when_it_no_longer_knows_how_far_the_action_came";
    story(name, PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.decide_elsewhere(&record, "allow-once").await;
        stage.claim(&record).await;
        stage.review(&record).await;
        stage.until_attr("data-execution", "claimed").await;
        stage.proxy.set(Line::Cut);
        let is_told = "document.getElementById('progress').textContent.includes('does not answer')";
        stage.until_true(is_told).await;
        assert_eq!(stage.state().await, "allowed", "what was read stays true");
        stage.picture("cut-off").await;
        stage.proxy.set(Line::Open);
        stage.until_true(&format!("!{is_told}")).await;
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_restarts_is_waited_for_and_its_own_requests_are_shown_as_cancelled() {
    let name = "a_gateway_that_restarts_is_waited_for_and_its_own_requests_are_shown_as_cancelled";
    story(name, DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.restart_gateway().await;
        stage.until("cancelled").await;
        assert!(stage.text("#status").await.contains("The gateway restarted"));
        stage.picture("gateway-restart").await;
    })
    .await;
}

#[tokio::test]
async fn an_outcome_that_nobody_reported_is_shown_as_unknown() {
    story("an_outcome_that_nobody_reported_is_shown_as_unknown", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.decide_elsewhere(&record, "allow-once").await;
        stage.claim(&record).await;
        stage.review(&record).await;
        stage.until_attr("data-execution", "claimed").await;
        stage.restart_gateway().await;
        stage.until_attr("data-execution", "unknown").await;
        assert!(stage.text("#progress").await.contains("Outcome unknown"));
        stage.picture("unknown").await;
    })
    .await;
}

#[tokio::test]
async fn a_reviewer_who_was_signed_out_decides_nothing_and_can_come_back() {
    story("a_reviewer_who_was_signed_out_decides_nothing_and_can_come_back", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.page.delete_all_cookies().await.expect("the cookies can be deleted");
        stage.click("#deny").await;
        stage.until("sign-in").await;
        assert_eq!(stage.record(id(&record)).await["status"], "pending");
        stage.picture("signed-out").await;
        stage.click("#status-detail a").await;
        stage.until_true("document.getElementById('token') !== null").await;
        stage.sign_in("reviewer").await;
        stage.until("pending").await;
    })
    .await;
}

#[tokio::test]
async fn a_hidden_page_is_locked_and_reads_again_when_it_is_seen() {
    story("a_hidden_page_is_locked_and_reads_again_when_it_is_seen", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        // Registered after the page's own listener, so it notes what that has done.
        let note = "(() => { window.seen = []; document.addEventListener('visibilitychange', () => \
            window.seen.push([document.visibilityState, document.getElementById('deny').disabled])); return null; })()";
        stage.value(note).await;
        let first = stage.page.window().await.expect("there is a window");
        let other = stage.page.new_window(true).await.expect("a tab opens");
        stage.page.switch_to_window(other.handle).await.expect("the new tab is shown");
        stage.decide_elsewhere(&record, "deny").await;
        stage.page.switch_to_window(first).await.expect("the first tab is shown");
        stage.until("elsewhere").await;
        assert_eq!(stage.attr("data-outcome").await, "denied");
        assert_eq!(stage.value("window.seen[0]").await, json!(["hidden", true]));
    })
    .await;
}

#[tokio::test]
async fn a_page_that_went_away_and_came_back_shows_the_record_as_it_is_now() {
    story("a_page_that_went_away_and_came_back_shows_the_record_as_it_is_now", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        let other = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.open(id(&other)).await;
        stage.decide_elsewhere(&record, "allow-once").await;
        stage.page.back().await.expect("there is a page to go back to");
        stage.until_attr("data-id", id(&record)).await;
        stage
            .until_true(
                "['allowed', 'elsewhere'].includes(document.getElementById('approval').dataset.state)",
            )
            .await;
        assert_eq!(stage.value("document.getElementById('deny')?.disabled ?? true").await, json!(true));
    })
    .await;
}
