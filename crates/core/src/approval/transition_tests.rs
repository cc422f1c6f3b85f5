//! What the state machine promises, one behaviour a test. Owns the fixtures of the tables and models below it.

use super::transition::{Bound, Change, Command};
use super::*;
use crate::id::PersonId;
use crate::presentation::present;
use crate::principal::{PrincipalKind, Scopes};
use crate::requirement::ReviewerList;

mod model;
mod people;
mod properties;
mod table;

const OPENED: i64 = 1_000;
const TIMEOUT: i64 = 500;
/// The last moment at which an answer counts.
const LAST: i64 = OPENED + TIMEOUT - 1;
const DEADLINE: i64 = OPENED + TIMEOUT;

const GONE: [(Bound, TerminalReason); 3] = [
    (Bound::GatewayGone, TerminalReason::GatewayRestart),
    (Bound::CallerGone, TerminalReason::CallerLost),
    (Bound::RunEnded, TerminalReason::RunAborted),
];

fn principal(id: &str, kind: PrincipalKind) -> Principal {
    Principal::new(id.parse().unwrap(), kind, id)
}

/// An administrator, a person of their own.
fn admin(id: &str) -> Principal {
    principal(id, PrincipalKind::Administrator)
}

/// A device of a person, with all that a reviewer needs and no more.
fn device(id: &str, person: &str) -> Principal {
    let person: PersonId = person.parse().unwrap();
    let scopes = Scopes::APPROVALS.or(Scopes::REQUEST);
    Principal { person: Some(person), scopes, ..principal(id, PrincipalKind::Device) }
}

fn agent() -> Principal {
    principal("agent", PrincipalKind::Agent)
}

fn runtime(id: &str) -> Principal {
    principal(id, PrincipalKind::Runtime)
}

fn at(ms: i64) -> Time {
    Time::from_ms(ms)
}

fn of_process() -> Binding {
    Binding::Runtime("epoch".parse().unwrap())
}

fn of_run() -> Binding {
    Binding::Checkpoint("run".parse().unwrap())
}

