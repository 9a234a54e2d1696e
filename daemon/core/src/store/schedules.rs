//! What the store is told of schedules.
//!
//! Owns what is written with what. When a schedule is due is worked out before the core hears of it.

/// The due time that comes next, as far as there is one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NextDue {
    /// Milliseconds since 1970.
    pub due_ms: Option<i64>,
    /// When it is acted on: that, and its part of the jitter.
    pub fires_ms: Option<i64>,
    /// It and the two behind it, for people.
    pub upcoming: Vec<String>,
}

/// Due times that nothing was sent for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The last of them, milliseconds since 1970.
    pub due_ms: i64,
    /// How many.
    pub times: u64,
    /// Why.
    pub why: String,
}

/// A due time that is acted on. With its job it is one commit: either both are there or neither is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired {
    /// Of which schedule.
    pub schedule: u64,
    /// The schedule's next due time must still be this one; `None` when somebody asked for a run
    /// besides.
    pub expected: Option<i64>,
    /// Which due time, milliseconds since 1970.
    pub due_ms: i64,
    /// How far behind it.
    pub late_ms: u64,
    /// What comes after it; nothing changes there when somebody asked.
    pub next: NextDue,
    /// What was left out before it.
    pub passed: Option<Passed>,
}

/// A change of a schedule that somebody asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleWrite {
    /// A new one.
    Add {
        /// What people call it.
        name: Option<String>,
        /// What it says, as JSON.
        spec: String,
        /// From when on `every` counts, milliseconds since 1970.
        anchor_ms: i64,
        /// When it is due.
        next: NextDue,
    },
    /// It says something else from now on, or goes on.
    Set {
        /// Which.
        schedule: u64,
        /// It was read as of this revision: of another one nothing is changed.
        revision: i64,
        /// What people call it.
        name: Option<String>,
        /// What it says, as JSON.
        spec: String,
        /// From when on `every` counts, milliseconds since 1970.
        anchor_ms: i64,
        /// When it is due.
        next: NextDue,
        /// Does it go on, if it was paused?
        resumes: bool,
    },
    /// It stays, and isn't due.
    Pause {
        /// By id or name.
        which: String,
    },
    /// It is forgotten, with its runs. Their jobs stay.
    Remove {
        /// By id or name.
        which: String,
    },
}
