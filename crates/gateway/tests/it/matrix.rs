//! Every role, every method, every kind of record: one rule of access everywhere, and what may not be seen is byte for
//! byte what does not exist, found by the same way through the store.

use holdgate_core::{Access, Approval, Principal, Scopes, access};
use holdgate_store::{Store as _, Stored};
use holdgate_testkit::counting::Calls;
use holdgate_testkit::gateway::{Persona, Reply, TestGateway};
use holdgate_testkit::v4::{Auth, Client, Connect, Trace};
use reqwest::Method;
use serde_json::{Value, json};

const MISSING: &str = "apr_00000000000000000000000000000000";
const ABSENT_SESSION: &str = "agent:nobody:nowhere";

/// The records, in the order of the columns below.
const RECORDS: [&str; 5] = ["agent's", "agent's, listed", "device's", "device's, listed", "quorum"];

/// What each role may do to each record: `-` nothing, `r` resolve, `q` what who asked may, `v` review.
const RULE: [(&str, &str); 12] = [
    ("administrator", "vvvvv"),
    ("admin device", "vvvvv"),
    ("unlisted device", "v---v"),
    ("listed device", "vv-vv"),
    ("requesting device", "v-vqv"),
    ("same person's device", "v-v-v"),
    ("narrowed device", "-----"),
    ("requesting agent", "qq--q"),
    ("other agent", "-----"),
    ("runtime in range", "rr--r"),
    ("runtime out of range", "-----"),
    ("shared, without a device", "-----"),
];

/// One who calls, over HTTP if its credential is one there, and over a WebSocket.
struct Role {
    name: &'static str,
    rule: &'static str,
    token: Option<String>,
    socket: Client,
    /// Who it is, in its connection and over HTTP.
    principal: Principal,
    /// Its connection may not answer, whatever the record.
    is_asker: bool,
}

struct Record {
    id: String,
    session: String,
    family: &'static str,
}

async fn http(gateway: &TestGateway, token: &str, method: Method, path: &str, body: Option<Value>) -> Reply {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    gateway.anonymous().send(method, path, &headers, body.map(|body| body.to_string())).await
}

async fn admin(gateway: &TestGateway, path: &str, body: Value) -> Value {
    let reply = gateway.by(Persona::Reviewer).post(path, body).await;
    assert!(reply.status < 300, "{}", reply.text);
    reply.json()
}

/// Pairs a device; answers its id and token.
async fn pair(gateway: &TestGateway, person: &str, is_admin: bool) -> (String, String) {
    let offered = admin(gateway, "/v1/pairing", json!({ "person": person, "admin": is_admin })).await;
    let body = json!({ "code": offered["code"], "label": person });
    let paired = gateway.anonymous().post("/v1/pairing/complete", body).await;
    assert_eq!(paired.status, 201, "{}", paired.text);
    (paired.field("/device/id"), paired.field("/token"))
}

