//! The rules of a reviewer's surface, one test each.

use holdgate_client::reviewing::{Closed, Decision, Declined, End, Family, Input, Origin, Shown, State};
use serde_json::json;

use crate::desk::{
    CANONICAL, Desk, ID, LEGACY, MADE, acknowledged, allowed, denied, ended, listed, projection, refused,
    resolved,
};

const ALLOW: Decision = Decision::AllowOnce;

fn here(decision: Decision) -> State {
    State::Ended(End::Answered { decision, origin: Origin::Here, by: None })
}

fn elsewhere(decision: Decision, by: &str) -> State {
    State::Ended(End::Answered { decision, origin: Origin::Elsewhere, by: Some(by.to_owned()) })
}

fn unattributed(decision: Decision, by: Option<&str>) -> State {
    State::Ended(End::Answered { decision, origin: Origin::Unattributed, by: by.map(str::to_owned) })
}

const GONE: State = State::Ended(End::Gone);

#[test]
fn the_method_family_is_chosen_by_the_whole_pair() {
    let of = |methods: &[&str]| Family::of(&methods.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>());
    assert_eq!(of(&CANONICAL), Family::Canonical);
    assert_eq!(of(&["approval.get", "approval.resolve"]), Family::Canonical);
    assert_eq!(of(&LEGACY), Family::Legacy);
    assert_eq!(of(&["approval.get", "exec.approval.resolve"]), Family::Closed(Closed::Partial));
    let mut partial = LEGACY.to_vec();
    partial.push("approval.resolve");
    assert_eq!(of(&partial), Family::Closed(Closed::Partial));
    assert_eq!(of(&["exec.approval.resolve"]), Family::Closed(Closed::None));
    assert_eq!(of(&[]), Family::Closed(Closed::None));
}

#[test]
fn a_partial_catalogue_decides_nothing_and_says_so() {
    let mut desk = Desk::new();
    desk.connect("gw", &["approval.get", "exec.approval.list", "exec.approval.resolve", "exec.approval.get"]);
    desk.answer("exec.approval.list", json!([listed(ID, MADE)]));
    assert_eq!(desk.machine.view().link.unwrap().family, Family::Closed(Closed::Partial));
    assert!(desk.buttons(ID).is_empty());
    desk.choose(ID, ALLOW);
    assert_eq!(desk.declined, [Declined::Closed(Closed::Partial)]);
    assert!(desk.out.is_empty(), "{:?}", desk.out);
}

#[test]
fn an_unknown_method_later_never_downgrades() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.refuse("approval.resolve", "UNKNOWN_METHOD");
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    desk.refuse("approval.get", "UNKNOWN_METHOD");
    desk.apply(Input::Refresh);
    assert_eq!(desk.machine.view().link.unwrap().family, Family::Canonical);
    assert!(!desk.methods().iter().any(|m| *m == "exec.approval.resolve" || *m == "exec.approval.get"));
    assert!(desk.buttons(ID).is_empty());
}

#[test]
fn an_acknowledged_decision_is_answered_here() {
    for (decision, record) in [(ALLOW, allowed(ID, MADE)), (Decision::Deny, denied(ID, MADE))] {
        let mut desk = Desk::with_one_waiting();
        assert_eq!(desk.buttons(ID), [ALLOW, Decision::Deny]);
        desk.choose(ID, decision);
        assert_eq!(desk.state(ID), State::Resolving(decision));
        assert!(desk.buttons(ID).is_empty());
        let call = desk.out[0].clone();
        assert_eq!(call.params, json!({"id": ID, "kind": "exec", "decision": decision.as_str()}));
        desk.answer("approval.resolve", acknowledged(true, record));
        assert_eq!(desk.state(ID), here(decision));
    }
}

#[test]
fn ids_are_kept_byte_for_byte() {
    let mut desk = Desk::new();
    desk.connect("gw", &CANONICAL);
    desk.answer(
        "exec.approval.list",
        json!([listed("approval-1", MADE), listed("\u{1c}approval-1", MADE), listed("approval-1 ", MADE)]),
    );
    let reads: Vec<_> = (0..3).map(|_| desk.take("approval.get").params["id"].clone()).collect();
    for id in ["approval-1", "\u{1c}approval-1", "approval-1 "] {
        assert!(reads.contains(&json!(id)));
        assert_eq!(desk.card(id).shown.key.id, id);
    }
    assert_eq!(desk.machine.view().cards.len(), 3);
}

