//! The conversation with the authority about one command.
//!
//! Owns asking, waiting, claiming and settling, each of which can be repeated and is while the gateway is away. It
//! never decides that a command may run: it hands on what the authority said.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use holdgate_core::limits::REASON_CHARS;
use holdgate_core::{Action, Canonical, Digest, Kind};
use holdgate_store::mint;
use holdgate_wire::approval::Source;
use holdgate_wire::request::SettledOutcome;
use holdgate_wire::{Approval, Cancel, Code, CreateApproval, MakeClaim, Settle};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::epoch::Epoch;
use super::say;
use crate::when;

/// How long one wait for the decision lasts before it is renewed. Short, because the line to the gateway mends itself
/// in silence for as long as a wait lasts, and whoever watches should learn soon that the gateway is away.
const WAIT: Duration = Duration::from_secs(2);
/// How long a call may stay without any answer before its connection is given up.
const CALL: Duration = Duration::from_secs(10);
/// How long after the deadline the authority may take to say that it has passed.
const GRACE: Duration = Duration::from_secs(2);
/// How long a claim or a receipt is tried while the gateway is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a request is called off before we leave it to its epoch to end it.
pub const PARTING: Duration = Duration::from_secs(2);
/// The first and the longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A request for permission to run one command.
pub struct Gate {
    authority: Arc<dyn Authority>,
    epoch: Epoch,
    id: String,
    digest: Digest,
    claim_id: String,
    deadline: Instant,
}

/// What is asked.
pub struct Question {
    /// The frozen command, as JSON.
    pub content: String,
    /// The caller's own words.
    pub reason: Option<String>,
    /// How long until silence denies.
    pub timeout: Duration,
}

impl Gate {
    /// Asks. The key makes a repeated call the same request.
    ///
    /// # Errors
    /// The authority refused, stayed away, or recorded another action than the one that was sent.
    pub async fn ask(
        authority: Arc<dyn Authority>,
        epoch: Epoch,
        question: Question,
    ) -> anyhow::Result<(Self, Approval)> {
        let boundary = mint::name("exec");
        let content = Canonical::parse(&question.content)?;
        let digest = Action::freeze(Kind::Exec, &boundary, content)?.digest();
        let timeout_ms = Some(i64::try_from(question.timeout.as_millis()).unwrap_or(i64::MAX));
        let request = CreateApproval {
            kind: Kind::Exec.as_str().to_owned(),
            scope: None,
            boundary: Some(boundary),
            content: RawValue::from_string(question.content)?,
            reason: question.reason,
            timeout_ms,
            epoch: Some(epoch.name.clone()),
            run: None,
            source: Some(Source { agent: Some("holdgate exec".to_owned()), ..Source::default() }),
            requirement: None,
        };
        let key = mint::name("key");
        let asked = Instant::now();
        let until = asked.checked_add(question.timeout).unwrap_or(asked);
        let created = persist(until, CALL, || authority.create(request.clone(), Some(&key))).await?;
        let life = milliseconds(created.approval.expires_at_ms - created.approval.created_at_ms);
        let gate = Self {
            authority,
            epoch,
            id: created.approval.id.clone(),
            digest,
            claim_id: mint::name("claim"),
            deadline: asked.checked_add(life + GRACE).unwrap_or(until),
        };
        if created.approval.digest != digest.to_hex() {
            gate.withdraw("another action was recorded than the one that was asked for").await;
            anyhow::bail!("the gateway recorded another action than the one that was asked for");
        }
        Ok((gate, created.approval))
    }

    /// Waits for the end of the request, however often the gateway goes away and comes back before the deadline.
    ///
    /// # Errors
    /// The authority no longer knows the request, or was away at its deadline.
    pub async fn decision(&self) -> Result<Approval, Error> {
        loop {
            let waited = persist(self.deadline, WAIT + CALL, || self.authority.wait(&self.id, WAIT)).await?;
            if waited.is_terminal() {
                return Ok(waited);
            }
            if Instant::now() >= self.deadline {
                return Err(Error::new(Code::Expired, "there was no decision before the deadline"));
            }
        }
    }

