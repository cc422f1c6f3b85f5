//! Tables of journal and next effect: what a fresh process does after a crash between any two steps.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::*;
use crate::agent::Agent;
use crate::model::Scripted;
use crate::run::journal::Ending;
use crate::run::outcome::{CallResult, Cause};
use crate::run::review::{Place, TASK, check};
use crate::tool::TypedTool;

const RUN: &str = "run-1";
const PLACE: Place<'static> = Place { run: RUN, task: TASK };

/// What another process finds.
fn replayed(max_turns: u32, events: &[Event]) -> Result<Machine, String> {
    let mut machine = Machine::new(RUN, TASK, max_turns);
    events.iter().try_for_each(|event| machine.apply(event))?;
    machine.inherited();
    Ok(machine)
}

fn agent() -> Agent {
    let tool = TypedTool::new("publish", "", |_: Value, _| async { Ok(Value::Null) });
    Agent::builder("a", Scripted::default()).tool(tool).build().unwrap()
}

fn requested(id: &str) -> RequestedCall {
    RequestedCall {
        id: id.to_owned(),
        tool: "publish".to_owned(),
        arguments: r#"{"version":"1"}"#.to_owned(),
    }
}

fn question(id: &str) -> Question {
    let call = requested(id);
    let checked = check(&agent(), &call).unwrap();
    Question::freeze(PLACE, "a", &call, &checked, None, Some(Duration::from_secs(1))).unwrap()
}

fn started() -> Event {
    Event::RunStarted { version: VERSION, agent: "a".to_owned(), input: "go".to_owned(), context: Map::new() }
}

fn replied(ids: &[&str]) -> Event {
    Event::ModelReplied { text: "said".to_owned(), calls: ids.iter().map(|id| requested(id)).collect() }
}

fn suspended(id: &str) -> Event {
    Event::CallSuspended { call: id.to_owned(), question: question(id) }
}

fn call_started(id: &str, claim: Option<&str>) -> Event {
    Event::CallStarted { call: id.to_owned(), claim: claim.map(str::to_owned) }
}

fn claimed(id: &str) -> Event {
    call_started(id, Some(&claim_id(PLACE, id)))
}

fn ended(id: &str) -> Event {
    Event::CallEnded { call: id.to_owned(), ending: Ending::Succeeded(json!("done")) }
}

fn settled(id: &str) -> Event {
    Event::CallSettled { call: id.to_owned(), refused: None }
}

fn rejected(id: &str) -> Event {
    Event::CallRejected { call: id.to_owned(), rejection: denied() }
}

fn denied() -> Rejection {
    Rejection::new(Cause::Denied, "no")
}

fn unknown(id: &str) -> Event {
    Event::CallUnknown { call: id.to_owned() }
}

