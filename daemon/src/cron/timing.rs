//! When a schedule is due: from what it says to instants, and back to times that people read.
//!
//! Pure, but for the rules of time zones, which jiff reads from the system: no clock, no store. All
//! instants are milliseconds since 1970. Must not know what is done when one has come.

use std::time::Duration;

use agentd_base::duration;
use agentd_protocol::schedule::ScheduleSpec;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned, civil};
use sha2::{Digest as _, Sha256};

/// Nobody wants a turn more often, and each is a job that stays.
const SHORTEST: Duration = Duration::from_secs(1);
/// Far from what a timestamp can't hold.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// What has no due time within this many years never has one: leap days come every eight at the most.
const WITHIN_YEARS: i16 = 30;

/// What a schedule says of its times, read.
#[derive(Clone, Debug)]
pub struct Timing {
    when: When,
    zone: TimeZone,
    jitter_ms: i64,
    anchor_ms: i64,
}

#[derive(Clone, Debug)]
enum When {
    At(i64),
    Every { anchor_ms: i64, every_ms: i64 },
    Cron(Box<Cron>),
}

/// Reads what somebody gave, and puts what it means into its place: the time zone of the machine, and
/// an absolute time for one from now. `now_ms` is when it was given.
///
/// # Errors
/// In words: what was found, what is expected.
pub fn settle(spec: &mut ScheduleSpec, now_ms: i64) -> Result<Timing, String> {
    if spec.tz.is_none() {
        spec.tz = Some(zone_of_machine(spec)?);
    }
    let zone = zone(spec.tz.as_deref())?;
    if let Some(at) = &spec.at {
        let ms = read_at(at, &zone, now_ms)?;
        if ms <= now_ms {
            let now = shown(now_ms, &zone);
            return Err(format!("`at` is `{at}`, which is past: it is {now}"));
        }
        spec.at = Some(shown(ms, &zone));
    }
    let timing = Timing::of(spec, now_ms)?;
    if timing.next_after(now_ms).is_none() {
        let cron = spec.cron.as_deref().unwrap_or_default();
        return Err(format!("`cron` is `{cron}`, a time that never comes"));
    }
    Ok(timing)
}

impl Timing {
    /// Of what is settled; `anchor_ms` is from when on `every` counts.
    ///
    /// # Errors
    /// In words: what was found, what is expected.
    pub fn of(spec: &ScheduleSpec, anchor_ms: i64) -> Result<Self, String> {
        let zone = zone(spec.tz.as_deref())?;
        let when = if let Some(at) = &spec.at {
            When::At(read_at(at, &zone, anchor_ms)?)
        } else if let Some(every) = &spec.every {
            let every_ms = read_duration("every", every)?;
            if every_ms < ms(SHORTEST) {
                return Err(format!("`every` is `{every}`: expected at least 1s"));
            }
            When::Every {
                anchor_ms,
                every_ms,
            }
        } else {
            When::Cron(Box::new(read_cron(
                spec.cron.as_deref().unwrap_or_default(),
            )?))
        };
        let jitter_ms = match &spec.jitter {
            Some(jitter) => read_duration("jitter", jitter)?,
            None => 0,
        };
        if let When::Every { every_ms, .. } = when
            && jitter_ms >= every_ms
        {
            return Err("`jitter` is as long as `every`: expected less".to_owned());
        }
        Ok(Self {
            when,
            zone,
            jitter_ms,
            anchor_ms,
        })
    }

    /// The first due time after an instant.
    #[must_use]
    pub fn next_after(&self, after_ms: i64) -> Option<i64> {
        match &self.when {
            When::At(at) => (*at > after_ms).then_some(*at),
            When::Every {
                anchor_ms,
                every_ms,
            } => {
                // The first one comes one interval after the anchor.
                let passed = after_ms.checked_sub(*anchor_ms)?.max(0) / every_ms;
                anchor_ms.checked_add((passed + 1).checked_mul(*every_ms)?)
            }
            When::Cron(cron) => {
                let after = self.zoned(after_ms)?;
                let next = cron.find_next_occurrence(&after, false).ok();
                // A place may leave out a whole day, which is more than croner steps over.
                let next = next.or_else(|| {
                    let set = self.zone.following(after.timestamp()).next()?.timestamp();
                    let behind = set.to_zoned(self.zone.clone());
                    cron.find_next_occurrence(&behind, true).ok()
                })?;
                let most = after.year().saturating_add(WITHIN_YEARS);
                (next.year() <= most).then(|| next.timestamp().as_millisecond())
            }
        }
    }

