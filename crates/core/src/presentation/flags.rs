//! Tells a reviewer in plain sentences what is odd about a text.
//!
//! Owns what counts as odd: look-alike letters, padding, many lines, code points that are not seen. Does not change
//! how the text is shown; `visible` does.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use unicode_security::MixedScript;
use unicode_security::mixed_script::AugmentedScriptSet;
use unicode_security::skeleton;

use super::secret::{Parts, Place};
use super::visible::{Look, Piece, Pieces, Quote};

/// Most sentences in one list. The last one says how many more there are.
const FLAGS: usize = 20;
/// Most characters of a word that a sentence repeats.
const WORD_CHARS: usize = 48;

/// Said when something is masked.
const HIDDEN: &str = "a secret is hidden as ***; the digest covers it";
/// Said when what is masked could hide more than a word.
const ODD_HIDDEN: &str = "a hidden secret holds spaces or shell syntax: what it would do cannot be seen here";

/// Punctuation of ordinary prose. It parts words and is no disguise.
const TYPOGRAPHY: &[char] = &['‘', '’', '“', '”', '„', '–', '—', '…', '«', '»', '·', '•'];

/// What a reviewer should know about `text` before reading it, most alarming kind first, each once, in safe text.
/// Empty for an ordinary text. At most 21 sentences.
pub fn flags(text: &str) -> Vec<String> {
    let mut oddities = Oddities::default();
    oddities.note(text, Place::Open);
    oddities.sentences()
}

/// What is odd about the texts noted so far. A text or word that occurs again is noted once.
#[derive(Default)]
pub(super) struct Oddities<'a> {
    texts: HashSet<(&'a str, Place)>,
    words: HashSet<&'a str>,
    mixed: Vec<&'a str>,
    alike: Vec<&'a str>,
    /// Longest run of each code point that is written with its number.
    padding: BTreeMap<char, usize>,
    /// Most lines of one text.
    lines: usize,
    invisible: usize,
    controls: usize,
    spaces: usize,
    undefined: usize,
    marks: usize,
    right_to_left: bool,
    /// Something is masked.
    is_hidden: bool,
    /// What is masked could be more than one word to a shell.
    is_odd_hidden: bool,
    /// Characters of the longest text that is masked.
    longest_hidden: usize,
}

impl<'a> Oddities<'a> {
    /// Notes one text. Of what is masked in it, only that it is.
    pub(super) fn note(&mut self, text: &'a str, place: Place) {
        if !self.texts.insert((text, place)) {
            return;
        }
        let parts = Parts::of(text, place);
        self.is_hidden |= parts.is_hidden;
        self.is_odd_hidden |= parts.is_odd;
        self.longest_hidden = self.longest_hidden.max(parts.longest);
        if place == Place::Open {
            self.lines = self.lines.max(lines(text));
        }
        parts.open.into_iter().for_each(|part| self.note_part(part));
    }

    /// Notes that something is masked that is no text.
    pub(super) fn note_hidden(&mut self) {
        self.is_hidden = true;
    }

    /// Characters of the longest text that is masked.
    pub(super) fn longest_hidden(&self) -> usize {
        self.longest_hidden
    }

    /// Notes what is seen.
    fn note_part(&mut self, text: &'a str) {
        let is_ordinary = text.bytes().all(|b| matches!(b, b' '..=b'~')) && !text.contains("    ");
        if is_ordinary {
            return;
        }
        Pieces::new(text, Quote::None).for_each(|piece| self.note_piece(piece));
        let parts_words = |c: char| {
            let is_sign = c.is_ascii() && !c.is_ascii_alphanumeric();
            is_sign || TYPOGRAPHY.contains(&c) || matches!(Look::of(c), Look::Space | Look::Control)
        };
        text.split(parts_words).filter(|word| !word.is_ascii()).for_each(|word| self.note_word(word));
    }

    fn note_piece(&mut self, piece: Piece<'_>) {
        let (c, run) = match piece {
            Piece::Escape(c, run) => (c, run),
            Piece::Plain(text) => {
                self.right_to_left |= !text.is_ascii() && text.chars().any(is_right_to_left);
                return;
            }
            Piece::Sign(_) => return,
        };
        if piece.is_collapsed() {
            let longest = self.padding.entry(c).or_default();
            *longest = run.max(*longest);
        }
        match Look::of(c) {
            Look::Invisible => self.invisible += run,
            Look::Space => self.spaces += run,
            Look::Undefined => self.undefined += run,
            Look::Mark => self.marks += run,
            // Tabs and line breaks are ordinary; many of them are told as padding or lines.
            Look::Control if !matches!(c, '\t' | '\n' | '\r') => self.controls += run,
            Look::Control | Look::Honest => {}
        }
    }

