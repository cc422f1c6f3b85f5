//! What reaches a collector, decoded with OTLP's published types.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use holdgate_telemetry::{Export, Telemetry};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

const CANARY: &str = "canary-7c1f0e2d";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Longer than a flush may take, so that only a failing test waits it out.
const PATIENCE: Duration = Duration::from_secs(20);

/// One request to the collector: its head and its body.
type Received = (String, Vec<u8>);

/// Answers every request with "taken".
fn collector() -> (String, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Some(received) = receive(stream) {
                let _ = sender.send(received);
            }
        }
    });
    (url, receiver)
}

fn receive(mut stream: TcpStream) -> Option<Received> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
            if bytes.len() - end >= length {
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer.as_bytes()).ok()?;
                return Some((head, bytes[end..].to_vec()));
            }
        }
        match stream.read(&mut part).ok()? {
            0 => return None,
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
}

/// The test that is also run as a process of its own: variables are a process's.
const RECORDING: &str = "requests_calls_and_approvals_are_exported_and_nothing_of_their_content";
/// Says to that test that it is the process that records.
const IS_RECORDING: &str = "HOLDGATE_TEST_RECORDS";

/// A process that records and exports with these variables.
fn exporting(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", RECORDING]).env(IS_RECORDING, "1").envs(variables.iter().copied());
    command
}

fn record_and_export() {
    let telemetry = Telemetry::start().unwrap();
    let subscriber = tracing_subscriber::registry().with(telemetry.layer().with_filter(Export::filter()));
    tracing::subscriber::with_default(subscriber, record);
    drop(telemetry);
}

fn record() {
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let http = tracing::trace_span!(
        target: "holdgate::span", "http", method = "POST", route = "/v1/approvals/{id}/decision", path = CANARY,
        traceparent, status = tracing::field::Empty
    );
    http.record("status", 409_u16);
    drop(http);
    let call =
        tracing::trace_span!(target: "holdgate::span", "rpc", method = "approval.resolve", outcome = "none");
    call.record("outcome", "FORBIDDEN");
    call.in_scope(|| tracing::error!(content = CANARY, "not for collectors: {CANARY}"));
    drop(call);
    let unreadable = tracing::trace_span!(
        target: "holdgate::span", "http", method = "GET", route = "/healthz", traceparent = CANARY, status = 200_u16
    );
    drop(unreadable);
    for (status, reason, latency_ms) in
        [("pending", "", 0_i64), ("denied", "user", 90_000), ("revoked", "", 95_000)]
    {
        tracing::info!(
            target: "holdgate::transition", id = %CANARY, kind = "exec", session = CANARY, run = CANARY, status, reason,
            at_ms = 1_800_000_090_000_i64, latency_ms, "transition"
        );
    }
}

fn value(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()) {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text,
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        other => panic!("{key}: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the process that records is told so by a variable")]
fn requests_calls_and_approvals_are_exported_and_nothing_of_their_content() {
    if std::env::var_os(IS_RECORDING).is_some() {
        return record_and_export();
    }
    let (url, received) = collector();
    let status = exporting(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=ours"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ])
    .status()
    .unwrap();
    assert!(status.success());
    let (head, body) = received.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("post /v1/traces "), "{head}");
    assert!(
        head.contains("x-tenant: ours") && head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    assert!(!body.windows(CANARY.len()).any(|bytes| bytes == CANARY.as_bytes()));

    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    let resource = request.resource_spans[0].resource.clone().unwrap().attributes;
    assert_eq!(value(&resource, "service.name"), "holdgate");
    assert_eq!(value(&resource, "deployment.environment.name"), "test");
    let spans: Vec<&Span> =
        request.resource_spans[0].scope_spans.iter().flat_map(|scope| &scope.spans).collect();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["POST /v1/approvals/{id}/decision", "approval.resolve", "GET /healthz", "approval"]);
    assert!(spans.iter().all(|span| span.events.is_empty()), "no log line leaves");

    let [decision, resolve, health, approval] = spans[..] else { panic!("{names:?}") };
    assert_eq!(
        (hex(&decision.trace_id), hex(&decision.parent_span_id)),
        (TRACE.into(), "00f067aa0ba902b7".into())
    );
    assert_eq!(value(&decision.attributes, "http.response.status_code"), "409");
    assert_eq!(value(&decision.attributes, "http.route"), "/v1/approvals/{id}/decision");
    assert_eq!(value(&resolve.attributes, "holdgate.outcome"), "FORBIDDEN");
    assert!(health.parent_span_id.is_empty(), "what is no trace has no part in this one");
    for (name, expected) in [("kind", "exec"), ("status", "denied"), ("reason", "user")] {
        assert_eq!(value(&approval.attributes, &format!("holdgate.approval.{name}")), expected);
    }
    assert_eq!(approval.attributes.len(), 3);
    assert_eq!(approval.start_time_unix_nano, 1_800_000_000_000 * 1_000_000);
    assert_eq!(approval.end_time_unix_nano, 1_800_000_090_000 * 1_000_000);
}

#[test]
fn the_environment_names_the_service() {
    let (url, received) = collector();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_SERVICE_NAME", "gate-eu")];
    assert!(exporting(&variables).status().unwrap().success());
    let (_, body) = received.recv_timeout(PATIENCE).unwrap();
    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    let resource = request.resource_spans[0].resource.clone().unwrap().attributes;
    assert_eq!(value(&resource, "service.name"), "gate-eu");
}

#[test]
fn a_collector_that_never_answers_does_not_keep_the_process() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut child = exporting(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())]).spawn().unwrap();
    // It has sent its request and waits for an answer; the SDK would wait for ten seconds.
    let (mut stream, _) = silent.accept().unwrap();
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    // The process ends while the request is still open: then the socket closes, and reading does.
    stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    let mut rest = Vec::new();
    assert!(stream.read_to_end(&mut rest).is_ok(), "the process has not let go of its collector");
    assert!(child.wait().unwrap().success());
}
