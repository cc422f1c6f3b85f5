//! Taking a run when the reply may be lost.
//!
//! The authority gives a run to one holder at a time, so asking again takes nothing from anybody. But the holder
//! that a second attempt meets may be the first attempt, whose fence was lost with its reply: nobody renews that
//! lease, so it is waited for.

use std::time::Duration;

use holdgate_authority::Error;
use holdgate_core::limits::RUN_LEASE_MS;
use holdgate_wire::{Code, LeaseRun, Run};

use crate::patience::Attempts;
use crate::remote::Remote;

pub(crate) async fn take(remote: &Remote, id: &str) -> Result<Run, Error> {
    let longest = Duration::from_millis(RUN_LEASE_MS.unsigned_abs());
    let mut attempts = Attempts::within(remote.patience());
    let mut lost_a_reply = false;
    loop {
        let error = match remote.hold(id, &LeaseRun::default()).await {
            Ok(run) => return Ok(run),
            Err(error) => error,
        };
        match &error {
            Error::Problem(held) if held.code == Code::RunHeld && lost_a_reply => {
                // Once: a holder that lives renews, and is then met again.
                let lapses =
                    held.retry_after_ms.map_or(longest, |ms| Duration::from_millis(ms.unsigned_abs()));
                if !attempts.pause_for(lapses.min(longest)).await {
                    return Err(error);
                }
                return remote.hold(id, &LeaseRun::default()).await;
            }
            _ => {
                attempts.again_after(error).await?;
                lost_a_reply = true;
            }
        }
    }
}
