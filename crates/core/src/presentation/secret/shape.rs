//! Secrets that are known by their own shape, wherever they stand: tokens, bearer tokens, private keys, logins in URLs.
//!
//! Owns the list of shapes. A secret that only its name gives away is `field`'s.

use std::ops::Range;

use super::Span;
use super::bare::{SPACE, Unit};

/// A kind of token.
struct Shape {
    prefix: &'static str,
    /// Characters after the prefix, besides letters and digits.
    signs: &'static [u8],
    /// Fewest characters after the prefix.
    least: usize,
    /// A digit or a capital must be among them: the prefix is also a beginning of ordinary words.
    varied: bool,
    /// Fewest dots.
    dots: usize,
}

const fn shape(prefix: &'static str, signs: &'static [u8], least: usize) -> Shape {
    Shape { prefix, signs, least, varied: false, dots: 0 }
}

const fn varied(prefix: &'static str, signs: &'static [u8], least: usize) -> Shape {
    Shape { prefix, signs, least, varied: true, dots: 0 }
}

const SHAPES: &[Shape] = &[
    varied("sk-", b"-_", 16),
    varied("sk_live_", b"_", 12),
    varied("sk_test_", b"_", 12),
    varied("rk_live_", b"_", 12),
    varied("rk_test_", b"_", 12),
    varied("whsec_", b"+/=", 16),
    shape("ghp_", b"", 16),
    shape("gho_", b"", 16),
    shape("ghu_", b"", 16),
    shape("ghs_", b"", 16),
    shape("ghr_", b"", 16),
    shape("github_pat_", b"_", 16),
    varied("glpat-", b"-_.", 12),
    shape("npm_", b"", 20),
    varied("pypi-", b"-_", 16),
    varied("xoxa-", b"-", 8),
    varied("xoxb-", b"-", 8),
    varied("xoxe-", b"-", 8),
    varied("xoxp-", b"-", 8),
    varied("xoxr-", b"-", 8),
    varied("xoxs-", b"-", 8),
    varied("xapp-", b"-", 8),
    shape("AKIA", b"", 12),
    shape("ASIA", b"", 12),
    shape("AIza", b"-_", 24),
    shape("hf_", b"", 24),
    varied("ya29.", b"-_", 16),
    shape("AGE-SECRET-KEY-1", b"", 16),
    Shape { prefix: "eyJ", signs: b"-_.=", least: 8, varied: false, dots: 2 },
    shape("hgo_", b"-_", 6),
    shape("hga_", b"-_", 6),
    shape("hgs_", b"-_", 6),
    shape("hgd_", b"-_", 6),
    shape("hgr_", b"-_", 6),
];

/// Everything of the text that is a secret by its shape.
pub(super) fn find(units: &[Unit], found: &mut Vec<Span>) {
    tokens(units, found);
    bearers(units, found);
    bots(units, found);
    logins(units, found);
    private_keys(units, found);
}

/// First characters of the prefixes.
const FIRST: [bool; 128] = {
    let mut first = [false; 128];
    let mut at = 0;
    while at < SHAPES.len() {
        first[SHAPES[at].prefix.as_bytes()[0] as usize] = true;
        at += 1;
    }
    first
};

fn tokens(units: &[Unit], found: &mut Vec<Span>) {
    // What is too short or too plain from one place on is so from every later place of the same run.
    let mut hopeless = [0; SHAPES.len()];
    let mut is_inside = false;
    let mut at = 0;
    while let Some(unit) = units.get(at) {
        let can_begin = !is_inside && FIRST.get(usize::from(unit.c)) == Some(&true);
        is_inside = unit.c.is_ascii_alphanumeric();
        at += 1;
        if !can_begin {
            continue;
        }
        let mut candidates = SHAPES.iter().zip(&mut hopeless);
        if let Some(end) = candidates.find_map(|(shape, hopeless)| token(units, at - 1, shape, hopeless)) {
            found.push(Span::of(&units[at - 1..end]));
            is_inside = true;
            at = end;
        }
    }
}

