//! The earliest time that a clock can say and be right.
//!
//! Owns this version's date. Must not read a clock.

/// 2026-11-01, in milliseconds since 1970: this version was made later. A new version gets a new date.
const VERSION_MS: i64 = 1_793_491_200_000;
/// Whoever dated the build may have a clock that is a little ahead.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// A build that says it is from later than 2100 doesn't know when it was made.
const LATEST_S: i64 = 4_102_444_800;

/// No clock that is right says less, in milliseconds since 1970: a receiver would refuse what is signed
/// before. It depends on nothing but the source and `SOURCE_DATE_EPOCH`, so that a release can be built
/// again.
pub(super) const EARLIEST_MS: i64 = earliest(option_env!("SOURCE_DATE_EPOCH"));

const fn earliest(build: Option<&str>) -> i64 {
    let Some(text) = build else {
        return VERSION_MS;
    };
    match i64::from_str_radix(text, 10) {
        Ok(seconds @ 0..=LATEST_S) if seconds * 1000 - DAY_MS > VERSION_MS => {
            seconds * 1000 - DAY_MS
        }
        _ => VERSION_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_time_is_that_of_the_build() {
        let day = 24 * 60 * 60;
        let later = VERSION_MS / 1000 + 100 * day;
        let built = earliest(Some(&later.to_string()));
        assert_eq!(built, (later - day) * 1000);
        for none in [
            None,
            Some("0"),
            Some("-1"),
            Some(""),
            Some("yesterday"),
            Some("315532800"),
            Some("9223372036854775807"),
        ] {
            assert_eq!(earliest(none), VERSION_MS, "{none:?}");
        }
    }
}
