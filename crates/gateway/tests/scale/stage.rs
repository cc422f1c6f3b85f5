//! A gateway and those who connect to it.

use holdgate_testkit::gateway::TestGateway;
use holdgate_testkit::v4::{Auth, Client, Connect, Trace};
use serde_json::Value;

/// An administrator's connection, which shows approvals if it is to.
pub async fn reviewer(gateway: &TestGateway, name: &str, shows: bool) -> Client {
    let says = Connect::new(name, Auth::token("reviewer")).scopes(&["operator.admin"]);
    connect(gateway, if shows { says.approvals() } else { says }).await
}

/// An agent's connection.
pub async fn agent(gateway: &TestGateway) -> Client {
    connect(gateway, Connect::new("agent", Auth::token("agent")).client("gateway-client", "backend")).await
}

/// Connects.
pub async fn connect(gateway: &TestGateway, connect: Connect) -> Client {
    Client::connect(&gateway.ws_url(), &connect, &Trace::default()).await.unwrap()
}

/// Whether it is an event of this name's ending, about this approval.
pub fn is_about(event: &Value, what: &str, id: &str) -> bool {
    event["event"].as_str().is_some_and(|name| name.ends_with(what)) && event["payload"]["id"] == id
}
