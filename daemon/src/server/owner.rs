//! The one task that owns what is true.
//!
//! Owns the state, the clocks, and the way from ids to channels. Holds no decision: events go in,
//! effects go out, in order. It never waits for anybody: every post is into room that was counted
//! beforehand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agentd_base::clock::boot_ms;
use agentd_core::effect::{Announcement, Spawn};
use agentd_core::event::Origin;
use agentd_core::ids::{ConnId, Generation, Now, WorkerId};
use agentd_core::log::Entry;
use agentd_core::store::{Loaded, Recovered};
use agentd_core::{Effect, Event, State};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};

use crate::platform::gap;
use crate::server::boot_timer::BootTimer;
use crate::server::logged;
use crate::server::peer::ConnCommand;
use crate::server::to_store::{ToStore, WriterState};
use crate::store::{self, Answers, Store};
use crate::worker::{ProcessCommand, Spawner};

/// Events waiting for the owner; whoever posts one waits for room.
pub const INBOX: usize = 1024;
/// Commits whose answers wait for the owner; the store waits for room.
pub const ANSWERS: usize = 16;
/// Events that came together are handled before the store hears of any, so that one sync does for
/// all of them; at most so many, so that a flood doesn't keep commits waiting.
const TOGETHER: usize = 32;

/// On the way out the store has this long for each answer that makes room for what it has not taken.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// A connection that was accepted: the owner hears of it before its first request.
pub struct Arrival {
    /// Its name.
    pub conn: ConnId,
    /// Over what.
    pub origin: Origin,
    /// Where its lines go.
    pub commands: mpsc::Sender<ConnCommand>,
}

/// A sign of life is asked for: the owner says how it is, the store's writer that it lives.
pub struct Beat {
    /// Where the owner's sentence goes.
    pub status: oneshot::Sender<String>,
    /// Dropped unheard when the writer's queue is full.
    pub store: oneshot::Sender<()>,
}

/// What the owner asks of the host.
pub trait Host {
    /// From now on events are taken.
    fn serving(&mut self) {}

    /// How much is logged from now on.
    fn set_log_level(&mut self, level: &str);

    /// The service manager and the lock file are told.
    fn announce(&mut self, announcement: Announcement);

    /// Begins to end the processes of a dead instance; the answer comes as [`Gone`].
    fn end_processes(&mut self, instance: String);

    /// A dead instance is done with.
    fn forget(&mut self, instance: &str);

    /// Jobs of a dead instance stay behind while one of `holders` lives; none stay if there are none.
    fn left_behind(&mut self, instance: &str, holders: &[String]);
}

/// A dead instance's processes were ended, but for these.
pub struct Gone {
    /// Which instance.
    pub instance: String,
    /// What could not be ended.
    pub survivors: Vec<u32>,
}

/// How far the recovery of a dead instance is.
enum Recovery {
    /// Its rows are ours; its processes are being ended.
    Taken,
    /// Its processes are gone but for these; its rows are being taken over.
    Ended(Vec<u32>),
    /// Its processes are being ended, its rows come next.
    Begun,
}

/// The owner's ends of every channel.
pub struct OwnerChannels {
    /// Where events come from.
    pub inbox: mpsc::Receiver<Event>,
    /// Where connections come from.
    pub arrivals: mpsc::Receiver<Arrival>,
    /// Where somebody asks for a sign of life.
    pub beats: mpsc::Receiver<Beat>,
    /// Where ended instances come from.
    pub gone: mpsc::Receiver<Gone>,
    /// Where the store's answers come from: they don't wait behind new requests.
    pub answers: mpsc::Receiver<Answers>,
    /// The store.
    pub store: Store,
    /// Starts workers.
    pub spawner: Spawner,
}

/// The owner.
pub struct Owner<H> {
    state: State,
    wires: OwnerChannels,
    host: H,
    /// Later than it was by all the time in which we didn't run.
    started: Instant,
    /// When an event was last dealt with, since then.
    looked: Duration,
    peers: BTreeMap<ConnId, mpsc::Sender<ConnCommand>>,
    workers: BTreeMap<WorkerId, (Generation, mpsc::Sender<ProcessCommand>)>,
    recoveries: BTreeMap<String, Recovery>,
    /// What the store is to be told when the events that came together are handled.
    to_store: ToStore,
    /// Lines of the log that nobody waits for: they are written when everybody else had their turn.
    to_log: Vec<Entry>,
    handled: usize,
    /// Empty; its room is used again.
    effects: Vec<Effect>,
    leaving: bool,
}

impl<H: Host> Owner<H> {
    /// An owner of a state that has heard of nothing.
    pub fn new(state: State, wires: OwnerChannels, host: H, started: Instant) -> Self {
        Self {
            state,
            wires,
            host,
            started,
            looked: Duration::ZERO,
            peers: BTreeMap::new(),
            workers: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            to_store: ToStore::default(),
            to_log: Vec::new(),
            handled: 0,
            effects: Vec::new(),
            leaving: false,
        }
    }

