//! What the pages say, rendered without a browser.

use holdgate_wire::Approval;
use serde_json::{Value, json};

use super::{
    CONTENT_SECURITY_POLICY, approval_page, asset, front_page, not_found_page, path_of, sign_in_page,
};

const NOW_MS: i64 = 1_700_000_000_000;
const HOSTILE: &str = "</script></textarea><img src=x onerror=alert(1)>\"'&<!--<script>";

fn pending() -> Value {
    json!({
        "id": "apr_0123456789abcdef0123456789abcdef", "ref": "r", "kind": "exec", "status": "pending",
        "digest": "3f".repeat(32), "boundary": "call-7", "urlPath": "/approve/x", "createdAtMs": NOW_MS - 1_000,
        "expiresAtMs": NOW_MS + 581_000, "requester": {"kind": "agent", "label": "agent.token"},
        "requestReason": "because it is time",
        "presentation": {
            "kind": "exec", "headline": "Run git in /srv", "commandText": "git push  --force",
            "facts": [{"label": "Program", "text": "/usr/bin/git"}], "flags": ["One token mixes scripts"],
        },
        "requirement": {
            "approvals": 1, "requesterMayDecide": false, "reasonRequired": false,
            "allowedDecisions": ["allow-once", "deny"],
        },
        "votes": [], "source": {"agent": "release-agent", "session": "s1", "taskId": "t1"},
    })
}

fn page_of(record: Value) -> String {
    let approval: Approval = serde_json::from_value(record).expect("the fixture is an approval");
    approval_page("", &approval, "csrf-value", NOW_MS)
}

/// Replaces every string outside the closed vocabularies.
fn poison(value: &mut Value, key: &str) {
    let closed = ["kind", "status", "decision", "terminalReason", "outcome", "allowedDecisions"];
    match value {
        Value::String(text) if !closed.contains(&key) => *text = HOSTILE.to_owned(),
        Value::Array(items) if !closed.contains(&key) => items.iter_mut().for_each(|item| poison(item, key)),
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| poison(value, key)),
        _ => {}
    }
}

fn ended() -> Value {
    let mut record = pending();
    let reviewer = json!({"kind": "administrator", "label": "Administrator"});
    record["status"] = json!("allowed");
    record["decision"] = json!("allow-once");
    record["terminalReason"] = json!("user");
    record["resolvedAtMs"] = json!(NOW_MS);
    record["resolver"] = reviewer.clone();
    record["votes"] =
        json!([{"decision": "allow-once", "voter": reviewer, "atMs": NOW_MS, "reason": "fine"}]);
    record["claim"] = json!({"claimId": "c1", "atMs": NOW_MS});
    record["receipt"] = json!({"outcome": "succeeded", "atMs": NOW_MS, "detail": "exit 0"});
    record
}

fn record_block(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"record\">").expect("the page has a record");
    let (json, _) = rest.split_once("</script>").expect("the record ends");
    serde_json::from_str(json).expect("the record is JSON")
}

#[test]
fn hostile_text_in_any_field_stays_text() {
    for mut record in [pending(), ended()] {
        let scripts = page_of(record.clone()).matches("</script>").count();
        poison(&mut record, "");
        let page = page_of(record);
        assert!(!page.contains("<img src=x"), "{page}");
        assert_eq!(page.matches("</script>").count(), scripts);
        assert!(!page.contains("<!--"));
        assert_eq!(record_block(&page)["approval"]["id"], HOSTILE, "the module reads the very text");
    }
    for page in [sign_in_page("", HOSTILE, Some(HOSTILE)), not_found_page("", HOSTILE)] {
        assert!(!page.contains("<img src=x") && !page.contains("<script>"), "{page}");
    }
}

#[test]
fn a_pending_approval_starts_locked_with_deny_first() {
    let page = page_of(pending());
    assert!(page.contains("data-state=\"loading\""));
    let deny = page.find("id=\"deny\" type=\"button\" disabled").expect("deny is locked");
    let allow = page.find("id=\"allow-once\" type=\"button\" disabled").expect("approve is locked");
    assert!(deny < allow);
    assert!(page.contains("<meta name=\"csrf\" content=\"csrf-value\">"));
    assert!(page.contains(">9:41<"));
}

