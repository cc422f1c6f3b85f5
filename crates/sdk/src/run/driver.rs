//! Performs what the board says, in the order that keeps every crash safe. The only part of a run that awaits.
//!
//! Around a reviewed effect: claim, append `call-started`, run, append `call-ended`, settle, append `call-settled`.
//! Nothing runs before its start is durable, and no model hears of anything that is not. Models, gates and tools of
//! different tasks are waited for together; the journal is written by one hand.

mod lease;
pub(super) mod line;
mod permit;
mod persist;
mod plan;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdgate_core::Kind;
use holdgate_core::run::RunState;
use holdgate_wire::{Approval, Code};
use tokio::task::JoinSet;

use super::RunError;
use super::board::{AtRest, Board, Effect, gate_claim};
use super::coordinator::synthesis;
use super::journal::{Ending, Event, GateId, REPLY_BYTES};
use super::machine::claim_id;
use super::review::{Checked, Known, Place, Question};
use crate::agent::Agent;
use crate::gate::Verdict;
use crate::model::{ModelError, Reply, Transcript};
use crate::team::Gates;
use line::{Line, Recorded};
use permit::Answer;
use persist::persist;

/// A run at work in this process.
pub(super) struct Driver {
    agents: BTreeMap<String, Arc<Agent>>,
    gates: Gates,
    coordinator: Option<Arc<Agent>>,
    board: Board,
    line: Line,
    /// Models and gates that are thinking. Cut short when the run is lost.
    thoughts: JoinSet<Landed>,
    /// Tools at work. Never cut short: a whole effect is better than half of one.
    effects: JoinSet<Landed>,
    /// The records of what waits, as last read. For what the caller is told, never for a decision.
    records: BTreeMap<String, Approval>,
    /// Whether anything was written since answers were last looked for.
    has_progressed: bool,
}

/// What something that was waited for came to.
enum Landed {
    /// A model's reply for a task.
    Reply(usize, Result<Reply, ModelError>),
    /// A gate's answer on a call of a task.
    Answer(usize, String, Box<(Checked, Answer)>),
    /// How a call of a task ended.
    Ended(usize, String, Ending),
    /// A gate's answer on a plan, a round or a dispatch.
    Verdict(GateId, Result<Verdict, String>),
    /// The pause before a task is begun anew is over.
    Rested(usize),
}

/// A run that has come to rest, with the records of what it waits for.
pub(super) struct Rested {
    pub(super) board: Board,
    pub(super) records: BTreeMap<String, Approval>,
}

impl Driver {
    pub(super) fn new(agents: BTreeMap<String, Arc<Agent>>, gates: Gates, board: Board, line: Line) -> Self {
        Self {
            agents,
            gates,
            coordinator: None,
            board,
            line,
            thoughts: JoinSet::new(),
            effects: JoinSet::new(),
            records: BTreeMap::new(),
            has_progressed: false,
        }
    }

    /// With somebody who puts the results together at the end.
    pub(super) fn coordinated_by(self, coordinator: Option<Arc<Agent>>) -> Self {
        Self { coordinator, ..self }
    }

    /// Writes a new run's first events, then goes on.
    pub(super) async fn begin(mut self, started: Vec<Vec<Event>>) -> Result<Rested, RunError> {
        for events in started {
            if let Err(error) = self.write_all(events, RunState::Running).await {
                self.line.let_go().await;
                return Err(error);
            }
        }
        self.drive().await
    }

    /// Goes on with a run that another process left.
    pub(super) async fn go_on(mut self) -> Result<Rested, RunError> {
        if let Err(error) = self.look_at_all().await {
            self.line.let_go().await;
            return Err(error);
        }
        self.board.look_around();
        self.drive().await
    }

    /// Goes on until the run ends or has to wait. However it comes out, the run is let go.
    async fn drive(mut self) -> Result<Rested, RunError> {
        let worked = self.work().await;
        if worked.is_err() {
            self.wind_up().await;
        }
        let Self { board, records, line, .. } = self;
        line.let_go().await;
        worked.map(|()| Rested { board, records })
    }