/// The roles, in the order of [`RULE`], and the token of the device that asks.
async fn roles(gateway: &TestGateway) -> (Vec<Role>, String) {
    let (boss, boss_token) = pair(gateway, "boss", true).await;
    let (una, una_token) = pair(gateway, "una", false).await;
    let (lia, lia_token) = pair(gateway, "lia", false).await;
    let (rob, rob_token) = pair(gateway, "rob", false).await;
    let (tablet, tablet_token) = pair(gateway, "rob", false).await;
    let mut runtimes = Vec::new();
    for (name, agent) in [("near", "agent"), ("far", "other-agent")] {
        let wanted = json!({ "kind": "runtime", "name": name, "forAgent": agent });
        let made = admin(gateway, "/v1/tokens", wanted).await;
        runtimes.push(made["token"].as_str().unwrap().to_owned());
    }
    let (approvals, all) = (&["operator.approvals"][..], &["operator.admin"][..]);
    let shared = gateway.shared_token().to_owned();
    let told: [(&str, Option<String>, Auth, &[&str]); 12] = [
        ("reviewer", Some("reviewer".to_owned()), Auth::token("reviewer"), all),
        (&boss, Some(boss_token.clone()), Auth::device_token(&boss_token), all),
        (&una, Some(una_token.clone()), Auth::device_token(&una_token), approvals),
        (&lia, Some(lia_token.clone()), Auth::device_token(&lia_token), approvals),
        (&rob, Some(rob_token.clone()), Auth::device_token(&rob_token), approvals),
        (&tablet, Some(tablet_token.clone()), Auth::device_token(&tablet_token), approvals),
        // HTTP knows no narrowing.
        (&lia, None, Auth::device_token(&lia_token), &["operator.read"]),
        ("agent", Some("agent".to_owned()), Auth::token("agent"), &[]),
        ("other-agent", Some("other-agent".to_owned()), Auth::token("other-agent"), &[]),
        ("near", Some(runtimes[0].clone()), Auth::token(&runtimes[0]), &[]),
        ("far", Some(runtimes[1].clone()), Auth::token(&runtimes[1]), &[]),
        ("", None, Auth::token(&shared), approvals),
    ];
    let mut roles = Vec::new();
    for ((name, rule), (id, token, auth, scopes)) in RULE.into_iter().zip(told) {
        let connect = Connect::new(name, auth).client("gateway-client", "backend").scopes(scopes).approvals();
        let socket = Client::connect(&gateway.ws_url(), &connect, &Trace::default()).await.unwrap();
        let principal = if id.is_empty() {
            shared_asker(gateway).await
        } else {
            gateway.store.identity(&id.parse().unwrap()).await.unwrap().unwrap().principal
        };
        let is_narrowed = scopes == ["operator.read"];
        let principal = if is_narrowed { principal.narrowed(Scopes::NONE) } else { principal };
        let is_asker = name.ends_with("agent");
        roles.push(Role { name, rule, token, socket, principal, is_asker });
    }
    (roles, rob_token)
}

/// Who everybody is that comes with the shared credential and no device: they ask.
async fn shared_asker(gateway: &TestGateway) -> Principal {
    let known = gateway.store.identities().await.unwrap();
    let personas = Persona::KNOWN.map(Persona::name);
    let mut askers = known.into_iter().map(|identity| identity.principal).filter(|principal| {
        principal.kind == holdgate_core::principal::PrincipalKind::Agent
            && !personas.contains(&principal.id.as_str())
    });
    askers.next().unwrap()
}

/// Asks for the `which`th record; its session is its own.
async fn ask(gateway: &TestGateway, which: usize, kind: &str, nth: usize, device: &str) -> Record {
    let content = match kind {
        "exec" => json!({ "argv": ["deploy", nth.to_string()] }),
        _ => json!({ "toolName": "deploy", "input": { "nth": nth } }),
    };
    let requirement = match which {
        1 | 3 => json!({ "reviewers": ["person:lia"] }),
        4 => json!({ "approvals": 2 }),
        _ => json!({}),
    };
    let session = format!("agent:work:{kind}-{which}-{nth}");
    let body = json!({ "kind": kind, "content": content, "boundary": format!("t:{which}-{nth}"),
        "requirement": requirement, "source": { "session": session } });
    let token = if matches!(which, 2 | 3) { device } else { "agent" };
    let asked = http(gateway, token, Method::POST, "/v1/approvals", Some(body)).await;
    assert_eq!(asked.status, 201, "{}", asked.text);
    let family = if kind == "exec" { "exec" } else { "plugin" };
    Record { id: asked.field("/id"), session, family }
}

/// A way to name one record, and who is told that there is such a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    /// Who may read it.
    Readers,
    /// Who may answer it.
    Deciders,
    /// Everybody to whom it exists.
    All,
}

/// The calls of HTTP that name one record. What ends it comes last.
fn http_calls() -> Vec<(Method, &'static str, Option<Value>, Told)> {
    let wrong = "0".repeat(64);
    vec![
        (Method::GET, "", None, Told::Readers),
        (Method::GET, "/wait?timeoutMs=0", None, Told::Readers),
        (Method::POST, "/decision", Some(json!({ "decision": "deny", "digest": wrong })), Told::All),
        (Method::POST, "/claim", Some(json!({ "claimId": "c", "digest": wrong })), Told::All),
        (Method::POST, "/receipt", Some(json!({ "claimId": "c", "outcome": "failed" })), Told::All),
        (Method::POST, "/revoke", Some(json!({})), Told::All),
    ]
}

