//! Administration: who may change who may act, what such a change ends, and that each is written down.

use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Actor, AdministrationEvent, Principal, PrincipalId, Refusal, Scopes};
use holdgate_store::{Administered, Administration, Answer, By, Credential, Op, Outcome};

use super::{Backend, Stage, hash, principal, refusal, reviewers};

fn issue(token: &str, principal: &Principal) -> Administration {
    Administration::IssueToken { hash: hash(token), principal: Box::new(principal.clone()) }
}

fn rotate(id: &PrincipalId, token: &str) -> Administration {
    Administration::RotateToken { id: id.clone(), hash: hash(token) }
}

/// No agent, no reviewer, no connection that was narrowed. A refused change leaves nothing behind.
pub async fn only_an_administrator_changes_who_may_act(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let phone = stage.device_of("alice", "phone").await;
    let host = stage.runtime("host", None).await;
    let narrowed = stage.reviewer.clone().narrowed(Scopes::APPROVALS.or(Scopes::REQUEST));
    let before = stage.store().administration(0, 100).await.unwrap();
    let new = Principal::new("new".parse().unwrap(), PrincipalKind::Agent, "new");
    for by in [&stage.agent, &phone, &host, &narrowed] {
        let person = "alice".parse().unwrap();
        for change in [
            issue("new token", &new),
            rotate(&stage.other.id, "new token"),
            Administration::Revoke { id: stage.other.id.clone() },
            Administration::OfferPairing { code: hash("code"), person, scopes: Scopes::ALL, lasts_ms: 1_000 },
            Administration::Freeze { agent: None, reason: None },
            Administration::Thaw { agent: None },
        ] {
            let outcome = stage.execute(Op::Administer { change, by: By::from(by) }).await;
            assert_eq!(outcome, Outcome::Refused(Refusal::NotAnAdministrator, None), "{}", by.id);
        }
    }
    assert_eq!(stage.holder("new token").await, None);
    assert_eq!(stage.holder("token of other").await, Some(stage.other.clone()));
    assert_eq!(refusal(stage.pair("code", "laptop", "x").await), Refusal::PairingCodeInvalid);
    assert_eq!(stage.store().administration(0, 100).await.unwrap(), before);
}

/// What was issued acts as it was issued, and its name is its own.
pub async fn an_issued_token_is_one_identity(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let host = Principal {
        range: Some(stage.agent.id.clone()),
        ..Principal::new("host".parse().unwrap(), PrincipalKind::Runtime, "The host")
    };
    let bot = Principal {
        reviewers: Some(reviewers(&["person:alice", "group:on call", "device:phone"])),
        ..Principal::new("bot".parse().unwrap(), PrincipalKind::Agent, "The bot")
    };
    for new in [&host, &bot] {
        assert_eq!(principal(stage.administer(issue(new.id.as_str(), new)).await), *new);
        assert_eq!(refusal(stage.administer(issue("again", new)).await), Refusal::IdTaken);
    }
    assert_eq!(refusal(stage.administer(issue("again", &stage.reviewer)).await), Refusal::IdTaken);
    stage.reopen().await;
    for new in [&host, &bot] {
        assert_eq!(stage.holder(new.id.as_str()).await.as_ref(), Some(new));
        let identity = stage.store().identity(&new.id).await.unwrap().unwrap();
        assert_eq!((&identity.principal, identity.device), (new, None));
        assert_eq!(identity.created_at, stage.store().now());
    }
    assert_eq!(stage.holder("again").await, None);
    let all = stage.store().identities().await.unwrap();
    let all: Vec<_> = all.iter().map(|identity| identity.principal.id.as_str()).collect();
    assert_eq!(all, ["agent", "bot", "host", "other", "reviewer"]);
}

/// The earlier token and whoever signed in with it are out at once.
pub async fn a_rotated_token_ends_the_earlier_one_and_its_sign_ins(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let phone = stage.device_of("alice", "phone").await;
    for who in [&stage.reviewer.clone(), &phone] {
        let session = hash(who.label.as_str());
        let sign_in = Op::OpenPageSession { hash: session, by: By::from(who), lasts_ms: 1_000_000 };
        assert_eq!(stage.execute(sign_in).await, Outcome::Committed(Answer::Done));
        let signed_in = Credential::PageSession(session);
        assert!(stage.store().credential(signed_in).await.unwrap().is_some());
        let new = format!("new token of {}", who.id);
        assert_eq!(principal(stage.administer(rotate(&who.id, &new)).await), *who);
        for _ in 0..2 {
            assert_eq!(stage.holder(&format!("token of {}", who.id)).await, None);
            assert_eq!(stage.store().credential(signed_in).await.unwrap(), None, "{}", who.id);
            assert_eq!(stage.holder(&new).await.as_ref(), Some(who));
            stage.reopen().await;
        }
    }
    let unknown = "unknown".parse().unwrap();
    assert_eq!(refusal(stage.administer(rotate(&unknown, "x")).await), Refusal::NotFound);
}

