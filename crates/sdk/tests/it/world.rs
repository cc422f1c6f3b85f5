//! A store in a temporary file, the authority over it, an agent's voice and a reviewer's.

use std::sync::{Arc, Mutex};

use holdgate_authority::{Authority, Local, Role, Service};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Digest, Principal, Time};
use holdgate_sdk::{
    Agent, AgentBuilder, GateError, Model, NewRun, Outcome, Pending, Reply, RunError, Scripted, ToolCall,
    ToolError, TypedTool, Verdict, restore, run_agent,
};
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store};
use holdgate_testkit::{Faulty, ManualClock};
use holdgate_wire::{Approval, Decide, ListApprovals};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

pub const RUN: &str = "run-1";

pub struct World {
    pub clock: Arc<ManualClock>,
    pub store: Arc<Faulty>,
    pub agent: Arc<dyn Authority>,
    pub operator: Arc<dyn Authority>,
    _dir: TempDir,
}

impl World {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(Time::from_ms(1_000_000));
        let options = OpenOptions { path: dir.path().join("db"), clock: clock.clone() };
        let store = Faulty::new(SqliteStore::open(options).unwrap());
        let as_store: Arc<dyn Store> = store.clone();
        let service = Service::start(as_store, Role::Embedded).await.unwrap();
        let mut voices = Vec::new();
        for (name, kind) in [("agent", PrincipalKind::Agent), ("operator", PrincipalKind::Administrator)] {
            let principal = Principal::new(name.parse().unwrap(), kind, name);
            let hash = Digest::of(name.as_bytes());
            store
                .execute(Op::PutCredential { hash, principal: principal.clone(), recovers: false })
                .await
                .unwrap();
            voices.push(Arc::new(Local::new(service.clone(), principal)) as Arc<dyn Authority>);
        }
        let operator = voices.pop().unwrap();
        let agent = voices.pop().unwrap();
        Self { clock, store, agent, operator, _dir: dir }
    }

    pub async fn start(&self, agent: &Agent) -> Result<Outcome, RunError> {
        run_agent(self.agent.clone(), agent, new_run()).await
    }

    pub async fn restore(&self, agent: &Agent) -> Result<Outcome, RunError> {
        restore(self.agent.clone(), agent, RUN).await
    }

    pub async fn decide(&self, id: &str, decision: Decision, reason: Option<&str>) {
        let digest = self.record(id).await.digest;
        let decide = Decide { decision, digest, reason: reason.map(str::to_owned) };
        self.operator.decide(id, decide).await.unwrap();
    }

    pub async fn allow(&self, id: &str) {
        self.decide(id, Decision::AllowOnce, None).await;
    }

    pub async fn record(&self, id: &str) -> Approval {
        self.operator.get(id).await.unwrap()
    }

    pub async fn records(&self) -> Vec<Approval> {
        self.operator.list(ListApprovals::default()).await.unwrap().items
    }

    pub async fn journal(&self) -> Vec<String> {
        let page = self.agent.journal(RUN, 0).await.unwrap();
        page.items.iter().map(|entry| entry.event.get().to_owned()).collect()
    }
}

pub fn new_run() -> NewRun {
    NewRun { id: Some(RUN.to_owned()), input: "release it".to_owned(), ..NewRun::default() }
}

/// What really happened: one entry per call of a tool, with its idempotency key.
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<Vec<(String, String)>>>);

impl Effects {
    pub fn add(&self, tool: &str, key: &str) {
        self.0.lock().unwrap().push((tool.to_owned(), key.to_owned()));
    }

    pub fn keys(&self, tool: &str) -> Vec<String> {
        let effects = self.0.lock().unwrap();
        effects.iter().filter(|(name, _)| name == tool).map(|(_, key)| key.clone()).collect()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    pub version: String,
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A tool that notes that it ran.
pub fn noting(name: &'static str, effects: &Effects) -> TypedTool {
    let effects = effects.clone();
    TypedTool::new(name, "notes that it ran", move |args: Version, context| {
        let effects = effects.clone();
        async move {
            effects.add(name, &context.idempotency_key);
            if args.version == "broken" {
                return Err(ToolError::new("it broke"));
            }
            Ok(json!({ "released": args.version }))
        }
    })
}

/// `publish` waits for a person, `gossip` is denied, everything else runs.
pub async fn usual(call: ToolCall) -> Result<Verdict, GateError> {
    Ok(match call.tool_name.as_str() {
        "publish" => Verdict::Suspend { reason: Some("it is public".to_owned()), timeout: None },
        "gossip" => Verdict::Deny { reason: Some("no gossip".to_owned()) },
        _ => Verdict::Allow,
    })
}

pub fn builder(model: impl Model + 'static, effects: &Effects) -> AgentBuilder {
    Agent::builder("releaser", model)
        .tool(noting("note", effects))
        .tool(noting("publish", effects).consequential())
        .gate(usual)
}

/// Asks for these calls at once, then says what came of `publish`.
pub fn script(calls: &[(&str, &str, Value)]) -> Scripted {
    let mut reply = Reply::text("working on it");
    for (id, tool, arguments) in calls {
        reply = reply.call(*id, *tool, arguments);
    }
    let last = |transcript: &holdgate_sdk::Transcript| {
        Reply::text(format!("publish: {:?}", transcript.last_result("publish")))
    };
    Scripted::default().then(reply).then_with(last)
}

pub fn publish(id: &str, version: &str) -> (&'static str, &'static str, Value) {
    let id: &'static str = id.to_owned().leak();
    (id, "publish", json!({ "version": version }))
}

pub fn pending(outcome: Outcome) -> Vec<Pending> {
    match outcome {
        Outcome::Suspended { pending, .. } => pending,
        other => panic!("not suspended: {other:?}"),
    }
}

pub fn finished(outcome: Outcome) -> holdgate_sdk::Finished {
    match outcome {
        Outcome::Finished(finished) => finished,
        other => panic!("not finished: {other:?}"),
    }
}
