//! A team: agents that share a plan, and the gates that the plan passes.
//!
//! Owns what a team is made of and the way into its runs. How tasks go together is `run`'s.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use holdgate_authority::Authority;
use serde_json::{Map, Value};

use crate::agent::{Agent, InvalidAgent, check_name};
use crate::gate::{Gate, GateError, Verdict};
use crate::run::outcome::TeamOutcome;
use crate::run::task::{Plan, TaskSpec};
use crate::run::{self, RunError};

/// How many tasks are worked on at once when a team names no number.
const CONCURRENCY: usize = 5;

/// A team. A fresh process builds the same one again to restore a run of it.
#[derive(Clone)]
pub struct Team {
    name: String,
    pub(crate) agents: BTreeMap<String, Arc<Agent>>,
    pub(crate) gates: Gates,
    pub(crate) concurrency: usize,
    pub(crate) coordinator: Option<Arc<Agent>>,
}

/// Puts a team together.
pub struct TeamBuilder {
    name: String,
    agents: Vec<Agent>,
    gates: Gates,
    concurrency: usize,
    coordinator: Option<Agent>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Verdict, GateError>> + Send>>;
type Asked<T> = Arc<dyn Fn(T) -> Answer + Send + Sync>;

/// The gates of a team's runs.
#[derive(Clone, Default)]
pub(crate) struct Gates {
    pub(crate) plan: Option<Asked<PlanReady>>,
    pub(crate) round: Option<Asked<RoundReady>>,
    pub(crate) dispatch: Option<Asked<TaskReady>>,
    pub(crate) tool: Option<Arc<dyn Gate>>,
}

/// A plan at its gate, before any of it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanReady {
    /// The run.
    pub run_id: String,
    /// Its tasks, as reviewers are shown them.
    pub tasks: Vec<Value>,
}

/// The step to the next round at its gate.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundReady {
    /// The run.
    pub run_id: String,
    /// What the last round completed, as reviewers are shown it.
    pub completed: Vec<Value>,
    /// What the next one would start.
    pub next: Vec<Value>,
}

/// A task at its gate, before its agent hears of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReady {
    /// The run.
    pub run_id: String,
    /// The task, as reviewers are shown it.
    pub task: Value,
}

/// A team's run to start.
#[derive(Clone, Debug, Default)]
pub struct NewTeamRun {
    /// Its id. The authority mints one when left out.
    pub id: Option<String>,
    /// Its tasks, in the order in which they start where nothing else decides.
    pub tasks: Vec<TaskSpec>,
    /// The caller's own notes, kept in the run's first event. No model sees them.
    pub context: Map<String, Value>,
}

/// Why a team cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTeam {
    /// Its name cannot be used.
    #[error(transparent)]
    Name(#[from] InvalidAgent),
    /// There is nobody in it.
    #[error("a team needs an agent")]
    Nobody,
    /// Two of its agents share a name.
    #[error("two agents are named {0:?}")]
    AgentTwice(String),
    /// It could never do anything.
    #[error("a team works on at least one task at once")]
    NoConcurrency,
    /// Its gates exclude each other.
    #[error("a team stops before each round or before each task, not both")]
    RoundsAndDispatch,
}

