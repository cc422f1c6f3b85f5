//! Requests that take several people, and allows that are taken back.

use holdgate_testkit::gateway::Persona;
use serde_json::json;

use crate::chrome::{DESKTOP, PHONE};
use crate::stage::{id, story};

#[tokio::test]
async fn the_first_of_two_people_sees_that_it_takes_another_and_then_the_end() {
    story("the_first_of_two_people_sees_that_it_takes_another_and_then_the_end", PHONE, async |stage| {
        let mut request = json!({ "kind": "exec", "content": { "argv": ["drop-table", "orders"] } });
        request["requirement"] = json!({ "approvals": 2 });
        let record = stage.ask(request).await;
        stage.review(&record).await;
        stage.until("pending").await;
        assert!(stage.text("#approval").await.contains("2 different people must allow it."));
        stage.click("#allow-once").await;
        stage.until_true("document.getElementById('now').textContent.includes('It takes more people')").await;
        stage.until("pending").await;
        stage
            .until_true(
                "document.getElementById('status').textContent.includes('1 of 2 people have allowed it')",
            )
            .await;
        assert!(!stage.is_enabled("#allow-once").await, "one person answers once");
        assert!(stage.is_enabled("#deny").await, "but may change their mind to a no");
        stage.picture("one-of-two").await;
        stage.decide_elsewhere(&record, "allow-once").await;
        stage.until("elsewhere").await;
        assert_eq!(stage.attr("data-outcome").await, "allowed");
    })
    .await;
}

#[tokio::test]
async fn another_persons_answer_shows_while_the_request_is_pending() {
    story("another_persons_answer_shows_while_the_request_is_pending", DESKTOP, async |stage| {
        let mut request = json!({ "kind": "exec", "content": { "argv": ["true"] } });
        request["requirement"] = json!({ "approvals": 2 });
        let record = stage.ask(request).await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.decide_elsewhere(&record, "allow-once").await;
        stage
            .until_true("document.getElementById('status').textContent.includes('other-reviewer said yes')")
            .await;
        stage.until_true("!document.getElementById('allow-once').disabled").await;
        stage.click("#allow-once").await;
        stage.until("allowed").await;
        assert!(stage.text("#status").await.contains("from this page"));
    })
    .await;
}

#[tokio::test]
async fn an_allow_that_was_taken_back_says_so() {
    story("an_allow_that_was_taken_back_says_so", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        stage.review(&record).await;
        stage.until("pending").await;
        stage.read_to_the_end().await;
        stage.click("#allow-once").await;
        stage.until_attr("data-execution", "waiting").await;
        let revoke = format!("/v1/approvals/{}/revoke", id(&record));
        let reply = stage
            .gateway()
            .by(Persona::OtherReviewer)
            .post(&revoke, json!({ "reason": "wrong table" }))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        stage.until_attr("data-execution", "revoked").await;
        assert!(stage.text("#progress").await.contains("Taken back by other-reviewer"));
        assert!(stage.text("#progress").await.contains("wrong table"));
        assert_eq!(stage.state().await, "allowed", "the answer stays what it was");
        stage.picture("taken-back").await;
    })
    .await;
}
