//! Rows of identities: what they may do, their devices, and what is known of sessions and freezes.

use std::fmt::Write as _;

use holdgate_core::audience::SessionEdges;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{PersonId, Principal, PrincipalId, Scopes};
use rusqlite::Row;

use super::{Columns, Why, undecodable};
use crate::{Device, Freeze, Identity};

/// What [`PRINCIPAL`](crate::sqlite::sql::PRINCIPAL) and its like select.
pub(in crate::sqlite) fn principal(row: &Row<'_>) -> rusqlite::Result<Principal> {
    decode_principal(&mut Columns::of(row)).map_err(undecodable)
}

fn decode_principal(columns: &mut Columns<'_, '_>) -> Result<Principal, Why> {
    Ok(Principal {
        id: columns.parse()?,
        kind: columns.named(PrincipalKind::from_name)?,
        label: columns.next()?,
        person: columns.parse_optional()?,
        groups: columns.json()?,
        scopes: columns.named(Scopes::parse)?,
        reviewers: columns.json_optional()?,
        range: columns.parse_optional()?,
    })
}

/// What [`IDENTITY`](crate::sqlite::sql::IDENTITY) and its like select.
pub(in crate::sqlite) fn identity(row: &Row<'_>) -> rusqlite::Result<Identity> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<Identity, Why> {
        let principal = decode_principal(&mut columns)?;
        let (public_key, platform, family) = (key(&mut columns)?, columns.next()?, columns.next()?);
        let created_at = columns.time()?;
        let device = (principal.kind == PrincipalKind::Device).then(|| Device {
            id: principal.id.clone(),
            label: principal.label.clone(),
            public_key,
            platform,
            family,
        });
        Ok(Identity { principal, device, created_at })
    };
    decode().map_err(undecodable)
}

/// What [`DEVICE`](crate::sqlite::sql::DEVICE) selects.
pub(in crate::sqlite) fn device(row: &Row<'_>) -> rusqlite::Result<Device> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<Device, Why> {
        Ok(Device {
            id: columns.parse()?,
            label: columns.next()?,
            public_key: key(&mut columns)?,
            platform: columns.next()?,
            family: columns.next()?,
        })
    };
    decode().map_err(undecodable)
}

/// What [`SESSION`](crate::sqlite::sql::SESSION) selects.
pub(in crate::sqlite) fn session(row: &Row<'_>) -> rusqlite::Result<(SessionEdges, PrincipalId)> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> {
        let edges = SessionEdges {
            controller: columns.next()?,
            requester: columns.next()?,
            parent: columns.next()?,
            spawned_by: columns.next()?,
        };
        Ok((edges, columns.parse()?))
    };
    decode().map_err(undecodable)
}

/// What [`TAKE_PAIRING`](crate::sqlite::sql::TAKE_PAIRING) answers.
pub(in crate::sqlite) fn pairing(row: &Row<'_>) -> rusqlite::Result<(PersonId, Scopes)> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> { Ok((columns.parse()?, columns.named(Scopes::parse)?)) };
    decode().map_err(undecodable)
}

/// What [`FREEZES`](crate::sqlite::sql::FREEZES) selects.
pub(in crate::sqlite) fn freeze(row: &Row<'_>) -> rusqlite::Result<Freeze> {
    let mut columns = Columns::of(row);
    let mut decode = || -> Result<_, Why> {
        let agent = columns.named(|agent| match agent {
            "" => Some(None),
            agent => agent.parse().ok().map(Some),
        })?;
        Ok(Freeze { agent, at: columns.time()?, by: columns.next()?, reason: columns.next()? })
    };
    decode().map_err(undecodable)
}

fn key(columns: &mut Columns<'_, '_>) -> Result<Option<[u8; 32]>, Why> {
    columns.named_optional(|text| {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut key = [0; 32];
        for (n, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
        }
        // One spelling only.
        (hex(key) == text).then_some(key)
    })
}

/// A key as it is stored.
pub(in crate::sqlite) fn hex(key: [u8; 32]) -> String {
    key.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
