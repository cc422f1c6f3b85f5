//! The people, agents and processes that the promises are about, and what they do to a store.
//!
//! Owns no promise.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use holdgate_core::approval::{Binding, Draft, Outcome as Came, Source};
use holdgate_core::audience::SessionEdges;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement, ReviewerList};
use holdgate_core::run::{RunCommand, RunState};
use holdgate_core::{
    Action, Approval, ApprovalId, Canonical, Command, Digest, EpochId, Fence, Kind, Principal, Refusal, Run,
    RunId, Scopes, Time,
};
use holdgate_store::{
    Administration, Answer, Append, By, Caps, Credential, Device, Notice, Op, Outcome, Recorded, RuntimeKind,
    Seen, Store, StoreError, Stored,
};
use tokio::sync::broadcast;

use super::Backend;
use crate::ManualClock;

/// A store with the identities that the promises are about.
pub(super) struct Stage<'b> {
    pub(super) backend: &'b dyn Backend,
    pub(super) clock: Arc<ManualClock>,
    opened: Option<Arc<dyn Store>>,
    pub(super) agent: Principal,
    pub(super) other: Principal,
    /// An administrator, who reviews everything.
    pub(super) reviewer: Principal,
}

/// How long a request on the stage lives.
pub(super) const LIFE_MS: i64 = 600_000;

impl<'b> Stage<'b> {
    pub(super) async fn set(backend: &'b dyn Backend) -> Self {
        let clock = ManualClock::at(Time::from_ms(1_700_000_000_000));
        let opened = Some(backend.open(Arc::clone(&clock)).await);
        let identity = |id: &str, kind| Principal::new(id.parse().unwrap(), kind, format!("The {id}"));
        let stage = Self {
            backend,
            clock,
            opened,
            agent: identity("agent", PrincipalKind::Agent),
            other: identity("other", PrincipalKind::Agent),
            reviewer: identity("reviewer", PrincipalKind::Administrator),
        };
        for who in [&stage.agent, &stage.other, &stage.reviewer] {
            stage.provide(who, &format!("token of {}", who.id)).await;
        }
        stage
    }

    /// Drops the store and opens the database again.
    pub(super) async fn reopen(&mut self) {
        self.opened = None;
        self.opened = Some(self.backend.open(Arc::clone(&self.clock)).await);
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.opened.as_ref().expect("the stage is open")
    }

    pub(super) async fn execute(&self, op: Op) -> Outcome {
        self.store().execute(op).await.unwrap()
    }

    /// Gives an identity its only credential, by whoever has the file.
    pub(super) async fn provide(&self, who: &Principal, token: &str) {
        let op = Op::PutCredential { hash: hash(token), principal: who.clone(), recovers: false };
        assert_eq!(self.execute(op).await, Outcome::Committed(Answer::Done));
    }

    /// The administrator changes who may act.
    pub(super) async fn administer(&self, change: Administration) -> Outcome {
        self.execute(Op::Administer { change, by: By::from(&self.reviewer) }).await
    }

    pub(super) async fn revoke(&self, who: &Principal) {
        let revoked = self.administer(Administration::Revoke { id: who.id.clone() }).await;
        assert!(matches!(revoked, Outcome::Committed(Answer::Principal(_))), "{revoked:?}");
    }

    pub(super) async fn freeze(&self, agent: Option<&Principal>) {
        let agent = agent.map(|agent| agent.id.clone());
        let freeze = Administration::Freeze { agent, reason: Some("an incident".to_owned()) };
        assert_eq!(self.administer(freeze).await, Outcome::Committed(Answer::Done));
    }

    pub(super) async fn thaw(&self, agent: Option<&Principal>) -> Outcome {
        self.administer(Administration::Thaw { agent: agent.map(|agent| agent.id.clone()) }).await
    }

    pub(super) async fn offer_pairing(&self, code: &str, person: &str, scopes: Scopes) {
        let person = person.parse().unwrap();
        let offer = Administration::OfferPairing { code: hash(code), person, scopes, lasts_ms: 1_000 };
        assert_eq!(self.administer(offer).await, Outcome::Committed(Answer::Done));
    }