#[test]
fn the_reviewer_reads_our_words_then_the_action_then_the_agents_words() {
    let page = page_of(pending());
    let order = [
        "Run git in /srv",
        "release-agent",
        "9:41",
        "One token mixes scripts",
        "id=\"action\"",
        "git push  --force",
        "id=\"action-end\"",
        "because it is time",
    ];
    let places: Vec<_> =
        order.iter().map(|text| page.find(text).unwrap_or_else(|| panic!("{text} is missing"))).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn an_ended_approval_offers_no_answer() {
    let page = page_of(ended());
    assert!(page.contains("data-state=\"allowed\""));
    assert!(!page.contains("<button") && !page.contains("<textarea") && !page.contains("countdown"));
}

#[test]
fn the_frozen_content_is_not_on_the_page() {
    let mut record = pending();
    record["content"] = json!({"secret": "raw-content"});
    assert!(!page_of(record).contains("raw-content"));
}

#[test]
fn without_scripts_the_page_names_the_terminal_commands() {
    let page = page_of(pending());
    let (_, rest) = page.split_once("<noscript>").expect("there is a noscript part");
    let (part, _) = rest.split_once("</noscript>").expect("it ends");
    assert!(part.contains("holdgate approvals allow apr_0123456789abcdef0123456789abcdef"));
    assert!(part.contains("holdgate approvals deny apr_0123456789abcdef0123456789abcdef"));
}

#[test]
fn sign_in_leads_back_to_this_origin_whatever_the_id() {
    for id in
        ["apr_1", "//evil.example", "https://evil.example/", "\\\\evil", "../x", "a?b#c", "é\u{202E}", ""]
    {
        let page = sign_in_page("", id, None);
        let (_, rest) = page.split_once("name=\"next\" value=\"").expect("the form says where to");
        let (next, _) = rest.split_once('"').expect("the value ends");
        assert_eq!(next, path_of("", id));
        let segment = next.strip_prefix("/approve/").expect("it stays under /approve/");
        assert!(segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)), "{segment}");
    }
}

#[test]
fn the_pages_and_files_need_nothing_that_the_policy_forbids() {
    assert!(
        CONTENT_SECURITY_POLICY
            .starts_with("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; ")
    );
    assert!(!CONTENT_SECURITY_POLICY.contains("unsafe") && !CONTENT_SECURITY_POLICY.contains("http"));
    for page in [page_of(pending()), page_of(ended()), sign_in_page("", "x", None), not_found_page("", "x")] {
        assert!(!page.contains(" style=") && !page.contains("<style"), "{page}");
        assert!(!page.contains(" onclick") && !page.contains(" onload") && !page.contains(" onerror"));
        assert!(!page.contains("http://") && !page.contains("https://"));
    }
    let (_, script) = asset("approve.js").expect("the module is served");
    for sink in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "location.search",
    ] {
        assert!(!script.contains(sink), "{sink}");
    }
    assert!(asset("../page.rs").is_none());
}

#[test]
fn a_fact_that_says_the_same_as_the_command_is_still_shown() {
    let mut record = pending();
    record["presentation"]["commandText"] = json!("true");
    record["presentation"]["facts"] =
        json!([{"label": "Command", "text": "true"}, {"label": "sudo", "text": "true"}]);
    let page = page_of(record);
    assert!(page.contains("sudo"), "{page}");
    assert!(!page.contains(">Command<"), "the command itself is said once");
}

#[test]
fn who_signed_in_is_told_apart_from_what_the_agent_calls_itself() {
    let mut record = pending();
    record["source"]["agent"] = json!("operator, verified by Holdgate");
    let page = page_of(record);
    let (ours, theirs) = (page.find("agent.token").unwrap(), page.find("“operator, verified").unwrap());
    assert!(ours < theirs && page[ours..theirs].contains("says it is"), "{page}");
}

#[test]
fn every_link_of_every_page_begins_with_the_base_path() {
    let approval: Approval = serde_json::from_value(pending()).unwrap();
    for page in [
        approval_page("/gate", &approval, "csrf-value", NOW_MS),
        sign_in_page("/gate", "plugin:1", None),
        not_found_page("/gate", "x"),
        front_page("/gate"),
    ] {
        let links = ["href=\"", "src=\"", "action=\"", "name=\"next\" value=\""];
        let found: Vec<_> = links.iter().flat_map(|link| page.split(link).skip(1)).collect();
        assert!(found.len() >= 3, "{page}");
        assert!(found.iter().all(|link| link.starts_with("/gate/")), "{page}");
    }
}

#[test]
fn the_place_that_the_digest_covers_is_shown() {
    assert!(page_of(pending()).contains("call-7"));
}
