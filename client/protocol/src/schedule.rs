//! Schedules on the wire: the `cron.*` requests and the rows of their lists.
//!
//! Owns their fields and syntax. Must not know when a schedule is due, nor which there are.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::check::check_limit;
use crate::envelope::{Checked, Rejected, invalid};
use crate::ids::JobId;
use crate::limits::MAX_SESSION_NAME;
use crate::request::Send;

/// What becomes of due times that passed while nobody was there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Nothing.
    Skip,
    /// The last of them is made up for, once.
    #[default]
    Last,
    /// Each of them is, one after the other.
    All,
}

/// What becomes of a due time while the run before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// It waits for the end of that run.
    Queue,
    /// That run is cancelled.
    Replace,
    /// Both run.
    Parallel,
}

impl Overlap {
    /// As it stands on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Replace => "replace",
            Self::Parallel => "parallel",
        }
    }
}

/// What a schedule says: the fields of `cron.add`.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleSpec {
    /// What people call it; no two have the same.
    pub name: Option<String>,
    /// Once: RFC 3339, a local time in `tz`, or `+` and a time from now.
    pub at: Option<String>,
    /// Each so long, counted from when it was made.
    pub every: Option<String>,
    /// Five fields, as crontab has them.
    pub cron: Option<String>,
    /// The time zone by its IANA name; the machine's when absent.
    pub tz: Option<String>,
    /// Each due time comes later by up to so much, always by the same.
    pub jitter: Option<String>,
    /// Due times that passed while nobody was there.
    #[serde(default)]
    pub missed: Missed,
    /// Due times while the run before goes on.
    #[serde(default)]
    pub overlap: Overlap,
    /// So many runs are kept; 100 when absent.
    pub keep: Option<u32>,
    /// After a run that failed so long, and twice as long after each further one.
    pub backoff: Option<String>,
    /// After so many that failed in a row it is paused.
    pub max_failures: Option<u32>,
    /// What is sent each time; without `session`, in a new one.
    pub send: Box<Send>,
}

/// Most runs that are kept of a schedule.
pub const MAX_KEEP: u32 = 10_000;

/// Most bytes of what a schedule sends, as JSON: a list of schedules has all of it.
pub const MAX_SCHEDULED: usize = 128 * 1024;

/// Fields of a send that a schedule has no use for, as it says them itself or can't keep them.
const NOT_SCHEDULED: &[&str] = &[
    "type",
    "id",
    "idempotency_key",
    "start_at",
    "parent",
    "attachments",
    "history",
    "stream",
    "job",
];

impl ScheduleSpec {
    /// Checks what can be said without a clock, and without the send, which is checked when it is
    /// read.
    ///
    /// # Errors
    /// `invalid-request`.
    pub(crate) fn check_all(&self) -> Result<(), Rejected> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        let when = [&self.at, &self.every, &self.cron];
        if when.iter().filter(|one| one.is_some()).count() != 1 {
            let error = "expected exactly one of `at`, `every` and `cron`";
            return Err(
                invalid(error).hint(r#"such as "at":"+1m", "every":"30m" or "cron":"0 9 * * 1-5""#)
            );
        }
        let bytes = serde_json::to_string(&self.send).map_or(0, |send| send.len());
        if bytes > MAX_SCHEDULED {
            let error = format!("`send` has {bytes} bytes: expected at most {MAX_SCHEDULED}");
            return Err(invalid(error).hint("put the text into a file, and say where that is"));
        }
        match self.keep {
            Some(0) => Err(invalid("`keep` is 0: expected at least 1")),
            Some(keep) if keep > MAX_KEEP => Err(invalid(format!(
                "`keep` is {keep}: expected at most {MAX_KEEP}"
            ))),
            _ if self.max_failures == Some(0) => Err(invalid(
                "`max_failures` is 0: expected at least 1, or nothing to go on for ever",
            )),
            _ => Ok(()),
        }
    }

    /// Checks which fields its send has.
    pub(crate) fn check_send_fields<'a>(
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<(), Rejected> {
        match names.find(|name| NOT_SCHEDULED.contains(name)) {
            Some("attachments") => Err(invalid(
                "`send.attachments` is given: a schedule keeps no files",
            )
            .hint("say in the text where the file is")),
            Some(name) => Err(invalid(format!(
                "`send.{name}` is given: a schedule says that itself"
            ))),
            None => Ok(()),
        }
    }
}

