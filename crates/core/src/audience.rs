//! Who sees a request and its end in their session's stream: a walk up the sessions that own the source.
//!
//! Owns how a session key is written and in which order owners are found. Gives no right to anything: see `access`.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::id::trimmed;
use crate::limits::AUDIENCE;

/// Who owns a session, as its runner registered it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEdges {
    /// The session that steers it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The session that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
    /// The session that it was made in. Followed only without a controller or requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The same, as older runners say it. Followed only without a parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
}

impl SessionEdges {
    /// The keys of the owners, in the order in which they are followed.
    fn owners(&self) -> impl Iterator<Item = &str> {
        let registered = [given(&self.controller), given(&self.requester)];
        let stored = given(&self.parent).or(given(&self.spawned_by));
        let stored = stored.filter(|_| registered.iter().all(Option::is_none));
        registered.into_iter().chain([stored]).flatten()
    }
}

fn given(key: &Option<String>) -> Option<&str> {
    key.as_deref().filter(|key| !trimmed(key).is_empty())
}

/// The one spelling of a session key: trimmed, in lower case, and with its agent. A key that names no agent belongs to
/// `agent`; `unknown` names no session and stays as it is. `None` for a key of white space.
pub fn session_key(key: &str, agent: Option<&str>) -> Option<String> {
    let key = trimmed(key).to_lowercase();
    if key.is_empty() {
        return None;
    }
    if key == "unknown" || agent_of(&key).is_some() {
        return Some(key);
    }
    let agent = agent.map(trimmed).filter(|agent| !agent.is_empty());
    Some(match agent {
        Some(agent) => format!("agent:{}:{key}", agent.to_lowercase()),
        None => key,
    })
}

/// What people call a session: its key without the agent that it names.
pub fn session_label(key: &str) -> &str {
    match agent_of(key) {
        Some(agent) => &key["agent:".len() + agent.len() + 1..],
        None => key,
    }
}

/// The agent that a key of the form `agent:NAME:REST` names.
pub fn agent_of(key: &str) -> Option<&str> {
    let (agent, rest) = key.strip_prefix("agent:")?.split_once(':')?;
    (!agent.is_empty() && !rest.is_empty()).then_some(agent)
}

