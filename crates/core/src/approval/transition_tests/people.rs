//! Votes, quorums, lists and runtimes: whose answer counts, and how many it takes.

use super::*;

fn allow(approval: &Approval, by: &Principal) -> Result<Change, Refusal> {
    apply(approval, vote(approval, Decision::AllowOnce), by, OPENED + 1)
}

fn deny(approval: &Approval, by: &Principal) -> Result<Change, Refusal> {
    apply(approval, vote(approval, Decision::Deny), by, OPENED + 1)
}

#[test]
fn two_people_must_allow_where_two_are_asked() {
    let pending = asked(of_process(), needs(2, 1), &agent());
    let once = allow(&pending, &device("phone", "alice")).unwrap();
    assert_eq!(once.events, [Event::Voted { decision: Decision::AllowOnce }]);
    assert_eq!((once.approval.status(), once.approval.end()), (Status::Pending, None));
    assert_eq!(apply(&once.approval, claim(&pending, "c", None), &agent(), OPENED), Err(Refusal::NotAllowed));
    let twice = allow(&once.approval, &device("tablet", "bob")).unwrap();
    assert_eq!(twice.approval.end().unwrap().by, Actor::from(&device("tablet", "bob")));
    let resolved = Event::Resolved { status: Status::Allowed, reason: TerminalReason::User };
    assert_eq!(twice.events, [Event::Voted { decision: Decision::AllowOnce }, resolved]);
}

#[test]
fn votes_are_visible_while_the_request_is_pending() {
    let pending = asked(of_process(), needs(3, 2), &agent());
    let why = Some("checked the host".to_owned());
    let command =
        Command::Vote { decision: Decision::AllowOnce, digest: pending.digest, reason: why.clone() };
    let one = next(&pending, command, &device("phone", "alice"));
    let two = deny(&one, &device("tablet", "bob")).unwrap().approval;
    assert_eq!(two.status(), Status::Pending);
    let seen: Vec<_> = two.votes.iter().map(|given| (given.voter.label.as_str(), given.decision)).collect();
    assert_eq!(seen, [("phone", Decision::AllowOnce), ("tablet", Decision::Deny)]);
    assert_eq!(two.votes[0].reason, why);
}

#[test]
fn several_devices_of_a_person_are_one_voice() {
    let pending = asked(of_process(), needs(2, 2), &agent());
    let one = allow(&pending, &device("phone", "alice")).unwrap().approval;
    for other in ["laptop", "watch"] {
        assert!(!allow(&one, &device(other, "alice")).unwrap().applied(), "{other}");
    }
    let denied = deny(&pending, &device("phone", "alice")).unwrap().approval;
    assert!(!deny(&denied, &device("laptop", "alice")).unwrap().applied());
    assert_eq!(denied.status(), Status::Pending);
}

#[test]
fn a_device_that_changes_hands_is_no_second_voice() {
    let pending = asked(of_process(), needs(2, 2), &agent());
    let one = allow(&pending, &device("phone", "phone")).unwrap().approval;
    assert!(!allow(&one, &device("phone", "alice")).unwrap().applied());
}

#[test]
fn an_allow_becomes_a_deny_while_pending_and_never_back() {
    let pending = asked(of_process(), needs(2, 2), &agent());
    let allowed = allow(&pending, &device("phone", "alice")).unwrap().approval;
    let turned = deny(&allowed, &device("laptop", "alice")).unwrap();
    assert!(turned.applied());
    assert_eq!(turned.approval.votes.len(), 1, "the answer is replaced, not added");
    assert_eq!(turned.approval.votes[0].decision, Decision::Deny);
    assert_eq!(allow(&turned.approval, &device("phone", "alice")), Err(Refusal::AlreadyVoted));
    let ended = deny(&turned.approval, &device("tablet", "bob")).unwrap().approval;
    assert_eq!(ended.status(), Status::Denied);
}