fn check_name(name: &str) -> Result<(), Rejected> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._:@/-".contains(c);
    if name.is_empty() || name.len() > MAX_SESSION_NAME || !name.chars().all(fine) {
        return Err(invalid(format!(
            "`name` is {name:?}: expected 1 to {MAX_SESSION_NAME} letters, digits and ._:@/-"
        )));
    }
    match ScheduleId::parse(name) {
        Some(_) => Err(invalid(format!(
            "`name` is `{name}`, which is what ids look like: expected another one"
        ))),
        None => Ok(()),
    }
}

/// The number of a schedule, written `"c1"`; never given again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScheduleId(pub u64);

impl ScheduleId {
    /// Of its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('c')?;
        let plain = !digits.is_empty()
            && !digits.starts_with('0')
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| plain).map(Self)
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// `cron.pause`, `cron.resume`, `cron.run`, `cron.remove`: one schedule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CronNamed {
    /// Its id, or its name.
    pub schedule: String,
}

impl Checked for CronNamed {}

/// `cron.edit`: other fields for a schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CronEdit {
    /// Its id, or its name.
    pub schedule: String,
    /// Fields of `cron.add` that take the place of those it has; `null` takes one away. Of `send`
    /// likewise.
    #[cfg_attr(feature = "schema", schemars(schema_with = "some_fields"))]
    pub set: Map<String, Value>,
}

#[cfg(feature = "schema")]
fn some_fields(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object"})
}

impl Checked for CronEdit {}

/// `cron.list`: schedules, as they were made.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CronList {
    /// Only this one, by id or name.
    pub schedule: Option<String>,
    /// At most so many; 50 when absent.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<u64>,
}

impl Checked for CronList {
    fn check(&self) -> Result<(), Rejected> {
        check_limit(self.limit)
    }
}

/// `cron.runs`: what became of the due times of a schedule, newest first.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CronRuns {
    /// Its id, or its name.
    pub schedule: String,
    /// At most so many; 50 when absent.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub before: Option<u64>,
}

impl Checked for CronRuns {
    fn check(&self) -> Result<(), Rejected> {
        check_limit(self.limit)
    }
}

/// Is a schedule to go on?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ScheduleState {
    /// Yes.
    Active,
    /// Not until somebody resumes it.
    Paused,
    /// It has no due time any more.
    Done,
}

impl ScheduleState {
    /// As it stands on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Done => "done",
        }
    }
}

/// One schedule of a list.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct ScheduleRow {
    pub schedule: String,
    pub state: ScheduleState,
    /// Why it is paused, if agentd did that.
    pub why: Option<String>,
    #[serde(flatten)]
    pub spec: ScheduleSpec,
    /// The next three due times, in its time zone.
    pub next: Vec<String>,
    /// Runs that failed in a row, up to now.
    pub failures: u64,
    pub created_at: String,
    pub last: Option<RunRow>,
}

/// What became of a due time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// A job.
    Job,
    /// It was left out.
    Skipped,
    /// The send was refused.
    Refused,
}

/// One run of a schedule.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct RunRow {
    pub due_at: String,
    pub outcome: RunOutcome,
    pub job: Option<JobId>,
    /// How its job ended; none while it goes on.
    pub state: Option<String>,
    /// Of a job that failed.
    pub code: Option<String>,
    /// How its answer, or what it failed of, begins.
    pub preview: Option<String>,
    /// What it cost, where that is known.
    pub usd: Option<f64>,
    /// So many milliseconds behind its due time.
    pub late_ms: u64,
    /// Did somebody ask for it?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// Why it was left out or refused.
    pub why: Option<String>,
    /// How many due times it stands for, if more than one.
    pub times: Option<u64>,
    pub at: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_id_is_c_and_a_number() {
        assert_eq!(ScheduleId::parse("c41"), Some(ScheduleId(41)));
        for bad in ["", "c", "41", "c041", "C41", "c-1", "c99999999999999999999"] {
            assert_eq!(ScheduleId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn schedule_has_one_way_to_be_due() {
        let once = |spec: ScheduleSpec| spec.check_all();
        let some = || Some("1m".to_owned());
        let every = || ScheduleSpec {
            every: some(),
            ..ScheduleSpec::default()
        };
        assert!(once(every()).is_ok());
        assert!(once(ScheduleSpec::default()).is_err());
        let both = ScheduleSpec {
            at: some(),
            ..every()
        };
        assert!(once(both).is_err());
        for name in ["", "c1", "a b"] {
            let name = Some(name.to_owned());
            assert!(once(ScheduleSpec { name, ..every() }).is_err());
        }
    }
}
