//! Who acts. Owns what each kind of identity may do at all; what it may do to one record is `access`'s.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{PersonId, PrincipalId};
use crate::presentation::masked;
use crate::requirement::ReviewerList;

/// What kind of identity this is. Fixed when the credential is made; nothing a caller sends changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// The person who holds the home's operator credential.
    Administrator,
    /// A person's paired device.
    Device,
    /// An agent's credential: it requests, waits, claims and settles. It never decides.
    Agent,
    /// A trusted host process, by a token that the server minted: it requests, and resolves within its range what
    /// others requested, but reads none of it.
    Runtime,
    /// The authority itself, for what follows from time alone.
    Authority,
}

impl PrincipalKind {
    /// Every kind.
    pub const ALL: [PrincipalKind; 5] =
        [Self::Administrator, Self::Device, Self::Agent, Self::Runtime, Self::Authority];

    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            PrincipalKind::Administrator => "administrator",
            PrincipalKind::Device => "device",
            PrincipalKind::Agent => "agent",
            PrincipalKind::Runtime => "runtime",
            PrincipalKind::Authority => "authority",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The most that an identity of this kind may ever do.
    pub const fn scopes(self) -> Scopes {
        match self {
            PrincipalKind::Administrator | PrincipalKind::Authority => Scopes::ALL,
            PrincipalKind::Device => Scopes::ALL,
            PrincipalKind::Agent | PrincipalKind::Runtime => Scopes::REQUEST,
        }
    }
}

/// What a credential may do, or what a connection asked to be limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Nothing.
    pub const NONE: Scopes = Scopes(0);
    /// Ask for permission, wait, claim, settle.
    pub const REQUEST: Scopes = Scopes(1);
    /// See and answer what a record's rules allow.
    pub const APPROVALS: Scopes = Scopes(2);
    /// See and answer everything, and administer the gateway.
    pub const ADMIN: Scopes = Scopes(4);
    /// Everything.
    pub const ALL: Scopes = Scopes(7);

    const NAMES: [(Scopes, &'static str); 3] = [
        (Self::REQUEST, "approvals.request"),
        (Self::APPROVALS, "operator.approvals"),
        (Self::ADMIN, "operator.admin"),
    ];

    /// Whether all of `other` is in here.
    pub const fn contains(self, other: Scopes) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Scopes) -> Scopes {
        Scopes(self.0 & other.0)
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Scopes) -> Scopes {
        Scopes(self.0 | other.0)
    }

    /// The scope of that name.
    pub fn from_name(name: &str) -> Option<Scopes> {
        Self::NAMES.into_iter().find(|(_, known)| *known == name).map(|(scope, _)| scope)
    }

    /// The names of what is in here.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(scope, _)| self.contains(*scope)).map(|(_, name)| name)
    }

    /// The scopes that a text names, as [`Scopes`]' `Display` writes it. `None` if it names an unknown one.
    pub fn parse(text: &str) -> Option<Scopes> {
        let mut scopes = Scopes::NONE;
        for name in text.split(' ').filter(|name| !name.is_empty()) {
            scopes = scopes.or(Scopes::from_name(name)?);
        }
        Some(scopes)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().enumerate() {
            f.write_str(if at > 0 { " " } else { "" })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// An authenticated identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its name in records.
    pub id: PrincipalId,
    /// What it is.
    pub kind: PrincipalKind,
    /// What reviewers call it.
    pub label: String,
    /// The person behind it. Several devices of one person answer once. Agents and runtimes have none.
    pub person: Option<PersonId>,
    /// The groups of that person, by the gateway's configuration.
    pub groups: Vec<String>,
    /// What its credential may do.
    pub scopes: Scopes,
    /// Who may review what it asks for, if that was set for its credential.
    pub reviewers: Option<ReviewerList>,
    /// The only agent whose requests a runtime may resolve; `None` for every agent's.
    pub range: Option<PrincipalId>,
}

impl Principal {
    /// An identity of a kind, with all that the kind may do. A person's is its own person until said otherwise.
    pub fn new(id: PrincipalId, kind: PrincipalKind, label: impl Into<String>) -> Self {
        let is_person = matches!(kind, PrincipalKind::Administrator | PrincipalKind::Device);
        let person = is_person.then(|| id.as_str().parse().expect("a principal's id is a valid person's id"));
        Self {
            id,
            kind,
            label: label.into(),
            person,
            groups: Vec::new(),
            scopes: kind.scopes(),
            reviewers: None,
            range: None,
        }
    }

    /// The authority acting by itself: expiry, lapsed leases, lost claims.
    pub fn authority() -> Self {
        let id = "authority".parse().expect("a fixed name is a valid id");
        Self { person: None, ..Self::new(id, PrincipalKind::Authority, "Holdgate") }
    }

    /// The same identity with no more than `scopes`. A connection can only narrow its credential.
    #[must_use]
    pub fn narrowed(mut self, scopes: Scopes) -> Self {
        self.scopes = self.scopes.and(scopes);
        self
    }

    /// Whether this identity may administer the gateway and review every record.
    pub fn is_admin(&self) -> bool {
        match self.kind {
            PrincipalKind::Administrator | PrincipalKind::Device => self.scopes.contains(Scopes::ADMIN),
            PrincipalKind::Authority => true,
            PrincipalKind::Agent | PrincipalKind::Runtime => false,
        }
    }

    /// Whether this identity may answer requests of others at all. Which, each record's rules say.
    pub fn may_review(&self) -> bool {
        match self.kind {
            PrincipalKind::Administrator | PrincipalKind::Device => {
                self.is_admin() || self.scopes.contains(Scopes::APPROVALS)
            }
            PrincipalKind::Agent | PrincipalKind::Runtime | PrincipalKind::Authority => false,
        }
    }

    /// Whether this identity may ask for permission.
    pub fn may_request(&self) -> bool {
        self.scopes.contains(Scopes::REQUEST) || self.may_review()
    }
}

/// An authenticated identity as a record remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The identity.
    #[serde(with = "as_text")]
    pub id: PrincipalId,
    /// Its kind at the time.
    #[serde(with = "kind_name")]
    pub kind: PrincipalKind,
    /// What reviewers call it.
    pub label: String,
    /// The person behind it at the time.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_text")]
    pub person: Option<PersonId>,
}

