//! What proves who connects. Its text leaves through the handshake alone.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for where it is stored or sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What is presented besides a device's signature.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A token that the gateway knows.
    Token(Secret),
    /// What an earlier hello granted to this device.
    DeviceToken(Secret),
}

impl Credential {
    /// The name under which it is sent.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Credential::Token(_) => "token",
            Credential::DeviceToken(_) => "deviceToken",
        }
    }

    pub(super) fn secret(&self) -> &Secret {
        match self {
            Credential::Token(secret) | Credential::DeviceToken(secret) => secret,
        }
    }
}

/// A device's key pair. Made of a seed that the caller keeps.
#[derive(Clone)]
pub struct Identity(SigningKey);

impl Identity {
    /// The identity of a 32-byte Ed25519 seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The device's id: SHA-256 of its public key, in lowercase hex.
    pub fn device_id(&self) -> String {
        Sha256::digest(self.0.verifying_key().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The public key, in unpadded base64url.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.verifying_key().as_bytes())
    }

    /// Signs a text; the signature in unpadded base64url.
    pub(super) fn sign(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()).to_bytes())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.device_id()).finish()
    }
}
