//! The part of the configuration that decides who may decide: plain values, checked, with nothing of a file left in them.
//!
//! Owns no rule: the authority applies them.

use std::collections::{BTreeMap, BTreeSet};

use holdgate_core::Kind;
use holdgate_core::requirement::{Decision, Requirement, ReviewerList};
use serde_json::{Value, json};

/// What the gateway demands of every request, whoever asks. May be replaced while it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The least that it takes to allow anything.
    pub requirement: Floor,
    /// The same for kinds that have a floor of their own, in the order of [`Kind::ALL`].
    pub kinds: Vec<(Kind, Floor)>,
    /// People by the name of their group. None is empty.
    pub groups: BTreeMap<String, BTreeSet<String>>,
    /// Who reviews what an agent asks for, by the agent's name. None is empty.
    pub agents: BTreeMap<String, Vec<Reviewer>>,
    /// How much may wait at once.
    pub limits: Limits,
}

/// The least that a requirement asks for. A requester can only add to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// How many distinct people must allow: 1 to 16.
    pub approvals: u32,
    /// How many distinct people must deny to end it: 1 to 16.
    pub denials: u32,
    /// Whether the requester may be one of those who allow.
    pub requester_may_decide: bool,
    /// Whether an answer must say why.
    pub reason_required: bool,
    /// The answers that may be offered, in order. Always holds `deny` and a way to allow.
    pub allowed_decisions: Vec<Decision>,
    /// The only ones who may decide. `None`: whoever may review here. Never empty.
    pub reviewers: Option<Vec<Reviewer>>,
}

/// Somebody who may decide, as the configuration names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reviewer {
    /// `person:NAME`, on whichever device.
    Person(String),
    /// `group:NAME`: each of its people.
    Group(String),
    /// `device:ID`: whoever holds it.
    Device(String),
}

/// How many requests may be pending at once. `None`: the gateway's own bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of one agent's credential.
    pub pending_per_agent: Option<u32>,
    /// Of one session.
    pub pending_per_session: Option<u32>,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            approvals: 1,
            denials: 1,
            requester_may_decide: true,
            reason_required: false,
            allowed_decisions: Decision::ALL.to_vec(),
            reviewers: None,
        }
    }
}

impl Floor {
    fn in_force(&self) -> anyhow::Result<Requirement> {
        Ok(Requirement {
            approvals: self.approvals,
            denials: self.denials,
            requester_may_decide: self.requester_may_decide,
            reason_required: self.reason_required,
            allowed_decisions: self.allowed_decisions.clone(),
            reviewers: self.reviewers.iter().map(|reviewers| list(reviewers)).collect::<Result<_, _>>()?,
        })
    }
}

fn list(reviewers: &[Reviewer]) -> anyhow::Result<ReviewerList> {
    let parsed: Result<Vec<_>, _> = reviewers.iter().map(|reviewer| reviewer.to_string().parse()).collect();
    Ok(ReviewerList::try_from(parsed?)?)
}

impl std::fmt::Display for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reviewer::Person(name) => write!(f, "person:{name}"),
            Reviewer::Group(name) => write!(f, "group:{name}"),
            Reviewer::Device(id) => write!(f, "device:{id}"),
        }
    }
}

impl Policy {
    /// The same as the authority takes it.
    ///
    /// # Errors
    /// A name that the authority does not take for one.
    pub fn in_force(&self) -> anyhow::Result<holdgate_authority::Policy> {
        let mut policy =
            holdgate_authority::Policy { floor: self.requirement.in_force()?, ..Default::default() };
        for (kind, floor) in &self.kinds {
            policy.kinds.insert(kind.as_str(), floor.in_force()?);
        }
        for (agent, reviewers) in &self.agents {
            policy.agents.insert(agent.parse()?, list(reviewers)?);
        }
        for (group, people) in &self.groups {
            let people: Result<Vec<_>, _> = people.iter().map(|person| person.parse()).collect();
            policy.groups.insert(group.clone(), people?);
        }
        policy.caps.per_principal = self.limits.pending_per_agent.unwrap_or(policy.caps.per_principal);
        policy.caps.per_session = self.limits.pending_per_session.unwrap_or(policy.caps.per_session);
        Ok(policy)
    }

    /// What is in force, as keys of the file and their values.
    pub fn describe(&self) -> Vec<(String, Value)> {
        let mut said = describe_floor("requirement", &self.requirement);
        for (kind, floor) in &self.kinds {
            said.extend(describe_floor(&format!("requirement.{}", kind.as_str()), floor));
        }
        said.extend(self.groups.iter().map(|(name, people)| (format!("groups.{name}"), json!(people))));
        let agents = self.agents.iter();
        said.extend(agents.map(|(name, who)| (format!("agents.{name}.reviewers"), names(who))));
        let limits = [
            ("pending-per-agent", self.limits.pending_per_agent),
            ("pending-per-session", self.limits.pending_per_session),
        ];
        let given = limits.into_iter().filter_map(|(key, limit)| Some((key, limit?)));
        said.extend(given.map(|(key, limit)| (format!("limits.{key}"), json!(limit))));
        said
    }
}

fn describe_floor(key: &str, floor: &Floor) -> Vec<(String, Value)> {
    let mut said = vec![
        (format!("{key}.approvals"), json!(floor.approvals)),
        (format!("{key}.denials"), json!(floor.denials)),
        (format!("{key}.requester-may-decide"), json!(floor.requester_may_decide)),
        (format!("{key}.reason-required"), json!(floor.reason_required)),
        (format!("{key}.allowed-decisions"), json!(floor.allowed_decisions)),
    ];
    said.extend(floor.reviewers.as_ref().map(|who| (format!("{key}.reviewers"), names(who))));
    said
}

fn names(reviewers: &[Reviewer]) -> Value {
    reviewers.iter().map(|reviewer| Value::from(reviewer.to_string())).collect()
}
