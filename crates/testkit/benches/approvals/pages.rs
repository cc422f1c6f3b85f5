//! Reading while 100,000 approvals have ended and 10,000 wait.

use std::sync::Arc;

use holdgate_core::approval::{Binding, Draft, Source};
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{Action, Canonical, Command, Kind};
use holdgate_store::{Answer, By, Caps, Op, Outcome, Store as _};
use holdgate_testkit::gateway::{Caller, Persona, TestGateway};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::wire::Wire;
use crate::{Failure, Part, now};

const ENDED: usize = 100_000;
const PENDING: usize = 10_000;
/// As many operations as one identity may have waiting, and some room.
const AT_ONCE: usize = 400;
const READS: usize = 500;
const CAPS: Caps = Caps { per_principal: u32::MAX, per_session: u32::MAX };

/// Prints how long pages take.
pub async fn measure() -> Result<(), Failure> {
    let gateway = TestGateway::start().await;
    let begun = now();
    fill(&gateway).await?;
    let filled = begun.elapsed().as_secs_f64();
    println!(
        "\n{ENDED} ended and {PENDING} pending approvals (made in {filled:.0} s), {READS} reads of each, ms"
    );
    println!("                                     p50     p99");
    let reviewer = gateway.by(Persona::Reviewer);
    let some = reviewer.get("/v1/approvals?status=pending&limit=1").await.field("/items/0/id");
    for (what, path) in [
        ("HTTP get", format!("/v1/approvals/{some}")),
        ("HTTP list, newest 50", "/v1/approvals".to_owned()),
        ("HTTP list, 50 pending", "/v1/approvals?status=pending".to_owned()),
        ("HTTP history, last 50", "/v1/history".to_owned()),
    ] {
        let mut taken = Vec::with_capacity(READS);
        for _ in 0..READS {
            let begun = now();
            let reply = reviewer.get(&path).await;
            taken.push(begun.elapsed());
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
        print(what, taken);
    }
    print("HTTP history, page after page", walk(&reviewer, "/v1/history?limit=50").await);
    print("HTTP list, page after page", walk(&reviewer, "/v1/approvals?limit=50").await);
    let mut wire = Wire::reviewer(&gateway.url, false).await?;
    for (what, method, params) in [
        ("WebSocket approval.get", "approval.get", json!({ "id": some })),
        ("WebSocket approval.list, 50", "approval.list", json!({ "status": "pending" })),
        ("WebSocket approval.history, 50", "approval.history", json!({})),
    ] {
        let mut taken = Vec::with_capacity(READS);
        for _ in 0..READS {
            let begun = now();
            let reply = wire.call(method, &params).await?;
            taken.push(begun.elapsed());
            assert_eq!(reply["ok"], true, "{reply}");
        }
        print(what, taken);
    }
    drop(wire);
    gateway.stop().await;
    Ok(())
}

async fn walk(reviewer: &Caller, path: &str) -> Vec<std::time::Duration> {
    let (mut taken, mut cursor) = (Vec::with_capacity(READS), Value::Null);
    for _ in 0..READS {
        let at = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let begun = now();
        let page = reviewer.get(&format!("{path}{at}")).await;
        taken.push(begun.elapsed());
        cursor = page.json()["nextCursor"].clone();
        assert!(cursor.is_string(), "{}", page.text);
    }
    taken
}

fn print(what: &str, taken: Vec<std::time::Duration>) {
    let part = Part::of(taken);
    println!("{what:<32} {:>7.2} {:>7.2}", part.p50_ms, part.p99_ms);
}

async fn fill(gateway: &TestGateway) -> Result<(), Failure> {
    let epoch = gateway.service.own_epoch().ok_or("a gateway has an epoch")?;
    let mut filling = JoinSet::new();
    for n in 0..ENDED + PENDING {
        let content = Canonical::parse(&json!({ "argv": ["deploy", n.to_string()] }).to_string())?;
        let draft = Draft {
            id: None,
            presentation: holdgate_core::presentation::present(Kind::Exec, &content.to_value())?,
            action: Action::freeze(Kind::Exec, &n.to_string(), content)?,
            reason: Some("the nightly release".to_owned()),
            source: Source::default(),
            binding: Binding::Runtime(epoch.clone()),
            requirement: Requirement { allowed_decisions: Decision::ALL.to_vec(), ..Requirement::default() },
            timeout_ms: 3_600_000,
            client: None,
            v4_request: None,
        };
        let store = Arc::clone(&gateway.store);
        filling.spawn(async move {
            let by = By::from(&Persona::Agent.principal());
            let open = Op::Open { draft: Box::new(draft), fence: None, by, key: None, caps: CAPS };
            let opened = match store.execute(open).await {
                Ok(Outcome::Committed(Answer::Approval(opened))) => opened,
                other => return Err(format!("{other:?}")),
            };
            if n < ENDED {
                let command = Command::Vote { decision: Decision::Deny, digest: opened.digest, reason: None };
                let by = By::from(&Persona::Reviewer.principal());
                let voted = store.execute(Op::Apply { id: opened.id.clone(), command, by }).await;
                if !matches!(voted, Ok(Outcome::Committed(_))) {
                    return Err(format!("{voted:?}"));
                }
            }
            Ok(())
        });
        if filling.len() == AT_ONCE {
            filling.join_next().await.transpose()?.transpose()?;
        }
    }
    for filled in filling.join_all().await {
        filled?;
    }
    Ok(())
}
