//! Performs what the machine says, in the order that keeps every crash safe. The only part of a run that awaits.
//!
//! Around a reviewed effect: claim, append `call-started`, run, append `call-ended`, settle, append `call-settled`.
//! Nothing runs before its start is durable, and the model hears of nothing that is not.

mod lease;
pub(super) mod line;
mod permit;
mod persist;

use std::collections::BTreeMap;

use holdgate_core::limits::{APPEND_APPROVALS, REASON_CHARS};
use holdgate_core::run::RunState;
use holdgate_wire::request::SettledOutcome;
use holdgate_wire::{Approval, Code, Settle};

use super::RunError;
use super::journal::{Ending, Event, REPLY_BYTES};
use super::machine::{Call, Effect, End, Interrupted, Machine, Resting, claim_id};
use super::outcome::{Cause, Finished, Outcome, Pending, Rejection};
use super::review::{Checked, Known, Question, TASK, check};
use crate::agent::Agent;
use crate::gate::ToolCall;
use crate::model::{Reply, RequestedCall};
use line::Line;
use permit::{Answer, Permit};
use persist::persist;

/// A run at work in this process.
pub(super) struct Driver<'a> {
    agent: &'a Agent,
    machine: Machine,
    line: Line,
    /// The records of waiting calls, as last read. For what the caller is told, never for a decision.
    records: BTreeMap<String, Approval>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(agent: &'a Agent, machine: Machine, line: Line) -> Self {
        Self { agent, machine, line, records: BTreeMap::new() }
    }

    /// Writes a new run's first event, then goes on.
    pub(super) async fn begin(mut self, started: Event) -> Result<Outcome, RunError> {
        match self.write(started).await {
            Ok(()) => self.drive().await,
            Err(error) => {
                self.line.let_go().await;
                Err(error)
            }
        }
    }

    /// Goes on until the run ends or has to wait. However it comes out, the run is let go.
    pub(super) async fn drive(mut self) -> Result<Outcome, RunError> {
        let outcome = loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(outcome)) => break Ok(outcome),
                Err(error) => break Err(error),
            }
        };
        self.line.let_go().await;
        outcome
    }

    async fn step(&mut self) -> Result<Option<Outcome>, RunError> {
        match self.machine.next() {
            Effect::AskModel => self.ask_model().await?,
            Effect::Look(calls) => self.look(calls).await?,
            Effect::Recover(call, interrupted) => return self.recover(&call, interrupted).await,
            Effect::Settle(call) => self.settle(&call).await?,
            Effect::Gate(call) => self.gate(&call).await?,
            Effect::Request(calls) => self.request(calls).await?,
            Effect::Reject(call, rejection) => self.write(Event::CallRejected { call, rejection }).await?,
            Effect::Run(call) => self.claim_and_run(&call).await?,
            Effect::Suspend(resting) => return self.suspend(resting).await.map(Some),
            Effect::Finish(output) => {
                self.append(Event::RunFinished { output }, RunState::Finished).await?;
            }
            Effect::Fail(why) => self.fail(why).await?,
            Effect::Stop(_) => return ended(self.line.run(), &self.machine).map(Some),
        }
        Ok(None)
    }

    async fn ask_model(&mut self) -> Result<(), RunError> {
        let transcript = self.machine.transcript(self.agent.instructions());
        let specs = self.agent.tool_specs();
        let reply = tokio::select! {
            reply = self.agent.model().reply(&transcript, &specs) => reply?,
            error = self.line.lost() => return Err(error),
        };
        match self.checked_reply(reply) {
            Ok(event) => self.write(event).await,
            Err(why) => self.fail(why).await,
        }
    }

    /// A reply within its bounds: whatever is made of it later must fit into one append.
    fn checked_reply(&self, reply: Reply) -> Result<Event, String> {
        let calls = reply.calls.len();
        if calls > APPEND_APPROVALS {
            return Err(format!(
                "the model asked for {calls} calls at once; at most {APPEND_APPROVALS} are taken"
            ));
        }
        let event = self.machine.reply_event(reply);
        let bytes = event.encode().len();
        if bytes > REPLY_BYTES {
            return Err(format!("the model's reply has {bytes} bytes; at most {REPLY_BYTES} are taken"));
        }
        Ok(event)
    }

    async fn gate(&mut self, id: &str) -> Result<(), RunError> {
        let Some(call) = self.machine.call(id) else { return Ok(()) };
        let requested = call.requested.clone();
        let checked = match check(self.agent, &requested) {
            Ok(checked) => checked,
            Err(rejection) => return self.reject(id, rejection).await,
        };
        let asked = self.tool_call(&requested, &checked);
        let answer = tokio::select! {
            answer = Permit::by_gate(self.agent.gate(), asked, checked.clone()) => answer,
            error = self.line.lost() => return Err(error),
        };
        match answer {
            Answer::Permit(permit) => self.run(id, permit).await,
            Answer::No(rejection) => self.reject(id, rejection).await,
            Answer::AskAPerson { reason, timeout } => {
                let run = self.line.run();
                match Question::freeze(run, self.agent.name(), &requested, &checked, reason, timeout) {
                    Ok(question) => {
                        self.machine.asking(id, question);
                        Ok(())
                    }
                    Err(rejection) => self.reject(id, rejection).await,
                }
            }
        }
    }

    fn tool_call(&self, requested: &RequestedCall, checked: &Checked) -> ToolCall {
        ToolCall {
            run_id: self.line.run().to_owned(),
            task_id: TASK.to_owned(),
            call_id: requested.id.clone(),
            agent_name: self.agent.name().to_owned(),
            tool_name: requested.tool.clone(),
            raw_input: checked.raw.clone(),
            input: checked.input.clone(),
            is_consequential: checked.tool.is_consequential(),
        }
    }

    /// Opens requests and lets the run go, in one transaction: nobody hears "suspended" before all of it is durable.
    async fn request(&mut self, ids: Vec<String>) -> Result<(), RunError> {
        let asking = ids.iter().filter_map(|id| self.machine.call(id));
        let asking = asking.filter_map(|call| call.asking().map(|question| (call, question)));
        let (mut events, mut requests) = (Vec::new(), Vec::new());
        for (call, question) in asking {
            requests.push(question.request(self.agent.name(), &call.requested));
            events.push(Event::CallSuspended { call: call.requested.id.clone(), question: question.clone() });
        }
        let (_, opened) = self.line.append(&events, RunState::Suspended, requests).await?;
        for event in &events {
            self.machine.apply(event)?;
        }
        self.records.extend(ids.into_iter().zip(opened));
        Ok(())
    }

    /// Compares every waiting request with its record, and every allowed call with the tools of today. Nothing has
    /// run or been claimed when one of them does not hold.
    async fn look(&mut self, ids: Vec<String>) -> Result<(), RunError> {
        let mut found = Vec::new();
        for id in ids {
            let Some((call, question)) = self.waiting(&id) else { continue };
            let record = self.record(question).await?;
            let known = question.known(&claim_id(self.line.run(), &id), &record);
            let known = known.map_err(|what| self.mismatch(question, what))?;
            if known == Known::Allowed {
                self.check_again(call, question)?;
            }
            found.push((id, known, record));
        }
        for (id, known, record) in found {
            self.machine.known(&id, known);
            self.records.insert(id, record);
        }
        Ok(())
    }

    fn waiting(&self, id: &str) -> Option<(&Call, &Question)> {
        self.machine.waiting().find(|(call, _)| call.requested.id == id)
    }

    async fn record(&self, question: &Question) -> Result<Approval, RunError> {
        let authority = self.line.authority();
        match persist(|| authority.get(&question.approval)).await {
            Err(error) if error.code() == Some(Code::NotFound) => {
                Err(self.mismatch(question, "the authority has no such record".to_owned()))
            }
            read => Ok(read?),
        }
    }

    fn mismatch(&self, question: &Question, what: String) -> RunError {
        RunError::Mismatch { run: self.line.run().to_owned(), approval: question.approval.clone(), what }
    }

    fn check_again(&self, call: &Call, question: &Question) -> Result<Checked, RunError> {
        question.check_again(self.agent, &call.requested).map_err(|what| RunError::Drift {
            call: call.requested.id.clone(),
            tool: call.requested.tool.clone(),
            approval: question.approval.clone(),
            what,
        })
    }

    async fn claim_and_run(&mut self, id: &str) -> Result<(), RunError> {
        let Some((call, question)) = self.waiting(id) else { return Ok(()) };
        let checked = self.check_again(call, question)?;
        match self.claim(id, question, checked).await? {
            Ok(permit) => self.run(id, permit).await,
            Err(rejection) => self.reject(id, rejection).await,
        }
    }

    async fn claim(
        &self,
        id: &str,
        question: &Question,
        checked: Checked,
    ) -> Result<Result<Permit, Rejection>, RunError> {
        let (run, authority) = (self.line.run(), self.line.authority());
        let place = (run, TASK, id);
        match Permit::by_claim(&**authority, place, self.line.fence(), question, checked).await {
            Ok(permit) => Ok(Ok(permit)),
            Err(error) => match error.code() {
                Some(Code::AlreadyClaimed | Code::Revoked) => {
                    Ok(Err(Rejection::new(Cause::AllowSpent, error)))
                }
                _ => Err(line::refused(run, error)),
            },
        }
    }

    /// The one place where a tool runs: after its start is durable, and its end is durable before anything else.
    async fn run(&mut self, id: &str, permit: Permit) -> Result<(), RunError> {
        let (call, claim) = (id.to_owned(), permit.claim().map(str::to_owned));
        let started = Event::CallStarted { call: call.clone(), claim };
        let recorded = self.append(started, RunState::Running).await?;
        // Not cut short when the run is lost meanwhile: a whole effect is better than half of one.
        let ending = permit.execute(recorded).await;
        self.write(Event::CallEnded { call, ending }).await
    }

    async fn settle(&mut self, id: &str) -> Result<(), RunError> {
        let Some(call) = self.machine.call(id) else { return Ok(()) };
        let (Some((claim, ending)), Some(question)) = (call.owed(), &call.question) else { return Ok(()) };
        let (outcome, detail) = match ending {
            Ending::Succeeded(_) => (SettledOutcome::Succeeded, None),
            Ending::Failed(why) => (SettledOutcome::Failed, Some(why.chars().take(REASON_CHARS).collect())),
        };
        let settle = Settle { claim_id: claim.to_owned(), outcome, detail };
        let authority = self.line.authority();
        let refused = match persist(|| authority.settle(&question.approval, settle.clone())).await {
            Ok(_) => None,
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, approval = question.approval, "the receipt was refused");
                Some(error.to_string())
            }
        };
        self.write(Event::CallSettled { call: id.to_owned(), refused }).await
    }

    /// A call that started in another life of this run. Run again only where its tool says that this is the same as
    /// once, under the same permit as before; otherwise it is put to a person.
    async fn recover(&mut self, id: &str, said: Interrupted) -> Result<Option<Outcome>, RunError> {
        if let Some(permit) = self.permit_again(id).await? {
            self.run(id, permit).await?;
            return Ok(None);
        }
        if said == Interrupted::Unsaid {
            self.append(Event::CallUnknown { call: id.to_owned() }, RunState::Unknown).await?;
        }
        let call = self.machine.call(id);
        Ok(call.map(|call| Outcome::Unknown {
            run_id: self.line.run().to_owned(),
            call_id: id.to_owned(),
            tool: call.requested.tool.clone(),
            review: call.review(),
        }))
    }

    async fn permit_again(&mut self, id: &str) -> Result<Option<Permit>, RunError> {
        let Some(call) = self.machine.call(id) else { return Ok(None) };
        if !self.agent.tool(&call.requested.tool).is_some_and(|tool| tool.is_idempotent()) {
            return Ok(None);
        }
        if let Some(question) = &call.question {
            let Ok(checked) = self.check_again(call, question) else { return Ok(None) };
            return Ok(self.claim(id, question, checked).await?.ok());
        }
        let Ok(checked) = check(self.agent, &call.requested) else { return Ok(None) };
        let asked = self.tool_call(&call.requested, &checked);
        match Permit::by_gate(self.agent.gate(), asked, checked).await {
            Answer::Permit(permit) => Ok(Some(permit)),
            Answer::AskAPerson { .. } | Answer::No(_) => Ok(None),
        }
    }

    async fn suspend(&mut self, resting: Resting) -> Result<Outcome, RunError> {
        if resting == Resting::Unsaid {
            self.append(Event::RunSuspended {}, RunState::Suspended).await?;
        }
        let mut pending = Vec::new();
        for (call, question) in self.machine.waiting() {
            let record = match self.records.get(&call.requested.id) {
                Some(record) => record.clone(),
                None => self.record(question).await?,
            };
            pending.push(Pending {
                call_id: call.requested.id.clone(),
                tool: call.requested.tool.clone(),
                approval_id: record.id,
                digest: record.digest,
                url: record.url,
                headline: record.presentation.headline,
            });
        }
        Ok(Outcome::Suspended { run_id: self.line.run().to_owned(), pending })
    }

    async fn reject(&mut self, id: &str, rejection: Rejection) -> Result<(), RunError> {
        self.write(Event::CallRejected { call: id.to_owned(), rejection }).await
    }

    async fn write(&mut self, event: Event) -> Result<(), RunError> {
        self.append(event, RunState::Running).await.map(drop)
    }

    async fn fail(&mut self, why: String) -> Result<(), RunError> {
        self.append(Event::RunFailed { why }, RunState::Failed).await.map(drop)
    }

    async fn append(&mut self, event: Event, state: RunState) -> Result<line::Recorded, RunError> {
        let (recorded, _) = self.line.append(std::slice::from_ref(&event), state, Vec::new()).await?;
        self.machine.apply(&event)?;
        Ok(recorded)
    }
}

/// The outcome of a run that has ended.
pub(super) fn ended(run: &str, machine: &Machine) -> Result<Outcome, RunError> {
    let (run_id, calls) = (run.to_owned(), machine.summaries());
    match machine.next() {
        Effect::Stop(End::Finished(output)) => Ok(Outcome::Finished(Finished { run_id, output, calls })),
        Effect::Stop(End::Failed(why)) => Ok(Outcome::Failed { run_id, why, calls }),
        // The authority counts the run as ended, but its journal does not end.
        _ => Err(super::JournalError::Gap { expected: machine.seq() + 1 }.into()),
    }
}
