//! From what a client shows to who it is and what it may do.
//!
//! Owns the order in which credentials are looked at, and what each of them gives. What a device signs is `device`'s,
//! what the words of a refusal are is `refusals`'.

use std::net::IpAddr;

use holdgate_authority::Error;
use holdgate_authority::administration::{new_credential, pairing_code_hash};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::{Digest, Principal, PrincipalId, Scopes};
use holdgate_store::{Credential, Device};
use holdgate_wire::Code;

use super::connect::{Connect, Refused};
use super::device::{Proved, plain};
use super::{Rpc, refusals, shared};
use crate::credential_hash;

/// Scopes of the protocol that give nothing here. Operators keep them by name, because clients look for them.
const EMPTY_SCOPES: &[&str] =
    &["operator.read", "operator.write", "operator.pairing", "operator.talk.secrets"];
/// The longest label that a device gets from what it says, in code points.
const LABEL_CHARS: usize = 64;

/// Who is connecting, from where.
pub(crate) struct Caller<'a> {
    /// What it says.
    pub(crate) connect: &'a Connect,
    /// The device that it has shown to be.
    pub(crate) device: Option<Proved>,
    /// Its address.
    pub(crate) peer: IpAddr,
    /// Whether it is on this machine, as far as anybody can tell.
    pub(crate) is_local: bool,
}

/// What keeps a connection's identity alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// A credential: without it, the connection ends.
    Token(Digest),
    /// The identity: its own credential was not shown.
    Identity,
}

/// Who a connection is.
pub(crate) struct Granted {
    /// The identity, with all that its credential may do.
    pub(crate) principal: Principal,
    /// What the connection is limited to.
    pub(crate) limit: Scopes,
    /// The scopes in force, in the protocol's words and the order in which they were asked for.
    pub(crate) scopes: Vec<String>,
    /// The paired device.
    pub(crate) device: Option<PrincipalId>,
    /// By which kind of credential, in the protocol's words.
    pub(crate) method: &'static str,
    /// The credential that a device keeps, and since when it has one, in Unix milliseconds.
    pub(crate) device_token: Option<(String, i64)>,
    /// What it stands and falls with.
    pub(crate) held: Held,
}

impl Granted {
    /// As an operator: what was asked for and is held.
    fn operator(principal: Principal, asked: &[String], method: &'static str, held: Held) -> Self {
        let may = including_requests(principal.scopes);
        let scopes = effective(asked, may);
        let limit = including_less(named(&scopes));
        Self { principal, limit, scopes, device: None, method, device_token: None, held }
    }
}

/// Says who `caller` is.
pub(crate) async fn grant(rpc: &Rpc, caller: &Caller<'_>) -> Result<Granted, Refused> {
    let auth = &caller.connect.auth;
    if let Some(token) = present(auth.device_token.as_ref()) {
        return match known(rpc, token).await? {
            Some(principal) if principal.kind == PrincipalKind::Device => {
                paired(rpc, caller, token, principal).await
            }
            _ => Err(failed(rpc, caller, refusals::device_token_mismatch())),
        };
    }
    if let Some(code) = present(auth.bootstrap_token.as_ref()) {
        return pair(rpc, caller, code).await;
    }
    let granted = match present(auth.token.as_ref()) {
        Some(token) => by_token(rpc, caller, token).await?,
        None => None,
    };
    // Trusted host processes show theirs beside the gateway's. A wrong one changes nothing.
    if let Some(token) = present(auth.approval_runtime_token.as_ref()) {
        let principal = known(rpc, token).await?;
        if let Some(principal) = principal.filter(|principal| principal.kind == PrincipalKind::Runtime) {
            return Ok(runtime(principal, caller, token));
        }
    }
    granted.ok_or_else(|| failed(rpc, caller, refusals::token_missing()))
}

async fn by_token(rpc: &Rpc, caller: &Caller<'_>, token: &str) -> Result<Option<Granted>, Refused> {
    let Some(principal) = known(rpc, token).await? else {
        let hash = credential_hash(token);
        rpc.attempts.may_guess(caller.peer).map_err(refusals::too_many)?;
        return match rpc.shared.filter(|shared| shared.is(hash)) {
            Some(_) => by_shared(rpc, caller).await.map(Some),
            None => Err(failed(rpc, caller, refusals::token_mismatch())),
        };
    };
    let held = Held::Token(credential_hash(token));
    let asked = &caller.connect.scopes;
    Ok(Some(match principal.kind {
        PrincipalKind::Device => paired(rpc, caller, token, principal).await?,
        PrincipalKind::Agent => agent(principal, held),
        PrincipalKind::Runtime => runtime(principal, caller, token),
        // A device that is shown beside it is not paired by it.
        PrincipalKind::Administrator => Granted::operator(principal, asked, "token", held),
        PrincipalKind::Authority => return Err(failed(rpc, caller, refusals::token_mismatch())),
    }))
}

