//! The whole table: phase x command x identity x time x what waits behind it. Every cell has its answer.

use super::*;

/// The rules, the first that matches a cell answers it: identity, phase, command, time, bound, answer. A `!` before
/// alternatives means none of them. Answers are `=` for nothing new, a refusal's code, or what the record has become.
const RULES: &str = "
    outsider|narrowed|stray              *                     *                     *    *     not_found

    agent|own-runtime|excluded|authority *                     allow|always|deny     *    *     not_a_reviewer
    runtime                              half                  allow|always          *    *     not_a_reviewer
    *                                    pending|half          allow|always|deny     late *     expired
    *                                    pending|half          allow|always|deny     *    gone|lost|ended cancelled
    *                                    pending|half          always                *    *     decision_not_offered
    *                                    pending|half          allow                 *    *     allowed
    *                                    pending               deny                  *    *     denied
    *                                    half                  deny                  *    *     voted
    *                                    denied                deny                  *    *     =
    *                                    denied                allow|always          *    *     already_decided
    *                                    expired               allow|always|deny     *    *     expired
    *                                    cancelled             allow|always|deny     *    *     cancelled
    *                                    *                     allow                 *    *     =
    *                                    *                     always|deny           *    *     already_decided

    runtime|own-runtime                  *                     unrouted              *    *     not_a_reviewer
    !runtime|own-runtime|authority       *                     malformed|unrouted    *    *     not_a_reviewer
    *                                    pending|half          malformed|unrouted    late *     expired
    *                                    pending|half          malformed|unrouted    *    gone|lost|ended cancelled
    *                                    pending|half          malformed|unrouted    *    *     denied
    *                                    denied                malformed|unrouted    *    *     =
    *                                    expired               malformed|unrouted    *    *     expired
    *                                    cancelled             malformed|unrouted    *    *     cancelled
    *                                    *                     malformed|unrouted    *    *     already_decided

    runtime                              *                     revoke                *    *     not_a_reviewer
    *                                    allowed               revoke                *    *     revoked
    *                                    revoked               revoke                *    *     =
    *                                    claimed|settled|unknown revoke              *    *     already_claimed
    *                                    *                     revoke                *    *     not_allowed

    !authority                           pending|half          expire                *    *     not_a_reviewer
    *                                    pending|half          expire                soon *     not_allowed
    *                                    pending|half          expire                late *     expired
    *                                    expired               expire                *    *     =
    *                                    cancelled             expire                *    *     cancelled
    *                                    *                     expire                *    *     already_decided

    runtime|device                       *                     cancel                *    *     not_the_requester
    *                                    pending|half          cancel                late *     expired
    *                                    pending|half          cancel                *    *     cancelled
    *                                    cancelled             cancel                *    *     =
    *                                    expired               cancel                *    *     expired
    *                                    allowed               cancel                *    *     revoked
    *                                    revoked               cancel                *    *     =
    *                                    *                     cancel                *    *     already_decided

    administrator|device|runtime|authority *                   claim-c|claim-d|claim-c-next * * not_the_requester
    *                                    revoked               claim-c|claim-d|claim-c-next * * revoked
    *                                    !allowed|claimed|settled|unknown claim-c|claim-d|claim-c-next * * not_allowed
    *                                    claimed|settled|unknown claim-c|claim-c-next *   live|gone|lost =
    *                                    *                     claim-c|claim-d|claim-c-next * gone|lost epoch_lapsed
    *                                    *                     claim-c|claim-d|claim-c-next * ended run_ended
    *                                    *                     claim-c|claim-d       *    taken fence_lapsed
    *                                    *                     claim-c-next          *    held|idle fence_lapsed
    *                                    allowed               claim-c|claim-d|claim-c-next * * claimed
    *                                    *                     claim-d               *    *     already_claimed
    *                                    *                     claim-c               *    *     =
    *                                    *                     claim-c-next          *    taken taken-over

    administrator|device|runtime         *                     well-c|badly-c|lost-c|well-d * * not_the_requester
    *                                    !claimed|settled|unknown well-c|badly-c|lost-c|well-d * * not_claimed
    *                                    *                     well-d                *    *     not_claimed
    *                                    settled               well-c                *    *     =
    *                                    settled               badly-c|lost-c        *    *     already_settled
    *                                    unknown               lost-c                *    *     =
    *                                    claimed               lost-c                *    *     unknown
    *                                    *                     well-c                *    *     succeeded
    *                                    *                     badly-c               *    *     failed
";

const TIMES: [(&str, i64); 2] = [("soon", LAST), ("late", DEADLINE)];

