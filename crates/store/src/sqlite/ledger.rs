//! The rows of one SQLite transaction, as [`perform`](crate::perform) reads and writes them.
//!
//! Owns no transaction: the writer begins and ends it.

use std::collections::BTreeMap;

use holdgate_core::action::Digest;
use holdgate_core::approval::Binding;
use holdgate_core::audience::SessionEdges;
use holdgate_core::limits::{RUN_LEASE_MS, RUNTIME_LEASE_MS};
use holdgate_core::{
    Actor, AdministrationEvent, Approval, ApprovalId, EpochId, Event, PersonId, Principal, PrincipalId, Run,
    RunId, Scopes, Time,
};
use rusqlite::{Connection, Error, OptionalExtension as _, Params, Row, params};

use super::{decoy, row, sql};
use crate::ledger::Ledger;
use crate::{Device, Notice, Runtime, RuntimeKind, Stored};

mod identities;

/// The rows behind a connection that is inside a transaction.
pub(super) struct SqliteLedger<'c> {
    conn: &'c Connection,
    /// What to tell others after the commit, in order.
    pub(super) notices: Vec<Notice>,
    /// Whether a gateway's epoch was begun.
    pub(super) gateway_started: bool,
    /// Whether an identity, a credential or a group was changed.
    pub(super) identities_changed: bool,
}

impl<'c> SqliteLedger<'c> {
    /// Reads and writes through `conn`.
    pub(super) fn new(conn: &'c Connection) -> Self {
        Self { conn, notices: Vec::new(), gateway_started: false, identities_changed: false }
    }

    fn one<T>(
        &self,
        statement: &str,
        params: impl Params,
        decode: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.conn.prepare_cached(statement)?.query_row(params, decode).optional()
    }

    fn write(&self, statement: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.conn.prepare_cached(statement)?.execute(params)
    }

    /// The ids that a statement selects, in its order. What cannot be called by a name is left out.
    fn ids(&self, statement: &str, params: impl Params) -> rusqlite::Result<Vec<ApprovalId>> {
        let mut statement = self.conn.prepare_cached(statement)?;
        let mut rows = statement.query(params)?;
        let mut ids = Vec::new();
        while let Some(found) = rows.next()? {
            match found.get::<_, String>(0)?.parse() {
                Ok(id) => ids.push(id),
                Err(why) => tracing::error!(%why, "an approval without a readable id is left out"),
            }
        }
        Ok(ids)
    }

    fn tally(&self, statement: &str, of: [&str; 2]) -> rusqlite::Result<u32> {
        let pending: Option<i64> = self.one(statement, of, |row| row.get(0))?;
        Ok(u32::try_from(pending.unwrap_or(0).max(0)).unwrap_or(u32::MAX))
    }

    /// Writes exactly one row.
    fn write_one(&self, statement: &str, params: impl Params) -> rusqlite::Result<()> {
        match self.write(statement, params)? {
            1 => Ok(()),
            other => Err(Error::StatementChangedRows(other)),
        }
    }
}

