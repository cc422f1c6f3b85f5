//! The authority over HTTP, as the holder of one token. Each call on a few lines; what a lost reply means for it is
//! decided here or, where that takes more, in the file of its name.

use std::time::Duration;

use async_trait::async_trait;
use holdgate_authority::{Authority, Created, Error};
use holdgate_core::Refusal;
use holdgate_core::limits::WAIT_MS;
use holdgate_wire::run::Aborted;
use holdgate_wire::{
    AppendEvents, Appended, Approval, ApprovalPage, Cancel, Claim, CreateApproval, CreateRun, Decide,
    Decided, JournalPage, LeaseRun, ListApprovals, ListHistory, MakeClaim, Problem, PutSession, Revoke, Run,
    Runtime, Settle,
};
use reqwest::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::call::{Call, Http};
use crate::endpoint::{self, InvalidEndpoint};
use crate::patience::repeat;
use crate::{append, asked, decide, lease};

/// How long passing failures are tried again, unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a wait that ended early without an end: the gateway is stopping.
const AFTER_EARLY_ANSWER: Duration = Duration::from_millis(100);

/// The authority behind a gateway, as the identity behind one token.
#[derive(Clone, Debug)]
pub struct Remote {
    http: Http,
    patience: Duration,
}

impl Remote {
    /// Speaks to the gateway at `url` (scheme, host and port) with `token`. Connects when the first call is made.
    ///
    /// # Errors
    /// Refuses a URL that is not plain HTTP to this machine, or that holds a credential; and what is no token.
    pub fn new(url: &str, token: &str) -> Result<Self, InvalidEndpoint> {
        let http = Http::new(endpoint::parse(url)?, Some(endpoint::bearer(token)?))?;
        Ok(Self { http, patience: PATIENCE })
    }

    /// The same, trying again for `patience` while a call fails for a passing reason.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where the gateway is sought.
    pub fn url(&self) -> &str {
        self.http.url()
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// One attempt to take, keep or release a run.
    pub(crate) async fn hold(&self, id: &str, lease: &LeaseRun) -> Result<Run, Error> {
        let path = ["v1", "runs", named(id)?, "lease"];
        let (_, run) = self.http.send::<Run>(&Call::post(&path, lease)?).await?;
        self.is_of(id, &run.id)?;
        Ok(run)
    }

    /// Sends a call that is safe to repeat, until it is answered.
    async fn ask<T: serde::de::DeserializeOwned>(&self, call: &Call<'_>) -> Result<(StatusCode, T), Error> {
        repeat(self.patience, || self.http.send(call)).await
    }

    async fn ask_of(&self, id: &str, call: &Call<'_>) -> Result<Approval, Error> {
        repeat(self.patience, || self.poll(id, call)).await
    }

    async fn poll(&self, id: &str, call: &Call<'_>) -> Result<Approval, Error> {
        let (_, approval) = self.http.send::<Approval>(call).await?;
        self.is_of(id, &approval.id)?;
        Ok(approval)
    }

    /// An answer about something else is no answer.
    fn is_of(&self, asked: &str, answered: &str) -> Result<(), Error> {
        if asked == answered {
            Ok(())
        } else {
            Err(self.http.unreachable("it answered about another record than the one asked for"))
        }
    }
}

/// An id that survives in a path byte for byte. What cannot names nothing: a URL drops tabs and line breaks, so that
/// another record's name would be left.
pub(crate) fn named(id: &str) -> Result<&str, Error> {
    match id {
        "" | "." | ".." => Err(Problem::refused(&Refusal::NotFound, None).into()),
        id if id.chars().any(char::is_control) || id.trim() != id => {
            Err(Problem::refused(&Refusal::NotFound, None).into())
        }
        id => Ok(id),
    }
}

/// An answer that says no more than that it was done.
#[derive(Deserialize)]
pub(crate) struct Empty {}

#[derive(Deserialize)]
struct ClaimAnswer {
    claim: Claim,
}

#[async_trait]
impl Authority for Remote {
    async fn create(&self, request: CreateApproval, key: Option<&str>) -> Result<Created, Error> {
        let call = Call::post(&["v1", "approvals"], &request)?.idempotency_key(key);
        // Without a key, only a request that names its place is found again instead of made again.
        let is_repeatable = key.is_some() || (request.boundary.is_some() && request.run.is_some());
        let patience = if is_repeatable { self.patience } else { Duration::ZERO };
        let (status, approval) = repeat(patience, || self.http.send::<Approval>(&call)).await?;
        if let Some(action) = asked::action_of(&request) {
            self.is_of(&action.digest().to_hex(), &approval.digest)?;
        }
        Ok(Created { approval, is_new: status == StatusCode::CREATED })
    }

    async fn get(&self, id: &str) -> Result<Approval, Error> {
        self.ask_of(id, &Call::get(&["v1", "approvals", named(id)?])).await
    }

