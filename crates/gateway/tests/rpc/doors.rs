//! Who gets in, as whom, and how.

use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Principal, Scopes};
use holdgate_gateway::{credential_hash, pairing_code_hash};
use holdgate_store::{Administration, Op, Store as _};
use holdgate_testkit::gateway::{Persona, TestGateway};
use holdgate_testkit::v4::{Auth, Connect, Identity, Payload};
use reqwest::Method;
use serde_json::{Value, json};

use crate::stage::{connect, device, reviewer, told};

const UPGRADE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

#[tokio::test]
async fn the_front_page_and_the_socket_share_an_address() {
    let gateway = TestGateway::start().await;
    let anybody = gateway.anonymous();
    for path in ["/", "/ws"] {
        assert_eq!(anybody.get(path).await.status, 200, "{path}");
    }
    for (missing, status) in [(1, 200), (2, 400), (3, 400), (0, 400)] {
        let mut headers = UPGRADE.to_vec();
        headers.remove(missing);
        assert_eq!(anybody.send(Method::GET, "/", &headers, None).await.status, status, "{missing}");
    }
    let mut foreign = UPGRADE.to_vec();
    foreign.push(("origin", "http://evil.example"));
    assert_eq!(anybody.send(Method::GET, "/", &foreign, None).await.status, 403);
    assert_eq!(anybody.send(Method::POST, "/", &UPGRADE, None).await.status, 405);
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_that_is_offered_besides_is_accepted() {
    let gateway = TestGateway::start().await;
    let mut headers = UPGRADE.to_vec();
    headers.push(("sec-websocket-extensions", "permessage-deflate"));
    headers.push(("sec-websocket-protocol", "v4"));
    let reply = gateway.anonymous().send(Method::GET, "/ws", &headers, None).await;
    assert_eq!(reply.status, 101);
    assert_eq!(reply.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(!reply.headers.contains_key("sec-websocket-extensions"));
    assert!(!reply.headers.contains_key("sec-websocket-protocol"));
}

fn scopes(hello: &Value) -> Value {
    hello["auth"]["scopes"].clone()
}

#[tokio::test]
async fn an_agent_gets_one_scope_whatever_it_asks_for() {
    let gateway = TestGateway::start_for_v4().await;
    for asked in [&["operator.admin"][..], &[], &["operator.approvals", "approvals.request"]] {
        let says = Connect::new("a", Auth::token("agent")).scopes(asked).device();
        let client = connect(&gateway, says).await.unwrap();
        assert_eq!(scopes(client.hello()), json!(["approvals.request"]));
        assert_eq!(client.hello()["auth"].get("deviceToken"), None);
        let reply =
            client.call("approval.resolve", &json!({ "id": "x", "kind": "exec", "decision": "deny" })).await;
        assert_eq!(reply.error.unwrap()["code"], "FORBIDDEN");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_operator_has_what_it_asked_for_and_no_more() {
    let gateway = TestGateway::start_for_v4().await;
    let asked = ["operator.read", "operator.approvals", "operator.bogus", "operator.read"];
    let says = Connect::new("o", Auth::token("reviewer")).scopes(&asked);
    let client = connect(&gateway, says).await.unwrap();
    assert_eq!(scopes(client.hello()), json!(["operator.read", "operator.approvals"]));
    let reply = client.call("exec.approvals.get", &json!({})).await;
    assert_eq!(reply.error.unwrap()["details"]["missingScope"], "operator.admin");
    gateway.stop().await;
}

#[tokio::test]
async fn the_shared_credential_without_a_device_administers_or_asks_and_never_answers_in_between() {
    let gateway = TestGateway::start_for_v4().await;
    let shared = || Auth::token(gateway.shared_token());
    let agent = connect(&gateway, Connect::new("a", shared()).scopes(&["operator.approvals"])).await.unwrap();
    assert_eq!(scopes(agent.hello()), json!(["operator.approvals"]));
    let request = json!({ "kind": "exec", "content": { "argv": ["ls"] } });
    let asked = agent.call("approval.request", &request).await;
    let id = asked.at("/approval/id");
    let refused =
        agent.call("approval.resolve", &json!({ "id": id, "kind": "exec", "decision": "allow-once" })).await;
    assert!(!refused.ok, "an agent never decides");
    let other = Connect::new("u", shared()).client("openclaw-tui", "ui").scopes(&["operator.admin"]);
    let other = connect(&gateway, other).await.unwrap();
    assert_eq!(scopes(other.hello()), json!([]));
    assert!(!other.call("approval.get", &json!({ "id": id })).await.ok);
    let admin = connect(&gateway, Connect::new("o", shared()).scopes(&["operator.admin"])).await.unwrap();
    let resolved =
        admin.call("approval.resolve", &json!({ "id": id, "kind": "exec", "decision": "deny" })).await;
    assert_eq!(resolved.at("/applied"), true);
    let over_http = gateway.anonymous();
    let bearer = format!("Bearer {}", gateway.shared_token());
    let reply = over_http.send(Method::GET, "/v1/approvals", &[("authorization", &bearer)], None).await;
    assert_eq!(reply.status, 401, "it opens WebSockets and nothing else");
    gateway.stop().await;
}

#[tokio::test]
async fn a_device_is_who_holds_its_key() {
    let gateway = TestGateway::start_for_v4().await;
    for payload in [Payload::V3, Payload::V2] {
        let says = Connect { payload, ..device(&gateway, "phone") };
        let client = connect(&gateway, says).await.unwrap();
        let auth = &client.hello()["auth"];
        assert_eq!((&auth["method"], &auth["scopes"]), (&json!("token"), &json!(["operator.approvals"])));
        assert!(auth["deviceToken"].as_str().unwrap().starts_with("hgd_"));
    }
    for (says, code) in [
        (
            Connect { nonce: Some("other".to_owned()), ..device(&gateway, "phone") },
            "DEVICE_AUTH_NONCE_MISMATCH",
        ),
        (
            Connect { signed_at_offset_ms: -121_000, ..device(&gateway, "phone") },
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
        ),
        (
            Connect { signed_at_offset_ms: 125_000, ..device(&gateway, "phone") },
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
        ),
    ] {
        let refused = connect(&gateway, says).await.err().unwrap();
        assert_eq!(told(&refused), ("INVALID_REQUEST".to_owned(), code.to_owned(), 1008));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn every_part_of_what_a_device_signs_counts() {
    let gateway = TestGateway::start_for_v4().await;
    let says = device(&gateway, "phone");
    let other = Identity::named("other");
    type Forge = fn(&mut Value, &Value);
    let forgeries: [(Forge, &str); 7] = [
        (|params, _| params["scopes"] = json!(["operator.admin"]), "DEVICE_AUTH_SIGNATURE_INVALID"),
        (|params, _| params["client"]["id"] = json!("test"), "DEVICE_AUTH_SIGNATURE_INVALID"),
        (|params, _| params["client"]["platform"] = json!("darwin"), "DEVICE_AUTH_SIGNATURE_INVALID"),
        (|params, _| params["auth"]["token"] = json!("reviewer"), "DEVICE_AUTH_SIGNATURE_INVALID"),
        (
            |params, _| {
                params["device"]["signedAt"] = json!(params["device"]["signedAt"].as_i64().unwrap() + 1)
            },
            "DEVICE_AUTH_SIGNATURE_INVALID",
        ),
        (
            |params, other| params["device"]["publicKey"] = other["publicKey"].clone(),
            "DEVICE_AUTH_DEVICE_ID_MISMATCH",
        ),
        (|params, _| params["device"]["publicKey"] = json!("AAAA"), "DEVICE_AUTH_PUBLIC_KEY_INVALID"),
    ];
    for (at, (forge, code)) in forgeries.into_iter().enumerate() {
        let client = holdgate_testkit::v4::Client::open(&gateway.ws_url(), "c", &Default::default()).await;
        let challenge = client.challenge().await;
        let mut params = says.params(&challenge);
        let strange = Connect { identity: Some(other.clone()), ..says.clone() }.params(&challenge);
        forge(&mut params, &strange["device"]);
        let reply = client.call("connect", &params).await;
        assert_eq!(reply.error.unwrap()["details"]["code"], code, "{at}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_device_comes_back_with_its_own_credential_as_the_same_machine_for_no_more_than_it_has() {
    let gateway = TestGateway::start_for_v4().await;
    let first = connect(&gateway, device(&gateway, "phone")).await.unwrap();
    let token = first.hello()["auth"]["deviceToken"].as_str().unwrap().to_owned();
    let again = || Connect { auth: Auth::device_token(&token), ..device(&gateway, "phone") };
    for says in
        [again(), Connect { auth: Auth::token(&token), ..again() }, Connect { identity: None, ..again() }]
    {
        let client = connect(&gateway, says).await.unwrap();
        let auth = &client.hello()["auth"];
        assert_eq!((&auth["method"], &auth["deviceToken"]), (&json!("device-token"), &json!(token)));
        assert!(auth["issuedAtMs"].is_i64());
    }
    let wrong = Auth::device_token("hgd_wrong");
    for (says, code, detail) in [
        (again().scopes(&["operator.admin"]), "INVALID_REQUEST", "AUTH_SCOPE_MISMATCH"),
        (Connect { platform: "darwin".to_owned(), ..again() }, "NOT_PAIRED", "PAIRING_REQUIRED"),
        (
            Connect { identity: Some(Identity::named("other")), ..again() },
            "INVALID_REQUEST",
            "AUTH_DEVICE_TOKEN_MISMATCH",
        ),
        (Connect { auth: wrong, ..again() }, "INVALID_REQUEST", "AUTH_DEVICE_TOKEN_MISMATCH"),
        (Connect { auth: Auth::token("wrong"), ..again() }, "INVALID_REQUEST", "AUTH_TOKEN_MISMATCH"),
        (Connect { auth: Auth::default(), ..again() }, "INVALID_REQUEST", "AUTH_TOKEN_MISSING"),
    ] {
        let refused = connect(&gateway, says).await.err().unwrap();
        assert_eq!(told(&refused), (code.to_owned(), detail.to_owned(), 1008));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_pairing_code_pairs_one_device_once_and_is_not_guessed() {
    let gateway = TestGateway::start().await;
    let offer = Administration::OfferPairing {
        code: pairing_code_hash("ABCD-EFGH-JK"),
        person: "alice".parse().unwrap(),
        scopes: Scopes::APPROVALS,
        lasts_ms: 60_000,
    };
    gateway.service.administer(offer, &Persona::Reviewer.principal()).await.unwrap();
    let with = |name: &str, code: &str| {
        let auth = Auth { bootstrap_token: Some(code.to_owned()), ..Auth::default() };
        Connect::new(name, auth).scopes(&["operator.approvals", "operator.admin"]).device()
    };
    let unknown =
        connect(&gateway, Connect { identity: None, ..with("phone", "abcdefghjk") }).await.err().unwrap();
    assert_eq!(told(&unknown).1, "DEVICE_IDENTITY_REQUIRED");
    let client = connect(&gateway, with("phone", " abcd efgh jk ")).await.unwrap();
    assert_eq!(scopes(client.hello()), json!(["operator.approvals"]));
    let token = client.hello()["auth"]["deviceToken"].as_str().unwrap().to_owned();
    let back =
        Connect { auth: Auth::device_token(&token), ..with("phone", "") }.scopes(&["operator.approvals"]);
    assert!(connect(&gateway, back).await.is_ok());
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(told(&connect(&gateway, with("tablet", "ABCD-EFGH-JK")).await.err().unwrap()).1);
    }
    assert_eq!(codes[..3], ["AUTH_BOOTSTRAP_TOKEN_INVALID"; 3]);
    assert_eq!(codes[4], "AUTH_RATE_LIMITED");
    gateway.stop().await;
}

#[tokio::test]
async fn credentials_are_not_guessed_and_a_minted_one_still_works_meanwhile() {
    let gateway = TestGateway::start_for_v4().await;
    let mut last = (String::new(), String::new(), 0);
    for _ in 0..40 {
        last = told(&connect(&gateway, Connect::new("c", Auth::token("guess"))).await.err().unwrap());
        if last.0 == "UNAVAILABLE" {
            break;
        }
    }
    assert_eq!(last, ("UNAVAILABLE".to_owned(), "AUTH_RATE_LIMITED".to_owned(), 1008));
    assert!(reviewer(&gateway).await.call("health", &json!({})).await.ok);
    gateway.stop().await;
}

#[tokio::test]
async fn a_runtime_is_known_by_its_own_credential_and_a_wrong_one_changes_nothing() {
    let gateway = TestGateway::start_for_v4().await;
    let principal = Principal::new("host".parse().unwrap(), PrincipalKind::Runtime, "Host");
    let hash = credential_hash("hgr_host");
    gateway.store.execute(Op::PutCredential { hash, principal, recovers: false }).await.unwrap();
    let id = gateway.by(Persona::Agent).ask(&["ls"]).await.0;
    for (auth, may) in [
        (Auth::token("hgr_host"), true),
        (Auth { approval_runtime_token: Some("hgr_host".to_owned()), ..Auth::token("agent") }, true),
        (Auth { approval_runtime_token: Some("hgr_wrong".to_owned()), ..Auth::token("agent") }, false),
    ] {
        let says = Connect::new("h", auth)
            .client("gateway-client", "backend")
            .scopes(&["operator.approvals", "operator.admin"]);
        let client = connect(&gateway, says).await.unwrap();
        let expected = if may { json!(["operator.approvals"]) } else { json!(["approvals.request"]) };
        assert_eq!(scopes(client.hello()), expected);
        let read = client.call("approval.get", &json!({ "id": id })).await;
        assert_eq!(read.ok, !may, "a runtime answers what it does not read; the agent reads its own");
        let reply =
            client.call("approval.resolve", &json!({ "id": id, "kind": "exec", "decision": "deny" })).await;
        assert_eq!(reply.ok, may, "{reply:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn only_operators_of_a_common_version_are_served() {
    let gateway = TestGateway::start_for_v4().await;
    let says = || Connect::new("c", Auth::token("reviewer"));
    for (says, message, code) in [
        (Connect { max_protocol: 3, min_protocol: 3, ..says() }, "protocol mismatch", 1002),
        (Connect { max_protocol: 9, min_protocol: 5, ..says() }, "protocol mismatch", 1002),
        (Connect { role: "king".to_owned(), ..says() }, "invalid role", 1008),
        (
            Connect { role: "node".to_owned(), ..says() },
            "invalid role: this gateway serves operators and no nodes",
            1008,
        ),
    ] {
        let refused = connect(&gateway, says).await.err().unwrap();
        assert_eq!(refused.error["message"], message);
        let close = refused.close.unwrap();
        assert_eq!((close.code, close.reason.as_str()), (code, message));
    }
    let wide = Connect { max_protocol: 9, min_protocol: 3, ..says() };
    assert_eq!(connect(&gateway, wide).await.unwrap().hello()["protocol"], 4);
    gateway.stop().await;
}
