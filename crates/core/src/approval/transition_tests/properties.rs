//! Properties of the state machine: what holds whatever is tried, by whomever, in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Everybody who tries something. The first asks.
fn everybody() -> Vec<Principal> {
    vec![
        agent(),
        device("phone", "alice"),
        device("laptop", "alice"),
        device("tablet", "bob"),
        device("desk", "carol"),
        device("narrow", "dan").narrowed(Scopes::REQUEST),
        admin("root"),
        principal("other-agent", PrincipalKind::Agent),
        Principal { scopes: Scopes::ALL, ..principal("greedy-agent", PrincipalKind::Agent) },
        runtime("host"),
        Principal { range: Some("other-agent".parse().unwrap()), ..runtime("stray") },
        Principal::authority(),
    ]
}

#[derive(Clone, Debug)]
struct Setup {
    requester: usize,
    is_stored: bool,
    requirement: Requirement,
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let lists = prop_oneof![
        Just(Vec::new()),
        Just(vec![list(&["person:alice", "person:bob"])]),
        Just(vec![list(&["person:alice", "person:bob"]), list(&["device:laptop", "device:tablet"])]),
    ];
    let offered = prop_oneof![
        Just(vec![Decision::AllowOnce, Decision::Deny]),
        Just(vec![Decision::AllowOnce, Decision::AllowAlways, Decision::Deny]),
    ];
    let requester = prop_oneof![3 => Just(0usize), 2 => Just(1usize), 1 => Just(6usize), 1 => Just(9usize)];
    (requester, any::<bool>(), 1u32..4, 1u32..4, any::<bool>(), lists, offered).prop_map(
        |(requester, is_stored, approvals, denials, may_decide, reviewers, allowed_decisions)| Setup {
            requester,
            is_stored,
            requirement: Requirement {
                approvals,
                denials,
                requester_may_decide: may_decide,
                reason_required: false,
                allowed_decisions,
                reviewers,
            },
        },
    )
}

/// From this number on a step claims or settles.
const CLAIMS: u8 = 13;

#[derive(Clone, Debug)]
struct Step {
    what: u8,
    who: usize,
    is_requester: bool,
    is_stale: bool,
    pause: i64,
    world: usize,
}

fn any_step() -> impl Strategy<Value = Step> {
    let stale = proptest::bool::weighted(0.1);
    let who = 0..everybody().len();
    let world = prop_oneof![6 => Just(0usize), 1 => 1usize..4];
    let is_requester = proptest::bool::weighted(0.8);
    (0u8..18, who, is_requester, stale, 0i64..40, world).prop_map(
        |(what, who, is_requester, is_stale, pause, world)| Step {
            what,
            who,
            is_requester,
            is_stale,
            pause,
            world,
        },
    )
}

/// Who takes a step: mostly the requester, where only the requester can claim and settle.
fn actor<'a>(step: &Step, everybody: &'a [Principal], requester: usize) -> &'a Principal {
    &everybody[if step.is_requester && step.what >= CLAIMS { requester } else { step.who }]
}

fn command(step: &Step, approval: &Approval) -> Command {
    let digest = if step.is_stale { Digest::of(b"x") } else { approval.digest };
    let claim =
        |id: &str, fence| Command::Claim { claim_id: id.parse().unwrap(), digest, fence: Some(Fence(fence)) };
    match step.what {
        0..=4 => Command::Vote { decision: Decision::AllowOnce, digest, reason: None },
        5 => Command::Vote { decision: Decision::AllowAlways, digest, reason: None },
        6 | 7 => Command::Vote { decision: Decision::Deny, digest, reason: None },
        8 => Command::Expire,
        9 => withdraw(),
        10 => Command::DenyMalformed,
        11 => Command::DenyUnrouted,
        12 => revoke(),
        CLAIMS => claim("c", 1),
        14 => claim("d", 2),
        15 => claim("c", 2),
        16 => settle("c", Outcome::Succeeded),
        _ => settle("d", Outcome::Failed),
    }
}

fn bound(step: &Step, is_stored: bool) -> Bound {
    let of_process = [Bound::Live, Bound::Live, Bound::GatewayGone, Bound::CallerGone];
    let of_run = [
        Bound::Run { fence: Fence(1), held: true },
        Bound::Run { fence: Fence(2), held: true },
        Bound::Run { fence: Fence(2), held: false },
        Bound::RunEnded,
    ];
    if is_stored { of_run[step.world] } else { of_process[step.world] }
}

/// A voice, told apart without the record's own rule: a person, or an identity that is nobody's.
fn voice(by: &Principal) -> String {
    by.person.as_ref().map_or_else(|| format!("nobody's {}", by.id), |person| format!("person {person}"))
}

/// What was seen on the way, counted apart from the record.
#[derive(Default)]
struct Seen {
    said: BTreeMap<String, Decision>,
    end: Option<(End, Status, Option<Decision>)>,
    claims: u32,
    revocations: u32,
    claim: Option<ClaimId>,
}

impl Seen {
    fn note(&mut self, command: &Command, by: &Principal, change: &Change) -> Result<(), TestCaseError> {
        if let (Command::Vote { decision, .. }, true) = (command, change.applied()) {
            let earlier = self.said.insert(voice(by), *decision);
            let turns = earlier.is_some_and(Decision::is_allow) && *decision == Decision::Deny;
            prop_assert!(earlier.is_none() || turns, "{earlier:?} cannot become {decision:?}");
        }
        if let Command::Claim { claim_id, .. } = command {
            prop_assert_eq!(change.approval.claim().map(|claim| &claim.id), Some(claim_id));
        }
        self.claims += u32::from(change.events.contains(&Event::Claimed));
        self.revocations += u32::from(change.events.contains(&Event::Revoked));
        Ok(())
    }

