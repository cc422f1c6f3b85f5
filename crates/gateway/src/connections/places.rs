//! How many connections are open at once, and which of them goes when another one needs its place.
//!
//! Owns the count and the order of those that are idle. Knows no protocol: a connection says when it is answering.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How long a connection that is told to go may take before another one is told as well.
const GOING: Duration = Duration::from_millis(1_000);

/// The places for connections. A connection holds its own until its stream is dropped, whoever has the stream by then.
pub(crate) struct Places {
    total: u32,
    free: Arc<Semaphore>,
    idle: Mutex<Idle>,
    /// Told when a connection becomes idle.
    changed: Notify,
}

/// The idle connections. A lower number has been idle for longer.
#[derive(Default)]
struct Idle {
    next: u64,
    seats: BTreeMap<u64, Arc<Notify>>,
}

impl Places {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let free = Arc::new(Semaphore::new(usize::try_from(total).unwrap_or(usize::MAX)));
        Arc::new(Self { total, free, idle: Mutex::default(), changed: Notify::new() })
    }

    /// A place. When all are taken, the connection that has been idle for the longest goes; when none is idle, the
    /// first that ends or becomes idle does.
    pub(super) async fn take(&self) -> OwnedSemaphorePermit {
        loop {
            // Asked for before looking: what becomes idle in between is not missed.
            let changed = self.changed.notified();
            let mut place = std::pin::pin!(Arc::clone(&self.free).acquire_owned());
            tokio::select! {
                biased;
                place = &mut place => return place.expect("nobody closes the semaphore"),
                () = std::future::ready(()) => {}
            }
            if self.send_away() {
                if let Ok(place) = tokio::time::timeout(GOING, place).await {
                    return place.expect("nobody closes the semaphore");
                }
                continue;
            }
            tokio::select! {
                place = place => return place.expect("nobody closes the semaphore"),
                () = changed => {}
            }
        }
    }

    /// Waits until every place is free again.
    pub(super) async fn all_free(&self) {
        // Let go of at once: it only shows that nobody else has any.
        let _ = self.free.acquire_many(self.total).await;
    }

    fn send_away(&self) -> bool {
        let longest = self.idle().seats.pop_first();
        longest.inspect(|(_, told)| told.notify_one()).is_some()
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, as `Places` sees it: idle until it says otherwise.
pub(super) struct Seat {
    places: Arc<Places>,
    told: Arc<Notify>,
    /// Its number among the idle. It may have been told to go meanwhile.
    idle_as: Mutex<Option<u64>>,
}

impl Seat {
    pub(super) fn new(places: Arc<Places>) -> Arc<Self> {
        let seat = Arc::new(Self { places, told: Arc::new(Notify::new()), idle_as: Mutex::default() });
        seat.rest();
        seat
    }

    /// Ends when this connection has to make room.
    pub(super) async fn told_to_go(&self) {
        self.told.notified().await;
    }

    /// Marks it busy until what is returned is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.leave_the_idle();
        Busy { seat: Some(Arc::clone(self)) }
    }

    fn rest(&self) {
        let mut idle = self.places.idle();
        let number = idle.next;
        idle.next += 1;
        idle.seats.insert(number, Arc::clone(&self.told));
        *self.idle_as.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
        drop(idle);
        self.places.changed.notify_waiters();
    }

    fn leave_the_idle(&self) {
        let mut idle = self.places.idle();
        if let Some(number) = self.idle_as.lock().unwrap_or_else(PoisonError::into_inner).take() {
            idle.seats.remove(&number);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave_the_idle();
    }
}

/// A connection is answering.
pub(super) struct Busy {
    seat: Option<Arc<Seat>>,
}

impl Busy {
    /// It stays busy: it speaks another protocol from now on.
    pub(super) fn for_good(mut self) {
        self.seat = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(seat) = &self.seat {
            seat.rest();
        }
    }
}
