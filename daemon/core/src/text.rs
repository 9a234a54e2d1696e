//! Values as text, and text that must fit somewhere.
//!
//! Owns the cutting and the form of times. Must not know what is said.

use std::time::Duration;

use agentd_protocol::line::FileChange;

/// As much of the beginning as fits into `room` encoded bytes; is there more?
#[must_use]
pub fn head(text: &str, room: usize) -> (String, bool) {
    let mut end = text.len().min(room);
    loop {
        let cut = &text[..text.floor_char_boundary(end)];
        if escaped_len(cut) <= room || cut.is_empty() {
            return (cut.to_owned(), cut.len() < text.len());
        }
        end = cut.len() * 3 / 4;
    }
}

/// Keeps the beginning and the end of a text that is too long, counted as JSON would escape it.
pub(crate) fn head_and_tail(text: String, most: usize) -> (String, bool) {
    if text.len() <= most / 6 || escaped_len(&text) <= most {
        return (text, false);
    }
    // Halve until it fits: control characters take six bytes each.
    let mut half = most / 2;
    loop {
        let head = &text[..text.floor_char_boundary(half.min(text.len() / 2))];
        let tail = &text[text.ceil_char_boundary(text.len() - half.min(text.len() / 2))..];
        let left_out = text.len() - head.len() - tail.len();
        let cut = format!("{head}\n[… {left_out} bytes left out …]\n{tail}");
        if escaped_len(&cut) <= most || half < 64 {
            return (cut, true);
        }
        half = half * 3 / 4;
    }
}

/// The length of a text inside a JSON string.
pub(crate) fn escaped_len(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum()
}

/// A time as RFC 3339 in UTC, to the second (days to civil date after Hinnant's `civil_from_days`).
pub fn rfc3339(wall_ms: i64) -> String {
    let seconds = wall_ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// A duration as it is told.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What a change of a file takes in a line.
pub(crate) fn change_len(change: &FileChange) -> usize {
    let texts = [&change.old, &change.new, &change.diff];
    let texts = texts.into_iter().flatten().map(|text| escaped_len(text));
    40 + escaped_len(&change.path) + texts.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_keeps_head_and_tail_as_encoded() {
        assert_eq!(
            head_and_tail("short".to_owned(), 1000),
            ("short".to_owned(), false)
        );
        for filler in ["x", "ö", "\u{1}", "\""] {
            let long = format!("begin{}end", filler.repeat(5000));
            let (cut, truncated) = head_and_tail(long, 1000);
            assert!(
                truncated && cut.starts_with("begin") && cut.ends_with("end"),
                "{filler:?}"
            );
            assert!(
                escaped_len(&cut) <= 1000,
                "{filler:?}: {}",
                escaped_len(&cut)
            );
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696_500), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_207_443_614), "2026-11-20T20:44:03Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
    }
}
