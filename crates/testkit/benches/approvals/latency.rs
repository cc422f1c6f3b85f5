//! From a request to the waiter that is woken, over WebSockets, beside the two durable commits that it takes.

use holdgate_testkit::gateway::TestGateway;
use rusqlite::{Connection, TransactionBehavior};
use serde_json::json;

use crate::wire::Wire;
use crate::{Failure, Part, empty_database, now, rows, write};

const TURNS: usize = 2_000;

/// Prints both, and the ratio of the medians.
pub async fn measure() -> Result<(), Failure> {
    let gateway = TestGateway::start().await;
    let mut asks = Wire::agent(&gateway.url).await?;
    let mut answers = Wire::reviewer(&gateway.url, true).await?;
    let mut turns = Vec::with_capacity(TURNS);
    for turn in 0..TURNS {
        let id = format!("turn-{turn}");
        let request = json!({ "id": id, "command": "deploy --service checkout", "twoPhase": true });
        let begun = now();
        asks.say("exec.approval.request", &request).await?;
        answers
            .until(|frame| frame["event"] == "exec.approval.requested" && frame["payload"]["id"] == *id)
            .await?;
        answers
            .say("approval.resolve", &json!({ "id": id, "kind": "exec", "decision": "allow-once" }))
            .await?;
        let woken = asks.until(|frame| frame["payload"]["decision"].is_string()).await?;
        turns.push(begun.elapsed());
        assert_eq!(woken["payload"]["id"], *id);
    }
    let recorded = rows(&gateway.database())?;
    let (_dir, path) = empty_database()?;
    let mut conn = Connection::open(path)?;
    conn.pragma_update(None, "synchronous", "full")?;
    for runtime in &recorded.runtimes {
        crate::insert(&conn, "runtimes", runtime)?;
    }
    let mut floor = Vec::with_capacity(TURNS);
    for rows in &recorded.approvals {
        let begun = now();
        for step in 0..2 {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            write(&tx, rows, step)?;
            tx.commit()?;
        }
        floor.push(begun.elapsed());
    }
    let (whole, floor) = (Part::of(turns), Part::of(floor));
    println!("\nrequest -> other client's event -> resolve -> waiter woken, {TURNS} times, one at a time");
    println!("WebSocket    p50 {:>6.2} ms  p99 {:>6.2} ms", whole.p50_ms, whole.p99_ms);
    println!("two commits  p50 {:>6.2} ms  p99 {:>6.2} ms", floor.p50_ms, floor.p99_ms);
    println!(
        "ratio        p50 {:>6.2}     p99 {:>6.2}",
        whole.p50_ms / floor.p50_ms,
        whole.p99_ms / floor.p99_ms
    );
    drop((asks, answers));
    gateway.stop().await;
    Ok(())
}
