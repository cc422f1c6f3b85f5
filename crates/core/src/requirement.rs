//! What it takes to end a request: how many people, which of them, which answers, whether with a reason.
//!
//! Owns the gateway's floor and that a requester can only tighten it. Counting votes is `approval`'s.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{InvalidId, PersonId, PrincipalId, trimmed};
use crate::limits::{NAME_CHARS, QUORUM, REVIEWERS};
use crate::principal::Principal;

/// One reviewer's answer, and the terminal answer that it adds up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Run exactly this, once.
    AllowOnce,
    /// Run this, and let the caller remember it. The caller keeps such memory; the authority grants this one only.
    AllowAlways,
    /// Do not run it.
    Deny,
}

impl Decision {
    /// Every decision.
    pub const ALL: [Decision; 3] = [Decision::AllowOnce, Decision::AllowAlways, Decision::Deny];

    /// The decision's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Decision::AllowOnce => "allow-once",
            Decision::AllowAlways => "allow-always",
            Decision::Deny => "deny",
        }
    }

    /// The decision of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Decision::ALL.into_iter().find(|decision| decision.as_str() == name)
    }

    /// Whether this is some allow.
    pub const fn is_allow(self) -> bool {
        matches!(self, Decision::AllowOnce | Decision::AllowAlways)
    }
}

/// One who may decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reviewer {
    /// A person, on any device.
    Person(PersonId),
    /// Whoever belongs to a group by the gateway's configuration when the answer is given.
    Group(String),
    /// One device.
    Device(PrincipalId),
}

impl Reviewer {
    /// Whether `by` is this one.
    pub fn admits(&self, by: &Principal) -> bool {
        match self {
            Reviewer::Person(person) => by.person.as_ref() == Some(person),
            Reviewer::Group(group) => by.groups.contains(group),
            Reviewer::Device(device) => by.id == *device,
        }
    }
}

impl fmt::Display for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reviewer::Person(person) => write!(f, "person:{person}"),
            Reviewer::Group(group) => write!(f, "group:{group}"),
            Reviewer::Device(device) => write!(f, "device:{device}"),
        }
    }
}

impl FromStr for Reviewer {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = |why| InvalidId { what: "reviewer", why };
        let (kind, name) =
            text.split_once(':').ok_or(invalid("it is person:NAME, group:NAME or device:ID"))?;
        let is_name = !name.is_empty()
            && name == trimmed(name)
            && name.chars().count() <= NAME_CHARS
            && !name.chars().any(char::is_control);
        match kind {
            "person" => Ok(Reviewer::Person(name.parse()?)),
            "group" if is_name => Ok(Reviewer::Group(name.to_owned())),
            "group" => Err(invalid("it names no group")),
            "device" => Ok(Reviewer::Device(name.parse()?)),
            _ => Err(invalid("it is person:NAME, group:NAME or device:ID")),
        }
    }
}

impl Serialize for Reviewer {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reviewer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Those who may decide, any of them. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Reviewer>")]
pub struct ReviewerList(Vec<Reviewer>);

impl ReviewerList {
    /// Whether `by` is one of them.
    pub fn admits(&self, by: &Principal) -> bool {
        self.0.iter().any(|reviewer| reviewer.admits(by))
    }

    /// Those on the list.
    pub fn reviewers(&self) -> &[Reviewer] {
        &self.0
    }
}

impl TryFrom<Vec<Reviewer>> for ReviewerList {
    type Error = Unsatisfiable;

