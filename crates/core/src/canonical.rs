//! RFC 8785 canonical JSON, read so strictly that two different texts never share one form by accident.
//!
//! Owns parsing and canonical bytes. Knows nothing of actions.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// One JSON value in its RFC 8785 form. What is hashed, stored, shown and run is this text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Canonical(Arc<str>);

/// Why a text has no canonical form here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// The text is not JSON, nests too deeply, or names a key twice. Says the line and column.
    #[error("{0}")]
    Syntax(String),
    /// A number that a double cannot hold: canonical JSON would silently change it.
    #[error(
        "the number {written} at byte {offset} cannot be kept exactly; write it as a string or as {nearest}"
    )]
    InexactNumber {
        /// The number as written.
        written: String,
        /// What a double makes of it.
        nearest: String,
        /// Where it stands, in bytes from the start.
        offset: usize,
    },
}

impl Canonical {
    /// Reads a JSON text.
    ///
    /// # Errors
    /// Refuses what is not JSON, duplicate keys at any depth, numbers whose ECMAScript rendering as a double has
    /// another decimal value than the one written, and keys that a JSON library takes for an instruction.
    pub fn parse(text: &str) -> Result<Self, NotCanonical> {
        let value = strict_value(text)?;
        if let Some(number) = inexact_number(text) {
            return Err(number);
        }
        Self::of(&value)
    }

    /// The canonical form of a value that was built in this process.
    ///
    /// # Errors
    /// Refuses an integer beyond what a double holds exactly.
    pub fn from_value(value: &Value) -> Result<Self, NotCanonical> {
        Self::parse(&value.to_string())
    }

