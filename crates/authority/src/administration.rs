//! Administering an authority, as one identity: credentials, devices, pairing codes, freezes. Here and, by
//! `holdgate-client`, over the network.
//!
//! Owns how credentials and codes are spelt, minted and checked. Who may do it is decided under the store's lock.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdgate_core::limits::{ADMINISTERED_PAGE, LABEL_CHARS, PAIRING_MS, REASON_CHARS};
use holdgate_core::presentation::visible;
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Reviewer, ReviewerList};
use holdgate_core::{Digest, PersonId, Principal, PrincipalId, Refusal, Scopes};
use holdgate_store::{Administration, Device, Identity, mint};
use holdgate_wire::Code;
use holdgate_wire::admin::{
    Administered, AdministeredPage, Administrator, CompletePairing, CreateToken, DeviceList, Freeze,
    FreezeList, Frozen, IssuedToken, Me, OfferPairing, Paired, Pairing, Thaw, Token, TokenList,
};

use crate::convert::invalid;
use crate::error::Error;
use crate::local::Local;
use crate::service::{Service, refused};

/// What an administrator can ask of an authority. Everything but [`Admin::me`] is refused to others with
/// `missing_scope`, whatever it names.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Who asks.
    async fn me(&self) -> Result<Me, Error>;
    /// Lists agents and runtimes, by id.
    async fn tokens(&self) -> Result<TokenList, Error>;
    /// Makes a credential of a new agent or runtime.
    async fn create_token(&self, token: CreateToken) -> Result<IssuedToken, Error>;
    /// Puts another credential in the place of an agent's, a runtime's or one's own.
    async fn rotate_token(&self, id: &str) -> Result<IssuedToken, Error>;
    /// Ends an agent or a runtime.
    async fn revoke_token(&self, id: &str) -> Result<(), Error>;
    /// Lists paired devices, by id.
    async fn devices(&self) -> Result<DeviceList, Error>;
    /// Ends a device and all that is signed in on it.
    async fn revoke_device(&self, id: &str) -> Result<(), Error>;
    /// Makes a code that pairs one device.
    async fn offer_pairing(&self, offer: OfferPairing) -> Result<Pairing, Error>;
    /// Stops new requests and claims. Answers what is frozen from now on.
    async fn freeze(&self, freeze: Freeze) -> Result<FreezeList, Error>;
    /// Lets them go on. Answers what is still frozen.
    async fn thaw(&self, thaw: Thaw) -> Result<FreezeList, Error>;
    /// Lists what is frozen.
    async fn freezes(&self) -> Result<FreezeList, Error>;
    /// Reads what was administered after the fact of number `after`.
    async fn administration(&self, after: u64) -> Result<AdministeredPage, Error>;
}

/// How the credentials of a kind begin, for people and secret scanners.
pub const fn credential_prefix(kind: PrincipalKind) -> &'static str {
    match kind {
        PrincipalKind::Administrator | PrincipalKind::Authority => "hgo",
        PrincipalKind::Device => "hgd",
        PrincipalKind::Agent => "hga",
        PrincipalKind::Runtime => "hgr",
    }
}

/// What is kept of a pairing code: of its letters and digits alone, however a person typed them.
pub fn pairing_code_hash(typed: &str) -> Digest {
    Digest::of(mint::typed_pairing_code(typed).replace('-', "").as_bytes())
}

/// Whether a text may be a pairing code. No token looks like one.
pub fn looks_like_a_pairing_code(typed: &str) -> bool {
    let code = mint::typed_pairing_code(typed);
    // The hyphen stands only in a code of the right length.
    code.contains('-') && typed.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c.is_whitespace())
}

