//! How the tasks of a run go together: whose turn it is, what has to pass a gate first, and what is left when nothing
//! can go on. Pure: a state is the fold of a journal's events, and what to do next follows from the state.
//!
//! Owns order among tasks, the gates of a plan, a round and a dispatch, and what a task is given of the ones before it.
//! What an agent does within its task is `machine`'s. A step costs what it changes, however many tasks there are.

mod gate;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Map;

use super::journal::{Event, GateId, JournalError, TaskEnd, VERSION};
use super::machine::{self, Call, Machine};
use super::outcome::Rejection;
use super::review::{Known, Question, TASK};
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
    Rejected(GateId),
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

    /// Takes in the next event of the journal.
    pub(crate) fn apply(&mut self, event: &Event) -> Result<(), JournalError> {
        self.seq += 1;
        let seq = self.seq;
        self.fold(event).map_err(|why| JournalError::Misplaced { seq, why })?;
        self.is_resting = matches!(event, Event::RunSuspended {})
            || self.is_single() && self.tasks[0].machine.as_ref().is_some_and(Machine::is_resting);
        Ok(())
    }

    fn fold(&mut self, event: &Event) -> Result<(), String> {
        if self.end.is_some() {
            return Err("the run has ended".to_owned());
        }
        match (&self.start, event) {
            (None, Event::RunStarted { agent, .. }) => {
                let agent = agent.clone();
                self.start = Some(Start::Single);
                self.add(TaskSpec { assignee: Some(agent), ..TaskSpec::new(TASK, TASK, "") }, 0);
                self.open(0);
                self.tasks[0].is_said = true;
                self.step(0, event)
            }
            (None, Event::TeamStarted { version: VERSION, team, at_ms, tasks, gates, goal, .. }) => {
                let (team, at_ms, tasks, gates, goal) = (team.clone(), *at_ms, *tasks, *gates, goal.clone());
                self.start = Some(Start::Team { team, at_ms, tasks, gates, goal });
                Ok(())
            }
            (None, _) => Err("the run has not started".to_owned()),
            (Some(Start::Single), _) => self.step(0, event),
            (Some(Start::Team { .. }), _) => self.fold_team(event),
        }
    }

    fn fold_team(&mut self, event: &Event) -> Result<(), String> {
        if let Event::TasksPlanned { tasks } = event {
            return self.planned(tasks);
        }
        if !self.is_planned() {
            return Err("its plan is not complete".to_owned());
        }
        match event {
            Event::GateSuspended { gate, .. }
            | Event::GatePassed { gate, .. }
            | Event::GateRejected { gate, .. }
            | Event::GateSettled { gate, .. } => self.fold_gate(gate, event)?,
            Event::TaskStarted { task } => {
                let at = self.at(task)?;
                match self.tasks[at].phase {
                    Phase::Pending => self.open(at),
                    Phase::Open { .. } if !self.tasks[at].is_said => {}
                    _ => return Err(format!("the task {task:?} has started before")),
                }
                self.tasks[at].is_said = true;
            }
            Event::Task { task, event } => {
                let at = self.at(task)?;
                if matches!(
                    **event,
                    Event::RunStarted { .. }
                        | Event::RunSuspended {}
                        | Event::RunFinished { .. }
                        | Event::RunFailed { .. }
                ) {
                    return Err("it belongs to a run and not to a task".to_owned());
                }
                self.step(at, event)?;
            }
            Event::TaskRetried { task, .. } => {
                let at = self.at(task)?;
                self.begin_anew(at)?;
            }
            Event::TaskEnded { task, at_ms, end } => {
                let at = self.at(task)?;
                if !matches!(self.tasks[at].phase, Phase::Open { .. }) {
                    return Err(format!("the task {task:?} is not under way"));
                }
                self.ended(at, *at_ms, end.clone());
                self.advance_rounds();
            }
            Event::RunSuspended {} => {}
            Event::RunFinished { output } if self.left == 0 => self.end = Some(End::Finished(output.clone())),
            Event::RunFinished { .. } => return Err("tasks are not done".to_owned()),
            Event::RunFailed { why } => self.end = Some(End::Failed(why.clone())),
            Event::RunRejected { gate } if self.rejected.as_ref() == Some(gate) => {
                for task in &mut self.tasks {
                    if !matches!(task.phase, Phase::Done(_)) {
                        task.phase = Phase::Done(TaskEnd::Skipped("the run was rejected".to_owned()));
                    }
                }
                self.end = Some(End::Rejected(gate.clone()));
            }
            _ => return Err("it does not belong there".to_owned()),
        }
        Ok(())
    }

    fn fold_gate(&mut self, gate: &GateId, event: &Event) -> Result<(), String> {
        match event {
            Event::GateSuspended { question, .. } => {
                let (kind, boundary, content) = self.content(gate)?;
                question.verify_content(kind, &self.run, &boundary, &content)?;
                self.gate_mut(gate).suspended(question, boundary)
            }
            Event::GatePassed { claim, .. } => {
                if claim.as_ref().is_some_and(|claim| *claim != gate_claim(&self.run, gate)) {
                    return Err("its claim is not of this gate".to_owned());
                }
                // What a plan or a round lets go on cannot come out badly by itself: its claim is settled at once.
                let is_over = !matches!(gate, GateId::Dispatch(_));
                self.gate_mut(gate).passed(claim.clone(), is_over)?;
                self.gate_agenda.insert(gate.clone());
                self.let_pass(gate)
            }
            Event::GateRejected { rejection, .. } => {
                self.gate_mut(gate).rejected(rejection.clone())?;
                self.rejected = Some(gate.clone());
                Ok(())
            }
            Event::GateSettled { refused, .. } => self.gate_mut(gate).settled(refused.as_deref()),
            _ => Err("it is not of a gate".to_owned()),
        }
    }

    fn planned(&mut self, tasks: &[TaskSpec]) -> Result<(), String> {
        let Some(Start::Team { at_ms, tasks: expected, gates, .. }) = self.start.clone() else {
            return Err("there is no team".to_owned());
        };
        if self.tasks.len() + tasks.len() > expected {
            return Err(format!("the plan has {expected} tasks and no more"));
        }
        for spec in tasks {
            self.add(spec.clone(), at_ms);
        }
        if !self.is_planned() {
            return Ok(());
        }
        let specs: Vec<TaskSpec> = self.tasks.iter().map(|task| task.spec.clone()).collect();
        super::task::check(&specs).map_err(|error| error.to_string())?;
        for (at, spec) in specs.iter().enumerate() {
            for before in &spec.depends_on {
                let before = self.index[before];
                self.tasks[before].after.push(at);
            }
            self.tasks[at].waits_for = spec.depends_on.len();
        }
        if gates.plan {
            self.gate_agenda.insert(GateId::Plan);
        } else {
            self.let_pass(&GateId::Plan)?;
        }
        Ok(())
    }

    fn add(&mut self, spec: TaskSpec, at_ms: i64) {
        self.index.insert(spec.id.clone(), self.tasks.len());
        self.left += 1;
        self.tasks.push(Task {
            spec,
            waits_for: 0,
            after: Vec::new(),
            phase: Phase::Pending,
            retries: 0,
            updated_at_ms: at_ms,
            machine: None,
            is_said: false,
        });
    }

    /// An event of an agent at its task.
    fn step(&mut self, at: usize, event: &Event) -> Result<(), String> {
        let task = &mut self.tasks[at];
        let id = &task.spec.id;
        let machine = task.machine.as_mut().ok_or_else(|| format!("the task {id:?} has not started"))?;
        if matches!(task.phase, Phase::Done(_)) {
            return Err(format!("the task {id:?} has ended"));
        }
        machine.apply(event)?;
        self.agenda.insert(at);
        Ok(())
    }

    /// What a gate lets go on.
    fn let_pass(&mut self, gate: &GateId) -> Result<(), String> {
        match gate {
            GateId::Plan => {
                let free = (0..self.tasks.len()).filter(|&at| self.tasks[at].waits_for == 0);
                let free = free.filter(|&at| self.tasks[at].phase == Phase::Pending);
                let free: Vec<Rank> = free.map(|at| self.rank(at)).collect();
                self.ready.extend(free);
                self.advance_rounds();
            }
            GateId::Round(_) => self.advance_rounds(),
            GateId::Dispatch(task) => {
                let at = self.at(task)?;
                if self.tasks[at].phase == Phase::Pending && self.tasks[at].waits_for == 0 {
                    self.ready.remove(&self.rank(at));
                    self.admit(at);
                }
            }
        }
        Ok(())
    }

    /// Begins the next round when the one before it is over and its gate, if it has one, is open.
    fn advance_rounds(&mut self) {
        if !self.gate_set().rounds || !self.round.open.is_empty() || self.ready.is_empty() {
            return;
        }
        let gate = GateId::Round(self.round.begun);
        if self.round.begun > 0 && !self.round.completed.is_empty() {
            match self.gates.get(&gate).map(Gate::has_passed) {
                Some(true) => {}
                Some(false) => return,
                None => {
                    self.gate_agenda.insert(gate);
                    return;
                }
            }
        }
        self.round.begun += 1;
        self.round.completed.clear();
        for (_, at) in std::mem::take(&mut self.ready) {
            self.round.open.insert(at);
            self.admit(at);
        }
    }

    fn admit(&mut self, at: usize) {
        let rank = self.rank(at);
        self.admitted.entry(self.agent(at).to_owned()).or_default().insert(rank);
    }

    /// Lets an agent begin. It may not work yet.
    fn open(&mut self, at: usize) {
        let rank = self.rank(at);
        self.ready.remove(&rank);
        let agent = self.agent(at).to_owned();
        if let Some(admitted) = self.admitted.get_mut(&agent) {
            admitted.remove(&rank);
        }
        let max_turns = self.crew.max_turns.get(&agent).copied().unwrap_or(1);
        let mut machine = Machine::new(&self.run, &self.tasks[at].spec.id, max_turns);
        if !self.is_single() {
            let input = self.input(at);
            let started = Event::RunStarted { version: VERSION, agent, input, context: Map::new() };
            machine.apply(&started).expect("a task begins with its start");
        }
        let task = &mut self.tasks[at];
        task.machine = Some(machine);
        task.phase = Phase::Open { working: false };
    }

    fn begin_anew(&mut self, at: usize) -> Result<(), String> {
        let task = &self.tasks[at];
        let Some(before) = task.machine.as_ref().filter(|_| matches!(task.phase, Phase::Open { .. })) else {
            return Err(format!("the task {:?} is not under way", task.spec.id));
        };
        let used = before.used_ids();
        let phase = task.phase.clone();
        self.open(at);
        let task = &mut self.tasks[at];
        task.retries += 1;
        task.phase = phase;
        if let Some(machine) = &mut task.machine {
            machine.reserve(used);
        }
        Ok(())
    }

    fn ended(&mut self, at: usize, at_ms: i64, end: TaskEnd) {
        self.rest(at);
        self.tasks[at].updated_at_ms = at_ms;
        if self.round.open.contains(&at) && end == TaskEnd::Completed {
            self.round.completed.push(at);
        }
        let dispatch = GateId::Dispatch(self.tasks[at].spec.id.clone());
        if let Some(gate) = self.gates.get_mut(&dispatch) {
            gate.is_due();
            self.gate_agenda.insert(dispatch);
        }
        let mut ended = vec![(at, end)];
        while let Some((at, end)) = ended.pop() {
            if matches!(self.tasks[at].phase, Phase::Done(_)) {
                continue;
            }
            self.left -= 1;
            self.round.open.remove(&at);
            self.agenda.remove(&at);
            let id = self.tasks[at].spec.id.clone();
            for after in self.tasks[at].after.clone() {
                match &end {
                    TaskEnd::Completed => {
                        self.tasks[after].waits_for -= 1;
                        if self.tasks[after].waits_for == 0 && self.tasks[after].phase == Phase::Pending {
                            self.ready.insert(self.rank(after));
                        }
                    }
                    TaskEnd::Failed(_) => {
                        ended.push((after, TaskEnd::Failed(format!("the task {id:?} before it failed"))));
                    }
                    TaskEnd::Skipped(_) => {
                        ended.push((
                            after,
                            TaskEnd::Skipped(format!("the task {id:?} before it was skipped")),
                        ));
                    }
                }
            }
            self.tasks[at].phase = Phase::Done(end);
        }
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
            } else if !self.asking.is_empty() && self.at_gates == 0 {
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

    /// What a task's agent is asked to do: the task, and the output of each task that it comes after.
    fn input(&self, at: usize) -> String {
        let spec = &self.tasks[at].spec;
        let mut input = format!("# {}\n\n{}", spec.title, spec.description);
        for before in &spec.depends_on {
            let before = &self.tasks[self.index[before]];
            let output = before.machine.as_ref().and_then(Machine::output).unwrap_or_default();
            input.push_str(&format!(
                "\n\n## Result of {} ({})\n\n{output}",
                before.spec.title, before.spec.id
            ));
        }
        input
    }
}

