//! Reads: one record, waiting for one, lists, history, a session's stream. All through one rule of access.

use std::time::Duration;

use holdgate_core::limits::{PAGE_BYTES, PAGE_ITEMS};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Access, Approval, ApprovalId, Principal, PrincipalId, Refusal, access};
use holdgate_store::{Credential, Filter, HistoryFilter, Kinds, Place, Seen, StoreError, Stored};
use holdgate_wire::Code;

use super::{Found, Service, refused};
use crate::error::Error;

/// A waiter looks again this often even if it hears nothing: a hint can be lost.
const POLL: Duration = Duration::from_secs(5);
/// How many records are looked at together for somebody who may see only some of them.
const SCAN_CHUNK: u32 = 256;

/// One page of a list, and where the next one begins.
pub type Page = (Vec<Found>, Option<Place>);

impl Service {
    /// The identity behind a credential.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn authenticate(&self, credential: Credential) -> Result<Option<Principal>, Error> {
        Ok(self.store.credential(credential).await?)
    }

    /// Reads a record by its id or its reference. What this reader may not read does not exist.
    ///
    /// # Errors
    /// `not_found`, or the store failed.
    pub async fn find(&self, locator: &str, by: &Principal) -> Result<Found, Error> {
        self.with_access(locator, by, Access::may_read).await
    }

    /// A record that `by` may answer, by its id or its reference. Not to be shown unless `by` may read it as well.
    ///
    /// # Errors
    /// `not_found`, or the store failed.
    pub async fn decidable(&self, locator: &str, by: &Principal) -> Result<Found, Error> {
        self.with_access(locator, by, Access::may_decide).await
    }

    async fn with_access(
        &self,
        locator: &str,
        by: &Principal,
        is_enough: fn(Access) -> bool,
    ) -> Result<Found, Error> {
        let seen = self.store.approval(locator).await?;
        seen.and_then(|seen| self.found(seen, by, is_enough)).ok_or_else(|| refused(&Refusal::NotFound))
    }

    /// Waits until the record has ended, at most `timeout`.
    ///
    /// # Errors
    /// `not_found`, or the store failed.
    pub async fn wait(&self, id: &ApprovalId, timeout: Duration, by: &Principal) -> Result<Found, Error> {
        self.wait_until(id, timeout, by, |_| false).await
    }

    /// Waits until the record is another than `seen` or has ended, at most `timeout`.
    ///
    /// # Errors
    /// `not_found`, or the store failed.
    pub async fn wait_for_change(
        &self,
        id: &ApprovalId,
        seen: &Approval,
        timeout: Duration,
        by: &Principal,
    ) -> Result<Found, Error> {
        self.wait_until(id, timeout, by, |pending| pending != seen).await
    }

    async fn wait_until(
        &self,
        id: &ApprovalId,
        timeout: Duration,
        by: &Principal,
        is_enough: impl Fn(&Approval) -> bool,
    ) -> Result<Found, Error> {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut by = by.clone();
        loop {
            // Listen first, then look: a change in between wakes the wait instead of being missed.
            let mut change = self.waiters.listen(id);
            let found = self.find(id.as_str(), &by).await?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let Some(approval) = found.pending().filter(|pending| !left.is_zero() && !is_enough(pending))
            else {
                return Ok(found);
            };
            let expires_in = approval.expires_at.ms_after(self.store.now());
            let due = Duration::from_millis(expires_in.unsigned_abs().max(1));
            tokio::select! {
                () = change.heard() => {}
                () = tokio::time::sleep(left.min(due).min(POLL)) => {}
            }
            by = self.as_of_now(by).await?;
        }
    }

    /// The same identity as it is now, with no more than it had. Whoever waits may have been ended meanwhile.
    async fn as_of_now(&self, by: Principal) -> Result<Principal, Error> {
        if by.kind == PrincipalKind::Authority {
            return Ok(by);
        }
        match self.store.identity(&by.id).await? {
            Some(known) => Ok(known.principal.narrowed(by.scopes)),
            None => Err(Error::new(Code::Unauthenticated, "the credential is not known here any more")),
        }
    }

    /// Lists records, newest first. Of what this reader may read, only.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn list(&self, filter: Filter, by: &Principal) -> Result<Page, Error> {
        let filter = Filter { requester: own(by).or(filter.requester), ..filter };
        let begin = Pages { before: filter.before.clone(), limit: filter.limit, is_enough: Access::may_read };
        // Time may have moved a record on that is still stored as pending.
        let admits = |found: &Found| {
            is_among(found, filter.kinds) && filter.status.is_none_or(|status| found.status() == status)
        };
        let read = |before, limit| self.store.approvals(Filter { before, limit, ..filter.clone() });
        self.page(begin, by, admits, read).await
    }

    /// Lists records that have ended, the last one to end first. Of what this reader may read, only.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn history(&self, filter: HistoryFilter, by: &Principal) -> Result<Page, Error> {
        let filter = HistoryFilter { requester: own(by).or(filter.requester), ..filter };
        let begin = Pages { before: filter.before.clone(), limit: filter.limit, is_enough: Access::may_read };
        let read = |before, limit| self.store.history(HistoryFilter { before, limit, ..filter.clone() });
        self.page(begin, by, |found| is_among(found, filter.kinds), read).await
    }

    /// What a session's stream shows of pending requests to `by`, oldest first, and whether there are more than
    /// `limit`. Only what `by` may review; what time has ended meanwhile is left out.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn replay(
        &self,
        session_key: &str,
        limit: u32,
        by: &Principal,
    ) -> Result<(Vec<Approval>, bool), Error> {
        let begin = Pages { before: None, limit, is_enough: Access::may_decide };
        let is_pending = |found: &Found| found.pending().is_some();
        let read = |after, limit| self.store.pending_of_session(session_key, after, limit);
        let (found, more) = self.page(begin, by, is_pending, read).await?;
        let sound = found.into_iter().filter_map(|found| match found {
            Found::Sound(approval) => Some(*approval),
            Found::Corrupt(_) => None,
        });
        Ok((sound.collect(), more.is_some()))
    }

    /// Reads on until a page is full of what `by` may see, by number or by bytes, and one more is found; or there is
    /// nothing more. Neither its length nor where the next one begins tells of anything else.
    async fn page<F>(
        &self,
        begin: Pages,
        by: &Principal,
        admits: impl Fn(&Found) -> bool,
        read: impl Fn(Option<Place>, u32) -> F,
    ) -> Result<Page, Error>
    where
        F: Future<Output = Result<Vec<Seen>, StoreError>>,
    {
        let Pages { mut before, limit, is_enough } = begin;
        let (mut items, mut bytes, mut last) = (Vec::new(), 0, None);
        // One page and one more; whoever wants more than that at once goes through many.
        let (mut chunk, mut scan) = ((limit + 1).min(PAGE_ITEMS + 1), None);
        loop {
            let seen = read(before, chunk).await?;
            let is_end =
                seen.len() < chunk as usize && seen.iter().map(Seen::text_bytes).sum::<usize>() < PAGE_BYTES;
            before = seen.last().map(|seen| seen.place.clone());
            for seen in seen {
                let (place, taken) = (seen.place.clone(), seen.text_bytes());
                let Some(found) = self.found(seen, by, is_enough).filter(&admits) else {
                    continue;
                };
                bytes += taken;
                if items.len() == limit as usize || (bytes > PAGE_BYTES && !items.is_empty()) {
                    return Ok((items, last));
                }
                items.push(found);
                last = Some(place);
            }
            if is_end {
                return Ok((items, None));
            }
            chunk = SCAN_CHUNK;
            if scan.is_none() {
                // Kept until the end.
                scan = Some(self.scans.begin(&by.id).await);
            }
        }
    }

    fn found(&self, seen: Seen, by: &Principal, is_enough: fn(Access) -> bool) -> Option<Found> {
        match seen.stored {
            // Nothing is told of it but that it counts as denied.
            Stored::Corrupt { id, .. } => by.may_review().then_some(Found::Corrupt(id)),
            Stored::Sound(approval) => is_enough(access(&approval, by)).then(|| {
                let change = approval.reconcile(seen.bound, self.store.now());
                Found::Sound(change.map_or(approval, |change| Box::new(change.approval)))
            }),
        }
    }
}

/// Where pages begin, how many records each holds, and what access to a record puts it there.
struct Pages {
    before: Option<Place>,
    limit: u32,
    is_enough: fn(Access) -> bool,
}

/// The only requester whose records somebody who asks and does not review may read: itself.
fn own(by: &Principal) -> Option<PrincipalId> {
    matches!(by.kind, PrincipalKind::Agent | PrincipalKind::Runtime).then(|| by.id.clone())
}

/// Whether a record is of one of these kinds. One that cannot be read is of none.
fn is_among(found: &Found, kinds: Kinds) -> bool {
    matches!(found, Found::Sound(_)) || kinds == Kinds::All
}
