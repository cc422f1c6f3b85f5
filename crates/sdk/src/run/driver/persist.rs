//! Calls of the authority that are made until they are answered.
//!
//! Only for calls that may be made twice. Owns patience; each caller says what a "no" means.

use std::future::Future;
use std::time::Duration;

use holdgate_authority::Error;
use holdgate_wire::Code;
use tokio::time::Instant;

/// How long one call may stay without any answer.
pub(super) const CALL: Duration = Duration::from_secs(10);
/// How long a call is tried while the authority is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first and the longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Makes a call until it is answered, or for as long as is sensible.
pub(super) async fn persist<T, F>(call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let until = Instant::now() + PATIENCE;
    let mut pause = PAUSES.0;
    loop {
        let error = match once(call()).await {
            Err(error) if error.is_transient() => error,
            answered => return answered,
        };
        if Instant::now() + pause >= until {
            return Err(error);
        }
        tracing::debug!(%error, "trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Makes a call once. No answer in time is an answer that may come later.
pub(super) async fn once<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let silence = || Error::new(Code::Unavailable, "the authority did not answer in time");
    tokio::time::timeout(CALL, call).await.unwrap_or_else(|_| Err(silence()))
}
