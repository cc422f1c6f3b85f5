//! How the tasks of a run go together: whose turn it is, what has to pass a gate first, and what is left when nothing
//! can go on. Pure: a state is the fold of a journal's events, and what to do next follows from the state.
//!
//! Owns order among tasks, the gates of a plan, a round and a dispatch, and what a task is given of the ones before it.
//! What an agent does within its task is `machine`'s. A step costs what it changes, however many tasks there are.

mod fold;
mod gate;
#[cfg(test)]
mod tests;
mod view;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::journal::{Event, GateId, JournalError, TaskEnd};
use super::machine::{self, Machine};
use super::outcome::Rejection;
use super::review::Known;
use super::task::{Priority, TaskSpec};
pub(crate) use gate::claim_id as gate_claim;
use gate::{Gate, Phase as GatePhase};

/// What the board has to know of the agents of today.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    /// How many replies an agent may take for one task.
    pub(crate) max_turns: HashMap<String, u32>,
    /// How many tasks are worked on at once.
    pub(crate) concurrency: usize,
}

/// A run of one agent or of a team.
#[derive(Debug)]
pub(crate) struct Board {
    run: String,
    crew: Crew,
    seq: u64,
    start: Option<Start>,
    tasks: Vec<Task>,
    index: HashMap<String, usize>,
    gates: BTreeMap<GateId, Gate>,
    round: Round,
    /// The gate that let nothing more start.
    rejected: Option<GateId>,
    end: Option<End>,
    /// Whether the last event let the run go to wait.
    is_resting: bool,

    /// Tasks whose next step has to be looked for.
    agenda: BTreeSet<usize>,
    /// Gates of which the same is true.
    gate_agenda: BTreeSet<GateId>,
    /// Gates that want a person asked.
    asking: Vec<GateId>,
    /// How many gates are thinking.
    at_gates: usize,
    /// Tasks that could start, and have to pass a gate.
    ready: BTreeSet<Rank>,
    /// Tasks that wait for their agent alone, by agent.
    admitted: BTreeMap<String, BTreeSet<Rank>>,
    /// Agents at work.
    busy: HashSet<String>,
    /// Tasks that have not ended.
    left: usize,
}

/// A task's place among others: the more urgent first, then as planned.
type Rank = (Reverse<Priority>, usize);

#[derive(Clone, Debug)]
enum Start {
    /// One agent, without a plan.
    Single,
    Team {
        team: String,
        at_ms: i64,
        tasks: usize,
        gates: GateSet,
        goal: Option<String>,
    },
}

/// The gates that a run was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateSet {
    pub(crate) plan: bool,
    pub(crate) rounds: bool,
    pub(crate) dispatch: bool,
}

/// The round under way.
#[derive(Debug, Default)]
struct Round {
    /// How many have begun.
    begun: u32,
    /// Its tasks that have not ended.
    open: BTreeSet<usize>,
    /// Its tasks that were completed, in order of their ends.
    completed: Vec<usize>,
}

#[derive(Debug)]
struct Task {
    spec: TaskSpec,
    /// How many of the tasks before it have not been completed.
    waits_for: usize,
    /// The tasks after it.
    after: Vec<usize>,
    phase: Phase,
    /// How often it was begun anew.
    retries: u32,
    updated_at_ms: i64,
    machine: Option<Machine>,
    /// Whether the journal says that it has started.
    is_said: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Its turn has not come.
    Pending,
    /// Its agent has begun. `working` unless it waits for a person or for its agent.
    Open {
        working: bool,
    },
    Done(TaskEnd),
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// A step of an agent in its task.
    Step(usize, machine::Effect),
    /// Put what a gate stops before it.
    Gate(GateId),
    /// Open these gates' requests, as one.
    Ask(Vec<GateId>),
    /// Claim an allow and let a gate's tasks go on.
    Pass(GateId),
    /// Write down that a gate lets nothing go on.
    Reject(GateId, Rejection),
    /// Tell the authority what came of a gate's claim.
    Settle(GateId),
}

/// What is left when nothing is to be done and nothing is under way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AtRest {
    /// It waits for people. Whether the journal says so already, and whether a call's outcome is unknown.
    Wait { is_said: bool, is_unknown: bool },
    /// Every task was completed.
    Finish,
    /// Every task has ended, and not all well.
    Fail(String),
    /// A gate let nothing more start.
    Reject(GateId),
    /// The run has ended.
    Stop,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished(String),
    Failed(String),
    Rejected(Rejection),
}

