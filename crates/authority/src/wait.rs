//! Wakes whoever waits for an approval. A hint only: waiters look at the row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use holdgate_core::ApprovalId;
use holdgate_store::Notice;
use tokio::sync::{Notify, broadcast};

type Listeners = Mutex<HashMap<ApprovalId, Weak<Notify>>>;

/// Who waits for which approval. One commit wakes only its own waiters, however many others there are.
pub(crate) struct Waiters {
    listeners: Arc<Listeners>,
}

/// One wait for a change of one approval. Hears every change from the moment it was made.
pub(crate) struct Listener {
    id: ApprovalId,
    notify: Option<Arc<Notify>>,
    notified: std::pin::Pin<Box<tokio::sync::futures::OwnedNotified>>,
    listeners: Arc<Listeners>,
}

impl Waiters {
    pub(crate) fn new(mut notices: broadcast::Receiver<Notice>) -> Self {
        let listeners = Arc::new(Listeners::default());
        let weak = Arc::downgrade(&listeners);
        tokio::spawn(async move {
            loop {
                let heard = notices.recv().await;
                let Some(listeners) = weak.upgrade() else {
                    return;
                };
                match heard {
                    Ok(Notice::Changed(committed)) => wake(lock(&listeners).get(&committed.approval.id)),
                    Ok(Notice::Corrupt(id)) => wake(lock(&listeners).get(&id)),
                    // Who waits may not be who may wait any more.
                    Ok(Notice::Identity(_)) => lock(&listeners).values().for_each(|n| wake(Some(n))),
                    // Hints were lost: everybody looks.
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        lock(&listeners).values().for_each(|n| wake(Some(n)))
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        Self { listeners }
    }

    pub(crate) fn listen(&self, id: &ApprovalId) -> Listener {
        let notify = {
            let mut listeners = lock(&self.listeners);
            let existing = listeners.get(id).and_then(Weak::upgrade);
            existing.unwrap_or_else(|| {
                let notify = Arc::new(Notify::new());
                listeners.insert(id.clone(), Arc::downgrade(&notify));
                notify
            })
        };
        let mut notified = Box::pin(Arc::clone(&notify).notified_owned());
        notified.as_mut().enable();
        Listener { id: id.clone(), notify: Some(notify), notified, listeners: Arc::clone(&self.listeners) }
    }
}

impl Listener {
    pub(crate) async fn heard(&mut self) {
        self.notified.as_mut().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = lock(&self.listeners);
        drop(self.notify.take());
        // `notified` still holds one reference: with no other, nobody listens any more.
        if listeners.get(&self.id).is_some_and(|notify| notify.strong_count() <= 1) {
            listeners.remove(&self.id);
        }
    }
}

fn wake(notify: Option<&Weak<Notify>>) {
    if let Some(notify) = notify.and_then(Weak::upgrade) {
        notify.notify_waiters();
    }
}

fn lock(listeners: &Listeners) -> MutexGuard<'_, HashMap<ApprovalId, Weak<Notify>>> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
