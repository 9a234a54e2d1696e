//! The store of the world: what was committed, and nothing else, survives a crash.
//!
//! Owns the books of jobs and sessions. Knows SQL as little as the core does.

use agentd_core::Event;
use agentd_core::store::{
    JobRow, JobState, Keyed, Loaded, Pins, Query, SessionRow, Stored, Write, Written,
};
use agentd_protocol::{Body, Code, JobId, rows};

use crate::world::{StoreOrder, StoredJob, World};

impl World {
    pub fn store_pending(&self) -> usize {
        self.orders.len()
    }

    /// The store does its next order.
    pub fn store_answers(&mut self) {
        match self.orders.pop_front() {
            Some(StoreOrder::Commit(token, writes)) => {
                let stored = self.commit(writes);
                self.event(Event::Stored { token, stored });
            }
            Some(StoreOrder::Load(token, query)) => {
                let loaded = self.query(query);
                self.event(Event::Loaded { token, loaded });
            }
            None => {}
        }
    }

    /// The store refuses its next order, if that is an accept.
    pub fn store_refuses(&mut self, stored: Stored) {
        let accept = matches!(self.orders.front(), Some(StoreOrder::Commit(_, writes)) if matches!(writes.first(), Some(Write::Accept(_))));
        if accept && let Some(StoreOrder::Commit(token, _)) = self.orders.pop_front() {
            self.event(Event::Stored { token, stored });
        }
    }

    /// The store gives up on its next order, whatever it is; the books are then out of step until
    /// the daemon is started again.
    pub fn store_gives_up(&mut self) {
        let why = "broken".to_owned();
        match self.orders.pop_front() {
            Some(StoreOrder::Commit(token, _)) => {
                self.out_of_step = true;
                self.gave_up = true;
                let stored = Stored::Failed {
                    code: Code::StoreFailed,
                    why,
                };
                self.event(Event::Stored { token, stored });
            }
            Some(StoreOrder::Load(token, _)) => {
                let loaded = Loaded::Failed(why);
                self.event(Event::Loaded { token, loaded });
            }
            None => {}
        }
    }

