//! Slow, idle and too many peers.

use axum::routing::get;
use holdgate_core::limits::{RESPONSE_STALL_MS, WAIT_MS};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;

fn app() -> Router {
    let patient = async || {
        tokio::time::sleep(Duration::from_millis(WAIT_MS.unsigned_abs())).await;
        "at last"
    };
    Router::new()
        .route("/", get(async || "hello"))
        .route("/wait", get(patient))
        .route("/long", get(async || "x".repeat(1 << 20)))
}

/// Our end of a connection, and the gateway's work on the other.
fn connect() -> (DuplexStream, JoinHandle<()>, watch::Sender<bool>) {
    let (ours, theirs) = tokio::io::duplex(1_024);
    let (stop, stopping) = watch::channel(false);
    (ours, tokio::spawn(converse(theirs, ([127, 0, 0, 1], 1).into(), app(), stopping)), stop)
}

async fn all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_arrive_ends_the_connection_and_so_does_silence() {
    let patience = Duration::from_millis(HEAD_MS.unsigned_abs());
    for sent in ["", "GET / HTT", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let (mut stream, _, _stop) = connect();
        let started = Instant::now();
        stream.write_all(sent.as_bytes()).await.unwrap();
        assert!(!all(&mut stream).await.contains("200"), "{sent}");
        assert_eq!(started.elapsed().as_secs(), patience.as_secs(), "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_in_ends_the_connection_as_well() {
    let (mut stream, gateway, _stop) = connect();
    let started = Instant::now();
    while stream.write_all(b"G").await.is_ok() && started.elapsed().as_secs() < 3_600 {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    gateway.await.unwrap();
    assert!(started.elapsed().as_secs() < 60);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_the_next_request_and_then_closed() {
    let (mut stream, _, _stop) = connect();
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    tokio::time::sleep(Duration::from_millis(HEAD_MS.unsigned_abs()) - Duration::from_secs(1)).await;
    stream.write_all(request).await.unwrap();
    let answered = all(&mut stream).await;
    assert_eq!(answered.matches("hello").count(), 2, "{answered}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_may_take_its_time() {
    let (mut stream, _, _stop) = connect();
    stream.write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(all(&mut stream).await.ends_with("at last"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_its_answer_is_cut() {
    let (mut stream, gateway, _stop) = connect();
    let started = Instant::now();
    stream.write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    gateway.await.unwrap();
    assert_eq!(started.elapsed().as_secs(), RESPONSE_STALL_MS.unsigned_abs() / 1_000);
}

#[tokio::test]
async fn whoever_comes_when_every_place_is_taken_waits_for_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let serving = tokio::spawn(serve(listener, app(), 2, stopping));
    let mut first = TcpStream::connect(address).await.unwrap();
    let second = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    first.write_all(request).await.unwrap();
    assert!(first.read_u8().await.is_ok(), "it has a place");
    let mut third = TcpStream::connect(address).await.unwrap();
    third.write_all(request).await.unwrap();
    let mut early = [0];
    let answer = tokio::time::timeout(Duration::from_millis(100), third.read(&mut early)).await;
    assert!(answer.is_err(), "both places are taken");
    drop(second);
    assert!(third.read_u8().await.is_ok(), "a place is free");
    stop.send(true).unwrap();
    serving.await.unwrap();
}
