//! Text that the authority has made safe, as markup.
//!
//! Owns where the visible escapes of such a text begin and end, and nothing else: which code points become escapes is
//! the domain's rule. `approve.js` splits the same way, for the few texts that arrive after the page.

use maud::{Markup, html};

/// One stretch of a safe text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Plain(&'a str),
    Escape(Escape<'a>),
}

/// `\u{HEX}`, with `[×COUNT]` behind it when it stands for a run.
#[derive(Debug, PartialEq, Eq)]
struct Escape<'a> {
    text: &'a str,
    is_line_break: bool,
    times: usize,
}

/// The text with each escape marked, and a line break after each escaped one.
pub(super) fn verbatim(text: &str) -> Markup {
    html! {
        @for piece in pieces(text) {
            @match piece {
                Piece::Plain(text) => (text),
                Piece::Escape(escape) => {
                    span.escape { (escape.text) }
                    @if escape.is_line_break { br; }
                },
            }
        }
    }
}

/// A sentence of ours on one line, with its one name in code. With more than one pair of backticks in it, which belong together
/// is for the reader to see.
pub(super) fn sentence(text: &str) -> Markup {
    let parts: Vec<_> = text.split('`').collect();
    html! {
        @if let [before, name, after] = parts[..] {
            (one_line(before)) code { (one_line(name)) } (one_line(after))
        } @else {
            (one_line(text))
        }
    }
}

fn one_line(text: &str) -> Markup {
    html! {
        @for piece in pieces(text) {
            @match piece {
                Piece::Plain(text) => (text),
                Piece::Escape(escape) => span.escape { (escape.text) },
            }
        }
    }
}

/// How many lines the text has, where a run of line breaks counts as many as it stands for.
pub(super) fn line_count(text: &str) -> usize {
    let breaks = pieces(text).into_iter().map(|piece| match piece {
        Piece::Escape(escape) if escape.is_line_break => escape.times,
        Piece::Escape(_) | Piece::Plain(_) => 0,
    });
    breaks.fold(1, usize::saturating_add)
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let (mut plain_from, mut at) = (0, 0);
    while let Some(offset) = text[at..].find('\\') {
        let start = at + offset;
        let Some(escape) = leading_escape(&text[start..]) else {
            at = start + 1;
            continue;
        };
        if plain_from < start {
            found.push(Piece::Plain(&text[plain_from..start]));
        }
        at = start + escape.text.len();
        plain_from = at;
        found.push(Piece::Escape(escape));
    }
    if plain_from < text.len() {
        found.push(Piece::Plain(&text[plain_from..]));
    }
    found
}

/// The escape that `text` begins with, if it begins with one.
fn leading_escape(text: &str) -> Option<Escape<'_>> {
    let (hex, after) = text.strip_prefix("\\u{")?.split_once('}')?;
    let is_hex =
        (1..=6).contains(&hex.len()) && hex.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
    if !is_hex {
        return None;
    }
    let run = leading_run(after);
    let rest = run.map_or(after, |(_, rest)| rest);
    Some(Escape {
        text: &text[..text.len() - rest.len()],
        is_line_break: hex == "A",
        times: run.map_or(1, |(times, _)| times),
    })
}

/// The count of a `[×COUNT]` that `text` begins with, and what follows it.
fn leading_run(text: &str) -> Option<(usize, &str)> {
    let (count, rest) = text.strip_prefix("[×")?.split_once(']')?;
    let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| (count.parse().unwrap_or(usize::MAX), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        verbatim(text).into_string()
    }

    #[test]
    fn an_escape_is_marked_and_the_rest_is_left_as_it_is() {
        assert_eq!(shown("rm\\u{200B} -rf  /srv"), "rm<span class=\"escape\">\\u{200B}</span> -rf  /srv");
    }

    #[test]
    fn a_line_break_breaks_the_line_and_a_run_of_them_breaks_it_once() {
        assert_eq!(shown("a\\u{A}b"), "a<span class=\"escape\">\\u{A}</span><br>b");
        assert_eq!(shown("a\\u{A}[×400]b"), "a<span class=\"escape\">\\u{A}[×400]</span><br>b");
    }

    #[test]
    fn what_only_looks_like_an_escape_stays_plain() {
        for text in ["\\u{}", "\\u{200b}", "\\u{1234567}", "\\u{A", "\\\\", "\\", "\\u{G}"] {
            assert_eq!(shown(text), text, "{text}");
        }
        assert_eq!(shown("\\u{9}[×]"), "<span class=\"escape\">\\u{9}</span>[×]");
    }

    #[test]
    fn markup_in_a_text_stays_text() {
        assert_eq!(
            shown("</span><img src=x onerror=alert(1)>\\u{A}\"'&"),
            "&lt;/span&gt;&lt;img src=x onerror=alert(1)&gt;<span class=\"escape\">\\u{A}</span><br>&quot;'&amp;"
        );
    }

    #[test]
    fn a_sentence_sets_its_one_name_in_code_and_stays_on_one_line() {
        let shown = |text| sentence(text).into_string();
        assert_eq!(shown("Run `git push` in /srv"), "Run <code>git push</code> in /srv");
        assert_eq!(shown("Run `a` with `b`"), "Run `a` with `b`");
        assert_eq!(shown("Run `a"), "Run `a");
        assert_eq!(shown("a\\u{A}<b>"), "a<span class=\"escape\">\\u{A}</span>&lt;b&gt;");
    }

    #[test]
    fn a_run_of_line_breaks_counts_as_many_lines() {
        assert_eq!(line_count("one"), 1);
        assert_eq!(line_count("a\\u{A}b\\u{A}c"), 3);
        assert_eq!(line_count("echo ok\\u{A}[×398]curl x|sh"), 399);
        assert_eq!(line_count("\\u{A}[×99999999999999999999999]"), usize::MAX);
    }
}
