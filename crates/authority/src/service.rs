//! The spine: each use case on one screen, as one identity, over a store.

mod identities;
mod reading;
mod runs;
mod scans;

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, PoisonError, RwLock};

use holdgate_core::approval::Status;
use holdgate_core::{Approval, ApprovalId, Command, EpochId, Principal, Refusal};
use holdgate_store::{Answer, By, IdempotencyKey, Notice, Op, Outcome, Store};
use holdgate_wire::{Code, Links, Problem};
use tokio::sync::broadcast;

use crate::error::Error;
use crate::policy::Policy;
use crate::sweep::OwnEpoch;
use crate::wait::Waiters;
use crate::{convert, observe};

pub use reading::Page;
use scans::Scans;

/// In what capacity this process keeps the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves others. Its instance's earlier epochs end now.
    Gateway {
        /// A stable name.
        instance: String,
        /// Where reviewers reach it, for links: an origin and the path that everything is under.
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

/// The authority over one store.
pub struct Service {
    store: Arc<dyn Store>,
    own: Option<OwnEpoch>,
    links: Links,
    policy: RwLock<Arc<Policy>>,
    /// When to look again for records that were kept for long enough, by the authority's time.
    pub(crate) next_prune_ms: AtomicI64,
    waiters: Waiters,
    /// For reads that go through many records.
    scans: Scans,
}

impl Service {
    /// Takes up the authority. A gateway begins its epoch here, which ends those of its earlier lives.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn start(store: Arc<dyn Store>, role: Role) -> Result<Arc<Self>, Error> {
        if matches!(role, Role::Gateway { .. }) {
            // Before the epoch: its beginning ends what waited on the earlier ones.
            observe::start(&store);
        }
        let (own, links) = match role {
            Role::Embedded => (None, Links::default()),
            Role::Gateway { instance, url } => {
                (Some(OwnEpoch::begin(&*store, instance).await?), Links::under(&url))
            }
        };
        let waiters = Waiters::new(store.notices());
        let policy = RwLock::new(Arc::new(Policy::default()));
        let scans = Scans::default();
        Ok(Arc::new(Self { store, own, links, policy, next_prune_ms: AtomicI64::new(0), waiters, scans }))
    }

    /// Puts a configuration in force, for every request from now on.
    ///
    /// # Errors
    /// Fails if the store does; then the earlier one stays in force.
    pub async fn put_policy(&self, policy: Policy) -> Result<(), Error> {
        let put = Op::PutGroups { groups: policy.groups.clone() };
        commit(self.store.execute(put).await?, |answer| matches!(answer, Answer::Done).then_some(()))?;
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        Ok(())
    }

    /// The configuration in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears of every commit, in order. A receiver that is too slow misses some: the rows are the truth.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.store.notices()
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

    /// Where this authority's pages are.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Opens a request. The flag says whether this call made it.
    pub(crate) async fn open(
        &self,
        prepared: convert::Prepared,
        key: Option<IdempotencyKey>,
        by: &Principal,
    ) -> Result<(Approval, bool), Error> {
        let convert::Prepared { draft, fence } = prepared;
        let (draft, caps) = (Box::new(draft), self.policy().caps);
        let outcome = self.store.execute(Op::Open { draft, fence, by: by.into(), key, caps }).await?;
        let is_new = matches!(outcome, Outcome::Committed(_));
        Ok((self.approval_of(outcome, by)?, is_new))
    }

    /// Applies a command to a record. The flag says whether it changed anything.
    ///
    /// # Errors
    /// Why not, with the record as it stands where `by` may read it.
    pub async fn apply(
        &self,
        id: &ApprovalId,
        command: Command,
        by: &Principal,
    ) -> Result<(Approval, bool), Error> {
        let is_vote = matches!(command, Command::Vote { .. });
        let outcome = self.store.execute(Op::Apply { id: id.clone(), command, by: by.into() }).await?;
        if is_vote {
            observe::race(&outcome);
        }
        let applied = matches!(outcome, Outcome::Committed(_));
        Ok((self.approval_of(outcome, by)?, applied))
    }

    /// Says that this gateway goes: what waits on its epoch ends now instead of with its lease.
    pub async fn leave(&self) {
        let Some(own) = &self.own else {
            return;
        };
        let end = Op::EndRuntime { epoch: own.current(), by: By::from(&Principal::authority()) };
        if let Err(error) = self.store.execute(end).await {
            tracing::warn!(%error, "this gateway's epoch could not be ended; it lapses by itself");
        }
    }

    fn approval_of(&self, outcome: Outcome, by: &Principal) -> Result<Approval, Error> {
        match outcome {
            Outcome::Committed(Answer::Approval(approval))
            | Outcome::Duplicate(Answer::Approval(approval)) => Ok(*approval),
            Outcome::Refused(why, winner) => {
                let winner = winner.map(|approval| holdgate_wire::Approval::of(&approval, by, &self.links));
                Err(Problem::refused(&why, winner).into())
            }
            Outcome::Committed(_) | Outcome::Duplicate(_) => Err(misanswered()),
        }
    }
}

impl Found {
    /// Where it stands.
    pub fn status(&self) -> Status {
        match self {
            Found::Sound(approval) => approval.status(),
            Found::Corrupt(_) => Status::Denied,
        }
    }

    /// Its id.
    pub fn id(&self) -> &ApprovalId {
        match self {
            Found::Sound(approval) => &approval.id,
            Found::Corrupt(id) => id,
        }
    }

    fn pending(&self) -> Option<&Approval> {
        match self {
            Found::Sound(approval) if approval.status() == Status::Pending => Some(approval),
            Found::Sound(_) | Found::Corrupt(_) => None,
        }
    }
}

pub(crate) fn commit<T>(outcome: Outcome, take: impl FnOnce(Answer) -> Option<T>) -> Result<T, Error> {
    match outcome {
        Outcome::Committed(answer) | Outcome::Duplicate(answer) => take(answer).ok_or_else(misanswered),
        Outcome::Refused(why, _) => Err(refused(&why)),
    }
}

pub(crate) fn refused(why: &Refusal) -> Error {
    Problem::refused(why, None).into()
}

fn misanswered() -> Error {
    Error::new(Code::Unavailable, "the store answered another question; nothing is known of this one")
}