/// An agent asks, waits and claims, whatever it asks for here.
fn agent(principal: Principal, held: Held) -> Granted {
    let (limit, scopes) = (Scopes::REQUEST, vec!["approvals.request".to_owned()]);
    Granted { principal, limit, scopes, device: None, method: "token", device_token: None, held }
}

/// A runtime's rights are its credential's; the names that it asks for are kept as far as they fit.
fn runtime(principal: Principal, caller: &Caller<'_>, token: &str) -> Granted {
    let scopes = effective(&caller.connect.scopes, Scopes::REQUEST.or(Scopes::APPROVALS));
    let held = Held::Token(credential_hash(token));
    let (limit, method) = (Scopes::REQUEST, "token");
    Granted { principal, limit, scopes, device: None, method, device_token: None, held }
}

/// A device comes back with the credential that it was given.
async fn paired(
    rpc: &Rpc,
    caller: &Caller<'_>,
    token: &str,
    principal: Principal,
) -> Result<Granted, Refused> {
    let shown = caller.device.as_ref();
    if shown.is_some_and(|shown| shown.id != principal.id) {
        return Err(failed(rpc, caller, refusals::device_token_mismatch()));
    }
    let identity = rpc.service.identity(&principal.id).await.map_err(unavailable)?;
    let Some((device, since)) = identity.and_then(|known| Some((known.device?, known.created_at))) else {
        return Err(failed(rpc, caller, refusals::device_token_mismatch()));
    };
    let client = &caller.connect.client;
    let is_other = |paired: &Option<String>, said: Option<&str>| {
        paired.as_deref().is_some_and(|paired| plain(paired) != plain(said.unwrap_or_default()))
    };
    let asked = &caller.connect.scopes;
    if is_other(&device.platform, Some(&client.platform))
        || is_other(&device.family, client.device_family.as_deref())
    {
        return Err(refusals::other_machine(&principal, asked));
    }
    if !including_requests(principal.scopes).contains(named(asked)) {
        return Err(refusals::scope_mismatch().into());
    }
    let held = Held::Token(credential_hash(token));
    let device = Some(principal.id.clone());
    let device_token = Some((token.to_owned(), since.as_ms()));
    Ok(Granted { device, device_token, ..Granted::operator(principal, asked, "device-token", held) })
}

/// A device is paired with a code that its person typed.
async fn pair(rpc: &Rpc, caller: &Caller<'_>, code: &str) -> Result<Granted, Refused> {
    rpc.attempts.code(caller.peer).map_err(refusals::too_many)?;
    let Some(proved) = &caller.device else {
        return Err(refusals::device_required());
    };
    let token = new_credential(PrincipalKind::Device).map_err(unavailable)?;
    let (code, hash) = (pairing_code_hash(code), credential_hash(&token));
    let principal = match rpc.service.pair(code, device(proved, caller), hash).await {
        Ok(principal) => principal,
        Err(error) if error.code() == Some(Code::PairingCodeInvalid) => {
            return Err(failed(rpc, caller, refusals::code_invalid()));
        }
        Err(error) => return Err(unavailable(error)),
    };
    tracing::info!(device = %principal.id, "paired");
    Ok(admitted(rpc, principal, caller, token, "bootstrap-token", Held::Token(hash)))
}

/// Somebody comes with the credential that everybody shares.
async fn by_shared(rpc: &Rpc, caller: &Caller<'_>) -> Result<Granted, Refused> {
    let (asked, client) = (&caller.connect.scopes, &caller.connect.client);
    tracing::warn!(
        client = %client.id,
        has_device = caller.device.is_some(),
        "connected by the shared operator token: it is advisory, because it tells nobody from anybody else"
    );
    if let Some(proved) = &caller.device {
        return if caller.is_local {
            admit(rpc, caller, proved).await
        } else {
            let identity = rpc.service.identity(&proved.id).await.map_err(unavailable)?;
            let known = identity.map(|known| known.principal).filter(|p| p.kind == PrincipalKind::Device);
            let principal = known.ok_or_else(|| refusals::not_paired(&proved.id, asked))?;
            let device = Some(principal.id.clone());
            Ok(Granted { device, ..Granted::operator(principal, asked, "token", Held::Identity) })
        };
    }
    if !caller.is_local {
        return Err(refusals::device_required());
    }
    let is_program =
        matches!((client.id.as_str(), client.mode.as_str()), ("cli", "cli") | ("gateway-client", "backend"));
    if is_program && named(asked).contains(Scopes::ADMIN) {
        let principal = own(rpc, shared::OPERATOR).await?;
        return Ok(Granted::operator(principal, asked, "token", Held::Identity));
    }
    // It may ask, and never answer; the names are kept, because clients check for them.
    let principal = own(rpc, shared::AGENT).await?;
    let granted = agent(principal, Held::Identity);
    Ok(if is_program {
        Granted { scopes: effective(asked, Scopes::REQUEST.or(Scopes::APPROVALS)), ..granted }
    } else {
        Granted { scopes: Vec::new(), limit: Scopes::NONE, ..granted }
    })
}

