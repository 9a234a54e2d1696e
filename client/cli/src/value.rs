//! Values that arguments and tables hold: spans, times, labels.
//!
//! Pure but for "now" and a file that is named in place of its text. Owns how a person writes and reads them. Must not know which command asks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub(super) use agentd_base::clock::wall_ms as now_ms;
use agentd_base::duration;
use agentd_protocol::JobId;
use agentd_protocol::request::unix_ms;
use agentd_protocol::spoken;
use jiff::{Zoned, civil};

const DAY: u64 = 86_400;

/// Seconds in which something can happen.
pub(super) fn positive(word: &str) -> Result<f64, String> {
    let time = duration::parse(word).filter(|time| !time.is_zero());
    let time = time.ok_or_else(|| format!("expected {}, more than 0", duration::EXPECTED))?;
    within_a_year(time)
}

/// Seconds, or none at all.
pub(super) fn not_negative(word: &str) -> Result<f64, String> {
    within_a_year(span(word)?)
}

/// The longest time that the daemon takes.
fn within_a_year(time: Duration) -> Result<f64, String> {
    if time.as_secs() > 365 * DAY {
        return Err("expected 365d at most".to_owned());
    }
    Ok(time.as_secs_f64())
}

/// A whole number.
pub(super) fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| "expected a number".to_owned())
}

/// Where to listen.
pub(super) fn address(word: &str) -> Result<SocketAddr, String> {
    let expected = |_| "expected an address and a port, as 127.0.0.1:7878".to_owned();
    word.parse().map_err(expected)
}

/// A name for a model, and the model.
pub(super) fn model_name(word: &str) -> Result<(String, String), String> {
    let named = word.split_once('=');
    let named = named.filter(|(name, model)| !name.is_empty() && !model.is_empty());
    let (name, model) = named.ok_or("expected a name and a model, as gpt-4o=claude")?;
    Ok((name.to_owned(), model.to_owned()))
}

/// How many there may be.
pub(super) fn count(word: &str) -> Result<usize, String> {
    let count = word.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a number, 1 or more".to_owned())
}

/// A time.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| format!("expected {}", duration::EXPECTED))
}

/// How long ago: a time, or since a day of this machine began.
pub(super) fn since(text: &str) -> Result<Duration, String> {
    let begun = match text {
        "today" => begin_of(&Zoned::now(), Day::Today),
        "yesterday" => begin_of(&Zoned::now(), Day::Yesterday),
        _ => {
            let expected = duration::EXPECTED;
            let told = format!("expected {expected}, or `today` or `yesterday`");
            return duration::parse(text).ok_or(told);
        }
    };
    begun.map_err(|why| format!("what day it is can't be told: {why}"))
}

/// One whose beginning is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Day {
    Today,
    Yesterday,
}

/// How long ago it began; a day may have 23 hours, or 25.
fn begin_of(now: &Zoned, day: Day) -> Result<Duration, jiff::Error> {
    let date = match day {
        Day::Today => now.date(),
        Day::Yesterday => now.date().yesterday()?,
    };
    let begun = date.to_zoned(now.time_zone().clone())?;
    Duration::try_from(now.duration_since(&begun))
}

/// One agent's name: a list of them would be looked for as a name.
pub(super) fn agent(text: &str) -> Result<String, String> {
    match text.split_once(',') {
        Some((first, _)) => Err(format!(
            "expected one agent: ask for each, as `--agent {first}`, or leave it out for all"
        )),
        None => Ok(text.to_owned()),
    }
}

/// The same, or `never`, which is no time at all.
pub(super) fn span_or_never(text: &str) -> Result<Duration, String> {
    if text == "never" {
        return Ok(Duration::ZERO);
    }
    span(text)
}

/// An age that is still known to be new: a key is kept for 24 h.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let age = span(text)?;
    match age.as_secs() {
        1..=DAY => Ok(age),
        _ => Err("expected 1s to 24h: for longer nobody knows what was delivered".to_owned()),
    }
}

/// What a recogniser calls an utterance: part of a key.
pub(super) fn utterance(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if (1..=128).contains(&text.len()) && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 128 letters, digits and ._:-".to_owned())
    }
}

/// A path that means the same to every shell.
pub(super) fn plain_path(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-+".contains(c);
    if text.starts_with('/') && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("expected an absolute path of letters, digits and ._/-+".to_owned())
    }
}

/// A name that means the same to every shell, and stands in a list.
pub(super) fn word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("expected a name of letters, digits and ._-".to_owned())
    }
}

/// A time as it is, one of this machine's clock, or a span from now as a time.
pub(super) fn start_at(text: &str) -> Result<String, String> {
    if unix_ms(text).is_some() {
        return Ok(text.to_owned());
    }
    if let Some(start) = local_start(text, &Zoned::now()) {
        return Ok(rfc3339(start.timestamp().as_second()));
    }
    let ahead = span(text).map_err(|_| {
        "expected a span from now like 2h, a time here like 9:00, `tomorrow 9:00` or `2026-11-21 \
         19:00`, or one anywhere like 2026-11-21T19:00:00Z"
            .to_owned()
    })?;
    let at = now_ms() / 1_000 + i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX / 2_000);
    Ok(rfc3339(at))
}