    pub fn number(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    #[expect(clippy::too_many_lines, reason = "the whole store on one page")]
    pub fn commit(&mut self, writes: Vec<Write>) -> Stored {
        let mut written = Vec::new();
        for (item, write) in writes.into_iter().enumerate() {
            written.push(match write {
                Write::Accept(new) => {
                    if let Some((job, hashed)) = new.key.as_ref().and_then(|key| self.keys.get(key))
                    {
                        if *hashed != new.hashed {
                            return Stored::Conflict { item, job: *job };
                        }
                        let session = self.jobs[job].session.clone();
                        written.push(Written::Duplicate { job: *job, session });
                        continue;
                    }
                    let job = JobId(self.jobs.len() as u64 + 1);
                    let seq = self.number();
                    let session = new.session.clone().unwrap_or_else(|| format!("s{}", job.0));
                    self.sessions
                        .entry(session.clone())
                        .or_insert_with(|| SessionRow {
                            name: session.clone(),
                            agent: new.agent.clone(),
                            cwd: new.cwd.clone(),
                            toolsets: new.toolsets.clone(),
                            named: new.session.is_some(),
                            native: None,
                            turns: 0,
                            pins: Pins::default(),
                        });
                    if let Some(key) = new.key {
                        assert!(self.keys.insert(key, (job, new.hashed)).is_none());
                    }
                    let stored = StoredJob {
                        session: session.clone(),
                        agent: new.agent,
                        request: new.request,
                        seq,
                        running: new.running.is_some(),
                        cancelled: false,
                        attempt: u32::from(new.running.is_some()),
                        expires: new.expires,
                        start: new.start,
                        held: false,
                        parent: new.parent,
                        last: None,
                        events: Vec::new(),
                    };
                    self.jobs.insert(job, stored);
                    Written::Accepted { job, seq, session }
                }
                Write::Start {
                    job, attempt, line, ..
                } => {
                    let seq = self.number();
                    let stored = self.jobs.get_mut(&job).unwrap();
                    assert!(stored.last.is_none());
                    stored.running = true;
                    stored.attempt = attempt;
                    stored.events.extend(line.map(|line| (seq, line)));
                    Written::Numbered { seq }
                }
                Write::Requeue { job, attempt } => {
                    let stored = self.jobs.get_mut(&job).unwrap();
                    (stored.running, stored.attempt) = (false, attempt);
                    Written::Done
                }
                Write::Event { job, line } => {
                    let seq = self.number();
                    let stored = self.jobs.get_mut(&job).unwrap();
                    assert!(stored.last.is_none(), "an event after the end of {job}");
                    stored.events.push((seq, line));
                    Written::Numbered { seq }
                }
                Write::Finish { job, line, .. } => {
                    let seq = self.number();
                    let stored = self.jobs.get_mut(&job).unwrap();
                    assert!(stored.last.is_none(), "{job} ended twice");
                    stored.last = Some((seq, line));
                    if let Some(row) = self.sessions.get_mut(&stored.session) {
                        row.turns += u64::from(stored.running);
                    }
                    Written::Numbered { seq }
                }
                Write::Native { session, native } => {
                    self.sessions.get_mut(&session).unwrap().native = Some(native);
                    Written::Done
                }
                Write::Cancel { job } => {
                    self.jobs.get_mut(&job).unwrap().cancelled = true;
                    Written::Done
                }
                Write::Hold { job, held } => {
                    self.jobs.get_mut(&job).unwrap().held = held;
                    Written::Done
                }
                Write::Open(new) => {
                    let name = new
                        .name
                        .unwrap_or_else(|| format!("n{}", self.sessions.len()));
                    if self.sessions.contains_key(&name) {
                        return Stored::Taken;
                    }
                    let row = SessionRow {
                        name: name.clone(),
                        agent: new.agent,
                        cwd: new.cwd,
                        toolsets: new.toolsets,
                        named: true,
                        native: None,
                        turns: 0,
                        pins: Pins::default(),
                    };
                    self.sessions.insert(name.clone(), row);
                    Written::Opened { session: name }
                }
                Write::Close { session } => {
                    let open = |job: &StoredJob| job.session == session && job.last.is_none();
                    if self.jobs.values().any(open) {
                        return Stored::Taken;
                    }
                    self.sessions.remove(&session);
                    Written::Done
                }
                Write::Model { session, pins } => {
                    if let Some(row) = self.sessions.get_mut(&session) {
                        row.pins = pins;
                    }
                    Written::Done
                }
                Write::Text { .. } | Write::Release { .. } => Written::Done,
            });
        }
        Stored::Committed(written)
    }

    pub fn row(&self, job: JobId) -> Option<JobRow> {
        let stored = self.jobs.get(&job)?;
        let state = match &stored.last {
            Some((seq, line)) => JobState::Finished {
                seq: *seq,
                line: Body::stored(line.as_json()),
            },
            None if stored.running => JobState::Running {
                attempt: stored.attempt,
            },
            None => JobState::Queued {
                expires: stored.expires,
                start: stored.start,
                held: stored.held,
                attempt: stored.attempt,
            },
        };
        Some(JobRow {
            job,
            seq: stored.seq,
            session: stored.session.clone(),
            agent: stored.agent.clone(),
            request: stored.request.as_str().into(),
            cancelled: stored.cancelled,
            state,
        })
    }

    pub fn query(&self, query: Query) -> Loaded {
        match query {
            Query::Sessions { names } => {
                let known = names.iter().filter_map(|name| self.sessions.get(name));
                Loaded::Sessions(known.cloned().collect())
            }
            Query::Key { key, hashed } => Loaded::Key(match self.keys.get(&key) {
                None => Keyed::Free,
                Some((job, known)) if *known == hashed => Keyed::Same { job: *job },
                Some((job, _)) => Keyed::Other { job: *job },
            }),
            Query::SessionList { .. } => {
                let rows = self.sessions.values().map(|row| rows::SessionRow {
                    session: row.name.clone(),
                    agent: row.agent.clone(),
                    cwd: row.cwd.clone(),
                    state: rows::SessionPhase::Idle,
                    title: String::new(),
                    preview: String::new(),
                    model: row.pins.model.clone(),
                    turns: row.turns,
                    created_at: String::new(),
                    last_active_at: String::new(),
                });
                Loaded::SessionList {
                    sessions: (1..).zip(rows).collect(),
                    more: false,
                }
            }
            Query::JobList { .. }
            | Query::History { .. }
            | Query::Message { .. }
            | Query::Log { .. }
            | Query::Backup { .. }
            | Query::Export { .. } => Loaded::Failed("not part of the model".to_owned()),
            Query::Jobs { jobs } => {
                Loaded::Jobs(jobs.into_iter().filter_map(|job| self.row(job)).collect())
            }
            Query::Events { job, after } => {
                let events = self
                    .jobs
                    .get(&job)
                    .map(|stored| stored.events.clone())
                    .unwrap_or_default();
                let events = events.into_iter().filter(|(seq, _)| *seq > after).collect();
                Loaded::Events {
                    events,
                    more: false,
                    texts: Vec::new(),
                }
            }
        }
    }
}
