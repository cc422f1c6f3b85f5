//! The authority in this process, as one identity. The gateway answers the network with it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdgate_core::approval::{Outcome, TerminalReason};
use holdgate_core::audience::{SessionEdges, session_key};
use holdgate_core::limits::{
    APPEND_APPROVALS, APPEND_EVENTS, EVENT_BYTES, EVENTS_PAGE, IDEMPOTENCY_KEY_CHARS, RUNTIME_LEASE_MS,
    WAIT_MS,
};
use holdgate_core::run::{RunCommand, RunState};
use holdgate_core::{Canonical, Command, Digest, Fence, Principal, Refusal, RunId};
use holdgate_store::{Append, IdempotencyKey, JournalEntry, mint};
use holdgate_wire::request::SettledOutcome;
use holdgate_wire::{
    AppendEvents, Appended, Approval, ApprovalPage, Cancel, Claim, Code, CreateApproval, CreateRun, Decide,
    Decided, JournalPage, LeaseRun, ListApprovals, ListHistory, MakeClaim, PutSession, Revoke, Run,
    RunBinding, Runtime, Settle,
};

use crate::convert::{self, invalid};
use crate::error::Error;
use crate::service::{Found, Page, Service, refused};
use crate::{Authority, Created, Protocol};

/// The authority over this process's own store, as one authenticated identity.
#[derive(Clone)]
pub struct Local {
    service: Arc<Service>,
    principal: Principal,
}

impl Local {
    /// Speaks as `principal`, who has been authenticated.
    pub fn new(service: Arc<Service>, principal: Principal) -> Self {
        Self { service, principal }
    }

    fn view(&self, approval: &holdgate_core::Approval) -> Approval {
        Approval::of(approval, &self.principal, self.service.links())
    }

    fn view_found(&self, found: &Found) -> Approval {
        match found {
            Found::Sound(approval) => self.view(approval),
            Found::Corrupt(id) => Approval::corrupt(id.as_str(), self.service.links()),
        }
    }

    async fn apply(&self, id: &str, command: Command) -> Result<(holdgate_core::Approval, bool), Error> {
        self.service.apply(&convert::approval_id(id)?, command, &self.principal).await
    }

    fn prepare(&self, request: CreateApproval, protocol: Protocol) -> Result<convert::Prepared, Error> {
        let own_epoch = self.service.own_epoch();
        convert::prepare(request, protocol, own_epoch.as_ref(), &self.service.policy(), &self.principal)
    }

    /// The service that answers.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Who speaks.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Asks for permission in another protocol's words. Answers the record itself, and whether this call made it.
    ///
    /// # Errors
    /// What is wrong with the request; `id_taken` for an id that was used before.
    pub async fn request(
        &self,
        request: CreateApproval,
        protocol: Protocol,
    ) -> Result<(holdgate_core::Approval, bool), Error> {
        self.service.open(self.prepare(request, protocol)?, None, &self.principal).await
    }

    fn page(&self, page: Page) -> ApprovalPage {
        let (found, next) = page;
        let next_cursor = next.map(|(at, id)| convert::cursor(at.as_ms(), id.as_str()));
        ApprovalPage { items: found.iter().map(|found| self.view_found(found)).collect(), next_cursor }
    }
}

#[async_trait]
impl Authority for Local {
    async fn create(&self, request: CreateApproval, key: Option<&str>) -> Result<Created, Error> {
        let key = key.map(|key| idempotency_key(key, &request)).transpose()?;
        let prepared = self.prepare(request, Protocol::default())?;
        let (approval, is_new) = self.service.open(prepared, key, &self.principal).await?;
        Ok(Created { approval: self.view(&approval), is_new })
    }

    async fn get(&self, id: &str) -> Result<Approval, Error> {
        let id = convert::approval_id(id)?;
        let found = self.service.find(id.as_str(), &self.principal).await?;
        // A reference is for callbacks that have no room; a page or a script has the id.
        if *found.id() != id {
            return Err(refused(&Refusal::NotFound));
        }
        Ok(self.view_found(&found))
    }

    async fn wait(&self, id: &str, timeout: Duration) -> Result<Approval, Error> {
        let longest = Duration::from_millis(WAIT_MS.unsigned_abs());
        let id = convert::approval_id(id)?;
        let found = self.service.wait(&id, timeout.min(longest), &self.principal).await?;
        Ok(self.view_found(&found))
    }

    async fn list(&self, query: ListApprovals) -> Result<ApprovalPage, Error> {
        Ok(self.page(self.service.list(convert::filter(query)?, &self.principal).await?))
    }