#[test]
fn an_answer_of_another_id_is_not_believed() {
    let mut desk = Desk::new();
    desk.connect("gw", &CANONICAL);
    desk.list_one();
    desk.answer("approval.get", json!({"approval": projection("another", MADE)}));
    assert_eq!(desk.state(ID), State::Loading);
    assert!(desk.find("another").is_none());
    assert!(desk.machine.view().trouble.is_some());
}

#[test]
fn an_acknowledgement_of_something_else_freezes_and_reads_back() {
    let other_kind = {
        let mut record = allowed(ID, MADE);
        record["presentation"]["kind"] = "plugin".into();
        record
    };
    let malformed = ended(ID, MADE, "denied", "malformed-verdict", Some("deny"));
    let of_something_else = [
        acknowledged(true, allowed("another", MADE)),
        acknowledged(true, other_kind),
        acknowledged(true, denied(ID, MADE)),
        acknowledged(true, malformed),
        acknowledged(true, projection(ID, MADE)),
        acknowledged(true, ended(ID, MADE, "allowed", "user", Some("allow-always"))),
        acknowledged(true, ended(ID, MADE, "allowed", "user", Some("deny"))),
        json!({"approval": allowed(ID, MADE)}),
        json!({"ok": true}),
        json!(null),
    ];
    for reply in of_something_else {
        let mut desk = Desk::with_one_waiting();
        desk.choose(ID, ALLOW);
        desk.answer("approval.resolve", reply.clone());
        assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW), "{reply}");
        assert!(desk.buttons(ID).is_empty());
        desk.answer("approval.get", json!({"approval": denied(ID, MADE)}));
        assert_eq!(desk.state(ID), elsewhere(Decision::Deny, "somebody"));
    }
}

#[test]
fn a_lost_acknowledgement_stays_frozen_across_reconnects_until_read_back() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.disconnect();
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    for _ in 0..3 {
        desk.connect("gw", &CANONICAL);
        desk.list_one();
        assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
        desk.choose(ID, ALLOW);
        assert_eq!(desk.declined.pop(), Some(Declined::Frozen));
        assert_eq!(desk.methods(), ["approval.get"]);
        desk.disconnect();
    }
    desk.connect("gw", &CANONICAL);
    desk.answer("approval.get", json!({"approval": allowed(ID, MADE)}));
    // It is allowed once. By whom is not told: the answer sent from here may be the one that stands.
    assert_eq!(desk.state(ID), unattributed(ALLOW, Some("somebody")));
}

#[test]
fn a_failed_read_back_invents_nothing() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.lose("approval.resolve");
    for reason in ["UNAVAILABLE", "MISSING_SCOPE"] {
        desk.refuse("approval.get", reason);
        assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
        desk.apply(Input::Refresh);
    }
    desk.answer("approval.get", json!({"approval": {"id": ID, "status": "fine"}}));
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    assert!(desk.machine.view().trouble.is_some());
    desk.apply(Input::Refresh);
    desk.lose("approval.get");
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    assert!(desk.buttons(ID).is_empty());
}

#[test]
fn still_pending_unlocks() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.refuse("approval.resolve", "APPROVAL_NEEDS_MORE");
    desk.answer("approval.get", json!({"approval": projection(ID, MADE)}));
    assert_eq!(desk.state(ID), State::Pending);
    assert_eq!(desk.buttons(ID), [ALLOW, Decision::Deny]);
    assert_eq!(desk.card(ID).note.as_deref(), Some("refused: APPROVAL_NEEDS_MORE"));
    desk.choose(ID, Decision::Deny);
    assert_eq!(desk.state(ID), State::Resolving(Decision::Deny));
}

#[test]
fn a_read_from_before_the_loss_does_not_unlock() {
    let mut desk = Desk::with_one_waiting();
    desk.apply(Input::Opened { id: ID.to_owned() });
    let early = desk.take("approval.get").tag;
    desk.choose(ID, ALLOW);
    desk.answer_to(early, json!({"approval": projection(ID, MADE)}));
    assert_eq!(desk.state(ID), State::Resolving(ALLOW));

    desk.apply(Input::Opened { id: ID.to_owned() });
    let early = desk.take("approval.get").tag;
    desk.lose("approval.resolve");
    desk.answer_to(early, json!({"approval": projection(ID, MADE)}));
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    desk.answer("approval.get", json!({"approval": projection(ID, MADE)}));
    assert_eq!(desk.state(ID), State::Pending);
}

