//! `visible`: what it writes, that it hides nothing, and that no two texts are written alike.

use proptest::prelude::*;
use unicode_properties::{GeneralCategory as Category, UnicodeGeneralCategory};

use super::super::secret::{Masked, multiline};
use super::super::visible::{Look, Pieces, Quote, within};
use super::{decode, hostile_text, visible};

#[test]
fn deceptive_code_points_are_written_as_escapes() {
    let table = [
        ("", ""),
        ("git push origin main", "git push origin main"),
        ("Größe 発注 😀", "Größe 発注 😀"),
        (
            "echo \u{202E}gpj\u{200B}.exe\nrm -rf /\t\u{A0}x",
            r"echo \u{202E}gpj\u{200B}.exe\u{A}rm -rf /\u{9}\u{A0}x",
        ),
        ("\0\u{7F}\u{85}", r"\u{0}\u{7F}\u{85}"),
        ("a\u{2028}b\u{2029}c\u{3000}d", r"a\u{2028}b\u{2029}c\u{3000}d"),
        ("\u{115F}\u{1160}\u{3164}\u{FFA0}\u{34F}", r"\u{115F}\u{1160}\u{3164}\u{FFA0}\u{34F}"),
        ("\u{17B4}\u{180B}\u{180F}\u{2065}\u{FFF0}", r"\u{17B4}\u{180B}\u{180F}\u{2065}\u{FFF0}"),
        ("❤\u{FE0F}\u{E0041}\u{E0FFF}\u{2800}", r"❤\u{FE0F}\u{E0041}\u{E0FFF}\u{2800}"),
        ("\u{E000}\u{FFFE}\u{10FFFF}", r"\u{E000}\u{FFFE}\u{10FFFF}"),
        ("x\u{600}y", r"x\u{600}y"),
        ("\u{1D159}\u{16FE4}\u{13441}", r"\u{1D159}\u{16FE4}\u{13441}"),
    ];
    for (text, expected) in table {
        assert_eq!(visible(text), expected);
    }
}

#[test]
fn lines_of_a_text_stay_lines() {
    let table = [
        ("line1\r\nline2\u{2028}l3\u{202E}", "line1\nline2\nl3\\u{202E}"),
        ("a\u{2029}b\n\nc", "a\nb\n\nc"),
        ("a\rb\t\u{A0}", r"a\u{D}b\u{9}\u{A0}"),
        ("if x:\n    run()\n", "if x:\n    run()\n"),
        ("a\n          b ", "a\n\\u{20}[×10]b\\u{20}"),
        ("a\n\u{301}b\n  \u{301}", "a\n\\u{301}b\n  \\u{301}"),
        ("token: abc\nnext", "token: ***\nnext"),
        (r"\u{A}", r"\u{5C}u{A}"),
        ("", ""),
    ];
    for (text, expected) in table {
        assert_eq!(multiline(text), expected, "{text:?}");
    }
}

#[test]
fn padding_is_written_once_with_its_number() {
    let table = [
        ("x\t\t\ty".to_owned(), r"x\u{9}\u{9}\u{9}y"),
        (format!("x{}y", "\t".repeat(200)), r"x\u{9}[×200]y"),
        (format!("x{}y", " ".repeat(7)), "x       y"),
        (format!("x{}y", " ".repeat(30)), r"x\u{20}[×30]y"),
        (" x ".to_owned(), r"\u{20}x\u{20}"),
        (" ".to_owned(), r"\u{20}"),
        ("  x    ".to_owned(), r"\u{20}\u{20}x\u{20}[×4]"),
    ];
    for (text, expected) in table {
        assert_eq!(visible(&text), expected);
    }
}

#[test]
fn an_escape_that_the_text_spells_itself_is_told_apart() {
    let table = [
        (r"\u{202E}", r"\u{5C}u{202E}"),
        (r"\n \\ C:\users", r"\n \\ C:\users"),
        ("\\\u{A}", r"\\u{A}"),
        ("\t[×9]", r"\u{9}\u{5B}×9]"),
        ("\t\t\t\t[×9]", r"\u{9}[×4]\u{5B}×9]"),
        ("a[×9] \t[x]", r"a[×9] \u{9}[x]"),
    ];
    for (text, expected) in table {
        assert_eq!(visible(text), expected);
    }
}

#[test]
fn marks_that_pile_up_or_have_no_base_are_escaped() {
    let four = "e\u{301}\u{302}\u{303}\u{304}";
    assert_eq!(visible(four), four);
    assert_eq!(visible(&format!("{four}\u{305}x")), format!("{four}\\u{{305}}x"));
    assert_eq!(
        visible(&format!("e{}", "\u{301}".repeat(40))),
        format!("e{}\\u{{301}}[×36]", "\u{301}".repeat(4))
    );
    assert_eq!(visible("\u{301}a"), r"\u{301}a");
    assert_eq!(visible("\n\u{301}a"), r"\u{A}\u{301}a");
}

