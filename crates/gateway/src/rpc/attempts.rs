//! How often somebody may be wrong about a secret.
//!
//! Owns the limits on failed credentials and on pairing codes, for each address and in all. A credential that this
//! gateway minted has 256 random bits: no number of attempts finds one, so the right one is never turned away. What a
//! person types or chose is, while its address is over the limit.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Failed credentials: so many of one address at once, and then so many a minute.
const FAILED_BURST: u32 = 20;
const FAILED_A_MINUTE: u32 = 60;
/// The same of all addresses together.
const FAILED_IN_ALL_BURST: u32 = 400;
const FAILED_IN_ALL_A_MINUTE: u32 = 2_400;
/// Pairing codes, right or wrong: no minute sees more than ten.
const CODES_BURST: u32 = 5;
const CODES_A_MINUTE: u32 = 5;
/// The same of all addresses together: no minute sees more than sixty. A code has at least 40 bits and lives five
/// minutes, so at this rate about one code in five thousand million is guessed.
const CODES_IN_ALL_BURST: u32 = 30;
const CODES_IN_ALL_A_MINUTE: u32 = 30;
/// How many addresses are remembered before those that have been quiet are forgotten.
const ADDRESSES: usize = 4_096;

/// Who was wrong how often, since this gateway started.
pub(crate) struct Attempts {
    failed: Limit,
    /// Who is over the limit, and until when.
    over: Mutex<HashMap<IpAddr, Instant>>,
    codes: Limit,
}

struct Limit {
    of_one: DefaultKeyedRateLimiter<IpAddr>,
    in_all: DefaultDirectRateLimiter,
    clock: DefaultClock,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        Self {
            failed: Limit::new(
                (FAILED_BURST, FAILED_A_MINUTE),
                (FAILED_IN_ALL_BURST, FAILED_IN_ALL_A_MINUTE),
            ),
            over: Mutex::default(),
            codes: Limit::new((CODES_BURST, CODES_A_MINUTE), (CODES_IN_ALL_BURST, CODES_IN_ALL_A_MINUTE)),
        }
    }

    /// Counts a credential that was wrong.
    ///
    /// # Errors
    /// The address, or everybody, was wrong too often: how long to wait.
    pub(crate) fn failed(&self, peer: IpAddr) -> Result<(), Duration> {
        let taken = self.failed.take(peer);
        if let Err(wait) = taken {
            let now = self.failed.clock.now();
            let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            if over.len() > ADDRESSES {
                over.retain(|_, until| *until > now);
            }
            over.insert(network(peer), now + wait);
        }
        taken
    }

    /// Whether credentials that somebody chose may be tried now.
    ///
    /// # Errors
    /// The address was wrong too often: how long to wait.
    pub(crate) fn may_guess(&self, peer: IpAddr) -> Result<(), Duration> {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let left =
            over.get(&network(peer)).map(|until| until.saturating_duration_since(self.failed.clock.now()));
        left.filter(|left| !left.is_zero()).map_or(Ok(()), Err)
    }

    /// Counts a pairing code before it is looked at.
    ///
    /// # Errors
    /// Too many came from this address, or in all: how long to wait.
    pub(crate) fn code(&self, peer: IpAddr) -> Result<(), Duration> {
        self.codes.take(peer)
    }
}

impl Limit {
    fn new(of_one: (u32, u32), in_all: (u32, u32)) -> Self {
        Self {
            of_one: RateLimiter::keyed(quota(of_one)),
            in_all: RateLimiter::direct(quota(in_all)),
            clock: DefaultClock::default(),
        }
    }

    fn take(&self, peer: IpAddr) -> Result<(), Duration> {
        if self.of_one.len() > ADDRESSES {
            self.of_one.retain_recent();
        }
        let now = self.clock.now();
        // One address alone does not use up what there is for all.
        self.of_one.check_key(&network(peer)).map_err(|until| until.wait_time_from(now))?;
        self.in_all.check().map_err(|until| until.wait_time_from(now))
    }
}

fn quota((burst, a_minute): (u32, u32)) -> Quota {
    let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    Quota::per_minute(at_least_one(a_minute)).allow_burst(at_least_one(burst))
}

/// Whom an address stands for: a household has 2^64 of the new ones.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_wrong_too_often_waits_and_others_do_not() {
        let attempts = Attempts::new();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        for _ in 0..FAILED_BURST {
            assert_eq!(attempts.failed(one), Ok(()));
        }
        let wait = attempts.failed(one).unwrap_err();
        assert!(!wait.is_zero() && wait <= Duration::from_secs(1), "{wait:?}");
        assert!(attempts.may_guess(one).is_err());
        assert_eq!(attempts.failed(other), Ok(()));
        assert_eq!(attempts.may_guess(other), Ok(()));
        assert_eq!(attempts.code(one), Ok(()), "codes are counted by themselves");
    }

    #[test]
    fn many_addresses_together_have_a_limit_too() {
        let attempts = Attempts::new();
        let refused =
            (0..=255).filter(|last| attempts.code(IpAddr::from([192, 0, 2, *last])).is_err()).count();
        assert_eq!(refused, 256 - CODES_IN_ALL_BURST as usize);
    }

    #[test]
    fn the_addresses_of_one_network_are_one() {
        let (one, other) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert_eq!(network(one), network(other));
        assert_ne!(network(one), network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
    }
}
