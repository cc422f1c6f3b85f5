//! Makes deceptive code points visible.
//!
//! Owns which code points are deceptive, how each is written (`\u{HEX}`, runs as `\u{HEX}[×N]`), and
//! that no two texts are written alike. Does not judge a text; `flags` does.

use std::fmt::Write as _;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use super::secret::Masked;

/// Equal escaped code points in a row that are written once, with their number.
const COLLAPSED_ESCAPES: usize = 4;
/// Spaces in a row that are written once, with their number.
const COLLAPSED_SPACES: usize = 8;
/// Combining marks that one base may carry. More than that climbs over the lines above and below.
const MARKS_PER_BASE: usize = 4;

/// `Default_Ignorable_Code_Point`: renderers draw nothing for these, whatever their category.
const DEFAULT_IGNORABLE: &[(char, char)] = &[
    ('\u{AD}', '\u{AD}'),
    ('\u{34F}', '\u{34F}'),
    ('\u{61C}', '\u{61C}'),
    ('\u{115F}', '\u{1160}'),
    ('\u{17B4}', '\u{17B5}'),
    ('\u{180B}', '\u{180F}'),
    ('\u{200B}', '\u{200F}'),
    ('\u{202A}', '\u{202E}'),
    ('\u{2060}', '\u{206F}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{FE00}', '\u{FE0F}'),
    ('\u{FEFF}', '\u{FEFF}'),
    ('\u{FFA0}', '\u{FFA0}'),
    ('\u{FFF0}', '\u{FFF8}'),
    ('\u{1BCA0}', '\u{1BCA3}'),
    ('\u{1D173}', '\u{1D17A}'),
    ('\u{E0000}', '\u{E0FFF}'),
];

/// Letters and symbols whose glyph is empty, although no property says so: the Braille blank, the
/// Egyptian blanks, the Khitan filler and the musical null notehead.
const BLANK: [char; 5] = ['\u{2800}', '\u{13441}', '\u{13442}', '\u{16FE4}', '\u{1D159}'];

/// How a code point looks, and so whether it deceives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is seen as what it is.
    Honest,
    /// Drawn onto its neighbour: honest in small numbers.
    Mark,
    /// Drawn as nothing, or changes the order of what is drawn.
    Invisible,
    /// A space that is not U+0020.
    Space,
    /// A control code, tabs and line breaks included, or a line or paragraph separator.
    Control,
    /// Private use or unassigned: drawn as whatever the font has there.
    Undefined,
}

impl Look {
    /// The look of `c` wherever it stands. U+0020 is honest here; its place decides.
    pub(super) fn of(c: char) -> Self {
        if matches!(c, ' '..='~') {
            return Self::Honest;
        }
        let listed = DEFAULT_IGNORABLE.partition_point(|&(_, last)| last < c);
        if DEFAULT_IGNORABLE.get(listed).is_some_and(|&(first, _)| first <= c) || BLANK.contains(&c) {
            return Self::Invisible;
        }
        match c.general_category() {
            GeneralCategory::Control
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator => Self::Control,
            GeneralCategory::Format => Self::Invisible,
            GeneralCategory::SpaceSeparator => Self::Space,
            GeneralCategory::PrivateUse | GeneralCategory::Unassigned | GeneralCategory::Surrogate => {
                Self::Undefined
            }
            GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark => Self::Mark,
            _ => Self::Honest,
        }
    }

    /// Whether it is escaped wherever it stands.
    pub(super) fn is_deceptive(self) -> bool {
        !matches!(self, Self::Honest | Self::Mark)
    }
}

/// What the text will stand in, whose closing sign it must not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    /// Nothing: the text stands alone.
    None,
    /// `"…"`: an embedded `"` becomes `\"`.
    Double,
    /// `'…'` as a shell reads it: an embedded `'` becomes `'\''`.
    Single,
    /// `` `…` ``: an embedded backtick is escaped.
    Code,
}

impl Quote {
    fn sign(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Double => "\"",
            Self::Single => "'",
            Self::Code => "`",
        }
    }
}

/// A stretch of the text and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// As it is.
    Plain(&'a str),
    /// One code point, that many times in a row.
    Escape(char, usize),
    /// A closing sign of the quotation, spelt so that it does not close it.
    Sign(&'static str),
}

impl Piece<'_> {
    /// Whether it is written once with its number.
    pub(super) fn is_collapsed(self) -> bool {
        matches!(self, Self::Escape(_, run) if run >= COLLAPSED_ESCAPES)
    }

    fn chars(self) -> usize {
        match self {
            Self::Plain(text) => text.chars().count(),
            Self::Sign(text) => text.len(),
            Self::Escape(c, run) => {
                let one = 4 + (u32::from(c).max(1).ilog2() / 4 + 1) as usize;
                if self.is_collapsed() { one + 4 + run.ilog10() as usize } else { one * run }
            }
        }
    }

    fn write(self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Plain(text) | Self::Sign(text) => out.write_str(text),
            Self::Escape(c, run) if self.is_collapsed() => {
                write!(out, "\\u{{{:X}}}[×{run}]", u32::from(c))
            }
            Self::Escape(c, run) => (0..run).try_for_each(|_| write!(out, "\\u{{{:X}}}", u32::from(c))),
        };
    }
}

/// What was written last; decides how a mark and a bracket are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing, or a quotation sign. A mark would be drawn onto what is not part of the text.
    Edge,
    Escape,
    Text,
}

