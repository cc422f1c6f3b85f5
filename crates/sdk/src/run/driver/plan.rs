//! The gates of a plan, a round and a dispatch.
//!
//! Owns how their answers and their reviewers' become events. What they stop is `board`'s.

use std::future::Future;
use std::pin::Pin;

use holdgate_core::limits::NAME_CHARS;
use holdgate_core::run::RunState;
use holdgate_wire::Settle;
use holdgate_wire::approval::Source;
use holdgate_wire::request::SettledOutcome;
use serde_json::Value;

use super::permit::{self, alone};
use super::{Driver, Landed};
use crate::gate::{GateError, Verdict};
use crate::run::RunError;
use crate::run::board::gate_claim;
use crate::run::journal::{Event, GateId};
use crate::run::outcome::{Cause, Rejection};
use crate::run::review::Question;
use crate::team::{PlanReady, RoundReady, TaskReady};

type Asking = Pin<Box<dyn Future<Output = Result<Verdict, GateError>> + Send>>;

impl Driver {
    /// Puts what a gate stops before it.
    pub(super) async fn try_gate(&mut self, gate: GateId) -> Result<(), RunError> {
        let asking = match self.asking(&gate) {
            Ok(asking) => asking,
            Err(rejection) => {
                self.board.gate_answered();
                return self.write_run(Event::GateRejected { gate, rejection }).await;
            }
        };
        self.thoughts.spawn(async move {
            let verdict = match alone(asking).await {
                Some(Ok(verdict)) => Ok(verdict),
                Some(Err(error)) => Err(error.to_string()),
                None => Err("it panicked".to_owned()),
            };
            Landed::Verdict(gate, verdict)
        });
        Ok(())
    }

    fn asking(&self, gate: &GateId) -> Result<Asking, Rejection> {
        let gone =
            || Rejection::new(Cause::NoGate, "the run was started with this gate, and the team has none now");
        let content = self.board.content(gate).map_err(|why| Rejection::new(Cause::GateFailed, why))?;
        let (_, _, content) = content;
        let run_id = self.line.run().to_owned();
        let list = |key: &str| content[key].as_array().cloned().unwrap_or_default();
        match gate {
            GateId::Plan => {
                let ask = self.gates.plan.as_ref().ok_or_else(gone)?;
                Ok(ask(PlanReady { run_id, tasks: list("tasks") }))
            }
            GateId::Round(_) => {
                let ask = self.gates.round.as_ref().ok_or_else(gone)?;
                Ok(ask(RoundReady { run_id, completed: list("completedTasks"), next: list("nextTasks") }))
            }
            GateId::Dispatch(_) => {
                let ask = self.gates.dispatch.as_ref().ok_or_else(gone)?;
                Ok(ask(TaskReady { run_id, task: content.get("task").cloned().unwrap_or(Value::Null) }))
            }
        }
    }

    pub(super) async fn gate_answered(
        &mut self,
        gate: GateId,
        verdict: Result<Verdict, String>,
    ) -> Result<(), RunError> {
        let rejection = match verdict {
            Ok(Verdict::Allow) => {
                self.board.gate_answered();
                return self.write_run(Event::GatePassed { gate, claim: None }).await;
            }
            Ok(Verdict::Suspend { reason, timeout }) => {
                let frozen = match self.board.content(&gate) {
                    Ok((kind, boundary, content)) => {
                        Question::freeze_content(kind, self.line.run(), &boundary, &content, reason, timeout)
                    }
                    Err(why) => Err(Rejection::new(Cause::NotReviewable, why)),
                };
                match frozen {
                    Ok(question) => {
                        self.board.gate_asks(&gate, question);
                        return Ok(());
                    }
                    Err(rejection) => rejection,
                }
            }
            Ok(Verdict::Deny { reason }) => Rejection { cause: Cause::GateDenied, detail: reason },
            Err(why) => Rejection::new(Cause::GateFailed, why),
        };
        self.board.gate_answered();
        self.write_run(Event::GateRejected { gate, rejection }).await
    }

    /// Opens the requests of gates, and lets the run go if nothing of it goes on, in one transaction.
    pub(super) async fn ask(&mut self, gates: Vec<GateId>) -> Result<(), RunError> {
        let (mut events, mut requests) = (Vec::new(), Vec::new());
        for gate in gates {
            let Some(question) = self.board.asked_by(&gate) else { continue };
            let (kind, boundary, _) =
                self.board.content(&gate).map_err(|why| self.mismatch(question, why))?;
            let task_id = match &gate {
                GateId::Dispatch(task) => Some(task.clone()),
                GateId::Plan | GateId::Round(_) => None,
            };
            let team = self.board.team().map(|team| team.chars().take(NAME_CHARS).collect());
            let source = Source { agent: team, task_id, ..Source::default() };
            requests.push(question.request_as(kind, boundary, source));
            events.push(Event::GateSuspended { question: question.clone(), gate });
        }
        let is_idle = self.is_still() && self.board.is_idle();
        let state = if is_idle { RunState::Suspended } else { RunState::Running };
        self.append(events, state, requests).await.map(drop)
    }

    /// Compares every waiting gate with its record.
    pub(super) async fn look_at_gates(&mut self) -> Result<(), RunError> {
        let waiting: Vec<(GateId, Question)> =
            self.board.waiting_gates().map(|(gate, question)| (gate.clone(), question.clone())).collect();
        for (gate, question) in waiting {
            let content = self.board.content(&gate);
            let (kind, ..) = content.map_err(|why| self.mismatch(&question, why))?;
            let claim = gate_claim(self.line.run(), &gate);
            let known = self.read(kind, &question, &claim).await?;
            self.board.gate_known(&gate, known);
        }
        Ok(())
    }

    /// Spends a person's allow, and lets the gate's tasks go on.
    pub(super) async fn pass(&mut self, gate: GateId) -> Result<(), RunError> {
        let Some(question) = self.board.gate(&gate).and_then(|gate| gate.question()).cloned() else {
            return Ok(());
        };
        let claim_id = gate_claim(self.line.run(), &gate);
        let event = match permit::spend(&self.line, &question, claim_id).await? {
            Ok(claim) => Event::GatePassed { gate, claim: Some(claim.into_id()) },
            Err(rejection) => Event::GateRejected { gate, rejection },
        };
        self.write_run(event).await
    }

    pub(super) async fn settle_gate(&mut self, gate: GateId) -> Result<(), RunError> {
        let known = self.board.gate(&gate);
        let owed = known.and_then(|gate| Some((gate.question()?.approval.clone(), gate.claim()?.to_owned())));
        let Some((approval, claim_id)) = owed else { return Ok(()) };
        let outcome = match self.board.came_out_well(&gate) {
            true => SettledOutcome::Succeeded,
            false => SettledOutcome::Failed,
        };
        let refused = self.deliver(&approval, Settle { claim_id, outcome, detail: None }).await?;
        self.write_run(Event::GateSettled { gate, refused }).await
    }
}
