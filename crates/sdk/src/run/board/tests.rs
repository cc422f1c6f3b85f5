//! Tables of plan and next step: whose turn it is, and what a fresh process does with a journal cut after any entry.

use serde_json::{Map, json};

use super::*;
use crate::model::{Reply, RequestedCall};
use crate::run::journal::VERSION;
use crate::run::outcome::Cause;
use crate::run::review::Question;

const RUN: &str = "run-1";

fn crew(concurrency: usize) -> Crew {
    let max_turns = ["a", "b"].map(|agent| (agent.to_owned(), 4));
    Crew { max_turns: HashMap::from(max_turns), concurrency }
}

fn task(id: &str, agent: &str, after: &[&str]) -> TaskSpec {
    let task = TaskSpec::new(id, id, "").assigned_to(agent);
    after.iter().fold(task, |task, before| task.after(*before))
}

fn started(tasks: &[TaskSpec], gates: GateSet) -> Vec<Event> {
    let started = Event::TeamStarted {
        version: VERSION,
        team: "crew".to_owned(),
        at_ms: 0,
        tasks: tasks.len(),
        gates,
        goal: None,
        context: Map::new(),
    };
    vec![started, Event::TasksPlanned { tasks: tasks.to_vec() }]
}

fn board(events: &[Event]) -> Board {
    let mut board = Board::replay(RUN, crew(2), events.iter().cloned()).unwrap();
    board.look_around();
    board
}

fn of(task: &str, event: Event) -> Event {
    Event::Task { task: task.to_owned(), event: Box::new(event) }
}

fn start(task: &str) -> Event {
    Event::TaskStarted { task: task.to_owned() }
}

fn replied(task: &str, calls: &[&str]) -> Event {
    let call =
        |id: &&str| RequestedCall { id: (*id).to_owned(), tool: "t".to_owned(), arguments: "{}".to_owned() };
    of(task, Event::ModelReplied { text: format!("{task} says"), calls: calls.iter().map(call).collect() })
}

fn ended(task: &str, end: TaskEnd) -> Event {
    Event::TaskEnded { task: task.to_owned(), at_ms: 1, end }
}

fn question(board: &Board, gate: &GateId) -> Question {
    let (kind, boundary, content) = board.content(gate).unwrap();
    Question::freeze_content(kind, RUN, &boundary, &content, None, None).unwrap()
}

/// What is to be done, until something has to be waited for. Steps by the numbers of their tasks.
fn steps(board: &mut Board) -> Vec<String> {
    let told = |effect| match effect {
        Effect::Step(at, machine::Effect::AskModel) => format!("{at} asks"),
        Effect::Step(at, effect) => format!("{at} {effect:?}"),
        other => format!("{other:?}"),
    };
    std::iter::from_fn(|| board.next()).map(told).collect()
}

const DISPATCH: GateSet = GateSet { plan: false, rounds: false, dispatch: true };
const PLAN: GateSet = GateSet { plan: true, rounds: false, dispatch: false };
const ROUNDS: GateSet = GateSet { plan: false, rounds: true, dispatch: false };
const NONE: GateSet = GateSet { plan: false, rounds: false, dispatch: false };

#[test]
fn the_more_urgent_goes_first_and_an_agent_has_one_task() {
    let urgent = TaskSpec { priority: Some(Priority::Critical), ..task("z", "a", &[]) };
    let plan = [task("x", "a", &[]), task("y", "b", &[]), urgent, task("w", "b", &["z"])];
    let mut board = board(&started(&plan, NONE));
    assert_eq!(steps(&mut board), ["2 asks", "1 asks"]);
    board.apply(&start("z")).unwrap();
    board.apply(&replied("z", &[])).unwrap();
    board.apply(&ended("z", TaskEnd::Completed)).unwrap();
    assert_eq!(steps(&mut board), ["0 asks"], "its agent has time again, and the other has not");
}