const BOUNDS: [(&str, Bound); 7] = [
    ("live", Bound::Live),
    ("gone", Bound::GatewayGone),
    ("lost", Bound::CallerGone),
    ("held", Bound::Run { fence: Fence(1), held: true }),
    ("idle", Bound::Run { fence: Fence(1), held: false }),
    ("taken", Bound::Run { fence: Fence(2), held: true }),
    ("ended", Bound::RunEnded),
];

const PHASES: [&str; 10] = [
    "pending",
    "half",
    "allowed",
    "revoked",
    "claimed",
    "settled",
    "unknown",
    "denied",
    "expired",
    "cancelled",
];

/// An identity, and the record that it is tried on: who asked for it and whether they may decide.
struct Role {
    name: &'static str,
    by: Principal,
    requester: Principal,
    excluded: bool,
}

fn roles() -> Vec<Role> {
    let in_range = Principal { range: Some("agent".parse().unwrap()), ..runtime("host") };
    let out_of_range = Principal { range: Some("other-agent".parse().unwrap()), ..runtime("host") };
    let of_agent = |name, by| Role { name, by, requester: agent(), excluded: false };
    let of_own = |name, by: Principal| Role { name, requester: by.clone(), by, excluded: false };
    vec![
        of_agent("administrator", admin("chief")),
        of_agent("device", device("phone", "alice")),
        of_agent("narrowed", device("phone", "alice").narrowed(Scopes::REQUEST)),
        of_agent("agent", agent()),
        of_agent("outsider", principal("other-agent", PrincipalKind::Agent)),
        of_agent("runtime", in_range),
        of_agent("stray", out_of_range),
        of_agent("authority", Principal::authority()),
        of_own("own-device", device("phone", "alice")),
        of_own("own-runtime", runtime("host")),
        Role { excluded: true, ..of_own("excluded", device("phone", "alice")) },
    ]
}

/// The role's record in a phase, as a live process or the first holder of a run has left it.
fn record(role: &Role, phase: &str, bound: Bound) -> Approval {
    let is_stored = matches!(bound, Bound::Run { .. } | Bound::RunEnded);
    let binding = if is_stored { of_run() } else { of_process() };
    let (before, fence) =
        if is_stored { (Bound::Run { fence: Fence(1), held: true }, Some(1)) } else { (Bound::Live, None) };
    let requirement = Requirement {
        requester_may_decide: !role.excluded,
        ..if phase == "half" { needs(2, 2) } else { needs(1, 1) }
    };
    let pending = asked(binding, requirement, &role.requester);
    let (root, authority) = (admin("root"), Principal::authority());
    let go = |from: &Approval, command, by: &Principal| {
        from.apply(command, by, before, at(OPENED + 1)).unwrap().approval
    };
    let allow = || go(&pending, vote(&pending, Decision::AllowOnce), &root);
    let claimed = || go(&allow(), claim(&pending, "c", fence), &role.requester);
    match phase {
        "half" | "allowed" => allow(),
        "revoked" => go(&allow(), revoke(), &root),
        "claimed" => claimed(),
        "settled" => go(&claimed(), settle("c", Outcome::Succeeded), &role.requester),
        "unknown" => go(&claimed(), settle("c", Outcome::Unknown), &authority),
        "denied" => go(&pending, vote(&pending, Decision::Deny), &root),
        "expired" => pending.apply(Command::Expire, &authority, before, at(DEADLINE)).unwrap().approval,
        "cancelled" => go(&pending, withdraw(), &role.requester),
        _ => pending,
    }
}

/// The commands, on a record of a live process or of a stored run, whose claims carry a fence.
fn commands(approval: &Approval) -> Vec<(&'static str, Command)> {
    let fence = |fence| matches!(approval.binding, Binding::Checkpoint(_)).then_some(fence);
    vec![
        ("allow", vote(approval, Decision::AllowOnce)),
        ("always", vote(approval, Decision::AllowAlways)),
        ("deny", vote(approval, Decision::Deny)),
        ("malformed", Command::DenyMalformed),
        ("unrouted", Command::DenyUnrouted),
        ("revoke", revoke()),
        ("expire", Command::Expire),
        ("cancel", withdraw()),
        ("claim-c", claim(approval, "c", fence(1))),
        ("claim-d", claim(approval, "d", fence(1))),
        ("claim-c-next", claim(approval, "c", fence(2))),
        ("well-c", settle("c", Outcome::Succeeded)),
        ("badly-c", settle("c", Outcome::Failed)),
        ("lost-c", settle("c", Outcome::Unknown)),
        ("well-d", settle("d", Outcome::Succeeded)),
    ]
}

