//! What one agent has come to in its task and what it does next. Pure: a state is the fold of a journal's events, and
//! the next effect follows from the state.
//!
//! Owns every decision about order within a task; what one call's events mean is `call`'s, how tasks go together is
//! `board`'s. Performs nothing: that is `driver`'s. What a process learns without writing it down (a gate's answer, a
//! record's status) is kept beside the fold and is learnt anew after a restore.

mod call;

use std::collections::BTreeSet;

use super::journal::{Event, VERSION};
use super::outcome::{CallSummary, Rejection};
use super::review::{Known, Place, Question};
use crate::model::{Message, Reply, RequestedCall, Transcript};
use call::Phase;
pub(crate) use call::{Call, Interrupted, claim_id};

/// One agent at work on one task.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    run: String,
    task: String,
    max_turns: u32,
    /// What it was given to do, once it has started.
    input: Option<String>,
    turns: Vec<TurnState>,
    end: Option<End>,
    /// Whether the last event left the run to wait for reviewers.
    resting: bool,
    /// Whether the model is asked for its next reply. Known to this process only.
    is_thinking: bool,
    /// Ids of calls of earlier attempts at the task.
    reserved: BTreeSet<String>,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished(String),
    Failed(String),
}

#[derive(Clone, Debug)]
struct TurnState {
    text: String,
    calls: Vec<Call>,
}

/// Whether the journal says already that the run waits for reviewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resting {
    Unsaid,
    Said,
}

/// What is to be done next. Calls are named by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Ask the model.
    AskModel,
    /// Read the records of these requests and compare them.
    Look(Vec<String>),
    /// A call started in a process that died: run it again if that is safe, else say that nobody knows.
    Recover(String, Interrupted),
    /// Tell the authority what came of a call.
    Settle(String),
    /// Put a call to the gate, and run it if the gate allows it.
    Gate(String),
    /// Open these requests, as one.
    Request(Vec<String>),
    /// Write down that a call will not run.
    Reject(String, Rejection),
    /// Claim an allowed call and run it.
    Run(String),
    /// Nothing, until what is under way has landed.
    Await,
    /// Let the run go until there are answers.
    Suspend(Resting),
    /// Write down that the run ended well.
    Finish(String),
    /// Write down that the run ended with an error.
    Fail(String),
    /// Nothing: the run has ended.
    Stop(End),
}

impl Machine {
    /// A task without events.
    pub(crate) fn new(run: &str, task: &str, max_turns: u32) -> Self {
        Self {
            run: run.to_owned(),
            task: task.to_owned(),
            max_turns,
            input: None,
            turns: Vec::new(),
            end: None,
            resting: false,
            is_thinking: false,
            reserved: BTreeSet::new(),
        }
    }

    /// Ids that no call may have again.
    pub(crate) fn reserve(&mut self, ids: BTreeSet<String>) {
        self.reserved = ids;
    }

    /// Ids that calls have or had.
    pub(crate) fn used_ids(&self) -> BTreeSet<String> {
        self.call_ids().map(str::to_owned).collect()
    }

    /// What this process does not know of what another one left: the answers, and how a call came out that had started.
    pub(crate) fn inherited(&mut self) {
        for call in self.turns.iter_mut().flat_map(|turn| &mut turn.calls) {
            match &mut call.phase {
                Phase::Waiting(known) => *known = Known::Nothing,
                Phase::Started { interrupted: interrupted @ None, .. } => {
                    *interrupted = Some(Interrupted::Unsaid)
                }
                _ => {}
            }
        }
    }

    /// Takes in the next event.
    ///
    /// # Errors
    /// It does not follow from those before it: why.
    pub(crate) fn apply(&mut self, event: &Event) -> Result<(), String> {
        self.fold(event)?;
        self.is_thinking &= !matches!(event, Event::ModelReplied { .. });
        self.resting = matches!(event, Event::CallSuspended { .. } | Event::RunSuspended {});
        Ok(())
    }

