//! One gate of a plan, a round or a dispatch: where it stands, and what it stops.
//!
//! Owns the content that reviewers are shown of it, in the keys that its digest is made of.

use holdgate_core::Kind;
use serde_json::{Value, json};

use super::{Board, Phase as TaskPhase};
use crate::run::journal::{GateId, TaskEnd};
use crate::run::outcome::{ReceiptState, Rejection};
use crate::run::review::{Known, Question, claim_of};

/// The boundary of every plan.
const PLAN: &str = "coordinator-plan";

/// One gate.
#[derive(Debug)]
pub(crate) struct Gate {
    question: Option<Question>,
    /// The boundary of its request.
    boundary: String,
    phase: Phase,
    /// Whether what it let go on has come to its end, so that its claim can be settled.
    is_over: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Nobody has asked it.
    Untried,
    /// It is thinking.
    Trying,
    /// It wants a person asked. Known to this process only.
    Asking(Question),
    /// A person is asked.
    Waiting(Known),
    /// Its tasks go on.
    Passed { claim: Option<String>, receipt: Option<ReceiptState> },
    /// They do not.
    Rejected(Rejection),
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { question: None, boundary: String::new(), phase: Phase::Untried, is_over: false }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn try_it(&mut self) {
        self.phase = Phase::Trying;
    }

    pub(super) fn inherited(&mut self) {
        match &mut self.phase {
            Phase::Waiting(known) => *known = Known::Nothing,
            Phase::Trying | Phase::Asking(_) => self.phase = Phase::Untried,
            Phase::Untried | Phase::Passed { .. } | Phase::Rejected(_) => {}
        }
    }

    pub(super) fn suspended(&mut self, question: &Question, boundary: String) -> Result<(), String> {
        match self.phase {
            Phase::Untried | Phase::Trying | Phase::Asking(_) => {
                self.question = Some(question.clone());
                self.boundary = boundary;
                self.phase = Phase::Waiting(Known::Pending);
                Ok(())
            }
            _ => Err("the gate was asked before".to_owned()),
        }
    }

    /// It lets its tasks go on: by itself, or by a claim if a person was asked.
    pub(super) fn passed(&mut self, claim: Option<String>, is_over: bool) -> Result<(), String> {
        let is_answer = match self.phase {
            Phase::Untried | Phase::Trying => claim.is_none(),
            Phase::Waiting(_) => claim.is_some(),
            _ => false,
        };
        if !is_answer {
            return Err("the gate is not at that point".to_owned());
        }
        let receipt = claim.is_some().then_some(ReceiptState::Owed);
        self.phase = Phase::Passed { claim, receipt };
        self.is_over = is_over;
        Ok(())
    }

    pub(super) fn rejected(&mut self, rejection: Rejection) -> Result<(), String> {
        match self.phase {
            Phase::Untried | Phase::Trying | Phase::Waiting(_) => {
                self.phase = Phase::Rejected(rejection);
                Ok(())
            }
            _ => Err("the gate is not at that point".to_owned()),
        }
    }

    pub(super) fn settled(&mut self, refused: Option<&str>) -> Result<(), String> {
        match &mut self.phase {
            Phase::Passed { receipt: receipt @ Some(ReceiptState::Owed), .. } => {
                let refused = refused.map(str::to_owned);
                *receipt = Some(refused.map_or(ReceiptState::Delivered, ReceiptState::Refused));
                Ok(())
            }
            _ => Err("no receipt is owed for the gate".to_owned()),
        }
    }

    pub(super) fn is_due(&mut self) {
        self.is_over = true;
    }

    pub(super) fn owes_a_receipt(&self) -> bool {
        self.is_over && matches!(self.phase, Phase::Passed { receipt: Some(ReceiptState::Owed), .. })
    }

    pub(super) fn has_passed(&self) -> bool {
        matches!(self.phase, Phase::Passed { .. })
    }

    pub(crate) fn boundary(&self) -> &str {
        &self.boundary
    }

    pub(crate) fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    pub(super) fn waiting(&self) -> Option<&Question> {
        self.question.as_ref().filter(|_| matches!(self.phase, Phase::Waiting(_)))
    }

