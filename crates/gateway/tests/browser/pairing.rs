//! A browser that becomes a device of a person by a code, and stops being one.

use holdgate_testkit::gateway::Persona;
use serde_json::json;

use crate::chrome::{DESKTOP, PHONE};
use crate::stage::{Stage, id, story};

async fn code_for(stage: &Stage, person: &str) -> String {
    let operator = stage.gateway().by(Persona::Reviewer);
    operator.post("/v1/pairing", json!({ "person": person })).await.field("/code")
}

async fn pair(stage: &Stage, code: &str) {
    stage.type_into("#code", code).await;
    stage.type_into("#device", "Alice's phone").await;
    stage.click("#pair").await;
}

#[tokio::test]
async fn a_person_pairs_a_phone_by_code_and_decides() {
    story("a_person_pairs_a_phone_by_code_and_decides", PHONE, async |stage| {
        let record = stage.ask_simply().await;
        let code = code_for(stage, "alice").await;
        stage.open(id(&record)).await;
        stage.until("sign-in").await;
        stage.picture("pairing").await;
        pair(stage, &code.to_lowercase()).await;
        stage.until("pending").await;
        let url = stage.page.current_url().await.expect("there is a page");
        assert_eq!((url.path(), url.query()), (format!("/approve/{}", id(&record)).as_str(), None));
        stage.read_to_the_end().await;
        stage.click("#allow-once").await;
        stage.until("allowed").await;
        assert_eq!(stage.record(id(&record)).await["resolver"]["label"], "alice (Alice's phone)");
    })
    .await;
}

#[tokio::test]
async fn a_code_that_was_used_pairs_nobody_else_and_the_page_says_so() {
    story("a_code_that_was_used_pairs_nobody_else_and_the_page_says_so", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        let code = code_for(stage, "alice").await;
        let used = json!({ "code": code, "label": "somebody" });
        let first = stage.gateway().anonymous().post("/v1/pairing/complete", used).await;
        assert_eq!(first.status, 201, "{}", first.text);
        stage.open(id(&record)).await;
        stage.until("sign-in").await;
        pair(stage, &code).await;
        stage.until_true("document.querySelector('.problem') !== null").await;
        let said = stage.text(".problem").await;
        assert!(said.contains("not valid") && said.contains("ask for a new one"), "{said}");
        assert_eq!(stage.state().await, "sign-in");
        stage.picture("used-code").await;
        let code = code_for(stage, "alice").await;
        pair(stage, &code).await;
        stage.until("pending").await;
    })
    .await;
}

#[tokio::test]
async fn a_revoked_device_is_signed_out_before_it_can_answer() {
    story("a_revoked_device_is_signed_out_before_it_can_answer", DESKTOP, async |stage| {
        let record = stage.ask_simply().await;
        let code = code_for(stage, "alice").await;
        stage.open(id(&record)).await;
        pair(stage, &code).await;
        stage.until("pending").await;
        let operator = stage.gateway().by(Persona::Reviewer);
        let devices = operator.get("/v1/devices").await;
        let path = format!("/v1/devices/{}/revoke", devices.field("/items/0/id"));
        assert_eq!(operator.post(&path, json!({})).await.status, 200);
        // By itself: its wait has ended.
        stage.until("sign-in").await;
        assert_eq!(stage.record(id(&record)).await["status"], "pending");
        stage.open(id(&record)).await;
        stage.until("sign-in").await;
    })
    .await;
}