    fn fold(&mut self, event: &Event) -> Result<(), String> {
        if self.end.is_some() {
            return Err("the run has ended".to_owned());
        }
        match event {
            Event::RunStarted { version: VERSION, input, .. } if self.input.is_none() => {
                self.input = Some(input.clone());
            }
            Event::RunStarted { .. } => return Err("the run has started before".to_owned()),
            _ if self.input.is_none() => return Err("the run has not started".to_owned()),
            Event::ModelReplied { text, calls } => self.replied(text, calls)?,
            Event::RunSuspended {} if self.is_waiting() => {}
            Event::RunSuspended {} => return Err("the run waits for nobody".to_owned()),
            Event::RunFinished { output } if self.calls().all(Call::is_done) => {
                self.end = Some(End::Finished(output.clone()));
            }
            Event::RunFinished { .. } => return Err("calls are not done".to_owned()),
            Event::RunFailed { why } => self.end = Some(End::Failed(why.clone())),
            Event::CallRejected { call, .. }
            | Event::CallSuspended { call, .. }
            | Event::CallStarted { call, .. }
            | Event::CallEnded { call, .. }
            | Event::CallSettled { call, .. }
            | Event::CallUnknown { call } => {
                let (run, task) = (self.run.clone(), self.task.clone());
                let call = self.call_mut(call).ok_or_else(|| format!("there is no call {call:?} now"))?;
                call.apply(Place { run: &run, task: &task }, event)?;
            }
            Event::TeamStarted { .. }
            | Event::TasksPlanned { .. }
            | Event::GateSuspended { .. }
            | Event::GatePassed { .. }
            | Event::GateRejected { .. }
            | Event::GateSettled { .. }
            | Event::TaskStarted { .. }
            | Event::Task { .. }
            | Event::TaskRetried { .. }
            | Event::TaskEnded { .. }
            | Event::RunRejected { .. } => return Err("it belongs to the run of a team".to_owned()),
        }
        Ok(())
    }

    fn replied(&mut self, text: &str, calls: &[RequestedCall]) -> Result<(), String> {
        if !self.calls().all(Call::is_done) {
            return Err("calls of the last reply are not done".to_owned());
        }
        let mut used: BTreeSet<&str> = self.call_ids().collect();
        if let Some(twice) = calls.iter().find(|call| !used.insert(&call.id)) {
            return Err(format!("the call id {:?} is given twice", twice.id));
        }
        let calls = calls.iter().cloned().map(Call::new).collect();
        self.turns.push(TurnState { text: text.to_owned(), calls });
        Ok(())
    }

    /// What to do next.
    pub(crate) fn next(&self) -> Effect {
        if let Some(end) = &self.end {
            return Effect::Stop(end.clone());
        }
        // Before anything runs, every request is compared with its record.
        let unseen = self.ids(|phase| matches!(phase, Phase::Waiting(Known::Nothing)));
        if !unseen.is_empty() {
            return Effect::Look(unseen);
        }
        for effect in [Call::recovery, Call::settlement] {
            if let Some(effect) = self.calls().find_map(effect) {
                return effect;
            }
        }
        let is_running = self.calls().any(Call::is_running);
        if self.given_up().next().is_some() {
            return if is_running { Effect::Await } else { Effect::Suspend(Resting::Said) };
        }
        if let Some(effect) = self.calls().find_map(Call::gating) {
            return effect;
        }
        if self.is_thinking || self.calls().any(|call| call.is_at_gate) {
            return Effect::Await;
        }
        let asking = self.ids(|phase| matches!(phase, Phase::Asking(_)));
        if !asking.is_empty() {
            return Effect::Request(asking);
        }
        if let Some(effect) = self.calls().find_map(Call::answer) {
            return effect;
        }
        if is_running {
            return Effect::Await;
        }
        if self.is_waiting() {
            return Effect::Suspend(if self.resting { Resting::Said } else { Resting::Unsaid });
        }
        match self.turns.last() {
            Some(turn) if turn.calls.is_empty() => Effect::Finish(turn.text.clone()),
            _ if self.turns.len() >= self.max_turns as usize => {
                Effect::Fail(format!("the model did not come to an end within {} replies", self.max_turns))
            }
            _ => Effect::AskModel,
        }
    }

    /// Notes that the model thinks about its next reply.
    pub(crate) fn thinks(&mut self) {
        self.is_thinking = true;
    }

    /// Notes that the gate thinks about a call.
    pub(crate) fn is_at_gate(&mut self, id: &str) {
        if let Some(call) = self.call_mut(id) {
            call.is_at_gate = true;
        }
    }

