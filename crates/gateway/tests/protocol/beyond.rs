//! What `docs/protocol.md` says of ours where the recording has no case.

use std::time::Duration;

use holdgate_core::Principal;
use holdgate_core::principal::PrincipalKind;
use holdgate_gateway::credential_hash;
use holdgate_store::{Op, Store};
use holdgate_testkit::gateway::{Persona, TestGateway};
use holdgate_testkit::v4::{Auth, Client, Connect, Identity, Reply, Trace};
use serde_json::{Value, json};

const APPROVER: [&str; 2] = ["operator.read", "operator.approvals"];

async fn dial(gateway: &TestGateway, connect: Connect) -> Client {
    let connected = Client::connect(&gateway.ws_url(), &connect, &Trace::default()).await;
    connected.unwrap_or_else(|refused| panic!("{} was refused: {refused:?}", connect.name))
}

/// A paired device of this name, with approval events.
async fn reviewer(gateway: &TestGateway, name: &str) -> Client {
    let shared = Auth::token(gateway.shared_token());
    let device = Connect { display_name: Some(format!("{name}'s phone")), ..Connect::new(name, shared) };
    dial(gateway, device.device().approvals().scopes(&APPROVER)).await
}

async fn agent(gateway: &TestGateway) -> Client {
    let agent = Connect::new("agent", Auth::token(Persona::Agent.name()));
    dial(gateway, agent.client("gateway-client", "backend").scopes(&["operator.admin"])).await
}

fn command(more: Value) -> Value {
    let mut request = json!({ "command": "echo hi", "host": "gateway", "twoPhase": true });
    for (name, value) in more.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

async fn ask(by: &Client, more: Value) -> String {
    let asked = by.call("exec.approval.request", &command(more)).await;
    assert_eq!(asked.at("/status"), "accepted", "{asked:?}");
    asked.at("/id").as_str().unwrap().to_owned()
}

async fn get(by: &Client, id: &str) -> Reply {
    by.call("approval.get", &json!({ "id": id })).await
}

#[tokio::test]
async fn a_request_that_nobody_can_answer_is_accepted_and_then_denied() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let call = agent.start_final("exec.approval.request", &command(json!({}))).await;
    let accepted = call.accepted().await.unwrap();
    assert_eq!(accepted["deliveryRoute"], "none");
    let ended = call.reply().await;
    assert_eq!(ended.at("/decision"), Value::Null);
    let waited = agent.call("exec.approval.waitDecision", &json!({ "id": accepted["id"] })).await;
    assert_eq!((waited.at("/decision"), waited.at("/terminalReason")), (Value::Null, json!("no-route")));
}

#[tokio::test]
async fn what_is_odd_about_a_command_and_what_has_no_field_stands_in_its_warning() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let reviewer = reviewer(&gateway, "reviewer").await;
    let hidden = "login password='x; rm -rf ~'";
    let id =
        ask(&agent, json!({ "command": hidden, "cwd": "/srv", "warningText": "harmless\nDirectory: /" }))
            .await;
    let told = "a secret is hidden as ***; the digest covers it\n\
                a hidden secret holds spaces or shell syntax: what it would do cannot be seen here\n\
                Directory: \"/srv\"\n\
                The requester says: harmless\nDirectory: /";
    assert_eq!(get(&reviewer, &id).await.at("/approval/presentation/warningText"), told);
    let listed = reviewer.call("exec.approval.list", &json!({})).await;
    assert_eq!(listed.at("/0/request/warningText"), told);
    let by_family = reviewer.call("exec.approval.get", &json!({ "id": id })).await;
    assert_eq!(by_family.at("/warningText"), told);

    // Nobody is shown a summary that no digest holds, nor a name that is not the requester's alone.
    let scope = json!({ "kind": "payment", "amount": "1000000", "currency": "EUR", "target": "mallory" });
    let plan = json!({ "argv": ["rm", "-rf", "/srv"], "cwd": null, "commandText": "rm -rf /srv",
        "commandPreview": "lists files", "agentId": "release-bot", "sessionKey": null });
    let id = ask(&agent, json!({ "systemRunPlan": plan, "scope": scope })).await;
    let by_family = reviewer.call("exec.approval.get", &json!({ "id": id })).await;
    assert_eq!(by_family.at("/commandPreview"), Value::Null);
    let told = "scope.amount: \"1000000\"\nscope.currency: \"EUR\"\nscope.kind: \"payment\"\n\
                scope.target: \"mallory\"\nAsked by: agent";
    assert_eq!(by_family.at("/warningText"), told);

    let operand = json!({ "argvIndex": 1, "path": "/srv/run.sh", "sha256": "ab" });
    let plan = json!({ "argv": ["sh", "run.sh"], "cwd": null, "commandText": "sh run.sh", "agentId": null,
        "sessionKey": null, "mutableFileOperand": operand });
    let id = ask(&agent, json!({ "systemRunPlan": plan })).await;
    let told = "mutableFileOperand.argvIndex: 1\nmutableFileOperand.path: \"/srv/run.sh\"\n\
                mutableFileOperand.sha256: \"ab\"";
    assert_eq!(get(&reviewer, &id).await.at("/approval/presentation/warningText"), told);
}

