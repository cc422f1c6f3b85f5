//! What an event changes. Events are hints: one that is missed or does not read leads to a look at the record.

use serde_json::Value;

use super::family::Family;
use super::input::Effect;
use super::machine::Reviewing;
use super::record::{Hint, Listed, Record, text};

impl Reviewing {
    pub(super) fn event(&mut self, name: &str, payload: &Value, effects: &mut Vec<Effect>) {
        match name {
            "exec.approval.requested" => self.requested(payload, "exec", effects),
            "plugin.approval.requested" => self.requested(payload, "plugin", effects),
            "openclaw.approval.requested" => self.requested(payload, "system-agent", effects),
            "exec.approval.resolved" | "plugin.approval.resolved" | "openclaw.approval.resolved" => {
                match Hint::read(payload) {
                    Some(hint) => self.hinted(&hint),
                    None => self.ask_everything(effects),
                }
            }
            "session.approval" => self.session_approval(payload, effects),
            _ => {}
        }
    }

    fn requested(&mut self, payload: &Value, kind: &str, effects: &mut Vec<Effect>) {
        match Listed::read(payload, kind) {
            Listed::Waiting(waiting) => self.affirm(waiting),
            Listed::NotText => self.ask_everything(effects),
            Listed::Unreadable => self.unreadable(payload),
        }
    }

    fn session_approval(&mut self, payload: &Value, effects: &mut Vec<Effect>) {
        let approval = payload.get("approval").unwrap_or(&Value::Null);
        let Some(mut record) = Record::read(approval) else {
            return match approval.get("id") {
                Some(Value::String(_)) => self.unreadable(approval),
                _ => self.ask_everything(effects),
            };
        };
        // The stream in which it came is the one whose replay will hold it.
        let session = text(payload, "sessionKey");
        match &mut record {
            Record::Waiting(waiting) => waiting.session = session,
            Record::Ended(ending) => ending.waiting.session = session,
        }
        match record {
            Record::Waiting(waiting) => self.affirm(waiting),
            Record::Ended(ending) => self.settle(ending, false),
        }
    }

    /// It names an approval but does not read: the record is looked at, if that is known here.
    fn unreadable(&mut self, payload: &Value) {
        if let Some(key) = text(payload, "id").and_then(|id| self.newest(&id)) {
            self.want(&key.id, self.step);
        }
    }

    fn hinted(&mut self, hint: &Hint) {
        self.calls.heard_end_of(&hint.id);
        let Some(key) = self.newest(&hint.id) else { return };
        // It tells of an older record under the same id.
        if hint.at_ms.is_some_and(|at_ms| at_ms < key.created_at_ms) {
            return;
        }
        match self.online.as_ref().map(|on| on.family) {
            Some(Family::Legacy | Family::Closed(_)) => self.hear(&key, hint.fact()),
            Some(Family::Canonical) => self.suspect(&key),
            None => {}
        }
    }
}