    /// Takes over what dead instances left, as the store found it when it was opened.
    pub fn recover(&mut self, orphans: Vec<Recovered>) {
        for recovered in orphans {
            self.recoveries
                .insert(recovered.instance.clone(), Recovery::Taken);
            self.host.end_processes(recovered.instance.clone());
            self.host
                .left_behind(&recovered.instance, &recovered.holders);
            self.apply(Event::Recovered(Box::new(recovered)));
        }
    }

    /// Serves until the core says that everything is done; returns the store, to be closed.
    pub async fn run(mut self) -> Store {
        let mut boot_timer = BootTimer::new();
        self.host.serving();
        loop {
            if self.leaving || self.wires.inbox.is_empty() || self.handled >= TOGETHER {
                self.hand_over();
                self.log_when_told().await;
            }
            if self.leaving {
                self.hand_over_the_rest().await;
                return self.wires.store;
            }
            let deadline = self.state.next_deadline();
            boot_timer.set(self.state.next_boot_deadline());
            tokio::select! {
                biased;
                // Before the inbox: a connection is known before its first request.
                Some(arrival) = self.wires.arrivals.recv() => self.arrived(arrival),
                // Rare, and before the inbox, which may never be empty.
                Some(gone) = self.wires.gone.recv() => self.gone(gone),
                Some(beat) = self.wires.beats.recv() => self.beat(beat),
                Some(answers) = self.wires.answers.recv() => self.answered(answers),
                Some(event) = self.wires.inbox.recv() => self.told(event),
                () = at(self.started, deadline), if deadline.is_some() => self.apply(Event::Ticked),
                () = boot_timer.rung() => self.apply(Event::Ticked),
            }
        }
    }

    /// Tells the store; what it has no room for waits for its next answer.
    fn hand_over(&mut self) {
        self.handled = 0;
        loop {
            if self.to_store.hand_over(&self.wires.store) == WriterState::Gone && !self.leaving {
                // Nothing can be made durable any more: the next instance goes on from what is.
                tracing::error!("the store's thread has ended; agentd leaves");
                self.leaving = true;
            }
            let refused = self.to_store.take_refused();
            if refused.is_empty() {
                return;
            }
            for token in refused {
                let loaded = Loaded::Failed("too much is read at once; ask again".to_owned());
                self.apply(Event::Loaded { token, loaded });
            }
        }
    }

    /// What the store had no room for is handed over before it is closed.
    async fn hand_over_the_rest(&mut self) {
        while self.to_store.len() > 0 {
            let answers = timeout(LAST_ANSWERS, self.wires.answers.recv()).await;
            let Ok(Some(_heard_by_nobody)) = answers else {
                let commands = self.to_store.len();
                tracing::error!(commands, "left with commands that the store did not take");
                return;
            };
            self.hand_over();
        }
    }

    /// Connections, workers and the store go first: they have somebody who waits.
    async fn log_when_told(&mut self) {
        if !self.to_log.is_empty() {
            tokio::task::yield_now().await;
            self.log();
        }
    }

    fn log(&mut self) {
        for entry in self.to_log.drain(..) {
            logged::log(&entry);
        }
    }

    fn arrived(
        &mut self,
        Arrival {
            conn,
            origin,
            commands,
        }: Arrival,
    ) {
        self.peers.insert(conn, commands);
        self.apply(Event::Connected { conn, origin });
    }

    fn beat(&self, beat: Beat) {
        // Whoever no longer waits needs no answer; without one there is no sign of life.
        let _gone = beat.status.send(self.state.details());
        let _full = self.wires.store.beat(beat.store);
    }

    fn answered(&mut self, answers: Answers) {
        for event in answers.events {
            self.told(event);
            if self.handled >= TOGETHER {
                self.hand_over();
            }
        }
    }

    fn told(&mut self, event: Event) {
        match &event {
            Event::Disconnected { conn } => drop(self.peers.remove(conn)),
            // One that was started anew meanwhile has another generation, and keeps its channel.
            Event::Exited {
                worker, generation, ..
            }
            | Event::SpawnFailed {
                worker, generation, ..
            } if self
                .workers
                .get(worker)
                .is_some_and(|(current, _)| current == generation) =>
            {
                self.workers.remove(worker);
            }
            _ => {}
        }
        let taken = match &event {
            Event::Recovered(recovered) => {
                self.host
                    .left_behind(&recovered.instance, &recovered.holders);
                Some(recovered.instance.clone())
            }
            _ => None,
        };
        self.apply(event);
        if let Some(instance) = taken {
            match self.recoveries.insert(instance.clone(), Recovery::Taken) {
                Some(Recovery::Ended(survivors)) => self.gone(Gone {
                    instance,
                    survivors,
                }),
                Some(Recovery::Taken | Recovery::Begun) | None => {}
            }
        }
    }

