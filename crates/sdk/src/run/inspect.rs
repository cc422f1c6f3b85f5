//! A run as its journal tells it: entry by entry, and as it stood after any of them.
//!
//! Owns the words for an entry. Takes no run and changes nothing; needs no agent, because nothing is run.

use std::collections::HashMap;
use std::sync::Arc;

use holdgate_authority::Authority;
use holdgate_core::presentation::masked;

use super::RunError;
use super::board::{Board, Crew, End};
use super::driver::line;
use super::journal::{Ending, Event, GateId, TaskEnd};
use super::machine::{Effect, End as AgentEnd, Machine};
use super::outcome::{TaskState, TaskSummary};
use super::summary;

/// One entry of a run's journal, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Its number, from 1.
    pub seq: u64,
    /// When it became durable, in Unix milliseconds.
    pub at_ms: i64,
    /// The task that it is of, if it is of one.
    pub task: Option<String>,
    /// What happened, on one line, safe to show.
    pub what: String,
}

/// A run as it stood after some entry of its journal.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// The run.
    pub run_id: String,
    /// The agent or team that it is of.
    pub of: String,
    /// The number of the entry.
    pub seq: u64,
    /// `under way`, `waiting`, `finished`, `failed` or `rejected`.
    pub state: &'static str,
    /// Its output, or why it did not come to one. Empty before its end.
    pub detail: String,
    /// Its tasks. A single agent's run has one.
    pub tasks: Vec<TaskSummary>,
    /// The approvals that it waited for.
    pub waiting: Vec<String>,
}

/// Reads a run's journal, entry by entry.
///
/// # Errors
/// See [`RunError`].
pub async fn timeline(authority: Arc<dyn Authority>, run_id: &str) -> Result<Vec<TimelineEntry>, RunError> {
    let entries = line::read_entries(&*authority, run_id).await?;
    let told = (1..).zip(entries).map(|(seq, (at_ms, event))| {
        let (task, event) = match event {
            Event::Task { task, event } => (Some(task), *event),
            event => (task_of(&event), event),
        };
        TimelineEntry { seq, at_ms, task: task.as_deref().map(masked), what: masked(&words(&event)) }
    });
    Ok(told.collect())
}

/// Folds a run's journal up to an entry, or to its end: what had come of it by then.
///
/// # Errors
/// See [`RunError`]; `NoSuchEntry` for an entry that is not there.
pub async fn replay(
    authority: Arc<dyn Authority>,
    run_id: &str,
    until: Option<u64>,
) -> Result<RunView, RunError> {
    let mut events = line::read_journal(&*authority, run_id).await?;
    let last = events.len() as u64;
    if let Some(seq) = until.filter(|seq| !(1..=last).contains(seq)) {
        return Err(RunError::NoSuchEntry { run: run_id.to_owned(), seq, last });
    }
    events.truncate(until.map_or(usize::MAX, |until| usize::try_from(until).unwrap_or(usize::MAX)));
    // Nobody goes on from here, so nobody's limits matter.
    let crew = Crew { max_turns: HashMap::new(), concurrency: 1 };
    let board = Board::replay(run_id, crew, events)?;
    if !board.has_started() {
        return Err(RunError::NeverStarted { run: run_id.to_owned() });
    }
    let (state, detail) = standing(&board);
    Ok(RunView {
        run_id: run_id.to_owned(),
        of: board.team().unwrap_or_else(|| board.agent(0)).to_owned(),
        seq: board.seq(),
        state,
        detail,
        tasks: (0..board.task_count()).map(|at| task(&board, at)).collect(),
        waiting: board.questions().map(|question| question.approval.clone()).collect(),
    })
}

/// A task; that of a single agent ends with its run.
fn task(board: &Board, at: usize) -> TaskSummary {
    let mut task = summary::task(board, at);
    if board.team().is_none() {
        task.state = match standing(board) {
            ("finished", output) => TaskState::Completed(output),
            ("failed", why) => TaskState::Failed(why),
            _ => task.state,
        };
    }
    task
}