#[test]
fn an_event_beats_a_late_local_reply() {
    let terminal = |record| json!({"sessionKey": "s", "phase": "terminal", "approval": record});
    // Somebody's deny was told before our reply, which claims something else, fails, or is lost.
    let mut replies = vec![Ok(acknowledged(true, allowed(ID, MADE))), Err(refused("UNAVAILABLE"))];
    replies.push(Ok(acknowledged(false, allowed(ID, MADE))));
    for outcome in replies {
        let mut desk = Desk::with_one_waiting();
        desk.choose(ID, ALLOW);
        desk.event("session.approval", terminal(denied(ID, MADE)));
        assert_eq!(desk.state(ID), State::Resolving(ALLOW));
        let tag = desk.take("approval.resolve").tag;
        desk.apply(Input::Reply { tag, outcome });
        assert_eq!(desk.state(ID), elsewhere(Decision::Deny, "somebody"));
    }
    // Our own answer, told by the event before the reply.
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.event("session.approval", terminal(allowed(ID, MADE)));
    desk.answer("approval.resolve", acknowledged(true, allowed(ID, MADE)));
    assert_eq!(desk.state(ID), here(ALLOW));
    // The same, but the reply is lost.
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.event("session.approval", terminal(allowed(ID, MADE)));
    desk.disconnect();
    assert_eq!(desk.state(ID), unattributed(ALLOW, Some("somebody")));
}

#[test]
fn an_end_without_a_record_is_read_and_not_guessed() {
    let mut desk = Desk::with_one_waiting();
    desk.event("exec.approval.resolved", resolved(ID, "deny", None, MADE));
    assert_eq!(desk.state(ID), State::Settling);
    assert!(desk.buttons(ID).is_empty());
    desk.answer("approval.get", json!({"approval": ended(ID, MADE, "expired", "timeout", None)}));
    assert_eq!(desk.state(ID), State::Ended(End::Expired));
}

#[test]
fn the_loser_sees_the_recorded_winner() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.answer("approval.resolve", acknowledged(false, denied(ID, MADE)));
    assert_eq!(desk.state(ID), elsewhere(Decision::Deny, "somebody"));

    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    desk.answer("approval.resolve", acknowledged(false, allowed(ID, MADE)));
    assert_eq!(desk.state(ID), elsewhere(ALLOW, "somebody"));
}

#[test]
fn ends_that_nobody_gave_are_told_apart() {
    let ends = [
        (ended(ID, MADE, "expired", "timeout", None), End::Expired),
        (
            ended(ID, MADE, "cancelled", "gateway-restart", None),
            End::Cancelled { reason: Some("gateway-restart".to_owned()) },
        ),
        (ended(ID, MADE, "denied", "no-route", Some("deny")), End::Denied { reason: "no-route".to_owned() }),
    ];
    for (record, end) in ends {
        let mut desk = Desk::with_one_waiting();
        desk.choose(ID, ALLOW);
        desk.answer("approval.resolve", acknowledged(false, record));
        assert_eq!(desk.state(ID), State::Ended(end));
    }
}

#[test]
fn an_older_gateway_s_already_resolved_retires_the_card_without_a_winner() {
    let mut desk = Desk::at_an_older_gateway();
    desk.choose(ID, ALLOW);
    assert_eq!(desk.out[0].params, json!({"id": ID, "decision": "allow-once"}));
    desk.refuse("exec.approval.resolve", "APPROVAL_ALREADY_RESOLVED");
    assert_eq!(desk.state(ID), GONE);
    assert!(desk.out.is_empty());
}