fn draft(binding: Binding) -> Draft {
    let content = Canonical::parse(r#"{"argv":["true"]}"#).unwrap();
    Draft {
        id: None,
        presentation: present(Kind::Exec, &content.to_value()).unwrap(),
        action: Action::freeze(Kind::Exec, "call", content).unwrap(),
        reason: None,
        source: Source::default(),
        binding,
        requirement: Requirement::default(),
        timeout_ms: TIMEOUT,
        client: None,
        v4_request: None,
    }
}

fn asked(binding: Binding, requirement: Requirement, by: &Principal) -> Approval {
    Approval::open(Draft { requirement, ..draft(binding) }, by, Vec::new(), at(OPENED)).approval
}

fn runtime_bound() -> Approval {
    asked(of_process(), Requirement::default(), &agent())
}

fn run_bound() -> Approval {
    asked(of_run(), Requirement::default(), &agent())
}

/// That many people to allow, that many to deny.
fn needs(approvals: u32, denials: u32) -> Requirement {
    Requirement { approvals, denials, ..Requirement::default() }
}

fn list(reviewers: &[&str]) -> ReviewerList {
    ReviewerList::try_from(reviewers.iter().map(|r| r.parse().unwrap()).collect::<Vec<_>>()).unwrap()
}

fn vote(approval: &Approval, decision: Decision) -> Command {
    Command::Vote { decision, digest: approval.digest, reason: None }
}

fn claim(approval: &Approval, id: &str, fence: Option<u64>) -> Command {
    Command::Claim { claim_id: id.parse().unwrap(), digest: approval.digest, fence: fence.map(Fence) }
}

fn settle(id: &str, outcome: Outcome) -> Command {
    Command::Settle { claim_id: id.parse().unwrap(), outcome, detail: None }
}

fn withdraw() -> Command {
    Command::Cancel { reason: TerminalReason::Withdrawn }
}

fn revoke() -> Command {
    Command::Revoke { reason: None }
}

fn apply(approval: &Approval, command: Command, by: &Principal, now: i64) -> Result<Change, Refusal> {
    approval.apply(command, by, Bound::Live, at(now))
}

fn next(approval: &Approval, command: Command, by: &Principal) -> Approval {
    apply(approval, command, by, OPENED + 1).unwrap().approval
}

fn allowed(pending: &Approval) -> Approval {
    next(pending, vote(pending, Decision::AllowOnce), &admin("root"))
}

/// One approval in every phase that a live process can see it in.
fn phases() -> Vec<(&'static str, Approval)> {
    let pending = runtime_bound();
    let allowed = allowed(&pending);
    let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
    vec![
        ("pending", pending.clone()),
        ("allowed", allowed.clone()),
        ("revoked", next(&allowed, revoke(), &admin("root"))),
        ("claimed", claimed.clone()),
        ("settled", next(&claimed, settle("c", Outcome::Succeeded), &agent())),
        ("denied", next(&pending, vote(&pending, Decision::Deny), &admin("root"))),
        ("expired", apply(&pending, Command::Expire, &Principal::authority(), DEADLINE).unwrap().approval),
        ("cancelled", next(&pending, withdraw(), &agent())),
    ]
}

#[test]
fn an_agent_never_decides_whatever_the_phase() {
    for (name, approval) in phases() {
        for decision in Decision::ALL {
            let own = apply(&approval, vote(&approval, decision), &agent(), OPENED);
            assert_eq!(own, Err(Refusal::NotAReviewer), "{name}");
            let other = principal("other-agent", PrincipalKind::Agent);
            let foreign = apply(&approval, vote(&approval, decision), &other, OPENED);
            assert_eq!(foreign, Err(Refusal::NotFound), "{name}: to another agent it does not exist");
        }
    }
}

#[test]
fn no_scope_and_no_list_lets_an_agent_decide() {
    let all = Principal { scopes: Scopes::ALL, person: Some("alice".parse().unwrap()), ..agent() };
    let requirement = Requirement { reviewers: vec![list(&["device:agent", "person:alice"])], ..needs(1, 1) };
    let approval = asked(of_process(), requirement, &all);
    let own = apply(&approval, vote(&approval, Decision::AllowOnce), &all, OPENED);
    assert_eq!(own, Err(Refusal::NotAReviewer));
    let other = Principal { id: "other-agent".parse().unwrap(), ..all };
    let foreign = apply(&approval, vote(&approval, Decision::AllowOnce), &other, OPENED);
    assert_eq!(foreign, Err(Refusal::NotFound));
}

#[test]
fn a_person_decides_their_own_request_unless_the_requirement_excludes_them() {
    for requester in [admin("root"), device("phone", "alice")] {
        let own = asked(of_process(), needs(1, 1), &requester);
        assert_eq!(
            next(&own, vote(&own, Decision::AllowOnce), &requester).end().unwrap().by,
            Actor::from(&requester)
        );
        let excluded = Requirement { requester_may_decide: false, ..needs(1, 1) };
        let strict = asked(of_process(), excluded, &requester);
        for decision in Decision::ALL {
            let refused = apply(&strict, vote(&strict, decision), &requester, OPENED);
            assert_eq!(refused, Err(Refusal::NotAReviewer), "{}", requester.id);
        }
        assert!(apply(&strict, vote(&strict, Decision::AllowOnce), &admin("chief"), OPENED).is_ok());
    }
}

#[test]
fn the_authority_decides_nothing_that_a_person_decides() {
    let pending = runtime_bound();
    let by = Principal::authority();
    for decision in Decision::ALL {
        assert_eq!(apply(&pending, vote(&pending, decision), &by, OPENED), Err(Refusal::NotAReviewer));
    }
    assert_eq!(apply(&pending, Command::Expire, &admin("root"), DEADLINE), Err(Refusal::NotAReviewer));
}

#[test]
fn only_the_requester_claims_and_settles() {
    let allowed = allowed(&runtime_bound());
    let foreign = apply(&allowed, claim(&allowed, "c", None), &admin("root"), OPENED);
    assert_eq!(foreign, Err(Refusal::NotTheRequester));
    let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
    let foreign = apply(&claimed, settle("c", Outcome::Succeeded), &admin("root"), OPENED);
    assert_eq!(foreign, Err(Refusal::NotTheRequester));
    assert_eq!(apply(&claimed, settle("d", Outcome::Succeeded), &agent(), OPENED), Err(Refusal::NotClaimed));
}

#[test]
fn another_digest_is_stale_in_every_phase() {
    for (name, approval) in phases() {
        let digest = Digest::of(b"something else");
        let vote = Command::Vote { decision: Decision::Deny, digest, reason: None };
        assert_eq!(apply(&approval, vote, &admin("q"), OPENED), Err(Refusal::StaleDigest), "{name}");
        let claim = Command::Claim { claim_id: "c".parse().unwrap(), digest, fence: None };
        assert_eq!(apply(&approval, claim, &agent(), OPENED), Err(Refusal::StaleDigest), "{name}");
    }
}

#[test]
fn an_answer_exactly_at_the_deadline_is_too_late() {
    let pending = runtime_bound();
    for decision in [Decision::AllowOnce, Decision::Deny] {
        let late = apply(&pending, vote(&pending, decision), &admin("root"), DEADLINE);
        assert_eq!(late, Err(Refusal::Expired));
        assert!(apply(&pending, vote(&pending, decision), &admin("root"), LAST).is_ok());
    }
}

#[test]
fn only_an_offered_answer_counts_and_with_a_reason_where_one_is_asked() {
    let mut pending = runtime_bound();
    let always = apply(&pending, vote(&pending, Decision::AllowAlways), &admin("root"), OPENED);
    assert_eq!(always, Err(Refusal::DecisionNotOffered));
    pending.requirement.reason_required = true;
    let bare = apply(&pending, vote(&pending, Decision::Deny), &admin("root"), OPENED);
    assert_eq!(bare, Err(Refusal::ReasonRequired));
    let command = Command::Vote {
        decision: Decision::Deny,
        digest: pending.digest,
        reason: Some("not on a Friday".to_owned()),
    };
    let denied = next(&pending, command, &admin("root"));
    assert_eq!(denied.votes[0].reason.as_deref(), Some("not on a Friday"));
}

#[test]
fn a_request_ends_with_what_waits_behind_it() {
    let pending = runtime_bound();
    for (bound, reason) in GONE {
        let change = pending.reconcile(bound, at(OPENED)).unwrap();
        assert_eq!(change.approval.status(), Status::Cancelled);
        let end = change.approval.end().unwrap();
        assert_eq!((end.reason, end.by.is_authority()), (reason, true));
        assert_eq!(change.events, [Event::Resolved { status: Status::Cancelled, reason }]);
        let late = pending.apply(vote(&pending, Decision::AllowOnce), &admin("root"), bound, at(OPENED));
        assert_eq!(late, Err(Refusal::Cancelled));
    }
    assert_eq!(pending.reconcile(Bound::Live, at(OPENED)), None);
    assert_eq!(run_bound().reconcile(Bound::Run { fence: Fence(9), held: false }, at(OPENED)), None);
}

#[test]
fn an_allow_of_a_dead_process_cannot_be_claimed_but_a_claim_stays_answered() {
    let allowed = allowed(&runtime_bound());
    for bound in [Bound::GatewayGone, Bound::CallerGone] {
        let spent = allowed.apply(claim(&allowed, "c", None), &agent(), bound, at(OPENED));
        assert_eq!(spent, Err(Refusal::EpochLapsed));
        let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
        let again = claimed.apply(claim(&claimed, "c", None), &agent(), bound, at(OPENED)).unwrap();
        assert!(!again.applied());
    }
}

#[test]
fn an_allow_of_a_run_that_has_ended_cannot_be_claimed() {
    let allowed = allowed(&run_bound());
    let late = allowed.apply(claim(&allowed, "c", Some(1)), &agent(), Bound::RunEnded, at(OPENED));
    assert_eq!(late, Err(Refusal::RunEnded));
    assert_eq!(allowed.reconcile(Bound::RunEnded, at(OPENED)), None, "the answer stays what it was");
}

#[test]
fn a_stored_run_claims_with_its_current_fence_only() {
    let allowed = allowed(&run_bound());
    let bound = Bound::Run { fence: Fence(2), held: true };
    for fence in [None, Some(1), Some(3)] {
        let stale = allowed.apply(claim(&allowed, "c", fence), &agent(), bound, at(OPENED));
        assert_eq!(stale, Err(Refusal::FenceLapsed), "{fence:?}");
    }
    assert!(allowed.apply(claim(&allowed, "c", Some(2)), &agent(), bound, at(OPENED)).unwrap().applied());
}

#[test]
fn a_live_process_has_no_fence_to_claim_with() {
    let allowed = allowed(&runtime_bound());
    let claimed = next(&allowed, claim(&allowed, "c", Some(7)), &agent());
    assert_eq!(claimed.claim().unwrap().fence, None);
    assert!(!apply(&claimed, claim(&claimed, "c", Some(8)), &agent(), OPENED).unwrap().applied());
}

#[test]
fn a_claim_whose_holder_is_gone_is_unknown_until_its_holder_says_more() {
    let allowed = allowed(&run_bound());
    let held = Bound::Run { fence: Fence(1), held: true };
    let claimed = allowed.apply(claim(&allowed, "c", Some(1)), &agent(), held, at(OPENED)).unwrap().approval;
    assert_eq!(claimed.reconcile(held, at(OPENED)), None);
    for gone in [
        Bound::Run { fence: Fence(1), held: false },
        Bound::Run { fence: Fence(2), held: true },
        Bound::RunEnded,
    ] {
        let unknown = claimed.reconcile(gone, at(OPENED)).unwrap().approval;
        assert_eq!(unknown.claim().unwrap().receipt.as_ref().unwrap().outcome, Outcome::Unknown);
        assert_eq!(unknown.reconcile(gone, at(OPENED)), None, "it is said once");
        let late = unknown.apply(settle("c", Outcome::Failed), &agent(), gone, at(OPENED)).unwrap().approval;
        let contradicted = late.apply(settle("c", Outcome::Succeeded), &agent(), gone, at(OPENED));
        assert_eq!(contradicted, Err(Refusal::AlreadySettled));
    }
}

#[test]
fn the_next_holder_of_a_run_takes_over_a_claim_that_nobody_acted_on() {
    let allowed = allowed(&run_bound());
    let (first, second) =
        (Bound::Run { fence: Fence(1), held: true }, Bound::Run { fence: Fence(2), held: true });
    let claimed = allowed.apply(claim(&allowed, "c", Some(1)), &agent(), first, at(OPENED)).unwrap().approval;
    let taken = claimed.apply(claim(&claimed, "c", Some(2)), &agent(), second, at(OPENED)).unwrap();
    assert_eq!(taken.events, [Event::ClaimTaken]);
    assert_eq!(taken.approval.claim().unwrap().fence, Some(Fence(2)));
    let stale = taken.approval.apply(claim(&claimed, "c", Some(1)), &agent(), second, at(OPENED));
    assert_eq!(stale, Err(Refusal::FenceLapsed));
    let other = taken.approval.apply(claim(&claimed, "d", Some(2)), &agent(), second, at(OPENED));
    assert_eq!(other, Err(Refusal::AlreadyClaimed));
}

#[test]
fn content_is_kept_for_a_stored_run_and_shown_to_who_decides() {
    assert_eq!(runtime_bound().content, None);
    let stored = run_bound();
    assert!(stored.content_for(&admin("root")).is_some());
    assert!(stored.content_for(&device("phone", "alice")).is_some());
    assert_eq!(stored.content_for(&agent()), None);
    assert_eq!(stored.content_for(&runtime("host")), None, "a runtime answers without reading");
}

#[test]
fn a_live_process_may_choose_its_requests_id_and_a_stored_run_may_not() {
    let chosen: ApprovalId = " exec:1 ".parse().unwrap();
    let open = |binding| {
        let draft = Draft { id: Some(chosen.clone()), ..draft(binding) };
        Approval::open(draft, &agent(), Vec::new(), at(OPENED)).approval
    };
    assert_eq!(open(of_process()).id, chosen);
    assert_eq!(open(of_run()).id, run_bound().id);
    assert_ne!(open(of_run()).id, chosen);
}

#[test]
fn callers_of_one_epoch_do_not_share_ids() {
    let other = asked(of_process(), needs(1, 1), &principal("other-agent", PrincipalKind::Agent));
    assert_ne!(other.id, runtime_bound().id);
    assert_eq!(asked(of_process(), needs(1, 1), &agent()).id, runtime_bound().id);
}

#[test]
fn what_sees_a_request_is_frozen_when_it_is_opened() {
    let audience = vec!["agent:a:child".to_owned(), "agent:a:root".to_owned()];
    let opened = Approval::open(draft(of_process()), &agent(), audience.clone(), at(OPENED));
    assert_eq!(
        (&opened.approval.audience, opened.events.as_slice()),
        (&audience, [Event::Opened].as_slice())
    );
    assert_eq!(allowed(&opened.approval).audience, audience);
}

#[test]
fn an_allow_that_was_taken_back_is_never_claimed_and_one_that_was_claimed_is_never_taken_back() {
    let allowed = allowed(&runtime_bound());
    let why = Some("wrong host".to_owned());
    let back =
        apply(&allowed, Command::Revoke { reason: why.clone() }, &device("phone", "alice"), OPENED + 7);
    let back = back.unwrap();
    assert_eq!(back.events, [Event::Revoked]);
    let revocation = back.approval.revocation().unwrap();
    assert_eq!((revocation.at, &revocation.reason), (at(OPENED + 7), &why));
    assert_eq!((back.approval.status(), back.approval.end()), (Status::Allowed, allowed.end()));
    let spent = apply(&back.approval, claim(&allowed, "c", None), &agent(), OPENED + 8);
    assert_eq!(spent, Err(Refusal::Revoked));
    let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
    for command in [revoke(), Command::Revoke { reason: why }] {
        assert_eq!(apply(&claimed, command, &admin("root"), OPENED), Err(Refusal::AlreadyClaimed));
    }
    assert_eq!(apply(&claimed, withdraw(), &agent(), OPENED), Err(Refusal::AlreadyDecided));
}

#[test]
fn calling_off_what_was_allowed_takes_the_allow_back() {
    let allowed = allowed(&runtime_bound());
    let change = apply(&allowed, withdraw(), &agent(), OPENED + 1).unwrap();
    assert_eq!(change.events, [Event::Revoked]);
    assert_eq!(change.approval.revocation().unwrap().by, Actor::from(&agent()));
    assert_eq!(change.approval.end(), allowed.end(), "the answer is what it was");
    assert!(!apply(&change.approval, withdraw(), &agent(), OPENED + 2).unwrap().applied());
}

#[test]
fn a_malformed_verdict_denies_at_once_but_the_deadline_comes_first() {
    let pending = asked(of_process(), needs(2, 2), &agent());
    let host = runtime("host");
    let change = apply(&pending, Command::DenyMalformed, &host, LAST).unwrap();
    assert_eq!(
        (change.approval.status(), change.approval.decision()),
        (Status::Denied, Some(Decision::Deny))
    );
    assert_eq!(change.approval.end().unwrap().reason, TerminalReason::MalformedVerdict);
    assert_eq!(apply(&pending, Command::DenyMalformed, &host, DEADLINE), Err(Refusal::Expired));
    let allowed = allowed(&runtime_bound());
    assert_eq!(apply(&allowed, Command::DenyMalformed, &host, OPENED), Err(Refusal::AlreadyDecided));
    for person in [admin("root"), device("phone", "alice")] {
        let refused = apply(&pending, Command::DenyMalformed, &person, OPENED);
        assert_eq!(refused, Err(Refusal::NotAReviewer), "a person's bug is refused and denies nothing");
    }
}

#[test]
fn silence_denies_exactly_at_the_deadline_and_not_before() {
    let (pending, authority) = (runtime_bound(), Principal::authority());
    assert_eq!(apply(&pending, Command::Expire, &authority, LAST), Err(Refusal::NotAllowed));
    assert_eq!(pending.reconcile(Bound::Live, at(LAST)), None);
    let change = apply(&pending, Command::Expire, &authority, DEADLINE).unwrap();
    assert_eq!(change.approval.decision(), Some(Decision::Deny));
    assert_eq!(pending.reconcile(Bound::Live, at(DEADLINE)), Some(change));
}

#[test]
fn the_deadline_comes_before_everything_that_happened_after_it() {
    let pending = runtime_bound();
    for (bound, reason) in GONE {
        let change = pending.reconcile(bound, at(DEADLINE)).unwrap();
        assert_eq!(change.approval.end().unwrap().reason, TerminalReason::Timeout);
        let late = pending.apply(Command::Cancel { reason }, &Principal::authority(), bound, at(DEADLINE));
        assert_eq!(late, Err(Refusal::Expired), "{reason:?}: whoever comes first, it expired");
    }
}

#[test]
fn every_terminal_reason_but_a_corrupt_row_is_reached_by_a_command() {
    let (pending, authority) = (runtime_bound(), Principal::authority());
    let gone = GONE.map(|(bound, _)| pending.reconcile(bound, at(OPENED)).unwrap().approval);
    let ended = [
        allowed(&pending),
        next(&pending, vote(&pending, Decision::Deny), &admin("root")),
        next(&pending, Command::DenyMalformed, &runtime("host")),
        next(&pending, Command::DenyUnrouted, &authority),
        pending.reconcile(Bound::Live, at(DEADLINE)).unwrap().approval,
        next(&pending, withdraw(), &agent()),
    ];
    let reached: Vec<TerminalReason> =
        ended.iter().chain(&gone).map(|approval| approval.end().unwrap().reason).collect();
    for reason in TerminalReason::ALL {
        // What cannot be read cannot be commanded: the store says so.
        let is_stores = reason == TerminalReason::StorageCorrupt;
        assert_eq!(reached.contains(&reason), !is_stores, "{}", reason.as_str());
    }
    for approval in ended.iter().chain(&gone).filter(|approval| approval.status() != Status::Allowed) {
        assert_eq!(approval.decision(), Some(Decision::Deny));
    }
}