    pub(super) async fn pair(&self, code: &str, id: &str, token: &str) -> Outcome {
        self.execute(Op::Pair { code: hash(code), device: Box::new(device(id)), token: hash(token) }).await
    }

    pub(super) async fn admit(&self, id: &str, person: &str, scopes: Scopes, token: &str) -> Outcome {
        let (device, person) = (Box::new(device(id)), person.parse().unwrap());
        self.execute(Op::Admit { device, person, scopes, token: hash(token) }).await
    }

    /// A paired device that may review, and ask.
    pub(super) async fn device_of(&self, person: &str, id: &str) -> Principal {
        self.offer_pairing(id, person, Scopes::APPROVALS.or(Scopes::REQUEST)).await;
        principal(self.pair(id, id, &format!("token of {id}")).await)
    }

    /// A trusted host process, which resolves what `range` asks.
    pub(super) async fn runtime(&self, id: &str, range: Option<&Principal>) -> Principal {
        let range = range.map(|agent| agent.id.clone());
        let host =
            Principal { range, ..Principal::new(id.parse().unwrap(), PrincipalKind::Runtime, "The host") };
        let issue = Administration::IssueToken { hash: hash(id), principal: Box::new(host) };
        principal(self.administer(issue).await)
    }

    pub(super) async fn put_groups(&self, groups: &[(&str, &[&str])]) -> Outcome {
        let groups = groups.iter().map(|(group, people)| {
            let people = people.iter().map(|person| person.parse().unwrap());
            ((*group).to_owned(), people.collect())
        });
        self.execute(Op::PutGroups { groups: groups.collect() }).await
    }

    pub(super) async fn put_session(&self, key: &str, controller: &str, by: &Principal) -> Outcome {
        let edges = SessionEdges { controller: Some(controller.to_owned()), ..SessionEdges::default() };
        self.execute(Op::PutSession { key: key.to_owned(), edges, by: By::from(by) }).await
    }

    /// The identity behind a token.
    pub(super) async fn holder(&self, token: &str) -> Option<Principal> {
        self.store().credential(Credential::Token(hash(token))).await.unwrap()
    }

    pub(super) async fn caller(&self, by: &Principal) -> EpochId {
        let epoch = holdgate_store::mint::epoch();
        self.start(epoch.clone(), RuntimeKind::Caller, by).await;
        epoch
    }

    pub(super) async fn gateway(&self, instance: &str) -> EpochId {
        let epoch = holdgate_store::mint::epoch();
        self.start(
            epoch.clone(),
            RuntimeKind::Gateway { instance: instance.to_owned() },
            &Principal::authority(),
        )
        .await;
        epoch
    }

    async fn start(&self, epoch: EpochId, kind: RuntimeKind, by: &Principal) {
        let outcome = self.execute(Op::StartRuntime { epoch, kind, by: By::from(by) }).await;
        assert!(matches!(outcome, Outcome::Committed(Answer::Runtime(_))), "{outcome:?}");
    }

    pub(super) async fn renew(&self, epoch: &EpochId, by: &Principal) -> Outcome {
        self.execute(Op::RenewRuntime { epoch: epoch.clone(), by: By::from(by) }).await
    }

    /// Opens a request of the agent behind a live process.
    pub(super) async fn ask(&self, epoch: &EpochId, boundary: &str) -> Approval {
        approval(self.open(draft(boundary, Binding::Runtime(epoch.clone())), None, &self.agent).await)
    }

    /// Opens a request of the agent that takes something of its own.
    pub(super) async fn ask_for(
        &self,
        epoch: &EpochId,
        boundary: &str,
        requirement: Requirement,
    ) -> Approval {
        let draft = Draft { requirement, ..draft(boundary, Binding::Runtime(epoch.clone())) };
        approval(self.open(draft, None, &self.agent).await)
    }

    pub(super) async fn open(&self, draft: Draft, fence: Option<Fence>, by: &Principal) -> Outcome {
        self.execute(open(draft, fence, by)).await
    }

    pub(super) async fn apply(&self, id: &ApprovalId, command: Command, by: &Principal) -> Outcome {
        self.execute(Op::Apply { id: id.clone(), command, by: By::from(by) }).await
    }