/// The methods that name one record. What ends it, or waits for its end, comes last.
fn methods(family: &str) -> Vec<(String, Value, Told)> {
    let wrong = "0".repeat(64);
    let mut methods = vec![
        ("approval.get".to_owned(), json!({}), Told::Readers),
        ("approval.wait".to_owned(), json!({ "timeoutMs": 0 }), Told::Readers),
        ("approval.decide".to_owned(), json!({ "decision": "deny", "digest": wrong }), Told::All),
        ("approval.claim".to_owned(), json!({ "claimId": "c", "digest": wrong }), Told::All),
        ("approval.settle".to_owned(), json!({ "claimId": "c", "outcome": "failed" }), Told::All),
        ("approval.revoke".to_owned(), json!({}), Told::All),
    ];
    if family == "exec" {
        methods.push(("exec.approval.get".to_owned(), json!({}), Told::Readers));
    }
    let resolve =
        |name: &str| (name.to_owned(), json!({ "kind": family, "decision": "deny" }), Told::Deciders);
    let (canonical, mut own) = (resolve("approval.resolve"), resolve(&format!("{family}.approval.resolve")));
    own.1.as_object_mut().unwrap().remove("kind");
    methods.extend([own, canonical]);
    methods
}

/// What is not told of the record itself: everything, with its id replaced.
fn without(id: &str, text: &str) -> String {
    text.replace(id, "ID")
}

fn may(told: Told, access: Access) -> bool {
    match told {
        Told::Readers => access.may_read(),
        Told::Deciders => access.may_decide(),
        Told::All => access != Access::None,
    }
}

impl Role {
    fn access(&self, which: usize) -> Access {
        match self.rule.as_bytes()[which] {
            b'-' => Access::None,
            b'r' => Access::Resolve,
            b'q' => Access::Request,
            _ => Access::Review,
        }
    }

