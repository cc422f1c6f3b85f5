//! Administering over the network, and pairing a device with a code.
//!
//! A call whose answer has a credential in it is sent once: were it repeated after a lost reply, the first credential
//! would be known to nobody, and still be one.

use std::time::Duration;

use async_trait::async_trait;
use holdgate_authority::{Admin, Error};
use holdgate_wire::admin::{
    AdministeredPage, CompletePairing, CreateToken, DeviceList, Freeze, FreezeList, IssuedToken, Me,
    OfferPairing, Paired, Pairing, Thaw, TokenList,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{Call, Http};
use crate::endpoint::{self, InvalidEndpoint};
use crate::patience::repeat;
use crate::remote::{Empty, Remote, named};

impl Remote {
    async fn read<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Error> {
        self.again(self.patience(), &Call::get(path)).await
    }

    /// A change that comes to the same when it is made twice.
    async fn repeatable<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.again(self.patience(), &Call::post(path, body)?).await
    }

    async fn once<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T, Error> {
        self.again(Duration::ZERO, &Call::post(path, body)?).await
    }

    async fn again<T: DeserializeOwned>(&self, patience: Duration, call: &Call<'_>) -> Result<T, Error> {
        Ok(repeat(patience, || self.http().send::<T>(call)).await?.1)
    }

    async fn end(&self, what: &str, id: &str) -> Result<(), Error> {
        let Empty {} = self.once(&["v1", what, named(id)?, "revoke"], &serde_json::Map::new()).await?;
        Ok(())
    }
}

#[async_trait]
impl Admin for Remote {
    async fn me(&self) -> Result<Me, Error> {
        self.read(&["v1", "me"]).await
    }

    async fn tokens(&self) -> Result<TokenList, Error> {
        self.read(&["v1", "tokens"]).await
    }

    async fn create_token(&self, token: CreateToken) -> Result<IssuedToken, Error> {
        self.once(&["v1", "tokens"], &token).await
    }

    async fn rotate_token(&self, id: &str) -> Result<IssuedToken, Error> {
        self.once(&["v1", "tokens", named(id)?, "rotate"], &serde_json::Map::new()).await
    }

    async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.end("tokens", id).await
    }

    async fn devices(&self) -> Result<DeviceList, Error> {
        self.read(&["v1", "devices"]).await
    }

    async fn revoke_device(&self, id: &str) -> Result<(), Error> {
        self.end("devices", id).await
    }

    async fn offer_pairing(&self, offer: OfferPairing) -> Result<Pairing, Error> {
        self.once(&["v1", "pairing"], &offer).await
    }

    async fn freeze(&self, freeze: Freeze) -> Result<FreezeList, Error> {
        self.repeatable(&["v1", "freeze"], &freeze).await
    }

    async fn thaw(&self, thaw: Thaw) -> Result<FreezeList, Error> {
        self.repeatable(&["v1", "thaw"], &thaw).await
    }

    async fn freezes(&self) -> Result<FreezeList, Error> {
        self.read(&["v1", "freezes"]).await
    }

    async fn administration(&self, after: u64) -> Result<AdministeredPage, Error> {
        let call = Call::get(&["v1", "administration"]).query("after", Some(after));
        self.again(self.patience(), &call).await
    }
}

/// A gateway that one has no credential for yet.
#[derive(Clone, Debug)]
pub struct Stranger {
    http: Http,
}

impl Stranger {
    /// Before the gateway at `url`.
    ///
    /// # Errors
    /// Refuses a URL that a credential could not be had from safely.
    pub fn before(url: &str) -> Result<Self, InvalidEndpoint> {
        Ok(Self { http: Http::new(endpoint::parse(url)?, None)? })
    }

    /// Where the gateway is sought.
    pub fn url(&self) -> &str {
        self.http.url()
    }

    /// Pairs this device. Sent once: a code is spent by it.
    ///
    /// # Errors
    /// `pairing_code_invalid`; or that the gateway cannot be reached.
    pub async fn pair(&self, pairing: &CompletePairing) -> Result<Paired, Error> {
        Ok(self.http.send(&Call::post(&["v1", "pairing", "complete"], pairing)?).await?.1)
    }

    /// Whether a gateway answers, and of which version its program is.
    ///
    /// # Errors
    /// That nothing answers, or what answers is no gateway.
    pub async fn version(&self) -> Result<String, Error> {
        let document: serde_json::Value = self.http.send(&Call::get(&["openapi.json"])).await?.1;
        let info = &document["info"];
        match (info["title"].as_str(), info["version"].as_str()) {
            (Some("Holdgate"), Some(version)) => Ok(version.to_owned()),
            _ => Err(self.http.unreachable("what answers there is not a gateway")),
        }
    }
}
