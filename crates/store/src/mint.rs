//! Makes what must not be guessable or must not repeat: credentials and ids. The only source of randomness.

use holdgate_core::{EpochId, RunId};
use uuid::Uuid;

/// A new epoch's name.
pub fn epoch() -> EpochId {
    format!("epo_{}", time_ordered()).parse().expect("a uuid is a valid name")
}

/// A new run's id.
pub fn run() -> RunId {
    format!("run_{}", time_ordered()).parse().expect("a uuid is a valid name")
}

/// A new name for something of a caller's that has none: a boundary, a claim, an idempotency key.
pub fn name(prefix: &str) -> String {
    format!("{prefix}_{}", time_ordered())
}

/// A new credential: 256 random bits behind a prefix that secret scanners can find.
///
/// # Errors
/// Fails only if the machine has no source of randomness.
pub fn secret(prefix: &str) -> Result<String, getrandom::Error> {
    use std::fmt::Write as _;
    let mut bytes = [0u8; 32];
    #[expect(clippy::disallowed_methods, reason = "this is the mint")]
    getrandom::fill(&mut bytes)?;
    let mut text = format!("{prefix}_");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[expect(clippy::disallowed_methods, reason = "this is the mint")]
fn time_ordered() -> String {
    Uuid::now_v7().simple().to_string()
}