/// The audience of a request from `source`: itself, then its owners, breadth first, each once, at most [`AUDIENCE`].
/// `edges` looks up who owns a session; if a look-up fails, the audience is the source alone.
pub fn audience<E>(
    source: &str,
    agent: Option<&str>,
    mut edges: impl FnMut(&str) -> Result<Option<SessionEdges>, E>,
) -> Vec<String> {
    let Some(source) = session_key(source, agent) else {
        return Vec::new();
    };
    let mut found = vec![source.clone()];
    let mut queue = VecDeque::from([source.clone()]);
    while let Some(child) = queue.pop_front() {
        let owned = match edges(&child) {
            Ok(owned) => owned.unwrap_or_default(),
            Err(_) => return vec![source],
        };
        // A relative key is said in the child's words.
        let child_agent = agent_of(&child).map(str::to_owned);
        for owner in owned.owners() {
            let Some(owner) = session_key(owner, child_agent.as_deref()) else {
                continue;
            };
            if found.len() == AUDIENCE {
                return found;
            }
            if !found.contains(&owner) {
                found.push(owner.clone());
                queue.push_back(owner);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;

    use super::*;

    type Registry = HashMap<String, SessionEdges>;

    fn walk(source: &str, agent: Option<&str>, registry: &Registry) -> Vec<String> {
        audience(source, agent, |key| Ok::<_, Infallible>(registry.get(key).cloned()))
    }

    fn owned(controller: &str, requester: &str) -> SessionEdges {
        let key = |key: &str| Some(key.to_owned());
        SessionEdges { controller: key(controller), requester: key(requester), ..SessionEdges::default() }
    }

    fn child_of(parent: &str) -> SessionEdges {
        SessionEdges { parent: Some(parent.to_owned()), ..SessionEdges::default() }
    }

    #[test]
    fn a_session_without_ancestors_is_its_own_audience() {
        assert_eq!(walk(" Child ", Some("work"), &Registry::new()), ["agent:work:child"]);
        assert_eq!(walk(" Child ", None, &Registry::new()), ["child"]);
        assert!(walk("  ", Some("work"), &Registry::new()).is_empty());
    }

    #[test]
    fn branching_owners_come_controller_first_and_level_by_level() {
        let registry = Registry::from([
            ("agent:a:child".to_owned(), owned("controller", "requester")),
            ("agent:a:controller".to_owned(), child_of("controller-root")),
            ("agent:a:requester".to_owned(), child_of("requester-root")),
        ]);
        let names = ["child", "controller", "requester", "controller-root", "requester-root"];
        assert_eq!(walk("child", Some("a"), &registry), names.map(|name| format!("agent:a:{name}")));
    }

    #[test]
    fn a_blank_registration_falls_back_to_the_stored_parent() {
        let blank = SessionEdges { parent: Some("root".to_owned()), ..owned(" ", "") };
        let registry = Registry::from([("agent:a:child".to_owned(), blank)]);
        assert_eq!(walk("child", Some("a"), &registry), ["agent:a:child", "agent:a:root"]);
    }

    #[test]
    fn a_registration_overrides_what_was_stored_before() {
        let steered = SessionEdges { parent: Some("old".to_owned()), ..owned("new", "") };
        let registry = Registry::from([("agent:a:child".to_owned(), steered)]);
        assert_eq!(walk("child", Some("a"), &registry), ["agent:a:child", "agent:a:new"]);
        let spawned = SessionEdges { spawned_by: Some("maker".to_owned()), ..SessionEdges::default() };
        let registry = Registry::from([("agent:a:child".to_owned(), spawned)]);
        assert_eq!(walk("child", Some("a"), &registry), ["agent:a:child", "agent:a:maker"]);
    }

    #[test]
    fn owners_can_belong_to_other_agents() {
        let registry = Registry::from([
            ("agent:a:child".to_owned(), owned("agent:b:lead", "main")),
            ("agent:b:lead".to_owned(), child_of("global")),
        ]);
        let expected = ["agent:a:child", "agent:b:lead", "agent:a:main", "agent:b:global"];
        assert_eq!(walk("agent:a:child", None, &registry), expected);
    }

    #[test]
    fn a_cycle_ends() {
        let registry = Registry::from([
            ("agent:a:one".to_owned(), child_of("two")),
            ("agent:a:two".to_owned(), child_of("one")),
        ]);
        assert_eq!(walk("one", Some("a"), &registry), ["agent:a:one", "agent:a:two"]);
    }

    #[test]
    fn a_chain_of_70_stops_at_64() {
        let registry = (0..70)
            .map(|n| (format!("agent:a:session-{n}"), child_of(&format!("session-{}", n + 1))))
            .collect();
        let found = walk("session-0", Some("a"), &registry);
        assert_eq!(found.len(), 64);
        assert_eq!(found.last().unwrap(), "agent:a:session-63");
    }

    #[test]
    fn a_failed_look_up_leaves_the_source_alone() {
        let fails_above =
            |key: &str| if key == "agent:a:child" { Ok(Some(child_of("root"))) } else { Err(()) };
        assert_eq!(audience("child", Some("a"), fails_above), ["agent:a:child"]);
        assert_eq!(audience("child", Some("a"), |_: &str| Err(())), ["agent:a:child"]);
    }

    #[test]
    fn the_unknown_session_stays_as_it_is() {
        assert_eq!(session_key("unknown", Some("a")).unwrap(), "unknown");
        assert_eq!(session_key("GLOBAL", Some("Work")).unwrap(), "agent:work:global");
        assert_eq!(session_key("agent:x:", Some("a")).unwrap(), "agent:a:agent:x:");
    }
}
