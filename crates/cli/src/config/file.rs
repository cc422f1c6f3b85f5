//! The configuration as it stands in its file: the keys, their types and what each value may be.
//!
//! Owns reading one text. What the values mean together is checked where they become a configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use holdgate_core::limits::NAME_CHARS;
use holdgate_core::presentation::visible;
use holdgate_core::requirement::Decision;
use holdgate_gateway::PublicUrl;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::policy::Reviewer;

/// Most people that a requirement may ask for.
const PEOPLE: u32 = 16;
/// Largest limit that can be set.
const PENDING: u32 = 1_000_000;

/// The whole file. Whatever is absent is left to the defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct File {
    pub listen: Option<Text<SocketAddr>>,
    pub public_url: Option<Text<PublicUrl>>,
    pub trusted_proxies: Vec<Text<IpAddr>>,
    pub shared_operator_token: bool,
    pub tls: Option<Certificate>,
    pub requirement: Requirement,
    pub groups: BTreeMap<String, Vec<Text<Name>>>,
    pub agents: BTreeMap<String, Agent>,
    pub limits: Limits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// `[requirement]`, with a table of its own for each kind that differs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Requirement {
    pub approvals: Option<Count<PEOPLE>>,
    pub denials: Option<Count<PEOPLE>>,
    pub requester_may_decide: Option<bool>,
    pub reason_required: Option<bool>,
    pub allowed_decisions: Option<Vec<Text<Decision>>>,
    pub reviewers: Option<Vec<Text<Reviewer>>>,
    pub exec: Option<KindRequirement>,
    pub plugin: Option<KindRequirement>,
    pub tool: Option<KindRequirement>,
    pub dispatch: Option<KindRequirement>,
    pub round: Option<KindRequirement>,
    pub plan: Option<KindRequirement>,
}

/// `[requirement.KIND]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KindRequirement {
    pub approvals: Option<Count<PEOPLE>>,
    pub denials: Option<Count<PEOPLE>>,
    pub requester_may_decide: Option<bool>,
    pub reason_required: Option<bool>,
    pub allowed_decisions: Option<Vec<Text<Decision>>>,
    pub reviewers: Option<Vec<Text<Reviewer>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Agent {
    pub reviewers: Vec<Text<Reviewer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    pub pending_per_agent: Option<Count<PENDING>>,
    pub pending_per_session: Option<Count<PENDING>>,
}

/// Reads a file's text.
///
/// # Errors
/// The line, its key, what is wrong and what would be right.
pub fn parse(path: &Path, text: &str) -> anyhow::Result<File> {
    toml::from_str(text).map_err(|error| {
        let mut what = error.message().trim().replace('\n', "; ");
        for (inside, outside) in
            [("expected i64", "expected a whole number"), ("expected a sequence", "expected an array")]
        {
            what = what.replace(inside, outside);
        }
        let path = path.display();
        let Some(start) = error.span().map(|span| text.floor_char_boundary(span.start)) else {
            return anyhow!("{path}: {what}");
        };
        let line = text[..start].matches('\n').count() + 1;
        let written = text.lines().nth(line - 1).unwrap_or_default();
        match visible(written.split('=').next().unwrap_or_default().trim()) {
            key if key.is_empty() => anyhow!("{path}, line {line}: {what}"),
            key => anyhow!("{path}, line {line} ({key}): {what}"),
        }
    })
}

/// A number from 1 to `MOST`.
#[derive(Clone, Copy, Debug)]
pub struct Count<const MOST: u32>(pub u32);

impl<'de, const MOST: u32> Deserialize<'de> for Count<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = i64::deserialize(deserializer)?;
        let count = u32::try_from(given).ok().filter(|count| (1..=MOST).contains(count));
        count.map(Self).ok_or_else(|| D::Error::custom(format!("it is {given}; it must be 1 to {MOST}")))
    }
}

/// A value that is written as text.
#[derive(Clone, Debug)]
pub struct Text<T>(pub T);

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        T::read(&text).map(Text).map_err(|why| D::Error::custom(format!("{:?}: {why}", visible(&text))))
    }
}

/// What a text may stand for.
pub trait Written: Sized {
    /// Reads it; or what is wrong and what would be right.
    fn read(text: &str) -> Result<Self, String>;
}

/// The name of a person, group, agent or device.
#[derive(Clone, Debug)]
pub struct Name(pub String);

impl Written for Name {
    fn read(text: &str) -> Result<Self, String> {
        check_name(text).map(|()| Self(text.to_owned()))
    }
}

/// Whether a text is a name.
pub fn check_name(text: &str) -> Result<(), String> {
    let is_name = !text.is_empty()
        && text == text.trim()
        && !text.contains(char::is_control)
        && text.chars().count() <= NAME_CHARS;
    is_name.then_some(()).ok_or_else(|| {
        format!("it is not a name: 1 to {NAME_CHARS} characters, none of them a control character, no space around them")
    })
}

impl Written for SocketAddr {
    fn read(text: &str) -> Result<Self, String> {
        let address = match text.strip_prefix("localhost:") {
            Some(port) => {
                port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
            }
            None => text.parse().ok(),
        };
        address.ok_or_else(|| "it is not an address and a port, like 127.0.0.1:7420".to_owned())
    }
}

impl Written for IpAddr {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            "it is not an IP address, like 127.0.0.1; a proxy is named by its address".to_owned()
        })
    }
}

impl Written for PublicUrl {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: holdgate_gateway::InvalidPublicUrl| error.to_string())
    }
}

impl Written for Decision {
    fn read(text: &str) -> Result<Self, String> {
        Decision::from_name(text).ok_or_else(|| {
            "it is not a decision: write \"allow-once\", \"allow-always\" or \"deny\"".to_owned()
        })
    }
}

impl Written for Reviewer {
    fn read(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once(':').unwrap_or_default();
        let reviewer = match kind {
            "person" => Reviewer::Person(name.to_owned()),
            "group" => Reviewer::Group(name.to_owned()),
            "device" => Reviewer::Device(name.to_owned()),
            _ => return Err("it is not a reviewer: write person:NAME, group:NAME or device:ID".to_owned()),
        };
        check_name(name).map(|()| reviewer)
    }
}
