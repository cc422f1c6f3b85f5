//! A machine's clocks that move only when a test moves them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use holdgate_core::Time;
use holdgate_store::clock::Clock;

/// Clocks that stand still until they are moved.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicI64,
}

impl ManualClock {
    /// Clocks that stand at `wall`.
    pub fn at(wall: Time) -> Arc<Self> {
        Arc::new(Self { wall_ms: AtomicI64::new(wall.as_ms()), monotonic_ms: AtomicI64::new(0) })
    }

    /// Lets `ms` milliseconds pass.
    pub fn advance(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock, forward or back. No time passes.
    pub fn set_wall(&self, wall: Time) {
        self.wall_ms.store(wall.as_ms(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Time {
        Time::from_ms(self.wall_ms.load(Ordering::SeqCst))
    }

    fn monotonic_ms(&self) -> i64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }
}
