//! Runs: started here, stopped at a gate, restored in another process.
//!
//! Owns the entry points and their errors. The parts: `journal` (what is written), `machine` (what follows from it,
//! pure), `review` (the frozen call, pure), `driver` (the only part that awaits), `outcome` (what the caller is told).

mod driver;
pub(crate) mod journal;
mod machine;
pub(crate) mod outcome;
mod review;

use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use holdgate_core::run::RunState;
use holdgate_wire::{Code, CreateRun};
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::model::ModelError;
use driver::Driver;
use driver::line::{self, Line};
use journal::{Event, JournalError, VERSION};
use machine::Machine;
use outcome::Outcome;

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
    let create = CreateRun { id: new.id, agent: agent.name().to_owned() };
    let run = authority.create_run(create).await?;
    let line = Line::take(authority, &run.id).await?;
    if line.last_seq() > 0 {
        line.let_go().await;
        return Err(Error::new(Code::RunExists, format!("run {} has started before", run.id)).into());
    }
    let machine = Machine::new(&run.id, agent.max_turns());
    let started = Event::RunStarted {
        version: VERSION,
        agent: agent.name().to_owned(),
        input: new.input,
        context: new.context,
    };
    Driver::new(agent, machine, line).begin(started).await
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
    let run = line::read_run(&*authority, run_id).await?;
    let has_ended = RunState::from_name(&run.state).is_some_and(RunState::is_final);
    if has_ended {
        let machine = replay(&*authority, agent, run_id).await?;
        return driver::ended(run_id, &machine);
    }
    let line = Line::take(Arc::clone(&authority), run_id).await?;
    let replayed = replay(&*authority, agent, run_id).await.and_then(|machine| {
        line.goes_on_from(machine.seq())?;
        Ok(machine)
    });
    match replayed {
        Ok(machine) => Driver::new(agent, machine, line).drive().await,
        Err(error) => {
            line.let_go().await;
            Err(error)
        }
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
        Some(_) => {
            let why = "a journal begins with the start of its run".to_owned();
            Err(JournalError::Misplaced { seq: 1, why }.into())
        }
        None => Err(RunError::NeverStarted { run: run_id.to_owned() }),
    }
}

async fn replay(authority: &dyn Authority, agent: &Agent, run: &str) -> Result<Machine, RunError> {
    let events = line::read_journal(authority, run).await?;
    let machine = Machine::replay(run, agent.max_turns(), events)?;
    let Some(start) = machine.start() else {
        return Err(RunError::NeverStarted { run: run.to_owned() });
    };
    if start.agent != agent.name() {
        return Err(RunError::OtherAgent {
            run: run.to_owned(),
            started_as: start.agent.clone(),
            agent: agent.name().to_owned(),
        });
    }
    Ok(machine)
}
