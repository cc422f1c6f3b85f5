//! Records: every field of a request and every way it can end, as they are read back after the process is gone.

use holdgate_core::approval::{Binding, Draft, Outcome as Came, Source, Status, TerminalReason};
use holdgate_core::limits::RUNTIME_LEASE_MS;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{Approval, Command, EpochId, Principal};
use holdgate_store::{By, Op};

use super::{Backend, Stage, approval, draft, reviewers, sound, touched};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// All that a request can carry, and the votes on it.
pub async fn every_field_of_a_request_is_kept(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let (phone, bob) = (stage.device_of("alice", "phone").await, stage.device_of("bob", "tablet").await);
    let epoch = stage.caller(&phone).await;
    stage.put_session("agent:releaser:child", "lead", &phone).await;
    let full = Draft {
        id: Some("\u{FEFF}plugin:full \n".parse().unwrap()),
        source: Source {
            agent: text("Releaser"),
            session: text(" Child "),
            session_id: text("5c0e"),
            run_id: text("run of the caller"),
            task_id: text("task"),
            tool_call_id: text("call_1"),
            tool_name: text("deploy"),
        },
        requirement: Requirement {
            approvals: 3,
            denials: 2,
            requester_may_decide: false,
            reason_required: true,
            allowed_decisions: Decision::ALL.to_vec(),
            reviewers: vec![reviewers(&["person:bob", "group:on call"]), reviewers(&["device:tablet"])],
        },
        client: text("a program 1.0 \u{202E}"),
        v4_request: text(r#"{"command":"ls \u0000","envKeys":["PATH"],"n":1e400}"#),
        ..draft("\u{1F512}:1", Binding::Runtime(epoch.clone()))
    };
    let opened = approval(stage.open(full.clone(), None, &phone).await);
    assert_eq!((&opened.source, &opened.requirement), (&full.source, &full.requirement));
    assert_eq!((&opened.client, &opened.v4_request), (&full.client, &full.v4_request));
    assert_eq!((opened.requester.person.as_ref(), opened.audience.len()), (phone.person.as_ref(), 2));
    let bare = Draft { source: Source::default(), reason: None, ..draft("t:2", Binding::Runtime(epoch)) };
    let bare = approval(stage.open(bare, None, &phone).await);
    assert_eq!((bare.audience.len(), &bare.client, &bare.v4_request), (0, &None, &None));

    let why = "because \u{0}\u{FEFF}\u{1F512}";
    let because = Command::Vote { decision: Decision::AllowAlways, digest: opened.digest, reason: text(why) };
    stage.clock.advance(5);
    let voted = approval(stage.apply(&opened.id, because, &bob).await);
    assert_eq!((voted.votes.len(), voted.votes[0].reason.as_deref()), (1, Some(why)));
    stage.reopen().await;
    for kept in [&voted, &bare] {
        assert_eq!(stage.stored(&kept.id).await, *kept);
    }
    let listed = stage.store().approvals(super::lists::all()).await.unwrap();
    let listed: Vec<Approval> = listed.into_iter().map(sound).collect();
    assert!(listed.contains(&voted) && listed.contains(&bare));
}

/// Allowed for once or for always, denied by a person, by a host, for want of a route; too late; called off for every
/// reason; and what became of each allow.
pub async fn every_end_is_kept(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let (bob, host) = (stage.device_of("bob", "tablet").await, stage.runtime("host", None).await);
    let authority = Principal::authority();
    let (here, epoch) = (stage.gateway("here").await, stage.caller(&stage.agent).await);
    let always = Requirement { allowed_decisions: Decision::ALL.to_vec(), ..Requirement::default() };
    let ask = async |boundary: &str| stage.ask_for(&epoch, boundary, always.clone()).await;
    let mut kept = Vec::new();
    for (boundary, by, decision) in [
        ("allowed by a device", &bob, Decision::AllowAlways),
        ("allowed by an administrator", &stage.reviewer, Decision::AllowOnce),
        ("allowed by a host", &host, Decision::AllowOnce),
        ("denied by a host", &host, Decision::Deny),
        ("denied by a device", &bob, Decision::Deny),
    ] {
        let asked = ask(boundary).await;
        stage.clock.advance(1);
        kept.push(approval(stage.vote_of(by, &asked, decision).await));
    }
    let withdraw = Command::Cancel { reason: TerminalReason::Withdrawn };
    for (boundary, command, by) in [
        ("malformed", Command::DenyMalformed, &host),
        ("unrouted", Command::DenyUnrouted, &authority),
        ("withdrawn", withdraw, &stage.agent),
    ] {
        let asked = ask(boundary).await;
        kept.push(approval(stage.apply(&asked.id, command, by).await));
    }
    let revoke = Command::Revoke { reason: text("the wrong stage") };
    for by in [&bob, &stage.agent] {
        let allowed = ask(&format!("revoked by {}", by.id)).await;
        approval(stage.vote(&allowed, Decision::AllowOnce).await);
        kept.push(approval(stage.apply(&allowed.id, revoke.clone(), by).await));
    }
    for outcome in [Came::Succeeded, Came::Failed] {
        let allowed = ask(outcome.as_str()).await;
        approval(stage.vote(&allowed, Decision::AllowOnce).await);
        approval(stage.claim(&allowed, "c", None).await);
        let (claim_id, detail) = ("c".parse().unwrap(), text("exit 1"));
        let settle = Command::Settle { claim_id, outcome, detail };
        kept.push(approval(stage.apply(&allowed.id, settle, &stage.agent).await));
    }
    kept.extend(ended_by_themselves(&stage, &epoch, here).await);

    stage.reopen().await;
    for ended in &kept {
        assert_eq!(stage.stored(&ended.id).await, *ended);
    }
    let reasons: std::collections::HashSet<_> =
        kept.iter().map(|ended| ended.end().unwrap().reason).collect();
    assert_eq!(reasons.len(), TerminalReason::ALL.len() - 1, "all but that of a record that cannot be read");
    assert_eq!(stage.sweep(10).await, 0);
}

/// What ends without anybody's answer: with its run, its time, its gateway, its caller; and a claim with its holder.
async fn ended_by_themselves(stage: &Stage<'_>, epoch: &EpochId, gateway: EpochId) -> Vec<Approval> {
    let mut of_run = draft("aborted", Binding::Runtime(epoch.clone()));
    of_run.source.run_id = text("run");
    let aborted = approval(stage.open(of_run, None, &stage.agent).await);
    let cancel = Op::CancelRun { run: "run".to_owned(), by: By::from(&stage.agent), limit: 10 };
    assert_eq!(touched(stage.execute(cancel).await), 1);
    let short = Draft { timeout_ms: 10, ..draft("expired", Binding::Runtime(epoch.clone())) };
    let expired = approval(stage.open(short, None, &stage.agent).await);
    let of_gateway = draft("restarted", Binding::Runtime(gateway));
    let restarted = approval(stage.open(of_gateway, None, &stage.agent).await);
    let (lost, unknown) = (stage.ask(epoch, "lost").await, stage.ask(epoch, "unknown").await);
    approval(stage.vote(&unknown, Decision::AllowOnce).await);
    approval(stage.claim(&unknown, "c", None).await);
    stage.clock.advance(10);
    assert_eq!(stage.sweep(10).await, 1);
    stage.gateway("here").await;
    assert_eq!(stage.sweep(10).await, 1);
    stage.clock.advance(RUNTIME_LEASE_MS);
    assert_eq!(stage.sweep(10).await, 2);
    let mut kept = Vec::new();
    for (ended, status, reason) in [
        (aborted, Status::Cancelled, TerminalReason::RunAborted),
        (expired, Status::Expired, TerminalReason::Timeout),
        (restarted, Status::Cancelled, TerminalReason::GatewayRestart),
        (lost, Status::Cancelled, TerminalReason::CallerLost),
        (unknown, Status::Allowed, TerminalReason::User),
    ] {
        let ended = stage.stored(&ended.id).await;
        assert_eq!((ended.status(), ended.end().unwrap().reason), (status, reason));
        kept.push(ended);
    }
    kept
}
