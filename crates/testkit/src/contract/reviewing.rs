//! Reviewing: how many people it takes, which of them, and that all of it is judged when the answer is written.

use holdgate_core::approval::{Binding, Draft, Status, TerminalReason};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::{Approval, Command, Event, Principal, Refusal, Scopes};
use holdgate_store::{Administration, Answer, By, Notice, Op, Outcome};

use super::{
    Backend, Stage, approval, draft, drain, duplicate, hand_in, hash, principal, refusal, refused, reviewers,
    vote,
};

fn of_people(approvals: u32, denials: u32) -> Requirement {
    let allowed_decisions = Decision::ALL.to_vec();
    Requirement { approvals, denials, allowed_decisions, ..Requirement::default() }
}

/// Whoever answers on a phone and on a laptop has answered once.
pub async fn two_devices_of_a_person_count_once(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (phone, laptop) = (stage.device_of("alice", "phone").await, stage.device_of("alice", "laptop").await);
    let bob = stage.device_of("bob", "tablet").await;
    let asked = stage.ask_for(&epoch, "t:1", of_people(2, 1)).await;
    let once = approval(stage.vote_of(&phone, &asked, Decision::AllowOnce).await);
    assert_eq!((once.status(), once.votes.len()), (Status::Pending, 1));
    assert_eq!(duplicate(stage.vote_of(&laptop, &asked, Decision::AllowOnce).await), once);
    assert_eq!(refusal(stage.vote_of(&laptop, &asked, Decision::AllowAlways).await), Refusal::AlreadyVoted);
    assert_eq!(refusal(stage.claim(&asked, "c", None).await), Refusal::NotAllowed);
    assert_eq!(stage.stored(&asked.id).await, once);
    let allowed = approval(stage.vote_of(&bob, &asked, Decision::AllowOnce).await);
    assert_eq!((allowed.status(), allowed.votes.len()), (Status::Allowed, 2));
}

/// Votes can be seen while it is pending. The last one and the end are one change: nobody sees one without the other.
pub async fn the_vote_that_completes_it_ends_it_in_the_same_commit(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (alice, bob) = (stage.device_of("alice", "phone").await, stage.device_of("bob", "tablet").await);
    let asked = stage.ask_for(&epoch, "t:1", of_people(2, 1)).await;
    let mut notices = stage.store().notices();
    let half = approval(stage.vote_of(&alice, &asked, Decision::AllowAlways).await);
    stage.clock.advance(5);
    let whole = approval(stage.vote_of(&bob, &asked, Decision::AllowOnce).await);
    let told = drain(&mut notices);
    let [Notice::Changed(first), Notice::Changed(second)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&first.approval, &second.approval), (&half, &whole));
    assert_eq!(first.events, [Event::Voted { decision: Decision::AllowAlways }]);
    let resolved = Event::Resolved { status: Status::Allowed, reason: TerminalReason::User };
    assert_eq!(second.events, [Event::Voted { decision: Decision::AllowOnce }, resolved]);
    assert_eq!(whole.decision(), Some(Decision::AllowOnce), "what both allowed");

    stage.reopen().await;
    assert_eq!(stage.stored(&asked.id).await, whole);
    let voters: Vec<_> = whole.votes.iter().map(|vote| vote.voter.person.clone().unwrap()).collect();
    assert_eq!(voters, [alice.person.unwrap(), bob.person.clone().unwrap()]);
    assert_eq!(whole.end().unwrap().by.person, bob.person);
}

/// While it is pending an allow may be turned into a deny, never back; and it ends with as many denies as it takes.
pub async fn an_allow_may_become_a_deny_while_it_is_pending(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (alice, bob) = (stage.device_of("alice", "phone").await, stage.device_of("bob", "tablet").await);
    let asked = stage.ask_for(&epoch, "t:1", of_people(2, 2)).await;
    approval(stage.vote_of(&alice, &asked, Decision::AllowOnce).await);
    stage.clock.advance(5);
    let turned = approval(stage.vote_of(&alice, &asked, Decision::Deny).await);
    assert_eq!((turned.status(), turned.votes.len()), (Status::Pending, 1));
    assert_eq!(turned.votes[0].decision, Decision::Deny);
    assert_eq!(refusal(stage.vote_of(&alice, &asked, Decision::AllowOnce).await), Refusal::AlreadyVoted);
    stage.reopen().await;
    assert_eq!(stage.stored(&asked.id).await, turned);
    let denied = approval(stage.vote_of(&bob, &asked, Decision::Deny).await);
    assert_eq!((denied.status(), denied.votes.len()), (Status::Denied, 2));
}

