//! From an open socket to a hello: the challenge, who connects, and what was granted.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::PROTOCOL;
use super::credential::{Credential, Identity, Secret};
use super::frame::{Close, ErrorBody};
use crate::endpoint::InvalidEndpoint;

/// The bounds that hold when a hello names none, or absurd ones.
const PAYLOAD_BYTES: usize = 26_214_400;
const TICK: Duration = Duration::from_secs(30);
const LONGEST_TICK: Duration = Duration::from_secs(600);

/// Who connects, and with what.
#[derive(Clone, Debug)]
pub struct Profile {
    /// `client.id`: a word that the protocol knows, such as `cli`.
    pub client_id: String,
    /// `client.mode`: such as `cli` or `backend`.
    pub client_mode: String,
    /// `client.version`.
    pub version: String,
    /// `client.platform`, such as `linux`.
    pub platform: String,
    /// A name for people.
    pub display_name: Option<String>,
    /// `operator`, for a reviewer.
    pub role: String,
    /// What is asked for. Connecting can only narrow what the credential has.
    pub scopes: Vec<String>,
    /// What the client understands: `approvals` to be sent requests.
    pub caps: Vec<String>,
    /// What is presented.
    pub credential: Option<Credential>,
    /// The device that signs. None: the credential stands alone.
    pub identity: Option<Identity>,
}

impl Profile {
    /// A command line's, as a reviewer.
    pub fn reviewer(version: &str, credential: Option<Credential>, identity: Option<Identity>) -> Self {
        Self {
            client_id: "cli".to_owned(),
            client_mode: "cli".to_owned(),
            version: version.to_owned(),
            platform: std::env::consts::OS.to_owned(),
            display_name: None,
            role: "operator".to_owned(),
            scopes: vec!["operator.read".to_owned(), "operator.approvals".to_owned()],
            caps: vec!["approvals".to_owned()],
            credential,
            identity,
        }
    }

    /// The parameters of `connect`, as an answer to this challenge.
    pub(super) fn connect(&self, challenge: &Challenge) -> Value {
        let mut client = json!({
            "id": self.client_id, "version": self.version, "platform": self.platform, "mode": self.client_mode,
        });
        if let Some(name) = &self.display_name {
            client["displayName"] = json!(name);
        }
        let mut params = json!({
            "minProtocol": PROTOCOL, "maxProtocol": PROTOCOL, "client": client, "caps": self.caps,
            "role": self.role, "scopes": self.scopes,
        });
        if let Some(credential) = &self.credential {
            params["auth"] = json!({credential.name(): credential.secret().expose()});
        }
        if let Some(identity) = &self.identity {
            params["device"] = json!({
                "id": identity.device_id(), "publicKey": identity.public_key(),
                "signature": identity.sign(&self.signed(&identity.device_id(), challenge)),
                "signedAt": challenge.at_ms, "nonce": challenge.nonce,
            });
        }
        params
    }

    /// The text that a device signs, third version.
    fn signed(&self, device_id: &str, challenge: &Challenge) -> String {
        let token = self.credential.as_ref().map_or("", |credential| credential.secret().expose());
        let platform = self.platform.trim().to_ascii_lowercase();
        // The last field is the device's family: none is told.
        format!(
            "v3|{device_id}|{}|{}|{}|{}|{}|{token}|{}|{platform}|",
            self.client_id,
            self.client_mode,
            self.role,
            self.scopes.join(","),
            challenge.at_ms,
            challenge.nonce,
        )
    }

    /// A gateway's text, without the credential if it repeats that.
    pub(super) fn without_credential(&self, text: &str) -> String {
        match self.credential.as_ref().map(|credential| credential.secret().expose()) {
            Some(secret) if !secret.is_empty() => text.replace(secret, "[credential]"),
            _ => text.to_owned(),
        }
    }
}

/// What a gateway wants signed.
#[derive(Debug)]
pub(super) struct Challenge {
    nonce: String,
    at_ms: i64,
}