/// Who is revoked is nobody from then on: on no door, in no list. The home's own operator is not revoked this way.
pub async fn a_revoked_identity_is_nobody(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    stage.revoke(&stage.agent).await;
    for _ in 0..2 {
        assert_eq!(stage.holder("token of agent").await, None);
        assert_eq!(stage.store().identity(&stage.agent.id).await.unwrap(), None);
        let all = stage.store().identities().await.unwrap();
        assert!(all.iter().all(|identity| identity.principal.id != stage.agent.id));
        assert_eq!(refusal(stage.claim(&asked, "c", None).await), Refusal::NotFound);
        stage.reopen().await;
    }
    assert_eq!(stage.stored(&asked.id).await, asked, "its records stay");
    let change = Administration::Revoke { id: stage.agent.id.clone() };
    assert_eq!(refusal(stage.administer(change).await), Refusal::NotFound);
    let change = Administration::Revoke { id: stage.reviewer.id.clone() };
    assert_eq!(refusal(stage.administer(change).await), Refusal::NotAnAdministrator);
    assert_eq!(stage.holder("token of reviewer").await, Some(stage.reviewer.clone()));
}

/// Every change is a fact with who made it and when, in order, and none is written twice.
pub async fn every_change_of_who_may_act_is_written_down(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let start = stage.store().administration(0, 100).await.unwrap();
    assert_eq!(start, [], "what the home makes for itself is no change of anybody's");
    let admin = Actor::from(&stage.reviewer);
    let authority = Actor::from(&Principal::authority());
    let bot = Principal::new("bot".parse().unwrap(), PrincipalKind::Agent, "The bot");
    stage.administer(issue("bot", &bot)).await;
    stage.clock.advance(1);
    stage.administer(rotate(&bot.id, "bot 2")).await;
    stage.offer_pairing("code", "alice", Scopes::APPROVALS).await;
    let phone = principal(stage.pair("code", "phone", "token of phone").await);
    let wall = principal(stage.admit("wall", "everybody", Scopes::APPROVALS, "token of wall").await);
    stage.freeze(None).await;
    stage.freeze(Some(&bot)).await;
    stage.thaw(None).await;
    stage.thaw(None).await;
    stage.thaw(Some(&bot)).await;
    stage.revoke(&phone).await;
    stage.put_groups(&[("ops", &["alice"])]).await;
    stage.put_groups(&[("ops", &["alice"])]).await;
    let recover =
        Op::PutCredential { hash: hash("recovered"), principal: stage.reviewer.clone(), recovers: true };
    stage.execute(recover).await;
    stage.reopen().await;

    use AdministrationEvent as E;
    let principal = |who: &str| who.to_owned();
    let agent = Some("bot".to_owned());
    let expected = [
        (E::CredentialIssued { principal: principal("bot") }, &admin),
        (E::CredentialIssued { principal: principal("bot") }, &admin),
        (E::PairingOffered { person: "alice".to_owned() }, &admin),
        (E::Paired { principal: principal("phone"), person: "alice".to_owned() }, &Actor::from(&phone)),
        (E::Paired { principal: principal("wall"), person: "everybody".to_owned() }, &Actor::from(&wall)),
        (E::Frozen { agent: None }, &admin),
        (E::Frozen { agent: agent.clone() }, &admin),
        (E::Thawed { agent: None }, &admin),
        (E::Thawed { agent }, &admin),
        (E::Revoked { principal: principal("phone") }, &admin),
        (E::GroupsChanged, &authority),
        (E::OperatorRecovered, &authority),
    ];
    let facts = stage.store().administration(0, 100).await.unwrap();
    let found: Vec<_> = facts.iter().map(|fact| (fact.event.clone(), &fact.by)).collect();
    assert_eq!(found, expected);
    assert!(facts.is_sorted_by_key(|fact| fact.seq));
    assert_eq!(facts[0].at.plus_ms(1), facts[1].at);
    let page: Vec<Administered> = stage.store().administration(facts[2].seq, 3).await.unwrap();
    assert_eq!(page, facts[3..6]);
}
