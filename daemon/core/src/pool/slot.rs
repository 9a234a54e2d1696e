//! One process slot: what it was started with, what it holds, where it is in its life.
//!
//! Owns the data; transitions are in `supervisor.rs`, `stop_stages.rs` and `process_exit.rs` of the rules.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use agentd_protocol::line::WorkerState;
use agentd_protocol::models::ModeRow;

use crate::agent::{Agent, Capabilities, Resume, Sessions, SystemText};
use crate::attached::AttachmentSupport;
use crate::counters::Tally;
use crate::effect::StopStage;
use crate::ids::{Generation, SessionId, TurnId};
use crate::limits::{LINGERING_SESSIONS, PROBE_AFTER};
use crate::mcp::McpServing;
use crate::pool::fit::{Fit, Reach};

/// One process slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) agent: String,
    /// What its agent could do when it was made: the agent may be run in another form since.
    pub(crate) describe: Capabilities,
    pub(crate) fit: Fit,
    pub(crate) phase: SlotPhase,
    pub(crate) generation: Generation,
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) last_ok_ms: Option<i64>,
    pub(crate) spawned_at: Duration,
    /// Sessions it holds.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Those of them that nobody named and that have no turn, the one used last at the end. It knows
    /// them as long as it lives, and isn't kept for them.
    pub(crate) lingering: VecDeque<SessionId>,
    /// Turns it has, or is about to get.
    pub(crate) turns: BTreeSet<TurnId>,
    /// Turns at once.
    pub(crate) capacity: u32,
    pub(crate) one_session: bool,
    /// It works where each turn says.
    pub(crate) cwd_per_turn: bool,
    /// It can restrict its tools.
    pub(crate) toolsets: bool,
    /// It does so as each turn says.
    pub(crate) toolsets_per_turn: bool,
    /// It takes a chain of models.
    pub(crate) fallback_chain: bool,
    /// How it takes a session's system text.
    pub(crate) system: SystemText,
    /// It takes a conversation that was held elsewhere.
    pub(crate) history: bool,
    /// It takes MCP servers of its sessions.
    pub(crate) mcp: bool,
    /// It opens copies of sessions.
    pub(crate) forks: bool,
    /// The models that it offers, where it lists them.
    pub(crate) models: Option<Vec<String>>,
    /// The modes that it offers.
    pub(crate) modes: Option<Vec<ModeRow>>,
    /// Its turns take steers.
    pub(crate) steers: bool,
    pub(crate) compacts: bool,
    /// It says which models it has.
    pub(crate) lists_models: bool,
    /// It says which slash commands it has.
    pub(crate) lists_commands: bool,
    /// What goes with its turns.
    pub(crate) takes: AttachmentSupport,
    /// What it holds survives it.
    pub(crate) resumes: bool,
    /// The session that its spawn reopens.
    pub(crate) resuming: Option<SessionId>,
    /// The agent's own id of the session that its next turn begins, said before it was anybody's.
    pub(crate) native: Option<String>,
    pub(crate) idle_since: Duration,
    /// It takes no new turns and goes when the last one ended.
    pub(crate) retiring: bool,
    pub(crate) restart_when_idle: bool,
    /// It takes no new turns for a while, see `room.rs`.
    pub(crate) makes_way: bool,
    /// Was it started before anybody asked for it?
    pub(crate) spare: bool,
    /// Did a turn begin in this generation?
    pub(crate) served: bool,
    /// Did one end well?
    pub(crate) proven: bool,
    pub(crate) strays: u64,
    /// The turns that ended in it, over all its processes.
    pub(crate) tally: Tally,
    /// Numbered events of this process that the store has not answered.
    pub(crate) unstored: usize,
    /// Is its output not read, because they are too many?
    pub(crate) paused: bool,
}

impl Slot {
    /// Can it serve what fits so?
    pub(crate) fn serves(&self, fit: &Fit) -> bool {
        let mut fit = fit.clone();
        // What it takes with each turn can't keep it from one.
        if self.cwd_per_turn {
            fit.cwd.clone_from(&self.fit.cwd);
        }
        if self.toolsets_per_turn {
            fit.toolsets.clone_from(&self.fit.toolsets);
        }
        self.fit == fit
    }

    /// Is its process one turn?
    pub(crate) fn is_one_turn(&self) -> bool {
        self.describe.sessions == Sessions::PerTurn
    }

