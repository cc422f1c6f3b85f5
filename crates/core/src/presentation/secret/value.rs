//! What a value can be: an authentication scheme, a plain word, a reference to a variable, a secret.
//!
//! Owns the words that are no secrets although they stand where one could. Does not know names.

use super::bare::{Unit, spelt};

/// First words of an `Authorization` header. They stay; what follows is masked.
const SCHEMES: &[&str] = &[
    "apikey",
    "aws4-hmac-sha256",
    "basic",
    "bearer",
    "digest",
    "dpop",
    "genericapikey",
    "hawk",
    "key",
    "negotiate",
    "ntlm",
    "sharedkey",
    "token",
];
/// Values that say nothing: types and absent ones.
const PLAIN: &[&str] = &[
    "any",
    "bool",
    "boolean",
    "bytes",
    "false",
    "int",
    "integer",
    "nil",
    "none",
    "null",
    "number",
    "object",
    "off",
    "on",
    "optional",
    "required",
    "str",
    "string",
    "true",
    "undefined",
    "unknown",
];

/// Whether it ends a word that is not quoted. A percent escape does not.
pub(super) fn ends(unit: &Unit) -> bool {
    unit.raw && b" \t\n;|&<>()`".contains(&unit.c)
}

/// Whether a shell could read more than one word in it.
pub(super) fn is_odd(units: &[Unit]) -> bool {
    units.iter().any(|unit| ends(unit) || unit.is_raw(b'$'))
}

/// Whether the word is an authentication scheme.
pub(super) fn is_scheme(word: &[Unit]) -> bool {
    word.len() <= 20 && SCHEMES.contains(&spelt(word).to_ascii_lowercase().as_str())
}

/// The value after its authentication scheme, if it has one.
pub(super) fn without_scheme(value: &[Unit]) -> &[Unit] {
    let Some(word) = value.iter().take(21).position(Unit::is_blank) else {
        return value;
    };
    let blanks = value[word..].iter().take_while(|unit| unit.is_blank()).count();
    if is_scheme(&value[..word]) { &value[word + blanks..] } else { value }
}

/// Whether it could as well be the name of a program: short, in small letters throughout.
pub(super) fn is_like_a_program(word: &[Unit]) -> bool {
    word.len() < 16 && word.iter().all(|unit| !unit.c.is_ascii_digit() && !unit.c.is_ascii_uppercase())
}

/// Whether it is one of the words that say nothing.
pub(super) fn is_plain(value: &[Unit]) -> bool {
    value.len() <= 20 && PLAIN.contains(&spelt(value).to_ascii_lowercase().as_str())
}

/// Whether nothing is to be hidden: empty, masked already, or the name of a variable (`$TOKEN`).
pub(super) fn is_open(value: &[Unit]) -> bool {
    let variable = match value {
        [dollar, open, name @ .., close]
            if dollar.is_raw(b'$') && open.is_raw(b'{') && close.is_raw(b'}') =>
        {
            name
        }
        [dollar, name @ ..] if dollar.is_raw(b'$') => name,
        _ => &[],
    };
    let is_name = |unit: &Unit| unit.c.is_ascii_uppercase() || unit.c.is_ascii_digit() || unit.c == b'_';
    let is_variable =
        variable.iter().all(is_name) && variable.first().is_some_and(|unit| !unit.c.is_ascii_digit());
    is_variable || value.iter().all(|unit| unit.c == b'*')
}

/// Whether it is the path of a function or a variable in code: `os.environ`.
pub(super) fn is_path(word: &[Unit]) -> bool {
    word.iter().all(|unit| unit.c.is_ascii_alphanumeric() || matches!(unit.c, b'_' | b'.' | b':'))
        && word.first().is_some_and(|unit| !unit.c.is_ascii_digit())
}

/// Whether an argument is an option rather than the value of the one before it.
pub(super) fn is_option(argument: &str) -> bool {
    argument.starts_with("--") || (argument.len() == 2 && argument.starts_with('-'))
}