    /// Notes that the gate wants a person asked about a call.
    pub(crate) fn asking(&mut self, id: &str, question: Question) {
        if let Some(call) = self.call_mut(id) {
            call.is_at_gate = false;
            call.phase = Phase::Asking(question);
        }
    }

    /// Notes what the record of a waiting call says.
    pub(crate) fn known(&mut self, id: &str, answer: Known) {
        if let Some(Call { phase: Phase::Waiting(known), .. }) = self.call_mut(id) {
            *known = answer;
        }
    }

    /// Gives a reply's calls ids that are unique within the run and fit everywhere, and answers the event.
    pub(crate) fn reply_event(&self, reply: Reply) -> Event {
        let mut used: BTreeSet<String> = self.call_ids().map(str::to_owned).collect();
        let mut calls = reply.calls;
        for call in &mut calls {
            if !is_plain(&call.id) || used.contains(&call.id) {
                let mut number = used.len() + 1;
                while used.contains(&format!("call-{number}")) {
                    number += 1;
                }
                call.id = format!("call-{number}");
            }
            used.insert(call.id.clone());
        }
        Event::ModelReplied { text: reply.text, calls }
    }

    /// The call of that id in the last reply.
    pub(crate) fn call(&self, id: &str) -> Option<&Call> {
        self.calls().find(|call| call.requested.id == id)
    }

    /// The calls that wait for a person.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&Call, &Question)> {
        let waiting = self.calls().filter(|call| matches!(call.phase, Phase::Waiting(_)));
        waiting.filter_map(|call| call.question.as_ref().map(|question| (call, question)))
    }

    /// Notes that this process cannot find out how a call came out.
    pub(crate) fn give_up(&mut self, id: &str) {
        if let Some(Call { phase: Phase::Started { interrupted, .. }, .. }) = self.call_mut(id) {
            *interrupted = Some(Interrupted::GivenUp);
        }
    }

    /// The calls of which this process cannot find out how they came out.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = &Call> {
        self.calls().filter(|call| {
            matches!(call.phase, Phase::Started { interrupted: Some(Interrupted::GivenUp), .. })
        })
    }

    /// Whether the journal says already that it waits.
    pub(crate) fn is_resting(&self) -> bool {
        self.resting
    }

    /// The last words, once nothing more is asked for.
    pub(crate) fn output(&self) -> Option<&str> {
        self.turns.last().filter(|turn| turn.calls.is_empty()).map(|turn| turn.text.as_str())
    }

    /// All that was said.
    pub(crate) fn transcript(&self, instructions: &str) -> Transcript {
        let mut messages = Vec::new();
        messages.extend(self.input.iter().cloned().map(Message::User));
        for turn in &self.turns {
            let calls = turn.calls.iter().map(|call| call.requested.clone()).collect();
            messages.push(Message::Model(Reply { text: turn.text.clone(), calls }));
            messages.extend(turn.calls.iter().filter_map(Call::message));
        }
        Transcript { instructions: instructions.to_owned(), messages }
    }

    /// What came of every call so far.
    pub(crate) fn summaries(&self) -> Vec<CallSummary> {
        self.turns.iter().flat_map(|turn| &turn.calls).map(Call::summary).collect()
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.turns.last().into_iter().flat_map(|turn| &turn.calls)
    }

    fn call_ids(&self) -> impl Iterator<Item = &str> {
        let calls = self.turns.iter().flat_map(|turn| &turn.calls);
        calls.map(|call| call.requested.id.as_str()).chain(self.reserved.iter().map(String::as_str))
    }

    fn call_mut(&mut self, id: &str) -> Option<&mut Call> {
        let calls = self.turns.last_mut().into_iter().flat_map(|turn| &mut turn.calls);
        calls.into_iter().find(|call| call.requested.id == id)
    }

    fn ids(&self, is_wanted: impl Fn(&Phase) -> bool) -> Vec<String> {
        let calls = self.calls().filter(|call| is_wanted(&call.phase));
        calls.map(|call| call.requested.id.clone()).collect()
    }

    fn is_waiting(&self) -> bool {
        self.calls().any(|call| matches!(call.phase, Phase::Waiting(_)))
    }
}

/// Whether a model's id for a call can stand in a boundary and a name as it is.
fn is_plain(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    (1..=64).contains(&id.len()) && id.chars().all(is_plain)
}

#[cfg(test)]
mod tests;