    pub(crate) fn rejection(&self) -> Option<&Rejection> {
        match &self.phase {
            Phase::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// `Some(true)` once a person allowed it, `Some(false)` once somebody did not.
    pub(crate) fn decision(&self) -> Option<bool> {
        match &self.phase {
            Phase::Passed { claim: Some(_), .. } => Some(true),
            Phase::Rejected(_) => Some(false),
            _ => None,
        }
    }

    pub(crate) fn claim(&self) -> Option<&str> {
        match &self.phase {
            Phase::Passed { claim, .. } => claim.as_deref(),
            _ => None,
        }
    }
}

impl Board {
    pub(super) fn gate_mut(&mut self, id: &GateId) -> &mut Gate {
        self.gates.entry(id.clone()).or_insert_with(Gate::new)
    }

    /// What the question of a gate would be, before it is durable.
    pub(crate) fn asked_by(&self, id: &GateId) -> Option<&Question> {
        match &self.gates.get(id)?.phase {
            Phase::Asking(question) => Some(question),
            _ => None,
        }
    }

    pub(crate) fn gate(&self, id: &GateId) -> Option<&Gate> {
        self.gates.get(id)
    }

    /// Notes that a gate wants a person asked.
    pub(crate) fn gate_asks(&mut self, id: &GateId, question: Question) {
        self.at_gates -= 1;
        self.gate_mut(id).phase = Phase::Asking(question);
        self.gate_agenda.insert(id.clone());
    }

    /// Notes that a gate has answered by itself; the answer is the next event.
    pub(crate) fn gate_answered(&mut self) {
        self.at_gates -= 1;
    }

    /// Notes what the record of a waiting gate says.
    pub(crate) fn gate_known(&mut self, id: &GateId, known: Known) {
        if let Phase::Waiting(before) = &mut self.gate_mut(id).phase {
            *before = known;
            self.gate_agenda.insert(id.clone());
        }
    }

    /// Whether the task that a dispatch let start came out well.
    pub(crate) fn came_out_well(&self, id: &GateId) -> bool {
        match id {
            GateId::Dispatch(task) => {
                self.at(task).is_ok_and(|at| self.tasks[at].phase == TaskPhase::Done(TaskEnd::Completed))
            }
            GateId::Plan | GateId::Round(_) => true,
        }
    }

    pub(crate) fn boundary(&self, id: &GateId) -> Result<String, String> {
        Ok(match id {
            GateId::Plan => PLAN.to_owned(),
            GateId::Round(number) => {
                let (completed, next) = self.round_tasks(*number)?;
                let ids = |tasks: &[usize]| {
                    tasks.iter().map(|&at| self.tasks[at].spec.id.as_str()).collect::<Vec<_>>().join(",")
                };
                format!("{}->{}", ids(&completed), ids(&next))
            }
            GateId::Dispatch(task) => {
                self.at(task)?;
                task.clone()
            }
        })
    }

    /// The kind, boundary and content of what a gate stops, as it stands now.
    pub(crate) fn content(&self, id: &GateId) -> Result<(Kind, String, Value), String> {
        let boundary = self.boundary(id)?;
        let shown = |tasks: &[usize]| tasks.iter().map(|&at| self.shown(at)).collect::<Vec<_>>();
        let (kind, content) = match id {
            GateId::Plan => {
                let all: Vec<usize> = (0..self.tasks.len()).collect();
                (Kind::Plan, json!({ "kind": "plan", "continuation": "execute", "tasks": shown(&all) }))
            }
            GateId::Round(number) => {
                let (completed, next) = self.round_tasks(*number)?;
                let content = json!({
                    "kind": "task_round", "completedTasks": shown(&completed), "nextTasks": shown(&next),
                });
                (Kind::Round, content)
            }
            GateId::Dispatch(task) => {
                let at = self.at(task)?;
                (Kind::Dispatch, json!({ "kind": "task_dispatch", "task": self.shown(at) }))
            }
        };
        Ok((kind, boundary, content))
    }

    /// What was completed in the last round, and what the next one would start.
    fn round_tasks(&self, number: u32) -> Result<(Vec<usize>, Vec<usize>), String> {
        if number != self.round.begun || !self.round.open.is_empty() {
            return Err(format!("round {number} is not the next"));
        }
        let mut completed = self.round.completed.clone();
        completed.sort_unstable();
        let mut next: Vec<usize> = self.ready.iter().map(|(_, at)| *at).collect();
        next.sort_unstable();
        Ok((completed, next))
    }

    /// A task as reviewers are shown it now.
    pub(crate) fn shown(&self, at: usize) -> Value {
        let task = &self.tasks[at];
        let status = match &task.phase {
            TaskPhase::Pending => "pending",
            TaskPhase::Open { .. } => "in_progress",
            TaskPhase::Done(TaskEnd::Completed) => "completed",
            TaskPhase::Done(TaskEnd::Failed(_)) => "failed",
            TaskPhase::Done(TaskEnd::Skipped(_)) => "skipped",
        };
        let created_at_ms = match &self.start {
            Some(super::Start::Team { at_ms, .. }) => *at_ms,
            _ => 0,
        };
        let (_, output) = self.standing(at);
        task.spec.snapshot(status, output, &instant(created_at_ms), &instant(task.updated_at_ms))
    }
}

/// An instant as ECMAScript writes it.
fn instant(at_ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(at_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

/// The claim of a gate.
pub(crate) fn claim_id(run: &str, gate: &GateId) -> String {
    let gate = serde_json::to_string(gate).expect("a gate's id is plain JSON");
    claim_of(&format!("{run}\n{gate}"))
}