    async fn decide(&self, id: &str, decision: Decide) -> Result<Decided, Error> {
        let digest = convert::digest(&decision.digest)?;
        let reason = convert::text("reason", decision.reason)?;
        let (approval, applied) =
            self.apply(id, Command::Vote { decision: decision.decision, digest, reason }).await?;
        Ok(Decided { applied, approval: self.view(&approval) })
    }

    async fn claim(&self, id: &str, claim: MakeClaim) -> Result<Claim, Error> {
        let claim_id = convert::at("claimId", claim.claim_id.parse())?;
        let digest = convert::digest(&claim.digest)?;
        let (approval, _) =
            self.apply(id, Command::Claim { claim_id, digest, fence: claim.fence.map(Fence) }).await?;
        let claim = approval.claim().map(Claim::from);
        claim.ok_or_else(|| Error::new(Code::Unavailable, "the claim was not kept; nothing may run"))
    }

    async fn settle(&self, id: &str, settle: Settle) -> Result<Approval, Error> {
        let claim_id = convert::at("claimId", settle.claim_id.parse())?;
        let detail = convert::text("detail", settle.detail)?;
        let outcome = match settle.outcome {
            SettledOutcome::Succeeded => Outcome::Succeeded,
            SettledOutcome::Failed => Outcome::Failed,
        };
        let (approval, _) = self.apply(id, Command::Settle { claim_id, outcome, detail }).await?;
        Ok(self.view(&approval))
    }

    async fn cancel(&self, id: &str, cancel: Cancel) -> Result<Approval, Error> {
        let reason = convert::text("reason", cancel.reason)?;
        let (approval, applied) =
            self.apply(id, Command::Cancel { reason: TerminalReason::Withdrawn }).await?;
        tracing::info!(id, applied, has_reason = reason.is_some(), "withdrawn");
        Ok(self.view(&approval))
    }

    async fn history(&self, query: ListHistory) -> Result<ApprovalPage, Error> {
        Ok(self.page(self.service.history(convert::history_filter(query)?, &self.principal).await?))
    }

    async fn revoke(&self, id: &str, revoke: Revoke) -> Result<Approval, Error> {
        let reason = convert::text("reason", revoke.reason)?;
        let (approval, _) = self.apply(id, Command::Revoke { reason }).await?;
        Ok(self.view(&approval))
    }

    async fn put_session(&self, key: &str, session: PutSession) -> Result<(), Error> {
        let PutSession { agent, controller, requester, parent, spawned_by } = session;
        let agent = convert::name("agent", agent)?;
        let key = convert::name("key", session_key(key, agent.as_deref()))?
            .ok_or_else(|| invalid("key", "a session's key is not empty"))?;
        let edges = SessionEdges {
            controller: convert::name("controller", controller)?,
            requester: convert::name("requester", requester)?,
            parent: convert::name("parent", parent)?,
            spawned_by: convert::name("spawnedBy", spawned_by)?,
        };
        self.service.put_session(key, edges, &self.principal).await
    }

    async fn end_runtime(&self, epoch: &str) -> Result<(), Error> {
        let epoch = convert::at("epoch", epoch.parse())?;
        self.service.end_runtime(&epoch, &self.principal).await.map(drop)
    }

    async fn abort_run(&self, id: &str) -> Result<u32, Error> {
        self.service.abort_run(&run_id(id)?, &self.principal).await
    }

    async fn start_runtime(&self) -> Result<Runtime, Error> {
        let epoch = self.service.start_runtime(&self.principal).await?;
        Ok(Runtime { epoch: epoch.to_string(), lease_ms: RUNTIME_LEASE_MS })
    }

    async fn renew_runtime(&self, epoch: &str) -> Result<Runtime, Error> {
        let epoch = convert::at("epoch", epoch.parse())?;
        let epoch = self.service.renew_runtime(&epoch, &self.principal).await?;
        Ok(Runtime { epoch: epoch.to_string(), lease_ms: RUNTIME_LEASE_MS })
    }

    async fn create_run(&self, run: CreateRun) -> Result<Run, Error> {
        let id = match run.id {
            Some(id) => convert::at("id", id.parse())?,
            None => mint::run(),
        };
        let agent = convert::name("agent", Some(run.agent))?.unwrap_or_default();
        Ok(Run::from(&self.service.create_run(id, agent, &self.principal).await?))
    }

    async fn run(&self, id: &str) -> Result<Run, Error> {
        Ok(Run::from(&self.service.run(&run_id(id)?, &self.principal).await?))
    }

