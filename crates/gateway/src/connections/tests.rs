//! Slow, idle and too many peers.

use axum::Extension;
use axum::routing::get;
use holdgate_core::PrincipalId;
use holdgate_core::limits::{RESPONSE_STALL_MS, WAIT_MS};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;
use crate::shares::Shares;

fn app() -> Router {
    let patient = async || {
        tokio::time::sleep(Duration::from_millis(WAIT_MS.unsigned_abs())).await;
        "at last"
    };
    Router::new()
        .route("/", get(async || "hello"))
        .route("/wait", get(patient))
        .route("/long", get(async || "x".repeat(1 << 20)))
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()))
        .route("/echo", get(echo))
}

/// Switches to a protocol that says everything back.
async fn echo(request: Request) -> Response {
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        // Its peer may go at any time.
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [("connection", "upgrade"), ("upgrade", "echo")] {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

/// Our end of a connection, and the gateway's work on the other.
fn connect() -> (DuplexStream, JoinHandle<()>, watch::Sender<bool>) {
    let (ours, theirs) = tokio::io::duplex(1_024);
    let (stop, stopping) = watch::channel(false);
    (ours, tokio::spawn(converse(theirs, alone(), app(), stopping)), stop)
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

#[tokio::test(start_paused = true)]
async fn what_a_request_has_taken_is_given_back_when_its_answer_is_read() {
    let (shares, somebody) = (Shares::of(2), "somebody".parse().unwrap());
    let gate = Arc::clone(&shares);
    let known = PrincipalId::clone(&somebody);
    let take = async move |Extension(taken): Extension<Taken>| {
        taken.by(gate.enter(&known).unwrap());
        "x".repeat(1 << 20)
    };
    let app = Router::new().route("/", get(take));
    let (mut ours, theirs) = tokio::io::duplex(1_024);
    let (_stop, stopping) = watch::channel(false);
    tokio::spawn(converse(theirs, alone(), app, stopping));
    ours.write_all(HELLO).await.unwrap();
    let mut head = [0; 12];
    ours.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert!(shares.enter(&somebody).is_err(), "most of it is not sent");
    let mut rest = vec![0; 1 << 20];
    ours.read_exact(&mut rest).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    shares.enter(&somebody).unwrap();
}

const HELLO: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const WAIT: &[u8] = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
const UPGRADE: &[u8] = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// A gateway with so many places.
struct Crowded {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Crowded {
    async fn with(places: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let serving = tokio::spawn(serve(listener, app(), None, Places::new(places), stopping));
        Self { address, stop, serving }
    }

    async fn send(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    }

    /// A connection that was answered and is kept.
    async fn kept(&self) -> TcpStream {
        let mut stream = self.send(HELLO).await;
        is_answered(&mut stream).await;
        stream
    }

    /// A connection that speaks another protocol now.
    async fn upgraded(&self) -> TcpStream {
        let mut stream = self.send(UPGRADE).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"));
        stream
    }

    async fn stop(self) {
        self.stop.send(true).unwrap();
        self.serving.await.unwrap();
    }
}

async fn is_answered(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        answer.push(stream.read_u8().await.expect("it has a place"));
    }
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
}

/// Whether nothing comes for a moment.
async fn is_quiet(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(100), stream.read(&mut [0])).await.is_err()
}

#[tokio::test]
async fn when_every_place_is_taken_the_longest_idle_connection_makes_room() {
    let gateway = Crowded::with(3).await;
    let mut oldest = gateway.kept().await;
    let mut middle = gateway.kept().await;
    let mut newest = gateway.kept().await;
    // Who is used again is not idle for long.
    oldest.write_all(HELLO).await.unwrap();
    is_answered(&mut oldest).await;
    let _fourth = gateway.kept().await;
    assert!(is_closed(&mut middle).await);
    for kept in [&mut newest, &mut oldest] {
        kept.write_all(HELLO).await.unwrap();
        is_answered(kept).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn whoever_has_not_said_anything_yet_or_is_halfway_makes_room_as_well() {
    for sent in [&b""[..], b"GET / HT"] {
        let gateway = Crowded::with(1).await;
        let mut silent = gateway.send(sent).await;
        gateway.kept().await;
        assert!(is_closed(&mut silent).await);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn nobody_who_is_being_answered_makes_room() {
    let gateway = Crowded::with(2).await;
    let mut waiting = gateway.send(WAIT).await;
    let second = gateway.send(WAIT).await;
    let mut third = gateway.send(HELLO).await;
    assert!(is_quiet(&mut third).await && is_quiet(&mut waiting).await, "both places are taken");
    drop(second);
    is_answered(&mut third).await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place_until_it_ends() {
    let gateway = Crowded::with(1).await;
    let mut upgraded = gateway.upgraded().await;
    let mut second = gateway.send(HELLO).await;
    assert!(is_quiet(&mut second).await, "the place is taken");
    upgraded.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    upgraded.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    drop(upgraded);
    is_answered(&mut second).await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_end_waits_for_upgraded_connections_a_moment() {
    let gateway = Crowded::with(2).await;
    let upgraded = gateway.upgraded().await;
    gateway.stop.send(true).unwrap();
    assert!(!gateway.serving.is_finished());
    drop(upgraded);
    timeout(DRAIN / 2, gateway.serving).await.expect("nobody is left").unwrap();

    let gateway = Crowded::with(2).await;
    let _open = gateway.upgraded().await;
    timeout(DRAIN * 5, gateway.stop()).await.expect("it does not wait for ever");
}

#[tokio::test]
async fn a_request_tells_who_sent_it() {
    let gateway = Crowded::with(1).await;
    let mut stream = gateway.send(b"GET /peer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let told = all(&mut stream).await;
    assert!(told.ends_with(&stream.local_addr().unwrap().to_string()), "{told}");
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_written_to_a_connection_waits_for_no_acknowledgement() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (theirs, ..) = admit(&listener, &Places::new(1), &mut None).await;
    assert!(theirs.nodelay().unwrap());
}
