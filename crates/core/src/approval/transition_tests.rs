//! Tables and properties of the state machine: phase x command x principal x time.

use proptest::prelude::*;

use super::transition::{Bound, Change, Command};
use super::*;
use crate::presentation::present;

const OPENED: i64 = 1_000;
const TIMEOUT: i64 = 500;

fn principal(id: &str, kind: PrincipalKind) -> Principal {
    Principal { id: id.parse().unwrap(), kind, label: id.to_owned() }
}

fn person(id: &str) -> Principal {
    principal(id, PrincipalKind::Administrator)
}

fn agent() -> Principal {
    principal("agent", PrincipalKind::Agent)
}

fn at(ms: i64) -> Time {
    Time::from_ms(ms)
}

fn draft(binding: Binding) -> Draft {
    let content = Canonical::parse(r#"{"argv":["true"]}"#).unwrap();
    Draft {
        presentation: present(Kind::Exec, &content.to_value()).unwrap(),
        action: Action::freeze(Kind::Exec, "call", content).unwrap(),
        reason: None,
        source: Source::default(),
        binding,
        requirement: Requirement::default(),
        timeout_ms: TIMEOUT,
    }
}

fn runtime_bound() -> Approval {
    let binding = Binding::Runtime("epoch".parse().unwrap());
    Approval::open(draft(binding), &agent(), at(OPENED)).approval
}

fn run_bound() -> Approval {
    let binding = Binding::Checkpoint("run".parse().unwrap());
    Approval::open(draft(binding), &agent(), at(OPENED)).approval
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

fn apply(approval: &Approval, command: Command, by: &Principal, now: i64) -> Result<Change, Refusal> {
    approval.apply(command, by, Bound::Live, at(now))
}

fn next(approval: &Approval, command: Command, by: &Principal) -> Approval {
    apply(approval, command, by, OPENED + 1).unwrap().approval
}

/// One approval in every phase that a live process can see it in.
fn phases() -> Vec<(&'static str, Approval)> {
    let pending = runtime_bound();
    let allowed = next(&pending, vote(&pending, Decision::AllowOnce), &person("p"));
    let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
    let expired =
        apply(&pending, Command::Expire, &Principal::authority(), OPENED + TIMEOUT).unwrap().approval;
    vec![
        ("pending", pending.clone()),
        ("allowed", allowed),
        ("claimed", claimed.clone()),
        ("settled", next(&claimed, settle("c", Outcome::Succeeded), &agent())),
        ("unknown", next(&claimed, settle("c", Outcome::Unknown), &Principal::authority())),
        ("denied", next(&pending, vote(&pending, Decision::Deny), &person("p"))),
        ("expired", expired),
        ("cancelled", next(&pending, Command::Cancel { reason: TerminalReason::Withdrawn }, &agent())),
    ]
}

/// What came of a command: "=" nothing new, a phase's name, or a refusal's code.
fn outcome(result: Result<Change, Refusal>) -> String {
    match result {
        Err(refusal) => refusal.code().to_owned(),
        Ok(change) if !change.applied() => "=".to_owned(),
        Ok(change) => match change.approval.claim() {
            Some(Claim { receipt: Some(receipt), .. }) => receipt.outcome.as_str().to_owned(),
            Some(_) => "claimed".to_owned(),
            None => change.approval.status().as_str().to_owned(),
        },
    }
}

#[test]
fn every_command_in_every_phase_has_its_answer() {
    // Rows are phases; columns are: a person's allow, a person's deny, the requester's withdrawal, the
    // requester's claim c, its claim d, its receipt for c, and the deadline (one millisecond before, and at it).
    let table = "
        pending   allowed         denied          cancelled       not_allowed not_allowed     not_claimed     not_allowed     expired
        allowed   =               already_decided already_decided claimed     claimed         not_claimed     already_decided already_decided
        claimed   =               already_decided already_decided =           already_claimed succeeded       already_decided already_decided
        settled   =               already_decided already_decided =           already_claimed =               already_decided already_decided
        unknown   =               already_decided already_decided =           already_claimed succeeded       already_decided already_decided
        denied    already_decided =               already_decided not_allowed not_allowed     not_claimed     already_decided already_decided
        expired   expired         expired         expired         not_allowed not_allowed     not_claimed     =               =
        cancelled cancelled       cancelled       =               not_allowed not_allowed     not_claimed     cancelled       cancelled";
    let phases = phases();
    let mut rows = 0;
    for row in table.lines().filter(|row| !row.trim().is_empty()) {
        let mut cells = row.split_whitespace();
        let name = cells.next().unwrap();
        let (_, approval) = phases.iter().find(|(phase, _)| *phase == name).unwrap();
        let (person, agent, authority) = (person("q"), agent(), Principal::authority());
        let last = OPENED + TIMEOUT - 1;
        let actual = [
            apply(approval, vote(approval, Decision::AllowOnce), &person, last),
            apply(approval, vote(approval, Decision::Deny), &person, last),
            apply(approval, Command::Cancel { reason: TerminalReason::Withdrawn }, &agent, last),
            apply(approval, claim(approval, "c", None), &agent, last),
            apply(approval, claim(approval, "d", None), &agent, last),
            apply(approval, settle("c", Outcome::Succeeded), &agent, last),
            apply(approval, Command::Expire, &authority, last),
            apply(approval, Command::Expire, &authority, last + 1),
        ];
        assert_eq!(actual.map(outcome).to_vec(), cells.collect::<Vec<_>>(), "{name}");
        rows += 1;
    }
    assert_eq!(rows, phases.len());
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
fn a_person_never_decides_their_own_request() {
    let requester = person("p");
    let approval =
        Approval::open(draft(Binding::Runtime("e".parse().unwrap())), &requester, at(OPENED)).approval;
    assert_eq!(
        apply(&approval, vote(&approval, Decision::AllowOnce), &requester, OPENED),
        Err(Refusal::NotAReviewer)
    );
    assert!(apply(&approval, vote(&approval, Decision::AllowOnce), &person("q"), OPENED).is_ok());
}

#[test]
fn the_authority_decides_nothing_that_a_person_decides() {
    let pending = runtime_bound();
    let by = Principal::authority();
    assert_eq!(apply(&pending, vote(&pending, Decision::AllowOnce), &by, OPENED), Err(Refusal::NotAReviewer));
    assert_eq!(apply(&pending, Command::Expire, &person("p"), OPENED + TIMEOUT), Err(Refusal::NotAReviewer));
}

#[test]
fn only_the_requester_claims_and_settles() {
    let pending = runtime_bound();
    let allowed = next(&pending, vote(&pending, Decision::AllowOnce), &person("p"));
    assert_eq!(
        apply(&allowed, claim(&allowed, "c", None), &person("p"), OPENED),
        Err(Refusal::NotTheRequester)
    );
    let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
    let foreign = apply(&claimed, settle("c", Outcome::Succeeded), &person("p"), OPENED);
    assert_eq!(foreign, Err(Refusal::NotTheRequester));
    assert_eq!(apply(&claimed, settle("d", Outcome::Succeeded), &agent(), OPENED), Err(Refusal::NotClaimed));
}

#[test]
fn another_digest_is_stale_in_every_phase() {
    for (name, approval) in phases() {
        let digest = Digest::of(b"something else");
        let vote = Command::Vote { decision: Decision::Deny, digest, reason: None };
        assert_eq!(apply(&approval, vote, &person("q"), OPENED), Err(Refusal::StaleDigest), "{name}");
        let claim = Command::Claim { claim_id: "c".parse().unwrap(), digest, fence: None };
        assert_eq!(apply(&approval, claim, &agent(), OPENED), Err(Refusal::StaleDigest), "{name}");
    }
}

#[test]
fn an_answer_exactly_at_the_deadline_is_too_late() {
    let pending = runtime_bound();
    for decision in [Decision::AllowOnce, Decision::Deny] {
        let late = apply(&pending, vote(&pending, decision), &person("p"), OPENED + TIMEOUT);
        assert_eq!(late, Err(Refusal::Expired));
        assert!(apply(&pending, vote(&pending, decision), &person("p"), OPENED + TIMEOUT - 1).is_ok());
    }
}

#[test]
fn only_an_offered_answer_counts_and_with_a_reason_where_one_is_asked() {
    let mut pending = runtime_bound();
    let always = apply(&pending, vote(&pending, Decision::AllowAlways), &person("p"), OPENED);
    assert_eq!(always, Err(Refusal::DecisionNotOffered));
    pending.requirement.reason_required = true;
    let bare = apply(&pending, vote(&pending, Decision::Deny), &person("p"), OPENED);
    assert_eq!(bare, Err(Refusal::ReasonRequired));
    let command = Command::Vote {
        decision: Decision::Deny,
        digest: pending.digest,
        reason: Some("not on a Friday".to_owned()),
    };
    let denied = next(&pending, command, &person("p"));
    assert_eq!(denied.votes[0].reason.as_deref(), Some("not on a Friday"));
}

#[test]
fn a_request_ends_with_the_process_that_asked() {
    let pending = runtime_bound();
    for (bound, reason) in [
        (Bound::GatewayGone, TerminalReason::GatewayRestart),
        (Bound::CallerGone, TerminalReason::CallerLost),
    ] {
        let change = pending.reconcile(bound, at(OPENED)).unwrap();
        assert_eq!(change.approval.status(), Status::Cancelled);
        assert_eq!(change.approval.end().unwrap().reason, reason);
        let late = pending.apply(vote(&pending, Decision::AllowOnce), &person("p"), bound, at(OPENED));
        assert_eq!(late, Err(Refusal::Cancelled));
    }
    assert_eq!(pending.reconcile(Bound::Live, at(OPENED)), None);
    assert_eq!(run_bound().reconcile(Bound::Run { fence: Fence(9), held: false }, at(OPENED)), None);
}

#[test]
fn an_allow_of_a_dead_process_cannot_be_claimed_but_a_claim_stays_answered() {
    let pending = runtime_bound();
    let allowed = next(&pending, vote(&pending, Decision::AllowOnce), &person("p"));
    for bound in [Bound::GatewayGone, Bound::CallerGone] {
        let spent = allowed.apply(claim(&allowed, "c", None), &agent(), bound, at(OPENED));
        assert_eq!(spent, Err(Refusal::EpochLapsed));
        let claimed = next(&allowed, claim(&allowed, "c", None), &agent());
        let again = claimed.apply(claim(&claimed, "c", None), &agent(), bound, at(OPENED)).unwrap();
        assert!(!again.applied());
    }
}

#[test]
fn a_stored_run_claims_with_its_current_fence_only() {
    let pending = run_bound();
    let allowed = next(&pending, vote(&pending, Decision::AllowOnce), &person("p"));
    let bound = Bound::Run { fence: Fence(2), held: true };
    for fence in [None, Some(1), Some(3)] {
        let stale = allowed.apply(claim(&allowed, "c", fence), &agent(), bound, at(OPENED));
        assert_eq!(stale, Err(Refusal::FenceLapsed), "{fence:?}");
    }
    assert!(allowed.apply(claim(&allowed, "c", Some(2)), &agent(), bound, at(OPENED)).unwrap().applied());
}

#[test]
fn a_claim_whose_holder_is_gone_is_unknown_until_its_holder_says_more() {
    let pending = run_bound();
    let allowed = next(&pending, vote(&pending, Decision::AllowOnce), &person("p"));
    let held = Bound::Run { fence: Fence(1), held: true };
    let claimed = allowed.apply(claim(&allowed, "c", Some(1)), &agent(), held, at(OPENED)).unwrap().approval;
    assert_eq!(claimed.reconcile(held, at(OPENED)), None);
    for gone in [Bound::Run { fence: Fence(1), held: false }, Bound::Run { fence: Fence(2), held: true }] {
        let unknown = claimed.reconcile(gone, at(OPENED)).unwrap().approval;
        assert_eq!(unknown.claim().unwrap().receipt.as_ref().unwrap().outcome, Outcome::Unknown);
        let late = unknown.apply(settle("c", Outcome::Failed), &agent(), gone, at(OPENED)).unwrap().approval;
        let contradicted = late.apply(settle("c", Outcome::Succeeded), &agent(), gone, at(OPENED));
        assert_eq!(contradicted, Err(Refusal::AlreadySettled));
    }
}

#[test]
fn the_next_holder_of_a_run_takes_over_a_claim_that_nobody_acted_on() {
    let pending = run_bound();
    let allowed = next(&pending, vote(&pending, Decision::AllowOnce), &person("p"));
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
    assert!(stored.content_for(&person("p")).is_some());
    assert_eq!(stored.content_for(&agent()), None);
}

fn any_command() -> impl Strategy<Value = (u8, bool, u8)> {
    (0u8..9, any::<bool>(), 0u8..3)
}

proptest! {
    #[test]
    fn whatever_is_tried_a_terminal_answer_stands_and_an_allow_is_spent_once(
        steps in proptest::collection::vec((any_command(), 0i64..120, 0u8..3), 1..40)
    ) {
        let mut approval = run_bound();
        let mut now = OPENED;
        let mut first_end: Option<(End, Option<Decision>)> = None;
        let mut first_claim: Option<ClaimId> = None;
        for ((what, stale, who), pause, world) in steps {
            now += pause;
            let bound = [
                Bound::Run { fence: Fence(1), held: true },
                Bound::Run { fence: Fence(2), held: true },
                Bound::Run { fence: Fence(2), held: false },
            ][usize::from(world)];
            let by = [person("p"), agent(), Principal::authority()][usize::from(who)].clone();
            let digest = if stale { Digest::of(b"x") } else { approval.digest };
            let command = match what {
                0 => Command::Vote { decision: Decision::AllowOnce, digest, reason: None },
                1 => Command::Vote { decision: Decision::Deny, digest, reason: None },
                2 => Command::Vote { decision: Decision::AllowAlways, digest, reason: None },
                3 => Command::Expire,
                4 => Command::Cancel { reason: TerminalReason::Withdrawn },
                5 => Command::Claim { claim_id: "c".parse().unwrap(), digest, fence: Some(Fence(1)) },
                6 => Command::Claim { claim_id: "d".parse().unwrap(), digest, fence: Some(Fence(2)) },
                7 => settle("c", Outcome::Succeeded),
                _ => settle("d", Outcome::Failed),
            };
            if let Some(change) = approval.reconcile(bound, at(now)) {
                approval = change.approval;
            }
            let is_vote = matches!(command, Command::Vote { .. });
            let result = approval.apply(command, &by, bound, at(now));
            if let Ok(change) = result {
                if is_vote {
                    prop_assert!(by.may_review(), "only people vote");
                    prop_assert!(!stale, "a stale digest decides nothing");
                }
                approval = change.approval;
            }
            if let Some((end, decision)) = &first_end {
                prop_assert_eq!(approval.end(), Some(end));
                prop_assert_eq!(&approval.decision(), decision);
            } else if let Some(end) = approval.end() {
                prop_assert!(end.reason == TerminalReason::Timeout || now < OPENED + TIMEOUT, "no answer after the deadline");
                first_end = Some((end.clone(), approval.decision()));
            }
            if let Some(claim) = approval.claim() {
                prop_assert_eq!(approval.status(), Status::Allowed);
                prop_assert_eq!(first_claim.get_or_insert(claim.id.clone()), &claim.id);
            } else {
                prop_assert!(first_claim.is_none(), "a claim never goes away");
            }
        }
    }
}