impl Service {
    /// Pairs a device with a code. Answers it, the identity that it is from now on, and its credential.
    ///
    /// # Errors
    /// What is wrong with the device; `pairing_code_invalid`; `id_taken` for a key that is paired already.
    pub async fn complete_pairing(&self, asked: CompletePairing) -> Result<(Paired, Principal), Error> {
        let public_key = asked.public_key.as_deref().map(public_key).transpose()?;
        let id = match &public_key {
            Some(key) => Digest::of(key).to_hex(),
            None => mint::name("dev"),
        };
        let id: PrincipalId = id.parse().expect("hex digits and minted names are valid ids");
        // Nothing here proves that the caller has the key: it must not get at a device that somebody has.
        if public_key.is_some() && self.identity(&id).await?.is_some() {
            return Err(refused(&Refusal::IdTaken));
        }
        let label = shown("label", asked.label.trim())?;
        let platform = asked.platform.as_deref().map(|platform| shown("platform", platform.trim()));
        let platform = platform.transpose()?.map(|platform| platform.to_ascii_lowercase());
        let device = Device { id, label, public_key, platform: platform.clone(), family: None };
        let token = new_credential(PrincipalKind::Device)?;
        let hash = Digest::of(token.as_bytes());
        let principal = self.pair(pairing_code_hash(&asked.code), device, hash).await?;
        tracing::info!(device = %principal.id, "paired");
        let known = self.identity(&principal.id).await?;
        let created_at = known.map_or_else(|| self.store().now(), |known| known.created_at);
        let device = holdgate_wire::admin::Device::of(
            &principal,
            platform.as_deref(),
            public_key.is_some(),
            created_at,
        );
        Ok((Paired { device, token }, principal))
    }
}

impl Local {
    async fn administer(&self, change: Administration) -> Result<(), Error> {
        self.service().administer(change, self.principal()).await
    }

    fn check_admin(&self) -> Result<(), Error> {
        self.service().check_admin(self.principal())
    }

    /// One identity of these kinds. Others do not exist to who asks for them.
    async fn one_of(&self, id: &str, kinds: &[PrincipalKind]) -> Result<Identity, Error> {
        self.check_admin()?;
        let not_found = || refused(&Refusal::NotFound);
        let id: PrincipalId = id.parse().map_err(|_| not_found())?;
        let known = self.service().identity(&id).await?;
        known.filter(|known| kinds.contains(&known.principal.kind)).ok_or_else(not_found)
    }

    async fn revoke_one_of(&self, id: &str, kinds: &[PrincipalKind]) -> Result<(), Error> {
        let id = self.one_of(id, kinds).await?.principal.id;
        tracing::info!(principal = %id, by = %self.principal().id, "revoked");
        self.administer(Administration::Revoke { id }).await
    }
}

#[async_trait]
impl Admin for Local {
    async fn me(&self) -> Result<Me, Error> {
        Ok(Me::of(self.principal()))
    }

    async fn tokens(&self) -> Result<TokenList, Error> {
        let known = self.service().identities(self.principal()).await?;
        let holders = known.iter().filter(|known| HOLDERS.contains(&known.principal.kind));
        Ok(TokenList { items: holders.map(|known| Token::of(&known.principal, known.created_at)).collect() })
    }

    async fn create_token(&self, token: CreateToken) -> Result<IssuedToken, Error> {
        self.check_admin()?;
        let principal = self.new_holder(token).await?;
        let token = new_credential(principal.kind)?;
        let hash = Digest::of(token.as_bytes());
        let view = Token::of(&principal, self.service().store().now());
        self.administer(Administration::IssueToken { hash, principal: Box::new(principal) }).await?;
        Ok(IssuedToken { token, principal: view })
    }

    async fn rotate_token(&self, id: &str) -> Result<IssuedToken, Error> {
        let rotated = [HOLDERS[0], HOLDERS[1], PrincipalKind::Administrator];
        let Identity { principal, created_at, .. } = self.one_of(id, &rotated).await?;
        // The operator's credential is a file of the home: whoever does not hold it would lock its holder out.
        if principal.kind == PrincipalKind::Administrator && principal.id != self.principal().id {
            return Err(refused(&Refusal::NotAnAdministrator));
        }
        let token = new_credential(principal.kind)?;
        let (id, hash) = (principal.id.clone(), Digest::of(token.as_bytes()));
        self.administer(Administration::RotateToken { id, hash }).await?;
        Ok(IssuedToken { token, principal: Token::of(&principal, created_at) })
    }

