//! kill -9 of a gateway on which 10,000 approvals wait, twice, the second time while it writes down what the first one
//! ended: what it tells is right from its first moment, and work goes on before it has caught up.

use std::path::Path;
use std::sync::Arc;

use holdgate_core::approval::{Binding, Draft, Source};
use holdgate_core::limits::RUNTIME_LEASE_MS;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::run::RunCommand;
use holdgate_core::{Action, ApprovalId, Canonical, Digest, Fence, Kind, Principal, RunId};
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Answer, By, Caps, Op, Outcome, RuntimeKind, Store as _, mint};
use holdgate_testkit::v4::{Auth, Client, Connect, Trace};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::{World, until};

const ON_THE_GATEWAY: usize = 8_500;
const CALLERS: usize = 5;
const ON_A_CALLER: usize = 100;
const ON_A_RUN: usize = 1_000;
/// Most records that one sweep writes.
const BATCH: i64 = 256;
/// As many operations as one identity may have waiting, and some room.
const AT_ONCE: usize = 400;
/// How the ids begin that wait on each.
const GATEWAY: &str = "on-the-gateway-";
const CALLER: &str = "on-a-caller-";

fn draft(kind: Kind, id: Option<String>, nth: usize, binding: Binding) -> Draft {
    let content = Canonical::parse(r#"{"toolName":"deploy","input":{},"argv":["deploy"]}"#).unwrap();
    Draft {
        id: id.map(|id| id.parse().unwrap()),
        presentation: holdgate_core::presentation::present(kind, &content.to_value()).unwrap(),
        action: Action::freeze(kind, &format!("t:{nth}"), content).unwrap(),
        reason: None,
        source: Source::default(),
        binding,
        requirement: Requirement { allowed_decisions: Decision::ALL.to_vec(), ..Requirement::default() },
        timeout_ms: 3_600_000,
        client: None,
        v4_request: None,
    }
}

async fn open_all(store: &Arc<SqliteStore>, by: &By, drafts: Vec<(Draft, Option<Fence>)>) {
    let caps = Caps { per_principal: u32::MAX, per_session: u32::MAX };
    let mut opening = JoinSet::new();
    for (draft, fence) in drafts {
        let (store, by) = (Arc::clone(store), by.clone());
        opening.spawn(async move {
            store.execute(Op::Open { draft: Box::new(draft), fence, by, key: None, caps }).await
        });
        if opening.len() == AT_ONCE {
            let opened = opening.join_next().await.unwrap().unwrap().unwrap();
            assert!(matches!(opened, Outcome::Committed(_)), "{opened:?}");
        }
    }
    for opened in opening.join_all().await {
        assert!(matches!(opened, Ok(Outcome::Committed(_))), "{opened:?}");
    }
}

/// Leaves 10,000 pending approvals behind: on the epoch of a gateway that ends without a word, on callers that live, on
/// a stored run.
async fn fill(database: &Path, instance: String) {
    let open = OpenOptions { path: database.to_owned(), clock: Arc::new(SystemClock::new()) };
    let store = SqliteStore::open(open).unwrap();
    let agent = Principal::new("load".parse().unwrap(), PrincipalKind::Agent, "load");
    let hash = Digest::of(b"load");
    store.execute(Op::PutCredential { hash, principal: agent.clone(), recovers: false }).await.unwrap();
    let by = By::from(&agent);
    let gateway = mint::epoch();
    // Of the same instance: what is done from here on is done while that gateway works.
    let start = Op::StartRuntime {
        epoch: gateway.clone(),
        kind: RuntimeKind::Gateway { instance },
        by: By::from(&Principal::authority()),
    };
    store.execute(start).await.unwrap();
    let on_the_gateway = (0..ON_THE_GATEWAY).map(|n| {
        (draft(Kind::Exec, Some(format!("{GATEWAY}{n}")), n, Binding::Runtime(gateway.clone())), None)
    });
    open_all(&store, &by, on_the_gateway.collect()).await;
    let run: RunId = "run_restart".parse().unwrap();
    store.execute(Op::CreateRun { id: run.clone(), agent: "load".to_owned(), by: by.clone() }).await.unwrap();
    let hold = Op::HoldRun { id: run.clone(), command: RunCommand::Lease, by: by.clone() };
    let Outcome::Committed(Answer::Run(held)) = store.execute(hold).await.unwrap() else { panic!() };
    let on_a_run = (0..ON_A_RUN)
        .map(|n| (draft(Kind::Tool, None, n, Binding::Checkpoint(run.clone())), Some(held.fence)));
    open_all(&store, &by, on_a_run.collect()).await;
    for caller in 0..CALLERS {
        let epoch = mint::epoch();
        let start = Op::StartRuntime { epoch: epoch.clone(), kind: RuntimeKind::Caller, by: by.clone() };
        store.execute(start).await.unwrap();
        let on_it = (0..ON_A_CALLER).map(|n| {
            let id = format!("{CALLER}{caller}-{n}");
            (draft(Kind::Exec, Some(id), n, Binding::Runtime(epoch.clone())), None)
        });
        open_all(&store, &by, on_it.collect()).await;
    }
    store.close().await;
}

/// A number that the rows give, whatever the gateway says.
fn count(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn unconverted(conn: &Connection) -> i64 {
    count(conn, "SELECT count(*) FROM approvals WHERE status = 'pending' AND id LIKE 'on-the-gateway-%'")
}

fn now_ms(conn: &Connection) -> i64 {
    count(conn, "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")
}

async fn reviewer(world: &World) -> Client {
    let token = std::fs::read_to_string(world.path("operator.token")).unwrap();
    let connect = Connect::new("reviewer", Auth::token(token.trim())).scopes(&["operator.admin"]);
    let url = format!("ws://{}", world.address());
    Client::connect(&url, &connect.approvals(), &Trace::default()).await.unwrap()
}

/// What ended with the killed gateway is told as ended, over every door, before it is written down.
async fn assert_told(world: &World, reviewer: &Client) {
    for nth in [0, ON_THE_GATEWAY / 2, ON_THE_GATEWAY - 1] {
        let id = format!("{GATEWAY}{nth}");
        let read = reviewer.call("approval.get", &json!({ "id": id })).await.at("/approval");
        assert_eq!(
            (&read["status"], &read["reason"]),
            (&json!("cancelled"), &json!("gateway-restart")),
            "{id}"
        );
        let resolve = json!({ "id": id, "kind": "exec", "decision": "allow-once" });
        let late = reviewer.call("approval.resolve", &resolve).await;
        assert_eq!((late.at("/applied"), late.at("/approval/status")), (json!(false), json!("cancelled")));
    }
    let mut cursor = Value::Null;
    let mut pending = Vec::new();
    loop {
        let mut params = json!({ "status": "pending", "limit": 100 });
        if cursor.is_string() {
            params["cursor"] = cursor;
        }
        let page = reviewer.call("approval.list", &params).await;
        let items = page.at("/items");
        pending.extend(items.as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        cursor = page.at("/nextCursor");
        if !cursor.is_string() || pending.len() >= 300 {
            break;
        }
    }
    assert!(pending.iter().all(|id| !id.starts_with(GATEWAY)), "a list shows none of them as pending");
    let shown = world.approval(&format!("{GATEWAY}1"));
    assert_eq!(
        (&shown["status"], &shown["terminalReason"]),
        (&json!("cancelled"), &json!("gateway-restart")),
        "and so does HTTP"
    );
}

async fn allow(reviewer: &Client, id: &str) {
    let resolve = json!({ "id": id, "kind": "exec", "decision": "allow-once" });
    let allowed = reviewer.call("approval.resolve", &resolve).await;
    assert_eq!(allowed.at("/applied"), true, "{allowed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_killed_with_ten_thousand_pending_tells_the_truth_and_decides_from_its_first_moment() {
    let world = World::start();
    world.kill_gateway();
    let database = world.path("holdgate.db");
    let conn = Connection::open(&database).unwrap();
    let instance: String = conn
        .query_row("SELECT instance FROM runtimes WHERE kind = 'gateway' AND ended_at IS NULL", [], |row| {
            row.get(0)
        })
        .unwrap();
    drop(conn);
    fill(&database, instance).await;
    let conn = Connection::open(&database).unwrap();
    conn.pragma_update(None, "query_only", true).unwrap();
    let all = "SELECT count(*) FROM approvals WHERE status = 'pending'";
    assert_eq!(count(&conn, all), 10_000);

    for life in 0..2 {
        let begun = now_ms(&conn);
        world.serve();
        let ready = now_ms(&conn);
        let left = unconverted(&conn);
        assert!(left > 0, "it answers before it has written down what has ended");
        let reviewer = reviewer(&world).await;
        allow(&reviewer, &format!("{CALLER}{life}-0")).await;
        let decided = now_ms(&conn);
        let still = unconverted(&conn);
        assert!(still > 0, "a decision does not wait for what has ended");
        assert!(decided - ready < 10_000, "nor for anything else: {} ms", decided - ready);
        assert_told(&world, &reviewer).await;
        println!(
            "life {life}: ready after {} ms with {left} to convert, first decision {} ms later with {still}",
            ready - begun,
            decided - ready,
        );
        let kept = "SELECT min(lease_until) FROM runtimes WHERE kind = 'caller' AND ended_at IS NULL";
        let short = begun + RUNTIME_LEASE_MS - count(&conn, kept);
        assert!(short <= 0, "who lives has one full lease to come back: it lacks {short} ms of it");
        if life == 0 {
            world.kill_gateway();
            assert!(unconverted(&conn) > 0, "killed in the middle of it");
        }
    }
    let ready = now_ms(&conn);
    until("all to be written down", || (unconverted(&conn) == 0).then_some(()));
    println!("all converted {} ms after the last check", now_ms(&conn) - ready);
    let cancelled = "SELECT count(*) FROM approvals WHERE status = 'cancelled' AND terminal_reason = \
        'gateway-restart' AND id LIKE 'on-the-gateway-%'";
    assert_eq!(count(&conn, cancelled), i64::try_from(ON_THE_GATEWAY).unwrap());
    let ends = "FROM approval_events WHERE event LIKE '%resolved%' AND approval_id LIKE 'on-the-gateway-%'";
    assert_eq!(count(&conn, &format!("SELECT count(*) {ends}")), i64::try_from(ON_THE_GATEWAY).unwrap());
    assert_eq!(
        count(&conn, &format!("SELECT count(DISTINCT approval_id) {ends}")),
        i64::try_from(ON_THE_GATEWAY).unwrap()
    );
    let largest = count(&conn, &format!("SELECT max(n) FROM (SELECT count(*) AS n {ends} GROUP BY at)"));
    assert!(largest <= BATCH, "a batch is bounded: {largest}");
    let on_a_run = "SELECT count(*) FROM approvals WHERE status = 'pending' AND run_id IS NOT NULL";
    assert_eq!(count(&conn, on_a_run), i64::try_from(ON_A_RUN).unwrap(), "a stored run outlives its gateway");
    let reviewer = reviewer(&world).await;
    let checkpoint: String = conn
        .query_row("SELECT id FROM approvals WHERE run_id IS NOT NULL ORDER BY id LIMIT 1", [], |row| {
            row.get(0)
        })
        .unwrap();
    let id: ApprovalId = checkpoint.parse().unwrap();
    let resolve = json!({ "id": id.as_str(), "kind": "plugin", "decision": "deny" });
    let resolved = reviewer.call("approval.resolve", &resolve).await;
    assert_eq!(resolved.at("/applied"), true, "{resolved:?}");
}
