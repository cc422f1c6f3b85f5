//! The whole of `exec` against a real store in this process, with a line to it that can fail at any call.
//!
//! What needs a process of its own (signals, the terminal, kill -9) is in `tests/exec.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use holdgate_authority::{Created, Local, Role, Service};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Digest, Principal, Time};
use holdgate_store::clock::Clock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store};
use holdgate_wire::{
    AppendEvents, Appended, ApprovalPage, Cancel, Claim, CreateApproval, CreateRun, Decide, Decided,
    JournalPage, LeaseRun, ListApprovals, MakeClaim, Run, Runtime, Settle,
};
use tokio::task::JoinHandle;

use super::*;

/// A clock that the test moves.
struct Hand(AtomicI64);

impl Clock for Hand {
    fn wall(&self) -> Time {
        Time::from_ms(1_700_000_000_000 + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The agent's line to the authority. It can be cut, lose the reply to a call that was done, or be meddled with.
struct Line {
    local: Local,
    trouble: Mutex<Trouble>,
}

#[derive(Default)]
struct Trouble {
    is_cut: bool,
    /// Calls whose next reply is lost.
    lose: BTreeSet<&'static str>,
    /// What happens elsewhere just when the claim has been made.
    after_claim: Option<Box<dyn FnOnce() + Send>>,
    /// Whether the record answered is of another action.
    forges: bool,
    calls: Vec<&'static str>,
}

impl Line {
    async fn over<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let away = || Error::Unreachable { url: "test".to_owned(), why: "the line is cut".to_owned() };
        {
            let mut trouble = self.trouble.lock().unwrap();
            trouble.calls.push(name);
            if trouble.is_cut {
                return Err(away());
            }
        }
        let answer = call.await;
        let mut trouble = self.trouble.lock().unwrap();
        if trouble.lose.remove(name) || trouble.is_cut { Err(away()) } else { answer }
    }
}

#[async_trait]
impl Authority for Line {
    async fn create(&self, request: CreateApproval, key: Option<&str>) -> Result<Created, Error> {
        let mut created = self.over("create", self.local.create(request, key)).await?;
        if self.trouble.lock().unwrap().forges {
            created.approval.digest = "0".repeat(64);
        }
        Ok(created)
    }
    async fn get(&self, id: &str) -> Result<Approval, Error> {
        self.over("get", self.local.get(id)).await
    }
    async fn wait(&self, id: &str, timeout: Duration) -> Result<Approval, Error> {
        // Short, so that a line that is cut or a clock that is moved is noticed soon.
        self.over("wait", self.local.wait(id, timeout.min(Duration::from_millis(20)))).await
    }
    async fn list(&self, query: ListApprovals) -> Result<ApprovalPage, Error> {
        self.over("list", self.local.list(query)).await
    }
    async fn decide(&self, id: &str, decision: Decide) -> Result<Decided, Error> {
        self.over("decide", self.local.decide(id, decision)).await
    }
    async fn claim(&self, id: &str, claim: MakeClaim) -> Result<Claim, Error> {
        let claimed = self.over("claim", self.local.claim(id, claim)).await;
        let meanwhile = self.trouble.lock().unwrap().after_claim.take();
        meanwhile.into_iter().for_each(|happens| happens());
        claimed
    }
    async fn settle(&self, id: &str, settle: Settle) -> Result<Approval, Error> {
        self.over("settle", self.local.settle(id, settle)).await
    }
    async fn cancel(&self, id: &str, cancel: Cancel) -> Result<Approval, Error> {
        self.over("cancel", self.local.cancel(id, cancel)).await
    }
    async fn history(&self, query: holdgate_wire::ListHistory) -> Result<ApprovalPage, Error> {
        self.local.history(query).await
    }

    async fn revoke(&self, id: &str, revoke: holdgate_wire::Revoke) -> Result<Approval, Error> {
        self.local.revoke(id, revoke).await
    }

    async fn put_session(&self, key: &str, session: holdgate_wire::PutSession) -> Result<(), Error> {
        self.local.put_session(key, session).await
    }

    async fn end_runtime(&self, epoch: &str) -> Result<(), Error> {
        self.local.end_runtime(epoch).await
    }

    async fn abort_run(&self, id: &str) -> Result<u32, Error> {
        self.local.abort_run(id).await
    }

    async fn start_runtime(&self) -> Result<Runtime, Error> {
        self.over("start_runtime", self.local.start_runtime()).await
    }
    async fn renew_runtime(&self, epoch: &str) -> Result<Runtime, Error> {
        self.over("renew_runtime", self.local.renew_runtime(epoch)).await
    }
    async fn create_run(&self, run: CreateRun) -> Result<Run, Error> {
        self.over("create_run", self.local.create_run(run)).await
    }
    async fn run(&self, id: &str) -> Result<Run, Error> {
        self.over("run", self.local.run(id)).await
    }
    async fn lease_run(&self, id: &str, lease: LeaseRun) -> Result<Run, Error> {
        self.over("lease_run", self.local.lease_run(id, lease)).await
    }
    async fn append(&self, id: &str, append: AppendEvents) -> Result<Appended, Error> {
        self.over("append", self.local.append(id, append)).await
    }
    async fn journal(&self, id: &str, after: u64) -> Result<JournalPage, Error> {
        self.over("journal", self.local.journal(id, after)).await
    }
}

/// An authority, a reviewer at it, an agent's line to it, and a directory in which the command leaves its marks.
struct Scene {
    home: tempfile::TempDir,
    clock: Arc<Hand>,
    line: Arc<Line>,
    reviewer: Local,
}

impl Scene {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hand(AtomicI64::new(0)));
        let path = home.path().join("holdgate.db");
        let store: Arc<dyn Store> = SqliteStore::open(OpenOptions { path, clock: clock.clone() }).unwrap();
        let known = |id: &str, kind| Principal::new(id.parse().unwrap(), kind, id);
        let (agent, reviewer) =
            (known("agent", PrincipalKind::Agent), known("Ada", PrincipalKind::Administrator));
        for principal in [agent.clone(), reviewer.clone()] {
            let hash = Digest::of(principal.id.as_str().as_bytes());
            store.execute(Op::PutCredential { hash, principal, recovers: false }).await.unwrap();
        }
        let service = Service::start(store, Role::Embedded).await.unwrap();
        let line = Line { local: Local::new(service.clone(), agent), trouble: Mutex::default() };
        let reviewer = Local::new(service, reviewer);
        Self { home, clock, line: Arc::new(line), reviewer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, Trouble> {
        self.line.trouble.lock().unwrap()
    }

    /// Writes a script that leaves a mark and ends with a status, and starts it behind the gate.
    fn start(&self, status: u8, timeout: Option<Duration>) -> JoinHandle<u8> {
        fs::write(self.path("script.sh"), format!("echo ran >> \"$MARKS\"\nexit {status}\n")).unwrap();
        let script = self.path("script.sh");
        self.start_command(&["sh".as_ref(), script.as_os_str()], timeout)
    }

    fn start_command(&self, command: &[&std::ffi::OsStr], timeout: Option<Duration>) -> JoinHandle<u8> {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        let timeout = timeout.unwrap_or(Duration::from_secs(600));
        let arguments = Arguments { reason: Some("because".to_owned()), timeout, command };
        let variables =
            [("PATH".into(), "/usr/bin:/bin".into()), ("MARKS".into(), self.path("marks").into())];
        let (line, environment) = (self.line.clone(), Environment::for_child(variables));
        // No signal is caught: the test stays one that can be interrupted.
        tokio::spawn(async move {
            let mut signals = Signals::listen(&[]).unwrap();
            exit_code(attempt(line, arguments, environment, &mut signals).await)
        })
    }

    fn marks(&self) -> usize {
        fs::read_to_string(self.path("marks")).unwrap_or_default().lines().count()
    }

    /// The one request there is, once there is one.
    async fn request(&self) -> Approval {
        for _ in 0..1_000 {
            let page = self.reviewer.list(ListApprovals::default()).await.unwrap();
            match page.items.into_iter().next() {
                Some(approval) => return approval,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("nothing was asked");
    }

    async fn decide(&self, decision: Decision, reason: Option<&str>) {
        let Approval { id, digest, .. } = self.request().await;
        let decide = Decide { decision, digest, reason: reason.map(str::to_owned) };
        self.reviewer.decide(&id, decide).await.unwrap();
    }

    /// Status, whether it was claimed, and the receipt as `outcome: detail`.
    async fn record(&self) -> (&'static str, bool, String) {
        let approval = self.request().await;
        let receipt =
            approval.receipt.map(|it| format!("{}: {}", it.outcome.as_str(), it.detail.unwrap_or_default()));
        (approval.status.as_str(), approval.claim.is_some(), receipt.unwrap_or_default())
    }
}

#[tokio::test]
async fn an_allowed_command_runs_once_and_its_status_is_the_exit_code_and_the_receipt() {
    for (status, receipt) in [(0, "succeeded: exit status 0"), (3, "failed: exit status 3")] {
        let scene = Scene::new().await;
        let running = scene.start(status, None);
        let request = scene.request().await;
        assert_eq!(request.request_reason.as_deref(), Some("because"));
        assert!(request.presentation.command_text.unwrap().starts_with("sh "));
        assert_eq!(scene.marks(), 0);
        scene.decide(Decision::AllowOnce, None).await;
        assert_eq!(running.await.unwrap(), status);
        assert_eq!((scene.marks(), scene.record().await), (1, ("allowed", true, receipt.to_owned())));
    }
}

#[tokio::test]
async fn a_denied_command_does_not_run() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.decide(Decision::Deny, Some("not on a Friday")).await;
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    assert_eq!((scene.marks(), scene.record().await), (0, ("denied", false, String::new())));
}

#[tokio::test]
async fn silence_is_deny() {
    let scene = Scene::new().await;
    let running = scene.start(0, Some(Duration::from_secs(60)));
    scene.request().await;
    scene.clock.0.fetch_add(60_000, Ordering::SeqCst);
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    assert_eq!((scene.marks(), scene.record().await), (0, ("expired", false, String::new())));
}

#[tokio::test]
async fn a_script_that_changed_while_it_waited_is_refused_and_nothing_is_claimed() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.request().await;
    fs::write(scene.path("script.sh"), "echo MUTATED >> \"$MARKS\"\n").unwrap();
    scene.decide(Decision::AllowOnce, None).await;
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    assert_eq!((scene.marks(), scene.record().await), (0, ("allowed", false, String::new())));
}

#[tokio::test]
async fn a_script_that_changed_during_the_claim_is_refused_and_the_receipt_says_so() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.request().await;
    let script = scene.path("script.sh");
    scene.trouble().after_claim =
        Some(Box::new(move || fs::write(script, "echo MUTATED >> \"$MARKS\"\n").unwrap()));
    scene.decide(Decision::AllowOnce, None).await;
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    let (status, claimed, receipt) = scene.record().await;
    assert_eq!((scene.marks(), status, claimed), (0, "allowed", true));
    assert!(receipt.starts_with("failed: not run: the content of"), "{receipt}");
}

#[tokio::test]
async fn every_reply_may_be_lost_once_and_the_command_still_runs_once() {
    let scene = Scene::new().await;
    scene.trouble().lose = BTreeSet::from(["create", "wait", "claim", "settle"]);
    let running = scene.start(0, None);
    scene.decide(Decision::AllowOnce, None).await;
    assert_eq!(running.await.unwrap(), 0);
    assert_eq!(
        (scene.marks(), scene.record().await),
        (1, ("allowed", true, "succeeded: exit status 0".to_owned()))
    );
    assert_eq!(scene.reviewer.list(ListApprovals::default()).await.unwrap().items.len(), 1);
    assert_eq!(scene.trouble().calls.iter().filter(|call| **call == "claim").count(), 2);
}

#[tokio::test]
async fn a_gateway_that_goes_away_and_comes_back_is_waited_for() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.request().await;
    scene.trouble().is_cut = true;
    scene.decide(Decision::AllowOnce, None).await;
    while scene.trouble().calls.iter().rev().take_while(|call| **call == "wait").count() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(scene.marks(), 0);
    scene.trouble().is_cut = false;
    assert_eq!(running.await.unwrap(), 0);
    assert_eq!(scene.marks(), 1);
}

