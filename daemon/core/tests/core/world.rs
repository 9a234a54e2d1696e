//! A world for the core: a store, workers and clients as small models that keep the books.
//!
//! Owns the invariants that hold after every effect. Knows nothing of the core's inside.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agentd_core::agent::Agent;
use agentd_core::effect::{Progress, StopStage};
use agentd_core::event::{Origin, RequestContext};
use agentd_core::ids::{ConnId, Generation, Now, Token, TurnId, WorkerId};
use agentd_core::log::What;
use agentd_core::machine::Machine;
use agentd_core::store::{Due, LeftJob, Loaded, Pins, Query, Recovered, SessionRow, Write};
use agentd_core::worker::{Exit, Prompt, Reply, Traits, WorkerEvent};
use agentd_core::{Effect, Event, Settings, State};

use crate::brief::{LineReader, shown};
use crate::watch::{Books, Cursor, Filter};
use agentd_protocol::{Body, Envelope, Id, JobId, Request, line::Telling, serde_json::Value};

/// A live process of the model.
#[derive(Debug, Default)]
pub struct Process {
    pub agent: String,
    pub cwd: String,
    pub resume: Option<String>,
    pub mode: Option<String>,
    pub system: Option<String>,
    pub mcp_servers: Option<Vec<String>>,
    pub forks: bool,
    pub given: Vec<Prompt>,
    pub ready: bool,
    pub turns: Vec<TurnId>,
    /// The jobs that it got.
    pub jobs: Vec<JobId>,
    pub sessions: BTreeSet<String>,
    pub per_turn: bool,
    pub told_to_end: Option<StopStage>,
    /// What became of its questions, as it was told.
    pub heard: Vec<(String, Reply)>,
    /// Turns that it was told to end.
    pub cancelled: Vec<TurnId>,
    /// Steers of its turns.
    pub steers: Vec<(u64, String)>,
    pub compacting: Option<String>,
    pub switched: Vec<Pins>,
    /// Questions for its models, and for its slash commands.
    pub listings: Vec<(u64, Pins)>,
    /// Is its output not read?
    pub paused: bool,
    /// What it said that it takes when it got ready.
    pub takes: Traits,
}

#[derive(Debug, Clone)]
pub struct StoredJob {
    pub session: String,
    /// What its session was called before.
    pub former: BTreeSet<String>,
    pub agent: String,
    pub request: String,
    pub seq: u64,
    pub running: bool,
    pub cancelled: bool,
    pub attempt: u32,
    pub expires: Due,
    pub start: Option<Due>,
    pub held: bool,
    pub parent: Option<JobId>,
    pub last: Option<(u64, Body)>,
    pub events: Vec<(u64, Body)>,
    /// By message, and 1 for thinking.
    pub texts: BTreeMap<(u32, usize), String>,
    /// Is it this instance's?
    pub ours: bool,
}

#[derive(Debug)]
pub enum StoreOrder {
    Commit(Token, Vec<Write>),
    Load(Token, Query),
}

#[derive(Debug, Default)]
pub struct Client {
    pub lines: Vec<Value>,
    /// Requests by id that have no last line yet.
    pub open: Vec<String>,
    /// Everything it asked.
    pub asked: Vec<String>,
    /// That were sent to it.
    pub bytes: usize,
    pub marks: usize,
    pub closed: bool,
    pub books: Books,
}

