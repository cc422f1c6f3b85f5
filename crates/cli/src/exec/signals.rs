//! Signals: ours while we wait, the child's while it runs.
//!
//! Owns which signals are caught and which of them are passed on. What a signal means while waiting is the caller's.

use std::io;
use std::process::ExitStatus;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a command expects to be told by whoever started it.
pub const CAUGHT: [Signal; 13] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::XCPU,
    Signal::XFSZ,
];

/// Those that the kernel sends to everybody in the terminal's foreground group, so to the child as well.
const OF_TERMINAL: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::WINCH];

/// Those that mean "stop".
const ENDING: [Signal; 4] = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP];

/// The signals that reach this process, in order.
pub struct Signals {
    caught: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Starts catching. A signal that was ignored when we were started stays ignored, for the child too: `nohup`
    /// and background jobs rely on it.
    pub fn listen(signals: &[Signal]) -> Result<Self> {
        let ignored = ignored();
        let (send, caught) = mpsc::unbounded_channel();
        for one in signals.iter().copied().filter(|one| ignored & (1 << (one.as_raw() - 1)) == 0) {
            let mut stream =
                signal(SignalKind::from_raw(one.as_raw())).context("cannot listen to signals")?;
            let send = send.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && send.send(one).is_ok() {} });
        }
        Ok(Self { caught })
    }

    /// The next signal that means "stop". Others are dropped: there is no child to pass them to.
    pub async fn stop(&mut self) -> Signal {
        loop {
            let one = self.next().await;
            if ENDING.contains(&one) {
                return one;
            }
        }
    }

    /// A signal that means "stop" and has arrived already.
    pub fn stopped(&mut self) -> Option<Signal> {
        std::iter::from_fn(|| self.caught.try_recv().ok()).find(|one| ENDING.contains(one))
    }

    /// Waits for the child's end and passes on what arrives meanwhile.
    pub async fn attend(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            tokio::select! {
                status = child.wait() => return status,
                one = self.next() => {
                    // No id means that the child has ended; its number may be somebody else's by now.
                    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                    if let Some(pid) = pid
                        && !(OF_TERMINAL.contains(&one) && in_foreground())
                    {
                        // It may have ended this instant; then there is nobody to tell.
                        let _ = rustix::process::kill_process(pid, one);
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Signal {
        match self.caught.recv().await {
            Some(one) => one,
            // Nothing is listened to, or all of it was ignored from the start: none will come.
            None => std::future::pending().await,
        }
    }
}

/// Whether we are in the foreground group of a terminal. Asked of the controlling terminal, because the input may be
/// a pipe and Ctrl-C still goes to the whole group.
fn in_foreground() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The signals ignored by this process, as a bit set; bit 0 is signal 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
