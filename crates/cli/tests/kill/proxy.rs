//! A proxy between a process and its gateway that strikes at one chosen request: before the gateway gets it, or
//! after the gateway has answered and before the reply arrives. Every step that matters is a request, so
//! these are all the moments at which a crash can differ.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Where in an exchange the strike falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The request is lost.
    BeforeTheGateway,
    /// The request is done, its reply is lost.
    BeforeTheReply,
}

impl Moment {
    /// Both.
    pub const ALL: [Moment; 2] = [Moment::BeforeTheGateway, Moment::BeforeTheReply];
}

/// One crash to cause.
pub struct Strike {
    /// At which step, counted from 0.
    pub step: usize,
    /// When in that step.
    pub moment: Moment,
    /// What to do.
    pub action: Box<dyn Fn() + Send + Sync>,
}

/// A running proxy. It lives as long as the test process.
#[derive(Clone)]
pub struct Proxy {
    /// Where it listens, as a URL.
    pub url: String,
    state: Arc<State>,
}

struct State {
    gateway: String,
    strike: Option<Strike>,
    struck: AtomicBool,
    counted: AtomicUsize,
    seen: Mutex<Vec<String>>,
}

impl Proxy {
    /// Starts before the gateway at `gateway` (`host:port`).
    pub fn start(gateway: &str, strike: Option<Strike>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            gateway: gateway.to_owned(),
            strike,
            struck: AtomicBool::new(false),
            counted: AtomicUsize::new(0),
            seen: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A connection that breaks is the client's to notice.
                std::thread::spawn(move || drop(state.relay(&client)));
            }
        });
        Self { url, state }
    }

    /// Whether the strike has fallen.
    pub fn has_struck(&self) -> bool {
        self.state.struck.load(Ordering::SeqCst)
    }

    /// The steps so far, each as method and path.
    pub fn steps(&self) -> Vec<String> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl State {
    fn relay(&self, client: &TcpStream) -> std::io::Result<()> {
        let mut from_client = BufReader::new(client);
        while let Some(request) = message(&mut from_client)? {
            let step = self.count(&request);
            if self.strikes(step, Moment::BeforeTheGateway) {
                return Ok(());
            }
            let mut gateway = TcpStream::connect(&self.gateway)?;
            gateway.write_all(&request)?;
            let Some(reply) = message(&mut BufReader::new(&gateway))? else { return Ok(()) };
            if self.strikes(step, Moment::BeforeTheReply) {
                return Ok(());
            }
            (&*client).write_all(&reply)?;
        }
        Ok(())
    }

    /// The step's number, if the request is one: waiting and keeping leases alive come as often as time has it.
    fn count(&self, request: &[u8]) -> Option<usize> {
        let text = String::from_utf8_lossy(request);
        let line = text.lines().next().unwrap_or_default();
        let target = line.rsplit_once(' ').map_or(line, |(target, _)| target);
        let is_upkeep = target.contains("/wait") || target.contains("/renew");
        let renews_a_run =
            target.ends_with("/lease") && text.contains("\"fence\"") && !text.contains("\"release\"");
        if is_upkeep || renews_a_run {
            return None;
        }
        self.seen.lock().unwrap().push(target.to_owned());
        Some(self.counted.fetch_add(1, Ordering::SeqCst))
    }

    fn strikes(&self, step: Option<usize>, moment: Moment) -> bool {
        let Some(strike) = self.strike.as_ref().filter(|s| Some(s.step) == step && s.moment == moment) else {
            return false;
        };
        if self.struck.swap(true, Ordering::SeqCst) {
            return false;
        }
        (strike.action)();
        true
    }
}

/// One HTTP/1.1 message with a body of known length, byte for byte. `None` when the other side is done.
fn message(from: &mut impl std::io::BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut length = 0;
    loop {
        let start = bytes.len();
        if from.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&bytes[start..]).to_ascii_lowercase();
        assert!(!line.starts_with("transfer-encoding"), "the proxy knows bodies of known length only");
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    from.take(length).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