    async fn lease_run(&self, id: &str, lease: LeaseRun) -> Result<Run, Error> {
        let command = match (lease.fence.map(Fence), lease.release) {
            (None, false) => RunCommand::Lease,
            (Some(fence), false) => RunCommand::Renew { fence },
            (Some(fence), true) => RunCommand::Release { fence },
            (None, true) => {
                return Err(invalid("fence", "a run is released by its holder, who names the fence"));
            }
        };
        Ok(Run::from(&self.service.hold_run(&run_id(id)?, command, &self.principal).await?))
    }

    async fn append(&self, id: &str, append: AppendEvents) -> Result<Appended, Error> {
        let append = self.checked_append(run_id(id)?, append)?;
        let (run, approvals) = self.service.append(append, &self.principal).await?;
        Ok(Appended { run: Run::from(&run), approvals: approvals.iter().map(|a| self.view(a)).collect() })
    }

    async fn journal(&self, id: &str, after: u64) -> Result<JournalPage, Error> {
        let id = run_id(id)?;
        let run = self.service.run(&id, &self.principal).await?;
        let entries = self.service.journal(&id, after, EVENTS_PAGE).await?;
        let items = entries.into_iter().map(view_entry).collect::<Result<_, _>>()?;
        Ok(JournalPage { items, last_seq: run.last_seq })
    }
}

impl Local {
    fn checked_append(&self, run: RunId, append: AppendEvents) -> Result<Append, Error> {
        if append.events.is_empty() || append.events.len() > APPEND_EVENTS {
            return Err(invalid("events", format!("an append carries 1 to {APPEND_EVENTS} events")));
        }
        if append.approvals.len() > APPEND_APPROVALS {
            return Err(invalid("approvals", format!("an append opens at most {APPEND_APPROVALS} requests")));
        }
        if let Some(at) = append.events.iter().position(|event| event.get().len() > EVENT_BYTES) {
            return Err(Error::new(
                Code::TooLarge,
                format!("events[{at}]: it is larger than {EVENT_BYTES} bytes"),
            ));
        }
        let state = append.state.as_deref().map(|name| {
            RunState::from_name(name)
                .ok_or_else(|| invalid("state", "it is one of running, suspended, unknown, finished, failed"))
        });
        let binding = RunBinding { id: run.to_string(), fence: append.fence };
        let mut opens = Vec::with_capacity(append.approvals.len());
        for (at, mut request) in append.approvals.into_iter().enumerate() {
            let bound = request.run.get_or_insert_with(|| binding.clone());
            if bound.id != binding.id || bound.fence != binding.fence {
                return Err(invalid(
                    &format!("approvals[{at}].run"),
                    "it is not the run and fence of this append",
                ));
            }
            let draft = self.prepare(request, Protocol::default())?.draft;
            if opens.iter().any(|other: &holdgate_core::approval::Draft| other.action == draft.action) {
                return Err(invalid(
                    &format!("approvals[{at}]"),
                    "the same action is asked twice in one append",
                ));
            }
            opens.push(draft);
        }
        Ok(Append {
            run,
            fence: Fence(append.fence),
            after: append.after,
            events: append.events.iter().map(|event| event.get().to_owned()).collect(),
            state: state.transpose()?.unwrap_or(RunState::Running),
            opens,
        })
    }
}

fn run_id(id: &str) -> Result<RunId, Error> {
    convert::at("run id", id.parse())
}

fn idempotency_key(key: &str, request: &CreateApproval) -> Result<IdempotencyKey, Error> {
    if key.is_empty() || key.chars().count() > IDEMPOTENCY_KEY_CHARS {
        return Err(invalid("Idempotency-Key", format!("it has 1 to {IDEMPOTENCY_KEY_CHARS} characters")));
    }
    let body = serde_json::to_string(request).map_err(|e| invalid("body", e))?;
    let body = Canonical::parse(&body).map_err(|e| invalid("content", e))?;
    Ok(IdempotencyKey { key: key.to_owned(), body: Digest::of(body.as_str().as_bytes()) })
}

fn view_entry(entry: JournalEntry) -> Result<holdgate_wire::run::JournalEntry, Error> {
    let event = serde_json::value::RawValue::from_string(entry.event);
    let event = event.map_err(|error| {
        tracing::error!(%error, seq = entry.seq, "a journal event does not decode");
        Error::new(Code::StorageCorrupt, format!("event {} of the journal cannot be read", entry.seq))
    })?;
    Ok(holdgate_wire::run::JournalEntry { seq: entry.seq, at_ms: entry.at.as_ms(), event })
}