#[test]
fn one_allow_does_not_become_another() {
    let offered = vec![Decision::AllowOnce, Decision::AllowAlways, Decision::Deny];
    let pending = asked(of_process(), Requirement { allowed_decisions: offered, ..needs(2, 1) }, &agent());
    for (first, second) in
        [(Decision::AllowOnce, Decision::AllowAlways), (Decision::AllowAlways, Decision::AllowOnce)]
    {
        let one = next(&pending, vote(&pending, first), &device("phone", "alice"));
        let other = apply(&one, vote(&one, second), &device("laptop", "alice"), OPENED + 1);
        assert_eq!(other, Err(Refusal::AlreadyVoted));
    }
}

#[test]
fn one_deny_ends_it_unless_more_are_asked() {
    let alice = device("phone", "alice");
    let strict = asked(of_process(), needs(2, 1), &agent());
    assert_eq!(deny(&strict, &alice).unwrap().approval.status(), Status::Denied);
    let lenient = asked(of_process(), needs(1, 2), &agent());
    let one = deny(&lenient, &alice).unwrap().approval;
    assert_eq!(one.status(), Status::Pending);
    assert_eq!(allow(&one, &device("tablet", "bob")).unwrap().approval.status(), Status::Allowed);
}

#[test]
fn a_requirement_of_nobody_is_one_of_somebody() {
    let mut pending = asked(of_process(), needs(1, 2), &agent());
    pending.requirement.approvals = 0;
    let denied = deny(&pending, &device("phone", "alice")).unwrap().approval;
    assert_eq!(denied.status(), Status::Pending, "a deny allows nothing, whatever a stored record says");
}

#[test]
fn what_everybody_allowed_is_what_is_allowed() {
    let offered = vec![Decision::AllowOnce, Decision::AllowAlways, Decision::Deny];
    let requirement = Requirement { allowed_decisions: offered, ..needs(2, 1) };
    let pending = asked(of_process(), requirement, &agent());
    let (alice, bob) = (device("phone", "alice"), device("tablet", "bob"));
    for (first, second, both) in [
        (Decision::AllowAlways, Decision::AllowAlways, Decision::AllowAlways),
        (Decision::AllowAlways, Decision::AllowOnce, Decision::AllowOnce),
        (Decision::AllowOnce, Decision::AllowAlways, Decision::AllowOnce),
    ] {
        let one = next(&pending, vote(&pending, first), &alice);
        let two = next(&one, vote(&one, second), &bob);
        assert_eq!(two.decision(), Some(both));
        for (by, own) in [(&alice, first), (&bob, second)] {
            let again = apply(&two, vote(&two, own), by, OPENED + 2).unwrap();
            assert!(!again.applied(), "what one said and what was decided are no conflict");
        }
        assert_eq!(deny(&two, &bob), Err(Refusal::AlreadyDecided));
    }
}

#[test]
fn a_deny_that_was_outvoted_is_told_the_winner() {
    let pending = asked(of_process(), needs(1, 2), &agent());
    let one = deny(&pending, &device("phone", "alice")).unwrap().approval;
    let two = allow(&one, &device("tablet", "bob")).unwrap().approval;
    assert_eq!(deny(&two, &device("phone", "alice")), Err(Refusal::AlreadyDecided));
}

#[test]
fn an_explicit_list_is_final_and_every_list_must_admit() {
    let requirement = Requirement {
        reviewers: vec![list(&["group:ops"]), list(&["person:alice", "person:bob"])],
        ..needs(1, 1)
    };
    let pending = asked(of_process(), requirement, &device("tablet", "bob"));
    let of_ops = |by: Principal| Principal { groups: vec!["ops".to_owned()], ..by };
    assert_eq!(allow(&pending, &device("phone", "alice")), Err(Refusal::NotFound), "on one list only");
    assert_eq!(allow(&pending, &of_ops(device("desk", "carol"))), Err(Refusal::NotFound));
    assert_eq!(
        allow(&pending, &device("tablet", "bob")),
        Err(Refusal::NotAReviewer),
        "it asked, and is not listed"
    );
    assert!(allow(&pending, &of_ops(device("phone", "alice"))).is_ok());
    assert!(allow(&pending, &of_ops(device("tablet", "bob"))).is_ok());
    assert!(allow(&pending, &admin("root")).is_ok(), "an administrator reviews everything");
}

