//! A device's key pair and what it signs when it connects.
//!
//! The key comes from a name, so that a test's devices are the same in every run.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Connect;

/// Which text a device signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The older one, without platform and device family.
    V2,
    /// The current one.
    V3,
}

/// An Ed25519 device identity.
#[derive(Clone, Debug)]
pub struct Identity {
    key: SigningKey,
}

impl Identity {
    /// The device of this name: another name, another key.
    pub fn named(name: &str) -> Self {
        let seed: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        Self { key: SigningKey::from_bytes(&seed) }
    }

    /// The device's id: the hash of its public key, as lowercase hex.
    pub fn device_id(&self) -> String {
        let hash = Sha256::digest(self.key.verifying_key().as_bytes());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The public key as the protocol writes it: the 32 raw bytes in unpadded base64url.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.verifying_key().as_bytes())
    }

    /// A signature over any text, as the protocol writes it.
    pub fn sign(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.key.sign(text.as_bytes()).to_bytes())
    }

    /// The `device` field of a `connect` request that answers this challenge.
    pub(super) fn device(&self, connect: &Connect, nonce: &str, signed_at_ms: i64) -> Value {
        let version = match connect.payload {
            Payload::V2 => "v2",
            Payload::V3 => "v3",
        };
        let mut fields = vec![
            version.to_owned(),
            self.device_id(),
            connect.client_id.clone(),
            connect.mode.clone(),
            connect.role.clone(),
            connect.scopes.join(","),
            signed_at_ms.to_string(),
            connect.auth.signed().to_owned(),
            nonce.to_owned(),
        ];
        if connect.payload == Payload::V3 {
            let family = connect.device_family.as_deref().unwrap_or_default();
            fields.extend([connect.platform.as_str(), family].map(|text| text.trim().to_ascii_lowercase()));
        }
        json!({
            "id": self.device_id(),
            "publicKey": self.public_key(),
            "signature": self.sign(&fields.join("|")),
            "signedAt": signed_at_ms,
            "nonce": nonce,
        })
    }
}
