//! The steps of one agent in its task.
//!
//! Owns the order around a call: check, gate or review, claim, start, run, end, receipt.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use holdgate_core::Kind;
use holdgate_core::limits::{APPEND_APPROVALS, REASON_CHARS};
use holdgate_core::run::RunState;
use holdgate_wire::Settle;
use holdgate_wire::request::SettledOutcome;

use super::permit::{self, Answer, Permit, alone, ending, key};
use super::persist::persist;
use super::{Driver, Landed};
use crate::agent::Agent;
use crate::gate::ToolCall;
use crate::model::{ModelError, Reply, RequestedCall};
use crate::run::RunError;
use crate::run::journal::{Ending, Event, REPLY_BYTES, TaskEnd};
use crate::run::machine::{Call, Effect, Interrupted, Machine, claim_id};
use crate::run::outcome::Rejection;
use crate::run::review::{self, Checked, Place, Question, check};
use crate::tool::Known;

impl Driver {
    pub(super) async fn step(&mut self, at: usize, effect: Effect) -> Result<(), RunError> {
        match effect {
            Effect::AskModel => {
                self.ask_model(at);
                Ok(())
            }
            Effect::Look(calls) => self.look(at, calls).await,
            Effect::Recover(call, interrupted) => self.recover(at, &call, interrupted).await,
            Effect::Settle(call) => self.settle(at, &call).await,
            Effect::Gate(call) => self.gate(at, &call).await,
            Effect::Request(calls) => self.request(at, calls).await,
            Effect::Reject(call, rejection) => self.write(at, Event::CallRejected { call, rejection }).await,
            Effect::Run(call) => self.claim_and_run(at, &call).await,
            Effect::Finish(output) => self.finish(at, output).await,
            Effect::Fail(why) => self.fail(at, why).await,
            // The board keeps these to itself.
            Effect::Await | Effect::Suspend(_) | Effect::Stop(_) => Ok(()),
        }
    }

    fn ask_model(&mut self, at: usize) {
        let agent = self.agent(at);
        let Some(machine) = self.board.machine(at) else { return };
        let transcript = machine.transcript(agent.instructions());
        self.board.learn(at, Machine::thinks);
        self.thoughts.spawn(async move {
            let specs = agent.tool_specs();
            let reply = alone(async move { agent.model().reply(&transcript, &specs).await }).await;
            let reply = reply.unwrap_or_else(|| Err(ModelError("it panicked".to_owned())));
            Landed::Reply(at, reply)
        });
    }

