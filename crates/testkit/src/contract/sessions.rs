//! Sessions: who owns them, who sees a request because of it, and what each one's stream shows.

use holdgate_core::approval::TerminalReason;
use holdgate_core::requirement::Decision;
use holdgate_core::{Approval, ApprovalId, Command, EpochId, Refusal, Scopes};
use holdgate_store::{Answer, Outcome};

use super::{Backend, LIFE_MS, Stage, approval, draft_in, refusal};

const DONE: Outcome = Outcome::Committed(Answer::Done);

async fn ask_in(stage: &Stage<'_>, session: &str, boundary: &str, epoch: &EpochId) -> Approval {
    approval(stage.open(draft_in(session, boundary, epoch), None, &stage.agent).await)
}

/// Ancestors that change later see nothing new and lose nothing of what they saw.
pub async fn an_audience_is_computed_once_and_stays(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let [child, lead, root, new] = ["child", "lead", "root", "new"].map(|s| format!("agent:releaser:{s}"));
    assert_eq!(stage.put_session(&child, "lead", &stage.agent).await, DONE);
    assert_eq!(stage.put_session(&lead, "root", &stage.agent).await, DONE);
    let before = ask_in(&stage, " Child", "t:1", &epoch).await;
    assert_eq!(before.audience, [&*child, &lead, &root]);

    assert_eq!(stage.put_session(&child, "new", &stage.agent).await, DONE);
    stage.reopen().await;
    assert_eq!(stage.stored(&before.id).await, before);
    let after = ask_in(&stage, "child", "t:2", &epoch).await;
    assert_eq!(after.audience, [&*child, &new]);
    let ended = approval(stage.vote(&before, Decision::Deny).await);
    assert_eq!(ended.audience, before.audience, "its end goes where the request went");
    let alone = ask_in(&stage, " \u{FEFF}", "t:3", &epoch).await;
    assert_eq!(alone.audience, [] as [&str; 0]);
}

/// Who has said whose a session is may say otherwise; another may not, but an administrator may.
pub async fn a_session_is_described_by_who_did_first(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let key = "agent:releaser:child";
    let muted = stage.agent.clone().narrowed(Scopes::NONE);
    assert_eq!(refusal(stage.put_session(key, "spy", &muted).await), Refusal::NotARequester);
    assert_eq!(stage.put_session(key, "lead", &stage.agent).await, DONE);
    assert_eq!(refusal(stage.put_session(key, "spy", &stage.other).await), Refusal::NotTheRequester);
    let audience = async |boundary: &str| ask_in(&stage, "child", boundary, &epoch).await.audience;
    assert_eq!(audience("t:1").await, [key, "agent:releaser:lead"]);
    assert_eq!(stage.put_session(key, "root", &stage.reviewer).await, DONE);
    assert_eq!(audience("t:2").await, [key, "agent:releaser:root"]);
}

/// Every session of the audience is shown the request, the oldest first, and nothing of it once it has ended.
pub async fn a_sessions_stream_shows_what_is_pending(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let [child, lead] = ["child", "lead"].map(|s| format!("agent:releaser:{s}"));
    stage.put_session(&child, "lead", &stage.agent).await;
    let mut asked = Vec::new();
    for (n, session) in ["child", "lead", "child", "child"].into_iter().enumerate() {
        asked.push(ask_in(&stage, session, &format!("t:{n}"), &epoch).await);
        stage.clock.advance(1);
    }
    stage.ask(&epoch, "nobody's").await;
    let expect = |indices: &[usize]| indices.iter().map(|&i| asked[i].id.clone()).collect::<Vec<_>>();
    assert_eq!(shown(&stage, &child, 10).await, expect(&[0, 2, 3]));
    assert_eq!(shown(&stage, &lead, 10).await, expect(&[0, 1, 2, 3]));
    assert_eq!(shown(&stage, &lead, 2).await, expect(&[0, 1]));
    let second = (asked[1].created_at, asked[1].id.clone());
    let on = stage.store().pending_of_session(&lead, Some(second), 10).await.unwrap();
    assert_eq!(on.into_iter().map(|seen| seen.place.1).collect::<Vec<_>>(), expect(&[2, 3]));
    for other in ["child", "agent:releaser:CHILD", "agent:releaser:", "agent:other:child", ""] {
        assert_eq!(shown(&stage, other, 10).await, [], "{other:?}");
    }

    approval(stage.vote(&asked[0], Decision::Deny).await);
    let withdraw = Command::Cancel { reason: TerminalReason::Withdrawn };
    approval(stage.apply(&asked[2].id, withdraw, &stage.agent).await);
    stage.reopen().await;
    assert_eq!(shown(&stage, &child, 10).await, expect(&[3]));
    assert_eq!(shown(&stage, &lead, 10).await, expect(&[1, 3]));
    stage.clock.advance(LIFE_MS);
    stage.sweep(10).await;
    assert_eq!(shown(&stage, &lead, 10).await, []);
}

async fn shown(stage: &Stage<'_>, session: &str, limit: u32) -> Vec<ApprovalId> {
    let seen = stage.store().pending_of_session(session, None, limit).await.unwrap();
    seen.into_iter().map(|seen| seen.place.1).collect()
}
