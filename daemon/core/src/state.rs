//! The one value that is true.
//!
//! Owns nothing but its five owners, and what is of the whole daemon. Must not know what happens to
//! them: that is in `rules`, and `apply.rs` says in which order.

use agentd_protocol::JobId;

use crate::counters::Counters;
use crate::ids::Now;
use crate::indexes::Indexes;
use crate::jobs::Jobs;
use crate::mode::{Leave, Mode};
use crate::outbox::Outbox;
use crate::peers::Peers;
use crate::pool::Pool;
use crate::sessions::Sessions;
use crate::settings::Settings;

/// Everything that is true.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) now: Now,
    /// When it was told of something first.
    pub(crate) began: Option<Now>,
    pub(crate) mode: Mode,
    /// A stop that was asked for and has not begun.
    pub(crate) leaving: Option<Leave>,
    /// Why the store takes nothing for now.
    pub(crate) store_trouble: Option<String>,
    /// It has said nothing for so long that nobody is to wait for it: its disk may hang.
    pub(crate) store_silent: bool,
    pub(crate) jobs: Jobs,
    pub(crate) sessions: Sessions,
    pub(crate) pool: Pool,
    pub(crate) peers: Peers,
    pub(crate) outbox: Outbox,
    pub(crate) counters: Counters,
    /// What follows from jobs and sessions.
    pub(crate) indexes: Indexes,
    /// How often a turn was looked at, whether it could start.
    pub(crate) looked: u64,
}

impl State {
    /// A daemon that has just started.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let (last_seq, ended_jobs) = (settings.last_seq, settings.ended_jobs);
        Self {
            settings,
            now: Now::default(),
            began: None,
            mode: Mode::Ready,
            leaving: None,
            store_trouble: None,
            store_silent: false,
            jobs: Jobs::default(),
            sessions: Sessions::default(),
            pool: Pool::default(),
            peers: Peers::default(),
            outbox: Outbox::default(),
            counters: Counters::at_start(last_seq, ended_jobs),
            indexes: Indexes::default(),
            looked: 0,
        }
    }

    /// Is a job in memory? Every stored one of this instance is, until its final line is durable.
    #[must_use]
    pub fn knows(&self, job: JobId) -> bool {
        self.jobs.knows(job)
    }
}
