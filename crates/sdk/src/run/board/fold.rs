//! What the events of a journal make of a board.
//!
//! Owns which event may follow which, and what each changes: for whom it is the turn then. What is done about it is the
//! board's.

use serde_json::Map;

use super::gate::Gate;
use super::{Board, End, Phase, Rank, Start, Task, gate_claim};
use crate::run::journal::{Event, GateId, JournalError, TaskEnd, VERSION};
use crate::run::machine::Machine;
use crate::run::review::TASK;
use crate::run::task::{self, TaskSpec};

impl Board {
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
                let rejection = self.gates.get(gate).and_then(Gate::rejection).cloned();
                let rejection = rejection.ok_or("its gate was not rejected")?;
                for task in &mut self.tasks {
                    if !matches!(task.phase, Phase::Done(_)) {
                        task.phase = Phase::Done(TaskEnd::Skipped("the run was rejected".to_owned()));
                    }
                }
                self.end = Some(End::Rejected(rejection));
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
        task::check(&specs).map_err(|error| error.to_string())?;
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

    pub(super) fn admit(&mut self, at: usize) {
        let rank = self.rank(at);
        self.admitted.entry(self.agent(at).to_owned()).or_default().insert(rank);
    }

    /// Lets an agent begin. It may not work yet.
    pub(super) fn open(&mut self, at: usize) {
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