#[test]
fn an_older_gateway_is_answered_and_read_back_by_its_own_methods() {
    let mut desk = Desk::at_an_older_gateway();
    desk.choose(ID, ALLOW);
    desk.answer("exec.approval.resolve", json!({"ok": true}));
    assert_eq!(desk.state(ID), here(ALLOW));

    let mut desk = Desk::at_an_older_gateway();
    desk.choose(ID, ALLOW);
    desk.disconnect();
    desk.connect("gw", &LEGACY);
    desk.list_one();
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    desk.answer("exec.approval.get", json!({"id": ID, "expiresAtMs": MADE + 60_000}));
    assert_eq!(desk.state(ID), State::Pending);
    desk.choose(ID, ALLOW);
    desk.lose("exec.approval.resolve");
    desk.refuse("exec.approval.get", "APPROVAL_NOT_FOUND");
    assert_eq!(desk.state(ID), GONE);
}

#[test]
fn an_older_gateway_s_events_tell_the_winner() {
    let mut desk = Desk::at_an_older_gateway();
    desk.event("exec.approval.resolved", resolved(ID, "allow-once", Some("cli"), MADE));
    assert_eq!(desk.state(ID), elsewhere(ALLOW, "cli"));

    // A deny by nobody may be an expiry or a cancellation: neither is claimed.
    let mut desk = Desk::at_an_older_gateway();
    desk.event("exec.approval.resolved", resolved(ID, "deny", None, MADE));
    assert_eq!(desk.state(ID), GONE);

    let mut desk = Desk::at_an_older_gateway();
    desk.choose(ID, ALLOW);
    desk.event("exec.approval.resolved", resolved(ID, "deny", Some("cli"), MADE));
    desk.answer("exec.approval.resolve", json!({"ok": true}));
    assert_eq!(desk.state(ID), elsewhere(Decision::Deny, "cli"));
}

#[test]
fn an_older_gateway_s_plugin_approvals_are_shown_and_not_decided() {
    let mut desk = Desk::new();
    desk.connect("gw", &LEGACY);
    let mut plugin = listed("plugin:1", MADE);
    plugin["approvalKind"] = "plugin".into();
    desk.answer("plugin.approval.list", json!([plugin]));
    assert_eq!(desk.state("plugin:1"), State::Pending);
    assert!(desk.buttons("plugin:1").is_empty());
    desk.choose("plugin:1", ALLOW);
    assert_eq!(desk.declined, [Declined::Kind]);
}

#[test]
fn what_a_retired_socket_says_is_ignored() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, ALLOW);
    let old = desk.take("approval.resolve").tag;
    let retired = desk.connection;
    desk.connect("gw", &CANONICAL);
    desk.answer_to(old, acknowledged(true, allowed(ID, MADE)));
    desk.apply(Input::Event {
        connection: retired,
        name: "session.approval".to_owned(),
        payload: json!({"sessionKey": "s", "approval": denied(ID, MADE)}),
    });
    desk.apply(Input::Disconnected { connection: retired });
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    assert!(desk.machine.view().link.is_some());
    // An older number is no new connection either.
    desk.apply(Input::Connected { connection: retired, gateway: "gw".to_owned(), methods: vec![] });
    assert_eq!(desk.machine.view().link.unwrap().family, Family::Canonical);
}

#[test]
fn another_gateway_is_never_asked_about_an_old_id() {
    let mut desk = Desk::with_one_waiting();
    let shown = desk.card(ID).shown;
    desk.apply(Input::Opened { id: "typed".to_owned() });
    desk.choose(ID, ALLOW);
    desk.connect("other", &CANONICAL);
    assert_eq!(desk.state(ID), State::OutcomeUnknown(ALLOW));
    assert_eq!(desk.methods(), ["exec.approval.list", "plugin.approval.list"]);
    desk.choose_on(shown.clone(), ALLOW);
    assert_eq!(desk.declined, [Declined::OtherGateway]);

    // The other gateway has an approval by that id too. It is another card.
    desk.list_one();
    desk.answer("approval.get", json!({"approval": projection(ID, MADE)}));
    let states: Vec<_> = desk.machine.view().cards.into_iter().map(|card| card.state).collect();
    assert_eq!(states, [State::OutcomeUnknown(ALLOW), State::Pending]);
    assert!(desk.out.is_empty());

    // Back at the first, the record is read there.
    desk.connect("gw", &CANONICAL);
    desk.answer("approval.get", json!({"approval": allowed(ID, MADE)}));
    let view = desk.machine.view();
    let card = view.cards.iter().find(|card| card.shown.key == shown.key).unwrap();
    assert_eq!(card.state, unattributed(ALLOW, Some("somebody")));
}

