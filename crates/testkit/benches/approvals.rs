//! Whole approvals a second over HTTP and over WebSockets on SQLite, beside what SQLite itself does with the same rows;
//! and how long an answer, a page and an idle connection take of time and memory.
//!
//! One approval is four durable steps: create, decide, claim, settle. For each number of clients this prints
//! the gateway's rate; then, on the same disk in the same run, the rate of a bare connection that writes the
//! same rows in batches of the size that the gateway's group commit had reached; and the ratio of the two.
//! Absolute figures are this machine's; the ratio is what to compare.

#[path = "approvals/idle.rs"]
mod idle;
#[path = "approvals/latency.rs"]
mod latency;
#[path = "approvals/pages.rs"]
mod pages;
#[path = "approvals/wire.rs"]
mod wire;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdgate_testkit::gateway::{Caller, Persona, TestGateway};
use rusqlite::types::Value;
use rusqlite::{Connection, TransactionBehavior, params_from_iter};
use serde_json::json;
use tempfile::TempDir;

use crate::wire::Wire;

/// How long each number of clients is measured.
const SPAN: Duration = Duration::from_secs(8);
/// Durable steps of one approval.
const STEPS: usize = 4;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    idle::raise_the_limit_of_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, url, count] = arguments.as_slice()
        && what == idle::HOLD
    {
        return runtime.block_on(idle::hold(url, count.parse()?));
    }
    // First: memory that was used and given back would be counted as free.
    runtime.block_on(idle::measure())?;
    println!("\ndoor       clients  approvals/s  steps/commit  p50 ms  p99 ms  raw SQLite/s  ratio");
    for clients in [1, 64] {
        for door in [Door::Http, Door::WebSocket] {
            let measured = runtime.block_on(through_the_gateway(clients, door))?;
            let raw = raw(&measured.rows, measured.steps_per_commit)?;
            let Part { p50_ms, p99_ms } = measured.part;
            println!(
                "{:<9}  {clients:>7}  {:>11.0}  {:>12.1}  {p50_ms:>6.1}  {p99_ms:>6.1}  {raw:>12.0}  {:>5.2}",
                door.name(),
                measured.rate,
                measured.steps_per_commit,
                measured.rate / raw,
            );
        }
    }
    runtime.block_on(latency::measure())?;
    runtime.block_on(pages::measure())
}

/// Which way the gateway is spoken to.
#[derive(Clone, Copy)]
enum Door {
    Http,
    WebSocket,
}

impl Door {
    const fn name(self) -> &'static str {
        match self {
            Door::Http => "HTTP",
            Door::WebSocket => "WebSocket",
        }
    }
}

/// The middle and the slow end of what was measured.
struct Part {
    p50_ms: f64,
    p99_ms: f64,
}

impl Part {
    fn of(mut taken: Vec<Duration>) -> Self {
        taken.sort_unstable();
        let at = |part: f64| taken[(taken.len() as f64 * part) as usize].as_secs_f64() * 1_000.0;
        Self { p50_ms: at(0.50), p99_ms: at(0.99) }
    }
}

struct Measured {
    rate: f64,
    steps_per_commit: f64,
    part: Part,
    rows: Recorded,
}

