//! What a command says on standard output: one JSON document for programs, or lines for people.

use std::io::Write as _;

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Prints a document.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(document: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(document).map_err(anyhow::Error::from)?;
    print(&format!("{text}\n"))?;
    Ok(Exit::Done)
}

/// Prints text.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // Whoever reads has read enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
