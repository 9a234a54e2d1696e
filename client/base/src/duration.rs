//! Times as people write them, in the configuration and on the command line alike.
//!
//! Owns the one grammar. Must not know which of them make sense where.

use std::time::Duration;

/// What a time looks like, for messages.
pub const EXPECTED: &str = "a time such as 500ms, 90s, 10m, 2h, 7d, 1h30m, or seconds";

/// A time: a number of seconds, with a fraction or without, or numbers with units, as `humantime`
/// has them.
///
/// `None` for what is none, and for what is longer than a [`Duration`] can be.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    match text.parse() {
        // `inf` and `nan` are numbers, and no times.
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_no_number) => humantime::parse_duration(text).ok(),
    }
}

/// A time in that grammar, as a person would write it: `10m`, `1h 30m`.
#[must_use]
pub fn written(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_seconds_or_numbers_with_units() {
        let known = [
            ("0", 0),
            ("90", 90_000),
            ("0.5", 500),
            ("500ms", 500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("10min", 600_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
            ("7d", 604_800_000),
        ];
        for (text, ms) in known {
            assert_eq!(parse(text), Some(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn duration_that_is_written_reads_back() {
        for (ms, text) in [(600_000, "10m"), (5_400_000, "1h 30m"), (1_500, "1s 500ms")] {
            let time = Duration::from_millis(ms);
            assert_eq!((&*written(time), parse(text)), (text, Some(time)));
        }
    }

    #[test]
    fn duration_that_is_none_is_not_guessed() {
        for text in [
            "",
            "-1",
            "10 parsecs",
            "m",
            "inf",
            "nan",
            "99999999999999999999d",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
