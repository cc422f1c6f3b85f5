//! Lists: order, narrowing, pages.

use holdgate_core::approval::{Binding, Status};
use holdgate_core::requirement::Decision;
use holdgate_core::{ApprovalId, Kind};
use holdgate_store::{Filter, Seen};

use super::{Backend, Stage, approval, draft, sound};

/// Everything, as far as one page goes.
pub(super) fn all() -> Filter {
    Filter { limit: 100, ..Filter::default() }
}

async fn ids(stage: &Stage<'_>, filter: Filter) -> Vec<ApprovalId> {
    let seen: Vec<Seen> = stage.store().approvals(filter).await.unwrap();
    seen.into_iter().map(|seen| sound(seen).id).collect()
}

/// Newest first; by status, kind, agent and requester, also together.
pub async fn a_list_is_newest_first_and_can_be_narrowed(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut opened = Vec::new();
    for boundary in ["t:1", "t:2", "t:3"] {
        stage.clock.advance(1);
        opened.push(stage.ask(&epoch, boundary).await);
    }
    let others = stage.caller(&stage.other).await;
    let mut draft = draft("t:4", Binding::Runtime(others));
    draft.source.agent = Some("cleaner".to_owned());
    stage.clock.advance(1);
    opened.push(approval(stage.open(draft, None, &stage.other).await));
    approval(stage.vote(&opened[1], Decision::Deny).await);

    let expect = |indices: &[usize]| indices.iter().map(|&i| opened[i].id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&stage, all()).await, expect(&[3, 2, 1, 0]));
    assert_eq!(ids(&stage, Filter { limit: 2, ..all() }).await, expect(&[3, 2]));
    let pending = Filter { status: Some(Status::Pending), ..all() };
    assert_eq!(ids(&stage, pending.clone()).await, expect(&[3, 2, 0]));
    assert_eq!(ids(&stage, Filter { status: Some(Status::Denied), ..all() }).await, expect(&[1]));
    assert_eq!(ids(&stage, Filter { kind: Some(Kind::Tool), ..all() }).await.len(), 4);
    assert_eq!(ids(&stage, Filter { kind: Some(Kind::Exec), ..all() }).await, expect(&[]));
    assert_eq!(ids(&stage, Filter { agent: Some("cleaner".to_owned()), ..all() }).await, expect(&[3]));
    let own = Filter { requester: Some(stage.agent.id.clone()), ..pending };
    assert_eq!(ids(&stage, own.clone()).await, expect(&[2, 0]));
    let before = Some((opened[2].created_at, opened[2].id.clone()));
    let narrow = Filter { kind: Some(Kind::Tool), agent: Some("releaser".to_owned()), before, ..own };
    assert_eq!(ids(&stage, narrow).await, expect(&[0]));
}

/// Page by page, each record that was there at the start is seen once, though all may have the same time and
/// more are opened in between.
pub async fn pages_neither_repeat_nor_miss_while_others_insert(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let mut there = Vec::new();
    for n in 0..9 {
        stage.clock.advance(i64::from(n % 3 == 0));
        there.push(stage.ask(&epoch, &format!("t:{n}")).await.id);
    }
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = stage.store().approvals(Filter { before, limit: 2, ..Filter::default() }).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.place.clone());
        found.extend(page.into_iter().map(|seen| seen.place.1));
        stage.clock.advance(1);
        stage.ask(&epoch, &format!("late:{}", found.len())).await;
    }
    assert_eq!(found.len(), there.len());
    there.sort();
    found.sort();
    assert_eq!(found, there);
}
