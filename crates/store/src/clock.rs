//! The authority's clock. The only place that asks the machine for the time.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use holdgate_core::Time;

/// A machine's clocks.
pub trait Clock: Send + Sync {
    /// Wall-clock time. May jump either way.
    fn wall(&self) -> Time;
    /// Milliseconds since some fixed instant. Never goes back.
    fn monotonic_ms(&self) -> i64;
}

/// This machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Reads from now on.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// The authority's time: the wall clock, but never behind the last committed time plus what has passed
/// since. A clock set back revives nothing; a clock set forward ends things early, which fails closed.
pub struct AuthorityClock {
    clock: Arc<dyn Clock>,
    floor: Mutex<Floor>,
}

struct Floor {
    committed: Time,
    at_monotonic_ms: i64,
}

impl AuthorityClock {
    /// Starts from the time of the last commit that the database remembers.
    pub fn new(clock: Arc<dyn Clock>, last_committed: Time) -> Self {
        let at_monotonic_ms = clock.monotonic_ms();
        Self { clock, floor: Mutex::new(Floor { committed: last_committed, at_monotonic_ms }) }
    }

    /// The authority's time now.
    pub fn now(&self) -> Time {
        let floor = self.floor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let elapsed = self.clock.monotonic_ms() - floor.at_monotonic_ms;
        self.clock.wall().max(floor.committed.plus_ms(elapsed))
    }

    /// Remembers that something was committed at `at`.
    pub fn committed(&self, at: Time) {
        let now_ms = self.clock.monotonic_ms();
        let mut floor = self.floor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let elapsed = now_ms - floor.at_monotonic_ms;
        *floor = Floor { committed: at.max(floor.committed.plus_ms(elapsed)), at_monotonic_ms: now_ms };
    }
}