    fn try_from(reviewers: Vec<Reviewer>) -> Result<Self, Unsatisfiable> {
        match reviewers.len() {
            1..=REVIEWERS => Ok(Self(reviewers)),
            0 => Err(Unsatisfiable::NobodyToAsk),
            count => Err(Unsatisfiable::TooManyReviewers(count)),
        }
    }
}

/// What it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// How many distinct people must allow.
    #[serde(default = "one")]
    pub approvals: u32,
    /// How many distinct people must deny to end it.
    #[serde(default = "one")]
    pub denials: u32,
    /// Whether the person who asked may be one of them. An agent never is.
    #[serde(default)]
    pub requester_may_decide: bool,
    /// Whether an answer must say why.
    pub reason_required: bool,
    /// The answers that are offered. Always holds `deny`.
    pub allowed_decisions: Vec<Decision>,
    /// Who may decide: somebody on every one of these lists. Without a list, see [`mod@crate::access`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<ReviewerList>,
}

/// What a requester, or the configuration for one kind of request, wants on top of the floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tightening {
    /// At least this many people.
    pub approvals: Option<u32>,
    /// At most this many denies to end it.
    pub denials: Option<u32>,
    /// Whether the person who asked may be one of them.
    pub requester_may_decide: Option<bool>,
    /// Whether an answer must say why.
    pub reason_required: Option<bool>,
    /// Only these answers; `deny` is always among them.
    pub allowed_decisions: Option<Vec<Decision>>,
    /// Only these people.
    pub reviewers: Option<ReviewerList>,
}

/// Why a requirement cannot be honoured. It is refused rather than quietly weakened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsatisfiable {
    /// A number of people that nobody could gather.
    #[error("{what} is {count}; it is 1 to {max}", max = QUORUM)]
    Count {
        /// The field.
        what: &'static str,
        /// Its value.
        count: u32,
    },
    /// The same as, or less than, what the gateway requires already was asked for as if it were allowed.
    #[error("requirement.{0} would loosen what the gateway requires; a requester can only tighten it")]
    Loosens(&'static str),
    /// No way to allow was left.
    #[error(
        "no way to allow is left: a request that nobody can allow is refused at once; offer allow-once, or \
         what the gateway's own requirement offers"
    )]
    NothingToAllow,
    /// An empty list of reviewers.
    #[error("requirement.reviewers is empty: nobody could decide")]
    NobodyToAsk,
    /// A list that no page could show.
    #[error("requirement.reviewers has {0} entries; at most {max}", max = REVIEWERS)]
    TooManyReviewers(usize),
    /// An agent would be its own reviewer.
    #[error("requirement.requesterMayDecide cannot be true here: an agent never decides")]
    AgentDecides,
    /// A standing grant was asked for where none is kept.
    #[error("requirement.allowedDecisions cannot hold allow-always: this authority keeps no standing grants")]
    AllowAlways,
}

const fn one() -> u32 {
    1
}

impl Default for Requirement {
    /// One person allows, one deny ends it; the person who asked may be the one.
    fn default() -> Self {
        Self {
            approvals: 1,
            denials: 1,
            requester_may_decide: true,
            reason_required: false,
            allowed_decisions: vec![Decision::AllowOnce, Decision::Deny],
            reviewers: Vec::new(),
        }
    }
}

impl Requirement {
    /// This requirement and `more`. Nothing of it is ever loosened: what would be is refused.
    ///
    /// # Errors
    /// See [`Unsatisfiable`].
    pub fn tightened(mut self, more: Tightening) -> Result<Self, Unsatisfiable> {
        let count = |what, count| match count {
            1..=QUORUM => Ok(count),
            count => Err(Unsatisfiable::Count { what, count }),
        };
        if let Some(approvals) = more.approvals {
            self.approvals = self.approvals.max(count("requirement.approvals", approvals)?);
        }
        if let Some(denials) = more.denials {
            if count("requirement.denials", denials)? > self.denials {
                return Err(Unsatisfiable::Loosens("denials"));
            }
            self.denials = denials;
        }
        match more.requester_may_decide {
            Some(true) if !self.requester_may_decide => {
                return Err(Unsatisfiable::Loosens("requesterMayDecide"));
            }
            Some(may) => self.requester_may_decide = may,
            None => {}
        }
        self.reason_required |= more.reason_required.unwrap_or_default();
        if let Some(offered) = more.allowed_decisions {
            self.allowed_decisions
                .retain(|decision| *decision == Decision::Deny || offered.contains(decision));
        }
        self.reviewers.extend(more.reviewers);
        if self.allowed_decisions.iter().any(|decision| decision.is_allow()) {
            Ok(self)
        } else {
            Err(Unsatisfiable::NothingToAllow)
        }
    }

