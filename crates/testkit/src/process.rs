//! Starting programs under test as a terminal would start them.

use std::process::Command;

/// Interrupt and quit, as bits of a signal mask: 2 and 3, counted from 1.
const INTERRUPT_AND_QUIT: u64 = 0b110;

/// `program`, with interrupt and quit doing what they do by default. A shell starts what it puts into the background
/// with both ignored, and what is ignored at the start stays ignored: tests that run there would wait for ever.
pub fn command(program: &str) -> Command {
    if !ignores_interrupts() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal=INT,QUIT", program]);
    command
}

/// Whether this process was started with interrupts ignored. Linux tells; elsewhere it is taken not to be.
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & INTERRUPT_AND_QUIT != 0)
}