#[test]
fn a_plan_cut_after_any_entry_says_what_to_do() {
    let plan = [task("x", "a", &[]), task("y", "b", &["x"])];
    let mut journal = started(&plan, DISPATCH);
    let gate = GateId::Dispatch("x".to_owned());
    let suspended = Event::GateSuspended { question: question(&board(&journal), &gate), gate: gate.clone() };
    let passed = Event::GatePassed { claim: Some(gate_claim(RUN, &gate)), gate: gate.clone() };
    let rest = [
        // The gate's answer was never written down: it is asked again, and nothing has happened.
        (suspended, vec![]),
        (passed, vec!["0 asks"]),
        (start("x"), vec!["0 asks"]),
        // Replied, and not written down that this was its end.
        (replied("x", &[]), vec!["0 Finish(\"x says\")"]),
        (ended("x", TaskEnd::Completed), vec!["Settle(Dispatch(\"x\"))", "Gate(Dispatch(\"y\"))"]),
        (Event::GateSettled { gate, refused: None }, vec!["Gate(Dispatch(\"y\"))"]),
    ];
    assert_eq!(steps(&mut board(&journal)), ["Gate(Dispatch(\"x\"))"]);
    for (event, expected) in rest {
        journal.push(event.clone());
        assert_eq!(steps(&mut board(&journal)), expected, "cut after {event:?}");
    }
}

#[test]
fn an_answer_decides_what_a_waiting_gate_becomes() {
    let plan = [task("x", "a", &[])];
    let mut journal = started(&plan, PLAN);
    journal.push(Event::GateSuspended {
        question: question(&board(&journal), &GateId::Plan),
        gate: GateId::Plan,
    });
    let after = |known: Known| {
        let mut board = board(&journal);
        assert_eq!(steps(&mut board), [""; 0], "nothing is known before it was looked at");
        assert_eq!(board.at_rest(), AtRest::Wait { is_said: false, is_unknown: false });
        board.gate_known(&GateId::Plan, known);
        board.next()
    };
    let denied = Rejection::new(Cause::Denied, "no");
    assert_eq!(after(Known::Pending), None);
    assert_eq!(after(Known::Allowed), Some(Effect::Pass(GateId::Plan)));
    assert_eq!(after(Known::Ended(denied.clone())), Some(Effect::Reject(GateId::Plan, denied.clone())));
    let rejected = Event::GateRejected { gate: GateId::Plan, rejection: denied };
    journal.push(rejected);
    let mut stopped = board(&journal);
    assert_eq!((stopped.next(), stopped.at_rest()), (None, AtRest::Reject(GateId::Plan)));
    stopped.apply(&Event::RunRejected { gate: GateId::Plan }).unwrap();
    assert_eq!(stopped.standing(0).0, Some(&TaskEnd::Skipped("the run was rejected".to_owned())));
    assert_eq!(stopped.at_rest(), AtRest::Stop);
}

#[test]
fn once_a_gate_has_rejected_nobody_is_asked_any_more() {
    let plan = [task("x", "a", &[]), task("y", "b", &[])];
    let journal = started(&plan, DISPATCH);
    let mut board = board(&journal);
    let [x, y] = ["x", "y"].map(|id| GateId::Dispatch(id.to_owned()));
    assert_eq!(steps(&mut board), ["Gate(Dispatch(\"x\"))", "Gate(Dispatch(\"y\"))"]);
    let question = question(&board, &x);
    board.gate_asks(&x, question);
    assert_eq!(board.next(), None, "requests are opened together");
    board.gate_answered();
    let rejection = Rejection::new(Cause::GateDenied, "no");
    board.apply(&Event::GateRejected { gate: y.clone(), rejection }).unwrap();
    assert_eq!((board.next(), board.at_rest()), (None, AtRest::Reject(y)));
}

