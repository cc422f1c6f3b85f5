//! A text as a program that is not looking at it would take it: without what is not seen, escapes undone.
//!
//! Owns what is passed over when secrets are looked for, and the way back to the bytes of the text.

use super::super::visible::Look;

/// One character to be matched. What is not ASCII is [`OPAQUE`], and an unusual space is [`SPACE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// The character.
    pub(super) c: u8,
    /// It stands there as it is. A percent escape never ends a value and never opens a quotation.
    pub(super) raw: bool,
    /// Bytes of the text that it takes.
    len: u32,
    /// Where in the text.
    start: usize,
}

/// A character outside ASCII that is seen.
pub(super) const OPAQUE: u8 = 0x80;
/// A space other than U+0020: it parts words for an eye, not for a shell.
pub(super) const SPACE: u8 = 0xA0;

impl Unit {
    pub(super) fn start(&self) -> usize {
        self.start
    }

    pub(super) fn end(&self) -> usize {
        self.start + self.len as usize
    }

    /// Whether it is this character, not a percent escape of it.
    pub(super) fn is_raw(&self, c: u8) -> bool {
        self.raw && self.c == c
    }

    /// Whether it parts words on one line.
    pub(super) fn is_blank(&self) -> bool {
        matches!(self.c, b' ' | b'\t' | SPACE)
    }

    /// Whether it can stand in the name of a field.
    pub(super) fn is_name(&self) -> bool {
        self.c.is_ascii_alphanumeric() || matches!(self.c, b'_' | b'-' | b'.')
    }
}

/// Most backslashes of one escape.
const ESCAPES: usize = 15;

/// The text to match on.
pub(super) fn bare(text: &str) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::with_capacity(text.len());
    let mut start = 0;
    while let Some(&byte) = text.as_bytes().get(start) {
        if matches!(byte, b' '..=b'~') && !matches!(byte, b'%' | b'\\') {
            units.push(Unit { c: byte, raw: true, len: 1, start });
            start += 1;
            continue;
        }
        let Some(first) = text[start..].chars().next() else {
            break;
        };
        let after = &text.as_bytes()[start + first.len_utf8()..];
        let (c, raw, len) = match first {
            '%' => match percent_escape(after) {
                Some(c) => (Some(c), false, 3),
                None => (Some(b'%'), true, 1),
            },
            '\\' => match code_escape(after) {
                // It is what a program reads, but no quotation sign of the text it stands in.
                Some((c @ ('"' | '\'' | '\\'), len)) => (seen(c), false, len),
                Some((c, len)) => (seen(c), true, len),
                None => (Some(b'\\'), true, 1),
            },
            _ => (seen(first), true, first.len_utf8()),
        };
        if let (Some(c), Ok(len)) = (c, u32::try_from(len)) {
            units.push(Unit { c, raw, len, start });
        }
        start += len;
    }
    units
}

/// The character of an escape as JSON has it (`\u200b`), whose first backslash has been read, and its length. In a text
/// in a text it has more backslashes.
fn code_escape(after: &[u8]) -> Option<(char, usize)> {
    let backslashes = after.iter().take(ESCAPES).take_while(|&&b| b == b'\\').count();
    let digits = after[backslashes..].strip_prefix(b"u")?.get(..4)?;
    let code = digits.iter().try_fold(0, |code, &b| Some(code * 16 + char::from(b).to_digit(16)?))?;
    // Half of a surrogate pair is seen as a part of what it is a half of.
    Some((char::from_u32(code).unwrap_or('\u{FFFD}'), backslashes + 6))
}

/// The printable character of a percent escape, whose `%` has been read.
fn percent_escape(after: &[u8]) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    let code = digit(*after.first()?)? * 16 + digit(*after.get(1)?)?;
    u8::try_from(code).ok().filter(|c| matches!(c, b' '..=b'~'))
}

/// What is matched for a character; nothing if it can be slipped into a word unseen.
fn seen(c: char) -> Option<u8> {
    match c {
        '\t' => Some(b'\t'),
        '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some(b'\n'),
        ' '..='~' => u8::try_from(c).ok(),
        _ => match Look::of(c) {
            Look::Invisible | Look::Control | Look::Undefined | Look::Mark => None,
            Look::Space => Some(SPACE),
            Look::Honest => Some(OPAQUE),
        },
    }
}

/// The matched characters as a text.
pub(super) fn spelt(units: &[Unit]) -> String {
    units.iter().map(|unit| if unit.c < 0x80 { char::from(unit.c) } else { '·' }).collect()
}
