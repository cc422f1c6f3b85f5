//! One story over both authorities: what is answered here and over the network is the same.

use std::sync::Arc;
use std::time::Duration;

use holdgate_authority::{Authority, Error, Local};
use holdgate_client::Remote;
use holdgate_core::requirement::Decision;
use holdgate_testkit::gateway::{Persona, TestGateway};
use holdgate_wire::request::SettledOutcome;
use holdgate_wire::{
    AppendEvents, Cancel, Code, CreateApproval, CreateRun, Decide, LeaseRun, ListApprovals, MakeClaim,
    RunBinding, Settle,
};
use serde_json::json;
use serde_json::value::RawValue;

/// Who speaks, over one way to speak.
struct Cast {
    operator: Arc<dyn Authority>,
    agent: Arc<dyn Authority>,
    other: Arc<dyn Authority>,
}

impl Cast {
    fn of(as_one: impl Fn(Persona) -> Arc<dyn Authority>) -> Self {
        Self {
            operator: as_one(Persona::Reviewer),
            agent: as_one(Persona::Agent),
            other: as_one(Persona::OtherAgent),
        }
    }
}

fn local(gateway: &TestGateway) -> Cast {
    Cast::of(|persona| Arc::new(Local::new(Arc::clone(&gateway.service), persona.principal())))
}

fn remote(gateway: &TestGateway) -> Cast {
    Cast::of(|persona| Arc::new(Remote::new(&gateway.url, persona.name()).unwrap()))
}

fn ask(way: &str, name: &str) -> CreateApproval {
    serde_json::from_value(json!({
        "kind": "exec", "boundary": format!("{way}:{name}"), "content": {"argv": ["echo", "1.50", name]},
        "reason": "a\u{200b}b", "source": {"agent": way},
    }))
    .unwrap()
}

fn answer(approval: &holdgate_wire::Approval, decision: Decision) -> Decide {
    Decide { decision, digest: approval.digest.clone(), reason: Some("seen".to_owned()) }
}

/// The code of a refusal, which must be one.
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    result.unwrap_err().code().expect("it is the authority that refuses")
}

/// Everything that can become of requests, with everybody trying what they may not. Tells what happened.
async fn approvals(cast: &Cast, way: &str) -> Vec<String> {
    let (id, asked) = asks(cast, way).await;
    [asked, answers(cast, &id).await, withdraws(cast, way).await].concat()
}