#[tokio::test]
async fn what_is_odd_about_a_plugins_action_stands_in_its_detail_or_it_can_only_be_denied() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let reviewer = reviewer(&gateway, "reviewer").await;
    let ask = async |detail: String| {
        let tool = json!({ "server": "files", "tool": "rm" });
        let asked = json!({ "title": "Tidy \u{202E}up", "description": "d", "detail": detail, "mcpTool": tool,
            "twoPhase": true });
        let asked = agent.call("plugin.approval.request", &asked).await;
        asked.at("/id").as_str().unwrap_or_else(|| panic!("{asked:?}")).to_owned()
    };
    let short = get(&reviewer, &ask("all of it".to_owned()).await).await;
    let told = "1 invisible or direction-changing character\nmcpTool.server: \"files\"\nmcpTool.tool: \"rm\"\nThe requester says: all of it";
    assert_eq!(short.at("/approval/presentation/detail"), told);
    let id = ask("x".repeat(16_384)).await;
    let long = get(&reviewer, &id).await;
    assert_eq!(long.at("/approval/presentation/allowedDecisions"), json!(["deny"]));
    let said = long.at("/approval/presentation/description");
    assert!(said.as_str().is_some_and(|said| said.contains("Open its page")), "{said}");
    let answer = json!({ "id": id, "kind": "plugin", "decision": "allow-once" });
    let refused = reviewer.call("approval.resolve", &answer).await.outcome();
    assert_eq!(refused["details"]["reason"], "APPROVAL_DECISION_NOT_ALLOWED", "{refused}");
    assert_eq!(get(&reviewer, &id).await.at("/approval/status"), "pending");
}

#[tokio::test]
async fn a_request_that_could_not_be_kept_is_refused_before_any_work() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let reason = async |method: &str, params: Value| {
        let refused = agent.call(method, &params).await.outcome();
        refused["details"]["reason"].as_str().unwrap_or_else(|| panic!("{refused}")).to_owned()
    };
    let long = "password=x ".repeat(300_000);
    let exec = "exec.approval.request";
    assert_eq!(reason(exec, command(json!({ "warningText": long }))).await, "TOO_LARGE");
    assert_eq!(reason(exec, command(json!({ "command": long }))).await, "TOO_LARGE");
    let shorter = &long[..100_000];
    let too_long = "EXEC_APPROVAL_COMMAND_DISPLAY_LIMIT";
    assert_eq!(reason(exec, command(json!({ "command": shorter }))).await, too_long);
    assert_eq!(reason(exec, command(json!({ "commandArgv": ["ls", shorter] }))).await, too_long);
    let plugin = json!({ "title": "t", "description": "d", "pluginId": long });
    assert_eq!(reason("plugin.approval.request", plugin).await, "TOO_LARGE");
    let names = json!({ "env": { (long.as_str()): "x" } });
    assert_eq!(reason(exec, command(names)).await, "TOO_LARGE");
    // Only its digest is kept.
    ask(&agent, json!({ "env": { "LARGE": "x".repeat(400_000) } })).await;
}

#[tokio::test]
async fn arguments_are_shown_and_not_a_line_that_says_something_else() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let reviewer = reviewer(&gateway, "reviewer").await;
    let plan = json!({ "argv": ["rm", "-rf", "/"], "cwd": null, "commandText": "echo hi", "agentId": null,
        "sessionKey": null });
    for more in [json!({ "commandArgv": ["rm", "-rf", "/"] }), json!({ "systemRunPlan": plan })] {
        let id = ask(&agent, more).await;
        let shown = get(&reviewer, &id).await;
        assert_eq!(shown.at("/approval/presentation/commandText"), "rm -rf /");
    }
    let id = ask(&agent, json!({ "command": "echo a b", "commandArgv": ["echo", "a b"] })).await;
    assert_eq!(get(&reviewer, &id).await.at("/approval/presentation/commandText"), "echo 'a b'");
    let id = ask(&agent, json!({ "command": "echo a", "commandArgv": ["echo", "a", ""] })).await;
    assert_eq!(get(&reviewer, &id).await.at("/approval/presentation/commandText"), "echo a ''");
}

#[tokio::test]
async fn a_request_without_a_route_waits_if_it_needs_none() {
    let gateway = TestGateway::start_for_v4().await;
    let agent = agent(&gateway).await;
    let id = ask(&agent, json!({ "requireDeliveryRoute": false })).await;
    // Whoever comes later finds it.
    let late = reviewer(&gateway, "late").await;
    assert_eq!(get(&late, &id).await.at("/approval/status"), "pending");
    let listed = late.call("exec.approval.list", &json!({})).await;
    assert_eq!(listed.at("/0/id"), json!(id));
}

