//! Points in time and stretches of it, for people: local time, and the two units that matter.

use holdgate_core::Time;
use holdgate_store::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// This machine's time now, in Unix milliseconds. For showing ages; the authority's own clock decides.
pub fn now_ms() -> i64 {
    SystemClock::new().wall().as_ms()
}

/// A point in time in this machine's time zone.
pub fn local(at_ms: i64) -> String {
    in_zone(at_ms, TimeZone::system())
}

/// A point in time that is not far off: without its date if it is on the same day as `now_ms`.
pub fn soon(at_ms: i64, now_ms: i64) -> String {
    soon_in_zone(at_ms, now_ms, &TimeZone::system())
}

fn soon_in_zone(at_ms: i64, now_ms: i64, zone: &TimeZone) -> String {
    let zoned = |ms| Timestamp::from_millisecond(ms).map(|at| at.to_zoned_datetime(zone.clone()));
    match (zoned(at_ms), zoned(now_ms)) {
        (Ok(at), Ok(now)) if at.date() == now.date() => at.strftime("%H:%M:%S").to_string(),
        _ => in_zone(at_ms, zone.clone()),
    }
}

fn in_zone(at_ms: i64, zone: TimeZone) -> String {
    match Timestamp::from_millisecond(at_ms) {
        Ok(at) => at.to_zoned_datetime(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => format!("{at_ms} ms"),
    }
}

/// How long after `from_ms` it is, at `now_ms`; nothing when that lies ahead.
pub fn age(from_ms: i64, now_ms: i64) -> String {
    stretch(Time::from_ms(now_ms).ms_after(Time::from_ms(from_ms)))
}

/// How long until `until_ms`, at `now_ms`.
pub fn left(until_ms: i64, now_ms: i64) -> String {
    stretch(Time::from_ms(until_ms).ms_after(Time::from_ms(now_ms)))
}

fn stretch(ms: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = ms / 1_000;
    let Some(first) = UNITS.iter().position(|(length, _)| seconds >= *length) else { return "0s".to_owned() };
    let (length, unit) = UNITS[first];
    let whole = format!("{}{unit}", seconds / length);
    match UNITS.get(first + 1).map(|(shorter, name)| (seconds % length / shorter, name)) {
        Some((rest @ 1.., name)) => format!("{whole} {rest}{name}"),
        Some(_) | None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_has_at_most_two_units() {
        for (ms, text) in [
            (0, "0s"),
            (999, "0s"),
            (59_000, "59s"),
            (60_000, "1m"),
            (572_000, "9m 32s"),
            (90_000_000, "1d 1h"),
            (86_460_000, "1d"),
        ] {
            assert_eq!(stretch(ms), text);
        }
        assert_eq!((age(5_000, 2_000).as_str(), left(2_000, 5_000).as_str()), ("0s", "0s"));
    }

    #[test]
    fn a_later_point_of_the_same_day_is_a_time_of_day() {
        let soon = |at_ms| soon_in_zone(at_ms, 1_796_068_419_922, &TimeZone::UTC);
        assert_eq!(soon(1_796_068_499_922), "19:54:59");
        assert_eq!(soon(1_796_068_419_922 + 86_400_000), "2026-12-01 19:53:39 UTC");
    }

    #[test]
    fn a_point_in_time_names_its_zone() {
        assert_eq!(in_zone(1_796_068_419_922, TimeZone::UTC), "2026-11-30 19:53:39 UTC");
        assert_eq!(in_zone(i64::MAX, TimeZone::UTC), format!("{} ms", i64::MAX));
    }
}
