//! A gateway, its people, and what its store holds.

use holdgate_store::{Filter, Store as _};
use holdgate_testkit::gateway::TestGateway;
use holdgate_testkit::v4::{Auth, Client, Connect, Identity, Refused, Trace};
use serde_json::Value;

/// Connects, or not.
pub async fn connect(gateway: &TestGateway, connect: Connect) -> Result<Client, Refused> {
    Client::connect(&gateway.ws_url(), &connect, &Trace::default()).await
}

/// An operator by the home's own credential, who shows approvals.
pub async fn reviewer(gateway: &TestGateway) -> Client {
    let says = Connect::new("reviewer", Auth::token("reviewer")).scopes(&["operator.admin"]).approvals();
    connect(gateway, says).await.unwrap()
}

/// An agent.
pub async fn agent(gateway: &TestGateway) -> Client {
    let says = Connect::new("agent", Auth::token("agent")).client("gateway-client", "backend");
    connect(gateway, says).await.unwrap()
}

/// What a device of this name asks for with the shared credential.
pub fn device(gateway: &TestGateway, name: &str) -> Connect {
    let connect = Connect::new(name, Auth::token(gateway.shared_token())).scopes(&["operator.approvals"]);
    Connect { identity: Some(Identity::named(name)), ..connect }.approvals()
}

/// The code, the finer code and the close of a refusal.
pub fn told(refused: &Refused) -> (String, String, u16) {
    let text =
        |pointer: &str| refused.error.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/code"), text("/details/code"), refused.close.as_ref().map_or(0, |close| close.code))
}

/// Everything that the store holds of approvals and of people.
pub async fn holds(gateway: &TestGateway) -> String {
    let approvals = gateway.store.approvals(Filter { limit: 1_000, ..Filter::default() }).await.unwrap();
    let facts = gateway.store.events(0, 10_000).await.unwrap();
    let people = gateway.store.identities().await.unwrap();
    let administered = gateway.store.administration(0, 10_000).await.unwrap();
    format!("{approvals:?}{facts:?}{people:?}{administered:?}")
}