    /// Sessions that it is there for.
    pub(crate) fn held(&self) -> impl Iterator<Item = SessionId> {
        let held = self.sessions.iter().copied();
        held.filter(|session| !self.lingering.contains(session))
    }

    /// Is it there for no session?
    pub(crate) fn is_free(&self) -> bool {
        self.sessions.len() <= self.lingering.len()
    }

    /// A session that nobody named has no turn any more; returns the one that has to leave for it.
    pub(crate) fn lingers(&mut self, session: SessionId) -> Option<SessionId> {
        self.has_turn_again(session);
        self.lingering.push_back(session);
        if self.lingering.len() > LINGERING_SESSIONS {
            self.lingering.pop_front()
        } else {
            None
        }
    }

    /// A session has a turn: it is there for that one.
    pub(crate) fn has_turn_again(&mut self, session: SessionId) {
        self.lingering.retain(|other| *other != session);
    }

    /// A session leaves it.
    pub(crate) fn lets_go(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.has_turn_again(session);
    }

    /// Does the id of a session go with each of its turns?
    pub(crate) fn reopens_in_turns(&self) -> bool {
        self.resumes && self.describe.resume == Resume::InTurn
    }

    /// Was it started before anybody asked for it, and has nobody used it yet?
    pub(crate) fn is_unused_spare(&self) -> bool {
        self.spare && !self.served && self.sessions.is_empty() && self.turns.is_empty()
    }

    /// Is it one that gets its first turn just now?
    pub(crate) const fn is_spare_taken(&self) -> bool {
        self.spare && !self.served
    }

    /// Is it one that is there, or will be?
    pub(crate) fn is_spare_to_be(&self) -> bool {
        let stays = !self.phase.is_stopping() && self.phase != SlotPhase::Failed;
        self.is_unused_spare() && stays && !self.retiring
    }

    pub(crate) const fn pid(&self) -> Option<u32> {
        self.phase.pid()
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, SlotPhase::Ready { .. })
    }

    pub(crate) fn has_room(&self) -> bool {
        self.turns.len() < self.capacity as usize
    }

    /// Has it been idle for so long that it is asked whether it lives before its next turn?
    pub(crate) fn is_asked_first(&self, now: Duration) -> bool {
        self.turns.is_empty() && now.saturating_sub(self.idle_since) > PROBE_AFTER
    }

    /// How many sessions may have turns in it at the same time.
    pub(crate) const fn at_once(&self) -> usize {
        if self.one_session {
            1
        } else {
            self.capacity as usize
        }
    }

    /// How many more turns of sessions that it doesn't hold it could take.
    pub(crate) fn room(&self) -> u32 {
        if self.one_session {
            // Between its session's turns it holds that session's memory, so nobody else gets it.
            u32::from(self.sessions.is_empty())
        } else {
            let taken = u32::try_from(self.turns.len()).unwrap_or(u32::MAX);
            self.capacity.saturating_sub(taken)
        }
    }

    /// Before its process has said so itself, it is taken to be as the last one of its agent was.
    pub(crate) fn expects(&mut self, last: Reach) {
        // Where one process has one session there is nothing to expect.
        if self.describe.sessions == Sessions::Many {
            self.one_session = last.one_session;
            self.capacity = last.turns;
            self.cwd_per_turn = last.cwd;
            self.toolsets_per_turn = last.toolsets;
        }
    }

    pub(crate) fn takes_turns(&self) -> bool {
        // A process that was one turn has had it, though its exit may not be known yet.
        let over = self.served && self.is_one_turn();
        !self.retiring && !self.restart_when_idle && !self.makes_way && !over
    }
}

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotPhase {
    /// Waits for a free place in the spawn rate, or for its turn's *running* mark.
    Planned,
    /// Spawned; the handshake is outstanding.
    Starting { pid: Option<u32> },
    /// Up, and it said so.
    Ready { pid: Option<u32>, since: Duration },
    /// Asked whether it still lives, right before its next turn.
    Probing { pid: Option<u32>, since: Duration },
    /// Making itself ready for a new session, or for other pins.
    Recycling { pid: Option<u32>, since: Duration },
    /// Dead; it starts again later.
    Backoff,
    /// Told to end.
    Stopping {
        pid: Option<u32>,
        stage: StopStage,
        then: Then,
    },
    /// Dead, and it stays so until somebody asks or time passes.
    Failed,
}

/// What follows a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Nothing: the slot is gone.
    Gone,
    /// A new generation.
    Restart,
    /// What follows a death: it never got ready.
    Death,
    /// What follows a first start that came to nothing with what only its turns asked for.
    Refused,
}