    pub(super) async fn vote(&self, on: &Approval, decision: Decision) -> Outcome {
        self.vote_of(&self.reviewer, on, decision).await
    }

    pub(super) async fn vote_of(&self, by: &Principal, on: &Approval, decision: Decision) -> Outcome {
        self.apply(&on.id, vote(on, decision), by).await
    }

    pub(super) async fn claim(&self, on: &Approval, claim_id: &str, fence: Option<Fence>) -> Outcome {
        self.apply(&on.id, claim(on, claim_id, fence), &self.agent).await
    }

    pub(super) async fn settle(&self, on: &Approval, claim_id: &str, outcome: Came) -> Outcome {
        let command = Command::Settle { claim_id: claim_id.parse().unwrap(), outcome, detail: None };
        self.apply(&on.id, command, &self.agent).await
    }

    pub(super) async fn find(&self, locator: &str) -> Option<Seen> {
        self.store().approval(locator).await.unwrap()
    }

    pub(super) async fn seen(&self, id: &ApprovalId) -> Seen {
        self.find(id.as_str()).await.expect("the approval exists")
    }

    /// The record as it is stored, whatever time has decided since.
    pub(super) async fn stored(&self, id: &ApprovalId) -> Approval {
        sound(self.seen(id).await)
    }

    /// Every fact after the one of number `after`, read in small pages.
    pub(super) async fn facts(&self, after: u64) -> Vec<Recorded> {
        let mut facts: Vec<Recorded> = Vec::new();
        loop {
            let last = facts.last().map_or(after, |fact| fact.seq);
            let page = self.store().events(last, 7).await.unwrap();
            if page.is_empty() {
                return facts;
            }
            assert!(page.len() <= 7);
            facts.extend(page);
        }
    }

    pub(super) async fn create_run(&self, id: &str) -> RunId {
        self.create_run_of(id, &self.agent).await
    }

    pub(super) async fn create_run_of(&self, id: &str, by: &Principal) -> RunId {
        let id: RunId = id.parse().unwrap();
        let op = Op::CreateRun { id: id.clone(), agent: "releaser".to_owned(), by: By::from(by) };
        assert!(matches!(self.execute(op).await, Outcome::Committed(Answer::Run(_))));
        id
    }

    pub(super) async fn hold(&self, id: &RunId, command: RunCommand) -> Result<Run, Refusal> {
        self.hold_by(id, command, &self.agent).await
    }

    pub(super) async fn hold_by(
        &self,
        id: &RunId,
        command: RunCommand,
        by: &Principal,
    ) -> Result<Run, Refusal> {
        match self.execute(Op::HoldRun { id: id.clone(), command, by: By::from(by) }).await {
            Outcome::Committed(Answer::Run(run)) => Ok(run),
            Outcome::Refused(why, _) => Err(why),
            other => panic!("a hold was answered {other:?}"),
        }
    }

    /// A run that the agent holds, and the fence it holds it with.
    pub(super) async fn held_run(&self, id: &str) -> (RunId, Fence) {
        let id = self.create_run(id).await;
        let run = self.hold(&id, RunCommand::Lease).await.unwrap();
        (id, run.fence)
    }

    pub(super) async fn append(&self, append: Append) -> Outcome {
        self.execute(Op::Append { append, by: By::from(&self.agent), caps: Caps::default() }).await
    }

    pub(super) async fn sweep(&self, limit: u32) -> u32 {
        touched(self.execute(Op::Sweep { limit }).await)
    }
}

