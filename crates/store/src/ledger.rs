//! What an operation can read and write inside a transaction. Each backend implements it once.
//!
//! Owns no decision: [`crate::perform`] decides with `holdgate-core` and calls these.

use holdgate_core::action::Digest;
use holdgate_core::approval::{Actor, Bound};
use holdgate_core::{Approval, ApprovalId, EpochId, Event, Principal, PrincipalId, Run, RunId, Time};

use crate::{Runtime, Stored};

/// The rows behind one transaction. Every read sees every earlier write of the same transaction.
pub trait Ledger {
    /// A failed read or write. The operation is undone and answered with it.
    type Error;

    /// An identity that is not revoked.
    fn principal(&mut self, id: &PrincipalId) -> Result<Option<Principal>, Self::Error>;
    /// An approval.
    fn approval(&mut self, id: &ApprovalId) -> Result<Option<Stored>, Self::Error>;
    /// An epoch.
    fn runtime(&mut self, epoch: &EpochId) -> Result<Option<Runtime>, Self::Error>;
    /// A run.
    fn run(&mut self, id: &RunId) -> Result<Option<Run>, Self::Error>;
    /// What a principal used a key for: the hash of the body, and the approval.
    fn idempotency(
        &mut self,
        by: &PrincipalId,
        key: &str,
    ) -> Result<Option<(Digest, ApprovalId)>, Self::Error>;
    /// Approvals that time or a lapsed lease has decided but nobody wrote down, oldest first.
    fn due(&mut self, now: Time, limit: u32) -> Result<Vec<ApprovalId>, Self::Error>;

    /// Adds an approval.
    fn insert_approval(&mut self, approval: &Approval, at: Time) -> Result<(), Self::Error>;
    /// Replaces what can change of an approval: votes and phase.
    fn update_approval(&mut self, approval: &Approval, at: Time) -> Result<(), Self::Error>;
    /// Keeps the sweep from finding an approval that does not decode again and again. Its row stays as it is.
    fn set_aside(&mut self, id: &ApprovalId, at: Time) -> Result<(), Self::Error>;
    /// Appends a fact.
    fn append_event(
        &mut self,
        id: &ApprovalId,
        event: &Event,
        by: &Actor,
        at: Time,
    ) -> Result<(), Self::Error>;
    /// Remembers a key.
    fn put_idempotency(
        &mut self,
        by: &PrincipalId,
        key: &str,
        body: Digest,
        approval: &ApprovalId,
        at: Time,
    ) -> Result<(), Self::Error>;
    /// Adds or replaces an epoch.
    fn put_runtime(&mut self, runtime: &Runtime, at: Time) -> Result<(), Self::Error>;
    /// Ends the earlier epochs of a gateway's instance. Gives every caller and runner a full lease that had one
    /// of the gateway that worked until `served_until`, then still running: it could not renew while no gateway ran.
    fn succeed_gateway(&mut self, instance: &str, served_until: Time, now: Time) -> Result<(), Self::Error>;
    /// Adds or replaces a run.
    fn put_run(&mut self, run: &Run) -> Result<(), Self::Error>;
    /// Adds events to a run's journal; the first has number `first_seq`.
    fn append_journal(
        &mut self,
        run: &RunId,
        first_seq: u64,
        events: &[String],
        at: Time,
    ) -> Result<(), Self::Error>;
    /// Adds or replaces an identity and its only credential.
    fn put_credential(&mut self, hash: Digest, principal: &Principal, at: Time) -> Result<(), Self::Error>;
    /// Adds a page session and forgets those that have lapsed.
    fn put_page_session(
        &mut self,
        hash: Digest,
        by: &PrincipalId,
        until: Time,
        now: Time,
    ) -> Result<(), Self::Error>;

    /// The last commit made while a gateway was at work: until then, leases could be renewed with it.
    fn served_until(&mut self) -> Result<Time, Self::Error>;

    /// What is known about what waits behind an approval.
    fn bound(&mut self, approval: &Approval, now: Time) -> Result<Bound, Self::Error> {
        use holdgate_core::approval::Binding;
        Ok(match &approval.binding {
            Binding::Runtime(epoch) => {
                self.runtime(epoch)?.map_or(Bound::CallerGone, |runtime| runtime.bound(now))
            }
            Binding::Checkpoint(run) => self
                .run(run)?
                .map_or(Bound::CallerGone, |run| Bound::Run { fence: run.fence, held: run.is_held(now) }),
        })
    }
}