    fn check(&mut self, approval: &Approval, now: i64) -> Result<(), TestCaseError> {
        let allows = self.said.values().filter(|said| said.is_allow()).count();
        let denies = self.said.len() - allows;
        let (approvals, denials) =
            (approval.requirement.approvals as usize, approval.requirement.denials as usize);
        prop_assert_eq!(approval.votes.len(), self.said.len(), "a person is one voice");
        if let Some((end, status, decision)) = &self.end {
            prop_assert_eq!(approval.end(), Some(end));
            prop_assert_eq!((approval.status(), approval.decision()), (*status, *decision));
        } else if let Some(end) = approval.end() {
            let in_time = now < DEADLINE;
            prop_assert_eq!(
                in_time,
                end.reason != TerminalReason::Timeout,
                "late is expired, and nothing else is"
            );
            self.end = Some((end.clone(), approval.status(), approval.decision()));
        }
        match &approval.phase {
            Phase::Allowed { end, .. } => {
                prop_assert!(allows >= approvals && denies < denials, "{allows} allow, {denies} deny");
                prop_assert!(!matches!(end.by.kind, PrincipalKind::Agent | PrincipalKind::Authority));
            }
            Phase::Denied(end) if end.reason == TerminalReason::User => prop_assert!(denies >= denials),
            _ => prop_assert!(
                allows < approvals && denies < denials,
                "it ends with the vote that completes it"
            ),
        }
        prop_assert!(self.claims + self.revocations <= 1, "spent once, or taken back");
        prop_assert_eq!(self.claims == 1, approval.claim().is_some());
        prop_assert_eq!(self.revocations == 1, approval.revocation().is_some());
        if let Some(claim) = approval.claim() {
            prop_assert_eq!(approval.status(), Status::Allowed);
            prop_assert_eq!(self.claim.get_or_insert(claim.id.clone()), &claim.id);
        }
        Ok(())
    }
}

/// Who may be heard at all, said without the code that decides it.
fn may_be_heard(approval: &Approval, by: &Principal, decision: Decision) -> bool {
    let is_listed = approval.requirement.reviewers.iter().all(|list| list.admits(by));
    let is_own =
        by.id == approval.requester.id || by.person.is_some() && by.person == approval.requester.person;
    match by.kind {
        PrincipalKind::Agent | PrincipalKind::Authority => false,
        PrincipalKind::Runtime => !is_own && (is_listed || decision == Decision::Deny),
        _ if is_own && !approval.requirement.requester_may_decide => false,
        PrincipalKind::Administrator => true,
        PrincipalKind::Device => is_listed && by.scopes.contains(Scopes::APPROVALS),
    }
}

proptest! {
    #[test]
    fn whatever_is_tried_a_terminal_answer_stands_and_an_allow_is_spent_once(
        setup in any_setup(),
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        let everybody = everybody();
        let binding = if setup.is_stored { of_run() } else { of_process() };
        let mut approval = asked(binding, setup.requirement.clone(), &everybody[setup.requester]);
        let (mut now, mut seen) = (OPENED, Seen::default());
        for step in steps {
            now += step.pause;
            let (by, bound) = (actor(&step, &everybody, setup.requester), bound(&step, setup.is_stored));
            if let Some(change) = approval.reconcile(bound, at(now)) {
                approval = change.approval;
                seen.check(&approval, now)?;
            }
            let command = command(&step, &approval);
            if let Ok(change) = approval.apply(command.clone(), by, bound, at(now)) {
                if let Command::Vote { decision, .. } = command {
                    prop_assert!(may_be_heard(&approval, by, decision), "{} is not to be heard", by.id);
                    prop_assert!(!step.is_stale, "a stale digest decides nothing");
                }
                if !change.applied() {
                    prop_assert_eq!(&change.approval, &approval);
                }
                if change.events.contains(&Event::Claimed) {
                    prop_assert_eq!(&by.id, &approval.requester.id);
                    prop_assert!(matches!(bound, Bound::Live | Bound::Run { .. }), "nobody is there to act");
                }
                seen.note(&command, by, &change)?;
                let again = change.approval.apply(command, by, bound, at(now));
                prop_assert_eq!(again, Ok(Change { approval: change.approval.clone(), events: vec![] }));
                approval = change.approval;
            }
            seen.check(&approval, now)?;
        }
    }

    #[test]
    fn without_reconciling_first_nothing_late_or_unattended_is_allowed(
        setup in any_setup(),
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        let everybody = everybody();
        let binding = if setup.is_stored { of_run() } else { of_process() };
        let mut approval = asked(binding, setup.requirement.clone(), &everybody[setup.requester]);
        let mut now = OPENED;
        for step in steps {
            now += step.pause;
            let bound = bound(&step, setup.is_stored);
            let due = approval.reconcile(bound, at(now)).map(|change| change.approval.status());
            let before = approval.status();
            let by = actor(&step, &everybody, setup.requester);
            if let Ok(change) = approval.apply(command(&step, &approval), by, bound, at(now)) {
                approval = change.approval;
            }
            if let (Some(due), Status::Pending) = (due, before) {
                prop_assert!(approval.status() == Status::Pending || approval.status() == due);
            }
        }
    }
}
