//! The same probe against a gateway that is not ours, if one is named: whether the probe still asks what was asked
//! when the answers were recorded.
//!
//! `interop/openclaw/recheck` starts such a gateway and names it.

use serde_json::{Map, json};

use crate::probe::{Peer, run};
use crate::recording::differences;

#[expect(clippy::disallowed_methods, reason = "a test that needs another program is told where it is")]
fn named() -> Option<Peer> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(Peer { url: named("HOLDGATE_FOREIGN_GATEWAY")?, token: named("HOLDGATE_FOREIGN_TOKEN")? })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_gateway_answers_as_it_did_when_it_was_recorded() {
    let Some(peer) = named() else {
        println!("no foreign gateway is named: HOLDGATE_FOREIGN_GATEWAY and HOLDGATE_FOREIGN_TOKEN");
        return;
    };
    // The recording was made with a channel plugin that `recheck` does not install.
    let no_channel = json!({
        "id": "<id>", "decision": null, "createdAtMs": "<time>", "expiresAtMs": "<created + 60000>",
    });
    let known = Map::from_iter([("request.turnSource unknown channel".to_owned(), no_channel)]);
    let (cases, _) = run(&peer).await;
    let found = differences(&cases, &known);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}
