//! Who is at the other end of a connection, once its handshake has succeeded.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdgate_core::{ApprovalId, Principal, PrincipalId, Scopes};

/// How many requests a connection is remembered to have opened: long enough for their own commits to be told.
const REMEMBERED: usize = 256;

/// How many sessions a connection may follow at once.
const SUBSCRIPTIONS: usize = 1_024;

/// One authenticated connection.
pub(crate) struct Session {
    /// This connection's name.
    pub(crate) id: String,
    /// The program at the other end, as it says: `client.id`.
    pub(crate) client_id: String,
    /// What it can do with events, as it says.
    pub(crate) caps: Vec<String>,
    /// The scopes in force, in the protocol's words and the order in which they were asked for.
    pub(crate) scopes: Vec<String>,
    /// Its paired device, if it showed one.
    pub(crate) device: Option<PrincipalId>,
    /// What the connection is limited to, whatever its identity may do.
    pub(crate) limit: Scopes,
    /// Who it is, narrowed to the scopes in force. Looked up anew when the identity changes.
    principal: Mutex<Arc<Principal>>,
    /// The sessions whose approvals it follows, in the one spelling of keys.
    subscriptions: Mutex<BTreeSet<String>>,
    /// What it asks for, so that it is not told of its own requests.
    asked: Mutex<Asked>,
}

/// The requests of one connection.
#[derive(Default)]
struct Asked {
    /// How many are on their way to the store.
    opening: u32,
    /// The last ones that are stored.
    opened: VecDeque<ApprovalId>,
}

/// What a handshake settles about a connection.
pub(crate) struct Settled {
    pub(crate) id: String,
    pub(crate) client_id: String,
    pub(crate) caps: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) device: Option<PrincipalId>,
    pub(crate) limit: Scopes,
    /// Not narrowed yet.
    pub(crate) principal: Principal,
}

/// A request on its way to the store. While it lives, the connection counts as the one that asked.
pub(crate) struct Opening<'a>(&'a Session);

impl Opening<'_> {
    /// It is stored, under this id.
    pub(crate) fn opened(self, id: &ApprovalId) {
        let opened = &mut lock(&self.0.asked).opened;
        if opened.len() == REMEMBERED {
            opened.pop_front();
        }
        opened.push_back(id.clone());
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        lock(&self.0.asked).opening -= 1;
    }
}

impl Session {
    /// A connection as its handshake left it.
    pub(crate) fn new(settled: Settled) -> Self {
        let Settled { id, client_id, caps, scopes, device, limit, principal } = settled;
        let principal = Mutex::new(Arc::new(principal.narrowed(limit)));
        let (subscriptions, asked) = (Mutex::default(), Mutex::default());
        Self { id, client_id, caps, scopes, device, limit, principal, subscriptions, asked }
    }

    /// Who it is now.
    pub(crate) fn principal(&self) -> Arc<Principal> {
        Arc::clone(&lock(&self.principal))
    }

    /// Puts the identity as it is now in the place of what it was, as narrow as before.
    pub(crate) fn renew(&self, principal: Principal) {
        *lock(&self.principal) = Arc::new(principal.narrowed(self.limit));
    }

    /// Takes everything from it that it may do, until it is closed.
    pub(crate) fn disarm(&self) {
        let mut principal = lock(&self.principal);
        *principal = Arc::new((**principal).clone().narrowed(Scopes::NONE));
    }

    /// Says that a request of this connection is on its way to the store. Call it before the request is sent, and
    /// [`Opening::opened`] with the id that it got: in between, the commit may already be told to everybody.
    pub(crate) fn opening(&self) -> Opening<'_> {
        lock(&self.asked).opening += 1;
        Opening(self)
    }

    /// Whether this connection asked for `approval`, or may have: while a request of its own is on its way, the id
    /// of that one is not known here yet.
    pub(crate) fn asked_for(&self, approval: &holdgate_core::Approval) -> bool {
        if self.principal().id != approval.requester.id {
            return false;
        }
        let asked = lock(&self.asked);
        asked.opening > 0 || asked.opened.contains(&approval.id)
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

    /// Follows a session's approvals from now on. Whether it may: it follows so many at most.
    pub(crate) fn subscribe(&self, session_key: String) -> bool {
        let mut subscriptions = lock(&self.subscriptions);
        let may = subscriptions.len() < SUBSCRIPTIONS || subscriptions.contains(&session_key);
        if may {
            subscriptions.insert(session_key);
        }
        may
    }

    /// No longer follows them.
    pub(crate) fn unsubscribe(&self, session_key: &str) {
        lock(&self.subscriptions).remove(session_key);
    }

    /// No longer follows any: it has missed something, and recovers by following anew.
    pub(crate) fn forget_subscriptions(&self) {
        lock(&self.subscriptions).clear();
    }

    /// Whether it follows a session's approvals.
    pub(crate) fn follows(&self, session_key: &str) -> bool {
        lock(&self.subscriptions).contains(session_key)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
