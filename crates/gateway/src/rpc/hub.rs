//! The open connections, and who of them hears of what.
//!
//! Owns delivery: each commit is told once, to exactly those who may see and answer its record, show its family or
//! follow its session, and did not ask for it themselves. What is told is `events`', who may see it `holdgate-core`'s.
//! Nobody is waited for here: a connection that does not keep up loses events and is told so.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use holdgate_authority::{Error, Found, Service};
use holdgate_core::{Access, Approval, Principal, PrincipalId, access};
use holdgate_store::{Committed, Credential, Notice, Recorded};
use holdgate_wire::Code;
use tokio::sync::Notify;
use tokio::sync::broadcast::{self, error::RecvError};

use super::credentials::Held;
use super::events::{self, Recipients};
use super::line::{Close, Line};
use super::projection::family;
use super::session::Session;

/// How many facts are read at once by a hub that has fallen behind.
const CATCH_UP: u32 = 256;

/// One open connection.
pub(crate) struct Open {
    pub(crate) session: Arc<Session>,
    pub(crate) line: Arc<Line>,
    pub(crate) held: Held,
}

type Connections = HashMap<String, Arc<Open>>;

/// All open connections of this gateway.
pub(crate) struct Hub {
    service: Arc<Service>,
    open: RwLock<Connections>,
    left: Notify,
}

/// A connection among the others, until it is dropped.
pub(crate) struct Member {
    hub: Arc<Hub>,
    connection: Arc<Open>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.write().remove(&self.connection.session.id);
        self.hub.left.notify_waiters();
    }
}

impl Hub {
    pub(crate) fn new(service: Arc<Service>) -> Arc<Self> {
        Arc::new(Self { service, open: RwLock::default(), left: Notify::new() })
    }

    /// Takes a connection in. It hears of every commit from now on; what it was authenticated by is looked at once
    /// more, because it may have ended in between.
    pub(crate) async fn enter(self: &Arc<Self>, connection: Open) -> Member {
        let connection = Arc::new(connection);
        self.write().insert(connection.session.id.clone(), Arc::clone(&connection));
        let member = Member { hub: Arc::clone(self), connection };
        self.look_again(&member.connection).await;
        member
    }

    /// Completes once nobody is connected, or `patience` is at an end.
    pub(crate) async fn emptied(&self, patience: Duration) {
        let emptied = async {
            loop {
                let left = self.left.notified();
                if self.read().is_empty() {
                    return;
                }
                left.await;
            }
        };
        // Whoever lingers is cut with the process.
        let _ = tokio::time::timeout(patience, emptied).await;
    }

    /// How many connections, but for the one of that name, would be shown a request.
    pub(crate) fn reviewers_of(&self, approval: &Approval, except: &str) -> usize {
        let family = family(approval.kind);
        let open = self.read();
        let shown = open.values().filter(|connection| {
            let session = &connection.session;
            session.id != except && session.shows(family) && is_reviewer(approval, &session.principal())
        });
        shown.count()
    }

    /// Tells every commit, for as long as the store commits.
    pub(crate) async fn keep(self: Arc<Self>, mut notices: broadcast::Receiver<Notice>) {
        let mut told = None;
        loop {
            match notices.recv().await {
                // A hub that had fallen behind has told it from the store.
                Ok(Notice::Changed(committed)) if told.is_some_and(|told| committed.seq <= told) => {}
                Ok(Notice::Changed(committed)) => {
                    self.tell(&committed);
                    told = Some(committed.seq);
                }
                // There is nothing to show of it; whoever reads it finds that it counts as denied.
                Ok(Notice::Corrupt(_)) => {}
                Ok(Notice::Identity(id)) => self.look_again_at(id.as_ref()).await,
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "events are read back from the store");
                    self.look_again_at(None).await;
                    self.catch_up(&mut told).await;
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn tell(&self, committed: &Committed) {
        let open = self.read();
        if open.is_empty() {
            return;
        }
        let projected = events::of(committed, self.service.links());
        if projected.is_empty() {
            return;
        }
        for Open { session, line, .. } in open.values().map(|connection| &**connection) {
            if !is_reviewer(&committed.approval, &session.principal()) {
                continue;
            }
            for event in &projected {
                let is_for = match &event.to {
                    Recipients::Family(family) => session.shows(family),
                    Recipients::Session(key) => session.follows(key),
                };
                let is_own =
                    || event.event.ends_with(".approval.requested") && session.asked_for(&committed.approval);
                if is_for && !is_own() {
                    line.tell(event.event, &event.payload);
                }
            }
        }
    }

    /// Tells what the store has committed after `told`. What cannot be told is lost to everybody, and everybody is told
    /// that.
    async fn catch_up(&self, told: &mut Option<u64>) {
        let caught_up = match told {
            Some(after) => self.tell_after(after).await,
            // Nothing was heard yet, so nobody knows where to begin.
            None => Ok(false),
        };
        if !matches!(caught_up, Ok(true)) {
            self.read().values().for_each(|connection| connection.line.lose());
        }
    }

    async fn tell_after(&self, after: &mut u64) -> Result<bool, Error> {
        loop {
            let page = self.service.store().events(*after, CATCH_UP).await?;
            for recorded in &page {
                if let Some(committed) = self.committed(recorded).await? {
                    self.tell(&committed);
                }
                *after = recorded.seq;
            }
            if page.len() < CATCH_UP as usize {
                return Ok(true);
            }
        }
    }

    /// A fact with the record as it is now. `None` for one that cannot be shown any more.
    async fn committed(&self, recorded: &Recorded) -> Result<Option<Committed>, Error> {
        let found = self.service.find(recorded.approval.as_str(), &Principal::authority()).await;
        let approval = match found {
            Ok(Found::Sound(approval)) => *approval,
            Ok(Found::Corrupt(_)) => return Ok(None),
            Err(error) if error.code() == Some(Code::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Recorded { seq, event, by, at, .. } = recorded;
        Ok(Some(Committed { seq: *seq, approval, events: vec![*event], by: by.clone(), at: *at }))
    }

    /// Looks again at whoever is connected as `id`, or at everybody.
    async fn look_again_at(&self, id: Option<&PrincipalId>) {
        let is_meant = |connection: &&Arc<Open>| id.is_none_or(|id| connection.session.principal().id == *id);
        let meant: Vec<_> = self.read().values().filter(is_meant).cloned().collect();
        for connection in meant {
            self.look_again(&connection).await;
        }
    }

    /// Puts the identity as it is now in the place of what it was. Without it, or without the credential that it came
    /// with, the connection ends.
    async fn look_again(&self, connection: &Open) {
        let before = connection.session.principal();
        let now = match connection.held {
            Held::Token(hash) => self.service.authenticate(Credential::Token(hash)).await,
            Held::Identity => {
                let identity = self.service.identity(&before.id).await;
                identity.map(|identity| identity.map(|identity| identity.principal))
            }
        };
        match now {
            Ok(Some(principal)) if principal.id == before.id && principal.kind == before.kind => {
                connection.session.renew(principal);
            }
            Ok(_) => connection.end(Close::policy("credential revoked")),
            // Nobody knows whether it still may; it comes back and shows itself again.
            Err(_) => connection.end(Close::new(1013, "try again later")),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Connections> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Connections> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends the connection, and what it may do with it: a call that is on its way is another's already.
    fn end(&self, close: Close) {
        self.session.disarm();
        self.line.close(close);
    }
}

fn is_reviewer(approval: &Approval, by: &Principal) -> bool {
    access(approval, by) == Access::Review
}
