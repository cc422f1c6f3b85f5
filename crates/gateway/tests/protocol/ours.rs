//! Our gateway under the probe: its answers, its frames, and its numbering of events.

use std::collections::BTreeMap;
use std::path::Path;

use holdgate_testkit::gateway::TestGateway;
use holdgate_testkit::v4::{Direction, Trace};
use serde_json::{Map, Value};

use crate::normal::normal;
use crate::probe::{Case, Peer, run};
use crate::recording::{deviations, differences};
use crate::schema::{METHOD_IS_UNKNOWN, Schema};

async fn probed() -> (Vec<Case>, Trace) {
    let gateway = TestGateway::start_for_v4().await;
    let peer = Peer { url: gateway.ws_url(), token: gateway.shared_token().to_owned() };
    let probed = run(&peer).await;
    gateway.stop().await;
    probed
}

/// Leaves what was seen beside the build, for whoever reads a difference.
fn keep(name: &str, text: &str) {
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_gateway_answers_as_recorded_or_as_listed() {
    let (cases, trace) = probed().await;
    let seen: Map<String, Value> = cases.iter().map(|case| (case.name.clone(), normal(case))).collect();
    keep("protocol-observed.json", &serde_json::to_string_pretty(&seen).unwrap());
    keep("protocol-trace.txt", &trace.text());
    let found = differences(&cases, &deviations());
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_frames_fit_the_published_schema() {
    let (_, trace) = probed().await;
    let outcome = Schema::published().check(&trace.lines());
    let faults = outcome.faults();
    assert_eq!(faults.into_iter().collect::<Vec<_>>(), [METHOD_IS_UNKNOWN]);
    // As many as a gateway that answers everything must have sent: fewer means that the check has seen nothing.
    for (definition, at_least) in [("EventFrame", 40), ("ResponseFrame", 150), ("ApprovalGetResult", 15)] {
        assert!(outcome.fit[definition] >= at_least, "{definition}: {}", outcome.fit[definition]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_numbered_without_a_gap_on_each_connection() {
    let (_, trace) = probed().await;
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    for line in trace.lines().into_iter().filter(|line| line.direction == Direction::Received) {
        let frame: Value = serde_json::from_str(&line.text).unwrap();
        if frame["type"] != "event" || frame["event"] == "connect.challenge" {
            assert_eq!(frame.get("seq"), None, "{}", line.text);
            continue;
        }
        let expected = next.entry(line.name).or_insert(1);
        assert_eq!(frame["seq"], *expected, "{}", line.text);
        *expected += 1;
    }
    assert!(next["admin"] > 20, "{next:?}");
}