impl Board {
    /// A run without events.
    pub(crate) fn new(run: &str, crew: Crew) -> Self {
        Self {
            run: run.to_owned(),
            crew,
            seq: 0,
            start: None,
            tasks: Vec::new(),
            index: HashMap::new(),
            gates: BTreeMap::new(),
            round: Round::default(),
            rejected: None,
            end: None,
            is_resting: false,
            agenda: BTreeSet::new(),
            gate_agenda: BTreeSet::new(),
            asking: Vec::new(),
            at_gates: 0,
            ready: BTreeSet::new(),
            admitted: BTreeMap::new(),
            busy: HashSet::new(),
            left: 0,
        }
    }

    /// The run as another process left it.
    pub(crate) fn replay(
        run: &str,
        crew: Crew,
        events: impl IntoIterator<Item = Event>,
    ) -> Result<Self, JournalError> {
        let mut board = Self::new(run, crew);
        for event in events {
            board.apply(&event)?;
        }
        for at in 0..board.tasks.len() {
            let task = &mut board.tasks[at];
            if let Some(machine) = &mut task.machine {
                machine.inherited();
            }
        }
        for gate in board.gates.values_mut() {
            gate.inherited();
        }
        Ok(board)
    }

    /// What to do next. `None` as long as something is under way, or nothing can go on; see [`Board::at_rest`].
    pub(crate) fn next(&mut self) -> Option<Effect> {
        if self.end.is_some() {
            return None;
        }
        loop {
            if let Some(at) = self.agenda.pop_first() {
                if let Some(effect) = self.next_step(at) {
                    return Some(effect);
                }
            } else if let Some(gate) = self.gate_agenda.pop_first() {
                if let Some(effect) = self.next_of_gate(gate) {
                    return Some(effect);
                }
            } else if self.rejected.is_none() && self.dispatch() {
                // Looked for again.
            } else if self.rejected.is_none() && !self.asking.is_empty() && self.at_gates == 0 {
                let most = self.asking.len().min(holdgate_core::limits::APPEND_APPROVALS);
                return Some(Effect::Ask(self.asking.drain(..most).collect()));
            } else {
                return None;
            }
        }
    }

    fn next_step(&mut self, at: usize) -> Option<Effect> {
        let task = &self.tasks[at];
        if !matches!(task.phase, Phase::Open { working: true }) {
            self.wake(at);
            return None;
        }
        match task.machine.as_ref()?.next() {
            machine::Effect::Suspend(_) | machine::Effect::Stop(_) => {
                self.rest(at);
                None
            }
            machine::Effect::Await => None,
            effect => Some(Effect::Step(at, effect)),
        }
    }

    fn next_of_gate(&mut self, id: GateId) -> Option<Effect> {
        if self.rejected.is_some() && !self.gates.get(&id).is_some_and(Gate::owes_a_receipt) {
            return None;
        }
        let gate = self.gate_mut(&id);
        match gate.phase() {
            GatePhase::Untried => {
                gate.try_it();
                self.at_gates += 1;
                Some(Effect::Gate(id))
            }
            GatePhase::Asking(_) => {
                self.asking.push(id);
                None
            }
            GatePhase::Waiting(Known::Allowed) => Some(Effect::Pass(id)),
            GatePhase::Waiting(Known::Ended(why)) => Some(Effect::Reject(id, why.clone())),
            GatePhase::Passed { .. } if gate.owes_a_receipt() => Some(Effect::Settle(id)),
            GatePhase::Trying | GatePhase::Waiting(_) | GatePhase::Passed { .. } | GatePhase::Rejected(_) => {
                None
            }
        }
    }

    /// Puts a task that could start before its gate, or lets one begin that has a place and an agent. Whether it did.
    fn dispatch(&mut self) -> bool {
        if !self.gate_set().rounds
            && let Some((_, at)) = self.ready.pop_first()
        {
            let gate = GateId::Dispatch(self.tasks[at].spec.id.clone());
            if !self.gate_set().dispatch {
                self.admit(at);
            } else if !self.gates.contains_key(&gate) {
                self.gate_agenda.insert(gate);
            }
            return true;
        }
        if self.busy.len() >= self.crew.concurrency {
            return false;
        }
        let idle =
            self.admitted.iter().filter(|(agent, tasks)| !self.busy.contains(*agent) && !tasks.is_empty());
        let Some((_, at)) = idle.filter_map(|(_, tasks)| tasks.first().copied()).min() else {
            return false;
        };
        if self.tasks[at].phase == Phase::Pending {
            self.open(at);
        }
        self.work(at);
        true
    }

