//! What a connection received: events, replies by request, replies to nobody, and its end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Close, Reply};

/// Everything received so far.
#[derive(Default)]
pub(super) struct Received {
    /// Events in the order of their arrival, as whole frames.
    pub events: Vec<Value>,
    /// Replies to no open request: the final one after `accepted`, or one to a frame sent as text.
    pub extra: Vec<Value>,
    /// How the connection ended.
    pub closed: Option<Close>,
    open: HashMap<String, Open>,
}

#[derive(Default)]
struct Open {
    expects_final: bool,
    accepted: Option<Value>,
    reply: Option<Reply>,
}

/// What was received, and a way to wait for more of it.
pub(super) struct Inbox {
    received: Mutex<Received>,
    changes: watch::Sender<u64>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { received: Mutex::default(), changes: watch::Sender::new(0) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Received> {
        // A test that panicked while it looked has not changed anything.
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a place for the reply to this request.
    pub(super) fn expect(&self, id: &str, expects_final: bool) {
        self.lock().open.insert(id.to_owned(), Open { expects_final, ..Open::default() });
    }

    /// Files a frame. What is no frame of the protocol is left to the trace.
    pub(super) fn take(&self, text: &str) {
        let Ok(frame) = serde_json::from_str::<Value>(text) else { return };
        let mut received = self.lock();
        match frame["type"].as_str() {
            Some("event") => received.events.push(frame),
            Some("res") => received.file(frame),
            _ => return,
        }
        drop(received);
        self.changed();
    }

    /// Notes the end; every open request is answered with it.
    pub(super) fn end(&self, close: Close) {
        let mut received = self.lock();
        let error = json!(format!("closed {} {}", close.code, close.reason));
        for open in received.open.values_mut() {
            let lost = Reply { ok: false, payload: None, error: Some(error.clone()) };
            open.reply.get_or_insert(lost);
        }
        received.closed.get_or_insert(close);
        drop(received);
        self.changed();
    }

    /// The `accepted` payload of a request, once it is there; none if the reply came without one.
    pub(super) async fn accepted(&self, id: &str) -> Option<Value> {
        let found = self.until(super::PATIENCE, |received| {
            let open = received.open.get(id)?;
            (open.accepted.is_some() || open.reply.is_some()).then(|| open.accepted.clone())
        });
        found.await.flatten()
    }

    /// The reply to a request, once it is there.
    pub(super) async fn reply(&self, id: &str) -> Option<Reply> {
        let found = self.until(super::PATIENCE, |received| {
            received.open.get(id)?.reply.as_ref()?;
            received.open.remove(id)?.reply
        });
        found.await
    }

    /// Waits until `look` finds something, at most this long.
    pub(super) async fn until<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut(&mut Received) -> Option<T>,
    ) -> Option<T> {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = look(&mut self.lock()) {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(patience, waiting).await.ok().flatten()
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl Received {
    fn file(&mut self, frame: Value) {
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        let Some(open) = self.open.get_mut(&id).filter(|open| open.reply.is_none()) else {
            self.extra.push(frame);
            return;
        };
        let ok = frame["ok"] == true;
        let payload = frame.get("payload").cloned();
        if open.expects_final && ok && frame["payload"]["status"] == "accepted" {
            open.accepted = payload;
            return;
        }
        open.reply = Some(Reply { ok, payload, error: frame.get("error").cloned() });
    }
}
