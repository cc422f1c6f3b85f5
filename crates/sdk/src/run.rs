//! Runs: started here, stopped at a gate, restored in another process.
//!
//! Owns the entry points and their errors. The parts: `journal` (what is written), `board` (what follows from it for a
//! plan, pure) and `machine` (the same for one agent, pure), `task` (a plan, pure), `review` (the frozen content, pure),
//! `driver` (the only part that awaits), `outcome` and `summary` (what the caller is told).

mod board;
mod coordinator;
mod driver;
pub(crate) mod inspect;
pub(crate) mod journal;
mod machine;
pub(crate) mod outcome;
mod review;
mod summary;
pub(crate) mod task;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use holdgate_core::run::RunState;
use holdgate_wire::{Code, CreateRun};
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::model::ModelError;
use crate::team::{Gates, NewTeamRun, Team};
use board::{Board, Crew, GateSet};
use driver::line::{self, Line};
use driver::{Driver, Rested};
use journal::{Event, JournalError, VERSION};
use outcome::{Outcome, TeamOutcome};
use summary::{outcome, team_outcome};
use task::{InvalidPlan, TaskSpec};

/// A run to start.
#[derive(Clone, Debug, Default)]
pub struct NewRun {
    /// Its id. The authority mints one when left out.
    pub id: Option<String>,
    /// What the agent is given to do.
    pub input: String,
    /// The caller's own notes, kept in the run's first event for whoever restores it. The model does not see them.
    pub context: Map<String, Value>,
}

/// What a run was started with.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// The agent's name.
    pub agent: String,
    /// What the agent was given to do.
    pub input: String,
    /// The caller's own notes.
    pub context: Map<String, Value>,
}

