//! What lists, replays and reads do to a reviewer's surface, one test each.

use holdgate_client::reviewing::{Decision, Declined, End, Input, Origin, State};
use serde_json::json;

use crate::desk::{CANONICAL, Desk, ID, MADE, allowed, denied, listed, projection, resolved};

const ALLOW: Decision = Decision::AllowOnce;

fn elsewhere(decision: Decision, by: &str) -> State {
    State::Ended(End::Answered { decision, origin: Origin::Elsewhere, by: Some(by.to_owned()) })
}

#[test]
fn an_id_that_is_no_text_triggers_a_refresh() {
    for name in ["exec.approval.requested", "plugin.approval.resolved", "session.approval"] {
        let mut desk = Desk::with_one_waiting();
        let mut payload = listed(ID, MADE);
        payload["id"] = 7.into();
        desk.event(name, if name == "session.approval" { json!({"approval": payload}) } else { payload });
        assert_eq!(desk.methods(), ["exec.approval.list", "plugin.approval.list"], "{name}");
        assert_eq!(desk.machine.view().cards.len(), 1);
    }
}

#[test]
fn a_refresh_that_is_wanted_while_one_is_out_follows_it() {
    let mut desk = Desk::with_one_waiting();
    desk.apply(Input::Refresh);
    desk.event("exec.approval.requested", json!({"id": null}));
    desk.event("exec.approval.requested", json!({"id": null}));
    assert_eq!(desk.methods(), ["exec.approval.list", "plugin.approval.list"]);
    desk.list_one();
    assert_eq!(desk.methods(), ["exec.approval.list", "plugin.approval.list"]);
    desk.list_one();
    assert!(desk.out.is_empty());
}

#[test]
fn a_dot_is_refused_without_asking_anybody() {
    for id in [".", "..", ""] {
        let mut desk = Desk::new();
        desk.connect("gw", &CANONICAL);
        desk.answer("exec.approval.list", json!([listed(id, MADE)]));
        desk.answer("plugin.approval.list", json!([]));
        desk.apply(Input::Opened { id: id.to_owned() });
        desk.event("exec.approval.requested", listed(id, MADE));
        assert!(desk.machine.view().cards.is_empty());
        assert!(desk.out.is_empty(), "{id:?}: {:?}", desk.out);
    }
}

#[test]
fn a_list_unlocks_no_decision_in_flight() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.apply(Input::Refresh);
    desk.list_one();
    assert_eq!(desk.state(ID), State::Resolving(ALLOW));
    desk.choose(ID, Decision::Deny);
    assert_eq!(desk.declined, [Declined::InFlight]);
    assert_eq!(desk.methods(), ["approval.resolve"]);
}

#[test]
fn a_list_overwrites_no_newer_state() {
    let mut desk = Desk::with_one_waiting();
    desk.apply(Input::Refresh);
    desk.event(
        "session.approval",
        json!({"sessionKey": "s", "phase": "terminal", "approval": denied(ID, MADE)}),
    );
    desk.list_one();
    assert_eq!(desk.state(ID), elsewhere(Decision::Deny, "somebody"));
    assert!(desk.out.is_empty());

    // A request that came after the list was asked for is not in it, and stays.
    desk.apply(Input::Refresh);
    desk.event("exec.approval.requested", listed("new", MADE + 1));
    desk.list_nothing();
    desk.answer("approval.get", json!({"approval": projection("new", MADE + 1)}));
    assert_eq!(desk.state("new"), State::Pending);
}

#[test]
fn an_end_that_was_heard_first_keeps_a_late_list_from_reviving_it() {
    let mut desk = Desk::at_an_older_gateway();
    desk.apply(Input::Refresh);
    desk.event("exec.approval.resolved", resolved("brief", "deny", Some("cli"), MADE));
    desk.answer("exec.approval.list", json!([listed(ID, MADE), listed("brief", MADE)]));
    assert!(desk.find("brief").is_none());
}

fn replay(approvals: serde_json::Value, truncated: bool) -> serde_json::Value {
    let replay =
        json!({"sessionKey": "s", "updatedAtMs": MADE, "approvals": approvals, "truncated": truncated});
    json!({"subscribed": true, "key": "s", "approvalReplay": replay})
}

