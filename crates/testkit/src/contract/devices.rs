//! Devices: pairing them with codes, letting them in without, and the credentials that they hold.

use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Principal, Refusal, Scopes};
use holdgate_store::{Answer, Outcome};

use super::stage::device;
use super::{Backend, Stage, principal, refusal};

/// The identity of an admission that left everything as it was.
fn unchanged(outcome: Outcome) -> Principal {
    match outcome {
        Outcome::Duplicate(Answer::Principal(principal)) => *principal,
        other => panic!("not an identity that was known: {other:?}"),
    }
}

/// A code pairs one device, with the person and the scopes that it was made for; then it is spent.
pub async fn a_pairing_code_is_used_once(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    stage.offer_pairing("code", "alice", Scopes::APPROVALS).await;
    let paired = principal(stage.pair("code", "phone", "token").await);
    assert_eq!((paired.kind, paired.scopes), (PrincipalKind::Device, Scopes::APPROVALS));
    assert_eq!((paired.person.as_ref().unwrap().as_str(), &*paired.label), ("alice", "The phone"));
    for again in ["phone", "laptop"] {
        let outcome = stage.pair("code", again, "another").await;
        assert_eq!(outcome, Outcome::Refused(Refusal::PairingCodeInvalid, None));
    }
    assert_eq!(refusal(stage.pair("guess", "laptop", "another").await), Refusal::PairingCodeInvalid);
    stage.reopen().await;
    assert_eq!(refusal(stage.pair("code", "laptop", "another").await), Refusal::PairingCodeInvalid);
    assert_eq!(stage.holder("token").await, Some(paired.clone()));
    assert_eq!(stage.holder("another").await, None);
    let identity = stage.store().identity(&paired.id).await.unwrap().unwrap();
    assert_eq!((identity.principal, identity.device), (paired, Some(device("phone"))));
    assert_eq!(stage.store().identity(&"laptop".parse().unwrap()).await.unwrap(), None);
}

/// Exactly at the end of its life, a code is worth nothing.
pub async fn a_pairing_code_lapses(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    stage.offer_pairing("first", "alice", Scopes::APPROVALS).await;
    stage.offer_pairing("second", "alice", Scopes::APPROVALS).await;
    stage.clock.advance(999);
    principal(stage.pair("first", "phone", "token").await);
    stage.clock.advance(1);
    assert_eq!(refusal(stage.pair("second", "laptop", "another").await), Refusal::PairingCodeInvalid);
    stage.reopen().await;
    stage.offer_pairing("third", "alice", Scopes::APPROVALS).await;
    assert_eq!(refusal(stage.pair("second", "laptop", "another").await), Refusal::PairingCodeInvalid);
    principal(stage.pair("third", "laptop", "another").await);
}

/// Each program on a device keeps the credential that it was given, until there are more than four.
pub async fn a_device_keeps_its_four_newest_credentials(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    stage.offer_pairing("code", "alice", Scopes::APPROVALS).await;
    principal(stage.pair("code", "phone", "token 0").await);
    for n in 1..6 {
        principal(stage.admit("phone", "alice", Scopes::APPROVALS, &format!("token {n}")).await);
        principal(stage.admit("phone", "alice", Scopes::APPROVALS, &format!("token {n}")).await);
    }
    stage.reopen().await;
    for n in 0..6 {
        let known = stage.holder(&format!("token {n}")).await;
        assert_eq!(known.is_some(), n >= 2, "token {n}");
    }
}

/// Without a code a device is what it is let in as, and more if it is let in as more; another's stays another's.
pub async fn letting_a_device_in_leaves_a_paired_one_as_it_is(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    stage.offer_pairing("code", "alice", Scopes::APPROVALS).await;
    let paired = principal(stage.pair("code", "phone", "own token").await);
    let met = unchanged(stage.admit("phone", "everybody", Scopes::ALL, "shared token").await);
    assert_eq!(met, paired);
    for token in ["own token", "shared token"] {
        assert_eq!(stage.holder(token).await, Some(paired.clone()), "{token}");
    }

    let met = principal(stage.admit("wall", "everybody", Scopes::APPROVALS, "wall token").await);
    assert_eq!((met.person.unwrap().as_str(), met.scopes), ("everybody", Scopes::APPROVALS));
    let more = principal(stage.admit("wall", "everybody", Scopes::ADMIN, "wall token").await);
    assert_eq!(more.scopes, Scopes::APPROVALS.or(Scopes::ADMIN));
    let less = principal(stage.admit("wall", "everybody", Scopes::NONE, "wall token").await);
    assert_eq!(less.scopes, more.scopes);
}

/// A device that was revoked stays out, whatever it knows, until somebody makes a code for it.
pub async fn a_revoked_device_comes_back_with_a_code_only(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    for paired in [true, false] {
        let phone = if paired {
            stage.device_of("alice", "phone").await
        } else {
            principal(stage.admit("wall", "everybody", Scopes::ALL, "token of wall").await)
        };
        let (id, person) = (phone.id.as_str(), phone.person.clone().unwrap());
        stage.revoke(&phone).await;
        stage.reopen().await;
        let outcome = stage.admit(id, person.as_str(), Scopes::ALL, "new token").await;
        assert_eq!(outcome, Outcome::Refused(Refusal::NotFound, None));
        assert_eq!(stage.holder("new token").await, None);
        assert_eq!(stage.holder(&format!("token of {id}")).await, None);
        assert_eq!(stage.store().identity(&phone.id).await.unwrap(), None);

        stage.offer_pairing("again", "bob", Scopes::APPROVALS).await;
        let token = format!("token of the return of {id}");
        let back = principal(stage.pair("again", id, &token).await);
        assert_eq!((back.person.as_ref().unwrap().as_str(), back.scopes), ("bob", Scopes::APPROVALS));
        assert_eq!(stage.holder(&token).await, Some(back));
        assert_eq!(stage.holder(&format!("token of {id}")).await, None, "the old one stays dead");
    }
}
