//! Points in time as the authority counts them. Owns no clock.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, by the authority's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(i64);

impl Time {
    /// The point `ms` milliseconds after the Unix epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// The point `ms` milliseconds later; a sum past the end of time is the end of time.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Whether a deadline at `self` has been reached at `now`. Exactly at the deadline counts.
    pub const fn reached_at(self, now: Time) -> bool {
        now.0 >= self.0
    }

    /// Milliseconds from `now` until `self`, zero when it has passed.
    pub const fn ms_after(self, now: Time) -> i64 {
        let left = self.0.saturating_sub(now.0);
        if left < 0 { 0 } else { left }
    }
}
