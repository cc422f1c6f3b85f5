//! A small model, checked to the end: every order in which a few people, a requester and the clock can act. The search
//! stops when no step leads to a new state, so that orders of any length are covered.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::*;

/// The record, and what the steps that led to it have shown. The second is counted apart from the record.
#[derive(Clone)]
struct State {
    approval: Approval,
    is_late: bool,
    /// What each person has said, by the rules of voting and not by the record.
    said: BTreeMap<&'static str, Decision>,
    claims: u32,
    revocations: u32,
}

impl State {
    fn now(&self) -> i64 {
        if self.is_late { DEADLINE } else { OPENED + 1 }
    }

    /// Two states with the same key go on alike.
    fn key(&self) -> String {
        let Self { approval, is_late, said, claims, revocations } = self;
        format!("{:?} {:?} {is_late} {said:?} {claims} {revocations}", approval.votes, approval.phase)
    }

    fn said(&self, decision: Decision) -> usize {
        self.said.values().filter(|said| **said == decision).count()
    }
}

/// One step: a name, who acts for which person, and the command. `None` lets the deadline pass.
type Step = (&'static str, Option<(&'static str, Principal, Command)>);

fn steps(approval: &Approval, requester: &Principal) -> Vec<Step> {
    let phone = device("phone", "alice");
    let laptop = device("laptop", "alice");
    let tablet = device("tablet", "bob");
    let by = |person, by: &Principal, command| Some((person, by.clone(), command));
    let (allow, deny) = (vote(approval, Decision::AllowOnce), vote(approval, Decision::Deny));
    vec![
        ("alice allows on her phone", by("alice", &phone, allow.clone())),
        ("alice denies on her phone", by("alice", &phone, deny.clone())),
        ("alice allows on her laptop", by("alice", &laptop, allow.clone())),
        ("alice denies on her laptop", by("alice", &laptop, deny.clone())),
        ("bob allows", by("bob", &tablet, allow)),
        ("bob denies", by("bob", &tablet, deny)),
        ("bob takes the allow back", by("bob", &tablet, revoke())),
        ("the requester calls it off", by("", requester, withdraw())),
        ("the requester claims", by("", requester, claim(approval, "c", None))),
        ("the requester claims under another name", by("", requester, claim(approval, "d", None))),
        ("the requester says it went well", by("", requester, settle("c", Outcome::Succeeded))),
        ("the requester says it failed", by("", requester, settle("c", Outcome::Failed))),
        ("a verdict is malformed", by("", &runtime("host"), Command::DenyMalformed)),
        ("the authority expires it", by("", &Principal::authority(), Command::Expire)),
        ("the deadline passes", None),
    ]
}

fn step(before: &State, (name, acts): &Step) -> State {
    let mut after = before.clone();
    let Some((person, by, command)) = acts else {
        after.is_late = true;
        return after;
    };
    let result = apply(&before.approval, command.clone(), by, before.now());
    let Ok(change) = result else {
        return after;
    };
    if let (Command::Vote { decision, .. }, true) = (command, change.applied()) {
        let earlier = after.said.insert(person, *decision);
        assert!(
            matches!((earlier, decision), (None, _) | (Some(Decision::AllowOnce), Decision::Deny)),
            "{name}: {earlier:?} cannot become {decision:?}"
        );
    }
    after.claims += u32::from(change.events.contains(&Event::Claimed));
    after.revocations += u32::from(change.events.contains(&Event::Revoked));
    let again = apply(&change.approval, command.clone(), by, before.now()).unwrap();
    assert!(!again.applied(), "{name}: the same again is the same answer");
    after.approval = change.approval;
    after
}