    fn gone(
        &mut self,
        Gone {
            instance,
            survivors,
        }: Gone,
    ) {
        if let Some(Recovery::Begun) = self.recoveries.get(&instance) {
            self.recoveries
                .insert(instance.clone(), Recovery::Ended(survivors));
            self.to_store
                .push(store::StoreCommand::Takeover { instance });
            return;
        }
        self.recoveries.remove(&instance);
        if survivors.is_empty() {
            self.host.forget(&instance);
        } else {
            tracing::warn!(
                instance,
                ?survivors,
                "processes of a dead agentd could not be ended"
            );
        }
        self.apply(Event::InstanceGone {
            instance,
            survivors,
        });
    }

    fn now(&mut self) -> Now {
        let mut mono = self.started.elapsed();
        let due = self.state.next_deadline();
        let overdue = due.map_or(Duration::ZERO, |due| mono.saturating_sub(due));
        if let Some(left) = gap::left_after(overdue) {
            // Nobody was silent but we: what they said meanwhile is heard first.
            let away = (overdue + left).min(mono.saturating_sub(self.looked));
            self.started += away;
            mono -= away;
        }
        self.looked = mono;
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            mono,
            boot_ms: boot_ms(),
            wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn apply(&mut self, event: Event) {
        // What one event needs another needs, too.
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        self.state.apply(now, event, &mut effects);
        self.handled += 1;
        // A worker is told its prompt before its sender is told `accepted`: the turn takes as long
        // as the worker, and whoever is woken first may take this thread's core.
        effects.sort_by_key(Effect::is_for_a_connection);
        for effect in effects.drain(..) {
            self.perform(effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send {
                conn,
                body,
                id,
                seq,
                telling,
                progress,
            } => {
                self.post(
                    conn,
                    ConnCommand::Line {
                        body,
                        id,
                        seq,
                        telling,
                        progress,
                    },
                );
            }
            Effect::Mark { conn } => self.post(conn, ConnCommand::Mark),
            Effect::Keep { conn } => self.post(conn, ConnCommand::Keep),
            Effect::Finish { conn } => self.post(conn, ConnCommand::Finish),
            Effect::Close { conn } => self.post(conn, ConnCommand::Close),
            Effect::Commit {
                token,
                writes,
                urgency,
            } => {
                self.to_store.push(store::StoreCommand::Commit {
                    token,
                    writes,
                    urgency,
                });
            }
            Effect::Load { token, query } => {
                self.to_store
                    .push(store::StoreCommand::Load { token, query });
            }
            Effect::Recover { instance } => {
                // Told again while it is under way, it is the same.
                if !self.recoveries.contains_key(&instance) {
                    self.recoveries.insert(instance.clone(), Recovery::Begun);
                    self.host.end_processes(instance);
                }
            }
            Effect::Spawn {
                worker,
                generation,
                spawn,
            } => self.spawn(worker, generation, *spawn),
            Effect::Tell {
                worker,
                generation,
                command,
            } => self.command(worker, generation, ProcessCommand::Tell(command)),
            Effect::End {
                worker,
                generation,
                stage,
            } => self.command(worker, generation, ProcessCommand::End(stage)),
            Effect::LookForAgents => self.wires.spawner.look_for_agents(),
            Effect::LookAtMachine { pids } => self.wires.spawner.look_at_machine(pids),
            Effect::Pause {
                worker,
                generation,
                paused,
            } => self.command(worker, generation, ProcessCommand::Pause(paused)),
            Effect::Log(entry) => self.to_log.push(*entry),
            // What happened under the old level is still judged by it.
            Effect::SetLogLevel(level) => {
                self.log();
                self.host.set_log_level(&level);
            }
            Effect::Announce(announcement) => self.host.announce(announcement),
            Effect::Exit => self.leaving = true,
        }
    }

    fn spawn(&mut self, worker: WorkerId, generation: Generation, spawn: Spawn) {
        // What led to it comes before it.
        self.log();
        let job = spawn.prompt.as_ref().map(|prompt| prompt.job);
        tracing::info!(
            job = job.map(tracing::field::display),
            session = spawn.session.as_deref(),
            agent = spawn.agent,
            worker = worker.0,
            generation = generation.0,
            "starting a worker"
        );
        let commands = self.wires.spawner.spawn(worker, generation, spawn);
        self.workers.insert(worker, (generation, commands));
    }

    fn command(&mut self, worker: WorkerId, generation: Generation, command: ProcessCommand) {
        if let Some((current, commands)) = self.workers.get(&worker)
            && *current == generation
        {
            // A process that is gone says so itself; one that takes no commands is reported stuck.
            let _gone = commands.try_send(command);
        }
    }

    fn post(&mut self, conn: ConnId, command: ConnCommand) {
        let Some(commands) = self.peers.get(&conn) else {
            return;
        };
        if let Err(mpsc::error::TrySendError::Full(_)) = commands.try_send(command) {
            // The core counts what is on its way, so this is a mistake of ours; without a line the
            // connection would be wrong, so it has none.
            tracing::error!(conn = conn.0, "a connection's queue is full; it is cut off");
            self.peers.remove(&conn);
        }
    }
}

async fn at(started: Instant, deadline: Option<Duration>) {
    if let Some(deadline) = deadline {
        sleep_until((started + deadline).into()).await;
    }
}