    async fn wait(&self, id: &str, timeout: Duration) -> Result<Approval, Error> {
        let until = Instant::now() + timeout;
        let longest = Duration::from_millis(WAIT_MS.unsigned_abs());
        let path = ["v1", "approvals", named(id)?, "wait"];
        loop {
            let asked_at = Instant::now();
            let left = until.saturating_duration_since(asked_at).min(longest);
            let call = Call::get(&path).query("timeoutMs", Some(left.as_millis())).waiting(left);
            // A gateway may come back at any time before the wait is over, whatever the usual patience is.
            let patience = until.saturating_duration_since(asked_at).max(self.patience);
            let approval = repeat(patience, || self.poll(id, &call)).await?;
            if approval.is_terminal() || Instant::now() >= until {
                return Ok(approval);
            }
            if asked_at.elapsed() < left {
                sleep(AFTER_EARLY_ANSWER).await;
            }
        }
    }

    async fn list(&self, query: ListApprovals) -> Result<ApprovalPage, Error> {
        let call = Call::get(&["v1", "approvals"])
            .query("status", query.status)
            .query("kind", query.kind)
            .query("agent", query.agent)
            .query("cursor", query.cursor)
            .query("limit", query.limit);
        Ok(self.ask(&call).await?.1)
    }

    async fn decide(&self, id: &str, decision: Decide) -> Result<Decided, Error> {
        decide::decide(self, named(id)?, decision).await
    }

    async fn claim(&self, id: &str, claim: MakeClaim) -> Result<Claim, Error> {
        let path = ["v1", "approvals", named(id)?, "claim"];
        let call = Call::post(&path, &claim)?;
        repeat(self.patience, || async {
            let (_, answer) = self.http.send::<ClaimAnswer>(&call).await?;
            self.is_of(&claim.claim_id, &answer.claim.claim_id)?;
            Ok(answer.claim)
        })
        .await
    }

    async fn settle(&self, id: &str, settle: Settle) -> Result<Approval, Error> {
        self.ask_of(id, &Call::post(&["v1", "approvals", named(id)?, "receipt"], &settle)?).await
    }

    async fn cancel(&self, id: &str, cancel: Cancel) -> Result<Approval, Error> {
        self.ask_of(id, &Call::post(&["v1", "approvals", named(id)?, "cancel"], &cancel)?).await
    }

    async fn history(&self, query: ListHistory) -> Result<ApprovalPage, Error> {
        let call = Call::get(&["v1", "history"])
            .query("kind", query.kind)
            .query("cursor", query.cursor)
            .query("limit", query.limit);
        Ok(self.ask(&call).await?.1)
    }

    async fn revoke(&self, id: &str, revoke: Revoke) -> Result<Approval, Error> {
        self.ask_of(id, &Call::post(&["v1", "approvals", named(id)?, "revoke"], &revoke)?).await
    }

    async fn put_session(&self, key: &str, session: PutSession) -> Result<(), Error> {
        let path = ["v1", "sessions", named(key)?];
        let (_, Empty {}) = self.ask(&Call::post(&path, &session)?).await?;
        Ok(())
    }

    async fn end_runtime(&self, epoch: &str) -> Result<(), Error> {
        let path = ["v1", "runtimes", named(epoch)?, "end"];
        let (_, Empty {}) = self.ask(&Call::post(&path, &serde_json::Map::new())?).await?;
        Ok(())
    }

    async fn abort_run(&self, id: &str) -> Result<u32, Error> {
        let path = ["v1", "runs", named(id)?, "abort"];
        let (_, aborted) = self.ask::<Aborted>(&Call::post(&path, &serde_json::Map::new())?).await?;
        Ok(aborted.cancelled)
    }

    async fn start_runtime(&self) -> Result<Runtime, Error> {
        // An epoch whose name was lost with the reply lapses by itself; nothing is bound to it.
        let path = ["v1", "runtimes"];
        Ok(self.ask(&Call::post(&path, &serde_json::Map::new())?).await?.1)
    }

    async fn renew_runtime(&self, epoch: &str) -> Result<Runtime, Error> {
        let path = ["v1", "runtimes", named(epoch)?, "renew"];
        let (_, runtime) = self.ask::<Runtime>(&Call::post(&path, &serde_json::Map::new())?).await?;
        self.is_of(epoch, &runtime.epoch)?;
        Ok(runtime)
    }

    async fn create_run(&self, run: CreateRun) -> Result<Run, Error> {
        // The same id, agent and owner is the same run as long as nobody has held it; a run whose minted id was
        // lost with the reply is an empty record.
        Ok(self.ask(&Call::post(&["v1", "runs"], &run)?).await?.1)
    }

    async fn run(&self, id: &str) -> Result<Run, Error> {
        let path = ["v1", "runs", named(id)?];
        let (_, run) = self.ask::<Run>(&Call::get(&path)).await?;
        self.is_of(id, &run.id)?;
        Ok(run)
    }

    async fn lease_run(&self, id: &str, lease: LeaseRun) -> Result<Run, Error> {
        if lease.fence.is_none() && !lease.release {
            return lease::take(self, id).await;
        }
        repeat(self.patience, || self.hold(id, &lease)).await
    }

    async fn append(&self, id: &str, append: AppendEvents) -> Result<Appended, Error> {
        append::append(self, named(id)?, append).await
    }

    async fn journal(&self, id: &str, after: u64) -> Result<JournalPage, Error> {
        let path = ["v1", "runs", named(id)?, "events"];
        Ok(self.ask(&Call::get(&path).query("after", Some(after))).await?.1)
    }
}