    async fn work(&mut self) -> Result<(), RunError> {
        loop {
            while let Some(effect) = self.board.next() {
                self.perform(effect).await?;
            }
            if self.is_still() {
                if self.come_to_rest().await? {
                    return Ok(());
                }
                continue;
            }
            let landed = tokio::select! {
                Some(landed) = self.effects.join_next() => landed,
                Some(landed) = self.thoughts.join_next() => landed,
                error = self.line.lost() => return Err(error),
            };
            // Whatever is somebody else's code was run so that its panic is an answer.
            self.land(landed.expect("nothing here panics or is aborted")).await?;
        }
    }

    fn is_still(&self) -> bool {
        self.thoughts.is_empty() && self.effects.is_empty()
    }

    /// Lets tools that are at work come to their ends, and writes those down if that is still ours to do.
    async fn wind_up(&mut self) {
        self.thoughts.abort_all();
        let mut is_ours = true;
        while let Some(landed) = self.effects.join_next().await {
            if let (true, Ok(Landed::Ended(at, call, ending))) = (is_ours, landed) {
                let written = self.write(at, Event::CallEnded { call, ending }).await;
                is_ours = written.is_ok();
            }
        }
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), RunError> {
        match effect {
            Effect::Step(at, effect) => self.step(at, effect).await,
            Effect::Gate(gate) => self.try_gate(gate).await,
            Effect::Ask(gates) => self.ask(gates).await,
            Effect::Pass(gate) => self.pass(gate).await,
            Effect::Reject(gate, rejection) => self.write_run(Event::GateRejected { gate, rejection }).await,
            Effect::Settle(gate) => self.settle_gate(gate).await,
        }
    }

    async fn land(&mut self, landed: Landed) -> Result<(), RunError> {
        match landed {
            Landed::Reply(at, reply) => self.replied(at, reply).await,
            Landed::Answer(at, call, answer) => {
                let (checked, answer) = *answer;
                self.answered(at, &call, checked, answer).await
            }
            Landed::Ended(at, call, ending) => self.write(at, Event::CallEnded { call, ending }).await,
            Landed::Verdict(gate, verdict) => self.gate_answered(gate, verdict).await,
            Landed::Rested(at) => {
                self.board.look_at(at);
                Ok(())
            }
        }
    }

    /// Nothing is to be done and nothing is under way. Whether that is all.
    async fn come_to_rest(&mut self) -> Result<bool, RunError> {
        match self.board.at_rest() {
            AtRest::Stop => return Ok(true),
            AtRest::Wait { is_said, is_unknown } => {
                if self.has_progressed && !self.line.is_let_go() && self.look_for_answers().await? {
                    return Ok(false);
                }
                if !is_said && !self.line.is_let_go() {
                    let state = if is_unknown { RunState::Unknown } else { RunState::Suspended };
                    self.write_all(vec![Event::RunSuspended {}], state).await?;
                }
                self.read_what_is_missing().await?;
                return Ok(true);
            }
            AtRest::Finish => {
                let output = self.synthesis().await?;
                self.write_all(vec![Event::RunFinished { output }], RunState::Finished).await?;
            }
            AtRest::Fail(why) => self.write_all(vec![Event::RunFailed { why }], RunState::Failed).await?,
            AtRest::Reject(gate) => {
                self.write_all(vec![Event::RunRejected { gate }], RunState::Failed).await?
            }
        }
        Ok(false)
    }

    /// The coordinator's answer to the goal from what the tasks came to. The tasks are done whatever becomes of it: if
    /// there is none, the run has none.
    async fn synthesis(&self) -> Result<String, RunError> {
        let (Some((goal, outputs)), Some(coordinator)) = (self.board.goal(), self.coordinator.clone()) else {
            return Ok(String::new());
        };
        let asked = crate::model::Message::User(synthesis(goal, &outputs));
        let transcript =
            Transcript { instructions: coordinator.instructions().to_owned(), messages: vec![asked] };
        let reply = permit::alone(async move { coordinator.model().reply(&transcript, &[]).await });
        let reply = tokio::select! {
            reply = reply => reply,
            error = self.line.lost() => return Err(error),
        };
        match reply {
            Some(Ok(reply)) if reply.text.len() <= REPLY_BYTES => Ok(reply.text),
            Some(Ok(_)) | None => Ok(String::new()),
            Some(Err(error)) => {
                tracing::warn!(%error, run = self.line.run(), "the results were not put together");
                Ok(String::new())
            }
        }
    }