/// A device that is revoked between the tap and the commit has not answered. Its person, on another device, can.
pub async fn a_device_that_is_revoked_meanwhile_does_not_answer(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (phone, laptop) = (stage.device_of("alice", "phone").await, stage.device_of("alice", "laptop").await);
    let asked = stage.ask(&epoch, "t:1").await;
    let session = hash("session");
    let sign_in = Op::OpenPageSession { hash: session, by: By::from(&phone), lasts_ms: 1_000_000 };
    stage.execute(sign_in).await;

    let held = backend.hold().await;
    let change = Administration::Revoke { id: phone.id.clone() };
    let revoke = Op::Administer { change, by: By::from(&stage.reviewer) };
    let tap =
        Op::Apply { id: asked.id.clone(), command: vote(&asked, Decision::AllowOnce), by: By::from(&phone) };
    let store = &**stage.store();
    let Ok(revoked) = hand_in(store, revoke).await else { panic!("it is held") };
    let Ok(tapped) = hand_in(store, tap).await else { panic!("it is held") };
    drop(held);
    principal(revoked.await.unwrap());
    assert_eq!(tapped.await.unwrap(), Outcome::Refused(Refusal::NotFound, None));
    assert_eq!(stage.stored(&asked.id).await, asked);
    assert_eq!(stage.holder("token of phone").await, None);
    let signed_in = stage.store().credential(holdgate_store::Credential::PageSession(session)).await;
    assert_eq!(signed_in.unwrap(), None);

    let allowed = approval(stage.vote_of(&laptop, &asked, Decision::AllowOnce).await);
    assert_eq!(allowed.end().unwrap().by.id, laptop.id);
}

/// Who belongs to a group is known when the answer is written, not when somebody signed in.
pub async fn a_group_is_who_belongs_to_it_then(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let (alice, bob) = (stage.device_of("alice", "phone").await, stage.device_of("bob", "tablet").await);
    let done = Outcome::Committed(Answer::Done);
    assert_eq!(stage.put_groups(&[("on call", &["alice"]), ("ops", &["alice", "bob"])]).await, done);
    let groups = stage.holder("token of phone").await.unwrap().groups;
    assert_eq!(groups, ["on call", "ops"]);
    let list = Requirement { reviewers: vec![reviewers(&["group:on call"])], ..Requirement::default() };
    let asked = stage.ask_for(&epoch, "t:1", list).await;
    assert_eq!(refusal(stage.vote_of(&bob, &asked, Decision::Deny).await), Refusal::NotFound);

    assert_eq!(stage.put_groups(&[("on call", &["bob"])]).await, done);
    assert_eq!(refusal(stage.vote_of(&alice, &asked, Decision::AllowOnce).await), Refusal::NotFound);
    assert_eq!(stage.holder("token of phone").await.unwrap().groups, [] as [&str; 0]);
    approval(stage.vote_of(&bob, &asked, Decision::AllowOnce).await);
    let same = stage.put_groups(&[("on call", &["bob"])]).await;
    assert_eq!(same, Outcome::Duplicate(Answer::Done));
}

/// What a connection is limited to holds for what is written by it; what it claims beyond its credential does not.
pub async fn a_connection_does_no_more_than_its_scopes(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    for scopes in [Scopes::NONE, Scopes::REQUEST] {
        let narrowed = stage.reviewer.clone().narrowed(scopes);
        assert_eq!(refusal(stage.vote_of(&narrowed, &asked, Decision::Deny).await), Refusal::NotFound);
    }
    let muted = stage.agent.clone().narrowed(Scopes::NONE);
    let open = stage.open(draft("t:2", Binding::Runtime(epoch.clone())), None, &muted).await;
    assert_eq!(refusal(open), Refusal::NotARequester);
    let withdraw = Command::Cancel { reason: TerminalReason::Withdrawn };
    assert_eq!(refusal(stage.apply(&asked.id, withdraw, &muted).await), Refusal::NotFound);
    let greedy = Principal { scopes: Scopes::ALL, ..stage.agent.clone() };
    assert_eq!(refusal(stage.vote_of(&greedy, &asked, Decision::AllowOnce).await), Refusal::NotAReviewer);

    stage.offer_pairing("wall", "alice", Scopes::REQUEST).await;
    let wall = principal(stage.pair("wall", "wall", "token of wall").await);
    let greedy = Principal { scopes: Scopes::ALL, ..wall };
    assert_eq!(refusal(stage.vote_of(&greedy, &asked, Decision::Deny).await), Refusal::NotFound);
    assert_eq!(stage.stored(&asked.id).await, asked);
    let reviewing = stage.reviewer.clone().narrowed(Scopes::APPROVALS);
    approval(stage.vote_of(&reviewing, &asked, Decision::Deny).await);
}

