//! Who may act: credentials, devices, pairing, freezes, and what was administered.
//!
//! A credential's or a code's text is in the one answer that makes it, and in no other.

use std::fmt;

use holdgate_core::presentation::visible;
use holdgate_core::{AdministrationEvent, Principal, Scopes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An agent or a trusted runtime that has a credential here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Whose it is: its name in records.
    pub id: String,
    /// `agent` or `runtime`; `administrator` only in the answer to replacing the operator's own.
    pub kind: String,
    /// What reviewers call it.
    pub label: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Who may review what it asks for, like `person:alice`. Nobody in particular when empty.
    pub reviewers: Vec<String>,
    /// The only agent whose requests a runtime may resolve; every agent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// When it was first made, in Unix milliseconds.
    pub created_at_ms: i64,
}

impl Token {
    /// The holder of a credential, who became known at `created_at`.
    pub fn of(principal: &Principal, created_at: Time) -> Self {
        let reviewers = principal.reviewers.as_ref().map(|list| list.reviewers()).unwrap_or_default();
        Self {
            id: visible(principal.id.as_str()),
            kind: principal.kind.as_str().to_owned(),
            label: visible(&principal.label),
            scopes: names(principal.scopes),
            reviewers: reviewers.iter().map(|reviewer| visible(&reviewer.to_string())).collect(),
            range: principal.range.as_ref().map(|agent| visible(agent.as_str())),
            created_at_ms: created_at.as_ms(),
        }
    }
}

/// Those who have a credential, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// Agents and runtimes.
    pub items: Vec<Token>,
}

/// Makes a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateToken {
    /// `agent` or `runtime`.
    pub kind: String,
    /// A name of letters, digits, `-`, `_` and `.`; its id from then on.
    pub name: String,
    /// Who may review what the agent asks for: `person:NAME`, `group:NAME` or `device:ID`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<String>,
    /// The only agent whose requests the runtime may resolve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_agent: Option<String>,
}

/// A new credential. It is told once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct IssuedToken {
    /// The credential.
    pub token: String,
    /// Whose it is.
    pub principal: Token,
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// A person's paired device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Its id.
    pub id: String,
    /// What reviewers call it.
    pub label: String,
    /// Whose it is.
    pub person: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Its operating system, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// When it was first paired, in Unix milliseconds.
    pub created_at_ms: i64,
    /// Whether it has a key of its own, which it signs with when it connects.
    pub signs: bool,
}

impl Device {
    /// A device that became known at `created_at`.
    pub fn of(principal: &Principal, platform: Option<&str>, signs: bool, created_at: Time) -> Self {
        Self {
            id: visible(principal.id.as_str()),
            label: visible(&principal.label),
            person: principal.person.as_ref().map(|person| visible(person.as_str())).unwrap_or_default(),
            scopes: names(principal.scopes),
            platform: platform.map(visible),
            created_at_ms: created_at.as_ms(),
            signs,
        }
    }
}

/// Paired devices, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceList {
    /// The devices.
    pub items: Vec<Device>,
}

/// Offers to pair one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferPairing {
    /// Whose it becomes.
    pub person: String,
    /// Whether it may administer as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
}

/// A pairing code: good for one device, once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pairing {
    /// The code, to be typed by hand: `7K2MD-0QXR9`.
    pub code: String,
    /// Until when, in Unix milliseconds.
    pub expires_at_ms: i64,
    /// Where a browser types it, if pages are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pairing").field("expires_at_ms", &self.expires_at_ms).finish_non_exhaustive()
    }
}

/// Pairs a device with a code. The one call that needs no token.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompletePairing {
    /// The code as it was typed: in any case, with or without the hyphen.
    pub code: String,
    /// What reviewers call the device.
    pub label: String,
    /// The device's Ed25519 key, base64url without padding. Its id is then the key's SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Its operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

impl fmt::Debug for CompletePairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletePairing").field("label", &self.label).finish_non_exhaustive()
    }
}

/// A device that has just been paired. Its credential is told once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct Paired {
    /// The device.
    pub device: Device,
    /// Its credential.
    pub token: String,
}

impl fmt::Debug for Paired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paired").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Stops new requests and claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// Of this agent only; everybody's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Lets them go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Thaw {
    /// Of this agent only; what was frozen for everybody when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// One thing that is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Frozen {
    /// The agent; everybody when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Since when, in Unix milliseconds.
    pub at_ms: i64,
    /// By whom.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Everything that is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FreezeList {
    /// The freezes in force.
    pub items: Vec<Frozen>,
}

/// A fact about who may act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Administered {
    /// Its number.
    pub seq: u64,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// What became true: its `type`, and of whom.
    #[schema(value_type = Object)]
    pub event: AdministrationEvent,
    /// Who did it.
    pub by: Administrator,
}

/// Who administered something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Administrator {
    /// Its name in records.
    pub id: String,
    /// What it is.
    pub kind: String,
    /// What reviewers call it.
    pub label: String,
}

/// Facts about who may act, in order. The next page begins after the last one's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdministeredPage {
    /// The facts. None when there are no more.
    pub items: Vec<Administered>,
}

/// Who a caller is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// Its name in records.
    pub id: String,
    /// `administrator`, `device`, `agent` or `runtime`.
    pub kind: String,
    /// What reviewers call it.
    pub label: String,
    /// The person behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// What it may do.
    pub scopes: Vec<String>,
}

impl Me {
    /// That identity.
    pub fn of(principal: &Principal) -> Self {
        Self {
            id: visible(principal.id.as_str()),
            kind: principal.kind.as_str().to_owned(),
            label: visible(&principal.label),
            person: principal.person.as_ref().map(|person| visible(person.as_str())),
            scopes: names(principal.scopes),
        }
    }
}

fn names(scopes: Scopes) -> Vec<String> {
    scopes.names().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_in_what_debugging_prints() {
        let device = Device {
            id: "d".to_owned(),
            label: "d".to_owned(),
            person: "p".to_owned(),
            scopes: Vec::new(),
            platform: None,
            created_at_ms: 0,
            signs: false,
        };
        let printed = [
            format!("{:?}", Paired { device, token: "SECRET".to_owned() }),
            format!("{:?}", Pairing { code: "SECRET".to_owned(), expires_at_ms: 0, url: None }),
            format!(
                "{:?}",
                CompletePairing {
                    code: "SECRET".to_owned(),
                    label: String::new(),
                    public_key: None,
                    platform: None
                }
            ),
        ];
        for printed in printed {
            assert!(!printed.contains("SECRET"), "{printed}");
        }
    }

    #[test]
    fn a_misspelt_field_is_not_lost() {
        for (call, is_read) in [
            (r#"{"kind":"agent","name":"a","reviewer":["person:a"]}"#, false),
            (r#"{"kind":"agent","name":"a","reviewers":["person:a"]}"#, true),
            (r#"{"kind":"runtime","name":"a","forAgent":"b"}"#, true),
            (r#"{"kind":"runtime","name":"a","for_agent":"b"}"#, false),
        ] {
            assert_eq!(serde_json::from_str::<CreateToken>(call).is_ok(), is_read, "{call}");
        }
        assert!(serde_json::from_str::<Freeze>(r#"{"agents":"a"}"#).is_err());
        assert!(serde_json::from_str::<OfferPairing>(r#"{"person":"a","isAdmin":true}"#).is_err());
    }
}