    pub(super) async fn replied(
        &mut self,
        at: usize,
        reply: Result<Reply, ModelError>,
    ) -> Result<(), RunError> {
        let is_team = self.board.team().is_some();
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) if is_team => return self.fail(at, format!("the model gave no reply: {error}")).await,
            Err(error) => return Err(error.into()),
        };
        let is_last = reply.calls.is_empty();
        let event = match self.checked_reply(at, reply) {
            Ok(event) => event,
            Err(why) => return self.fail(at, why).await,
        };
        let mut events = self.of_task(at, event);
        if is_team && is_last {
            events.push(self.task_ended(at, TaskEnd::Completed));
        }
        self.write_all(events, RunState::Running).await
    }

    /// A reply within its bounds: whatever is made of it later must fit into one append.
    fn checked_reply(&self, at: usize, reply: Reply) -> Result<Event, String> {
        let calls = reply.calls.len();
        if calls > APPEND_APPROVALS {
            return Err(format!(
                "the model asked for {calls} calls at once; at most {APPEND_APPROVALS} are taken"
            ));
        }
        let machine = self.board.machine(at).ok_or("the task has not begun")?;
        let event = machine.reply_event(reply);
        let bytes = event.encode().len();
        if bytes > REPLY_BYTES {
            return Err(format!("the model's reply has {bytes} bytes; at most {REPLY_BYTES} are taken"));
        }
        Ok(event)
    }

    async fn finish(&mut self, at: usize, output: String) -> Result<(), RunError> {
        if self.board.team().is_none() {
            return self.write_all(vec![Event::RunFinished { output }], RunState::Finished).await;
        }
        let ended = self.task_ended(at, TaskEnd::Completed);
        self.write_all(vec![ended], RunState::Running).await
    }

    /// An agent gave up. Its task is begun anew as often as it may be, after a pause.
    async fn fail(&mut self, at: usize, why: String) -> Result<(), RunError> {
        if self.board.team().is_none() {
            return self.write_all(vec![Event::RunFailed { why }], RunState::Failed).await;
        }
        let task = self.board.task_id(at).to_owned();
        let started = self.board.owes_a_start(at).then(|| Event::TaskStarted { task: task.clone() });
        let mut events: Vec<Event> = started.into_iter().collect();
        let (spec, retries) = (self.board.spec(at), self.board.retries(at));
        if retries >= spec.max_retries.unwrap_or(0) {
            events.push(self.task_ended(at, TaskEnd::Failed(why)));
            return self.write_all(events, RunState::Running).await;
        }
        let pause = with_jitter(spec.pause_ms(retries + 1));
        events.push(Event::TaskRetried { task, why });
        self.write_all(events, RunState::Running).await?;
        self.thoughts.spawn(async move {
            tokio::time::sleep(pause).await;
            Landed::Rested(at)
        });
        Ok(())
    }

    fn task_ended(&self, at: usize, end: TaskEnd) -> Event {
        Event::TaskEnded { task: self.board.task_id(at).to_owned(), at_ms: self.line.now_ms(), end }
    }

    async fn gate(&mut self, at: usize, id: &str) -> Result<(), RunError> {
        let agent = self.agent(at);
        let Some(call) = self.board.machine(at).and_then(|machine| machine.call(id)) else { return Ok(()) };
        let checked = match check(&agent, &call.requested) {
            Ok(checked) => checked,
            Err(rejection) => return self.reject(at, id, rejection).await,
        };
        let asked = self.tool_call(at, &call.requested, &checked);
        let id = id.to_owned();
        self.board.learn(at, |machine| machine.is_at_gate(&id));
        self.thoughts.spawn(async move {
            let answer = Permit::by_gate(agent.gate(), asked, checked.clone()).await;
            Landed::Answer(at, id, Box::new((checked, answer)))
        });
        Ok(())
    }

    pub(super) async fn answered(
        &mut self,
        at: usize,
        id: &str,
        checked: Checked,
        answer: Answer,
    ) -> Result<(), RunError> {
        let (reason, timeout) = match answer {
            Answer::Permit(permit) => return self.run(at, id, permit).await,
            Answer::No(rejection) => return self.reject(at, id, rejection).await,
            Answer::AskAPerson { reason, timeout } => (reason, timeout),
        };
        let Some(call) = self.board.machine(at).and_then(|machine| machine.call(id)) else { return Ok(()) };
        let (place, agent) = (self.place(at), self.board.agent(at));
        match Question::freeze(place, agent, &call.requested, &checked, reason, timeout) {
            Ok(question) => {
                self.board.learn(at, |machine| machine.asking(id, question));
                Ok(())
            }
            Err(rejection) => self.reject(at, id, rejection).await,
        }
    }

    fn tool_call(&self, at: usize, requested: &RequestedCall, checked: &Checked) -> ToolCall {
        let Place { run, task } = self.place(at);
        ToolCall {
            run_id: run.to_owned(),
            task_id: task.to_owned(),
            call_id: requested.id.clone(),
            agent_name: self.board.agent(at).to_owned(),
            tool_name: requested.tool.clone(),
            raw_input: checked.raw.clone(),
            input: checked.input.clone(),
            is_consequential: checked.tool.is_consequential(),
        }
    }

    /// Opens requests, and lets the run go if nothing else of it goes on, in one transaction: nobody hears "suspended"
    /// before all of it is durable.
    async fn request(&mut self, at: usize, ids: Vec<String>) -> Result<(), RunError> {
        let (task, agent) = (self.board.task_id(at), self.board.agent(at));
        let calls = ids.iter().filter_map(|id| self.board.machine(at)?.call(id));
        let asking = calls.filter_map(|call| call.asking().map(|question| (call, question)));
        let (mut events, mut requests) = (Vec::new(), Vec::new());
        for (call, question) in asking {
            requests.push(question.request(task, agent, &call.requested));
            let call = call.requested.id.clone();
            events.extend(self.of_task(at, Event::CallSuspended { call, question: question.clone() }));
        }
        let is_alone = self.is_still() && self.board.is_alone(at);
        let state = if is_alone { RunState::Suspended } else { RunState::Running };
        self.append(events, state, requests).await.map(drop)
    }

    /// Compares waiting requests with their records, and allowed calls with the tools of today. Nothing has run or
    /// been claimed when one of them does not hold.
    pub(super) async fn look(&mut self, at: usize, ids: Vec<String>) -> Result<(), RunError> {
        let mut found = Vec::new();
        for id in ids {
            let Some((call, question)) = self.waiting(at, &id) else { continue };
            let claim = claim_id(self.place(at), &id);
            let known = self.read(Kind::Tool, &question, &claim).await?;
            if known == review::Known::Allowed {
                self.check_again(at, &call, &question)?;
            }
            found.push((id, known));
        }
        for (id, known) in found {
            self.board.learn(at, |machine| machine.known(&id, known));
        }
        Ok(())
    }

    fn waiting(&self, at: usize, id: &str) -> Option<(RequestedCall, Question)> {
        let mut waiting = self.board.machine(at)?.waiting();
        let (call, question) = waiting.find(|(call, _)| call.requested.id == id)?;
        Some((call.requested.clone(), question.clone()))
    }

    fn check_again(&self, at: usize, call: &RequestedCall, question: &Question) -> Result<Checked, RunError> {
        let agent: Arc<Agent> = self.agent(at);
        question.check_again(&agent, call).map_err(|what| RunError::Drift {
            call: call.id.clone(),
            tool: call.tool.clone(),
            approval: question.approval.clone(),
            what,
        })
    }

    async fn claim_and_run(&mut self, at: usize, id: &str) -> Result<(), RunError> {
        let Some((call, question)) = self.waiting(at, id) else { return Ok(()) };
        let checked = self.check_again(at, &call, &question)?;
        match self.claim(at, id, &question, checked).await? {
            Ok(permit) => self.run(at, id, permit).await,
            Err(rejection) => self.reject(at, id, rejection).await,
        }
    }

    async fn claim(
        &self,
        at: usize,
        id: &str,
        question: &Question,
        checked: Checked,
    ) -> Result<Result<Permit, Rejection>, RunError> {
        let place = self.place(at);
        let claimed = permit::spend(&self.line, question, claim_id(place, id)).await?;
        Ok(claimed.map(|claim| Permit::by_claim(place, id, question, checked, claim)))
    }

    /// The one place where a tool begins to run: after its start is durable. Its end is durable before anything else.
    async fn run(&mut self, at: usize, id: &str, permit: Permit) -> Result<(), RunError> {
        let (call, claim) = (id.to_owned(), permit.claim().map(str::to_owned));
        let started = self.of_task(at, Event::CallStarted { call: call.clone(), claim });
        let recorded = self.append(started, RunState::Running, Vec::new()).await?;
        self.effects.spawn(async move { Landed::Ended(at, call, permit.execute(recorded).await) });
        Ok(())
    }

    async fn settle(&mut self, at: usize, id: &str) -> Result<(), RunError> {
        let Some(call) = self.board.machine(at).and_then(|machine| machine.call(id)) else { return Ok(()) };
        let (Some((claim, ending)), Some(question)) = (call.owed(), &call.question) else { return Ok(()) };
        let (outcome, detail) = match ending {
            Ending::Succeeded(_) => (SettledOutcome::Succeeded, None),
            Ending::Failed(why) => (SettledOutcome::Failed, Some(why.chars().take(REASON_CHARS).collect())),
        };
        let settle = Settle { claim_id: claim.to_owned(), outcome, detail };
        let refused = self.deliver(&question.approval.clone(), settle).await?;
        self.write(at, Event::CallSettled { call: id.to_owned(), refused }).await
    }

    /// Gives the authority a receipt. Answers why it would not take it.
    pub(super) async fn deliver(&self, approval: &str, settle: Settle) -> Result<Option<String>, RunError> {
        let authority = self.line.authority();
        match persist(|| authority.settle(approval, settle.clone())).await {
            Ok(_) => Ok(None),
            Err(error) if error.is_transient() => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, approval, "the receipt was refused");
                Ok(Some(error.to_string()))
            }
        }
    }

    /// A call that started in another life of this run. Its tool may know how it ended. Run again only where its tool
    /// says that it has not happened, or that twice is the same as once, under the same permit as before; otherwise it is
    /// put to a person.
    async fn recover(&mut self, at: usize, id: &str, said: Interrupted) -> Result<(), RunError> {
        let (may_repeat, ending) = match self.ask_tool(at, id).await {
            Known::Ended(ended) => (false, Some(ending(ended))),
            Known::NotRun => (true, None),
            Known::No => (self.is_idempotent(at, id), None),
        };
        if let Some(ending) = ending {
            return self.write(at, Event::CallEnded { call: id.to_owned(), ending }).await;
        }
        if may_repeat && let Some(permit) = self.permit_again(at, id).await? {
            return self.run(at, id, permit).await;
        }
        if said == Interrupted::Unsaid {
            let is_alone = self.is_still() && self.board.is_alone(at);
            let state = if is_alone { RunState::Unknown } else { RunState::Running };
            let events = self.of_task(at, Event::CallUnknown { call: id.to_owned() });
            self.write_all(events, state).await?;
        }
        self.board.learn(at, |machine| machine.give_up(id));
        Ok(())
    }

    /// What the tool of a call that had started knows of it.
    async fn ask_tool(&self, at: usize, id: &str) -> Known {
        let Some(call) = self.board.machine(at).and_then(|machine| machine.call(id)) else {
            return Known::No;
        };
        let agent = self.agent(at);
        let Some(tool) = agent.tool(&call.requested.tool).map(Arc::clone) else { return Known::No };
        let approval = call.question.as_ref().map(|question| question.approval.as_str());
        let key = key(self.place(at), id, approval);
        alone(async move { tool.outcome(&key).await }).await.unwrap_or(Known::No)
    }

    fn is_idempotent(&self, at: usize, id: &str) -> bool {
        let call = self.board.machine(at).and_then(|machine| machine.call(id));
        let tool = call.and_then(|call| self.agents[self.board.agent(at)].tool(&call.requested.tool));
        tool.is_some_and(|tool| tool.is_idempotent())
    }

    async fn permit_again(&mut self, at: usize, id: &str) -> Result<Option<Permit>, RunError> {
        let agent = self.agent(at);
        let Some(call) = self.board.machine(at).and_then(|machine| machine.call(id)) else { return Ok(None) };
        let Call { requested, question, .. } = call.clone();
        if let Some(question) = &question {
            let Ok(checked) = self.check_again(at, &requested, question) else { return Ok(None) };
            return Ok(self.claim(at, id, question, checked).await?.ok());
        }
        let Ok(checked) = check(&agent, &requested) else { return Ok(None) };
        let asked = self.tool_call(at, &requested, &checked);
        match Permit::by_gate(agent.gate(), asked, checked).await {
            Answer::Permit(permit) => Ok(Some(permit)),
            Answer::AskAPerson { .. } | Answer::No(_) => Ok(None),
        }
    }

    async fn reject(&mut self, at: usize, id: &str, rejection: Rejection) -> Result<(), RunError> {
        self.write(at, Event::CallRejected { call: id.to_owned(), rejection }).await
    }
}

/// Between half of a pause and all of it, so that tasks that failed together do not come back together.
fn with_jitter(pause_ms: f64) -> Duration {
    let random = std::hash::RandomState::new().hash_one(0) % 1_000;
    #[expect(clippy::cast_precision_loss, reason = "it is less than 1,000")]
    let part = 0.5 + random as f64 / 2_000.0;
    Duration::from_secs_f64(pause_ms * part / 1_000.0)
}