#[test]
fn a_list_lets_nobody_in_whom_the_requirement_excludes() {
    let reviewers = vec![list(&["person:alice"])];
    let requirement = Requirement { reviewers, requester_may_decide: false, ..needs(1, 1) };
    let pending = asked(of_process(), requirement, &device("phone", "alice"));
    for id in ["phone", "laptop"] {
        assert_eq!(allow(&pending, &device(id, "alice")), Err(Refusal::NotAReviewer));
        assert_eq!(deny(&pending, &device(id, "alice")), Err(Refusal::NotAReviewer));
    }
}

#[test]
fn the_requester_is_excluded_on_every_device_of_theirs() {
    let requirement = Requirement { requester_may_decide: false, ..needs(2, 1) };
    let pending = asked(of_process(), requirement, &device("phone", "alice"));
    assert_eq!(allow(&pending, &device("laptop", "alice")), Err(Refusal::NotAReviewer));
    let moved = device("phone", "bob");
    assert_eq!(
        allow(&pending, &moved),
        Err(Refusal::NotAReviewer),
        "nor on the device that asked, whose ever it is"
    );
    assert!(allow(&pending, &device("tablet", "bob")).is_ok());
}

#[test]
fn an_agents_request_never_says_that_the_requester_may_decide() {
    assert!(Requirement::default().requester_may_decide);
    for by in [agent(), runtime("host")] {
        assert!(!asked(of_process(), needs(1, 1), &by).requirement.requester_may_decide);
    }
    assert!(asked(of_process(), needs(1, 1), &device("phone", "alice")).requirement.requester_may_decide);
}

#[test]
fn a_runtime_answers_what_others_asked_within_its_range() {
    let pending = runtime_bound();
    let host = runtime("host");
    let of = |agent: &str| Principal { range: Some(agent.parse().unwrap()), ..host.clone() };
    for by in [&host, &of("agent")] {
        let change = allow(&pending, by).unwrap().approval;
        assert_eq!(change.end().unwrap().by.kind, PrincipalKind::Runtime);
        assert_eq!(deny(&pending, by).unwrap().approval.status(), Status::Denied);
    }
    assert_eq!(allow(&pending, &of("other-agent")), Err(Refusal::NotFound));
    assert_eq!(allow(&pending, &host.clone().narrowed(Scopes::NONE)), Err(Refusal::NotFound));
    let own = asked(of_process(), needs(1, 1), &host);
    assert_eq!(allow(&own, &host), Err(Refusal::NotAReviewer), "never its own");
    assert!(allow(&own, &runtime("other-host")).is_ok());
}

#[test]
fn a_runtime_that_no_list_names_denies_but_does_not_allow() {
    let requirement = Requirement { reviewers: vec![list(&["person:alice"])], ..needs(1, 1) };
    let pending = asked(of_process(), requirement, &agent());
    assert_eq!(allow(&pending, &runtime("host")), Err(Refusal::NotAReviewer));
    assert_eq!(deny(&pending, &runtime("host")).unwrap().approval.status(), Status::Denied);
}

#[test]
fn a_reviewer_whose_right_was_taken_away_mid_click_is_refused() {
    let pending = asked(of_process(), needs(1, 1), &agent());
    let alice = device("phone", "alice");
    assert_eq!(allow(&pending, &alice.clone().narrowed(Scopes::REQUEST)), Err(Refusal::NotFound));
    assert!(allow(&pending, &alice).is_ok());
}