    async fn over_http(
        &self,
        gateway: &TestGateway,
        id: &str,
        call: &(Method, &'static str, Option<Value>, Told),
    ) -> ((u16, String, Vec<String>), Calls) {
        let path = format!("/v1/approvals/{id}{}", call.1);
        gateway.counting.take();
        let reply =
            http(gateway, self.token.as_deref().unwrap(), call.0.clone(), &path, call.2.clone()).await;
        let names = reply.headers.keys().map(ToString::to_string).collect();
        ((reply.status, without(id, &reply.text), names), gateway.counting.take())
    }

    async fn over_socket(
        &self,
        gateway: &TestGateway,
        id: &str,
        method: &str,
        params: &Value,
    ) -> (String, Calls) {
        let mut params = params.clone();
        params["id"] = id.into();
        gateway.counting.take();
        let reply = self.socket.call(method, &params).await;
        (without(id, &reply.to_value().to_string()), gateway.counting.take())
    }

    /// Whether a list of this family's or of all records has it, over every way to list that there is.
    async fn lists(&self, gateway: &TestGateway, record: &Record, is_pending: bool) -> Vec<(String, bool)> {
        let has = |text: &str| text.contains(&format!("\"{}\"", record.id));
        let mut lists = Vec::new();
        if let Some(token) = &self.token {
            for path in
                if is_pending { &["/v1/approvals"][..] } else { &["/v1/approvals", "/v1/history"][..] }
            {
                let page = http(gateway, token, Method::GET, path, None).await;
                lists.push(((*path).to_owned(), has(&page.text)));
            }
        }
        let of_family = format!("{}.approval.list", record.family);
        let names =
            if is_pending { vec!["approval.list", of_family.as_str()] } else { vec!["approval.history"] };
        for name in names {
            let reply = self.socket.call(name, &json!({})).await;
            lists.push((name.to_owned(), has(&reply.to_value().to_string())));
        }
        lists
    }

    /// One record through every way, beside one that is not there.
    async fn tries(&self, gateway: &TestGateway, which: usize, record: &Record) {
        let access = self.access(which);
        let place = format!("{} of {} ({})", self.name, RECORDS[which], record.family);
        for (list, has) in self.lists(gateway, record, true).await {
            assert_eq!(has, access.may_read(), "{list}: {place}");
        }
        self.replays(gateway, access, record, &place).await;
        for call in self.token.iter().flat_map(|_| http_calls()) {
            let (there, ways) = self.over_http(gateway, &record.id, &call).await;
            let (missing, missing_ways) = self.over_http(gateway, MISSING, &call).await;
            assert_eq!(missing.0, 404, "{}: {place}", call.1);
            if may(call.3, access) {
                assert_ne!(there.0, 404, "{}: {place}: {}", call.1, there.1);
            } else {
                assert_eq!((there, ways), (missing, missing_ways), "{}: {place}", call.1);
            }
        }
        for (method, params, told) in methods(record.family) {
            let (there, ways) = self.over_socket(gateway, &record.id, &method, &params).await;
            let (missing, missing_ways) = self.over_socket(gateway, MISSING, &method, &params).await;
            // To answer takes a reviewer's scope, whatever the record.
            let answers = told == Told::Deciders || method.ends_with("decide");
            if may(told, access) && !(answers && self.is_asker) {
                assert_ne!(there, missing, "{method}: {place}");
            } else {
                assert_eq!((there, ways), (missing, missing_ways), "{method}: {place}");
            }
        }
        self.ends(gateway, access, record, &place).await;
    }

    async fn replays(&self, gateway: &TestGateway, access: Access, record: &Record, place: &str) {
        let mut replies = Vec::new();
        for key in [record.session.as_str(), ABSENT_SESSION] {
            gateway.counting.take();
            let params = json!({ "key": key, "includeApprovals": true });
            let reply = self.socket.call("sessions.messages.subscribe", &params).await.to_value();
            let calls = gateway.counting.take();
            let mut text = reply.clone();
            if let Some(replay) = text.pointer_mut("/payload/approvalReplay") {
                // The moment of the look-up.
                replay["updatedAtMs"] = 0.into();
            }
            replies.push((text.to_string().replace(key, "KEY"), calls));
            self.socket.call("sessions.messages.unsubscribe", &json!({ "key": key })).await;
        }
        if access == Access::Review {
            assert!(replies[0].0.contains(&record.id), "{place}: {}", replies[0].0);
        } else {
            assert_eq!(replies[0], replies[1], "{place}");
        }
    }

    /// Calls it off, if nobody has ended it yet, and looks at what is left.
    async fn ends(&self, gateway: &TestGateway, access: Access, record: &Record, place: &str) {
        let cancel = (Method::POST, "/cancel", Some(json!({})), Told::All);
        if self.token.is_some() {
            let (there, ways) = self.over_http(gateway, &record.id, &cancel).await;
            let (missing, missing_ways) = self.over_http(gateway, MISSING, &cancel).await;
            if access == Access::None {
                assert_eq!((there, ways), (missing, missing_ways), "cancel: {place}");
            } else {
                assert_ne!(there.0, 404, "cancel: {place}");
            }
        }
        // Whatever became of it, now it ends.
        gateway.by(Persona::Reviewer).post(&format!("/v1/approvals/{}/cancel", record.id), json!({})).await;
        for (list, has) in self.lists(gateway, record, false).await {
            assert_eq!(has, access.may_read(), "{list}, ended: {place}");
        }
        let wait = format!("{}.approval.waitDecision", record.family);
        let (there, ways) = self.over_socket(gateway, &record.id, &wait, &json!({})).await;
        let (missing, missing_ways) = self.over_socket(gateway, MISSING, &wait, &json!({})).await;
        if access.may_read() {
            assert_ne!(there, missing, "{wait}: {place}");
        } else {
            assert_eq!((there, ways), (missing, missing_ways), "{wait}: {place}");
        }
        // The same to the other family's methods as one that is not there.
        let other = if record.family == "exec" { "plugin" } else { "exec" };
        let wait = format!("{other}.approval.waitDecision");
        let (there, _) = self.over_socket(gateway, &record.id, &wait, &json!({})).await;
        assert_eq!(there, self.over_socket(gateway, MISSING, &wait, &json!({})).await.0, "{wait}: {place}");
        assert!(self.socket.call("health", &json!({})).await.ok, "{place}");
    }
}

async fn stored(gateway: &TestGateway, id: &str) -> Approval {
    match gateway.store.approval(id).await.unwrap().unwrap().stored {
        Stored::Sound(approval) => *approval,
        Stored::Corrupt { why, .. } => panic!("{why}"),
    }
}

#[tokio::test]
async fn every_method_follows_one_rule_and_tells_nobody_of_what_is_not_for_them() {
    let gateway = TestGateway::start_for_v4().await;
    let (roles, device) = roles(&gateway).await;
    let mut asked: Vec<(String, usize)> = Vec::new();
    for kind in ["exec", "tool"] {
        for (which, record_of) in RECORDS.into_iter().enumerate() {
            for (nth, role) in roles.iter().enumerate() {
                let record = ask(&gateway, which, kind, nth, &device).await;
                let found = access(&stored(&gateway, &record.id).await, &role.principal);
                assert_eq!(found, role.access(which), "{} of {}", role.name, record_of);
                role.tries(&gateway, which, &record).await;
                asked.push((record.id, which));
            }
        }
    }
    for role in &roles {
        let expected: Vec<&String> = asked
            .iter()
            .filter(|(_, which)| role.access(*which) == Access::Review)
            .map(|(id, _)| id)
            .collect();
        if let Some(last) = expected.last() {
            let is_last = |event: &Value| is_of(event, ".resolved") && event["payload"]["id"] == **last;
            assert!(role.socket.event(is_last).await.is_some(), "{} is not told", role.name);
        }
        assert!(role.socket.call("health", &json!({})).await.ok);
        let events = role.socket.events();
        for what in [".requested", ".resolved"] {
            let told = events.iter().filter(|event| is_of(event, what)).map(|event| &event["payload"]["id"]);
            assert_eq!(told.collect::<Vec<_>>(), expected, "{what} to {}", role.name);
        }
        let rest = events.iter().filter(|event| !is_of(event, ".requested") && !is_of(event, ".resolved"));
        let named = rest.map(|event| event["event"].as_str().unwrap());
        let strange: Vec<&str> = named.filter(|name| !["connect.challenge", "tick"].contains(name)).collect();
        assert!(strange.iter().all(|name| *name == "session.approval"), "{}: {strange:?}", role.name);
        assert!(strange.is_empty() || !expected.is_empty(), "{}: {strange:?}", role.name);
    }
    gateway.stop().await;
}

fn is_of(event: &Value, what: &str) -> bool {
    event["event"].as_str().is_some_and(|name| name.ends_with(what))
}

#[tokio::test]
async fn without_a_credential_every_record_is_answered_like_none() {
    let gateway = TestGateway::start_for_v4().await;
    let record = ask(&gateway, 0, "exec", 0, "").await;
    let shared = gateway.shared_token();
    for token in ["", "outsider", shared] {
        for call in http_calls() {
            let mut answers = Vec::new();
            for id in [&record.id, MISSING] {
                let path = format!("/v1/approvals/{id}{}", call.1);
                let reply = http(&gateway, token, call.0.clone(), &path, call.2.clone()).await;
                assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()), "{token} {path}");
                answers.push(without(id, &reply.text));
            }
            assert_eq!(answers[0], answers[1], "{token} {}", call.1);
        }
    }
    let nobody = Connect::new("nobody", Auth::default()).client("gateway-client", "backend");
    assert!(Client::connect(&gateway.ws_url(), &nobody, &Trace::default()).await.is_err());
    gateway.stop().await;
}