impl Challenge {
    pub(super) fn read(payload: &Value) -> Option<Self> {
        let nonce = payload.get("nonce")?.as_str().filter(|nonce| !nonce.is_empty())?;
        Some(Self { nonce: nonce.to_owned(), at_ms: payload.get("ts")?.as_i64()? })
    }
}

/// What a gateway granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The gateway's version, as it names it. Outside text.
    pub server_version: Option<String>,
    /// The methods that it offers.
    pub methods: Vec<String>,
    /// The role that this connection has.
    pub role: String,
    /// The scopes that this connection has, after narrowing.
    pub scopes: BTreeSet<String>,
    /// A token for this device, to be stored and presented next time.
    pub device_token: Option<Secret>,
    /// How many bytes a frame may have.
    pub max_payload_bytes: usize,
    /// How often the gateway says that it is there.
    pub tick_interval: Duration,
}

impl Hello {
    pub(super) fn read(payload: &Value) -> Option<Self> {
        if payload.get("type")?.as_str() != Some("hello-ok") {
            return None;
        }
        let auth = payload.get("auth").filter(|auth| auth.is_object())?;
        let policy = payload.get("policy").filter(|policy| policy.is_object())?;
        let texts = |value: Option<&Value>| -> Vec<String> {
            let values = value.and_then(Value::as_array).into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let number = |name| policy.get(name).and_then(Value::as_u64).filter(|n| *n > 0);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let max_payload = number("maxPayload").and_then(|bytes| usize::try_from(bytes).ok());
        Some(Self {
            server_version: text(payload.get("server").and_then(|server| server.get("version"))),
            methods: texts(payload.get("features").and_then(|features| features.get("methods"))),
            role: text(auth.get("role")).unwrap_or_default(),
            scopes: texts(auth.get("scopes")).into_iter().collect(),
            device_token: text(auth.get("deviceToken")).map(Secret::new),
            max_payload_bytes: max_payload.unwrap_or(PAYLOAD_BYTES).min(PAYLOAD_BYTES),
            tick_interval: number("tickIntervalMs")
                .map_or(TICK, |ms| Duration::from_millis(ms).clamp(Duration::from_secs(1), LONGEST_TICK)),
        })
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] InvalidEndpoint),
    /// Nothing answers there, or it went away before its hello.
    #[error("no gateway answers at {address}: {why}")]
    Unreachable {
        /// Where it was sought.
        address: String,
        /// What went wrong.
        why: String,
    },
    /// What answers does not speak the protocol.
    #[error("what answers at {address} is not a gateway of protocol 4: {why}")]
    NotAGateway {
        /// Where it was sought.
        address: String,
        /// What it did.
        why: String,
    },
    /// The gateway said no.
    #[error("the gateway refuses to connect: {message} ({})", reason.as_deref().unwrap_or(code))]
    Refused {
        /// The error's code, such as `NOT_PAIRED`.
        code: String,
        /// Its sentence. Outside text.
        message: String,
        /// The finer reason, such as `AUTH_TOKEN_MISMATCH` or `PAIRING_REQUIRED`.
        reason: Option<String>,
        /// The pairing request that a person has to approve.
        pairing_request: Option<String>,
        /// When to try again, if the gateway says so.
        retry_after: Option<Duration>,
        /// The close code that followed, if it was seen.
        close: Option<u16>,
    },
}