impl Ledger for SqliteLedger<'_> {
    type Error = Error;

    fn principal(&mut self, id: &PrincipalId) -> Result<Option<Principal>, Error> {
        self.one(sql::PRINCIPAL, [id.as_str()], row::principal)
    }

    fn approval(&mut self, id: &ApprovalId) -> Result<Option<Stored>, Error> {
        let mut statement = self.conn.prepare_cached(sql::APPROVAL)?;
        let mut rows = statement.query([id.as_str()])?;
        match rows.next()? {
            Some(found) => row::stored(self.conn, found),
            None => {
                decoy::read(self.conn, id.as_str(), |found| row::stored(self.conn, found))?;
                Ok(None)
            }
        }
    }

    fn runtime(&mut self, epoch: &EpochId) -> Result<Option<Runtime>, Error> {
        self.one(sql::RUNTIME, [epoch.as_str()], row::runtime)
    }

    fn run(&mut self, id: &RunId) -> Result<Option<Run>, Error> {
        self.one(sql::RUN, [id.as_str()], row::run)
    }

    fn idempotency(&mut self, by: &PrincipalId, key: &str) -> Result<Option<(Digest, ApprovalId)>, Error> {
        self.one(sql::IDEMPOTENCY, [by.as_str(), key], row::idempotency)
    }

    fn is_taken(&mut self, text: &str) -> Result<bool, Error> {
        self.conn.prepare_cached(sql::IS_TAKEN)?.query_row([text], |row| row.get(0))
    }

    fn pending_of(&mut self, requester: &PrincipalId) -> Result<u32, Error> {
        self.tally(sql::TALLY, ["requester", requester.as_str()])
    }

    fn pending_in(&mut self, requester: &PrincipalId, session_key: &str) -> Result<u32, Error> {
        self.tally(sql::TALLY_IN_SESSION, [requester.as_str(), session_key])
    }

    fn is_frozen(&mut self, agent: &PrincipalId) -> Result<bool, Error> {
        self.conn.prepare_cached(sql::IS_FROZEN)?.query_row([agent.as_str()], |row| row.get(0))
    }

    fn session(&mut self, key: &str) -> Result<Option<(SessionEdges, PrincipalId)>, Error> {
        match self.one(sql::SESSION, [key], row::session) {
            Err(Error::FromSqlConversionFailure(_, _, why)) => {
                tracing::error!(%why, "a session that does not decode counts as owned by nobody");
                Ok(None)
            }
            found => found,
        }
    }

    fn pending_of_run(
        &mut self,
        run: &str,
        requester: Option<&PrincipalId>,
        limit: u32,
    ) -> Result<Vec<ApprovalId>, Error> {
        self.ids(sql::PENDING_OF_RUN, params![run, requester.map(PrincipalId::as_str), limit])
    }

    fn outlived(&mut self, before: Time, limit: u32) -> Result<Vec<ApprovalId>, Error> {
        self.ids(sql::OUTLIVED, params![before.as_ms(), limit])
    }

    fn due(&mut self, now: Time, limit: u32) -> Result<Vec<ApprovalId>, Error> {
        let mut due: Vec<ApprovalId> = Vec::new();
        for statement in [sql::DUE_BY_DEADLINE, sql::DUE_BY_EPOCH, sql::DUE_BY_RUN, sql::DUE_BY_CLAIM] {
            let left = limit.saturating_sub(u32::try_from(due.len()).unwrap_or(u32::MAX));
            for id in self.ids(statement, params![now.as_ms(), left])? {
                // Past its deadline and without its epoch: found twice, due once.
                if !due.contains(&id) {
                    due.push(id);
                }
            }
        }
        Ok(due)
    }

    fn insert_approval(&mut self, approval: &Approval, at: Time) -> Result<(), Error> {
        let (epoch, run) = match &approval.binding {
            Binding::Runtime(epoch) => (Some(epoch.as_str()), None),
            Binding::Checkpoint(run) => (None, Some(run.as_str())),
        };
        let (source, requester) = (&approval.source, &approval.requester);
        self.write_one(
            sql::INSERT_APPROVAL,
            params![
                approval.id.as_str(),
                approval.reference(),
                approval.kind.as_str(),
                approval.boundary,
                approval.digest.to_hex(),
                approval.content.as_ref().map(holdgate_core::Canonical::as_str),
                json(&approval.presentation)?,
                approval.reason,
                source.agent,
                source.session,
                source.session_id,
                source.run_id,
                source.task_id,
                source.tool_call_id,
                source.tool_name,
                requester.id.as_str(),
                requester.kind.as_str(),
                requester.label,
                person(requester),
                approval.client,
                json(&approval.audience)?,
                approval.v4_request,
                epoch,
                run,
                json(&approval.requirement)?,
                approval.created_at.as_ms(),
                approval.expires_at.as_ms(),
                at.as_ms(),
            ],
        )
    }

    fn update_approval(&mut self, approval: &Approval, at: Time) -> Result<(), Error> {
        let (end, claim, revocation) = (approval.end(), approval.claim(), approval.revocation());
        let receipt = claim.and_then(|claim| claim.receipt.as_ref());
        self.write_one(
            sql::UPDATE_APPROVAL,
            params![
                approval.id.as_str(),
                approval.status().as_str(),
                approval.decision().map(|decision| decision.as_str()),
                end.map(|end| end.reason.as_str()),
                end.map(|end| end.at.as_ms()),
                end.map(|end| end.by.id.as_str()),
                end.map(|end| end.by.kind.as_str()),
                end.map(|end| end.by.label.as_str()),
                end.and_then(|end| person(&end.by)),
                claim.map(|claim| claim.id.as_str()),
                claim.map(|claim| claim.at.as_ms()),
                claim.and_then(|claim| claim.fence).map(|fence| integer(fence.0)).transpose()?,
                receipt.map(|receipt| receipt.outcome.as_str()),
                receipt.and_then(|receipt| receipt.detail.as_deref()),
                receipt.map(|receipt| receipt.at.as_ms()),
                revocation.map(|revocation| revocation.at.as_ms()),
                revocation.map(|revocation| revocation.by.id.as_str()),
                revocation.map(|revocation| revocation.by.kind.as_str()),
                revocation.map(|revocation| revocation.by.label.as_str()),
                revocation.and_then(|revocation| person(&revocation.by)),
                revocation.and_then(|revocation| revocation.reason.as_deref()),
                at.as_ms(),
            ],
        )?;
        for (position, vote) in (0i64..).zip(&approval.votes) {
            let values = params![
                approval.id.as_str(),
                position,
                vote.decision.as_str(),
                vote.voter.id.as_str(),
                vote.voter.kind.as_str(),
                vote.voter.label,
                person(&vote.voter),
                vote.at.as_ms(),
                vote.reason,
            ];
            // One that stands already is not written again.
            self.write(sql::PUT_VOTE, values)?;
        }
        Ok(())
    }

    fn set_aside(&mut self, id: &ApprovalId, at: Time) -> Result<(), Error> {
        self.write_one(sql::SET_ASIDE, params![id.as_str(), at.as_ms()])
    }

    fn remove_approval(&mut self, id: &ApprovalId) -> Result<(), Error> {
        self.write(sql::REMOVE_VOTES, [id.as_str()])?;
        self.write(sql::REMOVE_KEYS, [id.as_str()])?;
        self.write_one(sql::REMOVE_APPROVAL, [id.as_str()])
    }

    fn append_event(&mut self, id: &ApprovalId, event: &Event, by: &Actor, at: Time) -> Result<u64, Error> {
        let values = params![
            id.as_str(),
            at.as_ms(),
            json(event)?,
            by.id.as_str(),
            by.kind.as_str(),
            by.label,
            person(by)
        ];
        self.write_one(sql::APPEND_EVENT, values)?;
        // Rows are numbered from 1.
        Ok(self.conn.last_insert_rowid().unsigned_abs())
    }

    fn append_administration(
        &mut self,
        event: &AdministrationEvent,
        by: &Actor,
        at: Time,
    ) -> Result<(), Error> {
        let (id, kind) = (by.id.as_str(), by.kind.as_str());
        let values = params![at.as_ms(), json(event)?, id, kind, by.label, person(by)];
        self.write_one(sql::APPEND_ADMINISTRATION, values)
    }

    fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    fn put_idempotency(
        &mut self,
        by: &PrincipalId,
        key: &str,
        body: Digest,
        approval: &ApprovalId,
        at: Time,
    ) -> Result<(), Error> {
        let values = params![by.as_str(), key, body.to_hex(), approval.as_str(), at.as_ms()];
        self.write_one(sql::PUT_IDEMPOTENCY, values)
    }

    fn put_runtime(&mut self, runtime: &Runtime, at: Time) -> Result<(), Error> {
        let (kind, instance) = match &runtime.kind {
            RuntimeKind::Gateway { instance } => ("gateway", Some(instance)),
            RuntimeKind::Caller => ("caller", None),
        };
        self.gateway_started |= instance.is_some();
        let lease_until = runtime.lease_until.as_ms();
        let ended_at = runtime.ended.then_some(at.as_ms());
        let owner = runtime.owner.as_str();
        let values =
            params![runtime.epoch.as_str(), kind, instance, owner, at.as_ms(), lease_until, ended_at];
        self.write_one(sql::PUT_RUNTIME, values)
    }

    fn succeed_gateway(&mut self, instance: &str, served_until: Time, now: Time) -> Result<(), Error> {
        self.write(sql::END_EARLIER_EPOCHS, params![instance, now.as_ms()])?;
        for (statement, lease_ms) in
            [(sql::SPARE_CALLERS, RUNTIME_LEASE_MS), (sql::SPARE_RUNNERS, RUN_LEASE_MS)]
        {
            // A lease that ends later was not of that gateway: it was taken while none ran.
            let latest = served_until.plus_ms(lease_ms).as_ms();
            self.write(statement, params![served_until.as_ms(), now.plus_ms(lease_ms).as_ms(), latest])?;
        }
        Ok(())
    }

    fn put_run(&mut self, run: &Run) -> Result<(), Error> {
        let values = params![
            run.id.as_str(),
            run.owner.as_str(),
            run.agent,
            run.state.as_str(),
            integer(run.fence.0)?,
            run.held_until.map(Time::as_ms),
            integer(run.last_seq)?,
            run.created_at.as_ms(),
            run.updated_at.as_ms(),
        ];
        self.write_one(sql::PUT_RUN, values)?;
        if run.state.is_final() {
            self.write(sql::REMEMBER_ENDED_RUN, [run.id.as_str()])?;
        }
        Ok(())
    }

    fn append_journal(
        &mut self,
        run: &RunId,
        first_seq: u64,
        events: &[String],
        at: Time,
    ) -> Result<(), Error> {
        for (seq, event) in (first_seq..).zip(events) {
            self.write_one(sql::APPEND_JOURNAL, params![run.as_str(), integer(seq)?, at.as_ms(), event])?;
        }
        Ok(())
    }

    fn put_principal(
        &mut self,
        principal: &Principal,
        device: Option<&Device>,
        at: Time,
    ) -> Result<(), Error> {
        self.write_principal(principal, device, at)
    }

    fn put_credential(&mut self, hash: Digest, of: &PrincipalId, at: Time) -> Result<bool, Error> {
        self.write_credential(hash, of, at)
    }

    fn drop_credentials(&mut self, of: &PrincipalId, keep: u32) -> Result<(), Error> {
        self.delete_credentials(of, keep)
    }

    fn revoke_principal(&mut self, id: &PrincipalId, at: Time) -> Result<(), Error> {
        self.identities_changed = true;
        self.write_one(sql::REVOKE_PRINCIPAL, params![id.as_str(), at.as_ms()])
    }

    fn device(&mut self, id: &PrincipalId) -> Result<Option<Device>, Error> {
        self.one(sql::DEVICE, [id.as_str()], row::device)
    }

    fn put_pairing(
        &mut self,
        code: Digest,
        person: &PersonId,
        scopes: Scopes,
        until: Time,
        now: Time,
    ) -> Result<(), Error> {
        self.write(sql::PRUNE_PAIRINGS, [now.as_ms()])?;
        let (hash, scopes) = (code.to_hex(), scopes.to_string());
        let values = params![hash, person.as_str(), scopes, now.as_ms(), until.as_ms()];
        self.write_one(sql::PUT_PAIRING, values)
    }

    fn take_pairing(&mut self, code: Digest, now: Time) -> Result<Option<(PersonId, Scopes)>, Error> {
        self.write(sql::PRUNE_PAIRINGS, [now.as_ms()])?;
        self.one(sql::TAKE_PAIRING, params![code.to_hex(), now.as_ms()], row::pairing)
    }

    fn put_freeze(
        &mut self,
        agent: Option<&PrincipalId>,
        reason: Option<&str>,
        by: &Actor,
        at: Time,
    ) -> Result<(), Error> {
        let agent = agent.map_or("", PrincipalId::as_str);
        self.write_one(sql::PUT_FREEZE, params![agent, at.as_ms(), by.label, reason])
    }

    fn drop_freeze(&mut self, agent: Option<&PrincipalId>) -> Result<bool, Error> {
        let agent = agent.map_or("", PrincipalId::as_str);
        Ok(self.write(sql::DROP_FREEZE, [agent])? > 0)
    }

    fn put_groups(&mut self, groups: &BTreeMap<String, Vec<PersonId>>) -> Result<bool, Error> {
        self.write_groups(groups)
    }

    fn put_session(
        &mut self,
        key: &str,
        edges: &SessionEdges,
        by: &PrincipalId,
        at: Time,
    ) -> Result<(), Error> {
        let SessionEdges { controller, requester, parent, spawned_by } = edges;
        let values = params![key, by.as_str(), controller, requester, parent, spawned_by, at.as_ms()];
        self.write_one(sql::PUT_SESSION, values)
    }

    fn put_page_session(
        &mut self,
        hash: Digest,
        by: &PrincipalId,
        until: Time,
        now: Time,
    ) -> Result<(), Error> {
        self.write(sql::PRUNE_PAGE_SESSIONS, [now.as_ms()])?;
        self.write_one(sql::PUT_PAGE_SESSION, params![hash.to_hex(), by.as_str(), now.as_ms(), until.as_ms()])
    }

    fn served_until(&mut self) -> Result<Time, Error> {
        self.conn.prepare_cached(sql::SERVED_UNTIL)?.query_row([], |row| row.get(0)).map(Time::from_ms)
    }
}

fn person(actor: &Actor) -> Option<&str> {
    actor.person.as_ref().map(PersonId::as_str)
}

fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| Error::ToSqlConversionFailure(Box::new(e)))
}

/// SQLite's integers are signed.
fn integer(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|e| Error::ToSqlConversionFailure(Box::new(e)))
}
