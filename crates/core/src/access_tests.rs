//! Who may do what to which record: the whole matrix, and what must not matter to it.

use crate::access::{Access, access};
use crate::action::{Action, Kind};
use crate::approval::{Approval, Binding, Command, Draft, Source, TerminalReason};
use crate::canonical::Canonical;
use crate::presentation::present;
use crate::principal::{Principal, PrincipalKind, Scopes};
use crate::requirement::{Decision, Requirement, ReviewerList};
use crate::run::Fence;
use crate::time::Time;
use crate::{approval::Bound, event::Event};

/// What each identity may do to each record. Columns: asked by an agent without a list, by an agent for alice or for
/// the group `ops`; by alice's phone without a list, with a list of bob alone, where two must allow, and where alice
/// may not decide; by the runtime.
const MATRIX: &str = "
                     agent    listed   own      for-bob  quorum   excluded hosts
    administrator    review   review   review   review   review   review   review
    admin-device     review   review   review   review   review   review   review
    narrowed-admin   review   none     none     none     review   review   review
    no-admin         none     none     none     none     none     none     none
    phone            review   review   review   request  review   review   review
    laptop           review   review   review   none     review   review   review
    reviewing-phone  review   review   review   request  review   review   review
    narrowed-phone   none     none     request  request  request  request  none
    muted-phone      none     none     none     none     none     none     none
    bob              review   none     none     review   review   review   review
    carol            review   none     none     none     review   review   review
    carol-of-ops     review   review   none     none     review   review   review
    narrowed-carol   none     none     none     none     none     none     none
    agent            request  request  none     none     none     none     none
    greedy-agent     request  request  none     none     none     none     none
    muted-agent      none     none     none     none     none     none     none
    other-agent      none     none     none     none     none     none     none
    runtime          resolve  resolve  resolve  resolve  resolve  resolve  request
    other-runtime    resolve  resolve  resolve  resolve  resolve  resolve  resolve
    agents-runtime   resolve  resolve  none     none     none     none     none
    others-runtime   none     none     none     none     none     none     none
    greedy-runtime   resolve  resolve  resolve  resolve  resolve  resolve  resolve
    muted-runtime    none     none     none     none     none     none     none
    authority        review   review   review   review   review   review   review
";

fn of(id: &str, kind: PrincipalKind) -> Principal {
    Principal::new(id.parse().unwrap(), kind, id)
}

fn device(id: &str, person: &str) -> Principal {
    let scopes = Scopes::APPROVALS.or(Scopes::REQUEST);
    Principal { person: Some(person.parse().unwrap()), scopes, ..of(id, PrincipalKind::Device) }
}

fn role(name: &str) -> Principal {
    let agent = |id| of(id, PrincipalKind::Agent);
    let runtime = |id| of(id, PrincipalKind::Runtime);
    let of_range = |range: &str| Principal { range: Some(range.parse().unwrap()), ..runtime("other-host") };
    match name {
        "administrator" => of("root", PrincipalKind::Administrator),
        "admin-device" => Principal { scopes: Scopes::ALL, ..device("desk", "dan") },
        "narrowed-admin" => of("root", PrincipalKind::Administrator).narrowed(Scopes::APPROVALS),
        "no-admin" => of("root", PrincipalKind::Administrator).narrowed(Scopes::REQUEST),
        "phone" => device("phone", "alice"),
        "laptop" => device("laptop", "alice"),
        "reviewing-phone" => device("phone", "alice").narrowed(Scopes::APPROVALS),
        "narrowed-phone" => device("phone", "alice").narrowed(Scopes::REQUEST),
        "muted-phone" => device("phone", "alice").narrowed(Scopes::NONE),
        "bob" => device("tablet", "bob"),
        "carol" => device("watch", "carol"),
        "carol-of-ops" => Principal { groups: vec!["ops".to_owned()], ..device("watch", "carol") },
        "narrowed-carol" => device("watch", "carol").narrowed(Scopes::REQUEST),
        "agent" => agent("agent"),
        "greedy-agent" => Principal { scopes: Scopes::ALL, ..agent("agent") },
        "muted-agent" => agent("agent").narrowed(Scopes::NONE),
        "other-agent" => Principal { scopes: Scopes::ALL, ..agent("other-agent") },
        "runtime" => runtime("host"),
        "other-runtime" => runtime("other-host"),
        "agents-runtime" => of_range("agent"),
        "others-runtime" => of_range("other-agent"),
        "greedy-runtime" => Principal { scopes: Scopes::ALL, ..runtime("other-host") },
        "muted-runtime" => runtime("other-host").narrowed(Scopes::NONE),
        "authority" => Principal::authority(),
        _ => panic!("there is no role {name}"),
    }
}

