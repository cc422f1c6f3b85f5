//! Devices that show who they are: an Ed25519 key, and a signature over what they ask for.
//!
//! Owns the proof. Whether a device is known here, and what it may do, is `credentials`'.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, VerifyingKey};
use holdgate_core::{Digest, PrincipalId};
use serde::Deserialize;
use serde_json::json;

use super::connect::Connect;
use super::frame::Failure;

/// How far a device's time may be from ours, in milliseconds.
const SKEW_MS: i64 = 120_000;

/// What a device shows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    /// SHA-256 of the key, in lowercase hexadecimal digits.
    pub(crate) id: String,
    /// The raw key, as unpadded base64url.
    pub(crate) public_key: String,
    /// The signature, as unpadded base64url.
    pub(crate) signature: String,
    /// When it signed, in Unix milliseconds.
    pub(crate) signed_at: i64,
    /// What it was challenged with.
    pub(crate) nonce: String,
}

/// A device that holds its key.
#[derive(Clone, Debug)]
pub(crate) struct Proved {
    /// Its id.
    pub(crate) id: PrincipalId,
    /// Its key.
    pub(crate) key: [u8; 32],
}

/// Checks what a device shows against what it asks for, the challenge of this connection and our own time.
pub(crate) fn prove(shown: &Shown, connect: &Connect, nonce: &str, now_ms: i64) -> Result<Proved, Failure> {
    let key = bytes::<32>(&shown.public_key)
        .ok_or_else(|| no("device public key invalid", "PUBLIC_KEY_INVALID", "device-public-key"))?;
    let mismatch = || no("device identity mismatch", "DEVICE_ID_MISMATCH", "device-id-mismatch");
    if Digest::of(&key).to_hex() != shown.id {
        return Err(mismatch());
    }
    if (now_ms.saturating_sub(shown.signed_at)).saturating_abs() > SKEW_MS {
        return Err(no("device signature expired", "SIGNATURE_EXPIRED", "device-signature-stale"));
    }
    if shown.nonce.trim().is_empty() {
        return Err(no("device nonce required", "NONCE_REQUIRED", "device-nonce-missing"));
    }
    if shown.nonce != nonce {
        return Err(no("device nonce mismatch", "NONCE_MISMATCH", "device-nonce-mismatch"));
    }
    let is_signed = VerifyingKey::from_bytes(&key).is_ok_and(|verifying| {
        let signature = bytes::<64>(&shown.signature).map(|bytes| Signature::from_bytes(&bytes));
        signature.is_some_and(|signature| {
            [signed_v3(shown, connect), signed_v2(shown, connect)]
                .iter()
                .any(|text| verifying.verify_strict(text.as_bytes(), &signature).is_ok())
        })
    });
    if !is_signed {
        return Err(no("device signature invalid", "SIGNATURE_INVALID", "device-signature"));
    }
    Ok(Proved { id: shown.id.parse().map_err(|_| mismatch())?, key })
}

fn signed_v2(shown: &Shown, connect: &Connect) -> String {
    format!("v2|{}", signed(shown, connect))
}

fn signed_v3(shown: &Shown, connect: &Connect) -> String {
    let family = connect.client.device_family.as_deref().unwrap_or_default();
    format!("v3|{}|{}|{}", signed(shown, connect), plain(&connect.client.platform), plain(family))
}

fn signed(shown: &Shown, connect: &Connect) -> String {
    let Connect { client, role, scopes, auth, .. } = connect;
    let token = [&auth.token, &auth.device_token, &auth.bootstrap_token].into_iter().flatten().next();
    let token = token.map_or("", String::as_str);
    let (id, mode, scopes) = (&client.id, &client.mode, scopes.join(","));
    let Shown { id: device, signed_at, nonce, .. } = shown;
    format!("{device}|{id}|{mode}|{role}|{scopes}|{signed_at}|{token}|{nonce}")
}

/// A platform's or a family's name in its one spelling.
pub(crate) fn plain(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

fn no(message: &str, code: &str, reason: &str) -> Failure {
    Failure::invalid(message).with(json!({ "code": format!("DEVICE_AUTH_{code}"), "reason": reason }))
}