    /// Compares everything that waits with its record, before anything runs.
    async fn look_at_all(&mut self) -> Result<(), RunError> {
        for at in 0..self.board.task_count() {
            let next = self.board.machine(at).map(super::machine::Machine::next);
            if let Some(super::machine::Effect::Look(calls)) = next {
                self.look(at, calls).await?;
            }
        }
        self.look_at_gates().await
    }

    /// Looks whether people have answered while the run was busy with something else. Whether one has.
    async fn look_for_answers(&mut self) -> Result<bool, RunError> {
        self.has_progressed = false;
        let mut waiting: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (at, call, _) in self.board.waiting() {
            waiting.entry(at).or_default().push(call.requested.id.clone());
        }
        for (at, calls) in waiting {
            self.look(at, calls).await?;
        }
        self.look_at_gates().await?;
        let is_open = |id: &String| self.records.get(id).is_some_and(|record| !record.is_terminal());
        Ok(!self.board.questions().map(|question| &question.approval).all(is_open))
    }

    /// Reads the records of what waits that no reply has brought: the caller is told of all of them.
    async fn read_what_is_missing(&mut self) -> Result<(), RunError> {
        let calls = self.board.waiting().map(|(at, call, question)| {
            (Kind::Tool, question.clone(), claim_id(self.place(at), &call.requested.id))
        });
        let gates = self.board.waiting_gates().filter_map(|(gate, question)| {
            let (kind, ..) = self.board.content(gate).ok()?;
            Some((kind, question.clone(), gate_claim(self.line.run(), gate)))
        });
        let waiting = calls.chain(gates);
        let missing: Vec<_> =
            waiting.filter(|(_, question, _)| !self.records.contains_key(&question.approval)).collect();
        for (kind, question, claim) in missing {
            self.read(kind, &question, &claim).await?;
        }
        Ok(())
    }

    fn place(&self, at: usize) -> Place<'_> {
        Place { run: self.line.run(), task: self.board.task_id(at) }
    }

    fn agent(&self, at: usize) -> Arc<Agent> {
        // Every task was given to an agent of this crew, or its run would not have been taken up.
        Arc::clone(&self.agents[self.board.agent(at)])
    }

    /// What the authority's record says of a question, if it is that question's record.
    async fn read(&mut self, kind: Kind, question: &Question, claim: &str) -> Result<Known, RunError> {
        let authority = self.line.authority();
        let record = match persist(|| authority.get(&question.approval)).await {
            Err(error) if error.code() == Some(Code::NotFound) => {
                return Err(self.mismatch(question, "the authority has no such record".to_owned()));
            }
            read => read?,
        };
        let known = question.known(kind, claim, &record).map_err(|what| self.mismatch(question, what))?;
        self.records.insert(question.approval.clone(), record);
        Ok(known)
    }

    fn mismatch(&self, question: &Question, what: String) -> RunError {
        RunError::Mismatch { run: self.line.run().to_owned(), approval: question.approval.clone(), what }
    }

    /// Writes an event of a task.
    async fn write(&mut self, at: usize, event: Event) -> Result<(), RunError> {
        let events = self.of_task(at, event);
        self.write_all(events, RunState::Running).await
    }

    /// Writes an event of the run itself.
    async fn write_run(&mut self, event: Event) -> Result<(), RunError> {
        self.write_all(vec![event], RunState::Running).await
    }

    async fn write_all(&mut self, events: Vec<Event>, state: RunState) -> Result<(), RunError> {
        self.append(events, state, Vec::new()).await.map(drop)
    }

    /// The one place where the journal grows.
    async fn append(
        &mut self,
        events: Vec<Event>,
        state: RunState,
        requests: Vec<holdgate_wire::CreateApproval>,
    ) -> Result<Recorded, RunError> {
        let (recorded, opened) = self.line.append(&events, state, requests).await?;
        for event in &events {
            self.board.apply(event)?;
        }
        self.records.extend(opened.into_iter().map(|record| (record.id.clone(), record)));
        self.has_progressed = true;
        Ok(recorded)
    }

    /// An event of a task as the journal has it, after the task's start if that is not written yet.
    fn of_task(&self, at: usize, event: Event) -> Vec<Event> {
        if self.board.team().is_none() {
            return vec![event];
        }
        let task = self.board.task_id(at).to_owned();
        let started = self.board.owes_a_start(at).then(|| Event::TaskStarted { task: task.clone() });
        started.into_iter().chain([Event::Task { task, event: Box::new(event) }]).collect()
    }
}