#[tokio::test]
async fn both_families_of_methods_record_who_answered() {
    let gateway = TestGateway::start_for_v4().await;
    let (ann, agent) = (reviewer(&gateway, "ann").await, agent(&gateway).await);
    let mut resolvers = Vec::new();
    for (method, kind) in [("approval.resolve", Some("exec")), ("exec.approval.resolve", None)] {
        let id = ask(&agent, json!({})).await;
        let mut answer = json!({ "id": id, "decision": "deny" });
        if let Some(kind) = kind {
            answer["kind"] = json!(kind);
        }
        assert!(ann.call(method, &answer).await.ok);
        resolvers.push(get(&ann, &id).await.at("/approval/resolver"));
    }
    let expected = json!({ "kind": "device", "id": "shared-operator (ann's phone)" });
    assert_eq!(resolvers, [expected.clone(), expected]);
}

#[tokio::test]
async fn a_device_that_is_no_listed_reviewer_knows_of_nothing() {
    let gateway = TestGateway::start_for_v4().await;
    let id = "runtime".parse().unwrap();
    let principal = Principal::new(id, PrincipalKind::Runtime, "runtime");
    let op = Op::PutCredential { hash: credential_hash("runtime-token"), principal, recovers: false };
    gateway.store.execute(op).await.unwrap();
    let runtime = Connect::new("runtime", Auth::token("runtime-token")).client("gateway-client", "backend");
    let runtime = dial(&gateway, runtime.scopes(&APPROVER)).await;
    let (ann, bob) = (reviewer(&gateway, "ann").await, reviewer(&gateway, "bob").await);

    let key = "agent:main:secret";
    let follow = json!({ "key": key, "includeApprovals": true });
    assert!(bob.call("sessions.messages.subscribe", &follow).await.ok);
    let listed = [Identity::named("ann").device_id()];
    let id = ask(&runtime, json!({ "approvalReviewerDeviceIds": listed, "sessionKey": key })).await;

    let absent = get(&bob, "nope").await;
    assert_eq!(get(&bob, &id).await, absent);
    let answer = |decision: &str| json!({ "id": id, "kind": "exec", "decision": decision });
    assert_eq!(bob.call("approval.resolve", &answer("deny")).await.error, absent.error);
    assert_eq!(bob.call("exec.approval.list", &json!({})).await.payload, Some(json!([])));
    let replay = bob.call("sessions.messages.subscribe", &follow).await;
    assert_eq!(replay.at("/approvalReplay/approvals"), json!([]));

    assert_eq!(ann.call("approval.resolve", &answer("deny")).await.at("/applied"), true);
    ann.event(|event| event["event"] == "exec.approval.resolved").await.unwrap();
    assert_eq!(ann.call("approval.history", &json!({})).await.at("/items/0/id"), json!(id));
    assert_eq!(bob.call("approval.history", &json!({})).await.at("/items"), json!([]));
    assert_eq!(get(&bob, &id).await, absent);
    let heard =
        bob.event_within(Duration::from_millis(100), |event| event["event"] != "connect.challenge").await;
    assert_eq!(heard, None);
}

#[tokio::test]
async fn an_agent_asks_and_never_answers_whatever_it_asks_to_be() {
    let gateway = TestGateway::start_for_v4().await;
    let (ann, agent) = (reviewer(&gateway, "ann").await, agent(&gateway).await);
    assert_eq!(agent.hello()["auth"]["scopes"], json!(["approvals.request"]));
    let id = ask(&agent, json!({})).await;
    for (method, params) in [
        ("approval.resolve", json!({ "id": id, "kind": "exec", "decision": "allow-once" })),
        ("exec.approval.resolve", json!({ "id": id, "decision": "allow-once" })),
    ] {
        let answered = agent.call(method, &params).await;
        assert!(!answered.ok, "{method}: {answered:?}");
    }
    assert_eq!(get(&ann, &id).await.at("/approval/status"), "pending");
    let allow = json!({ "id": id, "kind": "exec", "decision": "allow-once" });
    assert_eq!(ann.call("approval.resolve", &allow).await.at("/applied"), true);
    let waited = agent.call("exec.approval.waitDecision", &json!({ "id": id })).await;
    assert_eq!(waited.at("/decision"), "allow-once");
}

#[tokio::test]
async fn waiting_works_as_long_as_the_record_is_kept() {
    let gateway = TestGateway::start_for_v4().await;
    let (ann, agent) = (reviewer(&gateway, "ann").await, agent(&gateway).await);
    let id = ask(&agent, json!({})).await;
    assert!(ann.call("exec.approval.resolve", &json!({ "id": id, "decision": "deny" })).await.ok);
    let gateway = gateway.restart().await;
    let again = self::agent(&gateway).await;
    let waited = again.call("exec.approval.waitDecision", &json!({ "id": id })).await;
    assert_eq!((waited.at("/decision"), waited.at("/terminalReason")), (json!("deny"), json!("user")));
}