/// Where the token of this shape that begins here ends.
fn token(units: &[Unit], at: usize, shape: &Shape, hopeless: &mut usize) -> Option<usize> {
    let body = at + shape.prefix.len();
    if at < *hopeless || !starts(units, at, shape.prefix) {
        return None;
    }
    let is_part = |unit: &&Unit| unit.c.is_ascii_alphanumeric() || shape.signs.contains(&unit.c);
    let length = units[body..].iter().take_while(is_part).count();
    let run = &units[body..body + length];
    let is_varied = run.iter().any(|unit| unit.c.is_ascii_digit() || unit.c.is_ascii_uppercase());
    let dots = run.iter().filter(|unit| unit.c == b'.').count();
    if length >= shape.least && (is_varied || !shape.varied) && dots >= shape.dots {
        return Some(body + length);
    }
    *hopeless = body + length;
    None
}

fn starts(units: &[Unit], at: usize, text: &str) -> bool {
    let here = units[at..].iter().map(|unit| unit.c);
    units.len() - at >= text.len() && here.zip(text.bytes()).all(|(a, b)| a == b)
}

/// Words after `bearer` that are prose.
const PROSE: &[&str] = &[
    "and",
    "auth",
    "authentication",
    "authorization",
    "credential",
    "credentials",
    "header",
    "headers",
    "in",
    "is",
    "of",
    "or",
    "scheme",
    "token",
    "tokens",
];

/// `Bearer TOKEN`, in a header or not.
fn bearers(units: &[Unit], found: &mut Vec<Span>) {
    let is_letter = |at: usize| units.get(at).is_some_and(|unit| unit.c.is_ascii_alphanumeric());
    for (at, six) in units.windows(6).enumerate() {
        let is_word = matches!(six[0].c, b'b' | b'B')
            && six.iter().map(|unit| unit.c.to_ascii_lowercase()).eq(*b"bearer")
            && !(at > 0 && is_letter(at - 1));
        if !is_word {
            continue;
        }
        let blanks = units[at + 6..].iter().take_while(|unit| unit.is_blank()).count();
        if blanks == 0 {
            continue;
        }
        let start = at + 6 + blanks;
        let is_part = |unit: &&Unit| unit.c.is_ascii_alphanumeric() || b"-._~+/=".contains(&unit.c);
        let length = units[start..].iter().take_while(is_part).count();
        let word = &units[start..start + length];
        let spelt = super::bare::spelt(word).trim_end_matches(['.', '/']).to_ascii_lowercase();
        // To a shell, what comes after `x=Bearer` is a command.
        let is_assigned = at > 0 && units[at - 1].raw && !b" \t\n\"',(>".contains(&units[at - 1].c);
        let is_prose = (six[0].c == b'b' || is_assigned) && super::value::is_like_a_program(word);
        if length > 0 && !is_prose && !PROSE.contains(&spelt.as_str()) {
            found.push(Span::of(word));
        }
    }
}

/// The secret part of a chat bot's token: `123456789:` and at least thirty characters.
fn bots(units: &[Unit], found: &mut Vec<Span>) {
    for at in 6..units.len() {
        if units[at].c != b':' || !units[at - 6..at].iter().all(|unit| unit.c.is_ascii_digit()) {
            continue;
        }
        let is_part = |unit: &&Unit| unit.c.is_ascii_alphanumeric() || matches!(unit.c, b'-' | b'_');
        let length = units[at + 1..].iter().take_while(is_part).count();
        let run = &units[at + 1..at + 1 + length];
        if length >= 30 && run.iter().any(|unit| unit.c.is_ascii_uppercase()) {
            found.push(Span::of(run));
        }
    }
}

/// Schemes whose URLs name a user without giving anything away.
const USERS: &[&str] = &["ssh", "git", "sftp", "rsync"];

/// The password of `scheme://user:password@host`, or the user where it is the secret.
fn logins(units: &[Unit], found: &mut Vec<Span>) {
    let mut at = 3;
    while at <= units.len() {
        if units[at - 1].c != b'/' || units[at - 2].c != b'/' || units[at - 3].c != b':' {
            at += 1;
            continue;
        }
        let is_encoded = !units[at - 1].raw;
        let ends =
            |unit: &Unit| (unit.raw || is_encoded) && (unit.is_blank() || b"/?#<>'\"`\\\n".contains(&unit.c));
        let length = units[at..].iter().position(ends).unwrap_or(units.len() - at);
        let authority = &units[at..at + length];
        if let Some(host) = authority.iter().rposition(|unit| unit.is_raw(b'@')) {
            let login = &authority[..host];
            let colon = login.iter().position(|unit| unit.is_raw(b':'));
            let secret = match colon.map(|colon| (&login[..colon], &login[colon + 1..])) {
                Some((user, [] | [Unit { c: b'x', .. }])) => user,
                Some((user, password)) if super::bare::spelt(password) == "x-oauth-basic" => user,
                Some((_, password)) => password,
                None if names_a_user(&units[..at - 3]) => &[],
                None => login,
            };
            // A shell that reads it unquoted ends the word there.
            let ends = |unit: &Unit| unit.raw && b";|&()$".contains(&unit.c);
            let length = secret.iter().position(ends).unwrap_or(secret.len());
            found.extend(Span::unless_open(&secret[..length]));
        }
        at += length.max(1);
    }
}

