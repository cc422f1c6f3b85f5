//! How a duration is written on the command line: `500ms`, `90s`, `10m`, `1h30m`, `2d`.
//!
//! Owns the spelling, not the bounds: how long a request may live is the authority's to say.

use std::time::Duration;

/// Units, with their length in milliseconds. Longest name first, so that `ms` is not read as `m`.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// Reads a duration: whole numbers, each with its unit, added up.
///
/// # Errors
/// A sentence for whoever typed it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = |why: &str| Err(format!("{why}; write it like 10m, 90s, 1h30m or 500ms"));
    let mut rest = text;
    let mut total = 0_u64;
    if rest.is_empty() {
        return wrong("there is no duration");
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        if number.is_empty() {
            return wrong(&format!("a number is missing before {rest:?}"));
        }
        let Some((unit, length)) = UNITS.into_iter().find(|(unit, _)| after.starts_with(unit)) else {
            let what = if after.is_empty() {
                "a unit is missing".to_owned()
            } else {
                format!("{after:?} is no unit")
            };
            return wrong(&format!("{what} after {number}"));
        };
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(length));
        let Some(sum) = part.and_then(|part| total.checked_add(part)) else { return wrong("it is too long") };
        total = sum;
        rest = &after[unit.len()..];
    }
    if total == 0 {
        return wrong("it is zero");
    }
    Ok(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_added_up() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1m1ms", 60_001),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "there is no duration"),
            ("10", "a unit is missing after 10"),
            ("m", "a number is missing before \"m\""),
            ("-5s", "a number is missing"),
            ("10 m", "\" m\" is no unit"),
            ("1.5h", "\".5h\" is no unit"),
            ("5x", "\"x\" is no unit"),
            ("0s", "it is zero"),
            ("99999999999999999999s", "it is too long"),
            ("18446744073709551615ms1ms", "it is too long"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(why), "{text}: {said}");
        }
    }
}
