//! An HTTP server that does to each request what a script says, and remembers what it was sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Act {
    /// It is answered.
    Answer(u16, Value),
    /// It is answered with what is not JSON.
    Text(u16, &'static str),
    /// It is read, and the connection closed without a word.
    Drop,
    /// It is answered by half.
    Half,
    /// It is sent elsewhere.
    Redirect(String),
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and target.
    pub line: String,
    /// The header lines, in lower case.
    pub headers: Vec<String>,
    /// The body; null when there is none.
    pub body: Value,
}

/// The server.
pub struct Scripted {
    pub url: String,
    acts: Arc<Mutex<VecDeque<Act>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Scripted {
    /// Plays `acts` in order. A request after the last is dropped.
    pub async fn play(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let acts = Arc::new(Mutex::new(acts.into_iter().collect::<VecDeque<_>>()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server = Self { url, acts: Arc::clone(&acts), seen: Arc::clone(&seen) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acts, seen) = (Arc::clone(&acts), Arc::clone(&seen));
                tokio::spawn(async move {
                    let Some((request, stream)) = read(stream).await else { return };
                    seen.lock().unwrap().push(request);
                    let act = acts.lock().unwrap().pop_front().unwrap_or(Act::Drop);
                    perform(act, stream).await;
                });
            }
        });
        server
    }

    /// What it was sent so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Methods and targets of what it was sent so far.
    pub fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    /// How many acts were not played.
    pub fn left(&self) -> usize {
        self.acts.lock().unwrap().len()
    }
}

async fn read(stream: TcpStream) -> Option<(Seen, TcpStream)> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let first = lines.remove(0);
    let headers: Vec<String> = lines.iter().map(|line| line.to_lowercase()).collect();
    let length = headers.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).await.ok()?;
    let seen = Seen {
        line: first.trim_end_matches(" HTTP/1.1").to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    Some((seen, reader.into_inner()))
}

async fn perform(act: Act, mut stream: TcpStream) {
    let response = |status: u16, headers: &str, body: &str, claimed: usize| {
        format!(
            "HTTP/1.1 {status} Status\r\nconnection: close\r\ncontent-length: {claimed}\r\n{headers}\r\n{body}"
        )
    };
    let text = match act {
        Act::Drop => return,
        Act::Answer(status, body) => {
            let body = body.to_string();
            response(status, "content-type: application/json\r\n", &body, body.len())
        }
        Act::Text(status, body) => response(status, "content-type: text/html\r\n", body, body.len()),
        Act::Half => response(200, "content-type: application/json\r\n", r#"{"id":"#, 400),
        Act::Redirect(to) => response(307, &format!("location: {to}\r\n"), "", 0),
    };
    // The client may have gone.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The id in every script.
pub const ID: &str = "apr_00112233445566778899aabbccddeeff";
/// The digest in every script.
pub const DIGEST: &str = "543a5a464fc6270ec21193dab48f42fa543a5a464fc6270ec21193dab48f42fa";

/// An approval in this status, with this decision.
pub fn approval(status: &str, decision: Option<&str>) -> Value {
    let mut approval = json!({
        "id": ID, "ref": "r", "kind": "exec", "status": status, "digest": DIGEST, "urlPath": "/approve/x",
        "createdAtMs": 1, "expiresAtMs": 2, "requester": {"kind": "agent", "label": "agent"},
        "presentation": {"kind": "exec", "headline": "Run `ls`", "facts": [], "flags": []},
        "requirement": {"approvals": 1, "requesterMayDecide": false, "reasonRequired": false, "allowedDecisions": ["allow-once", "deny"]},
        "votes": [], "source": {},
    });
    if let Some(decision) = decision {
        approval["decision"] = decision.into();
        approval["terminalReason"] = "user".into();
    }
    approval
}

/// A "no" with this code.
pub fn problem(code: &str, retry_after_ms: Option<i64>) -> Act {
    let mut body = json!({"type": "t", "title": "t", "status": 409, "code": code, "detail": code});
    if let Some(ms) = retry_after_ms {
        body["retryAfterMs"] = ms.into();
    }
    Act::Answer(409, body)
}