impl Actor {
    /// What readers call it, safe to show. A device chose its own label, so its person comes first.
    pub fn name(&self) -> String {
        let label = masked(&self.label);
        match &self.person {
            Some(person) if person.as_str() != self.label => format!("{} ({label})", masked(person.as_str())),
            Some(_) | None => label,
        }
    }

    /// Whether this is the authority acting by itself.
    pub fn is_authority(&self) -> bool {
        self.kind == PrincipalKind::Authority
    }

    /// Whether both are the same voice: one person, on whichever device, or one identity, whosever it was and is.
    pub fn is_same_voice(&self, other: &Actor) -> bool {
        self.id == other.id || (self.person.is_some() && self.person == other.person)
    }
}

impl From<&Principal> for Actor {
    fn from(by: &Principal) -> Self {
        Self { id: by.id.clone(), kind: by.kind, label: by.label.clone(), person: by.person.clone() }
    }
}

mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use std::{fmt::Display, str::FromStr};

    pub fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

mod optional_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use std::{fmt::Display, str::FromStr};

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => s.collect_str(value),
            None => s.serialize_none(),
        }
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<T>, D::Error> {
        Option::<String>::deserialize(d)?.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

mod kind_name {
    use super::PrincipalKind;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(value: &PrincipalKind, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(value.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PrincipalKind, D::Error> {
        let name = String::deserialize(d)?;
        PrincipalKind::from_name(&name).ok_or_else(|| D::Error::custom("no such kind of principal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: PrincipalKind) -> Principal {
        Principal::new("p".parse().unwrap(), kind, "p")
    }

    #[test]
    fn no_scope_makes_an_agent_or_a_runtime_a_reviewer() {
        for kind in [PrincipalKind::Agent, PrincipalKind::Runtime] {
            let all = Principal { scopes: Scopes::ALL, ..of(kind) };
            assert!(!all.may_review() && !all.is_admin() && all.may_request());
        }
    }

    #[test]
    fn a_connection_only_narrows() {
        let device = of(PrincipalKind::Device).narrowed(Scopes::APPROVALS);
        assert!(device.may_review() && !device.is_admin());
        assert!(!device.narrowed(Scopes::ALL).is_admin());
        assert!(!of(PrincipalKind::Device).narrowed(Scopes::NONE).may_review());
    }

    #[test]
    fn scopes_have_one_spelling() {
        for scopes in [Scopes::NONE, Scopes::ALL, Scopes::APPROVALS.or(Scopes::REQUEST)] {
            assert_eq!(Scopes::parse(&scopes.to_string()), Some(scopes));
        }
        assert_eq!(Scopes::parse("operator.everything"), None);
    }

    #[test]
    fn two_devices_of_a_person_are_one_voice() {
        let alice = Some("alice".parse().unwrap());
        let phone = Principal { person: alice.clone(), ..of(PrincipalKind::Device) };
        let laptop = Principal { id: "q".parse().unwrap(), ..phone.clone() };
        assert!(Actor::from(&phone).is_same_voice(&Actor::from(&laptop)));
        let bob = Principal { person: Some("bob".parse().unwrap()), ..laptop };
        assert!(!Actor::from(&phone).is_same_voice(&Actor::from(&bob)));
        let agent = Principal { id: "a".parse().unwrap(), ..of(PrincipalKind::Agent) };
        assert!(!Actor::from(&agent).is_same_voice(&Actor::from(&phone)));
        let other = Principal { id: "b".parse().unwrap(), ..agent.clone() };
        assert!(
            !Actor::from(&agent).is_same_voice(&Actor::from(&other)),
            "two who are nobody's are two voices"
        );
        let moved = Principal { person: phone.person.clone(), ..of(PrincipalKind::Device) };
        assert!(Actor::from(&of(PrincipalKind::Device)).is_same_voice(&Actor::from(&moved)));
    }
}