    fn note_word(&mut self, word: &'a str) {
        let odd_word = if is_mixed(word) {
            &mut self.mixed
        } else if looks_ascii(word) {
            &mut self.alike
        } else {
            return;
        };
        if self.words.insert(word) {
            odd_word.push(word);
        }
    }

    /// The sentences, bounded.
    pub(super) fn sentences(&self) -> Vec<String> {
        let counts = [
            (
                self.invisible,
                "invisible or direction-changing character",
                "invisible or direction-changing characters",
            ),
            (self.controls, "control character", "control characters"),
            (self.undefined, "character without a standard meaning", "characters without a standard meaning"),
            (self.spaces, "unusual space", "unusual spaces"),
            (self.marks, "stray or stacked combining mark", "stray or stacked combining marks"),
        ];
        let counts = counts.into_iter().filter(|(n, ..)| *n > 0);
        let counts = counts.map(|(n, one, many)| format!("{n} {}", if n == 1 { one } else { many }));
        let direction = self.right_to_left.then(|| {
            "right-to-left letters: the order on the screen may not be the order in the text".to_owned()
        });
        let lines = (self.lines > 1).then(|| format!("{} lines", self.lines));
        let padding = self.padding.iter().map(|(&c, run)| format!("{run} {} in a row", plural_name(c)));
        let mixed = self.mixed.iter().map(|word| format!("mixed scripts in `{}`", spelt(word)));
        let alike = self.alike.iter().map(|word| format!("look-alike letters in `{}`", spelt(word)));

        let hidden = self.is_hidden.then(|| HIDDEN.to_owned());
        let odd_hidden = self.is_odd_hidden.then(|| ODD_HIDDEN.to_owned());
        let secrets = hidden.into_iter().chain(odd_hidden);
        let mut all =
            secrets.chain(counts).chain(direction).chain(mixed).chain(alike).chain(padding).chain(lines);
        let mut sentences: Vec<String> = all.by_ref().take(FLAGS).collect();
        match all.count() {
            0 => {}
            more => sentences.push(format!("and {more} more")),
        }
        sentences
    }
}

/// Lines of the text: 1 unless it has more than one line break.
fn lines(text: &str) -> usize {
    let mut breaks = 0;
    let mut last = '\0';
    for c in text.chars() {
        let is_break = matches!(c, '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        breaks += usize::from(is_break && !(last == '\r' && c == '\n'));
        last = c;
    }
    if breaks > 1 { breaks + 1 } else { 1 }
}

/// Whether the word mixes scripts that no writing system mixes. Latin beside Chinese, Japanese or Korean is ordinary.
fn is_mixed(word: &str) -> bool {
    if word.is_single_script() {
        return false;
    }
    let mut foreign = AugmentedScriptSet::default();
    word.chars().filter(|c| !c.is_ascii()).for_each(|c| foreign.intersect_with(c.into()));
    !(foreign.hanb || foreign.jpan || foreign.kore)
}

/// Whether the word has letters that are not ASCII and yet may be taken for one that is ASCII throughout. A times sign
/// that stands alone is arithmetic.
fn looks_ascii(word: &str) -> bool {
    let has_foreign = word.chars().any(|c| !c.is_ascii() && !Look::of(c).is_deceptive());
    has_foreign && word != "×" && skeleton(word).all(|c| c.is_ascii() || Look::of(c).is_deceptive())
}

/// Letters of the blocks that are written from right to left.
fn is_right_to_left(c: char) -> bool {
    matches!(
        c,
        '\u{590}'..='\u{8FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFE}'
            | '\u{10800}'..='\u{10FFF}' | '\u{1E800}'..='\u{1EFFF}'
    )
}

fn plural_name(c: char) -> String {
    match c {
        '\t' => "tabs".to_owned(),
        '\n' => "line breaks".to_owned(),
        '\r' => "carriage returns".to_owned(),
        ' ' => "spaces".to_owned(),
        '\u{A0}' => "no-break spaces".to_owned(),
        _ => format!("of `\\u{{{:X}}}`", u32::from(c)),
    }
}

/// The word with everything that is not ASCII escaped. Of a long word, the part round its first such character.
fn spelt(word: &str) -> String {
    let is_long = word.chars().nth(WORD_CHARS).is_some();
    let first = word.chars().position(|c| !c.is_ascii()).unwrap_or(0);
    let skipped = if is_long { first.saturating_sub(WORD_CHARS / 2) } else { 0 };
    let mut out = String::from(if skipped > 0 { "…" } else { "" });
    let mut rest = word.chars().skip(skipped);
    for c in rest.by_ref().take(WORD_CHARS) {
        // Writing to a string cannot fail.
        let _ = if c.is_ascii() { write!(out, "{c}") } else { write!(out, "\\u{{{:X}}}", u32::from(c)) };
    }
    if rest.next().is_some() {
        out.push('…');
    }
    out
}