/// When it is that late here: next, on a day of these two, or on that date.
fn local_start(text: &str, now: &Zoned) -> Option<Zoned> {
    let zone = now.time_zone();
    let time = |text: &str| {
        let padded = format!("{}{text}", if text.find(':') == Some(1) { "0" } else { "" });
        padded.parse::<civil::Time>().ok()
    };
    let on = |day: civil::Date, time: civil::Time| day.to_datetime(time).to_zoned(zone.clone());
    let tomorrow = now.date().tomorrow();
    let start = match text.split_once(' ') {
        Some(("today", at)) => on(now.date(), time(at)?),
        Some(("tomorrow", at)) => on(tomorrow.ok()?, time(at)?),
        Some(_) | None => match (text.parse::<civil::DateTime>(), time(text)) {
            (Ok(at), _) => at.to_zoned(zone.clone()),
            (_, at) => match on(now.date(), at?) {
                Ok(start) if start > *now => Ok(start),
                Ok(_) | Err(_) => on(tomorrow.ok()?, at?),
            },
        },
    };
    start.ok()
}

/// A text as it is typed, or all of the file whose path stands behind an `@`.
pub(super) fn text_or_file(word: &str) -> Result<String, String> {
    let Some(path) = word.strip_prefix('@') else {
        return Ok(word.to_owned());
    };
    std::fs::read_to_string(path).map_err(|why| format!("`{path}` can't be read: {why}"))
}

/// A file's path; which file it is has to be sure when somebody else reads it.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("expected the path of a file".to_owned()),
        "-" => Err("standard input can't be attached: expected the path of a file".to_owned()),
        text => Ok(PathBuf::from(text)),
    }
}

/// A job by its number, or a session by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobOrSession {
    /// `j41`.
    Job(JobId),
    /// Anything else.
    Session(String),
}

/// A job, also by its number alone.
pub(super) fn job(word: &str) -> Result<JobId, String> {
    let found = word.parse().or_else(|_| format!("j{word}").parse());
    found.map_err(|_| "expected a job such as j41: `agentctl jobs` lists them".to_owned())
}

/// What looks like a job is one. A number alone may be meant as either.
pub(super) fn job_or_session(word: &str) -> Result<JobOrSession, String> {
    if let Ok(job) = word.parse() {
        return Ok(JobOrSession::Job(job));
    }
    if word.is_empty() || word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("expected a job such as j41, or a session by its name".to_owned());
    }
    Ok(JobOrSession::Session(word.to_owned()))
}

/// A question: a job, and its place among that one's.
pub(super) fn question(word: &str) -> Result<String, String> {
    let place = |place: &str| !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit());
    let is_one = word
        .split_once("-q")
        .is_some_and(|(job, of_it)| job.parse::<JobId>().is_ok() && place(of_it));
    if is_one {
        return Ok(word.to_owned());
    }
    Err("expected a question such as j41-q1: `agentctl questions` lists them".to_owned())
}

/// `key=value`.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `provider/model`, split at the first slash.
pub(super) fn model(text: &str) -> Result<String, String> {
    text.split_once('/')
        .filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
        .map(|_both| text.to_owned())
        .ok_or_else(|| "expected PROVIDER/MODEL, as in gemini/gemini-2.5-pro".to_owned())
}

/// How long ago a time is, or how far ahead; as it stands when it isn't a time.
pub(super) fn relative(time: &str, now: i64) -> String {
    match unix_ms(time) {
        None => time.to_owned(),
        Some(at) if at > now => format!("in {}", short((at - now).unsigned_abs())),
        Some(at) => format!("{} ago", short((now - at).unsigned_abs())),
    }
}

pub(super) fn short(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..DAY => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / DAY),
    }
}

/// How long something took, as people say it.
pub(super) fn took(ms: u64) -> String {
    spoken::span(Duration::from_millis(ms))
}

