//! Ids that requesters choose: opaque, given once, and never mistaken for another's reference.

use holdgate_core::action::reference;
use holdgate_core::approval::{Binding, Draft};
use holdgate_core::requirement::Decision;
use holdgate_core::{ApprovalId, EpochId, Kind, Refusal};
use holdgate_store::{Answer, By, Caps, IdempotencyKey, Op, Outcome};

use super::{Backend, Stage, approval, draft, duplicate, hash, refusal};

/// A request under an id of the requester's choice.
fn named(id: &str, epoch: &EpochId) -> Draft {
    Draft { id: Some(id.parse().unwrap()), ..draft("t:1", Binding::Runtime(epoch.clone())) }
}

/// What people and programs call their requests. No two are the same, however alike they look.
fn ids() -> Vec<String> {
    let mut ids: Vec<String> = [
        "plain",
        "Plain",
        "\u{FEFF}plain",
        "plain\u{FEFF}",
        " plain",
        "plain ",
        "plain\n",
        "two words",
        "two\u{A0}words",
        "\u{A0}",
        "\u{1C}approval-1",
        "\u{1}\u{7F}\u{85}",
        "tab\tline\r\n",
        "\u{E9}",
        "e\u{301}",
        "a/b?c#d",
        "../up",
        "%2e",
        "%",
        "_",
        "'; DROP TABLE approvals; --",
        "plugin:1",
        "apr_1",
        "...",
    ]
    .map(str::to_owned)
    .to_vec();
    ids.push("\u{1F512}".repeat(256));
    ids
}

/// Byte by byte what was chosen, through every door and after the process is gone. Nothing that is like it finds it.
pub async fn a_chosen_id_is_opaque(backend: &dyn Backend) {
    let mut stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    for id in ids() {
        let opened = approval(stage.open(named(&id, &epoch), None, &stage.agent).await);
        assert_eq!(opened.id.as_str(), id);
    }
    stage.reopen().await;
    for id in ids() {
        let asked = stage.stored(&id.parse().unwrap()).await;
        assert_eq!(asked.id.as_str(), id);
        let allowed = approval(stage.vote(&asked, Decision::AllowOnce).await);
        assert_eq!(approval(stage.claim(&allowed, "c", None).await).id.as_str(), id);
    }
    for near in
        ["", ".", "..", "PLAIN", "plain\r", "\u{FEFF}", "two  words", "\u{C9}", "apr_", "plai", " plain "]
    {
        assert_eq!(stage.find(near).await, None, "{near:?}");
    }
    for step in [".", ".."] {
        assert!(step.parse::<ApprovalId>().is_err(), "no path could hold it");
    }
}

/// An id names one request for good, whoever chose it and whatever became of it. Only the same call, by its key, is
/// the same request.
pub async fn a_chosen_id_is_given_once(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let others = stage.caller(&stage.other).await;
    let keyed = |key: &str| Op::Open {
        draft: Box::new(named("mine", &epoch)),
        fence: None,
        by: By::from(&stage.agent),
        key: Some(IdempotencyKey { key: key.to_owned(), body: hash("body") }),
        caps: Caps::default(),
    };
    let asked = approval(stage.execute(keyed("k")).await);
    let derived = stage.ask(&epoch, "t:1").await;
    for ended in [false, true] {
        if ended {
            approval(stage.vote(&asked, Decision::Deny).await);
        }
        assert_eq!(duplicate(stage.execute(keyed("k")).await).id, asked.id);
        assert_eq!(stage.execute(keyed("other key")).await, Outcome::Refused(Refusal::IdTaken, None));
        let again = stage.open(named("mine", &epoch), None, &stage.agent).await;
        assert_eq!(again, Outcome::Refused(Refusal::IdTaken, None), "ended: {ended}");
        let anothers = stage.open(named("mine", &others), None, &stage.other).await;
        assert_eq!(anothers, Outcome::Refused(Refusal::IdTaken, None), "ended: {ended}");
        let of_derived = stage.open(named(derived.id.as_str(), &others), None, &stage.other).await;
        assert_eq!(refusal(of_derived), Refusal::IdTaken);
    }
    assert_eq!(stage.store().approvals(super::lists::all()).await.unwrap().len(), 2);
}

/// What is in a record under the name of another could be taken for it: neither comes in after the other.
pub async fn no_id_is_anothers_reference(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let first = approval(stage.open(named("first", &epoch), None, &stage.agent).await);
    let as_id = stage.open(named(&first.reference(), &epoch), None, &stage.agent).await;
    assert_eq!(refusal(as_id), Refusal::IdTaken, "an id that is a reference");

    let second = reference(Kind::Tool, &"second".parse().unwrap());
    if let Outcome::Committed(Answer::Approval(in_the_way)) =
        stage.open(named(&second, &epoch), None, &stage.agent).await
    {
        let late = stage.open(named("second", &epoch), None, &stage.agent).await;
        assert_eq!(refusal(late), Refusal::IdTaken, "a reference that is an id");
        assert_eq!(stage.find(&second).await.unwrap().place.1, in_the_way.id);
    }
    let derived = draft("t:2", Binding::Runtime(epoch.clone()));
    let derived_id = derived.action.id(&format!("{epoch}/{}", stage.agent.id));
    let in_the_way = stage.open(named(&reference(Kind::Tool, &derived_id), &epoch), None, &stage.agent).await;
    if matches!(in_the_way, Outcome::Committed(_)) {
        assert_eq!(refusal(stage.open(derived, None, &stage.agent).await), Refusal::IdTaken);
    }
}

/// The two names of a record find it, and no third one does.
pub async fn a_request_is_found_by_its_id_and_by_its_reference(backend: &dyn Backend) {
    let stage = Stage::set(backend).await;
    let epoch = stage.caller(&stage.agent).await;
    let chosen = approval(stage.open(named(" \u{FEFF}mine", &epoch), None, &stage.agent).await);
    for asked in [&chosen, &stage.ask(&epoch, "t:2").await] {
        let by_id = stage.seen(&asked.id).await;
        assert_eq!(stage.find(&asked.reference()).await, Some(by_id));
        for other in [Kind::Exec, Kind::Plugin] {
            assert_eq!(stage.find(&reference(other, &asked.id)).await, None, "of another kind");
        }
        assert_eq!(stage.find(&asked.reference().to_lowercase()).await, None);
        assert_eq!(stage.find(&asked.digest.to_hex()).await, None);
    }
}
