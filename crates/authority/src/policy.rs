//! What the gateway's configuration demands of every request: a floor that requesters can only tighten.
//!
//! Owns no file: whoever reads the configuration hands it in, at the start and again when it changes.

use std::collections::BTreeMap;

use holdgate_core::requirement::{Decision, Requirement, ReviewerList, Tightening, Unsatisfiable};
use holdgate_core::{Kind, PersonId, Principal, PrincipalId};
use holdgate_store::Caps;

/// The configuration as far as it decides anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What every request takes.
    pub floor: Requirement,
    /// What requests of one kind take instead.
    pub kinds: BTreeMap<&'static str, Requirement>,
    /// Who may review what one agent asks, on top of it.
    pub agents: BTreeMap<PrincipalId, ReviewerList>,
    /// Groups and their people.
    pub groups: BTreeMap<String, Vec<PersonId>>,
    /// How many requests may be pending.
    pub caps: Caps,
}

impl Default for Policy {
    /// One person decides, with any answer.
    fn default() -> Self {
        let floor = Requirement { allowed_decisions: Decision::ALL.to_vec(), ..Requirement::default() };
        let (kinds, agents, groups) = Default::default();
        Self { floor, kinds, agents, groups, caps: Caps::default() }
    }
}

impl Policy {
    /// What a request of this kind by `requester` takes, with what the requester asks for on top.
    ///
    /// # Errors
    /// What would loosen the floor, or leave nobody who could allow.
    pub fn requirement(
        &self,
        kind: Kind,
        requester: &Principal,
        asked: Tightening,
    ) -> Result<Requirement, Unsatisfiable> {
        if asked.requester_may_decide == Some(true) && requester.person.is_none() {
            return Err(Unsatisfiable::AgentDecides);
        }
        let mut required = self.kinds.get(kind.as_str()).unwrap_or(&self.floor).clone();
        required.reviewers.extend(self.agents.get(&requester.id).cloned());
        required.reviewers.extend(requester.reviewers.clone());
        required.tightened(asked)
    }
}

#[cfg(test)]
mod tests {
    use holdgate_core::principal::PrincipalKind;
    use holdgate_core::requirement::Reviewer;

    use super::*;

    fn list(reviewer: &str) -> ReviewerList {
        vec![reviewer.parse::<Reviewer>().unwrap()].try_into().unwrap()
    }

    #[test]
    fn every_source_of_a_requirement_only_adds_to_it() {
        let agent = Principal {
            reviewers: Some(list("person:token")),
            ..Principal::new("a".parse().unwrap(), PrincipalKind::Agent, "a")
        };
        let mut policy = Policy::default();
        policy.floor.reviewers = vec![list("group:floor")];
        policy.kinds.insert("exec", Requirement { approvals: 2, ..policy.floor.clone() });
        policy.agents.insert(agent.id.clone(), list("person:configured"));
        let asked =
            Tightening { approvals: Some(1), reviewers: Some(list("person:asked")), ..Tightening::default() };
        let required = policy.requirement(Kind::Exec, &agent, asked.clone()).unwrap();
        assert_eq!(required.approvals, 2);
        let lists = ["group:floor", "person:configured", "person:token", "person:asked"].map(list);
        assert_eq!(required.reviewers, lists);
        assert_eq!(policy.requirement(Kind::Tool, &agent, asked).unwrap().approvals, 1);
    }
}
