//! The line to a run's journal: read whole, written only with the run's fence.
//!
//! Owns the fence, the place in the journal, and what to do when a reply is lost.

use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use holdgate_core::run::RunState;
use holdgate_wire::{AppendEvents, Approval, Code, CreateApproval, LeaseRun, Run};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::lease::Lease;
use super::persist::{CALL, once, persist};
use crate::run::RunError;
use crate::run::journal::{Event, JournalError};

/// Shows that what is about to be done is in the journal. Made by an append alone.
pub(super) struct Recorded(());

/// A run that this process holds.
pub(in crate::run) struct Line {
    authority: Arc<dyn Authority>,
    run: String,
    fence: u64,
    last_seq: u64,
    lease: Lease,
    /// Whether an append has let the run go.
    is_let_go: bool,
    /// The authority's time at an instant of ours, in Unix milliseconds.
    clock: (i64, Instant),
}

impl Line {
    /// Takes the run. Tried once: a second try could not tell our own lease from another's.
    pub(in crate::run) async fn take(authority: Arc<dyn Authority>, run: &str) -> Result<Self, RunError> {
        let taken = once(authority.lease_run(run, LeaseRun::default())).await;
        let taken = taken.map_err(|error| refused(run, error))?;
        let lease = Lease::keep(Arc::clone(&authority), taken.id.clone(), taken.fence, taken.lease_ms);
        Ok(Self {
            authority,
            run: taken.id,
            fence: taken.fence,
            last_seq: taken.last_seq,
            lease,
            is_let_go: false,
            clock: (taken.updated_at_ms, Instant::now()),
        })
    }

    pub(super) fn authority(&self) -> &Arc<dyn Authority> {
        &self.authority
    }

    pub(in crate::run) fn run(&self) -> &str {
        &self.run
    }

    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    pub(in crate::run) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The authority's time, in Unix milliseconds: as it last said, and what has passed since.
    pub(in crate::run) fn now_ms(&self) -> i64 {
        let (at_ms, since) = self.clock;
        at_ms.saturating_add(i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Whether an append has let the run go.
    pub(super) fn is_let_go(&self) -> bool {
        self.is_let_go
    }

    /// Completes when another process has taken the run over.
    pub(super) async fn lost(&self) -> RunError {
        self.lease.lost().await;
        RunError::TakenOver { run: self.run.clone() }
    }

    /// Checks that the journal that was read is the one that this process would add to.
    pub(in crate::run) fn goes_on_from(&self, seq: u64) -> Result<(), RunError> {
        match seq.cmp(&self.last_seq) {
            std::cmp::Ordering::Less => Err(JournalError::Gap { expected: seq + 1 }.into()),
            std::cmp::Ordering::Equal => Ok(()),
            // Only a holder adds to a journal, and that is us since we took it.
            std::cmp::Ordering::Greater => Err(RunError::TakenOver { run: self.run.clone() }),
        }
    }

    /// Writes events and opens requests, as one. Any state but `Running` lets the run go. Answers the requests if the
    /// reply came through.
    pub(super) async fn append(
        &mut self,
        events: &[Event],
        state: RunState,
        approvals: Vec<CreateApproval>,
    ) -> Result<(Recorded, Vec<Approval>), RunError> {
        if state != RunState::Running {
            self.lease.stop().await;
        }
        let texts: Vec<String> = events.iter().map(Event::encode).collect();
        let raw = |text: &String| RawValue::from_string(text.clone()).expect("an event is JSON");
        let append = AppendEvents {
            fence: self.fence,
            after: self.last_seq,
            events: texts.iter().map(raw).collect(),
            state: Some(state.as_str().to_owned()),
            approvals,
        };
        let appended = match persist(|| self.authority.append(&self.run, append.clone())).await {
            Ok(appended) => {
                self.clock = (appended.run.updated_at_ms, Instant::now());
                appended.approvals
            }
            // Nobody else has our fence: either a lost reply's append stands, or the journal is not what we read.
            Err(error) if matches!(error.code(), Some(Code::JournalMoved | Code::RunEnded)) => {
                if !self.has_written(&texts).await? {
                    return Err(error.into());
                }
                Vec::new()
            }
            Err(error) => return Err(refused(&self.run, error)),
        };
        self.last_seq += texts.len() as u64;
        self.is_let_go = state != RunState::Running;
        Ok((Recorded(()), appended))
    }

    async fn has_written(&self, texts: &[String]) -> Result<bool, RunError> {
        let end = self.last_seq + texts.len() as u64;
        let mut expected = texts.iter();
        loop {
            let after = end - expected.len() as u64;
            let page = persist(|| self.authority.journal(&self.run, after)).await?;
            let is_ours =
                page.items.iter().all(|entry| expected.next().is_some_and(|e| e == entry.event.get()));
            if !is_ours || page.last_seq != end || page.items.is_empty() {
                return Ok(false);
            }
            if expected.len() == 0 {
                return Ok(true);
            }
        }
    }

    /// Lets the run go, so that the next process need not wait for the lease to lapse. If it fails, it lapses.
    pub(in crate::run) async fn let_go(mut self) {
        const PARTING: Duration = Duration::from_secs(2);
        if self.is_let_go {
            return;
        }
        self.lease.stop().await;
        let release = LeaseRun { fence: Some(self.fence), release: true };
        let released =
            tokio::time::timeout(PARTING.min(CALL), self.authority.lease_run(&self.run, release)).await;
        if let Ok(Err(error)) = released {
            tracing::debug!(%error, run = self.run, "the run was not let go; its lease will lapse");
        }
    }
}

/// Reads a run.
pub(in crate::run) async fn read_run(authority: &dyn Authority, run: &str) -> Result<Run, RunError> {
    persist(|| authority.run(run)).await.map_err(|error| refused(run, error))
}

/// Reads a whole journal.
pub(in crate::run) async fn read_journal(
    authority: &dyn Authority,
    run: &str,
) -> Result<Vec<Event>, RunError> {
    Ok(read_entries(authority, run).await?.into_iter().map(|(_, event)| event).collect())
}

/// Reads a whole journal, page by page: each event, and when it became durable in Unix milliseconds.
pub(in crate::run) async fn read_entries(
    authority: &dyn Authority,
    run: &str,
) -> Result<Vec<(i64, Event)>, RunError> {
    let mut events = Vec::new();
    loop {
        let after = events.len() as u64;
        let page = persist(|| authority.journal(run, after)).await;
        let page = page.map_err(|error| refused(run, error))?;
        for entry in &page.items {
            let expected = events.len() as u64 + 1;
            if entry.seq != expected {
                return Err(JournalError::Gap { expected }.into());
            }
            events.push((entry.at_ms, Event::decode(entry.seq, entry.event.get())?));
        }
        let read = events.len() as u64;
        if read >= page.last_seq {
            return Ok(events);
        }
        if page.items.is_empty() {
            return Err(JournalError::Gap { expected: read + 1 }.into());
        }
    }
}

/// What a "no" to a call on a run means.
pub(super) fn refused(run: &str, error: Error) -> RunError {
    let run = run.to_owned();
    match (error.code(), &error) {
        (Some(Code::NotFound), _) => RunError::NotFound { run },
        (Some(Code::FenceLapsed), _) => RunError::TakenOver { run },
        (Some(Code::RunHeld), Error::Problem(problem)) => {
            let lapses_in_ms = problem.retry_after_ms.unwrap_or_default().max(0);
            RunError::Held { run, lapses_in: Duration::from_millis(lapses_in_ms.unsigned_abs()) }
        }
        _ => RunError::Authority(error),
    }
}