fn list(reviewers: &[&str]) -> Vec<ReviewerList> {
    let reviewers: Vec<_> = reviewers.iter().map(|reviewer| reviewer.parse().unwrap()).collect();
    vec![ReviewerList::try_from(reviewers).unwrap()]
}

fn record(name: &str) -> Approval {
    let standard = Requirement::default();
    let (requester, requirement) = match name {
        "agent" => ("agent", standard),
        "listed" => ("agent", Requirement { reviewers: list(&["person:alice", "group:ops"]), ..standard }),
        "own" => ("phone", standard),
        "for-bob" => ("phone", Requirement { reviewers: list(&["person:bob"]), ..standard }),
        "quorum" => ("phone", Requirement { approvals: 2, ..standard }),
        "excluded" => ("phone", Requirement { requester_may_decide: false, ..standard }),
        "hosts" => ("runtime", standard),
        _ => panic!("there is no record {name}"),
    };
    asked(requirement, &role(requester))
}

fn asked(requirement: Requirement, by: &Principal) -> Approval {
    let content = Canonical::parse(r#"{"argv":["true"]}"#).unwrap();
    let draft = Draft {
        id: None,
        presentation: present(Kind::Exec, &content.to_value()).unwrap(),
        action: Action::freeze(Kind::Exec, "call", content).unwrap(),
        reason: None,
        source: Source::default(),
        binding: Binding::Runtime("epoch".parse().unwrap()),
        requirement,
        timeout_ms: 500,
        client: None,
        v4_request: None,
    };
    Approval::open(draft, by, Vec::new(), Time::from_ms(0)).approval
}

/// Every cell: the role's name, the record's name, and what the matrix says.
fn cells() -> Vec<(&'static str, &'static str, Access)> {
    let mut lines = MATRIX.lines().filter(|line| !line.trim().is_empty()).map(str::split_whitespace);
    let records: Vec<&str> = lines.next().unwrap().collect();
    let mut cells = Vec::new();
    for mut line in lines {
        let role = line.next().unwrap();
        let row: Vec<&str> = line.collect();
        assert_eq!(row.len(), records.len(), "{role}");
        for (record, cell) in records.iter().zip(row) {
            let may = match cell {
                "none" => Access::None,
                "resolve" => Access::Resolve,
                "request" => Access::Request,
                "review" => Access::Review,
                _ => panic!("{cell} is no access"),
            };
            cells.push((role, *record, may));
        }
    }
    cells
}

#[test]
fn who_may_do_what_to_which_record() {
    let wrong: Vec<_> = cells()
        .into_iter()
        .map(|(name, on, may)| (name, on, may, access(&record(on), &role(name))))
        .filter(|(_, _, may, is)| may != is)
        .collect();
    assert!(wrong.is_empty(), "identity, record, expected, actual: {wrong:#?}");
}

#[test]
fn being_in_the_audience_gives_nothing() {
    for (name, on, may) in cells() {
        let (by, approval) = (role(name), record(on));
        let person = by.person.as_ref().map_or("", |person| person.as_str());
        let audience = [by.id.as_str(), &by.label, person].map(str::to_owned).to_vec();
        assert_eq!(access(&Approval { audience, ..approval }, &by), may, "{name} on {on}");
    }
}

#[test]
fn what_anybody_says_of_themselves_gives_nothing() {
    for (name, on, may) in cells() {
        for said in
            ["agent", "phone", "root", "authority", "administrator", "operator.admin", "person:alice", "ops"]
        {
            let by = Principal { label: said.to_owned(), ..role(name) };
            let mut approval = record(on);
            approval.client = Some(said.to_owned());
            approval.reason = Some(said.to_owned());
            approval.requester.label = said.to_owned();
            approval.v4_request = Some(format!(r#"{{"reviewers":["{said}"]}}"#));
            approval.source = Source {
                agent: Some(by.id.to_string()),
                session: Some(said.to_owned()),
                run_id: Some(by.id.to_string()),
                ..Source::default()
            };
            assert_eq!(access(&approval, &by), may, "{name} on {on} says {said}");
        }
    }
}

#[test]
fn the_configured_reviewers_of_an_identity_do_not_admit_to_what_others_asked() {
    for (name, on, may) in cells() {
        let by = Principal { reviewers: list(&["person:alice"]).pop(), ..role(name) };
        assert_eq!(access(&record(on), &by), may, "{name} on {on}");
    }
}

#[test]
fn the_phase_of_a_record_does_not_change_who_may_see_it() {
    for (name, on, may) in cells() {
        let (by, pending, at) = (role(name), record(on), Time::from_ms(1));
        let (root, authority) = (role("administrator"), Principal::authority());
        let vote = |decision| Command::Vote { decision, digest: pending.digest, reason: None };
        let go = |command, by| pending.apply(command, by, Bound::Live, at).unwrap().approval;
        let cancel = Command::Cancel { reason: TerminalReason::CallerLost };
        let phases =
            [go(vote(Decision::AllowOnce), &root), go(vote(Decision::Deny), &root), go(cancel, &authority)];
        for phase in phases {
            assert_eq!(access(&phase, &by), may, "{name} on {on} once {}", phase.status().as_str());
        }
    }
}

#[test]
fn for_who_has_no_access_the_record_does_not_exist_whatever_is_tried() {
    let (mut hidden, claim_id) = (0, || "c".parse().unwrap());
    for (name, on, _) in cells().into_iter().filter(|(_, _, may)| *may == Access::None) {
        let approval = record(on);
        let digest = approval.digest;
        for command in [
            Command::Vote { decision: Decision::Deny, digest, reason: None },
            Command::Vote { decision: Decision::AllowOnce, digest: crate::Digest::of(b"x"), reason: None },
            Command::Expire,
            Command::Cancel { reason: TerminalReason::Withdrawn },
            Command::DenyMalformed,
            Command::DenyUnrouted,
            Command::Revoke { reason: None },
            Command::Claim { claim_id: claim_id(), digest, fence: Some(Fence(1)) },
            Command::Settle { claim_id: claim_id(), outcome: crate::approval::Outcome::Failed, detail: None },
        ] {
            for now in [1, 500] {
                let answer = approval.apply(command.clone(), &role(name), Bound::Live, Time::from_ms(now));
                assert_eq!(answer, Err(crate::Refusal::NotFound), "{name} on {on}: {command:?}");
                hidden += 1;
            }
        }
        assert_eq!(approval.content_for(&role(name)), None);
    }
    assert!(hidden > 0);
}

#[test]
fn access_says_who_reads_and_who_answers() {
    for (may, reads, answers) in [
        (Access::None, false, false),
        (Access::Resolve, false, true),
        (Access::Request, true, false),
        (Access::Review, true, true),
    ] {
        assert_eq!((may.may_read(), may.may_decide()), (reads, answers), "{may:?}");
    }
}

#[test]
fn only_who_may_decide_ever_changes_the_answer() {
    for (name, on, may) in cells() {
        let approval = record(on);
        let vote = Command::Vote { decision: Decision::Deny, digest: approval.digest, reason: None };
        let answer = approval.apply(vote, &role(name), Bound::Live, Time::from_ms(1));
        if let Ok(change) = answer {
            assert!(may.may_decide(), "{name} on {on}");
            assert!(change.events.contains(&Event::Voted { decision: Decision::Deny }));
        }
    }
}