pub(super) fn hash(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

pub(super) fn device(id: &str) -> Device {
    Device {
        id: id.parse().unwrap(),
        label: format!("The {id}"),
        public_key: Some([7; 32]),
        platform: Some("linux".to_owned()),
        family: None,
    }
}

pub(super) fn reviewers(names: &[&str]) -> ReviewerList {
    ReviewerList::try_from(names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>()).unwrap()
}

/// A request to call a tool.
pub(super) fn draft(boundary: &str, binding: Binding) -> Draft {
    let content =
        Canonical::parse(r#"{"toolName":"deploy","input":{"stage":"production","replicas":3}}"#).unwrap();
    let presentation = holdgate_core::presentation::present(Kind::Tool, &content.to_value()).unwrap();
    Draft {
        id: None,
        action: Action::freeze(Kind::Tool, boundary, content).unwrap(),
        presentation,
        reason: Some("the tests passed".to_owned()),
        source: Source {
            agent: Some("releaser".to_owned()),
            tool_name: Some("deploy".to_owned()),
            ..Source::default()
        },
        binding,
        requirement: Requirement::default(),
        timeout_ms: LIFE_MS,
        client: None,
        v4_request: None,
    }
}

/// The same, from a session.
pub(super) fn draft_in(session: &str, boundary: &str, epoch: &EpochId) -> Draft {
    let mut draft = draft(boundary, Binding::Runtime(epoch.clone()));
    draft.source.session = Some(session.to_owned());
    draft
}

pub(super) fn open(draft: Draft, fence: Option<Fence>, by: &Principal) -> Op {
    Op::Open { draft: Box::new(draft), fence, by: By::from(by), key: None, caps: Caps::default() }
}

pub(super) fn entry(run: &RunId, fence: Fence, after: u64, events: &[&str]) -> Append {
    Append {
        run: run.clone(),
        fence,
        after,
        events: events.iter().map(|&event| event.to_owned()).collect(),
        state: RunState::Running,
        opens: Vec::new(),
    }
}

pub(super) fn vote(on: &Approval, decision: Decision) -> Command {
    Command::Vote { decision, digest: on.digest, reason: None }
}

pub(super) fn claim(on: &Approval, claim_id: &str, fence: Option<Fence>) -> Command {
    Command::Claim { claim_id: claim_id.parse().unwrap(), digest: on.digest, fence }
}

/// The approval of a change that was made.
pub(super) fn approval(outcome: Outcome) -> Approval {
    match outcome {
        Outcome::Committed(Answer::Approval(approval)) => *approval,
        other => panic!("not a committed approval: {other:?}"),
    }
}

/// The approval of a change that had been made before.
pub(super) fn duplicate(outcome: Outcome) -> Approval {
    match outcome {
        Outcome::Duplicate(Answer::Approval(approval)) => *approval,
        other => panic!("not a duplicate approval: {other:?}"),
    }
}

/// The identity of a change that was made.
pub(super) fn principal(outcome: Outcome) -> Principal {
    match outcome {
        Outcome::Committed(Answer::Principal(principal)) => *principal,
        other => panic!("not a committed identity: {other:?}"),
    }
}

pub(super) fn touched(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Committed(Answer::Touched(count)) => count,
        other => panic!("not a count of what was changed: {other:?}"),
    }
}

/// Why nothing was changed.
pub(super) fn refusal(outcome: Outcome) -> Refusal {
    refused(outcome).0
}

/// Why nothing was changed, and the record as it stands.
pub(super) fn refused(outcome: Outcome) -> (Refusal, Option<Approval>) {
    match outcome {
        Outcome::Refused(why, winner) => (why, winner.map(|winner| *winner)),
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) fn sound(seen: Seen) -> Approval {
    match seen.stored {
        Stored::Sound(approval) => *approval,
        Stored::Corrupt { id, why } => panic!("{id} does not decode: {why}"),
    }
}

/// The notices that are waiting. What was committed before this is called is among them.
pub(super) fn drain(notices: &mut broadcast::Receiver<Notice>) -> Vec<Notice> {
    let mut drained = Vec::new();
    loop {
        match notices.try_recv() {
            Ok(notice) => drained.push(notice),
            Err(broadcast::error::TryRecvError::Empty) => return drained,
            Err(other) => panic!("{other}"),
        }
    }
}

/// What will answer an operation.
pub(super) type Answering<'a> = Pin<Box<dyn Future<Output = Result<Outcome, StoreError>> + Send + 'a>>;

/// Hands an operation in and does not wait: what will answer it, or the answer that came at once.
pub(super) async fn hand_in(store: &dyn Store, op: Op) -> Result<Answering<'_>, Result<Outcome, StoreError>> {
    let mut answering = store.execute(op);
    match poll_fn(|cx| Poll::Ready(answering.as_mut().poll(cx))).await {
        Poll::Pending => Ok(answering),
        Poll::Ready(answer) => Err(answer),
    }
}
