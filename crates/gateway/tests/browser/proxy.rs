//! A line between the browser and the gateway that can be cut at chosen places.
//!
//! Owns bytes and the moment of the cut. Reads just enough of them to tell a decision and a wait from other calls.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Everything passes.
    Open,
    /// Nothing passes; connections end.
    Cut,
    /// The next decision does not reach the gateway; then the line is cut.
    LoseRequest,
    /// The next decision reaches the gateway, its reply does not come back; then the line is cut.
    LoseReply,
    /// What a wait answers is never heard; everything else passes.
    DeafWaits,
}

/// The line, on a port of its own.
pub struct Proxy {
    /// What the browser calls.
    pub url: String,
    line: Arc<watch::Sender<Line>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts before the gateway at `upstream`, a host and port.
    pub async fn before(upstream: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let line = Arc::new(watch::channel(Line::Open).0);
        let shared = Arc::clone(&line);
        let accepting = tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                let (upstream, line) = (upstream.clone(), Arc::clone(&shared));
                // A connection that breaks is what this is for.
                tokio::spawn(async move {
                    let _ = carry(browser, &upstream, &line).await;
                });
            }
        });
        Self { url: format!("http://{address}"), line, accepting }
    }

    /// Changes what the line does from now on.
    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// What the line does.
    pub fn line(&self) -> Line {
        *self.line.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(browser: TcpStream, upstream: &str, line: &watch::Sender<Line>) -> io::Result<()> {
    let mut changes = line.subscribe();
    if *changes.borrow_and_update() == Line::Cut {
        return Ok(());
    }
    let gateway = TcpStream::connect(upstream).await?;
    let (mut from_browser, mut to_browser) = browser.into_split();
    let (mut from_gateway, mut to_gateway) = gateway.into_split();
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let (mut cuts_on_reply, mut is_deaf) = (false, false);
    loop {
        tokio::select! {
            read = from_browser.read(&mut up) => {
                let bytes = &up[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                let target = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
                let target = String::from_utf8_lossy(target);
                let is_decision = target.starts_with("POST ") && target.contains("/decision ");
                // Copied first: a borrow that lives on would block the sender.
                let now = *line.borrow();
                match now {
                    Line::LoseReply if is_decision => cuts_on_reply = true,
                    Line::LoseRequest if is_decision => {
                        line.send_replace(Line::Cut);
                        return Ok(());
                    }
                    Line::DeafWaits if target.contains("/wait?") => is_deaf = true,
                    _ => {}
                }
                to_gateway.write_all(bytes).await?;
            }
            read = from_gateway.read(&mut down) => {
                let bytes = &down[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                if cuts_on_reply {
                    line.send_replace(Line::Cut);
                    return Ok(());
                }
                if !is_deaf {
                    to_browser.write_all(bytes).await?;
                }
            }
            changed = changes.changed() => {
                if changed.is_err() || *changes.borrow_and_update() == Line::Cut {
                    return Ok(());
                }
            }
        }
    }
}
