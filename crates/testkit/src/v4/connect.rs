//! What a client says of itself when it connects, every part of it changeable.

use serde_json::{Map, Value, json};

use super::identity::{Identity, Payload};

/// The credentials of a `connect` request. All absent: the field is left out.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// The shared operator token, an agent token, or a device token in its place.
    pub token: Option<String>,
    /// The token that a paired device was given.
    pub device_token: Option<String>,
    /// A single-use token for a first contact.
    pub bootstrap_token: Option<String>,
    /// The token that marks a trusted runtime.
    pub approval_runtime_token: Option<String>,
}

impl Auth {
    /// Only `token`.
    pub fn token(token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::default() }
    }

    /// Only `deviceToken`.
    pub fn device_token(token: &str) -> Self {
        Self { device_token: Some(token.to_owned()), ..Self::default() }
    }

    /// The credential that a device signature covers.
    pub(super) fn signed(&self) -> &str {
        let first = self.token.as_ref().or(self.device_token.as_ref()).or(self.bootstrap_token.as_ref());
        first.map(String::as_str).unwrap_or_default()
    }

    fn to_value(&self) -> Option<Value> {
        let fields = [
            ("token", &self.token),
            ("deviceToken", &self.device_token),
            ("bootstrapToken", &self.bootstrap_token),
            ("approvalRuntimeToken", &self.approval_runtime_token),
        ];
        let given: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, token)| token.as_ref().map(|token| (name.to_owned(), json!(token))))
            .collect();
        (!given.is_empty()).then_some(Value::Object(given))
    }
}

/// How a client connects. The defaults are those of a command line without a device.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The connection's name in the trace.
    pub name: String,
    /// The device, if the client has one.
    pub identity: Option<Identity>,
    /// Which text the device signs.
    pub payload: Payload,
    /// Signed and sent instead of the challenge's nonce.
    pub nonce: Option<String>,
    /// Added to the challenge's time, in milliseconds.
    pub signed_at_offset_ms: i64,
    /// The oldest protocol that the client speaks.
    pub min_protocol: i64,
    /// The newest.
    pub max_protocol: i64,
    /// One of the protocol's client ids.
    pub client_id: String,
    /// One of the protocol's client modes.
    pub mode: String,
    /// The operating system, in the client's words.
    pub platform: String,
    /// The kind of device, in the client's words.
    pub device_family: Option<String>,
    /// What the client calls itself.
    pub display_name: Option<String>,
    /// Which instance of the client this is.
    pub instance_id: Option<String>,
    /// Capabilities: `approvals` asks for approval events.
    pub caps: Vec<String>,
    /// `operator` or `node`.
    pub role: String,
    /// The scopes asked for.
    pub scopes: Vec<String>,
    /// The credentials.
    pub auth: Auth,
}

impl Connect {
    /// A command line of this name with this token, no device and no scopes.
    pub fn new(name: &str, auth: Auth) -> Self {
        Self {
            name: name.to_owned(),
            identity: None,
            payload: Payload::V3,
            nonce: None,
            signed_at_offset_ms: 0,
            min_protocol: 4,
            max_protocol: 4,
            client_id: "cli".to_owned(),
            mode: "cli".to_owned(),
            platform: "linux".to_owned(),
            device_family: None,
            display_name: None,
            instance_id: None,
            caps: Vec::new(),
            role: "operator".to_owned(),
            scopes: Vec::new(),
            auth,
        }
    }

    /// With a device of its own, named like the client.
    #[must_use]
    pub fn device(mut self) -> Self {
        self.identity = Some(Identity::named(&self.name));
        self
    }

    /// Asks for these scopes.
    #[must_use]
    pub fn scopes(mut self, scopes: &[&str]) -> Self {
        self.scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        self
    }

    /// Asks for approval events.
    #[must_use]
    pub fn approvals(mut self) -> Self {
        self.caps.push("approvals".to_owned());
        self
    }

    /// Is this client of this mode, as an agent's `gateway-client` and `backend`.
    #[must_use]
    pub fn client(mut self, id: &str, mode: &str) -> Self {
        id.clone_into(&mut self.client_id);
        mode.clone_into(&mut self.mode);
        self
    }

    /// The parameters of the `connect` request that answers this challenge.
    pub fn params(&self, challenge: &Value) -> Value {
        let mut client = json!({
            "id": self.client_id,
            "version": "0.0.1",
            "platform": self.platform,
            "mode": self.mode,
        });
        let optional = [
            ("deviceFamily", &self.device_family),
            ("displayName", &self.display_name),
            ("instanceId", &self.instance_id),
        ];
        for (field, text) in optional {
            if let Some(text) = text {
                client[field] = json!(text);
            }
        }
        let mut params = json!({
            "minProtocol": self.min_protocol,
            "maxProtocol": self.max_protocol,
            "client": client,
            "caps": self.caps,
            "role": self.role,
            "scopes": self.scopes,
        });
        if let Some(auth) = self.auth.to_value() {
            params["auth"] = auth;
        }
        if let Some(identity) = &self.identity {
            let given = challenge["nonce"].as_str().unwrap_or_default();
            let nonce = self.nonce.as_deref().unwrap_or(given);
            let signed_at_ms = challenge["ts"].as_i64().unwrap_or_default() + self.signed_at_offset_ms;
            params["device"] = identity.device(self, nonce, signed_at_ms);
        }
        params
    }
}