    async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.revoke_one_of(id, &HOLDERS).await
    }

    async fn devices(&self) -> Result<DeviceList, Error> {
        let known = self.service().identities(self.principal()).await?;
        let devices = known.iter().filter(|known| known.principal.kind == PrincipalKind::Device);
        let view = |known: &Identity| {
            let device = known.device.as_ref();
            let platform = device.and_then(|device| device.platform.as_deref());
            let signs = device.is_some_and(|device| device.public_key.is_some());
            holdgate_wire::admin::Device::of(&known.principal, platform, signs, known.created_at)
        };
        Ok(DeviceList { items: devices.map(view).collect() })
    }

    async fn revoke_device(&self, id: &str) -> Result<(), Error> {
        self.revoke_one_of(id, &[PrincipalKind::Device]).await
    }

    async fn offer_pairing(&self, offer: OfferPairing) -> Result<Pairing, Error> {
        self.check_admin()?;
        let person: PersonId = shown("person", &offer.person)?.parse().map_err(|e| invalid("person", e))?;
        let scopes = if offer.admin { Scopes::ALL } else { Scopes::APPROVALS.or(Scopes::REQUEST) };
        let code = mint::pairing_code().map_err(|error| no_randomness(&error))?;
        // Asked before the code begins to live: it never ends sooner than is told.
        let expires_at_ms = self.service().store().now().plus_ms(PAIRING_MS).as_ms();
        let hash = pairing_code_hash(&code);
        self.administer(Administration::OfferPairing { code: hash, person, scopes, lasts_ms: PAIRING_MS })
            .await?;
        let url = self.service().links().base().map(|base| format!("{base}/sign-in"));
        Ok(Pairing { code, expires_at_ms, url })
    }

    async fn freeze(&self, freeze: Freeze) -> Result<FreezeList, Error> {
        self.check_admin()?;
        let agent = freeze.agent.as_deref().map(agent).transpose()?;
        if freeze.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
            return Err(invalid("reason", format!("it is longer than {REASON_CHARS} characters")));
        }
        tracing::warn!(agent = agent.as_ref().map(PrincipalId::as_str), by = %self.principal().id, "frozen");
        self.administer(Administration::Freeze { agent, reason: freeze.reason }).await?;
        self.freezes().await
    }

    async fn thaw(&self, thaw: Thaw) -> Result<FreezeList, Error> {
        self.check_admin()?;
        let agent = thaw.agent.as_deref().map(agent).transpose()?;
        tracing::warn!(agent = agent.as_ref().map(PrincipalId::as_str), by = %self.principal().id, "thawed");
        self.administer(Administration::Thaw { agent }).await?;
        self.freezes().await
    }

    async fn freezes(&self) -> Result<FreezeList, Error> {
        self.check_admin()?;
        let freezes = self.service().freezes().await?;
        let view = |freeze: holdgate_store::Freeze| Frozen {
            agent: freeze.agent.map(|agent| visible(agent.as_str())),
            at_ms: freeze.at.as_ms(),
            by: visible(&freeze.by),
            reason: freeze.reason.as_deref().map(visible),
        };
        Ok(FreezeList { items: freezes.into_iter().map(view).collect() })
    }

    async fn administration(&self, after: u64) -> Result<AdministeredPage, Error> {
        let facts = self.service().administration(after, ADMINISTERED_PAGE, self.principal()).await?;
        let view = |fact: holdgate_store::Administered| Administered {
            seq: fact.seq,
            at_ms: fact.at.as_ms(),
            event: fact.event,
            by: Administrator {
                id: visible(fact.by.id.as_str()),
                kind: fact.by.kind.as_str().to_owned(),
                label: visible(&fact.by.label),
            },
        };
        Ok(AdministeredPage { items: facts.into_iter().map(view).collect() })
    }
}

/// Whose credentials are made and ended here.
const HOLDERS: [PrincipalKind; 2] = [PrincipalKind::Agent, PrincipalKind::Runtime];

