//! Which methods of a gateway are spoken. Chosen once per hello, never changed by what comes later.

/// Reads one record.
pub(super) const GET: &str = "approval.get";
/// Decides one record.
pub(super) const RESOLVE: &str = "approval.resolve";
pub(super) const LEGACY_GET: &str = "exec.approval.get";
pub(super) const LEGACY_RESOLVE: &str = "exec.approval.resolve";
pub(super) const LEGACY_LIST: &str = "exec.approval.list";
/// Subscribes to a session's approvals and replays those that wait.
pub(super) const SUBSCRIBE: &str = "sessions.messages.subscribe";

/// The only kind that the legacy methods answer from here.
pub(super) const LEGACY_KIND: &str = "exec";

/// The lists of waiting approvals, and the kind that each covers.
const LISTS: [(&str, &str); 3] =
    [(LEGACY_LIST, "exec"), ("plugin.approval.list", "plugin"), ("openclaw.approval.list", "system-agent")];

/// The methods by which approvals are read and decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `approval.get` and `approval.resolve`: every kind, and the winner is told.
    Canonical,
    /// `exec.approval.*`: commands only, and the loser of a race learns no winner.
    Legacy,
    /// Neither is whole: nothing can be decided.
    Closed(Closed),
}

/// Why nothing can be decided on a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// It can read but not decide, or decide but not read back.
    #[error("this gateway offers only a part of the approval methods, so nothing can be decided from here")]
    Partial,
    /// It has no approval methods, or too few of the older ones.
    #[error("this gateway offers no methods by which approvals can be decided from here")]
    None,
}

impl Family {
    /// What a catalogue of methods allows.
    pub fn of(methods: &[String]) -> Self {
        let has = |name: &str| methods.iter().any(|method| method == name);
        match (has(GET), has(RESOLVE)) {
            (true, true) => Family::Canonical,
            (false, false) if has(LEGACY_GET) && has(LEGACY_RESOLVE) && has(LEGACY_LIST) => Family::Legacy,
            (false, false) => Family::Closed(Closed::None),
            _ => Family::Closed(Closed::Partial),
        }
    }

    /// Whether an approval of this kind can be decided.
    pub(super) fn decides(self, kind: &str) -> bool {
        match self {
            Family::Canonical => true,
            Family::Legacy => kind == LEGACY_KIND,
            Family::Closed(_) => false,
        }
    }

    /// The method that reads a record of this kind back. `kind` is unknown for an id that a person typed.
    pub(super) fn reader(self, kind: Option<&str>) -> Option<&'static str> {
        match self {
            Family::Canonical => Some(GET),
            Family::Legacy if kind.is_none_or(|kind| kind == LEGACY_KIND) => Some(LEGACY_GET),
            Family::Legacy | Family::Closed(_) => None,
        }
    }
}

/// The lists that a catalogue offers, and the kind that each covers.
pub(super) fn lists(methods: &[String]) -> impl Iterator<Item = (&'static str, &'static str)> {
    LISTS.into_iter().filter(|(name, _)| methods.iter().any(|method| method == name))
}