/// Asks, reads and lists. Answers the request's id.
async fn asks(cast: &Cast, way: &str) -> (String, Vec<String>) {
    let Cast { operator, agent, other } = cast;
    let mut told = Vec::new();
    let mut tell = |what: &str, how: String| told.push(format!("{what}: {how}"));

    let created = agent.create(ask(way, "a"), Some(&format!("{way}-key"))).await.unwrap();
    let id = created.approval.id.clone();
    tell(
        "created",
        format!("{} {:?} {:?}", created.is_new, created.approval.status, created.approval.request_reason),
    );
    let again = agent.create(ask(way, "a"), Some(&format!("{way}-key"))).await.unwrap();
    tell("created again", format!("{} {}", again.is_new, again.approval.id == id));
    let mismatch = agent.create(ask(way, "b"), Some(&format!("{way}-key"))).await;
    tell("another body under the key", format!("{:?}", refusal(mismatch)));
    let bad = CreateApproval {
        content: RawValue::from_string(r#"{"a":1,"a":2}"#.to_owned()).unwrap(),
        ..ask(way, "c")
    };
    tell("a key given twice", agent.create(bad, None).await.unwrap_err().to_string());

    tell("another agent reads", format!("{:?}", refusal(other.get(&id).await)));
    tell("another agent lists", other.list(ListApprovals::default()).await.unwrap().items.len().to_string());
    let query = ListApprovals { agent: Some(way.to_owned()), ..ListApprovals::default() };
    tell("the operator lists", operator.list(query).await.unwrap().items.len().to_string());
    let bad = ListApprovals { limit: Some(0), ..ListApprovals::default() };
    tell("a bad limit", operator.list(bad).await.unwrap_err().to_string());
    tell(
        "waiting in vain",
        format!("{:?}", agent.wait(&id, Duration::from_millis(20)).await.unwrap().status),
    );

    (id, told)
}

/// Answers, claims and settles.
async fn answers(cast: &Cast, id: &str) -> Vec<String> {
    let Cast { operator, agent, .. } = cast;
    let mut told = Vec::new();
    let mut tell = |what: &str, how: String| told.push(format!("{what}: {how}"));
    let shown = operator.get(id).await.unwrap();
    let allow = || answer(&shown, Decision::AllowOnce);
    tell("the agent decides", format!("{:?}", refusal(agent.decide(id, allow()).await)));
    let stale = Decide { digest: "0".repeat(64), ..allow() };
    tell("a stale digest", format!("{:?}", refusal(operator.decide(id, stale).await)));
    let early = MakeClaim { claim_id: "c1".to_owned(), digest: shown.digest.clone(), fence: None };
    tell("an early claim", format!("{:?}", refusal(agent.claim(id, early.clone()).await)));

    let (waited, decided) =
        tokio::join!(agent.wait(id, Duration::from_secs(20)), operator.decide(id, allow()));
    tell("decided", format!("{} {:?}", decided.unwrap().applied, waited.unwrap().status));
    tell("the same answer", operator.decide(id, allow()).await.unwrap().applied.to_string());
    let Err(Error::Problem(lost)) = operator.decide(id, answer(&shown, Decision::Deny)).await else {
        panic!()
    };
    tell("another answer", format!("{:?} {:?}", lost.code, lost.approval.unwrap().decision));

    tell("claimed", agent.claim(id, early.clone()).await.unwrap().claim_id);
    tell("claimed again", agent.claim(id, early.clone()).await.unwrap().claim_id);
    let second = MakeClaim { claim_id: "c2".to_owned(), ..early };
    tell("a second claim", format!("{:?}", refusal(agent.claim(id, second).await)));
    let settle = |id: &str| Settle {
        claim_id: id.to_owned(),
        outcome: SettledOutcome::Failed,
        detail: Some("exit 1".to_owned()),
    };
    tell("settled by name of another", format!("{:?}", refusal(agent.settle(id, settle("c2")).await)));
    let settled = agent.settle(id, settle("c1")).await.unwrap();
    tell("settled", format!("{:?}", settled.receipt.map(|receipt| (receipt.outcome, receipt.detail))));

    told
}

/// Calls a request off, answers it too late, and asks for what does not exist.
async fn withdraws(cast: &Cast, way: &str) -> Vec<String> {
    let Cast { operator, agent, other } = cast;
    let mut told = Vec::new();
    let mut tell = |what: &str, how: String| told.push(format!("{what}: {how}"));
    let withdrawn = agent.create(ask(way, "d"), None).await.unwrap().approval;
    tell(
        "another agent cancels",
        format!("{:?}", refusal(other.cancel(&withdrawn.id, Cancel::default()).await)),
    );
    let cancelled = agent.cancel(&withdrawn.id, Cancel::default()).await.unwrap();
    tell("cancelled", format!("{:?} {:?}", cancelled.status, cancelled.terminal_reason));
    tell(
        "too late",
        format!(
            "{:?}",
            refusal(operator.decide(&withdrawn.id, answer(&withdrawn, Decision::AllowOnce)).await)
        ),
    );
    for garbage in ["apr_", "x/../y", "😀", "apr_0000000000000000000000000000000"] {
        tell("garbage", format!("{:?}", refusal(operator.get(garbage).await)));
    }
    told
}

/// A run is created, taken, journaled, suspended at a gate, lost to another holder. Tells what happened.
async fn runs(cast: &Cast, way: &str) -> Vec<String> {
    let Cast { agent, other, .. } = cast;
    let mut told = Vec::new();
    let mut tell = |what: &str, how: String| told.push(format!("{what}: {how}"));
    let id = format!("run-{way}");
    let create = || CreateRun { id: Some(id.clone()), agent: "a".to_owned() };
    tell("created", agent.create_run(create()).await.unwrap().fence.to_string());
    tell("another's", format!("{:?}", refusal(other.run(&id).await)));
    let run = agent.lease_run(&id, LeaseRun::default()).await.unwrap();
    tell("taken", run.fence.to_string());
    tell("taken again", format!("{:?}", refusal(agent.lease_run(&id, LeaseRun::default()).await)));
    tell("created again", format!("{:?}", refusal(agent.create_run(create()).await)));
    let keep = LeaseRun { fence: Some(run.fence), release: false };
    tell("kept", agent.lease_run(&id, keep).await.unwrap().fence.to_string());

    let event = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let gate =
        CreateApproval { run: Some(RunBinding { id: id.clone(), fence: run.fence }), ..ask("run", way) };
    let append = |after, fence| AppendEvents {
        fence,
        after,
        events: vec![event(r#"{ "kept":  1.50 }"#), event("[]")],
        state: Some("suspended".to_owned()),
        approvals: vec![gate.clone()],
    };
    let appended = agent.append(&id, append(0, run.fence)).await.unwrap();
    tell(
        "appended",
        format!("{} {} {}", appended.run.last_seq, appended.run.state, appended.approvals.len()),
    );
    tell("a moved journal", format!("{:?}", refusal(agent.append(&id, append(0, run.fence)).await)));
    let next = agent.lease_run(&id, LeaseRun::default()).await.unwrap();
    tell("the next holder", next.fence.to_string());
    tell("a stale holder", format!("{:?}", refusal(agent.append(&id, append(2, run.fence)).await)));
    let page = agent.journal(&id, 0).await.unwrap();
    let events: Vec<_> = page.items.iter().map(|entry| (entry.seq, entry.event.get())).collect();
    tell("journal", format!("{} {events:?}", page.last_seq));
    tell("the rest of it", agent.journal(&id, 1).await.unwrap().items.len().to_string());

    let epoch = agent.start_runtime().await.unwrap();
    tell("an epoch", (agent.renew_runtime(&epoch.epoch).await.unwrap() == epoch).to_string());
    tell("another's epoch", format!("{:?}", refusal(other.renew_runtime(&epoch.epoch).await)));
    told
}

#[tokio::test]
async fn an_approval_goes_the_same_way_here_and_over_the_network() {
    let gateway = TestGateway::start().await;
    assert_eq!(approvals(&local(&gateway), "x").await, approvals(&remote(&gateway), "y").await);
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_goes_the_same_way_here_and_over_the_network() {
    let gateway = TestGateway::start().await;
    assert_eq!(runs(&local(&gateway), "x").await, runs(&remote(&gateway), "y").await);
    gateway.stop().await;
}

#[tokio::test]
async fn what_one_shows_the_other_shows() {
    let gateway = TestGateway::start().await;
    let (here, there) = (local(&gateway), remote(&gateway));
    let id = there.agent.create(ask("z", "a"), None).await.unwrap().approval.id;
    for (here, there) in [(here.operator, there.operator), (here.agent, there.agent)] {
        let (here, there) = (here.get(&id).await.unwrap(), there.get(&id).await.unwrap());
        assert_eq!(serde_json::to_value(here).unwrap(), serde_json::to_value(there).unwrap());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_unknown_token_is_told_so_and_nothing_else() {
    let gateway = TestGateway::start().await;
    let nobody = Remote::new(&gateway.url, Persona::Outsider.name()).unwrap();
    assert_eq!(refusal(nobody.list(ListApprovals::default()).await), Code::Unauthenticated);
    assert_eq!(refusal(nobody.get("apr_00112233445566778899aabbccddeeff").await), Code::Unauthenticated);
    gateway.stop().await;
}

#[tokio::test]
async fn a_wait_outlives_a_restart_of_the_gateway() {
    let gateway = TestGateway::start().await;
    let cast = remote(&gateway);
    let run = cast.agent.create_run(CreateRun { id: None, agent: "a".to_owned() }).await.unwrap();
    let fence = cast.agent.lease_run(&run.id, LeaseRun::default()).await.unwrap().fence;
    let asked = CreateApproval { run: Some(RunBinding { id: run.id, fence }), ..ask("r", "a") };
    let approval = cast.agent.create(asked, None).await.unwrap().approval;
    let agent = Arc::clone(&cast.agent);
    let id = approval.id.clone();
    let waiting = tokio::spawn(async move { agent.wait(&id, Duration::from_secs(30)).await });
    let gateway = gateway.restart().await;
    cast.operator.decide(&approval.id, answer(&approval, Decision::AllowOnce)).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().decision, Some(Decision::AllowOnce));
    gateway.stop().await;
}