    /// Whether `by` is on every list. Without lists, everybody is.
    pub fn admits(&self, by: &Principal) -> bool {
        self.reviewers.iter().all(|list| list.admits(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::PrincipalKind;

    fn list(reviewers: &[&str]) -> ReviewerList {
        ReviewerList::try_from(reviewers.iter().map(|r| r.parse().unwrap()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_requester_only_tightens() {
        let floor = Requirement { approvals: 2, reason_required: true, ..Requirement::default() };
        let asked = Tightening {
            approvals: Some(1),
            reason_required: Some(false),
            requester_may_decide: Some(false),
            ..Tightening::default()
        };
        let both = floor.tightened(asked).unwrap();
        assert_eq!((both.approvals, both.reason_required, both.requester_may_decide), (2, true, false));
        let strict = Requirement { requester_may_decide: false, ..Requirement::default() };
        let loose = Tightening { requester_may_decide: Some(true), ..Tightening::default() };
        assert_eq!(strict.tightened(loose), Err(Unsatisfiable::Loosens("requesterMayDecide")));
        let loose = Tightening { denials: Some(2), ..Tightening::default() };
        assert_eq!(Requirement::default().tightened(loose), Err(Unsatisfiable::Loosens("denials")));
    }

    #[test]
    fn a_number_of_people_that_nobody_gathers_is_refused() {
        for approvals in [0, QUORUM + 1] {
            let asked = Tightening { approvals: Some(approvals), ..Tightening::default() };
            assert!(matches!(Requirement::default().tightened(asked), Err(Unsatisfiable::Count { .. })));
        }
    }

    #[test]
    fn a_request_that_nobody_can_allow_is_refused() {
        let asked = |decisions: Vec<Decision>| Tightening {
            allowed_decisions: Some(decisions),
            ..Tightening::default()
        };
        assert_eq!(Requirement::default().tightened(asked(vec![])), Err(Unsatisfiable::NothingToAllow));
        let only_once = Requirement::default().tightened(asked(vec![Decision::AllowOnce])).unwrap();
        assert_eq!(only_once.allowed_decisions, [Decision::AllowOnce, Decision::Deny]);
    }

    #[test]
    fn every_list_must_admit_a_reviewer() {
        let alice = Principal {
            person: Some("alice".parse().unwrap()),
            groups: vec!["ops".to_owned()],
            ..Principal::new("phone".parse().unwrap(), PrincipalKind::Device, "phone")
        };
        for (lists, admitted) in [
            (vec![], true),
            (vec![list(&["person:alice"])], true),
            (vec![list(&["person:bob", "group:ops"]), list(&["device:phone"])], true),
            (vec![list(&["group:ops"]), list(&["person:bob"])], false),
            (vec![list(&["device:laptop"])], false),
        ] {
            assert_eq!(Requirement { reviewers: lists, ..Requirement::default() }.admits(&alice), admitted);
        }
    }

    #[test]
    fn a_reviewer_has_one_spelling() {
        for text in ["person:alice", "group:on call", "device:ab12"] {
            assert_eq!(text.parse::<Reviewer>().unwrap().to_string(), text);
        }
        for bad in ["alice", "person:", "group: x", "team:x", ""] {
            assert!(bad.parse::<Reviewer>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_stored_before_quorums_still_reads() {
        let stored = r#"{"reasonRequired":false,"allowedDecisions":["allow-once","deny"]}"#;
        let requirement: Requirement = serde_json::from_str(stored).unwrap();
        assert_eq!((requirement.approvals, requirement.denials), (1, 1));
        assert!(!requirement.requester_may_decide);
    }
}