async fn through_the_gateway(clients: usize, door: Door) -> Result<Measured, Failure> {
    let gateway = TestGateway::start().await;
    let before = gateway.store.stats();
    let started = now();
    let mut tasks = Vec::new();
    for client in 0..clients {
        let (agent, reviewer) = (gateway.by(Persona::Agent), gateway.by(Persona::Reviewer));
        let url = gateway.url.clone();
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut wires = match door {
                Door::Http => None,
                Door::WebSocket => Some((Wire::agent(&url).await?, Wire::reviewer(&url, false).await?)),
            };
            while started.elapsed() < SPAN {
                let (begun, n) = (now(), latencies.len());
                match &mut wires {
                    None => approval(&agent, &reviewer, client, n).await,
                    Some((agent, reviewer)) => agent.approval(reviewer, client, n).await?,
                }
                latencies.push(begun.elapsed());
            }
            Ok::<_, Failure>(latencies)
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    let elapsed = started.elapsed().as_secs_f64();
    let after = gateway.store.stats();
    let database = gateway.database();
    let rows = rows(&database)?;
    let measured = Measured {
        rate: latencies.len() as f64 / elapsed,
        steps_per_commit: (after.ops - before.ops) as f64 / (after.batches - before.batches).max(1) as f64,
        part: Part::of(latencies),
        rows,
    };
    gateway.stop().await;
    Ok(measured)
}

async fn approval(agent: &Caller, reviewer: &Caller, client: usize, n: usize) {
    let argv = json!(["deploy", "--service", format!("checkout-{client}"), "--revision", n.to_string()]);
    let body = json!({ "kind": "exec", "content": { "argv": argv }, "reason": "the nightly release" });
    let asked = agent.post("/v1/approvals", body).await;
    let (id, digest) = (asked.field("/id"), asked.field("/digest"));
    assert_eq!(reviewer.decide(&id, &digest, "allow-once").await.status, 200);
    let claim =
        agent.post(&format!("/v1/approvals/{id}/claim"), json!({ "claimId": "c", "digest": digest })).await;
    assert_eq!(claim.status, 200);
    let receipt = json!({ "claimId": "c", "outcome": "succeeded" });
    assert_eq!(agent.post(&format!("/v1/approvals/{id}/receipt"), receipt).await.status, 200);
}

/// What a measured run left in the database.
struct Recorded {
    /// Rows that others refer to.
    runtimes: Vec<Vec<Value>>,
    approvals: Vec<Rows>,
}

/// What one approval left behind, table by table.
struct Rows {
    approval: Vec<Value>,
    votes: Vec<Vec<Value>>,
    events: Vec<Vec<Value>>,
}

fn rows(database: &Path) -> Result<Recorded, Failure> {
    let conn = Connection::open(database)?;
    let table = |sql: &str| -> rusqlite::Result<Vec<Vec<Value>>> {
        let mut statement = conn.prepare(sql)?;
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect())?;
        rows.collect()
    };
    let mut approvals: Vec<Rows> = table("SELECT * FROM approvals ORDER BY created_at, id")?
        .into_iter()
        .map(|approval| Rows { approval, votes: Vec::new(), events: Vec::new() })
        .collect();
    let place: HashMap<String, usize> =
        approvals.iter().enumerate().map(|(place, rows)| (text(&rows.approval[0]), place)).collect();
    for vote in table("SELECT * FROM approval_votes ORDER BY position")? {
        approvals[place[&text(&vote[0])]].votes.push(vote);
    }
    for event in table("SELECT * FROM approval_events ORDER BY seq")? {
        approvals[place[&text(&event[1])]].events.push(event);
    }
    Ok(Recorded { runtimes: table("SELECT * FROM runtimes")?, approvals })
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// Approvals a second when a bare connection writes the same rows, `steps_per_commit` steps at a time.
fn raw(recorded: &Recorded, steps_per_commit: f64) -> Result<f64, Failure> {
    let (_dir, path) = empty_database()?;
    let mut conn = Connection::open(&path)?;
    conn.pragma_update(None, "synchronous", "full")?;
    for runtime in &recorded.runtimes {
        insert(&conn, "runtimes", runtime)?;
    }
    let steps = recorded.approvals.iter().flat_map(|rows| (0..STEPS).map(move |step| (rows, step)));
    let batch = (steps_per_commit.round() as usize).max(1);
    let started = now();
    let mut steps = steps.peekable();
    let mut done = 0usize;
    while steps.peek().is_some() && started.elapsed() < SPAN {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (rows, step) in steps.by_ref().take(batch) {
            write(&tx, rows, step)?;
            done += 1;
        }
        tx.commit()?;
    }
    Ok(done as f64 / STEPS as f64 / started.elapsed().as_secs_f64())
}

/// A database with the same schema, indexes and checks: made by the store itself.
fn empty_database() -> Result<(TempDir, PathBuf), Failure> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("raw.db");
    let clock = std::sync::Arc::new(holdgate_store::clock::SystemClock::new());
    let options = holdgate_store::sqlite::OpenOptions { path: path.clone(), clock };
    drop(holdgate_store::sqlite::SqliteStore::open(options)?);
    Ok((dir, path))
}

/// One step's writes: the row, or its update, and the facts of that step.
fn write(tx: &Connection, rows: &Rows, step: usize) -> rusqlite::Result<()> {
    if step == 0 {
        insert(tx, "approvals", &rows.approval)?;
    } else {
        // The same bytes to the same page: what an update costs does not depend on which of its columns moved.
        let mut update =
            tx.prepare_cached("UPDATE approvals SET status = status, claim_id = claim_id WHERE id = ?1")?;
        update.execute([&rows.approval[0]])?;
    }
    // opened | voted, resolved | claimed | settled
    let facts = [0..1, 1..3, 3..4, 4..5];
    for event in rows.events.get(facts[step].clone()).unwrap_or_default() {
        insert(tx, "approval_events", event)?;
    }
    if step == 1 {
        for vote in &rows.votes {
            insert(tx, "approval_votes", vote)?;
        }
    }
    Ok(())
}

fn insert(conn: &Connection, table: &str, row: &[Value]) -> rusqlite::Result<()> {
    let marks = vec!["?"; row.len()].join(",");
    conn.prepare_cached(&format!("INSERT INTO {table} VALUES ({marks})"))?.execute(params_from_iter(row))?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a bench measures")]
fn now() -> Instant {
    Instant::now()
}