fn replay(events: &[Event]) -> Machine {
    replayed(2, events).unwrap()
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// The journal of a run whose first call runs at once and whose second waits for a person, entry by entry, with what
/// a process does that finds the journal cut after that entry. `Look` stands for: compare with the record, then as
/// [`an_answer_decides_what_a_waiting_call_becomes`] says.
#[test]
fn a_journal_cut_after_any_entry_says_what_to_do() {
    let c = || "c".to_owned();
    let w = || "w".to_owned();
    let steps = [
        (started(), Effect::AskModel),
        // The gate's answers were never written down: it is asked again, and no effect has happened.
        (replied(&["c", "w"]), Effect::Gate(c())),
        // Started, and nobody knows more.
        (call_started("c", None), Effect::Recover(c(), Interrupted::Unsaid)),
        (ended("c"), Effect::Gate(w())),
        (suspended("w"), Effect::Look(vec![w()])),
        // Claimed or not, nothing has started: the same claim is made again.
        (claimed("w"), Effect::Recover(w(), Interrupted::Unsaid)),
        // The effect has happened; only its receipt is owed.
        (ended("w"), Effect::Settle(w())),
        (settled("w"), Effect::AskModel),
        (replied(&[]), Effect::Finish("said".to_owned())),
        (Event::RunFinished { output: "said".to_owned() }, Effect::Stop(End::Finished("said".to_owned()))),
    ];
    let journal: Vec<Event> = steps.iter().map(|(event, _)| event.clone()).collect();
    for (at, (event, effect)) in steps.iter().enumerate() {
        assert_eq!(replay(&journal[..=at]).next(), *effect, "cut after {event:?}");
    }
}

#[test]
fn an_answer_decides_what_a_waiting_call_becomes() {
    let journal = [started(), replied(&["v", "w"]), suspended("v"), suspended("w")];
    let after = |v: Known, w: Known| {
        let mut machine = replay(&journal);
        assert_eq!(machine.next(), Effect::Look(ids(&["v", "w"])));
        machine.known("v", v);
        machine.known("w", w);
        machine.next()
    };
    let reject = |id: &str| Effect::Reject(id.to_owned(), denied());
    let run = |id: &str| Effect::Run(id.to_owned());
    let ended = || Known::Ended(denied());
    for (v, w, effect) in [
        (Known::Pending, Known::Pending, Effect::Suspend(Resting::Said)),
        (Known::Allowed, Known::Pending, run("v")),
        (Known::Pending, Known::Allowed, run("w")),
        (Known::Allowed, Known::Allowed, run("v")),
        (ended(), Known::Allowed, reject("v")),
        (Known::Pending, ended(), reject("w")),
    ] {
        assert_eq!(after(v.clone(), w.clone()), effect, "{v:?} {w:?}");
    }
}

#[test]
fn one_answered_call_runs_while_the_other_still_waits_and_the_run_rests_again() {
    let mut machine = replay(&[started(), replied(&["v", "w"]), suspended("v"), suspended("w")]);
    machine.known("v", Known::Allowed);
    machine.known("w", Known::Pending);
    for event in [claimed("v"), ended("v")] {
        machine.apply(&event).unwrap();
    }
    assert_eq!(machine.next(), Effect::Settle("v".to_owned()));
    machine.apply(&settled("v")).unwrap();
    assert_eq!(machine.next(), Effect::Suspend(Resting::Unsaid));
    machine.apply(&Event::RunSuspended {}).unwrap();
    assert_eq!(machine.next(), Effect::Suspend(Resting::Said));
}

#[test]
fn an_unknown_call_stays_unknown_and_is_told_once() {
    let journal = [started(), replied(&["c"]), call_started("c", None), unknown("c")];
    assert_eq!(replay(&journal).next(), Effect::Recover("c".to_owned(), Interrupted::Said));
    let rerun = [&journal[..], &[call_started("c", None), ended("c")]].concat();
    assert_eq!(replay(&rerun).next(), Effect::AskModel, "an idempotent tool ran again");
}

#[test]
fn calls_are_gated_in_order_and_those_that_wait_are_asked_together_at_the_end() {
    let mut machine = replay(&[started(), replied(&["u", "v", "w"])]);
    machine.asking("u", question("u"));
    assert_eq!(machine.next(), Effect::Gate("v".to_owned()));
    machine.apply(&call_started("v", None)).unwrap();
    machine.apply(&ended("v")).unwrap();
    machine.asking("w", question("w"));
    assert_eq!(machine.next(), Effect::Request(ids(&["u", "w"])));
    machine.apply(&suspended("u")).unwrap();
    machine.apply(&suspended("w")).unwrap();
    assert_eq!(machine.next(), Effect::Suspend(Resting::Said));
}

#[test]
fn a_model_that_never_comes_to_an_end_fails_the_run() {
    let journal = [started(), replied(&["c"]), rejected("c"), replied(&["d"]), rejected("d")];
    assert!(matches!(replay(&journal).next(), Effect::Fail(_)));
    assert_eq!(replay(&journal[..3]).next(), Effect::AskModel);
}

#[test]
fn an_entry_that_does_not_follow_is_refused() {
    let waiting = || vec![started(), replied(&["w"]), suspended("w")];
    let mut forged = question("w");
    forged.content = forged.content.replace("\"1\"", "\"2\"");
    let misplaced = |before: Vec<Event>, event: Event| {
        let mut machine = replay(&before);
        assert!(machine.apply(&event).is_err(), "{event:?} after {before:?}");
    };
    misplaced(vec![], replied(&[]));
    misplaced(vec![started()], started());
    misplaced(vec![started()], ended("c"));
    misplaced(vec![started(), replied(&["c"])], replied(&["d"]));
    misplaced(vec![started(), replied(&["c"])], ended("c"));
    misplaced(vec![started(), replied(&["c"])], claimed("c"));
    misplaced(vec![started(), replied(&["c"])], Event::RunSuspended {});
    misplaced(vec![started(), replied(&["c"])], Event::RunFinished { output: String::new() });
    misplaced(vec![started()], replied(&["c", "c"]));
    misplaced(vec![started(), replied(&["c"]), rejected("c")], replied(&["c"]));
    misplaced(vec![started(), replied(&["c"]), rejected("c")], call_started("c", None));
    // A reviewed call starts with its own claim, and no other.
    misplaced(waiting(), call_started("w", None));
    misplaced(waiting(), call_started("w", Some("clm_other")));
    misplaced([waiting(), vec![claimed("w"), ended("w")]].concat(), replied(&["x"]));
    misplaced([waiting(), vec![claimed("w"), ended("w"), settled("w")]].concat(), settled("w"));
    misplaced(
        vec![started(), replied(&["w"])],
        Event::CallSuspended { call: "w".to_owned(), question: forged },
    );
    misplaced(
        vec![started(), replied(&["w", "x"])],
        Event::CallSuspended { call: "x".to_owned(), question: question("w") },
    );
    misplaced(vec![started(), replied(&[]), Event::RunFailed { why: String::new() }], replied(&[]));
}

#[test]
fn a_call_id_that_was_used_or_does_not_fit_is_replaced() {
    let machine = replay(&[started(), replied(&["c", "call-3"]), rejected("c"), rejected("call-3")]);
    let reply = Reply {
        text: String::new(),
        calls: ["c", "d", "d", "", "a b", "e\n", "a:b", &"x".repeat(65)].map(requested).into(),
    };
    let Event::ModelReplied { calls, .. } = machine.reply_event(reply) else { unreachable!() };
    let given: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(given, ["call-4", "d", "call-5", "call-6", "call-7", "call-8", "call-9", "call-10"]);
}

#[test]
fn a_transcript_tells_the_model_what_came_of_every_call() {
    let journal = [started(), replied(&["c", "d"]), call_started("c", None), ended("c"), rejected("d")];
    let transcript = replay(&journal).transcript("be brief");
    assert_eq!(transcript.messages.len(), 4);
    assert_eq!(transcript.messages[0], Message::User("go".to_owned()));
    let results: Vec<_> = transcript.messages[2..]
        .iter()
        .map(|message| match message {
            Message::Tool { call_id, result, .. } => (call_id.as_str(), result.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results, [("c", CallResult::Succeeded(json!("done"))), ("d", CallResult::Rejected(denied()))]);
}
