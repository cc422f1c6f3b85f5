//! How long, and how often, a failed call is tried again. The one place that repeats anything.

use std::future::Future;
use std::time::Duration;

use holdgate_authority::Error;
use tokio::time::{Instant, sleep};

/// The first pause between two attempts. Each later one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Pauses that grow: each is twice the one before, up to a longest.
pub(crate) struct Backoff {
    pause: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self { pause: FIRST_PAUSE, longest }
    }

    /// The next pause, at least as long as somebody `asked` for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let pause = asked.unwrap_or_default().max(self.pause);
        self.pause = (self.pause * 2).min(self.longest);
        pause
    }
}

/// The attempts of one call: when to try again, and when to give up.
pub(crate) struct Attempts {
    until: Instant,
    backoff: Backoff,
}

impl Attempts {
    /// Attempts that start within `patience` from now.
    pub(crate) fn within(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, backoff: Backoff::up_to(LONGEST_PAUSE) }
    }

    /// Pauses before another attempt. Gives `error` back when it is final or the time is up.
    pub(crate) async fn again_after(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_transient() {
            return Err(error);
        }
        let asked = match &error {
            Error::Problem(problem) => {
                problem.retry_after_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()))
            }
            Error::Unreachable { .. } => None,
        };
        let pause = self.backoff.next(asked);
        if Instant::now() + pause > self.until {
            return Err(error);
        }
        sleep(pause).await;
        Ok(())
    }

    /// Pauses for as long as somebody asked to. False when that is beyond what is left.
    pub(crate) async fn pause_for(&mut self, pause: Duration) -> bool {
        let enough = Instant::now() + pause <= self.until;
        if enough {
            sleep(pause).await;
        }
        enough
    }
}

/// Repeats a call that is safe to repeat while it fails for a passing reason, within `patience`.
pub(crate) async fn repeat<T, F>(patience: Duration, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempts = Attempts::within(patience);
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) => attempts.again_after(error).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use holdgate_wire::Code;

    use super::*;

    fn unreachable() -> Error {
        Error::Unreachable { url: "http://127.0.0.1:1".to_owned(), why: "refused".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_failure_is_tried_again_until_patience_ends() {
        let tries = Cell::new(0);
        let started = Instant::now();
        let result: Result<(), Error> = repeat(Duration::from_secs(2), || {
            tries.set(tries.get() + 1);
            async { Err(unreachable()) }
        })
        .await;
        assert!(matches!(result, Err(Error::Unreachable { .. })));
        assert!(tries.get() > 4 && tries.get() < 10, "{}", tries.get());
        assert!(started.elapsed() <= Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_final() {
        let tries = Cell::new(0);
        let result: Result<(), Error> = repeat(Duration::from_secs(60), || {
            tries.set(tries.get() + 1);
            async { Err(Error::new(Code::NotFound, "no")) }
        })
        .await;
        assert_eq!(result.unwrap_err().code(), Some(Code::NotFound));
        assert_eq!(tries.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_was_asked_for_is_kept() {
        let tries = Cell::new(0);
        let started = Instant::now();
        repeat(Duration::from_secs(60), || {
            tries.set(tries.get() + 1);
            let first = tries.get() == 1;
            async move {
                let mut problem = holdgate_wire::Problem::new(Code::RateLimited, "slow down");
                problem.retry_after_ms = Some(7_000);
                if first { Err(problem.into()) } else { Ok(()) }
            }
        })
        .await
        .unwrap();
        assert!(started.elapsed() >= Duration::from_secs(7));
    }
}