fn standing(board: &Board) -> (&'static str, String) {
    let single = || match board.machine(0).map(Machine::next) {
        Some(Effect::Stop(AgentEnd::Finished(output))) => Some(("finished", output)),
        Some(Effect::Stop(AgentEnd::Failed(why))) => Some(("failed", why)),
        _ => None,
    };
    let ended = match board.end() {
        Some(End::Finished(output)) => Some(("finished", output.clone())),
        Some(End::Failed(why)) => Some(("failed", why.clone())),
        Some(End::Rejected(rejection)) => Some(("rejected", rejection.to_string())),
        None if board.team().is_none() => single(),
        None => None,
    };
    let is_waiting = || board.questions().next().is_some();
    ended.unwrap_or_else(|| (if is_waiting() { "waiting" } else { "under way" }, String::new()))
}

fn task_of(event: &Event) -> Option<String> {
    match event {
        Event::TaskStarted { task } | Event::TaskRetried { task, .. } | Event::TaskEnded { task, .. } => {
            Some(task.clone())
        }
        _ => None,
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::RunStarted { agent, .. } => format!("agent {agent} started"),
        Event::TeamStarted { team, tasks, .. } => format!("team {team} started on {tasks} tasks"),
        Event::TasksPlanned { tasks } => format!("{} tasks planned", tasks.len()),
        Event::ModelReplied { calls, .. } if calls.is_empty() => "the model replied".to_owned(),
        Event::ModelReplied { calls, .. } => {
            let asked: Vec<_> = calls.iter().map(|call| format!("{} ({})", call.tool, call.id)).collect();
            format!("the model asked for {}", asked.join(", "))
        }
        Event::CallRejected { call, rejection } => format!("call {call} will not run: {rejection}"),
        Event::CallSuspended { call, question } => format!("call {call} waits for {}", question.approval),
        Event::RunSuspended {} => "let go to wait for people".to_owned(),
        Event::CallStarted { call, claim: Some(_) } => format!("call {call} claimed its allow and started"),
        Event::CallStarted { call, claim: None } => format!("call {call} started"),
        Event::CallEnded { call, ending: Ending::Succeeded(_) } => format!("call {call} succeeded"),
        Event::CallEnded { call, ending: Ending::Failed(why) } => format!("call {call} failed: {why}"),
        Event::CallSettled { call, refused: None } => format!("the receipt of call {call} was delivered"),
        Event::CallSettled { call, refused: Some(why) } => {
            format!("the receipt of call {call} was refused: {why}")
        }
        Event::CallUnknown { call } => format!("nobody knows how call {call} ended"),
        Event::GateSuspended { gate, question } => format!("{} waits for {}", name(gate), question.approval),
        Event::GatePassed { gate, claim: Some(_) } => format!("{} was allowed and claimed", name(gate)),
        Event::GatePassed { gate, claim: None } => format!("{} was let pass", name(gate)),
        Event::GateRejected { gate, rejection } => format!("{} was not let pass: {rejection}", name(gate)),
        Event::GateSettled { gate, .. } => format!("the receipt of {} was given", name(gate)),
        Event::TaskStarted { .. } => "its agent began".to_owned(),
        Event::TaskRetried { why, .. } => format!("begun anew: {why}"),
        Event::TaskEnded { end: TaskEnd::Completed, .. } => "completed".to_owned(),
        Event::TaskEnded { end: TaskEnd::Failed(why), .. } => format!("failed: {why}"),
        Event::TaskEnded { end: TaskEnd::Skipped(why), .. } => format!("skipped: {why}"),
        Event::Task { event, .. } => words(event),
        Event::RunFinished { .. } => "finished".to_owned(),
        Event::RunFailed { why } => format!("failed: {why}"),
        Event::RunRejected { gate } => format!("rejected: {} was not let pass", name(gate)),
    }
}

fn name(gate: &GateId) -> String {
    match gate {
        GateId::Plan => "the plan".to_owned(),
        GateId::Round(number) => format!("round {number}"),
        GateId::Dispatch(task) => format!("task {task}"),
    }
}