pub struct World {
    pub state: State,
    pub now: Now,
    /// What the daemon was started with.
    pub settings: Settings,
    pub processes: BTreeMap<(WorkerId, Generation), Process>,
    pub clients: BTreeMap<ConnId, Client>,
    pub jobs: BTreeMap<JobId, StoredJob>,
    pub sessions: BTreeMap<String, SessionRow>,
    /// The last number of all when a session got this name.
    pub renamed: BTreeMap<String, u64>,
    pub keys: BTreeMap<String, (JobId, String)>,
    pub schedules: BTreeMap<u64, i64>,
    /// Who is told of which job's end.
    pub callbacks: BTreeMap<JobId, String>,
    /// How many it was told.
    pub events: u64,
    pub prompts: BTreeMap<JobId, u32>,
    /// The jobs that began, in that order.
    pub began: Vec<JobId>,
    /// The agent's own id of the session that each prompt carried.
    pub natives: Vec<Option<String>>,
    /// Whose session each turn is of that a process got.
    pub turns: BTreeMap<TurnId, String>,
    pub orders: VecDeque<StoreOrder>,
    /// Answers of what was read beside the writer, on their way.
    pub read: VecDeque<(Token, Loaded)>,
    pub seq: u64,
    /// All numbered lines: whose, and did this instance write them?
    pub log: BTreeMap<u64, (JobId, bool)>,
    /// How many lines a page of it has.
    pub page: usize,
    /// How many bytes of a job's text one answer has.
    pub portion: usize,
    /// That were read so far.
    pub text_read: Cell<usize>,
    /// Cursors up to here have expired.
    pub oldest: u64,
    /// What readers kept whose connections went.
    pub cursors: Vec<Cursor>,
    next: u64,
    pub exited: bool,
    pub spawns: u64,
    pub seen_generations: BTreeMap<WorkerId, Generation>,
    /// Which live process last had a named session, and when it got its last turn.
    pub holder: BTreeMap<String, ((WorkerId, Generation), Duration)>,
    pub recover_asked: Vec<String>,
    pub out_of_step: bool,
    /// Was one order of many found behind a dead instance's, and is asked for again?
    pub reordered: bool,
    /// Since the jobs were stored, the machine was started anew.
    pub rebooted: bool,
    /// Did the store ever give up on an order? Then its books may lack a line.
    pub gave_up: bool,
    /// Answer everything of the store at once.
    pub prompt_store: bool,
    /// The texts of prompts.
    pub texts_told: Vec<String>,
    /// Does it just now?
    answering: bool,
    /// Prompts that were told to fetch their attachments.
    pub attached: Vec<JobId>,
    /// Are lines of text kept?
    line_reader: LineReader,
    pub keep_text: bool,
    /// Looks at which agents there are that were asked for and not taken.
    pub looks: u32,
    /// Looks at the machine that were asked for and not taken, and what they find.
    pub machine_asked: u32,
    pub machine: Machine,
    /// What the next one finds.
    pub to_find: Vec<Agent>,
    /// Take each look at once.
    pub prompt_look: bool,
    /// Turns that a process of an agent takes at once which doesn't say it.
    pub at_once: BTreeMap<String, u32>,
    /// Commits that one event asked for, at most.
    pub most_commits: usize,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        let agents = settings.agents.iter();
        let at_once = agents
            .map(|(name, agent)| (name.clone(), agent.describe.concurrent_sends))
            .collect();
        Self {
            state: State::new(settings.clone()),
            settings,
            now: Now {
                mono: Duration::from_secs(1),
                boot_ms: 500_000,
                wall_ms: 1_000_000,
            },
            processes: BTreeMap::new(),
            clients: BTreeMap::new(),
            jobs: BTreeMap::new(),
            sessions: BTreeMap::new(),
            keys: BTreeMap::new(),
            schedules: BTreeMap::new(),
            callbacks: BTreeMap::new(),
            events: 0,
            prompts: BTreeMap::new(),
            began: Vec::new(),
            natives: Vec::new(),
            turns: BTreeMap::new(),
            orders: VecDeque::new(),
            read: VecDeque::new(),
            seq: 0,
            log: BTreeMap::new(),
            page: 3,
            oldest: 0,
            cursors: Vec::new(),
            next: 1,
            exited: false,
            spawns: 0,
            seen_generations: BTreeMap::new(),
            holder: BTreeMap::new(),
            recover_asked: Vec::new(),
            out_of_step: false,
            reordered: false,
            rebooted: false,
            gave_up: false,
            renamed: BTreeMap::new(),
            prompt_store: true,
            texts_told: Vec::new(),
            answering: false,
            attached: Vec::new(),
            line_reader: LineReader::default(),
            keep_text: true,
            portion: 256 * 1024,
            text_read: Cell::new(0),
            looks: 0,
            machine_asked: 0,
            machine: Machine::default(),
            to_find: Vec::new(),
            prompt_look: true,
            at_once,
            most_commits: 0,
        }
    }

    pub fn event(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.events += 1;
        let shown = shown(&event);
        self.state.apply(self.now, event, &mut effects);
        self.measure(&effects);
        for effect in effects {
            if let Effect::Log(entry) = &effect {
                let is_bug = matches!(entry.what, What::Dangling { .. });
                assert!(!is_bug, "{} after {shown}", entry.what);
            }
            self.effect(effect);
        }
        // A walk over everything: not where there is very much.
        if self.jobs.len() < 200 {
            assert_eq!(self.state.audit(), None, "after {shown}");
        }
        if self.prompt_store && !std::mem::replace(&mut self.answering, true) {
            while self.store_pending() > 0 {
                self.store_answers();
            }
            self.answering = false;
        }
        if self.prompt_look {
            self.take_look();
            self.look_at_machine();
        }
    }

    pub fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next);
        self.next += 1;
        self.clients.insert(conn, Client::default());
        self.event(Event::Connected {
            conn,
            origin: Origin::Socket,
        });
        conn
    }

    pub fn disconnect(&mut self, conn: ConnId) {
        if let Some(client) = self.clients.remove(&conn) {
            self.cursors.extend(client.books.cursors());
        }
        self.event(Event::Disconnected { conn });
    }

    /// Sends a line as a peer would decode it; `id` is put in.
    pub fn request(&mut self, conn: ConnId, id: u64, line: &str) {
        self.request_from(conn, id, line, RequestContext::default());
    }

    /// A request of a peer of which the shell knows more.
    pub fn request_from(&mut self, conn: ConnId, id: u64, line: &str, facts: RequestContext) {
        let line = if id == 0 {
            line.to_owned()
        } else {
            line.replacen('{', &format!("{{\"id\":{id},"), 1)
        };
        let envelope = Envelope::parse(line.as_bytes()).unwrap();
        let request = Request::decode(&envelope);
        if let Some(client) = self.clients.get_mut(&conn) {
            client.open.push(
                envelope
                    .id
                    .as_ref()
                    .map_or("-".to_owned(), |id| id.as_json().to_owned()),
            );
        }
        if let Some(client) = self.clients.get_mut(&conn) {
            client.asked.push(line.clone());
            if let Ok(decoded) = &request
                && let Request::Subscribe(subscribe) = &decoded.request
            {
                let filter = Filter {
                    session: subscribe.session.clone(),
                    jobs: (subscribe.jobs.clone()).map(|jobs| jobs.into_iter().collect()),
                };
                let id = envelope.id.as_ref().map_or("null", Id::as_json);
                client.books.subscribed(id, filter, subscribe.after);
            }
        }
        let id = envelope.id.clone();
        self.event(Event::Requested {
            conn,
            id,
            request,
            facts: Box::new(facts),
        });
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Send {
                conn,
                body,
                id,
                seq,
                telling,
                progress,
            } => {
                self.line(conn, &body, id.as_ref(), seq, telling, progress);
            }
            Effect::Mark { conn } => {
                self.clients
                    .get_mut(&conn)
                    .expect("a mark goes to a live connection")
                    .marks += 1;
            }
            Effect::Keep { conn } | Effect::Finish { conn } => {
                assert!(self.clients.contains_key(&conn))
            }
            Effect::Close { conn } => {
                self.clients
                    .get_mut(&conn)
                    .expect("a close goes to a live connection")
                    .closed = true;
            }
            Effect::Commit { token, writes, .. } => {
                self.orders.push_back(StoreOrder::Commit(token, writes))
            }
            Effect::Load { token, query } => self.orders.push_back(StoreOrder::Load(token, query)),
            Effect::Recover { instance } => self.recover_asked.push(instance),
            Effect::Spawn {
                worker,
                generation,
                spawn,
            } => self.spawned(worker, generation, *spawn),
            Effect::Tell {
                worker,
                generation,
                command,
            } => self.told(worker, generation, command),
            Effect::End {
                worker,
                generation,
                stage,
            } => {
                if let Some(process) = self.processes.get_mut(&(worker, generation)) {
                    process.told_to_end = Some(stage);
                }
            }
            Effect::LookForAgents => self.looks += 1,
            Effect::LookAtMachine { .. } => self.machine_asked += 1,
            Effect::Pause {
                worker,
                generation,
                paused,
            } => {
                if let Some(process) = self.processes.get_mut(&(worker, generation)) {
                    process.paused = paused;
                }
            }
            Effect::Announce(_) | Effect::Log(_) | Effect::SetLogLevel(_) => {}
            Effect::Exit => {
                assert!(self.processes.is_empty(), "left with live processes");
                self.exited = true;
            }
        }
    }

    fn line(
        &mut self,
        conn: ConnId,
        body: &Body,
        id: Option<&Id>,
        seq: Option<u64>,
        telling: Telling,
        progress: Progress,
    ) {
        let line = body.render(id, seq, telling);
        assert!(
            line.len() <= agentd_protocol::limits::MAX_LINE_OUT,
            "a line of {} bytes",
            line.len()
        );
        let value = self.line_reader.read(&line);
        let client = self
            .clients
            .get_mut(&conn)
            .expect("a line goes to a live connection");
        if progress != Progress::More {
            let id = id.map_or("-", Id::as_json);
            let at = client.open.iter().position(|open| open == id);
            client
                .open
                .remove(at.unwrap_or_else(|| panic!("a second answer to {id}: {line}")));
        }
        let text = value["type"] == "message_delta";
        if self.keep_text || !text {
            client.lines.push(value.clone());
        }
        client.bytes += line.len();
        self.read(conn, &value);
    }

    pub fn pass(&mut self, duration: Duration) {
        self.now.mono += duration;
        self.now.boot_ms += u64::try_from(duration.as_millis()).unwrap();
        self.now.wall_ms += i64::try_from(duration.as_millis()).unwrap();
        self.event(Event::Ticked);
    }

    /// The daemon dies and comes back: only what was committed is left.
    pub fn crash(&mut self, settings: Settings) {
        self.state = State::new(settings);
        self.orders.clear();
        self.read.clear();
        for client in std::mem::take(&mut self.clients).into_values() {
            self.cursors.extend(client.books.cursors());
        }
        self.recover_asked.clear();
        self.looks = 0;
        (self.out_of_step, self.reordered) = (false, false);
        self.processes.clear();
        self.seen_generations.clear();
        self.holder.clear();
        self.exited = false;
        let jobs: Vec<LeftJob> = self
            .jobs
            .iter()
            .filter(|(_, stored)| stored.last.is_none() && stored.ours)
            .filter_map(|(job, _)| self.left(*job))
            .collect();
        let names: BTreeSet<_> = jobs.iter().map(|left| left.row.session.clone()).collect();
        let stored = |name: &String| self.sessions[name].clone();
        let sessions = names.iter().map(stored).collect();
        self.event(Event::Recovered(Box::new(Recovered {
            instance: "i1".to_owned(),
            sessions,
            jobs,
            holders: Vec::new(),
            last_seq: self.last_number(),
        })));
        self.event(Event::InstanceGone {
            instance: "i1".to_owned(),
            survivors: Vec::new(),
        });
    }

    /// Lets everything finish: store, workers and clocks run until nothing is left to do.
    pub fn settle(&mut self) {
        if self.out_of_step {
            self.crash(self.settings.clone());
        }
        self.neighbours_finish();
        for round in 0..5_000 {
            for answered in 0.. {
                if self.store_pending() == 0 {
                    break;
                }
                assert!(
                    answered < 20_000,
                    "the store is asked for ever: {:?}",
                    self.orders
                );
                self.store_answers();
            }
            self.clients_read();
            self.recovers();
            let answered = self
                .clients
                .values()
                .all(|client| client.closed || client.open.is_empty());
            if answered
                && self.jobs.values().all(|job| job.last.is_some())
                && self.store_pending() == 0
            {
                for (job, stored) in &self.jobs {
                    let wanted = stored.request.contains("\"callback\"");
                    assert_eq!(self.callbacks.contains_key(job), wanted, "{job}");
                }
                return;
            }
            let processes: Vec<_> = self.processes.keys().copied().collect();
            for process in processes {
                let Some(known) = self.processes.get(&process) else {
                    continue;
                };
                if known.told_to_end.is_some() {
                    self.exit(process, Exit::Signal(15));
                } else if !known.ready {
                    self.get_ready(process);
                } else if known.turns.is_empty() {
                    self.worker(process, WorkerEvent::Recycled);
                    self.worker(process, WorkerEvent::Ready(Traits::default()));
                } else {
                    self.end_turn(process);
                }
            }
            self.pass(Duration::from_secs(if round < 1_000 { 1 } else { 60 }));
        }
        let open: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.last.is_none())
            .collect();
        let open_here = |client: &&Client, line: &str| {
            client
                .open
                .iter()
                .any(|id| line.contains(&format!("\"id\":{id},")))
        };
        let waiting: Vec<_> = self
            .clients
            .values()
            .flat_map(|client| {
                client
                    .asked
                    .iter()
                    .filter(move |line| open_here(&client, line))
            })
            .collect();
        let state = format!("{:?}", self.state);
        let slots = &state[state.find(" slots: {").unwrap()..];
        panic!("these never ended: {open:#?} {waiting:#?}\n{slots:.3000}");
    }

    /// What was asked to be recovered is: the dead instance left nothing but its lease.
    pub fn recovers(&mut self) {
        for instance in std::mem::take(&mut self.recover_asked) {
            let recovered = Recovered {
                instance: instance.clone(),
                sessions: Vec::new(),
                jobs: Vec::new(),
                holders: Vec::new(),
                last_seq: self.last_number(),
            };
            self.event(Event::Recovered(Box::new(recovered)));
            self.event(Event::InstanceGone {
                instance,
                survivors: Vec::new(),
            });
        }
    }

    /// One reader takes one portion of what it was sent.
    pub fn client_reads(&mut self, conn: ConnId) {
        let client = self.clients.get_mut(&conn).unwrap();
        if client.marks > 0 {
            client.marks -= 1;
            self.event(Event::CaughtUp { conn });
        }
    }

    pub fn clients_read(&mut self) {
        let marks: Vec<_> = self
            .clients
            .iter()
            .map(|(conn, client)| (*conn, client.marks))
            .collect();
        for (conn, marks) in marks {
            for _ in 0..marks {
                self.clients.get_mut(&conn).unwrap().marks -= 1;
                self.event(Event::CaughtUp { conn });
            }
        }
    }
}
