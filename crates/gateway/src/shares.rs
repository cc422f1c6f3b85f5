//! What one identity may take of a gateway at once, so that no credential, lost or careless, takes what all need.
//!
//! Owns the bounds of each identity and who has taken how much. What is taken is given back when it is dropped. How many
//! connections there are in all is `connections`'.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use holdgate_core::PrincipalId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many bytes of answers may be made and not sent yet, in KiB: whoever does not read its answers gets no more.
const UNSENT_KIB: usize = 32 << 10;
/// How many calls over WebSockets may wait for somebody's answer.
const WAITS: usize = 20_000;

/// The shares of all identities.
pub(crate) struct Shares {
    /// How many connections and requests of one identity there may be.
    places: usize,
    taken: Mutex<HashMap<PrincipalId, Weak<Share>>>,
    /// Of everybody who has shown no credential yet.
    strangers: Arc<Share>,
}

/// What one identity may take.
pub(crate) struct Share {
    places: Arc<Semaphore>,
    unsent: Arc<Semaphore>,
    waits: Arc<Semaphore>,
}

/// One request or WebSocket of an identity.
pub(crate) struct Guest {
    share: Arc<Share>,
    _place: OwnedSemaphorePermit,
}

/// The identity has taken all that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Shares {
    /// Shares of a gateway with so many places for connections. Nobody gets more than half of them.
    pub(crate) fn of(places: usize) -> Arc<Self> {
        let places = (places / 2).max(1);
        Arc::new(Self { places, taken: Mutex::default(), strangers: Share::of(places) })
    }

    /// Lets one more in who has shown no credential yet.
    ///
    /// # Errors
    /// There are as many as may be.
    pub(crate) fn stranger(&self) -> Result<Guest, Exhausted> {
        Guest::of(Arc::clone(&self.strangers))
    }

    /// Lets one more request or connection of an identity in.
    ///
    /// # Errors
    /// It has as many as it may.
    pub(crate) fn enter(&self, id: &PrincipalId) -> Result<Guest, Exhausted> {
        Guest::of(self.share(id))
    }

    fn share(&self, id: &PrincipalId) -> Arc<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = taken.get(id).and_then(Weak::upgrade) {
            return share;
        }
        // An entry stays behind when the last guest has left.
        taken.retain(|_, share| share.strong_count() > 0);
        let share = Share::of(self.places);
        taken.insert(id.clone(), Arc::downgrade(&share));
        share
    }
}

impl Share {
    fn of(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places)),
            unsent: Arc::new(Semaphore::new(UNSENT_KIB)),
            waits: Arc::new(Semaphore::new(WAITS)),
        })
    }
}

impl Guest {
    fn of(share: Arc<Share>) -> Result<Self, Exhausted> {
        let place = Arc::clone(&share.places).try_acquire_owned().map_err(|_| Exhausted)?;
        Ok(Self { share, _place: place })
    }

    /// Room for an answer of so many bytes, until it is sent. One that is larger than all the room goes alone.
    ///
    /// # Errors
    /// Too much is made and not sent.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Exhausted> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10).clamp(1, UNSENT_KIB)).map_err(|_| Exhausted)?;
        Arc::clone(&self.share.unsent).try_acquire_many_owned(kib).map_err(|_| Exhausted)
    }

    /// Room for a call that waits.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) fn wait(&self) -> Result<OwnedSemaphorePermit, Exhausted> {
        Arc::clone(&self.share.waits).try_acquire_owned().map_err(|_| Exhausted)
    }
}

/// What one HTTP request has taken of its identity's share: an extension of the request, kept until its answer is sent.
#[derive(Clone, Default)]
pub(crate) struct Taken(Arc<Kept>);

#[derive(Default)]
struct Kept {
    guest: OnceLock<Guest>,
    room: OnceLock<OwnedSemaphorePermit>,
}

impl Taken {
    /// The request is this identity's.
    pub(crate) fn by(&self, guest: Guest) {
        // A request has one identity, however often it is asked for.
        let _ = self.0.guest.set(guest);
    }

    /// Takes room for the answer, if anybody is known to have asked for it.
    ///
    /// # Errors
    /// Too much is made and not sent.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<(), Exhausted> {
        if let Some(guest) = self.0.guest.get() {
            // An answer is sent once.
            let _ = self.0.room.set(guest.room_for(bytes)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> PrincipalId {
        name.parse().unwrap()
    }

    #[test]
    fn nobody_takes_more_than_half_of_the_places_and_others_find_theirs() {
        let shares = Shares::of(5);
        let greedy: Vec<_> = (0..2).map(|_| shares.enter(&id("greedy")).unwrap()).collect();
        assert_eq!(shares.enter(&id("greedy")).err(), Some(Exhausted));
        let _other = shares.enter(&id("other")).unwrap();
        drop(greedy);
        shares.enter(&id("greedy")).unwrap();
    }

    #[test]
    fn strangers_take_half_together() {
        let shares = Shares::of(4);
        let strangers = (shares.stranger().unwrap(), shares.stranger().unwrap());
        assert_eq!(shares.stranger().err(), Some(Exhausted));
        shares.enter(&id("known")).unwrap();
        drop(strangers);
        shares.stranger().unwrap();
    }

    #[test]
    fn what_is_not_read_bounds_what_more_is_answered_over_all_connections() {
        let shares = Shares::of(8);
        let (one, two) = (shares.enter(&id("slow")).unwrap(), shares.enter(&id("slow")).unwrap());
        let half = UNSENT_KIB << 9;
        let unsent = (one.room_for(half).unwrap(), two.room_for(half).unwrap());
        assert_eq!(two.room_for(1).err(), Some(Exhausted));
        assert!(shares.enter(&id("other")).unwrap().room_for(half).is_ok());
        drop(unsent);
        assert!(one.room_for(usize::MAX).is_ok(), "one that is larger than all the room goes alone");
    }

    #[test]
    fn who_has_left_is_forgotten() {
        let shares = Shares::of(8);
        for n in 0..100 {
            shares.enter(&id(&format!("agent-{n}"))).unwrap();
        }
        assert!(shares.taken.lock().unwrap().len() <= 1);
    }
}
