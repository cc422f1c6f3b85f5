//! The spine: each use case on one screen, as one identity, over a store.

use std::sync::Arc;
use std::time::Duration;

use holdgate_core::approval::Status;
use holdgate_core::run::RunCommand;
use holdgate_core::{Approval, ApprovalId, Command, EpochId, Principal, PrincipalId, Refusal, RunId, Time};
use holdgate_store::{
    Answer, Append, Credential, Filter, IdempotencyKey, JournalEntry, Op, Outcome, RuntimeKind, Seen, Store,
    Stored, mint,
};
use holdgate_wire::{Code, Problem};

use crate::convert;
use crate::error::Error;
use crate::sweep::OwnEpoch;
use crate::wait::Waiters;

/// In what capacity this process keeps the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves others. Its instance's earlier epochs end now.
    Gateway {
        /// A stable name.
        instance: String,
        /// Where it answers, for absolute links.
        url: String,
    },
    /// It serves itself: a run or a command that found no gateway. No link is ever shown.
    Embedded,
}

/// A record as a reader finds it.
#[derive(Clone, Debug)]
pub enum Found {
    /// It reads well.
    Sound(Box<Approval>),
    /// It does not decode and counts as denied.
    Corrupt(ApprovalId),
}

/// A record's place in the list of all.
type Place = (Time, ApprovalId);

/// The authority over one store.
pub struct Service {
    store: Arc<dyn Store>,
    own: Option<OwnEpoch>,
    url: Option<String>,
    waiters: Waiters,
}

impl Service {
    /// Takes up the authority. A gateway begins its epoch here, which ends those of its earlier lives.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn start(store: Arc<dyn Store>, role: Role) -> Result<Arc<Self>, Error> {
        let (own, url) = match role {
            Role::Embedded => (None, None),
            Role::Gateway { instance, url } => (Some(OwnEpoch::begin(&*store, instance).await?), Some(url)),
        };
        let waiters = Waiters::new(store.changes());
        Ok(Arc::new(Self { store, own, url, waiters }))
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The gateway's own epoch as it is now, which it lends to callers that have none. The keeper begins another
    /// when it has lapsed.
    pub fn own_epoch(&self) -> Option<EpochId> {
        self.own.as_ref().map(OwnEpoch::current)
    }

    pub(crate) fn own(&self) -> Option<&OwnEpoch> {
        self.own.as_ref()
    }