impl Local {
    /// The identity that a new credential is to stand for.
    async fn new_holder(&self, asked: CreateToken) -> Result<Principal, Error> {
        let kind = PrincipalKind::from_name(&asked.kind).filter(|kind| HOLDERS.contains(kind));
        let kind = kind.ok_or_else(|| invalid("kind", "it is neither agent nor runtime"))?;
        let mut principal = Principal::new(name(&asked.name)?, kind, asked.name);
        if !asked.reviewers.is_empty() {
            if kind == PrincipalKind::Runtime {
                return Err(invalid("reviewers", "only an agent has reviewers"));
            }
            let reviewers = asked.reviewers.iter().map(|reviewer| reviewer.parse::<Reviewer>());
            let reviewers: Vec<_> =
                reviewers.collect::<Result<_, _>>().map_err(|e| invalid("reviewers", e))?;
            let list: ReviewerList = reviewers.try_into().map_err(|e| invalid("reviewers", e))?;
            principal.reviewers = Some(list);
        }
        if let Some(of) = &asked.for_agent {
            if kind == PrincipalKind::Agent {
                return Err(invalid("forAgent", "only a runtime resolves what an agent asks"));
            }
            let agent = self.one_of(of, &[PrincipalKind::Agent]).await;
            let agent = agent.map_err(|error| match error.code() {
                Some(Code::NotFound) => invalid("forAgent", "there is no such agent"),
                _ => error,
            })?;
            principal.range = Some(agent.principal.id);
        }
        Ok(principal)
    }
}

/// A name that people can type and that no device's id and none of our own can be.
fn name(text: &str) -> Result<PrincipalId, Error> {
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let is_name = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !is_plain || !is_name || text.len() >= LABEL_CHARS {
        return Err(invalid(
            "name",
            format!(
                "it is not 1 to {} letters, digits, '-', '_' and '.', beginning with a letter or digit",
                LABEL_CHARS - 1
            ),
        ));
    }
    if text == "authority" || text.starts_with("dev_") {
        return Err(invalid("name", "it is kept for others; choose another"));
    }
    text.parse().map_err(|e| invalid("name", e))
}

fn agent(text: &str) -> Result<PrincipalId, Error> {
    text.parse().map_err(|e| invalid("agent", e))
}

/// A text that reads as what it is: not too long, and nothing hidden in it.
fn shown(field: &str, text: &str) -> Result<String, Error> {
    if text.is_empty() || text.chars().count() > LABEL_CHARS {
        return Err(invalid(field, format!("it is not 1 to {LABEL_CHARS} characters")));
    }
    if visible(text) != text {
        return Err(invalid(field, "it holds characters that cannot be seen"));
    }
    Ok(text.to_owned())
}

fn public_key(text: &str) -> Result<[u8; 32], Error> {
    let key = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    key.ok_or_else(|| invalid("publicKey", "it is not 32 bytes as base64url without padding"))
}

/// A new credential for an identity of that kind. What is kept of it is its hash alone.
///
/// # Errors
/// `unavailable`: this machine has no randomness.
pub fn new_credential(kind: PrincipalKind) -> Result<String, Error> {
    mint::secret(credential_prefix(kind)).map_err(|error| no_randomness(&error))
}

fn no_randomness(error: &dyn std::fmt::Display) -> Error {
    tracing::error!(%error, "no randomness");
    Error::new(Code::Unavailable, "no credential can be made at the moment; nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_counts_however_it_is_typed() {
        let code = mint::pairing_code().unwrap();
        let kept = pairing_code_hash(&code);
        for typed in [code.to_lowercase(), code.replace('-', ""), format!(" {} ", code.replace('-', " "))] {
            assert!(looks_like_a_pairing_code(&typed), "{typed}");
            assert_eq!(pairing_code_hash(&typed), kept, "{typed}");
        }
        for other in ["", "7K2MD", "7K2MD-0QXR", "7K2MD-0QXR99", "7K2MD_0QXR9", "7K2MD-0QXRé"] {
            assert!(!looks_like_a_pairing_code(other), "{other}");
        }
        let token = new_credential(PrincipalKind::Device).unwrap();
        assert!(!looks_like_a_pairing_code(&token) && token.starts_with("hgd_"));
    }

    #[test]
    fn a_name_can_be_typed_and_is_nobody_elses() {
        for good in ["deployer", "ci.main-2_x", "0"] {
            assert!(name(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "..", "a b", "a/b", "é", "authority", "dev_1", &"f".repeat(64)] {
            assert_eq!(name(bad).unwrap_err().code(), Some(Code::InvalidRequest), "{bad}");
        }
    }

    #[test]
    fn what_hides_is_no_label() {
        assert!(shown("label", "Zoë’s phone").is_ok());
        for bad in ["", "a\u{202e}b", "a\u{200b}", "a\nb", &"x".repeat(65)] {
            assert!(shown("label", bad).is_err(), "{bad:?}");
        }
    }
}
