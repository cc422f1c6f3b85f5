//! What others ask a board: where its run, its tasks and its gates stand.

use super::gate::Gate;
use super::{Board, End, Phase, Start, Task};
use crate::run::journal::{GateId, TaskEnd};
use crate::run::machine::{Call, Machine};
use crate::run::outcome::CallSummary;
use crate::run::review::Question;
use crate::run::task::TaskSpec;

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

    /// Everything that waits for a person: the gates first.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &Question> {
        let gates = self.waiting_gates().map(|(_, question)| question);
        gates.chain(self.waiting().map(|(_, _, question)| question))
    }

    /// Calls of which nobody knows how they came out, as far as this process found.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (usize, &Call)> {
        let machines =
            self.tasks.iter().enumerate().filter_map(|(at, task)| Some((at, task.machine.as_ref()?)));
        machines.flat_map(|(at, machine)| machine.given_up().map(move |call| (at, call)))
    }

    pub(crate) fn summaries(&self, at: usize) -> Vec<CallSummary> {
        self.machine(at).map(Machine::summaries).unwrap_or_default()
    }

    /// Every gate that was put to a person, and what came of it.
    pub(crate) fn reviewed_gates(&self) -> impl Iterator<Item = (&GateId, &Gate)> {
        self.gates.iter().filter(|(_, gate)| gate.question().is_some())
    }
}