/// Seconds since 1970 as RFC 3339, by the usual arithmetic of years that begin in March.
pub(super) fn rfc3339(seconds: i64) -> String {
    let day_seconds = i64::try_from(DAY).unwrap_or(i64::MAX);
    let (days, second) = (
        seconds.div_euclid(day_seconds),
        seconds.rem_euclid(day_seconds),
    );
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * in_year + 2) / 153;
    let month_day = in_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{month_day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        let seconds = |text| span(text).ok().map(|span| span.as_secs());
        assert_eq!(seconds("90"), Some(90));
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("2m"), Some(120));
        assert_eq!(seconds("2h"), Some(7_200));
        assert_eq!(seconds("7d"), Some(604_800));
        for bad in ["", "h", "2x", "-2h", "99999999999999999999d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn since_a_day_is_since_its_midnight_here() {
        // The clock went back by an hour in the night before.
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let noon = civil::date(2026, 10, 25).at(12, 30, 0, 0);
        let now = noon.to_zoned(zone).unwrap();
        let minutes = |day| begin_of(&now, day).unwrap().as_secs() / 60;
        assert_eq!(minutes(Day::Today), 13 * 60 + 30);
        assert_eq!(minutes(Day::Yesterday), 37 * 60 + 30);
        assert_eq!(since("2h"), Ok(Duration::from_secs(7_200)));
        assert!(since("today").unwrap() <= Duration::from_secs(25 * 3_600));
        assert!(
            since("tomorrow")
                .unwrap_err()
                .ends_with("or `today` or `yesterday`")
        );
    }

    #[test]
    fn time_that_was_made_is_what_was_meant() {
        for seconds in [
            0,
            951_782_399,
            951_782_400,
            1_709_164_800,
            1_732_216_560,
            4_107_542_399,
        ] {
            let time = rfc3339(seconds);
            assert_eq!(unix_ms(&time), Some(seconds * 1_000), "{time}");
        }
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
    }

    #[test]
    fn start_is_a_time_or_a_span() {
        let given = "2026-11-21T19:00:00+01:00";
        assert_eq!(start_at(given).as_deref(), Ok(given));
        let soon = start_at("2h").unwrap();
        let ahead = unix_ms(&soon).unwrap() - now_ms();
        assert!((7_100_000..=7_200_000).contains(&ahead), "{soon}");
        assert!(
            start_at("tomorrow")
                .unwrap_err()
                .contains("`tomorrow 9:00`")
        );
    }

    #[test]
    fn start_by_the_clock_here_is_found() {
        // The clock goes forward in the night that follows: there is no 2:30.
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let noon = civil::date(2026, 3, 28).at(12, 30, 0, 0);
        let now = noon.to_zoned(zone).unwrap();
        let start = |text: &str| Some(rfc3339(local_start(text, &now)?.timestamp().as_second()));
        for (text, at) in [
            ("13:00", "2026-03-28T12:00:00Z"),
            ("9:00", "2026-03-29T07:00:00Z"),
            ("today 23:05:30", "2026-03-28T22:05:30Z"),
            ("tomorrow 9:00", "2026-03-29T07:00:00Z"),
            ("tomorrow 2:30", "2026-03-29T01:30:00Z"),
            ("2026-12-01 09:00", "2026-12-01T08:00:00Z"),
            ("2026-12-01T09:00", "2026-12-01T08:00:00Z"),
        ] {
            assert_eq!(start(text).as_deref(), Some(at), "{text}");
        }
        for odd in [
            "",
            "9",
            "25:00",
            "tomorrow",
            "monday 9:00",
            "2026-13-01 09:00",
        ] {
            assert_eq!(start(odd), None, "{odd}");
        }
    }

    #[test]
    fn times_in_tables_are_relative() {
        let now = unix_ms("2026-11-21T19:00:00Z").unwrap();
        assert_eq!(relative("2026-11-21T18:59:30Z", now), "30 s ago");
        assert_eq!(relative("2026-11-19T19:00:00Z", now), "2 d ago");
        assert_eq!(relative("2026-11-21T19:09:59Z", now), "in 9 min");
        assert_eq!(relative("never", now), "never");
    }

    #[test]
    fn what_goes_into_keys_and_commands_is_plain() {
        assert!(utterance("7F3A-b.c_d:1").is_ok());
        for bad in ["", "a b", "a\nb", "$(id)", "\u{e4}", &"x".repeat(129)] {
            assert!(utterance(bad).is_err(), "{bad}");
        }
        assert!(plain_path("/opt/agentd-1.0/bin/agentctl").is_ok());
        for bad in ["", "agentctl", "/a b", "/a\"", "/a;id", "/a$(id)", "/a\nb"] {
            assert!(plain_path(bad).is_err(), "{bad}");
        }
        assert_eq!(age("2h").map(|age| age.as_secs()), Ok(7_200));
        assert!(age("0").is_err() && age("24h").is_ok() && age("25h").is_err());
    }

    #[test]
    fn text_is_itself_or_what_a_file_has() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("system.md");
        std::fs::write(&file, "be\nbrief\n").unwrap();
        let named = format!("@{}", file.display());
        assert_eq!(text_or_file(&named).as_deref(), Ok("be\nbrief\n"));
        assert_eq!(text_or_file("be brief").as_deref(), Ok("be brief"));
        std::fs::write(&file, b"\xff").unwrap();
        for bad in [named.as_str(), "@/no/such/file"] {
            assert!(
                text_or_file(bad).unwrap_err().contains("can't be read"),
                "{bad}"
            );
        }
    }

    #[test]
    fn label_has_a_key_and_perhaps_a_value() {
        assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(label("a=").is_ok() && label("=a").is_err() && label("a").is_err());
    }
}
