//! What waits behind approvals: epochs of live processes, stored runs, and who owns which session.

use holdgate_core::audience::SessionEdges;
use holdgate_core::run::RunCommand;
use holdgate_core::{Approval, EpochId, Principal, Refusal, Run, RunId};
use holdgate_store::{Answer, Append, JournalEntry, Op, Outcome, RuntimeKind, mint};

use super::{Service, commit, refused};
use crate::error::Error;

/// Most requests that one step of ending a run calls off: others get their turn between two.
const CANCEL_BATCH: u32 = 256;

impl Service {
    /// Begins a caller's epoch.
    pub(crate) async fn start_runtime(&self, by: &Principal) -> Result<EpochId, Error> {
        self.runtime(Op::StartRuntime { epoch: mint::epoch(), kind: RuntimeKind::Caller, by: by.into() })
            .await
    }

    /// Keeps an epoch alive.
    pub(crate) async fn renew_runtime(&self, epoch: &EpochId, by: &Principal) -> Result<EpochId, Error> {
        self.runtime(Op::RenewRuntime { epoch: epoch.clone(), by: by.into() }).await
    }

    /// Ends an epoch.
    pub(crate) async fn end_runtime(&self, epoch: &EpochId, by: &Principal) -> Result<EpochId, Error> {
        self.runtime(Op::EndRuntime { epoch: epoch.clone(), by: by.into() }).await
    }

    async fn runtime(&self, op: Op) -> Result<EpochId, Error> {
        commit(self.store.execute(op).await?, |answer| match answer {
            Answer::Runtime(runtime) => Some(runtime.epoch),
            _ => None,
        })
    }

    /// Creates a run.
    pub(crate) async fn create_run(&self, id: RunId, agent: String, by: &Principal) -> Result<Run, Error> {
        self.held_run(Op::CreateRun { id, agent, by: by.into() }).await
    }

    /// Takes, keeps, releases or aborts a run.
    pub(crate) async fn hold_run(
        &self,
        id: &RunId,
        command: RunCommand,
        by: &Principal,
    ) -> Result<Run, Error> {
        self.held_run(Op::HoldRun { id: id.clone(), command, by: by.into() }).await
    }

    async fn held_run(&self, op: Op) -> Result<Run, Error> {
        commit(self.store.execute(op).await?, |answer| match answer {
            Answer::Run(run) => Some(run),
            _ => None,
        })
    }

    /// Ends a run from outside: a stored one for good, and what any run of that name asked for. Answers how many
    /// requests were called off.
    pub(crate) async fn abort_run(&self, id: &RunId, by: &Principal) -> Result<u32, Error> {
        let abort = Op::HoldRun { id: id.clone(), command: RunCommand::Abort, by: by.into() };
        let is_stored = match self.store.execute(abort).await? {
            Outcome::Committed(_) | Outcome::Duplicate(_) => true,
            // Not stored here, or somebody else's: then only what names it as its source is `by`'s to end.
            Outcome::Refused(Refusal::NotFound, _) => false,
            Outcome::Refused(why, _) => return Err(refused(&why)),
        };
        let mut cancelled = 0;
        loop {
            let cancel = Op::CancelRun { run: id.to_string(), by: by.into(), limit: CANCEL_BATCH };
            let touched = commit(self.store.execute(cancel).await?, |answer| match answer {
                Answer::Touched(touched) => Some(touched),
                _ => None,
            })?;
            cancelled += touched;
            if touched == 0 {
                break;
            }
        }
        if is_stored || cancelled > 0 { Ok(cancelled) } else { Err(refused(&Refusal::NotFound)) }
    }

    /// Reads a run. Only its owner can.
    pub(crate) async fn run(&self, id: &RunId, by: &Principal) -> Result<Run, Error> {
        let run = self.store.run(id).await?.filter(|run| run.owner == by.id);
        run.ok_or_else(|| refused(&Refusal::NotFound))
    }

    /// Adds to a run's journal.
    pub(crate) async fn append(&self, append: Append, by: &Principal) -> Result<(Run, Vec<Approval>), Error> {
        let append = Op::Append { append, by: by.into(), caps: self.policy().caps };
        commit(self.store.execute(append).await?, |answer| match answer {
            Answer::Appended(run, approvals) => Some((run, approvals)),
            _ => None,
        })
    }

    /// Reads a run's journal.
    pub(crate) async fn journal(
        &self,
        id: &RunId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<JournalEntry>, Error> {
        Ok(self.store.run_events(id, after, limit).await?)
    }

    /// Says who owns a session.
    pub(crate) async fn put_session(
        &self,
        key: String,
        edges: SessionEdges,
        by: &Principal,
    ) -> Result<(), Error> {
        let put = Op::PutSession { key, edges, by: by.into() };
        commit(self.store.execute(put).await?, |answer| matches!(answer, Answer::Done).then_some(()))
    }
}