/// What the driver asks about.
impl Board {
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// Whether the run is a team's, of that name.
    pub(crate) fn team(&self) -> Option<&str> {
        match &self.start {
            Some(Start::Team { team, .. }) if self.is_planned() => Some(team),
            _ => None,
        }
    }

    /// What the results are to be put together for, with each task's title and output.
    pub(crate) fn goal(&self) -> Option<(&str, Vec<(String, String)>)> {
        let Some(Start::Team { goal: Some(goal), .. }) = &self.start else { return None };
        let output =
            |task: &Task| task.machine.as_ref().and_then(Machine::output).unwrap_or_default().to_owned();
        Some((goal, self.tasks.iter().map(|task| (task.spec.title.clone(), output(task))).collect()))
    }

    /// Whether it has started, with all of its plan.
    pub(crate) fn has_started(&self) -> bool {
        self.is_single() || self.is_planned()
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    pub(crate) fn machine(&self, at: usize) -> Option<&Machine> {
        self.tasks.get(at)?.machine.as_ref()
    }

    /// What a process learns about a task without writing it down.
    pub(crate) fn learn(&mut self, at: usize, learn: impl FnOnce(&mut Machine)) {
        if let Some(machine) = self.tasks.get_mut(at).and_then(|task| task.machine.as_mut()) {
            learn(machine);
            self.agenda.insert(at);
        }
    }

    pub(crate) fn agent(&self, at: usize) -> &str {
        self.tasks[at].spec.assignee.as_deref().unwrap_or_default()
    }

    pub(crate) fn task_id(&self, at: usize) -> &str {
        &self.tasks[at].spec.id
    }

    pub(crate) fn spec(&self, at: usize) -> &TaskSpec {
        &self.tasks[at].spec
    }

    pub(crate) fn retries(&self, at: usize) -> u32 {
        self.tasks[at].retries
    }

    /// Whether the start of a task has still to be written down.
    pub(crate) fn owes_a_start(&self, at: usize) -> bool {
        !self.tasks[at].is_said
    }

    pub(crate) fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// How a task stands: its end if it has one, its agent's output if that is completed.
    pub(crate) fn standing(&self, at: usize) -> (Option<&TaskEnd>, Option<&str>) {
        let task = &self.tasks[at];
        match &task.phase {
            Phase::Done(end @ TaskEnd::Completed) => {
                (Some(end), task.machine.as_ref().and_then(Machine::output))
            }
            Phase::Done(end) => (Some(end), None),
            Phase::Pending | Phase::Open { .. } => (None, None),
        }
    }

    pub(crate) fn has_begun(&self, at: usize) -> bool {
        self.tasks[at].machine.is_some()
    }

    /// Calls that wait for a person, with their tasks.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (usize, &Call, &Question)> {
        let open = self.tasks.iter().enumerate().filter(|(_, task)| matches!(task.phase, Phase::Open { .. }));
        open.flat_map(|(at, task)| {
            task.machine.iter().flat_map(Machine::waiting).map(move |(call, question)| (at, call, question))
        })
    }

    /// Gates that wait for a person.
    pub(crate) fn waiting_gates(&self) -> impl Iterator<Item = (&GateId, &Question)> {
        self.gates.iter().filter_map(|(id, gate)| gate.waiting().map(|question| (id, question)))
    }

    /// Calls of which nobody knows how they came out, as far as this process found.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (usize, &Call)> {
        let machines =
            self.tasks.iter().enumerate().filter_map(|(at, task)| Some((at, task.machine.as_ref()?)));
        machines.flat_map(|(at, machine)| machine.given_up().map(move |call| (at, call)))
    }

    pub(crate) fn summaries(&self, at: usize) -> Vec<super::outcome::CallSummary> {
        self.machine(at).map(Machine::summaries).unwrap_or_default()
    }

    /// Every gate that was put to a person, and what came of it.
    pub(crate) fn reviewed_gates(&self) -> impl Iterator<Item = (&GateId, &Gate)> {
        self.gates.iter().filter(|(_, gate)| gate.question().is_some())
    }

    pub(crate) fn rejection(&self, gate: &GateId) -> Option<&Rejection> {
        self.gates.get(gate)?.rejection()
    }
}
