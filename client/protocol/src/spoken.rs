//! Times and tool calls as people say them, for the sentences of lines and for whoever prints them.
//!
//! Owns which units are named, how exactly, and what of a call says most. Pure; must not know what took
//! so long.

use std::time::Duration;

use serde_json::Value;

/// What of a tool's input says most, in this order.
const TELLING: &[&str] = &[
    "command",
    "cmd",
    "file_path",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
];
/// A tool's input in these words is no longer.
const INPUT: usize = 60;

/// `250 ms`, `1.2 s`, `12 s`, `2 min 5 s`, `2 h 5 min`, `1 d 3 h`: the two largest units that matter.
#[must_use]
pub fn span(time: Duration) -> String {
    let tenths = (time.as_millis() + 50) / 100;
    if time.as_millis() < 1_000 {
        return format!("{} ms", time.as_millis());
    }
    if tenths < 100 {
        return match tenths % 10 {
            0 => format!("{} s", tenths / 10),
            rest => format!("{}.{rest} s", tenths / 10),
        };
    }
    let seconds = (time.as_millis() + 500) / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => units(seconds, (60, "min"), (1, "s")),
        3_600..86_400 => units(seconds, (3_600, "h"), (60, "min")),
        _ => units(seconds, (86_400, "d"), (3_600, "h")),
    }
}

fn units(seconds: u128, large: (u128, &str), small: (u128, &str)) -> String {
    let (many, rest) = (seconds / large.0, seconds % large.0 / small.0);
    match rest {
        0 => format!("{many} {}", large.1),
        rest => format!("{many} {} {rest} {}", large.1, small.1),
    }
}

/// A tool call as a person would call it: `bash cargo test`.
#[must_use]
pub fn call(name: &str, input: &Value) -> String {
    let told = |value: &Value| match value {
        Value::String(text) => Some(short(text.split_whitespace())),
        Value::Array(words) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            words.map(|words| short(words.into_iter().flat_map(str::split_whitespace)))
        }
        _ => None,
    };
    let fields = input.as_object();
    let best = fields.and_then(|fields| TELLING.iter().find_map(|name| told(fields.get(*name)?)));
    let said = best.unwrap_or_default();
    format!("{name} {said}").trim_end().to_owned()
}

/// The words as far as they are shown; no more of them is looked at.
fn short<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let spaced = words.flat_map(|word| word.chars().chain([' ']));
    let mut begun: String = spaced.take(INPUT + 2).collect();
    if begun.chars().count() <= INPUT + 1 {
        begun.truncate(begun.trim_end().len());
        return begun;
    }
    let shown: String = begun.chars().take(INPUT).collect();
    format!("{shown}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_is_said_as_people_say_it() {
        for (ms, said) in [
            (0, "0 ms"),
            (250, "250 ms"),
            (1_240, "1.2 s"),
            (3_000, "3 s"),
            (9_960, "10 s"),
            (12_400, "12 s"),
            (59_700, "1 min"),
            (125_000, "2 min 5 s"),
            (7_500_000, "2 h 5 min"),
            (86_399_900, "1 d"),
            (97_200_000, "1 d 3 h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), said, "{ms}");
        }
    }
}
