//! Credentials: only what their hash finds acts, and only while it stands.

use holdgate_core::approval::Binding;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Digest, Principal, Refusal};
use holdgate_store::{Answer, Credential, Op, Outcome};

use super::{Backend, Stage, StoreError, draft, refusal};

fn token(text: &str) -> Credential {
    Credential::Token(Digest::of(text.as_bytes()))
}

/// An identity has one credential, the last it was given.
pub async fn a_new_credential_replaces_the_earlier_one(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let find = async |stage: &Stage<'_>, text: &str| stage.store().credential(token(text)).await.unwrap();
    assert_eq!(find(&stage, "token of agent").await, Some(stage.agent.clone()));
    assert_eq!(find(&stage, "guess").await, None);
    let renamed = Principal { label: "The new agent".to_owned(), ..stage.agent.clone() };
    stage.admit(&renamed, "new").await;
    assert_eq!(find(&stage, "token of agent").await, None);
    assert_eq!(find(&stage, "new").await, Some(renamed.clone()));
    stage.reopen().await;
    assert_eq!(find(&stage, "new").await, Some(renamed));
    assert_eq!(find(&stage, "token of agent").await, None);
}

/// A sign-in lasts as long as it was said to, to the millisecond, and is for reviewers only.
pub async fn a_page_session_is_a_reviewers_and_lapses(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let hash = Digest::of(b"session");
    let open = |by: &Principal| Op::OpenPageSession { hash, by: by.id.clone(), lasts_ms: 1_000 };
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
    let hash = Digest::of(b"session");
    stage.execute(Op::OpenPageSession { hash, by: stage.reviewer.id.clone(), lasts_ms: 1_000_000 }).await;
    let session = Credential::PageSession(hash);
    stage.admit(&stage.reviewer, "token of reviewer").await;
    assert_eq!(stage.store().credential(session).await.unwrap(), Some(stage.reviewer.clone()));
    stage.admit(&stage.reviewer, "changed").await;
    assert_eq!(stage.store().credential(session).await.unwrap(), None);
}

/// Who has no credential is refused under the lock, whatever the caller believed a moment ago.
pub async fn an_identity_without_a_credential_can_do_nothing(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let asked = stage.ask(&epoch, "t:1").await;
    let stranger = Principal {
        id: "stranger".parse().unwrap(),
        kind: PrincipalKind::Administrator,
        label: String::new(),
    };
    let allow = super::vote(&asked, Decision::AllowOnce);
    let (why, winner) = super::refused(stage.apply(&asked.id, allow, &stranger).await);
    assert_eq!((why, winner), (Refusal::NotFound, None));
    let open = stage.open(draft("t:2", Binding::Runtime(epoch)), None, &stranger).await;
    assert_eq!(refusal(open), Refusal::NotFound);
    assert_eq!(stage.stored(&asked.id).await, asked);
}

/// One credential never stands for two identities, and none stands for the authority.
pub async fn a_credential_that_another_identity_has_is_refused(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let hash = Digest::of(b"token of agent");
    let taken = stage.store().execute(Op::PutCredential { hash, principal: stage.other.clone() }).await;
    assert!(matches!(taken, Err(StoreError::Failed(_))), "{taken:?}");
    let found = stage.store().credential(token("token of agent")).await.unwrap();
    assert_eq!(found, Some(stage.agent.clone()));
    let found = stage.store().credential(token("token of other")).await.unwrap();
    assert_eq!(found, Some(stage.other.clone()), "the failed change was undone whole");
    let op = Op::PutCredential { hash: Digest::of(b"x"), principal: Principal::authority() };
    assert!(matches!(stage.store().execute(op).await, Err(StoreError::Failed(_))));
}
