//! Whether what the person chose is sent. Decided on the card that was rendered, never on its place in a list.

use holdgate_core::requirement::Decision;
use serde_json::json;

use super::call::Asked;
use super::card::{Phase, Shown};
use super::family::{self, Family};
use super::input::{Declined, Effect};
use super::machine::Reviewing;

impl Reviewing {
    pub(super) fn choose(&mut self, shown: Shown, decision: Decision, effects: &mut Vec<Effect>) {
        let family = match self.may_choose(&shown, decision) {
            Ok(family) => family,
            Err(why) => return effects.push(Effect::Declined { shown, why }),
        };
        let key = shown.key;
        let Some(card) = self.cards.get_mut(&key) else { return };
        card.phase = Phase::Resolving { decision, heard: None };
        card.note = None;
        let (method, params) = match family {
            Family::Canonical => (
                family::RESOLVE,
                json!({"id": key.id, "kind": card.content.kind, "decision": decision.as_str()}),
            ),
            Family::Legacy | Family::Closed(_) => {
                (family::LEGACY_RESOLVE, json!({"id": key.id, "decision": decision.as_str()}))
            }
        };
        self.call(method, params, Asked::Resolve { key, decision }, effects);
    }

    fn may_choose(&self, shown: &Shown, decision: Decision) -> Result<Family, Declined> {
        let on = self.online.as_ref().ok_or(Declined::Offline)?;
        if on.gateway != shown.key.gateway {
            return Err(Declined::OtherGateway);
        }
        if let Family::Closed(closed) = on.family {
            return Err(Declined::Closed(closed));
        }
        let card = self.cards.get(&shown.key).ok_or(Declined::Unknown)?;
        match card.phase {
            Phase::Open => {}
            Phase::Resolving { .. } => return Err(Declined::InFlight),
            Phase::Frozen { .. } => return Err(Declined::Frozen),
            Phase::Ended(_) => return Err(Declined::Ended),
        }
        if card.rendering != shown.rendering {
            return Err(Declined::Stale);
        }
        if on.family == Family::Canonical && !card.content.canonical {
            return Err(Declined::Loading);
        }
        if !on.family.decides(&card.content.kind) {
            return Err(Declined::Kind);
        }
        if !card.content.allowed.contains(&decision) {
            return Err(Declined::NotAllowed(decision));
        }
        Ok(on.family)
    }
}