fn check(before: &State, after: &State, (name, _): &Step) {
    let approval = &after.approval;
    let requirement = &approval.requirement;
    let (allows, denies) = (after.said(Decision::AllowOnce), after.said(Decision::Deny));
    let enough = allows >= requirement.approvals as usize;
    let too_many = denies >= requirement.denials as usize;
    if let Some(end) = before.approval.end() {
        assert_eq!(approval.end(), Some(end), "{name}");
        assert_eq!(
            (approval.status(), approval.decision()),
            (before.approval.status(), before.approval.decision())
        );
        assert_eq!(approval.votes, before.approval.votes, "{name}: nothing is said after the end");
    }
    match (&approval.phase, approval.end().map(|end| end.reason)) {
        (Phase::Pending, _) => {
            assert!(!enough && !too_many, "{name}: it ends with the answer that completes it")
        }
        (Phase::Allowed { end, .. }, _) => {
            assert!(enough && !too_many, "{name}: {allows} allow, {denies} deny");
            assert!(matches!(end.by.kind, PrincipalKind::Device), "{name}");
        }
        (Phase::Denied(_), Some(TerminalReason::User)) => assert!(too_many, "{name}"),
        (Phase::Expired(end), _) => assert!(end.at >= approval.expires_at && !enough && !too_many, "{name}"),
        (Phase::Denied(_) | Phase::Cancelled(_), _) => assert!(!enough && !too_many, "{name}"),
    }
    if let (None, Some(end)) = (before.approval.end(), approval.end()) {
        let in_time = end.at < approval.expires_at;
        assert!(
            in_time || end.reason == TerminalReason::Timeout,
            "{name}: after the deadline it only expires"
        );
    }
    assert!(
        after.claims + after.revocations <= 1,
        "{name}: an allow is spent once, or taken back, never both"
    );
    assert_eq!(after.claims == 1, approval.claim().is_some(), "{name}");
    assert_eq!(after.revocations == 1, approval.revocation().is_some(), "{name}");
    assert_eq!(approval.votes.len(), after.said.len(), "{name}: a person is one voice");
    for vote in &approval.votes {
        assert!(requirement.requester_may_decide || !vote.voter.is_same_voice(&approval.requester), "{name}");
    }
}

/// Where a state stands, in a word, so that a model that never gets anywhere is noticed.
fn place(approval: &Approval) -> &'static str {
    match &approval.phase {
        Phase::Allowed { spent: Use::Claimed(Claim { receipt: Some(_), .. }), .. } => "settled",
        Phase::Allowed { spent: Use::Claimed(_), .. } => "claimed",
        Phase::Allowed { spent: Use::Revoked(_), .. } => "revoked",
        _ => approval.status().as_str(),
    }
}

/// Goes, breadth first, through every state that can be reached, and tells where they stand.
fn explore(opened: Approval, requester: &Principal) -> HashSet<&'static str> {
    let steps = steps(&opened, requester);
    let first = State { approval: opened, is_late: false, said: BTreeMap::new(), claims: 0, revocations: 0 };
    let mut seen = HashSet::from([first.key()]);
    let mut places = HashSet::new();
    let mut queue = VecDeque::from([first]);
    while let Some(before) = queue.pop_front() {
        places.insert(place(&before.approval));
        for each in &steps {
            let after = step(&before, each);
            check(&before, &after, each);
            if seen.insert(after.key()) {
                queue.push_back(after);
            }
        }
        if before.approval.end().is_none() {
            let silent = before.approval.reconcile(Bound::Live, at(DEADLINE));
            assert!(silent.is_some(), "whatever was said so far, silence ends it");
        }
    }
    places
}

#[test]
fn every_order_of_answers_claims_and_revocations_keeps_the_invariants() {
    for (approvals, denials) in [(1, 1), (2, 1), (2, 2)] {
        let places = explore(asked(of_process(), needs(approvals, denials), &agent()), &agent());
        for place in ["pending", "allowed", "claimed", "settled", "revoked", "denied", "expired", "cancelled"]
        {
            assert!(places.contains(place), "({approvals}, {denials}) never is {place}");
        }
    }
}

#[test]
fn every_order_keeps_the_invariants_when_a_person_asked() {
    let phone = device("phone", "alice");
    for (approvals, denials, may_decide) in
        [(1, 1, true), (2, 1, true), (2, 2, true), (1, 1, false), (2, 2, false)]
    {
        let requirement = Requirement { requester_may_decide: may_decide, ..needs(approvals, denials) };
        let places = explore(asked(of_process(), requirement, &phone), &phone);
        // Bob alone cannot fulfil what takes two when alice, who asked, may not help.
        let can_be_allowed = may_decide || approvals == 1;
        assert_eq!(places.contains("settled"), can_be_allowed, "({approvals}, {denials}, {may_decide})");
    }
}