#[test]
fn a_round_begins_when_the_one_before_it_is_over_and_its_gate_let_it_pass() {
    let plan = [task("x", "a", &[]), task("y", "b", &[]), task("z", "a", &["x"])];
    let mut journal = started(&plan, ROUNDS);
    assert_eq!(steps(&mut board(&journal)), ["0 asks", "1 asks"]);
    journal.extend([start("x"), replied("x", &[]), ended("x", TaskEnd::Completed)]);
    assert_eq!(steps(&mut board(&journal)), ["1 asks"], "z has to wait for y, which it does not need");
    let failed = [&journal[..], &[start("y"), ended("y", TaskEnd::Failed("no".to_owned()))]].concat();
    let gate = GateId::Round(1);
    assert_eq!(steps(&mut board(&failed)), ["Gate(Round(1))"], "only what succeeded counts");
    assert_eq!(board(&failed).boundary(&gate).unwrap(), "x->z");
    let passed = [&failed[..], &[Event::GatePassed { gate, claim: None }]].concat();
    assert_eq!(steps(&mut board(&passed)), ["2 asks"]);
}

#[test]
fn an_entry_that_does_not_follow_is_refused() {
    let plan = [task("x", "a", &[]), task("y", "b", &["x"])];
    let journal = started(&plan, DISPATCH);
    let gate = GateId::Dispatch("x".to_owned());
    let mut forged = question(&board(&journal), &gate);
    forged.content = forged.content.replace("\"x\"", "\"z\"");
    let foreign = Event::GatePassed { gate: gate.clone(), claim: Some("clm_0".to_owned()) };
    for event in [
        Event::TasksPlanned { tasks: plan.to_vec() },
        replied("x", &[]),
        ended("x", TaskEnd::Completed),
        start("nobody"),
        Event::GateSuspended { gate: gate.clone(), question: forged },
        foreign,
        Event::GateSettled { gate, refused: None },
        Event::GateSuspended { gate: GateId::Round(1), question: question(&board(&journal), &GateId::Plan) },
        Event::RunFinished { output: String::new() },
        Event::RunRejected { gate: GateId::Plan },
        Event::ModelReplied { text: String::new(), calls: Vec::new() },
        of("x", Event::RunSuspended {}),
    ] {
        assert!(board(&journal).apply(&event).is_err(), "{event:?}");
    }
    let half = &journal[..1];
    let mut torn = Board::replay(RUN, crew(1), half.iter().cloned()).unwrap();
    assert!(
        !torn.has_started() && torn.apply(&start("x")).is_err(),
        "without all of its plan it has not started"
    );
}

#[test]
fn ids_of_calls_are_not_given_again_when_a_task_is_begun_anew() {
    let plan = [task("x", "a", &[])];
    let mut journal = started(&plan, NONE);
    let rejection = Rejection::new(Cause::GateDenied, "no");
    journal.extend([
        start("x"),
        replied("x", &["c"]),
        of("x", Event::CallRejected { call: "c".to_owned(), rejection }),
        Event::TaskRetried { task: "x".to_owned(), why: "it gave up".to_owned() },
    ]);
    let board = board(&journal);
    let again = Reply::text("").call("c", "t", json!({}));
    let Event::ModelReplied { calls, .. } = board.machine(0).unwrap().reply_event(again) else { panic!() };
    assert_ne!(calls[0].id, "c");
    assert_eq!(board.retries(0), 1);
}

#[test]
fn a_step_costs_the_same_however_many_tasks_there_are() {
    for tasks in [10, 2_000] {
        let plan: Vec<TaskSpec> = (0..tasks).map(|n| task(&n.to_string(), "a", &[])).collect();
        let mut board = board(&started(&plan, NONE));
        let mut looked = 0;
        for n in 0..tasks {
            while let Some(effect) = board.next() {
                looked += 1;
                assert_eq!(effect, Effect::Step(n, machine::Effect::AskModel));
            }
            let id = n.to_string();
            for event in [start(&id), replied(&id, &[]), ended(&id, TaskEnd::Completed)] {
                board.apply(&event).unwrap();
            }
        }
        assert_eq!((looked, board.at_rest()), (tasks, AtRest::Finish));
    }
}
