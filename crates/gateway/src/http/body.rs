//! Request bodies: how large and how slow they may be, and where they are wrong.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{FromRequest, Request};
use holdgate_core::limits::{BODY_BYTES, BODY_MS, BODY_STALL_MS};
use holdgate_wire::{Code, Problem};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::problem::HttpError;

/// A JSON object as a body. An empty body is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, _: &S) -> Result<Self, HttpError> {
        let bytes = read(request.into_body(), BODY_BYTES).await?;
        parse(&bytes).map(Body).map_err(|detail| Problem::new(Code::InvalidRequest, detail).into())
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let text = if bytes.is_empty() { b"{}" } else { bytes };
    // Serde would also take the fields of an object in a row.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err("the body: it is not a JSON object".to_owned());
    }
    serde_json::from_slice(text)
        .map_err(|error| format!("the body: {}", in_words_of_json(&error.to_string())))
}

/// Serde's message without the names that types have in this program.
fn in_words_of_json(message: &str) -> String {
    let mut said = message.to_owned();
    for (inside, outside) in
        [("expected struct ", "expected an object"), ("expected enum ", "expected one of its names")]
    {
        // The last one: what comes before it may be the caller's.
        if let Some(at) = said.rfind(inside) {
            let name = &said[at + inside.len()..];
            let rest = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            let rest = rest.find(" at line").map_or("", |place| &rest[place..]);
            said = format!("{}{outside}{rest}", &said[..at]);
        }
    }
    said
}

/// The whole body, of at most `limit` bytes.
///
/// One that says beforehand that it is larger is refused unread.
pub(super) async fn read(mut body: axum::body::Body, limit: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || Problem::new(Code::TooLarge, format!("the body is larger than {limit} bytes"));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let stall = Duration::from_millis(BODY_STALL_MS.unsigned_abs());
    let deadline = Instant::now() + Duration::from_millis(BODY_MS.unsigned_abs());
    let mut bytes = Vec::new();
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Ok(frame) = timeout_at(deadline.min(Instant::now() + stall), frame).await else {
            return Err(Problem::new(Code::InvalidRequest, "the body did not arrive in time"));
        };
        let data = match frame {
            None => return Ok(bytes),
            Some(Ok(frame)) => frame.into_data(),
            Some(Err(error)) => {
                let detail = format!("the body could not be read: {error}");
                return Err(Problem::new(Code::InvalidRequest, detail));
            }
        };
        // What is no data is a trailer, which means nothing here.
        if let Ok(data) = data {
            if data.len() > limit - bytes.len() {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;
    use serde::Deserialize;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only whether it is read matters")]
    struct Inner {
        n: u8,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only whether it is read matters")]
    struct Outer {
        inner: Inner,
    }

    async fn takes(_: Body<serde_json::Value>) {}

    /// What a sender that begins so, and goes on with one byte at a time, is answered; and after how many seconds.
    async fn answered(head: &str, pause: Option<Duration>) -> (String, u64) {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let (_stop, stopping) = tokio::sync::watch::channel(false);
        let app = Router::new().route("/", post(takes));
        tokio::spawn(crate::connections::converse(theirs, crate::connections::alone(), app, stopping));
        let (mut reader, mut writer) = tokio::io::split(ours);
        writer.write_all(format!("POST / HTTP/1.1\r\nHost: x\r\n{head}").as_bytes()).await.unwrap();
        let trickle = tokio::spawn(async move {
            while let Some(pause) = pause {
                tokio::time::sleep(pause).await;
                if writer.write_all(b" ").await.is_err() {
                    break;
                }
            }
            // Keeps the connection open.
            std::future::pending::<()>().await;
        });
        let started = Instant::now();
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        trickle.abort();
        (text, started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_trickles_in_is_given_up() {
        let (stalled, after) = answered("Content-Length: 100\r\n\r\n{", None).await;
        assert!(stalled.contains("400") && stalled.contains("in time"), "{stalled}");
        assert!((10..12).contains(&after), "{after}");
        let (trickled, after) = answered("Content-Length: 100\r\n\r\n{", Some(Duration::from_secs(4))).await;
        assert!(trickled.contains("400") && trickled.contains("in time"), "{trickled}");
        assert!((30..32).contains(&after), "{after}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_says_it_is_too_large_is_refused_at_once() {
        let (refused, after) = answered("Content-Length: 99999999999\r\n\r\n{", None).await;
        assert!(refused.contains("413") && refused.contains("too_large"), "{refused}");
        assert!(after < 2, "{after}");
    }

    #[test]
    fn only_an_object_is_a_body() {
        for body in ["[]", "[{}]", "null", "7", "\"{\"", " [1]", "\u{feff}{}"] {
            let refused = parse::<Outer>(body.as_bytes()).unwrap_err();
            assert_eq!(refused, "the body: it is not a JSON object", "{body}");
        }
        assert!(parse::<Outer>(br#" {"inner":{"n":1}}"#).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_without_the_names_of_types() {
        let wrong = parse::<Outer>(br#"{"inner":7}"#).unwrap_err();
        assert_eq!(wrong, "the body: invalid type: integer `7`, expected an object at line 1 column 10");
        let wrong = parse::<Outer>(br#"{"inner":[]}"#).unwrap_err();
        assert_eq!(wrong, "the body: invalid length 0, expected an object at line 1 column 11");
        let missing = parse::<Outer>(b"").unwrap_err();
        assert_eq!(missing, "the body: missing field `inner` at line 1 column 2");
    }
}