impl ConnectError {
    /// Whether trying again with the same profile may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            ConnectError::Unreachable { .. } => true,
            ConnectError::Address(_) | ConnectError::NotAGateway { .. } => false,
            ConnectError::Refused { code, .. } => code == "UNAVAILABLE",
        }
    }

    pub(super) fn refused(error: &ErrorBody, profile: &Profile, close: Option<&Close>) -> Self {
        let detail = |name| error.details.get(name).and_then(Value::as_str).map(str::to_owned);
        ConnectError::Refused {
            code: error.code.clone(),
            message: profile.without_credential(&error.message),
            reason: detail("code").or_else(|| detail("reason")),
            pairing_request: detail("requestId"),
            retry_after: error.retry_after_ms.map(Duration::from_millis),
            close: close.and_then(|close| close.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ed25519_dalek::{Signature, VerifyingKey};

    use super::*;

    fn bytes(value: &Value) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(value.as_str().unwrap()).unwrap()
    }

    fn verifies(device: &Value, signed: &str) -> bool {
        let key: [u8; 32] = bytes(&device["publicKey"]).try_into().unwrap();
        let signature: [u8; 64] = bytes(&device["signature"]).try_into().unwrap();
        let key = VerifyingKey::from_bytes(&key).unwrap();
        key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature)).is_ok()
    }

    #[test]
    fn the_signed_text_is_the_one_that_a_real_gateway_accepted() {
        let recorded = include_str!("../../tests/fixtures/v4/connect.json");
        let frame: Value = serde_json::from_str(recorded).unwrap();
        let params = &frame["params"];
        let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
        let secret = Secret::new(params["auth"]["token"].as_str().unwrap());
        let mut profile = Profile::reviewer("0.0.1", Some(Credential::Token(secret)), None);
        profile.platform = params["client"]["platform"].as_str().unwrap().to_owned();
        profile.scopes = texts(&params["scopes"]);
        let device = &params["device"];
        let challenge = Challenge {
            nonce: device["nonce"].as_str().unwrap().to_owned(),
            at_ms: device["signedAt"].as_i64().unwrap(),
        };
        assert!(verifies(device, &profile.signed(device["id"].as_str().unwrap(), &challenge)));
        // The same parameters, but for the key.
        profile.identity = Some(Identity::from_seed(&[7; 32]));
        let mut ours = profile.connect(&challenge);
        assert!(verifies(
            &ours["device"],
            &profile.signed(ours["device"]["id"].as_str().unwrap(), &challenge)
        ));
        let mut theirs = params.clone();
        for params in [&mut ours, &mut theirs] {
            for name in ["id", "publicKey", "signature"] {
                params["device"][name] = Value::Null;
            }
        }
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_device_s_id_is_the_hash_of_its_key() {
        let identity = Identity::from_seed(&[
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4,
            0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
        ]);
        // The first test vector of RFC 8032.
        assert_eq!(identity.public_key(), "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
        assert_eq!(identity.device_id(), "21fe31dfa154a261626bf854046fd2271b7bed4b6abe45aa58877ef47f9721b9");
    }

    #[test]
    fn a_hello_without_policy_or_auth_is_none() {
        let hello = json!({"type": "hello-ok", "protocol": 4, "auth": {"role": "operator"}, "policy": {}});
        let read = Hello::read(&hello).unwrap();
        assert_eq!((read.max_payload_bytes, read.tick_interval), (PAYLOAD_BYTES, TICK));
        for missing in ["type", "auth", "policy"] {
            let mut without = hello.clone();
            without.as_object_mut().unwrap().remove(missing);
            assert_eq!(Hello::read(&without), None, "{missing}");
        }
    }

    #[test]
    fn absurd_bounds_are_not_taken_over() {
        let hello = json!({
            "type": "hello-ok", "auth": {},
            "policy": {"maxPayload": u64::MAX, "tickIntervalMs": 1},
        });
        let read = Hello::read(&hello).unwrap();
        assert_eq!((read.max_payload_bytes, read.tick_interval), (PAYLOAD_BYTES, Duration::from_secs(1)));
    }

    #[test]
    fn no_credential_is_printed() {
        let secret = Secret::new("canary-secret");
        let identity = Identity::from_seed(&[7; 32]);
        let profile = Profile::reviewer("1", Some(Credential::Token(secret)), Some(identity));
        let error = ErrorBody { message: "bad token canary-secret".to_owned(), ..ErrorBody::default() };
        let refused = ConnectError::refused(&error, &profile, None);
        let hello = json!({"type": "hello-ok", "auth": {"deviceToken": "canary-secret"}, "policy": {}});
        let printed = format!("{profile:?} {refused:?} {refused} {:?}", Hello::read(&hello));
        assert!(!printed.contains("canary-secret"), "{printed}");
        assert!(!printed.contains("[7, 7"), "{printed}");
    }
}
