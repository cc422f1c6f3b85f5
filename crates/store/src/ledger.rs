//! What an operation can read and write inside a transaction. Each backend implements it once.
//!
//! Owns no decision: [`crate::perform`] decides with `holdgate-core` and calls these.

use holdgate_core::action::Digest;
use holdgate_core::approval::Bound;
use holdgate_core::audience::SessionEdges;
use holdgate_core::{
    Actor, AdministrationEvent, Approval, ApprovalId, EpochId, Event, PersonId, Principal, PrincipalId, Run,
    RunId, Scopes, Time,
};

use crate::{Device, Notice, Runtime, Stored};

/// The rows behind one transaction. Every read sees every earlier write of the same transaction.
pub trait Ledger {
    /// A failed read or write. The operation is undone and answered with it.
    type Error;

    /// An identity that is not revoked, and has a credential.
    fn principal(&mut self, id: &PrincipalId) -> Result<Option<Principal>, Self::Error>;
    /// An approval. One that is not there costs what one that is there and not told costs: the clock does not tell them
    /// apart.
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
    /// Whether `text` is the id or the reference of some approval, or was of one that has been removed.
    fn is_taken(&mut self, text: &str) -> Result<bool, Self::Error>;
    /// How many requests of an identity are pending, as stored.
    fn pending_of(&mut self, requester: &PrincipalId) -> Result<u32, Self::Error>;
    /// How many requests of an identity are pending in a session, as stored. The session is the first of their
    /// audience. Whoever names a session fills it for nobody else.
    fn pending_in(&mut self, requester: &PrincipalId, session_key: &str) -> Result<u32, Self::Error>;
    /// Whether everything, or this agent, is frozen.
    fn is_frozen(&mut self, agent: &PrincipalId) -> Result<bool, Self::Error>;
    /// Who owns a session, and who said so.
    fn session(&mut self, key: &str) -> Result<Option<(SessionEdges, PrincipalId)>, Self::Error>;
    /// Pending approvals of a run, stored or named as the source; of one requester, or of all.
    fn pending_of_run(
        &mut self,
        run: &str,
        requester: Option<&PrincipalId>,
        limit: u32,
    ) -> Result<Vec<ApprovalId>, Self::Error>;
    /// Approvals that ended before `before`, of which nothing is open any more, oldest first.
    fn outlived(&mut self, before: Time, limit: u32) -> Result<Vec<ApprovalId>, Self::Error>;
    /// Approvals that time or a lapsed lease has decided but nobody wrote down, oldest first.
    fn due(&mut self, now: Time, limit: u32) -> Result<Vec<ApprovalId>, Self::Error>;

    /// Adds an approval.
    fn insert_approval(&mut self, approval: &Approval, at: Time) -> Result<(), Self::Error>;
    /// Replaces what can change of an approval: votes and phase.
    fn update_approval(&mut self, approval: &Approval, at: Time) -> Result<(), Self::Error>;
    /// Keeps the sweep from finding an approval that does not decode again and again. Its row stays as it is.
    fn set_aside(&mut self, id: &ApprovalId, at: Time) -> Result<(), Self::Error>;
    /// Removes an approval with its votes and keys. Its facts stay, and its names stay taken.
    fn remove_approval(&mut self, id: &ApprovalId) -> Result<(), Self::Error>;
    /// Appends a fact. Answers its number.
    fn append_event(
        &mut self,
        id: &ApprovalId,
        event: &Event,
        by: &Actor,
        at: Time,
    ) -> Result<u64, Self::Error>;
    /// Appends a fact about who may act.
    fn append_administration(
        &mut self,
        event: &AdministrationEvent,
        by: &Actor,
        at: Time,
    ) -> Result<(), Self::Error>;
    /// Tells others after the commit.
    fn notify(&mut self, notice: Notice);
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
    /// Adds or replaces an identity.
    fn put_principal(
        &mut self,
        principal: &Principal,
        device: Option<&Device>,
        at: Time,
    ) -> Result<(), Self::Error>;
    /// Adds a credential of an identity. Answers whether it is new.
    fn put_credential(&mut self, hash: Digest, of: &PrincipalId, at: Time) -> Result<bool, Self::Error>;
    /// Forgets all credentials of an identity but the `keep` newest, and, if none stays, its page sessions.
    fn drop_credentials(&mut self, of: &PrincipalId, keep: u32) -> Result<(), Self::Error>;
    /// Marks an identity as ended.
    fn revoke_principal(&mut self, id: &PrincipalId, at: Time) -> Result<(), Self::Error>;
    /// What is known of a device, revoked or not.
    fn device(&mut self, id: &PrincipalId) -> Result<Option<Device>, Self::Error>;
    /// Adds a pairing code and forgets those that have lapsed.
    fn put_pairing(
        &mut self,
        code: Digest,
        person: &PersonId,
        scopes: Scopes,
        until: Time,
        now: Time,
    ) -> Result<(), Self::Error>;
    /// Spends a pairing code: whose device it pairs, and with which scopes.
    fn take_pairing(&mut self, code: Digest, now: Time) -> Result<Option<(PersonId, Scopes)>, Self::Error>;
    /// Freezes an agent, or everything.
    fn put_freeze(
        &mut self,
        agent: Option<&PrincipalId>,
        reason: Option<&str>,
        by: &Actor,
        at: Time,
    ) -> Result<(), Self::Error>;
    /// Thaws an agent, or what was frozen for everybody. Answers whether it was frozen.
    fn drop_freeze(&mut self, agent: Option<&PrincipalId>) -> Result<bool, Self::Error>;
    /// Replaces who belongs to which group. Answers whether that changed anything.
    fn put_groups(
        &mut self,
        groups: &std::collections::BTreeMap<String, Vec<PersonId>>,
    ) -> Result<bool, Self::Error>;
    /// Adds or replaces who owns a session.
    fn put_session(
        &mut self,
        key: &str,
        edges: &SessionEdges,
        by: &PrincipalId,
        at: Time,
    ) -> Result<(), Self::Error>;
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
            Binding::Checkpoint(run) => match self.run(run)? {
                None => Bound::CallerGone,
                Some(run) if run.state.is_final() => Bound::RunEnded,
                Some(run) => Bound::Run { fence: run.fence, held: run.is_held(now) },
            },
        })
    }
}
