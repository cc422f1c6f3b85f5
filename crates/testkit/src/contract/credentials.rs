//! Credentials: only what their hash finds acts, and only while it stands.

use holdgate_core::approval::Binding;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Principal, Refusal};
use holdgate_store::{Answer, By, Credential, Op, Outcome};

use super::{Backend, Stage, StoreError, draft, hash, refusal, refused, vote};

/// An identity has one credential, the last it was given.
pub async fn a_new_credential_replaces_the_earlier_one(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    assert_eq!(stage.holder("token of agent").await, Some(stage.agent.clone()));
    assert_eq!(stage.holder("guess").await, None);
    let renamed = Principal { label: "The new agent".to_owned(), ..stage.agent.clone() };
    stage.provide(&renamed, "new").await;
    assert_eq!(stage.holder("token of agent").await, None);
    assert_eq!(stage.holder("new").await, Some(renamed.clone()));
    stage.reopen().await;
    assert_eq!(stage.holder("new").await, Some(renamed));
    assert_eq!(stage.holder("token of agent").await, None);
}

/// A sign-in lasts as long as it was said to, to the millisecond, and is for reviewers only.
pub async fn a_page_session_is_a_reviewers_and_lapses(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let hash = hash("session");
    let open = |by: &Principal| Op::OpenPageSession { hash, by: By::from(by), lasts_ms: 1_000 };
    assert_eq!(refusal(stage.execute(open(&stage.agent)).await), Refusal::NotAReviewer);
    assert_eq!(stage.execute(open(&stage.reviewer)).await, Outcome::Committed(Answer::Done));
    let session = Credential::PageSession(hash);
    stage.clock.advance(999);
    assert_eq!(stage.store().credential(session).await.unwrap(), Some(stage.reviewer.clone()));
    assert_eq!(
        stage.store().credential(Credential::Token(hash)).await.unwrap(),
        None,
        "a session is no token"
    );
    stage.clock.advance(1);
    assert_eq!(stage.store().credential(session).await.unwrap(), None);
}

/// Changing a credential signs out whoever signed in with the earlier one; giving the same again does not.
pub async fn a_page_session_ends_with_the_credential_that_opened_it(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let hash = hash("session");
    stage.execute(Op::OpenPageSession { hash, by: By::from(&stage.reviewer), lasts_ms: 1_000_000 }).await;
    let session = Credential::PageSession(hash);
    stage.provide(&stage.reviewer, "token of reviewer").await;
    assert_eq!(stage.store().credential(session).await.unwrap(), Some(stage.reviewer.clone()));
    stage.provide(&stage.reviewer, "changed").await;
    assert_eq!(stage.store().credential(session).await.unwrap(), None);
}

/// Who has no credential is refused under the lock, whatever the caller believed a moment ago.
pub async fn an_identity_without_a_credential_can_do_nothing(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    let stranger = Principal::new("stranger".parse().unwrap(), PrincipalKind::Administrator, "");
    let allow = vote(&asked, Decision::AllowOnce);
    let (why, winner) = refused(stage.apply(&asked.id, allow, &stranger).await);
    assert_eq!((why, winner), (Refusal::NotFound, None));
    let open = stage.open(draft("t:2", Binding::Runtime(epoch)), None, &stranger).await;
    assert_eq!(refusal(open), Refusal::NotFound);
    assert_eq!(stage.stored(&asked.id).await, asked);
}

/// One credential never stands for two identities, and none stands for the authority.
pub async fn a_credential_that_another_identity_has_is_refused(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let provide = |token: &str, principal: &Principal| {
        let op = Op::PutCredential { hash: hash(token), principal: principal.clone(), recovers: false };
        stage.store().execute(op)
    };
    let renamed = Principal { label: "The renamed".to_owned(), ..stage.other.clone() };
    let taken = provide("token of agent", &renamed).await;
    assert!(matches!(taken, Err(StoreError::Failed(_))), "{taken:?}");
    assert_eq!(stage.holder("token of agent").await, Some(stage.agent.clone()));
    let found = stage.holder("token of other").await;
    assert_eq!(found, Some(stage.other.clone()), "the failed change was undone whole");
    assert!(matches!(provide("x", &Principal::authority()).await, Err(StoreError::Failed(_))));
}