    fn of(value: &Value) -> Result<Self, NotCanonical> {
        serde_json_canonicalizer::to_string(value)
            .map(|text| Self(text.into()))
            .map_err(|e| NotCanonical::Syntax(e.to_string()))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value that the text stands for.
    pub fn to_value(&self) -> Value {
        let Strict(value) = serde_json::from_str(&self.0).expect("canonical text was read this way before");
        value
    }
}

/// Reads a JSON text that says one thing to every reader: no object in it names a key twice.
///
/// # Errors
/// Refuses what is not JSON, duplicate keys at any depth, and keys that a JSON library takes for an instruction.
pub fn strict_value(text: &str) -> Result<Value, NotCanonical> {
    let Strict(value) = serde_json::from_str(text).map_err(|e| NotCanonical::Syntax(e.to_string()))?;
    Ok(value)
}

impl fmt::Debug for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the keys begin by which `serde_json` passes raw texts and numbers through itself. Read back, an object with
/// such a key becomes what the key's text says: another value than the one that was hashed.
const INSTRUCTION: &str = "$serde_json::private::";

/// A JSON value whose objects name no key twice, and none that means more than itself. `serde_json` alone keeps the
/// last of two and obeys the other.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key.starts_with(INSTRUCTION) {
                return Err(de::Error::custom(format_args!("the key {key:?} is reserved")));
            }
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {key:?} is given twice")));
            }
            let Strict(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// The first number of a valid JSON text that a double cannot hold as written.
fn inexact_number(text: &str) -> Option<NotCanonical> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = number_end(bytes, at);
                let written = &text[at..end];
                if let Some(nearest) = inexact(written) {
                    return Some(NotCanonical::InexactNumber {
                        written: written.to_owned(),
                        nearest,
                        offset: at,
                    });
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    None
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let is_part = |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    start + bytes[start..].iter().take_while(|b| is_part(b)).count()
}

/// What a double makes of the number, if that has another decimal value.
fn inexact(written: &str) -> Option<String> {
    // Up to 15 digits are always exact: the common case costs no conversion.
    if written.len() <= 15 && written.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let double: f64 = written.parse().unwrap_or(f64::INFINITY);
    if !double.is_finite() {
        return Some("a number within the range of a double".to_owned());
    }
    // Not Rust's own rendering: where two shortest texts are equally near, ECMAScript takes the even one and Rust may
    // take the other.
    let rendered = serde_json_canonicalizer::to_string(&double).unwrap_or_default();
    (decimal(written) != decimal(&rendered)).then_some(rendered)
}

/// A decimal number's value: sign, significant digits, and the power of ten of the last one. Zero is all empty.
fn decimal(text: &str) -> (bool, String, i64) {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return (false, String::new(), 0);
    }
    let trailing = digits.len() - digits.trim_end_matches('0').len();
    // An exponent past i64 belongs to a number that is zero or infinite as a double, refused already or unequal.
    let exponent: i64 = exponent.strip_prefix('+').unwrap_or(exponent).parse().unwrap_or(i64::MIN / 2);
    let power = exponent.saturating_sub(fraction.len() as i64).saturating_add(trailing as i64);
    (negative, significant.to_owned(), power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canon(text: &str) -> String {
        Canonical::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).as_str().to_owned()
    }

    #[test]
    fn a_number_that_a_double_holds_is_kept() {
        for (written, expected) in [
            ("1.0", "1"),
            ("-0", "0"),
            ("-13573431623106.312", "-13573431623106.312"),
            ("1e21", "1e+21"),
            ("100000000000000000000", "100000000000000000000"),
            ("9007199254740992", "9007199254740992"),
            ("0.1", "0.1"),
            ("1E-7", "1e-7"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("0e999999999999999999999", "0"),
            ("1000e-3", "1"),
        ] {
            assert_eq!(canon(written), expected, "{written}");
        }
    }

    #[test]
    fn a_number_that_a_double_would_change_is_refused() {
        for written in [
            "9007199254740993",
            "-9007199254740993",
            "18446744073709551615",
            "0.1000000000000000055",
            "333333333.33333329",
            "1e-400",
            "1e-99999999999999999999",
            "123456789012345678901234567890",
        ] {
            let nested = format!(r#"{{"a":["1e400 \" 9007199254740993",{written}]}}"#);
            let error = Canonical::parse(&nested).expect_err(written);
            assert!(
                matches!(&error, NotCanonical::InexactNumber { written: w, .. } if w == written),
                "{error}"
            );
        }
    }

    #[test]
    fn a_number_past_the_range_of_a_double_is_refused_with_its_place() {
        for written in ["1e400", "-1e400", "1e99999999999999999999"] {
            let error = Canonical::parse(written).expect_err(written).to_string();
            assert!(error.contains("out of range at line 1"), "{error}");
        }
    }

    #[test]
    fn a_key_given_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"a":3}}]"#, r#"{"a":1,"\u0061":2}"#] {
            assert!(Canonical::parse(text).expect_err(text).to_string().contains("twice"));
        }
    }

    #[test]
    fn a_key_that_a_library_obeys_is_refused_at_any_depth() {
        for key in ["RawValue", "Number", ""] {
            for text in [
                format!(r#"{{"$serde_json::private::{key}":"false"}}"#),
                format!(r#"[{{"a":{{"b":1,"$serde_json::private::{key}":"{{\"a\":1,\"a\":2}}"}}}}]"#),
                format!(r#"{{"\u0024serde_json::private::{key}":5}}"#),
            ] {
                assert!(Canonical::parse(&text).expect_err(&text).to_string().contains("reserved"));
            }
        }
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for text in ["", "{", "[1,]", "NaN", "\"\\ud800\"", "01", "1 2", &"[".repeat(500)] {
            let error = Canonical::parse(text).expect_err(text).to_string();
            assert!(error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn keys_sort_by_utf16_units() {
        assert_eq!(
            canon("{\"\u{FF61}\":1,\"\u{1F600}\":2,\"a\":3}"),
            "{\"a\":3,\"\u{1F600}\":2,\"\u{FF61}\":1}"
        );
    }

    proptest! {
        #[test]
        fn a_finite_double_survives(double in any::<f64>().prop_filter("finite", |d| d.is_finite())) {
            let text = serde_json::to_string(&double).unwrap();
            let back: f64 = canon(&text).parse().unwrap();
            prop_assert_eq!(back, double);
        }

        #[test]
        fn two_integers_never_share_a_form(a in any::<i128>(), step in 1i128..2000) {
            let (a, b) = (a / 1_000_000_000, a / 1_000_000_000 + step);
            if let (Ok(a), Ok(b)) = (Canonical::parse(&a.to_string()), Canonical::parse(&b.to_string())) {
                prop_assert_ne!(a, b);
            }
        }

        #[test]
        fn the_canonical_form_is_its_own_form(text in "[a-z\\\\\"\u{0}-\u{20}\u{7f}-\u{a0}😀]{0,12}") {
            let once = Canonical::from_value(&serde_json::json!({ "k": text, text.clone(): [1.5, null] })).unwrap();
            prop_assert_eq!(Canonical::parse(once.as_str()).unwrap(), once.clone());
            prop_assert_eq!(Canonical::from_value(&once.to_value()).unwrap(), once);
        }
    }
}