/// A device comes with the shared credential and gets one of its own.
async fn admit(rpc: &Rpc, caller: &Caller<'_>, proved: &Proved) -> Result<Granted, Refused> {
    let asked = &caller.connect.scopes;
    let token = new_credential(PrincipalKind::Device).map_err(unavailable)?;
    let person = shared::OPERATOR.parse().expect("a fixed name is a valid person's id");
    let scopes = including_less(named(asked));
    let admitted_as =
        rpc.service.admit(device(proved, caller), person, scopes, credential_hash(&token)).await;
    match admitted_as {
        // It stands and falls with the device: its own credentials are not what it came with.
        Ok(principal) => Ok(admitted(rpc, principal, caller, token, "token", Held::Identity)),
        Err(error) if error.code() == Some(Code::NotFound) => Err(refusals::revoked(&proved.id, asked)),
        Err(error) => Err(unavailable(error)),
    }
}

fn admitted(
    rpc: &Rpc,
    principal: Principal,
    caller: &Caller<'_>,
    token: String,
    method: &'static str,
    held: Held,
) -> Granted {
    let device = Some(principal.id.clone());
    let device_token = Some((token, rpc.service.store().now().as_ms()));
    Granted { device, device_token, ..Granted::operator(principal, &caller.connect.scopes, method, held) }
}

fn device(proved: &Proved, caller: &Caller<'_>) -> Device {
    let client = &caller.connect.client;
    let name = client.display_name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    Device {
        id: proved.id.clone(),
        label: name.unwrap_or(&client.id).chars().take(LABEL_CHARS).collect(),
        public_key: Some(proved.key),
        platform: Some(plain(&client.platform)),
        family: client.device_family.as_deref().map(plain),
    }
}

async fn known(rpc: &Rpc, token: &str) -> Result<Option<Principal>, Refused> {
    rpc.service.authenticate(Credential::Token(credential_hash(token))).await.map_err(unavailable)
}

async fn own(rpc: &Rpc, id: &str) -> Result<Principal, Refused> {
    let id = id.parse().expect("a fixed name is a valid id");
    let identity = rpc.service.identity(&id).await.map_err(unavailable)?;
    identity.map(|identity| identity.principal).ok_or_else(refusals::unavailable)
}

/// A credential was wrong: told so, unless there were too many.
fn failed(rpc: &Rpc, caller: &Caller<'_>, failure: super::frame::Failure) -> Refused {
    match rpc.attempts.failed(caller.peer) {
        Ok(()) => failure.into(),
        Err(wait) => refusals::too_many(wait),
    }
}

fn unavailable(error: Error) -> Refused {
    tracing::debug!(%error, "a handshake could not be settled");
    refusals::unavailable()
}

fn present(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// The scopes that some names stand for.
fn named(names: &[String]) -> Scopes {
    let known = names.iter().filter_map(|name| Scopes::from_name(name));
    known.fold(Scopes::NONE, Scopes::or)
}

/// Administrators review, and reviewers ask.
fn including_less(scopes: Scopes) -> Scopes {
    if scopes.contains(Scopes::ADMIN) { Scopes::ALL } else { including_requests(scopes) }
}

fn including_requests(scopes: Scopes) -> Scopes {
    let reviews = scopes.contains(Scopes::APPROVALS) || scopes.contains(Scopes::ADMIN);
    if reviews { scopes.or(Scopes::REQUEST) } else { scopes }
}

/// The names in force: once each, in the order in which they were asked for.
fn effective(asked: &[String], held: Scopes) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in asked {
        let is_held = match Scopes::from_name(name) {
            Some(scope) => held.contains(scope),
            None => EMPTY_SCOPES.contains(&name.as_str()),
        };
        if is_held && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}
