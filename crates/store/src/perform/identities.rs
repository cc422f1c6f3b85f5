//! Operations on who may act: credentials, devices, pairing, groups, freezes, page sessions.

use std::collections::BTreeMap;

use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Actor, AdministrationEvent, Digest, PersonId, Principal, PrincipalId, Refusal, Scopes};

use super::{DONE, Step, Transaction, accept};
use crate::ledger::Ledger;
use crate::{Administration, Answer, By, Device, Notice, Outcome};

/// How many credentials one device may hold: each of its programs keeps the one that it was given.
const DEVICE_CREDENTIALS: u32 = 4;

impl<L: Ledger> Transaction<'_, L> {
    /// The home's own credentials, by whoever has the file.
    pub(super) fn provision(
        &mut self,
        hash: Digest,
        principal: &Principal,
        recovers: bool,
    ) -> Step<Outcome, L::Error> {
        self.ledger.put_principal(principal, None, self.now)?;
        if self.issue(hash, &principal.id, 1)? && recovers {
            self.administered(&AdministrationEvent::OperatorRecovered, &Principal::authority())?;
        }
        Ok(Ok(DONE))
    }

    pub(super) fn administer(&mut self, change: Administration, by: &By) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        if !by.is_admin() {
            return Ok(Err(Refusal::NotAnAdministrator.into()));
        }
        match change {
            Administration::IssueToken { hash, principal } => {
                if self.ledger.principal(&principal.id)?.is_some() {
                    return Ok(Err(Refusal::IdTaken.into()));
                }
                self.ledger.put_principal(&principal, None, self.now)?;
                self.issue_and_record(hash, &principal.id, &by)?;
                Ok(Ok(Outcome::Committed(Answer::Principal(principal))))
            }
            Administration::RotateToken { id, hash } => {
                let principal = accept!(self.ledger.principal(&id)?.ok_or(Refusal::NotFound));
                self.issue_and_record(hash, &id, &by)?;
                Ok(Ok(Outcome::Committed(Answer::Principal(Box::new(principal)))))
            }
            Administration::Revoke { id } => self.revoke(&id, &by),
            Administration::OfferPairing { code, person, scopes, lasts_ms } => {
                self.ledger.put_pairing(code, &person, scopes, self.now.plus_ms(lasts_ms), self.now)?;
                let offered = AdministrationEvent::PairingOffered { person: person.to_string() };
                self.administered(&offered, &by)?;
                Ok(Ok(DONE))
            }
            Administration::Freeze { agent, reason } => {
                self.ledger.put_freeze(agent.as_ref(), reason.as_deref(), &Actor::from(&by), self.now)?;
                let agent = agent.map(|agent| agent.to_string());
                self.administered(&AdministrationEvent::Frozen { agent }, &by)?;
                Ok(Ok(DONE))
            }
            Administration::Thaw { agent } => {
                if !self.ledger.drop_freeze(agent.as_ref())? {
                    return Ok(Ok(Outcome::Duplicate(Answer::Done)));
                }
                let agent = agent.map(|agent| agent.to_string());
                self.administered(&AdministrationEvent::Thawed { agent }, &by)?;
                Ok(Ok(DONE))
            }
        }
    }

    /// Ends an identity. The home's own are not ended over the network: whoever locks everybody out has to do it with
    /// the file.
    fn revoke(&mut self, id: &PrincipalId, by: &Principal) -> Step<Outcome, L::Error> {
        let principal = accept!(self.ledger.principal(id)?.ok_or(Refusal::NotFound));
        if principal.kind == PrincipalKind::Administrator && by.kind != PrincipalKind::Authority {
            return Ok(Err(Refusal::NotAnAdministrator.into()));
        }
        self.ledger.revoke_principal(id, self.now)?;
        self.ledger.drop_credentials(id, 0)?;
        self.administered(&AdministrationEvent::Revoked { principal: id.to_string() }, by)?;
        self.ledger.notify(Notice::Identity(Some(id.clone())));
        Ok(Ok(Outcome::Committed(Answer::Principal(Box::new(principal)))))
    }

    pub(super) fn pair(&mut self, code: Digest, device: &Device, token: Digest) -> Step<Outcome, L::Error> {
        let (person, scopes) =
            accept!(self.ledger.take_pairing(code, self.now)?.ok_or(Refusal::PairingCodeInvalid));
        self.put_device(device, person, scopes, token)
    }

    pub(super) fn admit(
        &mut self,
        device: &Device,
        person: PersonId,
        scopes: Scopes,
        token: Digest,
    ) -> Step<Outcome, L::Error> {
        match self.ledger.principal(&device.id)? {
            // A device that somebody paired keeps its person and what it may do.
            Some(paired) if paired.person.as_ref() != Some(&person) => {
                self.issue(token, &paired.id, DEVICE_CREDENTIALS)?;
                Ok(Ok(Outcome::Duplicate(Answer::Principal(Box::new(paired)))))
            }
            Some(known) => {
                let scopes = scopes.or(known.scopes);
                self.put_device(device, person, scopes, token)
            }
            // Revoked is revoked: coming back takes a code.
            None if self.ledger.device(&device.id)?.is_some() => Ok(Err(Refusal::NotFound.into())),
            None => self.put_device(device, person, scopes, token),
        }
    }

    fn put_device(
        &mut self,
        device: &Device,
        person: PersonId,
        scopes: Scopes,
        token: Digest,
    ) -> Step<Outcome, L::Error> {
        let principal = Principal {
            person: Some(person.clone()),
            scopes,
            ..Principal::new(device.id.clone(), PrincipalKind::Device, device.label.clone())
        };
        let paired =
            AdministrationEvent::Paired { principal: device.id.to_string(), person: person.to_string() };
        self.ledger.put_principal(&principal, Some(device), self.now)?;
        self.issue(token, &device.id, DEVICE_CREDENTIALS)?;
        self.administered(&paired, &principal)?;
        // With its groups, as others will find it.
        let principal = accept!(self.ledger.principal(&device.id)?.ok_or(Refusal::NotFound));
        Ok(Ok(Outcome::Committed(Answer::Principal(Box::new(principal)))))
    }

    pub(super) fn put_groups(&mut self, groups: &BTreeMap<String, Vec<PersonId>>) -> Step<Outcome, L::Error> {
        if !self.ledger.put_groups(groups)? {
            return Ok(Ok(Outcome::Duplicate(Answer::Done)));
        }
        self.administered(&AdministrationEvent::GroupsChanged, &Principal::authority())?;
        self.ledger.notify(Notice::Identity(None));
        Ok(Ok(DONE))
    }

    pub(super) fn open_page_session(
        &mut self,
        hash: Digest,
        by: &By,
        lasts_ms: i64,
    ) -> Step<Outcome, L::Error> {
        let by = accept!(self.principal(by)?);
        if !by.may_review() {
            return Ok(Err(Refusal::NotAReviewer.into()));
        }
        self.ledger.put_page_session(hash, &by.id, self.now.plus_ms(lasts_ms), self.now)?;
        Ok(Ok(DONE))
    }

    fn issue_and_record(&mut self, hash: Digest, id: &PrincipalId, by: &Principal) -> Result<(), L::Error> {
        self.issue(hash, id, 1)?;
        self.administered(&AdministrationEvent::CredentialIssued { principal: id.to_string() }, by)
    }

    /// Adds a credential; at most `keep` stay. What was open with one that goes is looked at again. Answers whether
    /// it is new.
    fn issue(&mut self, hash: Digest, id: &PrincipalId, keep: u32) -> Result<bool, L::Error> {
        let is_new = self.ledger.put_credential(hash, id, self.now)?;
        if is_new {
            self.ledger.drop_credentials(id, keep)?;
            self.ledger.notify(Notice::Identity(Some(id.clone())));
        }
        Ok(is_new)
    }

    fn administered(&mut self, event: &AdministrationEvent, by: &Principal) -> Result<(), L::Error> {
        self.ledger.append_administration(event, &Actor::from(by), self.now)
    }
}