#[tokio::test]
async fn a_gateway_that_stays_away_past_the_deadline_is_a_deny() {
    let scene = Scene::new().await;
    let running = scene.start(0, Some(Duration::from_millis(100)));
    scene.request().await;
    scene.trouble().is_cut = true;
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    assert_eq!(scene.marks(), 0);
}

#[tokio::test]
async fn a_gateway_that_cannot_be_reached_to_begin_with_is_told_apart() {
    let scene = Scene::new().await;
    scene.trouble().is_cut = true;
    assert_eq!(scene.start(0, None).await.unwrap(), Exit::Unreachable as u8);
    assert_eq!(scene.marks(), 0);
}

#[tokio::test]
async fn a_record_of_another_action_is_refused() {
    let scene = Scene::new().await;
    scene.trouble().forges = true;
    assert_eq!(scene.start(0, None).await.unwrap(), Exit::NotRun as u8);
    assert_eq!((scene.marks(), scene.record().await), (0, ("cancelled", false, String::new())));
}

#[tokio::test]
async fn a_command_whose_lease_lapsed_is_cancelled_and_does_not_run() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.request().await;
    scene.clock.0.fetch_add(30_000, Ordering::SeqCst);
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    let request = scene.request().await;
    assert_eq!(request.terminal_reason.unwrap().as_str(), "caller-lost");
    assert_eq!(scene.marks(), 0);
}