/// Why a run did not go on. The run stays as its journal has it; nothing ran that the journal does not tell of.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such run, or none of this caller's.
    #[error("there is no run {run}")]
    NotFound {
        /// The id.
        run: String,
    },
    /// Another process holds the run.
    #[error("another process holds run {run}; its lease lapses in {lapses_in:?} unless it is renewed")]
    Held {
        /// The run.
        run: String,
        /// When it can be taken at the earliest.
        lapses_in: Duration,
    },
    /// Another process took the run over.
    #[error("another process has taken run {run} over")]
    TakenOver {
        /// The run.
        run: String,
    },
    /// The process that created the run ended before it wrote anything down.
    #[error("run {run} was created but never started; start it anew")]
    NeverStarted {
        /// The run.
        run: String,
    },
    /// The run is of another agent.
    #[error("run {run} is of agent {started_as:?}, not of {agent:?}")]
    OtherAgent {
        /// The run.
        run: String,
        /// Whose it is.
        started_as: String,
        /// Who wanted to go on with it.
        agent: String,
    },
    /// The journal has no such entry.
    #[error("run {run} has the entries 1 to {last}, and no entry {seq}")]
    NoSuchEntry {
        /// The run.
        run: String,
        /// The entry that was asked for.
        seq: u64,
        /// Its last entry.
        last: u64,
    },
    /// The tasks make no plan. Nothing was started.
    #[error(transparent)]
    Plan(#[from] InvalidPlan),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The run and the authority do not agree on what is reviewed. Nothing has run.
    #[error("approval {approval} is not what run {run} waits for: {what}")]
    Mismatch {
        /// The run.
        run: String,
        /// The approval.
        approval: String,
        /// Where they differ.
        what: String,
    },
    /// Today's tools make something else of an approved call. Nothing was claimed; the run stays suspended.
    #[error("call {call} of tool {tool} is no longer what approval {approval} reviewed: {what}")]
    Drift {
        /// The call.
        call: String,
        /// The tool.
        tool: String,
        /// The approval.
        approval: String,
        /// What changed.
        what: String,
    },
    /// The model gave no reply. A restore asks it again.
    #[error("the model gave no reply: {0}")]
    Model(#[from] ModelError),
    /// The authority refused or could not be reached.
    #[error(transparent)]
    Authority(#[from] Error),
}

/// Starts a run and goes on until it ends or has to wait.
///
/// # Errors
/// See [`RunError`]. A run that exists by then can be restored.
pub async fn run_agent(
    authority: Arc<dyn Authority>,
    agent: &Agent,
    new: NewRun,
) -> Result<Outcome, RunError> {
    let line = create(authority, new.id, agent.name()).await?;
    let started = Event::RunStarted {
        version: VERSION,
        agent: agent.name().to_owned(),
        input: new.input,
        context: new.context,
    };
    let board = Board::new(line.run(), crew_of(agent));
    let rested = Driver::new(alone(agent), Gates::default(), board, line).begin(vec![vec![started]]).await?;
    outcome(rested)
}

/// Goes on with a run in this process: from what was written, and from the decisions made since. A run that has ended
/// answers its outcome again; one that still waits, or whose outcome is unknown, is left as it is.
///
/// # Errors
/// See [`RunError`].
pub async fn restore(
    authority: Arc<dyn Authority>,
    agent: &Agent,
    run_id: &str,
) -> Result<Outcome, RunError> {
    let is_ours = |board: &Board| check_agent(board, agent);
    match take_up(authority, run_id, crew_of(agent), is_ours).await? {
        TakenUp::Ended(board) => outcome(Rested { board, records: BTreeMap::new() }),
        TakenUp::Open(board, line) => {
            outcome(Driver::new(alone(agent), Gates::default(), board, line).go_on().await?)
        }
    }
}

/// Has the team's coordinator plan for a goal.
pub(crate) async fn plan_for(team: &Team, goal: &str) -> Result<Vec<TaskSpec>, RunError> {
    let none = || InvalidPlan::Coordinator("the team has no coordinator".to_owned());
    let coordinator = team.coordinator.as_ref().ok_or_else(none)?;
    let agents = team.agents.values().map(|agent| (agent.name(), agent.instructions()));
    Ok(coordinator::plan(coordinator, goal, &agents.collect::<Vec<_>>()).await?)
}

/// Starts a team's run. With a goal, the results are put together at the end.
pub(crate) async fn run_team(
    authority: Arc<dyn Authority>,
    team: &Team,
    new: NewTeamRun,
    goal: Option<String>,
) -> Result<TeamOutcome, RunError> {
    let agents: Vec<&str> = team.agents.keys().map(String::as_str).collect();
    let tasks = task::assigned(new.tasks, &agents)?;
    let line = create(authority, new.id, team.name()).await?;
    let gates = GateSet {
        plan: team.gates.plan.is_some(),
        rounds: team.gates.round.is_some(),
        dispatch: team.gates.dispatch.is_some(),
    };
    let started = Event::TeamStarted {
        version: VERSION,
        team: team.name().to_owned(),
        at_ms: line.now_ms(),
        tasks: tasks.len(),
        gates,
        goal,
        context: new.context,
    };
    let board = Board::new(line.run(), crew_of_team(team));
    team_outcome(driver_of(team, board, line).begin(journal::planned(started, tasks)).await?)
}

/// Goes on with a team's run.
pub(crate) async fn restore_team(
    authority: Arc<dyn Authority>,
    team: &Team,
    run_id: &str,
) -> Result<TeamOutcome, RunError> {
    let is_ours = |board: &Board| check_team(board, team);
    match take_up(authority, run_id, crew_of_team(team), is_ours).await? {
        TakenUp::Ended(board) => team_outcome(Rested { board, records: BTreeMap::new() }),
        TakenUp::Open(board, line) => team_outcome(driver_of(team, board, line).go_on().await?),
    }
}

/// Reads what a run was started with, without taking it.
///
/// # Errors
/// See [`RunError`].
pub async fn read_start(authority: Arc<dyn Authority>, run_id: &str) -> Result<RunStart, RunError> {
    let first = line::read_journal(&*authority, run_id).await?.into_iter().next();
    match first {
        Some(Event::RunStarted { agent, input, context, .. }) => Ok(RunStart { agent, input, context }),
        Some(Event::TeamStarted { team, context, .. }) => {
            Ok(RunStart { agent: team, input: String::new(), context })
        }
        Some(_) => {
            let why = "a journal begins with the start of its run".to_owned();
            Err(JournalError::Misplaced { seq: 1, why }.into())
        }
        None => Err(RunError::NeverStarted { run: run_id.to_owned() }),
    }
}

/// Creates a run and takes it.
async fn create(authority: Arc<dyn Authority>, id: Option<String>, name: &str) -> Result<Line, RunError> {
    let run = authority.create_run(CreateRun { id, agent: name.to_owned() }).await?;
    let line = Line::take(authority, &run.id).await?;
    if line.last_seq() > 0 {
        line.let_go().await;
        return Err(Error::new(Code::RunExists, format!("run {} has started before", run.id)).into());
    }
    Ok(line)
}

/// A run that another process left.
enum TakenUp {
    Ended(Board),
    /// It is ours now.
    Open(Board, Line),
}

async fn take_up(
    authority: Arc<dyn Authority>,
    run_id: &str,
    crew: Crew,
    is_ours: impl Fn(&Board) -> Result<(), RunError>,
) -> Result<TakenUp, RunError> {
    let run = line::read_run(&*authority, run_id).await?;
    let has_ended = RunState::from_name(&run.state).is_some_and(RunState::is_final);
    if has_ended {
        return replay(&*authority, crew, run_id, is_ours).await.map(TakenUp::Ended);
    }
    let line = Line::take(Arc::clone(&authority), run_id).await?;
    let replayed = replay(&*authority, crew, run_id, is_ours).await.and_then(|board| {
        line.goes_on_from(board.seq())?;
        Ok(board)
    });
    match replayed {
        Ok(board) => Ok(TakenUp::Open(board, line)),
        Err(error) => {
            line.let_go().await;
            Err(error)
        }
    }
}

async fn replay(
    authority: &dyn Authority,
    crew: Crew,
    run: &str,
    is_ours: impl Fn(&Board) -> Result<(), RunError>,
) -> Result<Board, RunError> {
    let events = line::read_journal(authority, run).await?;
    let board = Board::replay(run, crew, events)?;
    if !board.has_started() {
        return Err(RunError::NeverStarted { run: run.to_owned() });
    }
    is_ours(&board)?;
    Ok(board)
}

fn check_agent(board: &Board, agent: &Agent) -> Result<(), RunError> {
    let started_as = board.team().unwrap_or_else(|| board.agent(0));
    if board.team().is_none() && started_as == agent.name() {
        return Ok(());
    }
    Err(other_agent(board, started_as, agent.name()))
}

fn check_team(board: &Board, team: &Team) -> Result<(), RunError> {
    let started_as = board.team().unwrap_or_else(|| board.agent(0));
    if board.team() != Some(team.name()) {
        return Err(other_agent(board, started_as, team.name()));
    }
    let agents = (0..board.task_count()).map(|at| board.agent(at));
    match agents.into_iter().find(|agent| !team.agents.contains_key(*agent)) {
        Some(gone) => Err(other_agent(board, gone, team.name())),
        None => Ok(()),
    }
}

fn other_agent(board: &Board, started_as: &str, agent: &str) -> RunError {
    RunError::OtherAgent {
        run: board.run().to_owned(),
        started_as: started_as.to_owned(),
        agent: agent.to_owned(),
    }
}

fn driver_of(team: &Team, board: Board, line: Line) -> Driver {
    let driver = Driver::new(team.agents.clone(), team.gates.clone(), board, line);
    driver.coordinated_by(team.coordinator.clone())
}

fn alone(agent: &Agent) -> BTreeMap<String, Arc<Agent>> {
    BTreeMap::from([(agent.name().to_owned(), Arc::new(agent.clone()))])
}

fn crew_of(agent: &Agent) -> Crew {
    Crew { max_turns: HashMap::from([(agent.name().to_owned(), agent.max_turns())]), concurrency: 1 }
}

fn crew_of_team(team: &Team) -> Crew {
    let max_turns = team.agents.iter().map(|(name, agent)| (name.clone(), agent.max_turns()));
    Crew { max_turns: max_turns.collect(), concurrency: team.concurrency }
}
