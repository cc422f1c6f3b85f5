//! Who may act: credentials, devices, pairing codes, freezes, page sessions. Secrets never come here, only their hashes.

use holdgate_core::limits::{DEVICE_SESSION_MS, PAGE_SESSION_MS};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Digest, PersonId, Principal, PrincipalId, Refusal, Scopes};
use holdgate_store::{Administered, Administration, Answer, Device, Freeze, Identity, Op};

use super::{Service, commit, refused};
use crate::error::Error;

impl Service {
    /// Changes who may act.
    ///
    /// # Errors
    /// `missing_scope` for who is no administrator; `not_found`, `id_taken`.
    pub async fn administer(&self, change: Administration, by: &Principal) -> Result<(), Error> {
        let op = Op::Administer { change, by: by.into() };
        commit(self.store.execute(op).await?, |answer| {
            matches!(answer, Answer::Done | Answer::Principal(_)).then_some(())
        })
    }

    /// Pairs a device with a code. Answers who it is from now on.
    ///
    /// # Errors
    /// `pairing_code_invalid`.
    pub async fn pair(&self, code: Digest, device: Device, token: Digest) -> Result<Principal, Error> {
        self.principal_of(Op::Pair { code, device: Box::new(device), token }).await
    }

    /// Pairs a device that came with the shared operator credential, as one of `person`'s.
    ///
    /// # Errors
    /// `not_found` for a device that was revoked.
    pub async fn admit(
        &self,
        device: Device,
        person: PersonId,
        scopes: Scopes,
        token: Digest,
    ) -> Result<Principal, Error> {
        self.principal_of(Op::Admit { device: Box::new(device), person, scopes, token }).await
    }

    async fn principal_of(&self, op: Op) -> Result<Principal, Error> {
        commit(self.store.execute(op).await?, |answer| match answer {
            Answer::Principal(principal) => Some(*principal),
            _ => None,
        })
    }

    /// One identity as it is now, if it still is one.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn identity(&self, id: &PrincipalId) -> Result<Option<Identity>, Error> {
        Ok(self.store.identity(id).await?)
    }

    /// Everybody who may act.
    ///
    /// # Errors
    /// `missing_scope` for who is no administrator.
    pub async fn identities(&self, by: &Principal) -> Result<Vec<Identity>, Error> {
        self.check_admin(by)?;
        Ok(self.store.identities().await?)
    }

    /// What is frozen.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn freezes(&self) -> Result<Vec<Freeze>, Error> {
        Ok(self.store.freezes().await?)
    }

    /// What was administered after the fact of number `after`.
    ///
    /// # Errors
    /// `missing_scope` for who is no administrator.
    pub async fn administration(
        &self,
        after: u64,
        limit: u32,
        by: &Principal,
    ) -> Result<Vec<Administered>, Error> {
        self.check_admin(by)?;
        Ok(self.store.administration(after, limit).await?)
    }

    /// Remembers that a reviewer signed in, by the hash of the session's secret. Answers for how long, in
    /// milliseconds.
    ///
    /// # Errors
    /// Refuses an identity that may not review.
    pub async fn open_page_session(&self, hash: Digest, by: &Principal) -> Result<i64, Error> {
        // A device is one person's and can be ended by itself; the operator's credential is neither.
        let lasts_ms = if by.kind == PrincipalKind::Device { DEVICE_SESSION_MS } else { PAGE_SESSION_MS };
        let op = Op::OpenPageSession { hash, by: by.into(), lasts_ms };
        commit(self.store.execute(op).await?, |answer| matches!(answer, Answer::Done).then_some(()))?;
        Ok(lasts_ms)
    }

    /// Refuses who is no administrator.
    ///
    /// # Errors
    /// `missing_scope`.
    pub(crate) fn check_admin(&self, by: &Principal) -> Result<(), Error> {
        if by.is_admin() { Ok(()) } else { Err(refused(&Refusal::NotAnAdministrator)) }
    }
}
