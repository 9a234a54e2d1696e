//! The one value that is true, and the one function that changes it.
//!
//! Owns the maps and hands each event to the file that knows it. Must not decide anything itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentd_protocol::JobId;

use crate::counters::Counters;
use crate::derived::Derived;
use crate::effect::Effect;
use crate::health::Health;
use crate::ids::{ConnId, Now, SessionId, Token, TurnId, WorkerId};
use crate::jobs::job::{Batch, Job};
use crate::jobs::slices::Slices;
use crate::mode::{Leave, Mode};
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timers;
use crate::peers::collects::Collects;
use crate::peers::conn::Conn;
use crate::peers::questions::Questions;
use crate::peers::steers::SteerQueue;
use crate::peers::waiting::{Aborting, Dispatching, RestartWait};
use crate::pool::slot::Slot;
use crate::pool::spares::Spares;
use crate::pool::way::{Compacting, Look, Way};
use crate::rules::budget::Held;
use crate::sessions::loading::Loading;
use crate::sessions::session::Session;
use crate::settings::Settings;
use crate::store::Write;
use crate::terms::SharedTerms;
use crate::tracked::Tracked;

/// Everything that is true.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) now: Now,
    pub(crate) out: Vec<Effect>,
    pub(crate) mode: Mode,
    /// A stop that was asked for and has not begun.
    pub(crate) leaving: Option<Leave>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    /// Boxed: the tree would move them about, and has room for twice as many.
    pub(crate) jobs: Tracked<TurnId, Box<Job>>,
    pub(crate) numbers: BTreeMap<JobId, TurnId>,
    pub(crate) sessions: Tracked<SessionId, Box<Session>>,
    pub(crate) names: BTreeMap<String, SessionId>,
    pub(crate) slots: BTreeMap<WorkerId, Slot>,
    /// Jobs whose time to start has not come.
    pub(crate) scheduled: usize,
    /// What follows from jobs and sessions.
    pub(crate) derived: Derived,
    /// How often a turn was looked at, whether it could start.
    pub(crate) looked: u64,
    /// Those of them whose time runs already: their process is being made ready.
    pub(crate) clocked: BTreeSet<TurnId>,
    pub(crate) awaiting: BTreeMap<Token, Awaiting>,
    /// Commits among them.
    pub(crate) commits: usize,
    pub(crate) loading: BTreeMap<String, Loading>,
    pub(crate) dispatching: BTreeMap<u64, Dispatching>,
    pub(crate) collecting: Collects,
    pub(crate) aborting: BTreeMap<u64, Aborting>,
    pub(crate) slices: Slices,
    /// Of what the store was not told yet: sessions that left memory, turns that wait again. Many
    /// may at once.
    pub(crate) untold: Vec<Write>,
    /// Pending sends whose session a dead instance had, by that instance.
    pub(crate) orphaned: BTreeMap<String, Vec<Batch>>,
    pub(crate) restarts: Vec<RestartWait>,
    pub(crate) health: BTreeMap<String, Health>,
    /// The same of processes that were started beside another one, see `further.rs`.
    pub(crate) further: BTreeMap<String, Health>,
    pub(crate) way: Way,
    pub(crate) look: Look,
    pub(crate) spares: BTreeMap<String, Spares>,
    pub(crate) questions: Questions,
    pub(crate) words: SteerQueue,
    pub(crate) compacting: BTreeMap<WorkerId, Compacting>,
    pub(crate) timers: Timers,
    /// When the times of turns that wait come, see `waits.rs`.
    pub(crate) times: BTreeSet<(u64, TurnId)>,
    /// Spawns may go on at their rate from this time on: they are ahead of it, or behind.
    pub(crate) spawns_until: Duration,
    pub(crate) counters: Counters,
    /// Connections that have a subscription.
    pub(crate) subscribers: BTreeSet<ConnId>,
    pub(crate) held: Held,
    pub(crate) shared_terms: SharedTerms,
    pub(crate) store_trouble: Option<String>,
    pub(crate) next: u64,
}
