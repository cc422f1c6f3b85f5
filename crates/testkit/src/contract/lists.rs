//! Lists: order, narrowing, pages.

use holdgate_core::approval::{Binding, Draft, Status};
use holdgate_core::limits::{PAGE_BYTES, V4_REQUEST_BYTES};
use holdgate_core::requirement::Decision;
use holdgate_core::{ApprovalId, Kind};
use holdgate_store::{Filter, Kinds, Seen};

use super::{Backend, Stage, approval, draft, draft_in, sound};

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
    assert_eq!(ids(&stage, Filter { kinds: Kinds::Only(Kind::Tool), ..all() }).await.len(), 4);
    assert_eq!(ids(&stage, Filter { kinds: Kinds::Only(Kind::Exec), ..all() }).await, expect(&[]));
    assert_eq!(ids(&stage, Filter { kinds: Kinds::Except(Kind::Exec), ..all() }).await.len(), 4);
    assert_eq!(ids(&stage, Filter { kinds: Kinds::Except(Kind::Tool), ..all() }).await, expect(&[]));
    assert_eq!(ids(&stage, Filter { agent: Some("cleaner".to_owned()), ..all() }).await, expect(&[3]));
    let own = Filter { requester: Some(stage.agent.id.clone()), ..pending };
    assert_eq!(ids(&stage, own.clone()).await, expect(&[2, 0]));
    let before = Some((opened[2].created_at, opened[2].id.clone()));
    let narrow = Filter { kinds: Kinds::Only(Kind::Tool), agent: Some("releaser".to_owned()), before, ..own };
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

/// With the approval that brings it to the bound, so that each page holds one at least.
pub async fn a_list_of_much_text_ends_early_and_goes_on(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (large, fit) = ("x".repeat(V4_REQUEST_BYTES - 100), PAGE_BYTES / V4_REQUEST_BYTES);
    for n in 0..2 * fit + 1 {
        let mut draft = draft_in("main", &format!("t:{n}"), &epoch);
        draft.v4_request = Some(format!("\"{large}{n}\""));
        approval(stage.open(draft, None, &stage.agent).await);
        stage.clock.advance(1);
    }
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = stage.store().approvals(Filter { before, ..all() }).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.place.clone());
        pages.push(page.len());
    }
    assert_eq!(pages, [fit, fit, 1]);
    let shown = stage.store().pending_of_session("main", None, 100).await.unwrap();
    assert_eq!(shown.len(), 0, "no agent, another session");
    let shown = stage.store().pending_of_session("agent:releaser:main", None, 100).await.unwrap();
    assert_eq!(shown.len(), fit);
}

/// What begins with exactly these characters: none of them stands for another, and none is folded.
pub async fn a_prefix_is_taken_literally(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    for id in ["a_b", "aXb", "A_b", "a%", "a", "\u{10FFFF}z", "\u{D7FF}", "\u{E000}"] {
        let id = Some(id.parse().unwrap());
        let draft = Draft { id, ..draft("t:1", Binding::Runtime(epoch.clone())) };
        approval(stage.open(draft, None, &stage.agent).await);
    }
    for (prefix, expected) in [
        ("a_", &["a_b"][..]),
        ("a%", &["a%"]),
        ("a", &["a", "a%", "aXb", "a_b"]),
        ("a_b", &["a_b"]),
        ("a_bc", &[]),
        ("\u{10FFFF}", &["\u{10FFFF}z"]),
        ("\u{D7FF}", &["\u{D7FF}"]),
    ] {
        let filter = Filter { id_prefix: Some(prefix.to_owned()), ..all() };
        let mut found: Vec<String> = ids(&stage, filter).await.into_iter().map(|id| id.to_string()).collect();
        found.sort();
        assert_eq!(found, expected, "{prefix:?}");
    }
    assert_eq!(ids(&stage, Filter { id_prefix: Some(String::new()), ..all() }).await.len(), 8);
}

/// Of each kind, as stored, and only what is pending.
pub async fn what_is_pending_is_counted_by_kind(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    assert_eq!(stage.store().pending_counts().await.unwrap(), []);
    let epoch = stage.caller(&stage.agent).await;
    let first = stage.ask(&epoch, "t:1").await;
    let second = stage.ask(&epoch, "t:2").await;
    approval(stage.open(super::ended::command("exec", &epoch), None, &stage.agent).await);
    let mut counts = stage.store().pending_counts().await.unwrap();
    counts.sort_by_key(|(kind, _)| kind.as_str());
    assert_eq!(counts, [(Kind::Exec, 1), (Kind::Tool, 2)]);
    approval(stage.vote(&first, Decision::AllowOnce).await);
    approval(stage.claim(&first, "c", None).await);
    approval(stage.vote(&second, Decision::Deny).await);
    stage.reopen().await;
    let counts = stage.store().pending_counts().await.unwrap();
    assert_eq!(counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [(Kind::Exec, 1)]);
}
