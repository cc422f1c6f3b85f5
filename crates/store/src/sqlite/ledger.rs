//! The rows of one SQLite transaction, as [`perform`](crate::perform) reads and writes them.
//!
//! Owns no transaction: the writer begins and ends it.

use holdgate_core::action::Digest;
use holdgate_core::approval::{Actor, Binding};
use holdgate_core::limits::{RUN_LEASE_MS, RUNTIME_LEASE_MS};
use holdgate_core::{Approval, ApprovalId, EpochId, Event, Principal, PrincipalId, Run, RunId, Time};
use rusqlite::{Connection, Error, OptionalExtension as _, Params, Row, params};

use super::{row, sql};
use crate::ledger::Ledger;
use crate::{Runtime, RuntimeKind, Stored};

/// The rows behind a connection that is inside a transaction.
pub(super) struct SqliteLedger<'c> {
    conn: &'c Connection,
    /// The approvals that were changed, to tell others after the commit.
    pub(super) changed: Vec<ApprovalId>,
    /// Whether a gateway's epoch was begun.
    pub(super) gateway_started: bool,
    /// Whether a token was added or replaced.
    pub(super) token_changed: bool,
}

impl<'c> SqliteLedger<'c> {
    /// Reads and writes through `conn`.
    pub(super) fn new(conn: &'c Connection) -> Self {
        Self { conn, changed: Vec::new(), gateway_started: false, token_changed: false }
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
        rows.next()?.map_or(Ok(None), |found| row::stored(self.conn, found))
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

    fn due(&mut self, now: Time, limit: u32) -> Result<Vec<ApprovalId>, Error> {
        let mut due: Vec<ApprovalId> = Vec::new();
        for statement in [sql::DUE_BY_DEADLINE, sql::DUE_BY_EPOCH, sql::DUE_BY_CLAIM] {
            let left = limit.saturating_sub(u32::try_from(due.len()).unwrap_or(u32::MAX));
            let mut statement = self.conn.prepare_cached(statement)?;
            let mut rows = statement.query(params![now.as_ms(), left])?;
            while let Some(found) = rows.next()? {
                let text: String = found.get(0)?;
                match text.parse() {
                    // Past its deadline and without its epoch: found twice, due once.
                    Ok(id) if due.contains(&id) => {}
                    Ok(id) => due.push(id),
                    Err(why) => {
                        tracing::error!(%why, "an approval without a readable id is left out")
                    }
                }
            }
        }
        Ok(due)
    }

    fn insert_approval(&mut self, approval: &Approval, _at: Time) -> Result<(), Error> {
        let (epoch, run) = match &approval.binding {
            Binding::Runtime(epoch) => (Some(epoch.as_str()), None),
            Binding::Checkpoint(run) => (None, Some(run.as_str())),
        };
        let source = &approval.source;
        self.write_one(
            sql::INSERT_APPROVAL,
            params![
                approval.id.as_str(),
                approval.kind.as_str(),
                approval.boundary,
                approval.digest.to_hex(),
                approval.content.as_ref().map(holdgate_core::Canonical::as_str),
                json(&approval.presentation)?,
                approval.reason,
                source.agent,
                source.session,
                source.task_id,
                source.tool_call_id,
                source.tool_name,
                approval.requester.id.as_str(),
                approval.requester.kind.as_str(),
                approval.requester.label,
                epoch,
                run,
                json(&approval.requirement)?,
                approval.created_at.as_ms(),
                approval.expires_at.as_ms(),
            ],
        )?;
        self.changed.push(approval.id.clone());
        Ok(())
    }

    fn update_approval(&mut self, approval: &Approval, _at: Time) -> Result<(), Error> {
        let (end, claim) = (approval.end(), approval.claim());
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
                claim.map(|claim| claim.id.as_str()),
                claim.map(|claim| claim.at.as_ms()),
                claim.and_then(|claim| claim.fence).map(|fence| integer(fence.0)).transpose()?,
                receipt.map(|receipt| receipt.outcome.as_str()),
                receipt.and_then(|receipt| receipt.detail.as_deref()),
                receipt.map(|receipt| receipt.at.as_ms()),
            ],
        )?;
        for (position, vote) in (0i64..).zip(&approval.votes) {
            let Actor { id, kind, label } = &vote.voter;
            let values = params![
                approval.id.as_str(),
                position,
                vote.decision.as_str(),
                id.as_str(),
                kind.as_str(),
                label,
                vote.at.as_ms(),
                vote.reason,
            ];
            self.write_one(sql::PUT_VOTE, values)?;
        }
        self.changed.push(approval.id.clone());
        Ok(())
    }

    fn set_aside(&mut self, id: &ApprovalId, at: Time) -> Result<(), Error> {
        self.write_one(sql::SET_ASIDE, params![id.as_str(), at.as_ms()])?;
        self.changed.push(id.clone());
        Ok(())
    }

    fn append_event(&mut self, id: &ApprovalId, event: &Event, by: &Actor, at: Time) -> Result<(), Error> {
        let values =
            params![id.as_str(), at.as_ms(), json(event)?, by.id.as_str(), by.kind.as_str(), by.label];
        self.write_one(sql::APPEND_EVENT, values)
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
        self.write_one(sql::PUT_RUN, values)
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

    fn put_credential(&mut self, hash: Digest, principal: &Principal, at: Time) -> Result<(), Error> {
        self.token_changed = true;
        let (id, hash) = (principal.id.as_str(), hash.to_hex());
        self.write_one(
            sql::PUT_PRINCIPAL,
            params![id, principal.kind.as_str(), principal.label, at.as_ms()],
        )?;
        if self.one(sql::TOKEN_OF, [id], |row| row.get::<_, String>(0))?.as_ref() == Some(&hash) {
            return Ok(());
        }
        self.write(sql::DROP_TOKEN, [id])?;
        // What was opened with the earlier credential ends with it.
        self.write(sql::DROP_PAGE_SESSIONS, [id])?;
        self.write_one(sql::PUT_TOKEN, params![hash, id, at.as_ms()])
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

fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| Error::ToSqlConversionFailure(Box::new(e)))
}

/// SQLite's integers are signed.
fn integer(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|e| Error::ToSqlConversionFailure(Box::new(e)))
}