#[tokio::test]
async fn a_claim_that_is_answered_after_the_lease_lapsed_runs_nothing() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.request().await;
    let clock = scene.clock.clone();
    scene.trouble().lose.insert("claim");
    scene.trouble().after_claim = Some(Box::new(move || {
        clock.0.fetch_add(30_000, Ordering::SeqCst);
    }));
    scene.decide(Decision::AllowOnce, None).await;
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    let (_, claimed, receipt) = scene.record().await;
    assert!(claimed && receipt.starts_with("failed: not run"), "{receipt}");
    assert_eq!(scene.marks(), 0);
}

#[tokio::test]
async fn a_caller_that_is_gone_takes_its_request_with_it() {
    let scene = Scene::new().await;
    let running = scene.start(0, None);
    scene.request().await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    scene.clock.0.fetch_add(30_000, Ordering::SeqCst);
    assert_eq!(scene.record().await, ("cancelled", false, String::new()));
    assert_eq!(scene.request().await.terminal_reason.unwrap().as_str(), "caller-lost");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_has_a_receipt_that_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new().await;
    let broken = scene.path("broken");
    fs::write(&broken, b"\x7fELF\0\0\0\0 not really").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let running = scene.start_command(&[broken.as_os_str()], None);
    scene.decide(Decision::AllowOnce, None).await;
    assert_eq!(running.await.unwrap(), Exit::NotRun as u8);
    let (_, claimed, receipt) = scene.record().await;
    assert!(claimed && receipt.starts_with("failed: not run: cannot start"), "{receipt}");
}

#[tokio::test]
async fn what_cannot_be_frozen_is_never_asked_for() {
    let scene = Scene::new().await;
    for command in [&["no-such-program".as_ref()][..], &["".as_ref()], &[]] {
        assert_eq!(scene.start_command(command, None).await.unwrap(), Exit::NotRun as u8);
    }
    assert!(scene.trouble().calls.is_empty());
}