#[test]
fn the_closing_sign_of_a_quotation_never_stands_in_it() {
    let table = [
        (r#"say "hi""#, Quote::Double, r#""say \"hi\"""#),
        (r#"a\"b"#, Quote::Double, r#""a\u{5C}\"b""#),
        (r"C:\dir\", Quote::Double, r#""C:\dir\u{5C}""#),
        ("\"\u{301}", Quote::Double, r#""\"\u{301}""#),
        ("it's", Quote::Single, r"'it'\''s'"),
        ("a`b", Quote::Code, r"`a\u{60}b`"),
    ];
    for (text, quote, expected) in table {
        assert_eq!(within(&Masked::of(text), quote, usize::MAX).unwrap(), expected);
    }
}

/// Skeletons leave out what is ignorable by default, from a table of their own.
#[test]
fn everything_that_is_ignorable_by_default_is_invisible() {
    let ignorable = |c: &char| unicode_security::skeleton(c.encode_utf8(&mut [0; 4])).next().is_none();
    let mut seen = 0;
    for c in ('\u{80}'..='\u{33FF}')
        .chain('\u{D7B0}'..='\u{1FFFF}')
        .chain('\u{E0000}'..='\u{E1FFF}')
        .filter(ignorable)
    {
        assert_eq!(Look::of(c), Look::Invisible, "U+{:X}", u32::from(c));
        seen += 1;
    }
    assert!(seen > 4_000, "{seen}");
}

#[test]
fn every_code_point_of_a_deceptive_category_is_escaped() {
    for c in '\u{0}'..=char::MAX {
        let category = c.general_category();
        let is_deceptive = matches!(
            category,
            Category::Control
                | Category::Format
                | Category::Surrogate
                | Category::LineSeparator
                | Category::ParagraphSeparator
                | Category::PrivateUse
                | Category::Unassigned
        ) || (category == Category::SpaceSeparator && c != ' ');
        assert!(!is_deceptive || Look::of(c).is_deceptive(), "U+{:X}", u32::from(c));
    }
}

#[test]
fn a_hostile_text_is_refused_as_soon_as_it_is_over_its_room() {
    let text = "\u{200B}a".repeat(500_000);
    let over = within(&Masked::of(&text), Quote::Double, 100).unwrap_err();
    assert!(over.chars > 100 && over.chars < 120, "{over:?}");
    assert_eq!(within(&Masked::of("abc"), Quote::Double, 5).unwrap(), "\"abc\"");
    assert_eq!(within(&Masked::of("abc"), Quote::Double, 4).unwrap_err().chars, 5);
    assert!(within(&Masked::of(""), Quote::Double, 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_written_is_safe_and_can_be_read_back(text in hostile_text()) {
        let written = visible(&text);
        prop_assert!(!written.chars().any(|c| Look::of(c).is_deceptive()));
        prop_assert!(!written.starts_with(' ') && !written.ends_with(' ') && !written.contains("        "));
        // Reading it back gives the text, so two texts are never written alike.
        prop_assert_eq!(decode(&written, Quote::None), text);
    }

    #[test]
    fn a_quotation_is_safe_and_can_be_read_back(text in hostile_text()) {
        for (quote, sign) in [(Quote::Double, '"'), (Quote::Single, '\''), (Quote::Code, '`')] {
            let written = within(&Masked::of(&text), quote, usize::MAX).unwrap();
            let inner = written.strip_prefix(sign).and_then(|rest| rest.strip_suffix(sign)).unwrap();
            prop_assert!(!inner.chars().any(|c| Look::of(c).is_deceptive()));
            prop_assert_eq!(decode(inner, quote), text.as_str());
            let closers = inner.replace("'\\''", "").replace("\\\"", "");
            prop_assert!(!closers.contains(sign));
            prop_assert!(!(quote == Quote::Double && inner.ends_with('\\')));
        }
    }

    #[test]
    fn the_room_a_text_takes_is_counted_in_the_characters_written(text in hostile_text()) {
        let written = within(&Masked::of(&text), Quote::Double, usize::MAX).unwrap();
        let chars = written.chars().count();
        prop_assert_eq!(within(&Masked::of(&text), Quote::Double, chars).unwrap(), written);
        prop_assert!(within(&Masked::of(&text), Quote::Double, chars - 1).is_err());
    }

    #[test]
    fn the_pieces_of_a_text_are_the_text(text in any::<String>()) {
        let pieces = Pieces::new(&text, Quote::None).count();
        prop_assert!(pieces <= text.chars().count());
        prop_assert_eq!(decode(&visible(&text), Quote::None), text);
    }
}