/// Who asked may answer by themselves without a list, and may not once there is one without them.
pub async fn a_list_of_reviewers_outranks_who_asked(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let (phone, laptop) = (stage.device_of("alice", "phone").await, stage.device_of("alice", "laptop").await);
    let (bob, carol) = (stage.device_of("bob", "tablet").await, stage.device_of("carol", "watch").await);
    let epoch = stage.caller(&phone).await;
    let ask = async |boundary: &str, requirement: Requirement| -> Approval {
        let draft = Draft { requirement, ..draft(boundary, Binding::Runtime(epoch.clone())) };
        approval(stage.open(draft, None, &phone).await)
    };
    let own = ask("t:1", Requirement::default()).await;
    assert_eq!(refusal(stage.vote_of(&bob, &own, Decision::AllowOnce).await), Refusal::NotFound);
    approval(stage.vote_of(&laptop, &own, Decision::AllowOnce).await);

    let lists = vec![reviewers(&["person:bob", "device:watch"])];
    let listed = ask("t:2", Requirement { reviewers: lists, ..Requirement::default() }).await;
    let (why, shown) = refused(stage.vote_of(&phone, &listed, Decision::AllowOnce).await);
    assert_eq!((why, shown.as_ref()), (Refusal::NotAReviewer, Some(&listed)));
    assert_eq!(refusal(stage.vote_of(&laptop, &listed, Decision::AllowOnce).await), Refusal::NotFound);
    approval(stage.vote_of(&carol, &listed, Decision::AllowOnce).await);

    let both = vec![reviewers(&["person:bob", "person:carol"]), reviewers(&["person:bob"])];
    let narrow = ask("t:3", Requirement { reviewers: both, ..Requirement::default() }).await;
    assert_eq!(refusal(stage.vote_of(&carol, &narrow, Decision::Deny).await), Refusal::NotFound);
    approval(stage.vote_of(&bob, &narrow, Decision::Deny).await);
}

/// An allow that was taken back stays the answer and is spent by nobody; one that was spent is not taken back.
pub async fn a_revoked_allow_is_not_spent(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let revoke = || Command::Revoke { reason: Some("the wrong stage".to_owned()) };
    let asked = stage.ask(&epoch, "t:1").await;
    assert_eq!(refusal(stage.apply(&asked.id, revoke(), &stage.reviewer).await), Refusal::NotAllowed);
    let allowed = approval(stage.vote(&asked, Decision::AllowOnce).await);
    assert_eq!(refusal(stage.apply(&asked.id, revoke(), &stage.other).await), Refusal::NotFound);
    stage.clock.advance(5);
    let revoked = approval(stage.apply(&asked.id, revoke(), &stage.reviewer).await);
    assert_eq!((revoked.decision(), revoked.end()), (Some(Decision::AllowOnce), allowed.end()));
    let taken_back = revoked.revocation().unwrap();
    assert_eq!((taken_back.at, &taken_back.by.id), (stage.store().now(), &stage.reviewer.id));
    stage.reopen().await;
    assert_eq!(stage.stored(&asked.id).await, revoked);
    assert_eq!(refusal(stage.claim(&asked, "c", None).await), Refusal::Revoked);
    assert_eq!(duplicate(stage.apply(&asked.id, revoke(), &stage.agent).await), revoked);
    assert_eq!(duplicate(stage.vote(&asked, Decision::AllowOnce).await), revoked, "the answer stands");

    let spent = stage.ask(&epoch, "t:2").await;
    approval(stage.vote(&spent, Decision::AllowOnce).await);
    let claimed = approval(stage.claim(&spent, "c", None).await);
    for by in [&stage.reviewer, &stage.agent] {
        let (why, shown) = refused(stage.apply(&spent.id, revoke(), by).await);
        assert_eq!((why, shown.as_ref()), (Refusal::AlreadyClaimed, Some(&claimed)));
    }
}

/// A trusted host resolves what others asked, within its range, and is shown nothing of it.
pub async fn a_runtime_resolves_within_its_range(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let host = stage.runtime("host", Some(&stage.agent)).await;
    let (epoch, others) = (stage.caller(&stage.agent).await, stage.caller(&stage.other).await);
    let (first, second) = (stage.ask(&epoch, "t:1").await, stage.ask(&epoch, "t:2").await);
    let foreign = approval(stage.open(draft("t:1", Binding::Runtime(others)), None, &stage.other).await);
    assert_eq!(refusal(stage.vote_of(&host, &foreign, Decision::Deny).await), Refusal::NotFound);
    let malformed = |by| stage.apply(&foreign.id, Command::DenyMalformed, by);
    assert_eq!(refusal(malformed(&host).await), Refusal::NotFound);
    assert_eq!(refusal(malformed(&stage.agent).await), Refusal::NotFound);
    assert_eq!(
        refusal(malformed(&stage.reviewer).await),
        Refusal::NotAReviewer,
        "a person's mistake denies nothing"
    );
    assert_eq!(stage.stored(&foreign.id).await, foreign);

    let denied = approval(stage.apply(&first.id, Command::DenyMalformed, &host).await);
    assert_eq!(denied.end().unwrap().reason, TerminalReason::MalformedVerdict);
    assert_eq!(denied.end().unwrap().by.kind, PrincipalKind::Runtime);
    let lost = stage.vote_of(&host, &first, Decision::AllowOnce).await;
    let winner = Some(Box::new(denied));
    assert_eq!(lost, Outcome::Refused(Refusal::AlreadyDecided, winner), "whoever may answer is told who won");
    approval(stage.vote_of(&host, &second, Decision::AllowOnce).await);
    assert_eq!(
        refusal(stage.apply(&second.id, super::claim(&second, "c", None), &host).await),
        Refusal::NotTheRequester
    );
}
