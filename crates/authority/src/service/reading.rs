//! Reads: one record, waiting for one, lists, history, a session's stream. All through one rule of access.

use std::time::Duration;

use holdgate_core::approval::Status;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Access, ApprovalId, Principal, Refusal, Time, access};
use holdgate_store::{Credential, Filter, HistoryFilter, Seen, Stored};
use holdgate_wire::Code;

use super::{Found, Service, refused};
use crate::error::Error;

/// A waiter looks again this often even if it hears nothing: a hint can be lost.
const POLL: Duration = Duration::from_secs(5);
/// How many records are looked at together for somebody who may see only some of them.
const SCAN_PAGE: u32 = 256;
/// How many records one page of a list looks at in the end. Whoever sees few of many gets short pages.
const SCAN_LIMIT: usize = 2_048;

/// A record's place in a list: when it was made or ended, and its id.
type Place = (Time, ApprovalId);

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
        let deadline = tokio::time::Instant::now() + timeout;
        let mut by = by.clone();
        loop {
            // Listen first, then look: a change in between wakes the wait instead of being missed.
            let mut change = self.waiters.listen(id);
            let found = self.find(id.as_str(), &by).await?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let Some(approval) = found.pending().filter(|_| !left.is_zero()) else {
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

    /// Lists records, newest first.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn list(&self, filter: Filter, by: &Principal) -> Result<Page, Error> {
        let asks_only = matches!(by.kind, PrincipalKind::Agent | PrincipalKind::Runtime);
        let requester = if asks_only { Some(by.id.clone()) } else { filter.requester.clone() };
        let (status, limit) = (filter.status, filter.limit as usize);
        let mut before = filter.before.clone();
        let (mut items, mut scanned) = (Vec::new(), 0);
        loop {
            let page = Filter { before: before.clone(), requester: requester.clone(), ..filter.clone() };
            let page = Filter { limit: scan(limit, asks_only || by.is_admin()), ..page };
            let asked = page.limit as usize;
            let seen = self.store.approvals(page).await?;
            let is_last = seen.len() < asked;
            scanned += seen.len();
            for seen in seen {
                if items.len() == limit {
                    return Ok((items, before));
                }
                before = Some(seen.place.clone());
                // Time may have moved a record on that is still stored as pending.
                let found = self.found(seen, by, Access::may_read);
                items.extend(found.filter(|found| status.is_none_or(|status| found.status() == status)));
            }
            if is_last || scanned >= SCAN_LIMIT {
                return Ok((items, before.filter(|_| !is_last)));
            }
        }
    }

    /// Lists records that have ended, the last one to end first. Of what this reader may read, only.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn history(&self, filter: HistoryFilter, by: &Principal) -> Result<Page, Error> {
        let limit = filter.limit as usize;
        let mut before = filter.before.clone();
        let (mut items, mut scanned) = (Vec::new(), 0);
        loop {
            let page =
                HistoryFilter { before: before.clone(), limit: scan(limit, by.is_admin()), ..filter.clone() };
            let asked = page.limit as usize;
            let seen = self.store.history(page).await?;
            let is_last = seen.len() < asked;
            scanned += seen.len();
            for seen in seen {
                if items.len() == limit {
                    return Ok((items, before));
                }
                before = Some(seen.place.clone());
                items.extend(self.found(seen, by, Access::may_read));
            }
            if is_last || scanned >= SCAN_LIMIT {
                return Ok((items, before.filter(|_| !is_last)));
            }
        }
    }

    /// What a session's stream shows of pending requests to `by`, oldest first, and whether there are more than
    /// `limit`. Only what `by` may review; what time has ended meanwhile is left out.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn replay(
        &self,
        session_key: &str,
        limit: usize,
        by: &Principal,
    ) -> Result<(Vec<holdgate_core::Approval>, bool), Error> {
        let most = u32::try_from(limit + 1).unwrap_or(u32::MAX);
        let seen = self.store.pending_of_session(session_key, most).await?;
        let truncated = seen.len() > limit;
        let found = seen.into_iter().take(limit).filter_map(|seen| self.found(seen, by, Access::may_decide));
        let pending = found.filter_map(|found| match found {
            Found::Sound(approval) if approval.status() == Status::Pending => Some(*approval),
            Found::Sound(_) | Found::Corrupt(_) => None,
        });
        Ok((pending.collect(), truncated))
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

/// How many records to look at for one page: one more than it holds, or many if some will be left out.
fn scan(limit: usize, sees_all: bool) -> u32 {
    let one_more = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    if sees_all { one_more } else { one_more.max(SCAN_PAGE) }
}
