//! Who is at the other end of a connection, once its handshake has succeeded.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use holdgate_core::{Principal, PrincipalId};

/// One authenticated connection.
pub(crate) struct Session {
    /// This connection's name.
    pub(crate) id: String,
    /// The program at the other end, as it says: `client.id`.
    pub(crate) client_id: String,
    /// How it is used, as it says: `client.mode`.
    pub(crate) client_mode: String,
    /// What it can do with events, as it says.
    pub(crate) caps: Vec<String>,
    /// The scopes in force, in the protocol's words and the order in which they were asked for.
    pub(crate) scopes: Vec<String>,
    /// Its paired device, if it showed one.
    pub(crate) device: Option<PrincipalId>,
    /// Who it is, narrowed to the scopes in force. Looked up anew when the identity changes.
    principal: Mutex<Arc<Principal>>,
    /// The sessions whose approvals it follows, in the one spelling of keys.
    subscriptions: Mutex<BTreeSet<String>>,
}

impl Session {
    /// Who it is now.
    pub(crate) fn principal(&self) -> Arc<Principal> {
        Arc::clone(&self.principal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts the identity as it is now in the place of what it was.
    pub(crate) fn renew(&self, principal: Principal) {
        *self.principal.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(principal);
    }

    /// Whether a scope of the protocol is in force.
    pub(crate) fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|held| held == scope)
    }

    /// Whether the program can show approvals of a family, `exec` or `plugin`, when they come in as events.
    pub(crate) fn shows(&self, family: &str) -> bool {
        self.caps.iter().any(|cap| cap == "approvals" || *cap == format!("{family}-approvals"))
            || matches!(self.client_id.as_str(), "openclaw-control-ui" | "webchat-ui")
    }

    /// Follows a session's approvals from now on.
    pub(crate) fn subscribe(&self, session_key: String) {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).insert(session_key);
    }

    /// No longer follows them.
    pub(crate) fn unsubscribe(&self, session_key: &str) {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).remove(session_key);
    }

    /// Whether it follows a session's approvals.
    pub(crate) fn follows(&self, session_key: &str) -> bool {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).contains(session_key)
    }
}