impl Team {
    /// Begins a team.
    pub fn builder(name: impl Into<String>) -> TeamBuilder {
        TeamBuilder {
            name: name.into(),
            agents: Vec::new(),
            gates: Gates::default(),
            concurrency: CONCURRENCY,
            coordinator: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts a run of tasks and goes on until it ends or has to wait.
    ///
    /// # Errors
    /// See [`RunError`]. A run that exists by then can be restored.
    pub async fn run_tasks(
        &self,
        authority: Arc<dyn Authority>,
        new: NewTeamRun,
    ) -> Result<TeamOutcome, RunError> {
        run::run_team(authority, self, new, None).await
    }

    /// Has the coordinator plan for a goal, runs the plan, and has the coordinator put the results together. Nothing is
    /// written down before there is a plan.
    ///
    /// # Errors
    /// See [`RunError`]; `Plan` if there is no coordinator, or it made no plan.
    pub async fn run_goal(
        &self,
        authority: Arc<dyn Authority>,
        new: NewTeamRun,
        goal: impl Into<String>,
    ) -> Result<TeamOutcome, RunError> {
        let goal = goal.into();
        let tasks = run::plan_for(self, &goal).await?;
        run::run_team(authority, self, NewTeamRun { tasks, ..new }, Some(goal)).await
    }

    /// Has the coordinator plan for a goal. Nothing runs: [`Team::run_plan`] does, now or later.
    ///
    /// # Errors
    /// `Plan` if there is no coordinator, or it made no plan.
    pub async fn plan(&self, goal: impl Into<String>) -> Result<Plan, RunError> {
        let goal = goal.into();
        let tasks = run::plan_for(self, &goal).await?;
        let mut plan = Plan::new(tasks);
        plan.goal = Some(goal);
        Ok(plan)
    }

    /// Runs a plan as it is: same tasks, same ids, nothing planned anew or put together.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn run_plan(
        &self,
        authority: Arc<dyn Authority>,
        new: NewTeamRun,
        plan: Plan,
    ) -> Result<TeamOutcome, RunError> {
        let tasks = plan.checked()?.tasks;
        run::run_team(authority, self, NewTeamRun { tasks, ..new }, None).await
    }

    /// Goes on with a run in this process: from what was written, and from the decisions made since. A run that has
    /// ended answers its outcome again; one that still waits is left as it is.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn restore(
        &self,
        authority: Arc<dyn Authority>,
        run_id: &str,
    ) -> Result<TeamOutcome, RunError> {
        run::restore_team(authority, self, run_id).await
    }
}

impl TeamBuilder {
    /// Takes an agent in.
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Has an agent plan for goals and put results together. It is given no tools.
    #[must_use]
    pub fn coordinator(mut self, agent: Agent) -> Self {
        self.coordinator = Some(agent);
        self
    }

    /// How many tasks are worked on at once. Each agent works on one.
    #[must_use]
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// Puts every plan before `gate`, before any of it starts.
    #[must_use]
    pub fn on_plan_ready<F, Fut, V>(mut self, gate: F) -> Self
    where
        F: Fn(PlanReady) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<V, GateError>> + Send + 'static,
        V: Into<Verdict>,
    {
        self.gates.plan = Some(asked(gate));
        self
    }

    /// Has tasks start in rounds, each when the one before it is over, and puts the step to the next one before `gate`.
    /// It is asked if the last round completed anything and there is more to do.
    #[must_use]
    pub fn on_round<F, Fut, V>(mut self, gate: F) -> Self
    where
        F: Fn(RoundReady) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<V, GateError>> + Send + 'static,
        V: Into<Verdict>,
    {
        self.gates.round = Some(asked(gate));
        self
    }

    /// Puts every task before `gate`, before its agent hears of it.
    #[must_use]
    pub fn on_task_dispatch<F, Fut, V>(mut self, gate: F) -> Self
    where
        F: Fn(TaskReady) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<V, GateError>> + Send + 'static,
        V: Into<Verdict>,
    {
        self.gates.dispatch = Some(asked(gate));
        self
    }

    /// Puts the tool calls of every agent that has no gate of its own before `gate`.
    #[must_use]
    pub fn on_tool_call(mut self, gate: impl Gate + 'static) -> Self {
        self.gates.tool = Some(Arc::new(gate));
        self
    }

    /// The team.
    ///
    /// # Errors
    /// See [`InvalidTeam`].
    pub fn build(self) -> Result<Team, InvalidTeam> {
        check_name(&self.name)?;
        if self.concurrency == 0 {
            return Err(InvalidTeam::NoConcurrency);
        }
        if self.gates.round.is_some() && self.gates.dispatch.is_some() {
            return Err(InvalidTeam::RoundsAndDispatch);
        }
        let mut agents = BTreeMap::new();
        for agent in self.agents {
            let agent = agent.gated_by(self.gates.tool.as_ref());
            let name = agent.name().to_owned();
            if agents.insert(name.clone(), Arc::new(agent)).is_some() {
                return Err(InvalidTeam::AgentTwice(name));
            }
        }
        if agents.is_empty() {
            return Err(InvalidTeam::Nobody);
        }
        let coordinator = self.coordinator.map(Arc::new);
        Ok(Team { name: self.name, agents, gates: self.gates, concurrency: self.concurrency, coordinator })
    }
}

fn asked<T, F, Fut, V>(gate: F) -> Asked<T>
where
    T: 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<V, GateError>> + Send + 'static,
    V: Into<Verdict>,
{
    Arc::new(move |question| {
        let answer = gate(question);
        Box::pin(async move { Ok(answer.await?.into()) })
    })
}