    /// Where this gateway answers.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The identity behind a credential.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn authenticate(&self, credential: Credential) -> Result<Option<Principal>, Error> {
        Ok(self.store.credential(credential).await?)
    }

    /// Opens a request. The flag says whether this call made it.
    pub(crate) async fn open(
        &self,
        prepared: convert::Prepared,
        key: Option<IdempotencyKey>,
        by: &Principal,
    ) -> Result<(Approval, bool), Error> {
        let convert::Prepared { draft, fence } = prepared;
        let outcome =
            self.store.execute(Op::Open { draft: Box::new(draft), fence, by: by.id.clone(), key }).await?;
        let is_new = matches!(outcome, Outcome::Committed(_));
        Ok((self.approval_of(outcome, by)?, is_new))
    }

    /// Reads a record. What this reader may not see does not exist.
    pub(crate) async fn find(&self, id: &ApprovalId, by: &Principal) -> Result<Found, Error> {
        let seen = self.store.approval(id).await?;
        seen.and_then(|seen| self.found(seen, by)).ok_or_else(|| refused(&Refusal::NotFound))
    }

    /// Waits until the record has ended, at most `timeout`.
    pub(crate) async fn wait(
        &self,
        id: &ApprovalId,
        timeout: Duration,
        by: &Principal,
    ) -> Result<Found, Error> {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            // Listen first, then look: a change in between wakes the wait instead of being missed.
            let mut change = self.waiters.listen(id);
            let found = self.find(id, by).await?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let Some(approval) = found.pending().filter(|_| !left.is_zero()) else {
                return Ok(found);
            };
            let expires_in = approval.expires_at.ms_after(self.store.now());
            let due = Duration::from_millis(expires_in.unsigned_abs().max(1));
            tokio::select! {
                () = change.heard() => {}
                () = tokio::time::sleep(left.min(due).min(POLL)) => {}
            }
        }
    }

    /// Lists records, newest first, and says after which one the next page begins.
    pub(crate) async fn list(
        &self,
        filter: Filter,
        by: &Principal,
    ) -> Result<(Vec<Found>, Option<Place>), Error> {
        let status = filter.status;
        let requester = if by.may_review() { filter.requester } else { Some(by.id.clone()) };
        let limit = filter.limit as usize;
        let mut seen = self.store.approvals(Filter { requester, limit: filter.limit + 1, ..filter }).await?;
        let has_more = seen.len() > limit;
        seen.truncate(limit);
        let next = seen.last().filter(|_| has_more).map(|last| last.place.clone());
        let found = seen.into_iter().filter_map(|seen| self.found(seen, by));
        // Time may have moved a record on that is still stored as pending.
        Ok((found.filter(|found| status.is_none_or(|status| found.status() == status)).collect(), next))
    }

    /// Applies a command to a record. The flag says whether it changed anything.
    pub(crate) async fn apply(
        &self,
        id: &ApprovalId,
        command: Command,
        by: &Principal,
    ) -> Result<(Approval, bool), Error> {
        let outcome = self.store.execute(Op::Apply { id: id.clone(), command, by: by.id.clone() }).await?;
        let applied = matches!(outcome, Outcome::Committed(_));
        Ok((self.approval_of(outcome, by)?, applied))
    }

    /// Begins a caller's epoch.
    pub(crate) async fn start_runtime(&self, by: &Principal) -> Result<EpochId, Error> {
        let op = Op::StartRuntime { epoch: mint::epoch(), kind: RuntimeKind::Caller, by: by.id.clone() };
        self.runtime(op).await
    }

    /// Keeps an epoch alive.
    pub(crate) async fn renew_runtime(&self, epoch: &EpochId, by: &PrincipalId) -> Result<EpochId, Error> {
        self.runtime(Op::RenewRuntime { epoch: epoch.clone(), by: by.clone() }).await
    }

    async fn runtime(&self, op: Op) -> Result<EpochId, Error> {
        commit(self.store.execute(op).await?, |answer| match answer {
            Answer::Runtime(runtime) => Some(runtime.epoch),
            _ => None,
        })
    }

    /// Creates a run.
    pub(crate) async fn create_run(
        &self,
        id: RunId,
        agent: String,
        by: &Principal,
    ) -> Result<holdgate_core::Run, Error> {
        self.held_run(Op::CreateRun { id, agent, by: by.id.clone() }).await
    }

    /// Takes, keeps or releases a run.
    pub(crate) async fn hold_run(
        &self,
        id: &RunId,
        command: RunCommand,
        by: &Principal,
    ) -> Result<holdgate_core::Run, Error> {
        self.held_run(Op::HoldRun { id: id.clone(), command, by: by.id.clone() }).await
    }

    async fn held_run(&self, op: Op) -> Result<holdgate_core::Run, Error> {
        commit(self.store.execute(op).await?, |answer| match answer {
            Answer::Run(run) => Some(run),
            _ => None,
        })
    }

    /// Reads a run. Only its owner can.
    pub(crate) async fn run(&self, id: &RunId, by: &Principal) -> Result<holdgate_core::Run, Error> {
        let run = self.store.run(id).await?.filter(|run| run.owner == by.id);
        run.ok_or_else(|| refused(&Refusal::NotFound))
    }

    /// Adds to a run's journal.
    pub(crate) async fn append(
        &self,
        append: Append,
        by: &Principal,
    ) -> Result<(holdgate_core::Run, Vec<Approval>), Error> {
        commit(self.store.execute(Op::Append { append, by: by.id.clone() }).await?, |answer| match answer {
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

    /// Remembers that a reviewer signed in, by the hash of the session's secret.
    ///
    /// # Errors
    /// Refuses an identity that may not review.
    pub async fn open_page_session(&self, hash: holdgate_core::Digest, by: &Principal) -> Result<(), Error> {
        let lasts_ms = holdgate_core::limits::PAGE_SESSION_MS;
        let op = Op::OpenPageSession { hash, by: by.id.clone(), lasts_ms };
        commit(self.store.execute(op).await?, |answer| matches!(answer, Answer::Done).then_some(()))
    }

    fn found(&self, seen: Seen, by: &Principal) -> Option<Found> {
        match seen.stored {
            Stored::Corrupt { id, .. } => by.may_review().then_some(Found::Corrupt(id)),
            Stored::Sound(approval) => by.may_see(&approval.requester.id).then(|| {
                let change = approval.reconcile(seen.bound, self.store.now());
                Found::Sound(change.map_or(approval, |change| Box::new(change.approval)))
            }),
        }
    }

    fn approval_of(&self, outcome: Outcome, by: &Principal) -> Result<Approval, Error> {
        match outcome {
            Outcome::Committed(Answer::Approval(approval))
            | Outcome::Duplicate(Answer::Approval(approval)) => Ok(*approval),
            Outcome::Refused(why, winner) => {
                let winner = winner.map(|approval| holdgate_wire::Approval::of(&approval, by, self.url()));
                Err(Problem::refused(&why, winner).into())
            }
            Outcome::Committed(_) | Outcome::Duplicate(_) => Err(misanswered()),
        }
    }
}

impl Found {
    fn status(&self) -> Status {
        match self {
            Found::Sound(approval) => approval.status(),
            Found::Corrupt(_) => Status::Denied,
        }
    }

    fn pending(&self) -> Option<&Approval> {
        match self {
            Found::Sound(approval) if approval.status() == Status::Pending => Some(approval),
            Found::Sound(_) | Found::Corrupt(_) => None,
        }
    }
}

/// A waiter looks again this often even if it hears nothing: a hint can be lost.
const POLL: Duration = Duration::from_secs(5);

pub(crate) fn commit<T>(outcome: Outcome, take: impl FnOnce(Answer) -> Option<T>) -> Result<T, Error> {
    match outcome {
        Outcome::Committed(answer) | Outcome::Duplicate(answer) => take(answer).ok_or_else(misanswered),
        Outcome::Refused(why, _) => Err(refused(&why)),
    }
}

fn refused(why: &Refusal) -> Error {
    Problem::refused(why, None).into()
}

fn misanswered() -> Error {
    Error::new(Code::Unavailable, "the store answered another question; nothing is known of this one")
}
