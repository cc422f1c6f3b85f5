//! The rows of identities, their credentials and their groups. Every change here is one of who may act.

use std::collections::{BTreeMap, BTreeSet};

use holdgate_core::{Digest, PersonId, Principal, PrincipalId, Time};
use rusqlite::params;

use super::{SqliteLedger, json};
use crate::Device;
use crate::sqlite::{row, sql};

impl SqliteLedger<'_> {
    pub(super) fn write_principal(
        &mut self,
        principal: &Principal,
        device: Option<&Device>,
        at: Time,
    ) -> rusqlite::Result<()> {
        self.identities_changed = true;
        let values = params![
            principal.id.as_str(),
            principal.kind.as_str(),
            principal.label,
            at.as_ms(),
            principal.person.as_ref().map(PersonId::as_str),
            principal.scopes.to_string(),
            principal.reviewers.as_ref().map(json).transpose()?,
            principal.range.as_ref().map(PrincipalId::as_str),
            device.and_then(|device| device.public_key).map(row::hex),
            device.and_then(|device| device.platform.as_deref()),
            device.and_then(|device| device.family.as_deref()),
        ];
        self.write_one(sql::PUT_PRINCIPAL, values)
    }

    /// Answers whether it is new. A credential that stands for somebody else already is an error.
    pub(super) fn write_credential(
        &mut self,
        hash: Digest,
        of: &PrincipalId,
        at: Time,
    ) -> rusqlite::Result<bool> {
        let hash = hash.to_hex();
        let owner: Option<String> = self.one(sql::OWNER_OF_TOKEN, [&hash], |row| row.get(0))?;
        if owner.as_deref() == Some(of.as_str()) {
            return Ok(false);
        }
        self.identities_changed = true;
        self.write_one(sql::PUT_TOKEN, params![hash, of.as_str(), at.as_ms()])?;
        Ok(true)
    }

    pub(super) fn delete_credentials(&mut self, of: &PrincipalId, keep: u32) -> rusqlite::Result<()> {
        self.identities_changed = true;
        let dropped = self.write(sql::DROP_TOKENS, params![of.as_str(), keep])?;
        // Nobody knows which of them opened which session: what one that is gone may have opened ends with it.
        if dropped > 0 || keep == 0 {
            self.write(sql::DROP_PAGE_SESSIONS, [of.as_str()])?;
        }
        Ok(())
    }

    /// Answers whether anything is new.
    pub(super) fn write_groups(
        &mut self,
        groups: &BTreeMap<String, Vec<PersonId>>,
    ) -> rusqlite::Result<bool> {
        let wanted: BTreeSet<(String, String)> = groups
            .iter()
            .flat_map(|(group, people)| people.iter().map(move |person| (group.clone(), person.to_string())))
            .collect();
        let known: BTreeSet<(String, String)> = self
            .conn
            .prepare_cached(sql::GROUP_MEMBERS)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        if wanted == known {
            return Ok(false);
        }
        self.identities_changed = true;
        self.write(sql::DROP_GROUPS, [])?;
        for (group, person) in &wanted {
            self.write_one(sql::PUT_GROUP_MEMBER, [group, person])?;
        }
        Ok(true)
    }
}