impl SlotPhase {
    pub(crate) const fn pid(&self) -> Option<u32> {
        match self {
            Self::Starting { pid }
            | Self::Ready { pid, .. }
            | Self::Probing { pid, .. }
            | Self::Recycling { pid, .. }
            | Self::Stopping { pid, .. } => *pid,
            Self::Planned | Self::Backoff | Self::Failed => None,
        }
    }

    /// Will a turn bound to it run, now or soon?
    pub(crate) const fn may_serve(&self) -> bool {
        !matches!(self, Self::Stopping { .. } | Self::Failed)
    }

    /// Does it count against the number of processes?
    pub(crate) const fn holds_process(&self) -> bool {
        !matches!(self, Self::Failed)
    }

    /// Does it make room when it is gone?
    pub(crate) const fn leaves(&self) -> bool {
        matches!(
            self,
            Self::Stopping {
                then: Then::Gone | Then::Refused,
                ..
            }
        )
    }

    /// Is it on its way to be ready for the first time?
    pub(crate) const fn comes(&self) -> bool {
        matches!(self, Self::Planned | Self::Starting { .. } | Self::Backoff)
    }

    /// Is a process there to be told something?
    pub(crate) const fn has_process(&self) -> bool {
        !matches!(self, Self::Planned | Self::Backoff | Self::Failed)
    }

    pub(crate) const fn is_probing(&self) -> bool {
        matches!(self, Self::Probing { .. })
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        matches!(self, Self::Stopping { .. })
    }

    /// Is it to be spawned when its turn's mark is durable?
    pub(crate) const fn is_spawning_per_turn(&self) -> bool {
        matches!(self, Self::Planned)
    }

    pub(crate) const fn ready_since(&self) -> Option<Duration> {
        match self {
            Self::Ready { since, .. }
            | Self::Probing { since, .. }
            | Self::Recycling { since, .. } => Some(*since),
            _ => None,
        }
    }
}

impl Slot {
    pub(crate) fn new(agent: &Agent, fit: Fit) -> Self {
        Self {
            agent: agent.name.clone(),
            describe: agent.describe,
            fit,
            phase: SlotPhase::Planned,
            generation: Generation(0),
            restarts: 0,
            last_exit: None,
            last_error: None,
            last_ok_ms: None,
            spawned_at: Duration::ZERO,
            sessions: BTreeSet::new(),
            lingering: VecDeque::new(),
            turns: BTreeSet::new(),
            capacity: agent.describe.concurrent_sends.max(1),
            one_session: agent.describe.sessions != Sessions::Many,
            cwd_per_turn: false,
            toolsets: agent.describe.toolsets.any(),
            toolsets_per_turn: false,
            fallback_chain: agent.describe.fallback_chain,
            system: agent.describe.system,
            history: agent.describe.history,
            mcp: agent.describe.mcp != McpServing::Never,
            forks: agent.describe.forks,
            models: None,
            modes: None,
            steers: agent.describe.steers,
            compacts: agent.describe.compacts,
            lists_models: agent.describe.lists_models,
            lists_commands: agent.describe.lists_commands,
            takes: agent.describe.attachments,
            resumes: matches!(agent.describe.resume, Resume::Native | Resume::Stateless),
            resuming: None,
            native: None,
            idle_since: Duration::ZERO,
            retiring: false,
            restart_when_idle: false,
            makes_way: false,
            spare: false,
            served: false,
            proven: false,
            strays: 0,
            tally: Tally::default(),
            unstored: 0,
            paused: false,
        }
    }

    /// As `status` names it.
    pub(crate) fn state(&self, settling: bool, permanent: bool) -> WorkerState {
        match self.phase {
            SlotPhase::Planned | SlotPhase::Starting { .. } => WorkerState::Starting,
            SlotPhase::Ready { .. } if settling => WorkerState::Settling,
            SlotPhase::Ready { .. } if self.turns.is_empty() => WorkerState::Idle,
            SlotPhase::Ready { .. } => WorkerState::Busy,
            SlotPhase::Probing { .. } | SlotPhase::Recycling { .. } => WorkerState::Busy,
            SlotPhase::Backoff => WorkerState::Backoff,
            SlotPhase::Stopping { .. } => WorkerState::Stopping,
            SlotPhase::Failed if permanent => WorkerState::Failed,
            SlotPhase::Failed => WorkerState::CrashLooped,
        }
    }
}