    /// The last due time that is not after an instant.
    #[must_use]
    pub fn last_by(&self, by_ms: i64) -> Option<i64> {
        match &self.when {
            When::At(at) => (*at <= by_ms).then_some(*at),
            When::Every {
                anchor_ms,
                every_ms,
            } => {
                let passed = by_ms.checked_sub(*anchor_ms)? / every_ms;
                (passed >= 1).then(|| anchor_ms + passed * every_ms)
            }
            When::Cron(cron) => {
                let by = self.zoned(by_ms)?;
                let last = cron.find_previous_occurrence(&by, true).ok()?;
                let last = last.timestamp().as_millisecond();
                // The two directions agree, or the one that decides what comes next counts.
                let next = self.next_after(last.checked_sub(1)?)?;
                Some(if next <= by_ms { next.max(last) } else { last })
            }
        }
    }

    /// When a due time is acted on: later than it is by a part of the jitter, by the same each time
    /// that it is asked, and by another one in a schedule that was made at another moment.
    #[must_use]
    pub fn fires_at(&self, due_ms: i64) -> i64 {
        if self.jitter_ms == 0 {
            return due_ms;
        }
        let hash = Sha256::digest(format!("{} {due_ms}", self.anchor_ms));
        let part = hash
            .iter()
            .take(7)
            .fold(0, |all: i64, byte| all << 8 | i64::from(*byte));
        due_ms.saturating_add(part % (self.jitter_ms + 1))
    }

    /// An instant in the schedule's time zone, as RFC 3339.
    #[must_use]
    pub fn shown(&self, at_ms: i64) -> String {
        shown(at_ms, &self.zone)
    }

    fn zoned(&self, at_ms: i64) -> Option<Zoned> {
        // On the second: what cron says has no parts of one, and what is within one comes after it.
        let second = at_ms.div_euclid(1000);
        let at = Timestamp::from_second(second).ok()?;
        Some(at.to_zoned(self.zone.clone()))
    }
}

fn shown(at_ms: i64, zone: &TimeZone) -> String {
    let Ok(at) = Timestamp::from_millisecond(at_ms) else {
        return String::new();
    };
    let at = at.to_zoned(zone.clone());
    let offset = at.offset();
    let text = at.timestamp().display_with_offset(offset).to_string();
    // `Z` is for those who don't know where they are.
    text.replace("+00:00", "Z")
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A time in the grammar of the configuration.
///
/// # Errors
/// In words.
pub fn read_duration(name: &str, text: &str) -> Result<i64, String> {
    match duration::parse(text) {
        Some(time) if time <= LONGEST => Ok(ms(time)),
        Some(_) => Err(format!("`{name}` is `{text}`: expected ten years at most")),
        None => Err(format!(
            "`{name}` is `{text}`: expected {}",
            duration::EXPECTED
        )),
    }
}

fn zone(name: Option<&str>) -> Result<TimeZone, String> {
    match name {
        // It needs no files.
        Some("UTC") => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_why| {
            format!("`tz` is `{name}`, which this machine doesn't know: expected a name such as Europe/Berlin")
        }),
        None => Ok(TimeZone::UTC),
    }
}

/// The name of the machine's time zone. One without a name can't be kept; where nothing hangs on it,
/// none is needed.
fn zone_of_machine(spec: &ScheduleSpec) -> Result<String, String> {
    match TimeZone::system().iana_name() {
        Some("Etc/Unknown") => Ok("UTC".to_owned()),
        Some(name) => Ok(name.to_owned()),
        None if spec.every.is_some() => Ok("UTC".to_owned()),
        None => Err(
            "`tz` is missing, and this machine's time zone has no name: expected one such as \
                     Europe/Berlin"
                .to_owned(),
        ),
    }
}

fn read_at(text: &str, zone: &TimeZone, now_ms: i64) -> Result<i64, String> {
    let text = text.trim();
    let wait = match text.strip_prefix('+') {
        Some(wait) => Some(read_duration("at", wait)?),
        // Without a unit it may be meant as anything.
        None if text.ends_with(|last: char| last.is_ascii_lowercase()) => {
            read_duration("at", text).ok()
        }
        None => None,
    };
    if let Some(wait) = wait {
        return Ok(now_ms.saturating_add(wait));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let local: Result<civil::DateTime, _> = text.parse();
    // What the clocks leave out comes right after: as far after it as it is behind the last time that
    // there is.
    match local.and_then(|local| local.to_zoned(zone.clone())) {
        Ok(at) => Ok(at.timestamp().as_millisecond()),
        Err(_why) => Err(format!(
            "`at` is `{text}`: expected +10m, 2026-12-01T09:00 or 2026-12-01T09:00:00Z"
        )),
    }
}

fn read_cron(text: &str) -> Result<Cron, String> {
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build();
    parser.parse(text).map_err(|why| {
        format!(
            "`cron` is `{text}`: {why}; expected five fields (minute, hour, day, month, weekday), as \
             in 0 9 * * 1-5"
        )
    })
}

#[cfg(test)]
#[path = "timing/tests.rs"]
mod tests;
