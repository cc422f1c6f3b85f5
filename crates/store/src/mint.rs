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

/// A random UUID, for ids that other programs expect to look like one.
#[expect(clippy::disallowed_methods, reason = "this is the mint")]
pub fn uuid() -> String {
    Uuid::now_v7().to_string()
}

/// A pairing code to be typed by hand: 50 random bits in letters and digits that are hard to confuse, like
/// `7K2MD-0QXR9`.
///
/// # Errors
/// Fails only if the machine has no source of randomness.
pub fn pairing_code() -> Result<String, getrandom::Error> {
    // Crockford's base 32: no I, L, O or U.
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut bytes = [0u8; 10];
    #[expect(clippy::disallowed_methods, reason = "this is the mint")]
    getrandom::fill(&mut bytes)?;
    let mut code: String = bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte & 31)])).collect();
    code.insert(5, '-');
    Ok(code)
}

/// A pairing code as it was minted, from how somebody typed it: in any case, with or without the hyphen, and with
/// the letters that were left out taken for the digits that they look like.
pub fn typed_pairing_code(typed: &str) -> String {
    let read = |c: char| match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    let mut code: String = typed.chars().filter(|c| c.is_ascii_alphanumeric()).map(read).collect();
    if code.len() == 10 {
        code.insert(5, '-');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = pairing_code().unwrap();
        assert_eq!(code.len(), 11);
        assert_eq!(typed_pairing_code(&code), code);
        assert_eq!(typed_pairing_code(&format!(" {} ", code.to_lowercase().replace('-', " "))), code);
        assert_eq!(typed_pairing_code("oil23-45678"), "01123-45678");
    }
}