/// A surface that follows session `s`, where two approvals wait, and has reconnected.
fn following() -> Desk {
    let mut desk = Desk::following(&["s"]);
    desk.connect("gw", &CANONICAL);
    assert_eq!(desk.out[0].params, json!({"key": "s", "includeApprovals": true}));
    desk.answer(
        "sessions.messages.subscribe",
        replay(json!([projection("a", MADE), projection("b", MADE)]), false),
    );
    desk.connect("gw", &CANONICAL);
    desk
}

#[test]
fn a_whole_replay_replaces_the_pending_set() {
    let mut desk = following();
    desk.answer("sessions.messages.subscribe", replay(json!([projection("b", MADE)]), false));
    assert_eq!(desk.state("a"), State::Settling);
    assert!(desk.buttons("a").is_empty());
    assert_eq!(desk.state("b"), State::Pending);
    desk.answer("approval.get", json!({"approval": denied("a", MADE)}));
    assert_eq!(desk.state("a"), elsewhere(Decision::Deny, "somebody"));
}

#[test]
fn a_truncated_replay_keeps_what_it_does_not_hold() {
    for answer in [replay(json!([projection("b", MADE)]), true), {
        let mut unsaid = replay(json!([]), false);
        unsaid["approvalReplay"]["truncated"] = json!("no");
        unsaid
    }] {
        let mut desk = following();
        desk.answer("sessions.messages.subscribe", answer);
        assert_eq!(desk.state("a"), State::Pending);
        desk.event("session.approval", json!({"sessionKey": "s", "approval": allowed("a", MADE)}));
        assert_eq!(desk.state("a"), elsewhere(ALLOW, "somebody"));
    }
}

#[test]
fn a_replay_replaces_only_what_is_of_its_session() {
    let mut desk = following();
    desk.event("session.approval", json!({"sessionKey": "other", "approval": projection("c", MADE)}));
    desk.apply(Input::Refresh);
    desk.answer("sessions.messages.subscribe", replay(json!([]), false));
    assert_eq!(desk.state("c"), State::Pending);
}

#[test]
fn what_a_list_no_longer_holds_is_read_before_anything_is_said() {
    let mut desk = Desk::with_one_waiting();
    desk.apply(Input::Refresh);
    desk.list_nothing();
    assert_eq!(desk.state(ID), State::Pending);
    desk.refuse("approval.get", "APPROVAL_NOT_FOUND");
    assert_eq!(desk.state(ID), State::Ended(End::Gone));
}

#[test]
fn an_id_that_a_person_names_is_read() {
    let mut desk = Desk::new();
    desk.apply(Input::Opened { id: "over".to_owned() });
    desk.connect("gw", &CANONICAL);
    desk.apply(Input::Opened { id: "missing".to_owned() });
    desk.answer("approval.get", json!({"approval": denied("over", MADE)}));
    desk.refuse("approval.get", "APPROVAL_NOT_FOUND");
    assert_eq!(desk.state("over"), elsewhere(Decision::Deny, "somebody"));
    assert_eq!(desk.machine.view().absent, ["missing"]);
}

#[test]
fn many_records_are_read_a_few_at_a_time() {
    let mut desk = Desk::new();
    desk.connect("gw", &CANONICAL);
    let many: Vec<_> = (0..100).map(|n| listed(&format!("id-{n:03}"), MADE)).collect();
    desk.answer("exec.approval.list", many.into());
    desk.answer("plugin.approval.list", json!([]));
    assert_eq!(desk.out.len(), 16);
    let mut read = 0;
    while let Some(call) = desk.out.first().cloned() {
        let id = call.params["id"].as_str().unwrap().to_owned();
        desk.answer("approval.get", json!({"approval": projection(&id, MADE)}));
        assert!(desk.out.len() <= 16);
        read += 1;
    }
    assert_eq!(read, 100);
    assert!(desk.machine.view().cards.iter().all(|card| card.state == State::Pending));
}

#[test]
fn cards_that_ended_are_kept_within_a_bound() {
    let mut desk = Desk::new();
    desk.connect("gw", &CANONICAL);
    for n in 0..400 {
        let id = format!("id-{n:03}");
        desk.event("session.approval", json!({"sessionKey": "s", "approval": projection(&id, MADE + n)}));
        desk.event("session.approval", json!({"sessionKey": "s", "approval": denied(&id, MADE + n)}));
    }
    let cards = desk.machine.view().cards;
    assert_eq!(cards.len(), 256);
    assert_eq!(cards.last().unwrap().shown.key.id, "id-399");
}