    fn work(&mut self, at: usize) {
        let (rank, agent) = (self.rank(at), self.agent(at).to_owned());
        if let Some(admitted) = self.admitted.get_mut(&agent) {
            admitted.remove(&rank);
        }
        self.busy.insert(agent);
        self.tasks[at].phase = Phase::Open { working: true };
        self.agenda.insert(at);
    }

    /// The agent of a task can do nothing more for now.
    fn rest(&mut self, at: usize) {
        if self.tasks[at].phase == (Phase::Open { working: true }) {
            let agent = self.agent(at).to_owned();
            self.busy.remove(&agent);
            self.tasks[at].phase = Phase::Open { working: false };
        }
    }

    /// A task that rests can go on, if its agent has time.
    fn wake(&mut self, at: usize) {
        let task = &self.tasks[at];
        if task.phase != (Phase::Open { working: false }) {
            return;
        }
        let next = task.machine.as_ref().map(Machine::next);
        if next.is_some_and(|next| !matches!(next, machine::Effect::Suspend(_) | machine::Effect::Stop(_))) {
            self.admit(at);
        }
    }

    /// What is left when there is nothing to do and nothing under way.
    pub(crate) fn at_rest(&self) -> AtRest {
        if self.end.is_some() {
            return AtRest::Stop;
        }
        if self.is_single() {
            return match self.tasks[0].machine.as_ref().map(Machine::next) {
                Some(machine::Effect::Suspend(resting)) => AtRest::Wait {
                    is_said: resting == machine::Resting::Said,
                    is_unknown: self.unknown().next().is_some(),
                },
                _ => AtRest::Stop,
            };
        }
        if let Some(gate) = &self.rejected {
            return AtRest::Reject(gate.clone());
        }
        if self.left == 0 {
            let failed =
                self.tasks.iter().filter(|task| task.phase != Phase::Done(TaskEnd::Completed)).count();
            return match failed {
                0 => AtRest::Finish,
                _ => AtRest::Fail(format!("{failed} of {} tasks were not completed", self.tasks.len())),
            };
        }
        let is_unknown = self.unknown().next().is_some();
        if is_unknown || self.waiting().next().is_some() || self.waiting_gates().next().is_some() {
            return AtRest::Wait { is_said: self.is_resting, is_unknown };
        }
        AtRest::Fail("nothing of it can go on".to_owned())
    }

    /// Looks at every task and gate again: after a restore, or when answers may have come.
    pub(crate) fn look_around(&mut self) {
        self.agenda.extend(0..self.tasks.len());
        self.gate_agenda.extend(self.gates.keys().cloned());
    }

    /// Looks at one task again.
    pub(crate) fn look_at(&mut self, at: usize) {
        self.agenda.insert(at);
    }

    /// Whether everything but this task rests: then a request that it opens lets the whole run go.
    pub(crate) fn is_alone(&self, at: usize) -> bool {
        self.busy.len() <= 1
            && self.agenda.iter().all(|other| *other == at)
            && self.gate_agenda.is_empty()
            && self.asking.is_empty()
            && self.at_gates == 0
            && self.ready.is_empty()
            && self.admitted.values().all(BTreeSet::is_empty)
    }

    /// The same of a request of gates.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.is_alone(usize::MAX)
    }

    fn is_single(&self) -> bool {
        matches!(self.start, Some(Start::Single))
    }

    fn is_planned(&self) -> bool {
        matches!(self.start, Some(Start::Team { tasks, .. }) if tasks == self.tasks.len())
    }

    fn gate_set(&self) -> GateSet {
        match &self.start {
            Some(Start::Team { gates, .. }) => *gates,
            _ => GateSet::default(),
        }
    }

    fn rank(&self, at: usize) -> Rank {
        (Reverse(self.tasks[at].spec.priority.unwrap_or_default()), at)
    }

    fn at(&self, task: &str) -> Result<usize, String> {
        self.index.get(task).copied().ok_or_else(|| format!("there is no task {task:?}"))
    }
}