    /// Spends the allow. A reply may be lost: the same claim again is the same claim.
    ///
    /// # Errors
    /// There is nothing to spend, or the authority cannot confirm that this process still counts as alive.
    pub async fn claim(&self) -> Result<(), Error> {
        let claim = MakeClaim { claim_id: self.claim_id.clone(), digest: self.digest.to_hex(), fence: None };
        let until = Instant::now() + PATIENCE;
        persist(until, CALL, || self.authority.claim(&self.id, claim.clone())).await?;
        // The reply to a claim is the same however often and late it is asked for. If our lease lapsed in between (the
        // gateway was away, this machine slept), people have been told that the outcome is unknown and may have acted
        // on it: only an epoch that is alive now may run what it claimed.
        persist(until, CALL, || self.authority.renew_runtime(&self.epoch.name)).await.map(|_| ())
    }

    /// Says what came of the claim, trying for a while.
    ///
    /// # Errors
    /// The receipt could not be delivered.
    pub async fn settle(&self, outcome: SettledOutcome, detail: &str) -> Result<(), Error> {
        self.settle_until(Instant::now() + PATIENCE, outcome, detail).await
    }

    /// Says that nothing ran, in case the claim was made.
    pub async fn settle_not_run(&self, why: &str) {
        let until = Instant::now() + PARTING;
        let detail = format!("not run: {why}");
        let said = self.settle_until(until, SettledOutcome::Failed, &detail);
        match tokio::time::timeout_at(until, said).await {
            Ok(Ok(())) => {}
            // A definite answer: there was no claim, or the record says already what became of it.
            Ok(Err(error)) if !error.is_transient() => {}
            Ok(Err(_)) | Err(_) => {
                say(
                    "the gateway could not be told that nothing ran: the record may say that the outcome is unknown",
                );
            }
        }
    }

    /// Calls the request off. False if the authority did not say that it is: then it ends with this process's epoch.
    pub async fn withdraw(&self, why: &str) -> bool {
        // A longer text would be refused.
        let cancel = Cancel { reason: Some(why.chars().take(REASON_CHARS).collect()) };
        let cancelled = tokio::time::timeout(PARTING, self.authority.cancel(&self.id, cancel)).await;
        matches!(cancelled, Ok(Ok(_)))
    }

    /// Ends this process's epoch, so that nothing waits for its lease. Tried once: without it the lease lapses.
    pub async fn part(&self) {
        let _ = tokio::time::timeout(PARTING, self.authority.end_runtime(&self.epoch.name)).await;
    }

    async fn settle_until(&self, until: Instant, outcome: SettledOutcome, detail: &str) -> Result<(), Error> {
        // A longer text would be refused, and the outcome is worth more than its last words.
        let detail = detail.chars().take(REASON_CHARS).collect();
        let settle = Settle { claim_id: self.claim_id.clone(), outcome, detail: Some(detail) };
        persist(until, CALL, || self.authority.settle(&self.id, settle.clone())).await.map(|_| ())
    }
}

/// Makes a call until it is answered, at most until an instant. Only for calls that may be made twice.
async fn persist<T, F>(until: Instant, patience: Duration, call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = PAUSES.0;
    let mut away = false;
    loop {
        let limit = until.max(Instant::now() + PARTING).min(Instant::now() + patience);
        let error = match tokio::time::timeout_at(limit, call()).await {
            Ok(Ok(value)) => {
                if away {
                    say("the gateway answers again");
                }
                return Ok(value);
            }
            Ok(Err(error)) if !error.is_transient() => return Err(error),
            Ok(Err(error)) => error,
            Err(_) => Error::new(Code::Unavailable, "the gateway did not answer in time"),
        };
        if Instant::now() + pause >= until {
            return Err(error);
        }
        if !away {
            say(&waits(&error, until));
            away = true;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// What is said once when calls begin to fail: that nothing is lost, and how long it can go on.
fn waits(error: &Error, until: Instant) -> String {
    let left = until.saturating_duration_since(Instant::now()).as_millis();
    let now_ms = when::now_ms();
    let until = when::soon(now_ms.saturating_add(i64::try_from(left).unwrap_or(i64::MAX)), now_ms);
    match error.code() {
        None | Some(Code::Unavailable) => {
            format!("the gateway does not answer; waiting for it until {until}")
        }
        Some(_) => format!("{error}; trying again until {until}"),
    }
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}