/// The text cut into pieces. Every code point is in exactly one.
pub(super) struct Pieces<'a> {
    text: &'a str,
    quote: Quote,
    at: usize,
    before: Before,
    marks: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(text: &'a str, quote: Quote) -> Self {
        Self { text, quote, at: 0, before: Before::Edge, marks: 0 }
    }

    /// Passes over printable ASCII that has no meaning of its own in any quotation.
    fn skip_ascii(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let plain = rest
            .iter()
            .take_while(|b| matches!(b, b'!'..=b'~') && !matches!(b, b'\\' | b'[' | b'"' | b'\'' | b'`'))
            .count();
        if plain > 0 {
            (self.at, self.before, self.marks) = (self.at + plain, Before::Text, 0);
        }
    }

    /// How the code point `c` at the present place is written, with its equals that follow.
    fn piece_at(&self, c: char) -> Piece<'a> {
        let here = &self.text[self.at..];
        let after = &here[c.len_utf8()..];
        let plain = Piece::Plain(&here[..c.len_utf8()]);
        let run = || here.chars().take_while(|&next| next == c).count();
        match c {
            ' ' => {
                let run = run();
                let at_edge = self.at == 0 || run == here.len();
                if at_edge || run >= COLLAPSED_SPACES {
                    Piece::Escape(c, run)
                } else {
                    Piece::Plain(&here[..run])
                }
            }
            // Else it would be read as the start of an escape, or as taking the meaning from a closing sign.
            '\\' if after.starts_with("u{") => Piece::Escape(c, 1),
            '\\' if self.quote == Quote::Double && (after.is_empty() || after.starts_with('"')) => {
                Piece::Escape(c, 1)
            }
            // Else it would be read as the number of a run.
            '[' if self.before == Before::Escape && after.starts_with('×') => Piece::Escape(c, 1),
            '"' if self.quote == Quote::Double => Piece::Sign("\\\""),
            '\'' if self.quote == Quote::Single => Piece::Sign("'\\''"),
            '`' if self.quote == Quote::Code => Piece::Escape(c, 1),
            '!'..='~' => plain,
            _ => match Look::of(c) {
                Look::Honest => plain,
                Look::Mark if self.before == Before::Text && self.marks < MARKS_PER_BASE => plain,
                Look::Mark | Look::Invisible | Look::Space | Look::Control | Look::Undefined => {
                    Piece::Escape(c, run())
                }
            },
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let start = self.at;
        loop {
            self.skip_ascii();
            let Some(c) = self.text[self.at..].chars().next() else {
                break;
            };
            let piece = self.piece_at(c);
            if let Piece::Plain(text) = piece {
                self.at += text.len();
                self.before = Before::Text;
                self.marks = if c.is_ascii() || Look::of(c) != Look::Mark { 0 } else { self.marks + 1 };
                continue;
            }
            if self.at > start {
                // What was passed over comes first; the next call finds this place again.
                break;
            }
            let (run, before) = match piece {
                Piece::Escape(_, run) => (run, Before::Escape),
                Piece::Sign(_) | Piece::Plain(_) => (1, Before::Edge),
            };
            (self.at, self.before, self.marks) = (self.at + run * c.len_utf8(), before, 0);
            return Some(piece);
        }
        (self.at > start).then(|| Piece::Plain(&self.text[start..self.at]))
    }
}

/// The text with every deceptive code point written as `\u{HEX}` (upper case, no padding).
///
/// Deceptive are controls (line breaks too), format and bidirectional characters, separators and spaces
/// other than U+0020, private and unassigned code points, everything that is drawn as nothing, a space at
/// either end, and combining marks beyond four on one base. Four or more equal ones in a row, or eight or
/// more spaces, are written once with their number: `\u{9}[×200]`. Two different texts never come out
/// alike: a backslash that would read as the start of an escape is itself written `\u{5C}`.
///
/// The result is one line. Surfaces may break lines after `\u{A}` when they lay it out.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    Pieces::new(text, Quote::None).for_each(|piece| piece.write(&mut out));
    out
}

/// The text with every deceptive code point but line breaks written as [`visible()`] does. Line breaks become `\n`.
pub(super) fn lines_visible(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace(['\u{2028}', '\u{2029}'], "\n");
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let indent = line.bytes().take_while(|&b| b == b' ').count();
        let kept = if indent < COLLAPSED_SPACES { indent } else { 0 };
        out.push_str(&line[..kept]);
        Pieces::new(&line[kept..], Quote::None).for_each(|piece| piece.write(&mut out));
    }
    out
}

/// The text did not fit; `chars` of it had been counted by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow {
    pub(super) chars: usize,
}

/// Writes `text`, made visible and quoted, to the end of `out`. Answers its length in characters, which is at most
/// `room`. Stops early: a hostile text costs no more than the room.
pub(super) fn write_within(
    out: &mut String,
    text: &Masked<'_>,
    quote: Quote,
    room: usize,
) -> Result<usize, Overflow> {
    let mut chars = 2 * quote.sign().len();
    out.push_str(quote.sign());
    for piece in Pieces::new(text.as_str(), quote) {
        chars += piece.chars();
        if chars > room {
            return Err(Overflow { chars });
        }
        piece.write(out);
    }
    out.push_str(quote.sign());
    if chars > room { Err(Overflow { chars }) } else { Ok(chars) }
}

/// `text` made visible and quoted, if that takes at most `room` characters.
pub(super) fn within(text: &Masked<'_>, quote: Quote, room: usize) -> Result<String, Overflow> {
    let mut out = String::new();
    write_within(&mut out, text, quote, room).map(|_| out)
}