/// Whether the scheme that ends here is one of [`USERS`], alone or after a `+`.
fn names_a_user(before: &[Unit]) -> bool {
    let length = before.iter().rev().take(8).take_while(|unit| unit.c.is_ascii_alphabetic()).count();
    let scheme = super::bare::spelt(&before[before.len() - length..]).to_ascii_lowercase();
    USERS.contains(&scheme.as_str())
}

/// Fewest characters of a line of a private key that is not its last.
const KEY_LINE: usize = 32;

/// What stands between the first and the last line of a private key. The lines themselves stay.
fn private_keys(units: &[Unit], found: &mut Vec<Span>) {
    const BEGIN: &str = "-----BEGIN ";
    let mut at = 0;
    while at < units.len() {
        if units[at].c != b'-' || !starts(units, at, BEGIN) {
            at += 1;
            continue;
        }
        let label = at + BEGIN.len();
        let is_label =
            |unit: &&Unit| unit.c.is_ascii_uppercase() || unit.c.is_ascii_digit() || unit.c == b' ';
        let body = label + units[label..].iter().take_while(is_label).count();
        at = body;
        if !super::bare::spelt(&units[label..body]).contains("PRIVATE KEY") || !starts(units, body, "-----") {
            continue;
        }
        let start = body + 5;
        at = start;
        while at < units.len() && is_key(units[at].c) && !starts(units, at, "-----") {
            at += 1;
        }
        let is_whole = starts(units, at, "-----END ");
        found.extend(key_lines(&units[start..at], is_whole));
    }
}

/// The lines of a private key that are its own. Without an end they must be as long as those of a key are; a line of several
/// words is a line of something else.
fn key_lines(inner: &[Unit], is_whole: bool) -> Option<Span> {
    let is_break = |unit: &Unit| unit.c == b'\n' || unit.is_raw(b'\\');
    // In a text that is itself quoted, a line break is `\n`.
    let is_margin = |(at, unit): (usize, &Unit)| {
        is_break(unit) || unit.is_blank() || (at > 0 && unit.c == b'n' && inner[at - 1].is_raw(b'\\'))
    };
    let mut lines = Vec::new();
    let mut at = 0;
    for line in inner.split(is_break) {
        let skipped = (at..at + line.len()).take_while(|&at| is_margin((at, &inner[at]))).count();
        let blank = (at + skipped..at + line.len()).rev().take_while(|&at| inner[at].is_blank()).count();
        lines.push(at + skipped..(at + line.len() - blank).max(at + skipped));
        at += line.len() + 1;
    }
    lines.retain(|line| !line.is_empty());
    let is_header = |line: &Range<usize>| inner[line.clone()].iter().any(|unit| unit.c == b':');
    let headers = if is_whole { lines.iter().take_while(|line| is_header(line)).count() } else { 0 };
    let is_own =
        |line: &&Range<usize>| !inner[(*line).clone()].iter().any(|unit| unit.is_blank() || unit.c == b':');
    let mut own = headers + lines[headers..].iter().take_while(is_own).count();
    let is_long = |line: &&Range<usize>| line.len() >= KEY_LINE;
    if !is_whole || own < lines.len() {
        own = headers + lines[headers..own].iter().take_while(is_long).count();
    }
    let last = lines[..own].last()?;
    let span = Span::unless_open(&inner[lines[0].start..last.end])?;
    // Every line of a key but the last one is full, and no key is shorter than two lines.
    let is_full = lines[headers..own.max(headers + 1) - 1].iter().all(|line| line.len() >= KEY_LINE);
    let length: usize = lines[headers..own].iter().map(Range::len).sum();
    Some(Span { is_odd: !is_full || length < 2 * KEY_LINE, ..span })
}

fn is_key(c: u8) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, b'+' | b'/' | b'=' | b':' | b',' | b'.' | b'-' | b'\\' | b'\n' | b' ' | b'\t' | SPACE)
}
