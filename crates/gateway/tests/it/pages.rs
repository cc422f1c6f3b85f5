//! Pages of lists, of history and of a session's stream tell of nothing that their reader may not see: not by what is
//! on them, nor by how long they are, nor by where the next one begins.

use std::time::Duration;

use holdgate_core::approval::{Binding, Draft, Source};
use holdgate_core::limits::{PAGE_BYTES, V4_REQUEST_BYTES};
use holdgate_core::requirement::Requirement;
use holdgate_core::{Action, Canonical, Kind, presentation};
use holdgate_store::{Answer, Caps, Op, Outcome, Store as _};
use holdgate_testkit::gateway::{Persona, Reply, TestGateway};
use holdgate_testkit::v4::{Auth, Client, Connect, Trace};
use reqwest::Method;
use serde_json::{Value, json};

/// More than are read together.
const HIDDEN: usize = 300;

struct Stage {
    gateway: TestGateway,
    /// Two paired devices: their ids and credentials.
    devices: [(String, String); 2],
}

impl Stage {
    async fn set() -> Self {
        let gateway = TestGateway::start().await;
        let mut devices = Vec::new();
        for person in ["ann", "bob"] {
            let offer = json!({ "person": person, "admin": false });
            let offered = gateway.by(Persona::Reviewer).post("/v1/pairing", offer).await.json();
            let body = json!({ "code": offered["code"], "label": person });
            let paired = gateway.anonymous().post("/v1/pairing/complete", body).await;
            devices.push((paired.field("/device/id"), paired.field("/token")));
        }
        let Ok(devices) = devices.try_into() else { panic!("two devices") };
        Self { gateway, devices }
    }

    /// A request that only the device of that number may review; answers its id and digest.
    async fn ask(&self, reviewer: usize, kind: &str) -> (String, String) {
        let content = match kind {
            "exec" => json!({ "argv": ["ls"] }),
            _ => json!({ "toolName": "deploy", "input": {} }),
        };
        let reviewers = [format!("device:{}", self.devices[reviewer].0)];
        let body = json!({ "kind": kind, "content": content, "source": { "session": "main" },
            "requirement": { "reviewers": reviewers } });
        let reply = self.gateway.by(Persona::Agent).post("/v1/approvals", body).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        (reply.field("/id"), reply.field("/digest"))
    }

    /// A request that every device may review, as large as it may be stored.
    async fn open(&self, n: usize, text: &str) -> String {
        let content = Canonical::parse(r#"{"toolName":"t","input":{}}"#).unwrap();
        let draft = Draft {
            id: None,
            presentation: presentation::present(Kind::Tool, &content.to_value()).unwrap(),
            action: Action::freeze(Kind::Tool, &n.to_string(), content).unwrap(),
            reason: None,
            source: Source { session: Some("main".to_owned()), ..Source::default() },
            binding: Binding::Runtime(self.gateway.service.own_epoch().unwrap()),
            requirement: Requirement::default(),
            timeout_ms: 60_000,
            client: None,
            v4_request: Some(json!({ "title": "t", "description": text }).to_string()),
        };
        let by = (&Persona::Agent.principal()).into();
        let open = Op::Open { draft: Box::new(draft), fence: None, by, key: None, caps: Caps::default() };
        match self.gateway.store.execute(open).await.unwrap() {
            Outcome::Committed(Answer::Approval(approval)) => approval.id.to_string(),
            other => panic!("{other:?}"),
        }
    }

    async fn get(&self, device: usize, path: &str) -> Reply {
        let authorization = format!("Bearer {}", self.devices[device].1);
        let headers = [("authorization", authorization.as_str())];
        self.gateway.anonymous().send(Method::GET, path, &headers, None).await
    }

    async fn socket(&self, device: usize) -> Client {
        let connect = Connect::new(&self.devices[device].0, Auth::device_token(&self.devices[device].1));
        let connect = connect.client("gateway-client", "backend").scopes(&["operator.approvals"]);
        Client::connect(&self.gateway.ws_url(), &connect, &Trace::default()).await.unwrap()
    }
}

fn nothing() -> Value {
    json!({ "items": [], "nextCursor": null })
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// Reads page after page, each of one record; answers the ids and that no page told of more than there is.
async fn read_on(stage: &Stage, device: usize, path: &str) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let from = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = stage.get(device, &format!("{path}{from}")).await.json();
        let on_it = ids(&page);
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if let Some(cursor) = &cursor {
            assert_eq!(on_it.len(), 1, "a page that goes on is full");
            assert!(cursor.ends_with(on_it[0].as_str()), "a page begins after what was shown: {cursor}");
        }
        found.extend(on_it);
        if cursor.is_none() {
            return found;
        }
    }
}