/// What came of a command, in a word.
fn outcome(before: &Approval, result: Result<Change, Refusal>) -> String {
    let change = match result {
        Err(refusal) => return refusal.code().to_owned(),
        Ok(change) => change,
    };
    let Some(last) = change.events.last() else {
        assert_eq!(change.approval, *before, "without a fact, nothing changed");
        return "=".to_owned();
    };
    match last {
        Event::Opened => "opened".to_owned(),
        Event::Voted { .. } => "voted".to_owned(),
        Event::Resolved { status, .. } => status.as_str().to_owned(),
        Event::Revoked => "revoked".to_owned(),
        Event::Claimed => "claimed".to_owned(),
        Event::ClaimTaken => "taken-over".to_owned(),
        Event::Settled { outcome } => outcome.as_str().to_owned(),
    }
}

struct Rule {
    line: &'static str,
    patterns: Vec<&'static str>,
    answer: &'static str,
}

fn rules() -> Vec<Rule> {
    let lines = RULES.lines().map(str::trim).filter(|line| !line.is_empty());
    let rule = |line: &'static str| {
        let mut patterns: Vec<&str> = line.split_whitespace().collect();
        let answer = patterns.pop().unwrap();
        assert_eq!(patterns.len(), 5, "{line}");
        Rule { line, patterns, answer }
    };
    lines.map(rule).collect()
}

fn matches(pattern: &str, value: &str) -> bool {
    match pattern.strip_prefix('!') {
        Some(others) => others.split('|').all(|other| other != value),
        None => pattern == "*" || pattern.split('|').any(|one| one == value),
    }
}

#[test]
fn every_command_in_every_phase_has_its_answer() {
    let (rules, mut used, mut cells) = (rules(), vec![false; 0], 0);
    used.resize(rules.len(), false);
    for role in roles() {
        for (phase, (bound_name, bound)) in PHASES.iter().flat_map(|p| BOUNDS.map(|b| (*p, b))) {
            let approval = record(&role, phase, bound);
            for (name, command) in commands(&approval) {
                for (time, now) in TIMES {
                    let cell = [role.name, phase, name, time, bound_name];
                    let fits = |rule: &Rule| rule.patterns.iter().zip(cell).all(|(p, v)| matches(p, v));
                    let Some(found) = rules.iter().position(fits) else { panic!("{cell:?} has no answer") };
                    used[found] = true;
                    let actual =
                        outcome(&approval, approval.apply(command.clone(), &role.by, bound, at(now)));
                    assert_eq!(actual, rules[found].answer, "{cell:?} by {:?}", rules[found].line);
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 11 * 10 * 7 * 15 * 2);
    let unused: Vec<_> =
        rules.iter().zip(used).filter(|(_, used)| !used).map(|(rule, _)| rule.line).collect();
    assert!(unused.is_empty(), "rules that say nothing: {unused:#?}");
}

#[test]
fn time_and_the_binding_decide_the_same_in_every_cell() {
    let role = Role { name: "agent", by: agent(), requester: agent(), excluded: false };
    let mut written = 0;
    for (phase, (bound_name, bound)) in PHASES.iter().flat_map(|p| BOUNDS.map(|b| (*p, b))) {
        for (time, now) in TIMES {
            let approval = record(&role, phase, bound);
            let answer = match (phase, time, bound_name) {
                ("pending" | "half", "late", _) => Some(("expired", Some(TerminalReason::Timeout))),
                ("pending" | "half", _, "gone") => Some(("cancelled", Some(TerminalReason::GatewayRestart))),
                ("pending" | "half", _, "lost") => Some(("cancelled", Some(TerminalReason::CallerLost))),
                ("pending" | "half", _, "ended") => Some(("cancelled", Some(TerminalReason::RunAborted))),
                ("claimed", _, "gone" | "lost" | "idle" | "taken" | "ended") => Some(("unknown", None)),
                _ => None,
            };
            let change = approval.reconcile(bound, at(now));
            let cell = (phase, time, bound_name);
            assert_eq!(change.is_some(), answer.is_some(), "{cell:?}");
            if let (Some(change), Some((name, reason))) = (change, answer) {
                if let Some(reason) = reason {
                    assert_eq!(change.approval.end().unwrap().reason, reason, "{cell:?}");
                }
                assert_eq!(change.approval.reconcile(bound, at(now)), None, "{cell:?}: it is said once");
                assert_eq!(outcome(&approval, Ok(change)), name, "{cell:?}");
                written += 1;
            }
        }
    }
    assert_eq!(written, 2 * (7 + 3) + 2 * 5);
}
