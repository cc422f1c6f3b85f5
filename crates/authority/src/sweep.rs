//! Writes down what time has decided, and keeps the gateway's own epoch alive or begins the next one.
//!
//! Only a wake-up: reads and commits judge deadlines and leases by themselves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdgate_core::limits::{RETENTION_MS, RUNTIME_LEASE_MS};
use holdgate_core::{EpochId, Principal, Refusal, Time};
use holdgate_store::{Answer, Op, Outcome, Runtime, RuntimeKind, Store, StoreError, mint};

use crate::error::Error;
use crate::service::{Service, commit};

/// Most records that one sweep writes: others get their turn between two.
const BATCH: u32 = 256;
/// The longest sleep between two looks, in case the next instant moved without notice.
const LONGEST: Duration = Duration::from_secs(1);
/// How often it is looked for records that were kept for long enough, in milliseconds.
const PRUNE_MS: i64 = 10 * 60 * 1_000;

impl Service {
    /// Sweeps until it is dropped or aborted.
    pub async fn keep(self: Arc<Self>) {
        loop {
            let pause = self.keep_once().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "a sweep failed; the next one makes up for it");
                LONGEST
            });
            tokio::time::sleep(pause).await;
        }
    }

    /// Does what is due; answers how long nothing more will be. The own epoch first: until it lives, every
    /// caller without an epoch is refused.
    async fn keep_once(&self) -> Result<Duration, StoreError> {
        if let Some(own) = self.own() {
            own.keep(&**self.store()).await;
        }
        self.prune().await?;
        self.sweep().await
    }

    /// Removes what has been kept for long enough, a little at a time.
    async fn prune(&self) -> Result<(), StoreError> {
        let store = self.store();
        let before = store.now().plus_ms(-RETENTION_MS);
        if store.now().as_ms() < self.next_prune_ms.load(Ordering::Relaxed) {
            return Ok(());
        }
        let outcome = store.execute(Op::Prune { before, limit: BATCH }).await?;
        if !matches!(outcome, Outcome::Committed(Answer::Touched(BATCH))) {
            self.next_prune_ms.store(store.now().plus_ms(PRUNE_MS).as_ms(), Ordering::Relaxed);
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<Duration, StoreError> {
        let store = self.store();
        let Some(due) = store.next_due().await? else {
            return Ok(LONGEST);
        };
        if due.reached_at(store.now()) {
            let outcome = store.execute(Op::Sweep { limit: BATCH }).await?;
            if matches!(outcome, Outcome::Committed(Answer::Touched(count)) if count > 0) {
                return Ok(Duration::ZERO);
            }
            return Ok(LONGEST);
        }
        Ok(Duration::from_millis(due.ms_after(store.now()).unsigned_abs()).min(LONGEST))
    }
}

/// The epoch of a gateway: one at a time, and always the newest of its instance.
pub(crate) struct OwnEpoch {
    instance: String,
    current: Mutex<(EpochId, Time)>,
}

impl OwnEpoch {
    /// Begins the instance's first epoch of this process, which ends those of its earlier lives.
    ///
    /// # Errors
    /// Fails if the store does.
    pub(crate) async fn begin(store: &dyn Store, instance: String) -> Result<Self, Error> {
        let Runtime { epoch, lease_until, .. } = start(store, &instance).await?;
        Ok(Self { instance, current: Mutex::new((epoch, lease_until)) })
    }

    /// The epoch that is lent now.
    pub(crate) fn current(&self) -> EpochId {
        self.read().0
    }

    /// Renews the epoch when a third of its lease is over, by the authority's time: a machine that was suspended,
    /// or whose clock was set, has lost more of it than this process has lived through. An epoch that has lapsed
    /// never lives again, so another one of the same instance succeeds it.
    async fn keep(&self, store: &dyn Store) {
        let (epoch, lease_until) = self.read();
        if !lease_until.plus_ms(-RUNTIME_LEASE_MS * 2 / 3).reached_at(store.now()) {
            return;
        }
        match self.next(store, &epoch).await {
            Ok(Runtime { epoch, lease_until, .. }) => *self.lock() = (epoch, lease_until),
            Err(error) => {
                tracing::error!(%error, "this gateway's epoch is not kept; requests bound to it will end");
            }
        }
    }

    async fn next(&self, store: &dyn Store, epoch: &EpochId) -> Result<Runtime, Error> {
        let renew = Op::RenewRuntime { epoch: epoch.clone(), by: (&Principal::authority()).into() };
        match store.execute(renew).await? {
            Outcome::Refused(Refusal::EpochLapsed, _) => {
                let next = start(store, &self.instance).await?;
                tracing::warn!(lapsed = %epoch, next = %next.epoch, "this gateway's epoch had lapsed; what waited on it has ended");
                Ok(next)
            }
            outcome => commit(outcome, runtime),
        }
    }

    fn read(&self) -> (EpochId, Time) {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (EpochId, Time)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn start(store: &dyn Store, instance: &str) -> Result<Runtime, Error> {
    let kind = RuntimeKind::Gateway { instance: instance.to_owned() };
    let start = Op::StartRuntime { epoch: mint::epoch(), kind, by: (&Principal::authority()).into() };
    commit(store.execute(start).await?, runtime)
}

fn runtime(answer: Answer) -> Option<Runtime> {
    match answer {
        Answer::Runtime(runtime) => Some(runtime),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use holdgate_core::Digest;
    use holdgate_core::approval::{Status, TerminalReason};
    use holdgate_core::principal::PrincipalKind;
    use holdgate_store::sqlite::{OpenOptions, SqliteStore};
    use holdgate_testkit::ManualClock;
    use holdgate_wire::Code;

    use super::*;
    use crate::{Authority as _, Local, Role};

    const START: Time = Time::from_ms(1_800_000_000_000);

    async fn gateway(dir: &std::path::Path) -> (Arc<ManualClock>, Arc<Service>, Local) {
        let clock = ManualClock::at(START);
        let options = OpenOptions { path: dir.join("holdgate.db"), clock: clock.clone() };
        let store = SqliteStore::open(options).unwrap();
        let principal = Principal::new("agent".parse().unwrap(), PrincipalKind::Agent, "agent");
        let put =
            Op::PutCredential { hash: Digest::of(b"token"), principal: principal.clone(), recovers: false };
        store.execute(put).await.unwrap();
        let role = Role::Gateway { instance: "default".to_owned(), url: "http://127.0.0.1:1".to_owned() };
        let service = Service::start(store, role).await.unwrap();
        let agent = Local::new(Arc::clone(&service), principal);
        (clock, service, agent)
    }

    async fn ask(agent: &Local, command: &str) -> Result<holdgate_wire::Approval, Error> {
        let request = serde_json::json!({ "kind": "exec", "content": { "argv": [command] } });
        agent.create(serde_json::from_value(request).unwrap(), None).await.map(|created| created.approval)
    }

    #[tokio::test]
    async fn a_gateway_whose_epoch_has_lapsed_begins_another() {
        let dir = tempfile::tempdir().unwrap();
        let (clock, service, agent) = gateway(dir.path()).await;
        let before = ask(&agent, "ls").await.unwrap();
        let lapsed = service.own_epoch().unwrap();

        // Suspended: time passes, but none of it for this process.
        clock.advance(RUNTIME_LEASE_MS);
        assert_eq!(ask(&agent, "pwd").await.unwrap_err().code(), Some(Code::EpochLapsed));
        service.keep_once().await.unwrap();

        let next = service.own_epoch().unwrap();
        assert_ne!(next, lapsed);
        let ended = agent.get(&before.id).await.unwrap();
        assert_eq!(ended.terminal_reason, Some(TerminalReason::GatewayRestart));
        let after = ask(&agent, "pwd").await.unwrap();
        assert_eq!(after.status, Status::Pending);
    }

    #[tokio::test]
    async fn an_epoch_that_is_kept_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (clock, service, agent) = gateway(dir.path()).await;
        let own = service.own_epoch();
        let asked = ask(&agent, "ls").await.unwrap();
        for _ in 0..6 {
            clock.advance(RUNTIME_LEASE_MS / 2);
            service.keep_once().await.unwrap();
        }
        assert_eq!(service.own_epoch(), own);
        assert_eq!(agent.get(&asked.id).await.unwrap().status, Status::Pending);
    }
}