#[tokio::test]
async fn pages_and_cursors_tell_of_nothing_that_is_hidden() {
    let stage = Stage::set().await;
    let own = [stage.ask(0, "exec").await, stage.ask(0, "tool").await];
    let mut hidden = Vec::new();
    for _ in 0..HIDDEN {
        hidden.push(stage.ask(1, "exec").await);
    }
    let newest_first = [own[1].0.clone(), own[0].0.clone()];
    assert_eq!(read_on(&stage, 0, "/v1/approvals?limit=1").await, newest_first);
    assert_eq!(ids(&stage.get(1, "/v1/approvals?limit=100").await.json()).len(), 100);
    assert_eq!(stage.get(0, "/v1/history?limit=1").await.json(), nothing());

    // What has ended last is what ann ended first.
    let by = stage.gateway.by(Persona::Reviewer);
    for (id, digest) in own.iter().chain(&hidden) {
        assert_eq!(by.decide(id, digest, "deny").await.status, 200);
    }
    assert_eq!(read_on(&stage, 0, "/v1/history?limit=1").await, newest_first);
    assert_eq!(read_on(&stage, 0, "/v1/history?limit=1&kind=tool").await, [own[1].0.clone()]);
    let socket = stage.socket(0).await;
    for (kind, expected) in [("plugin", &own[1].0), ("exec", &own[0].0)] {
        let page = socket.call("approval.history", &json!({ "kind": kind, "limit": 1 })).await;
        assert_eq!((page.at("/items/0/id"), page.at("/nextCursor")), (json!(expected), Value::Null));
    }
    let page = socket.call("approval.history", &json!({ "limit": 1 })).await;
    let next = json!({ "limit": 1, "cursor": page.at("/nextCursor") });
    let next = socket.call("approval.history", &next).await;
    assert_eq!((next.at("/items/0/id"), next.at("/nextCursor")), (json!(own[0].0), Value::Null));
    stage.gateway.stop().await;
}

#[tokio::test]
async fn a_page_of_much_text_is_short_and_says_where_it_goes_on() {
    let stage = Stage::set().await;
    let (large, fit) = ("x".repeat(V4_REQUEST_BYTES - 100), PAGE_BYTES / V4_REQUEST_BYTES);
    let mut newest_first = Vec::new();
    for n in 0..2 * fit + 1 {
        newest_first.insert(0, stage.open(n, &large).await);
    }
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    for expected in [fit, fit, 1] {
        let from = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = stage.get(0, &format!("/v1/approvals?limit=100{from}")).await.json();
        assert_eq!(ids(&page).len(), expected);
        found.extend(ids(&page));
        cursor = page["nextCursor"].as_str().map(str::to_owned);
    }
    assert_eq!((&found, cursor), (&newest_first, None));
    let socket = stage.socket(0).await;
    let subscribe = json!({ "key": "main", "includeApprovals": true });
    let replay = socket.call("sessions.messages.subscribe", &subscribe).await;
    let replayed = replay.at("/approvalReplay/approvals").as_array().unwrap().clone();
    assert_eq!((replayed.len(), replay.at("/approvalReplay/truncated")), (fit, json!(true)));
    assert_eq!(replayed[0]["id"], json!(newest_first.last()), "the oldest first");
    let listed = socket.call("plugin.approval.list", &json!({})).await.payload.unwrap();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), fit, "the newest, where there are no pages");
    assert_eq!(listed[fit - 1]["id"], json!(newest_first[0]));
    stage.gateway.stop().await;
}

#[tokio::test]
async fn a_sessions_replay_tells_of_nothing_that_is_hidden() {
    let stage = Stage::set().await;
    for _ in 0..HIDDEN {
        stage.ask(1, "exec").await;
    }
    let own = stage.ask(0, "exec").await.0;
    let subscribe = json!({ "key": "main", "includeApprovals": true });
    let replay = stage.socket(0).await.call("sessions.messages.subscribe", &subscribe).await;
    assert_eq!(replay.at("/approvalReplay/approvals/0/id"), json!(own));
    assert_eq!(replay.at("/approvalReplay/approvals/1"), Value::Null);
    assert_eq!(replay.at("/approvalReplay/truncated"), false);

    let bob = stage.gateway.store.identity(&stage.devices[1].0.parse().unwrap()).await.unwrap().unwrap();
    for (limit, is_more) in [(HIDDEN - 1, true), (HIDDEN, false)] {
        let limit = u32::try_from(limit).unwrap();
        let (shown, more) = stage.gateway.service.replay("main", limit, &bob.principal).await.unwrap();
        assert_eq!((shown.len(), more), (limit as usize, is_more));
    }
    stage.gateway.stop().await;
}

#[tokio::test]
async fn who_sees_little_of_much_does_not_keep_others_from_reading() {
    let stage = Stage::set().await;
    for _ in 0..HIDDEN {
        stage.ask(1, "exec").await;
    }
    let scans: Vec<_> = (0..16).map(|_| stage.get(0, "/v1/approvals")).collect();
    let all = futures_util::future::join_all(scans);
    let (pages, one) = tokio::join!(all, async {
        tokio::time::timeout(Duration::from_secs(30), stage.get(1, "/v1/approvals?limit=1")).await
    });
    assert!(pages.iter().all(|page| page.json() == nothing()));
    assert_eq!(ids(&one.unwrap().json()).len(), 1);
    stage.gateway.stop().await;
}

#[tokio::test]
async fn a_connection_follows_only_so_many_sessions_and_none_with_an_endless_name() {
    let stage = Stage::set().await;
    let socket = stage.socket(0).await;
    let follow = |key: String| json!({ "key": key, "includeApprovals": true });
    for n in 0..1_024 {
        assert!(socket.call("sessions.messages.subscribe", &follow(n.to_string())).await.ok, "{n}");
    }
    let refused = socket.call("sessions.messages.subscribe", &follow("one more".to_owned())).await.outcome();
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
    assert!(
        socket.call("sessions.messages.subscribe", &follow("7".to_owned())).await.ok,
        "one that it follows"
    );
    let endless = socket.call("sessions.messages.subscribe", &follow("x".repeat(100_000))).await.outcome();
    assert_eq!(endless["code"], "INVALID_REQUEST");
    stage.gateway.stop().await;
}
