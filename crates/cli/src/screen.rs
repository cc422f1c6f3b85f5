//! The terminal that standard output may be: its width, its colours, and text that keeps within its own column.
//!
//! Text is wrapped here and not by the terminal, so that no part of a requester's text can stand where only our own
//! words stand.

use std::io::IsTerminal as _;

use crate::environment;

/// Narrowest column that text is wrapped into.
const NARROWEST: usize = 20;

/// Characters that take two columns, roughly: too many is harmless.
const WIDE: [(char, char); 12] = [
    ('\u{1100}', '\u{115F}'),
    ('\u{2E80}', '\u{303E}'),
    ('\u{3041}', '\u{A4CF}'),
    ('\u{A960}', '\u{A97F}'),
    ('\u{AC00}', '\u{D7A3}'),
    ('\u{F900}', '\u{FAFF}'),
    ('\u{FE10}', '\u{FE19}'),
    ('\u{FE30}', '\u{FE6F}'),
    ('\u{FF00}', '\u{FF60}'),
    ('\u{FFE0}', '\u{FFE6}'),
    ('\u{1F300}', '\u{1FAFF}'),
    ('\u{20000}', '\u{3FFFD}'),
];

/// A colour with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// It may run, or ran.
    Green,
    /// It does not run.
    Red,
    /// It waits, or deserves a second look.
    Yellow,
    /// Less important.
    Dim,
    /// More important.
    Bold,
}

/// What standard output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns of a terminal; `None` when it is a file or a pipe, whose lines are as long as they need to be.
    pub width: Option<usize>,
    /// Whether colours are wanted.
    pub has_colour: bool,
}

impl Screen {
    /// Standard output's.
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self { width: None, has_colour: false };
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        let width = size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(80);
        Self { width: Some(width), has_colour: !environment::no_color() }
    }

    /// The text in a colour, if there are any.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if !self.has_colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Green => 32,
            Colour::Red => 31,
            Colour::Yellow => 33,
            Colour::Dim => 2,
            Colour::Bold => 1,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The text as lines that fit beside `indent` columns. Breaks after line breaks that are written `\u{A}`.
    pub fn lines(self, text: &str, indent: usize) -> Vec<String> {
        let width = self.width.map(|width| width.saturating_sub(indent + 1).max(NARROWEST));
        let mut lines = Vec::new();
        for line in broken(text) {
            match width {
                None => lines.push(line.to_owned()),
                Some(width) => wrap(line, width, &mut lines),
            }
        }
        lines
    }
}

/// Columns that a text takes.
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// As much of a text as fits in `width` columns, with a sign where something is missing.
pub fn shortened(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += columns_of(c);
        if used > width {
            break;
        }
        short.push(c);
    }
    short + "…"
}

fn columns_of(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36F}' => 0,
        _ if WIDE.iter().any(|(first, last)| (*first..=*last).contains(&c)) => 2,
        _ => 1,
    }
}

/// The lines of a text, each with the escaped break that ends it.
fn broken(text: &str) -> Vec<&str> {
    const BREAK: &str = "\\u{A}";
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(BREAK) {
        let mut end = at + BREAK.len();
        // Many in a row are written once, with their number.
        if rest[end..].starts_with("[×") {
            end += rest[end..].find(']').map_or(0, |bracket| bracket + 1);
        }
        let (line, after) = rest.split_at(end);
        lines.push(line);
        rest = after;
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest);
    }
    lines
}

/// Cuts a line into pieces of at most `width` columns, at a space where there is one in the last third.
fn wrap(line: &str, width: usize, lines: &mut Vec<String>) {
    let mut rest = line;
    loop {
        let mut used = 0;
        let mut cut = rest.len();
        let mut space = None;
        for (at, c) in rest.char_indices() {
            used += columns_of(c);
            if used > width {
                cut = space.filter(|_| used > width).unwrap_or(at);
                break;
            }
            if c == ' ' && used * 3 > width * 2 {
                space = Some(at + 1);
            }
        }
        let (piece, after) = rest.split_at(cut);
        lines.push(piece.to_owned());
        if after.is_empty() {
            return;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: Screen = Screen { width: Some(41), has_colour: false };

    #[test]
    fn wrapped_text_is_whole_and_keeps_within_its_column() {
        let text =
            format!("{} {}\\u{{A}}後{}\\u{{A}}[×7]end", "a".repeat(30), "b".repeat(70), "漢".repeat(40));
        let lines = TERMINAL.lines(&text, 10);
        assert_eq!(lines.concat(), text);
        assert!(lines.iter().all(|line| columns(line) <= 30), "{lines:?}");
        assert!(lines.contains(&"end".to_owned()), "a counted break breaks after its count: {lines:?}");
    }

    #[test]
    fn a_pipe_gets_whole_lines() {
        let pipe = Screen { width: None, has_colour: false };
        let text = "x".repeat(500);
        assert_eq!(pipe.lines(&text, 10).concat(), text);
        assert_eq!(pipe.lines(&text, 10).len(), 1);
        assert_eq!(pipe.lines("", 0), [""]);
    }

    #[test]
    fn a_shortened_text_says_that_it_is() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde…");
        assert_eq!(columns(&shortened("漢漢漢漢", 6)), 5);
    }

    #[test]
    fn colour_is_only_for_terminals_that_want_it() {
        assert_eq!(TERMINAL.paint(Colour::Red, "x"), "x");
        assert!(Screen { has_colour: true, ..TERMINAL }.paint(Colour::Red, "x").contains("\x1b[31m"));
    }
}