#[test]
fn a_reused_id_is_a_new_card_that_can_be_decided() {
    let mut desk = Desk::with_one_waiting();
    let old = desk.card(ID).shown;
    desk.event("exec.approval.requested", listed(ID, MADE + 5));
    desk.answer("approval.get", json!({"approval": projection(ID, MADE + 5)}));
    assert_eq!(desk.at(ID, MADE).state, GONE);
    assert_eq!(desk.at(ID, MADE + 5).buttons, [ALLOW, Decision::Deny]);
    desk.choose_on(old, ALLOW);
    assert_eq!(desk.declined, [Declined::Ended]);
    // What is older than the newest under its id changes nothing.
    desk.event("exec.approval.requested", listed(ID, MADE + 1));
    desk.event("exec.approval.resolved", resolved(ID, "deny", None, MADE - 1_000));
    desk.event("session.approval", json!({"sessionKey": "s", "approval": denied(ID, MADE)}));
    assert_eq!(desk.at(ID, MADE + 5).state, State::Pending);
    assert_eq!(desk.machine.view().cards.len(), 2);
}

#[test]
fn an_old_card_s_failure_never_lands_on_a_newer_card() {
    for outcome in [Err(refused("UNAVAILABLE")), Ok(acknowledged(false, denied(ID, MADE)))] {
        let mut desk = Desk::with_one_waiting();
        desk.choose(ID, ALLOW);
        let old = desk.take("approval.resolve").tag;
        desk.event("exec.approval.requested", listed(ID, MADE + 5));
        desk.answer("approval.get", json!({"approval": projection(ID, MADE + 5)}));
        assert_eq!(desk.at(ID, MADE).state, State::Resolving(ALLOW));
        desk.apply(Input::Reply { tag: old, outcome });
        assert!(matches!(desk.at(ID, MADE).state, State::Ended(_)));
        let newer = desk.at(ID, MADE + 5);
        assert_eq!((newer.state, newer.note), (State::Pending, None));
        assert_eq!(newer.buttons, [ALLOW, Decision::Deny]);
    }
}

#[test]
fn a_decision_is_taken_on_what_was_rendered() {
    let mut desk = Desk::with_one_waiting();
    let seen = desk.card(ID).shown;
    let mut other = projection(ID, MADE);
    other["presentation"]["commandText"] = "rm -rf /".into();
    desk.event("session.approval", json!({"sessionKey": "s", "approval": other}));
    desk.choose_on(seen.clone(), ALLOW);
    assert_eq!(desk.declined, [Declined::Stale]);
    desk.choose(ID, ALLOW);
    assert_eq!(desk.state(ID), State::Resolving(ALLOW));
    let unknown =
        Shown { key: holdgate_client::reviewing::CardKey { id: "x".to_owned(), ..seen.key }, rendering: 1 };
    desk.choose_on(unknown, ALLOW);
    assert_eq!(desk.declined, [Declined::Stale, Declined::Unknown]);
}

#[test]
fn a_card_whose_record_was_not_read_cannot_be_decided() {
    let mut desk = Desk::new();
    desk.connect("gw", &CANONICAL);
    desk.list_one();
    assert_eq!(desk.state(ID), State::Loading);
    assert!(desk.buttons(ID).is_empty());
    desk.choose(ID, ALLOW);
    assert_eq!(desk.declined, [Declined::Loading]);
}

#[test]
fn a_decision_that_is_not_allowed_is_not_sent() {
    let mut desk = Desk::with_one_waiting();
    desk.choose(ID, Decision::AllowAlways);
    assert_eq!(desk.declined, [Declined::NotAllowed(Decision::AllowAlways)]);
    // To deny is always allowed; nothing else is, unless it is said.
    let mut silent = projection("silent", MADE);
    silent["presentation"] = json!({"kind": "exec"});
    desk.event("session.approval", json!({"sessionKey": "s", "approval": silent}));
    assert_eq!(desk.buttons("silent"), [Decision::Deny]);
    desk.disconnect();
    desk.choose(ID, ALLOW);
    assert_eq!(desk.declined.last(), Some(&Declined::Offline));
}
