//! The store of the world: what was committed, and nothing else, survives a crash.
//!
//! Owns the books of jobs and sessions. Knows SQL as little as the core does.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use agentd_core::store::{
    Due, JobRow, JobState, Keyed, LeftJob, Loaded, LogLine, MessageText, Position, Query, SoFar,
    Stored, TextKind, TextPiece, Write, Written,
};
use agentd_core::{Event, Terms};
use agentd_protocol::line::{Accepted, Line};
use agentd_protocol::{Body, Code, JobId};

use crate::forked::row_of;
use crate::watch::Filter;
use crate::world::{StoreOrder, StoredJob, World};

impl World {
    pub fn store_pending(&self) -> usize {
        self.orders.len() + self.read.len()
    }

    /// Somebody reads beside the writer, whatever was ordered before and isn't committed.
    pub fn store_reads(&mut self) {
        let beside = |order: &StoreOrder| matches!(order, StoreOrder::Load(_, query) if !query.waits_for_writes());
        if let Some(place) = self.orders.iter().position(beside)
            && let Some(StoreOrder::Load(token, query)) = self.orders.remove(place)
        {
            let loaded = self.query(query);
            self.read.push_back((token, loaded));
        }
    }

    /// What was read comes, whatever was committed since.
    pub fn store_has_read(&mut self) {
        if let Some((token, loaded)) = self.read.pop_front() {
            self.event(Event::Loaded { token, loaded });
        }
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
            None => self.store_has_read(),
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

    /// All of them, or none.
    pub fn commit(&mut self, writes: Vec<Write>) -> Stored {
        let several = writes.len() > 1;
        let before = several.then(|| {
            let keys = self.keys.clone();
            (self.jobs.clone(), self.sessions.clone(), keys, self.seq)
        });
        let stored = self.carry_out(writes);
        if let (false, Some(before)) = (matches!(stored, Stored::Committed(_)), before) {
            (self.jobs, self.sessions, self.keys, self.seq) = before;
        }
        stored
    }

    #[expect(clippy::too_many_lines, reason = "the whole store on one page")]
    fn carry_out(&mut self, writes: Vec<Write>) -> Stored {
        let mut written = Vec::new();
        for (item, write) in writes.into_iter().enumerate() {
            written.push(match write {
                Write::Schedule(write) => crate::cron::written(self, &write),
                Write::Accept(new) => {
                    if !crate::cron::fires(self, &new) {
                        return Stored::Superseded;
                    }
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
                    crate::pins::counts_from_its_send_on(self, &new, &session);
                    let row = self
                        .sessions
                        .entry(session.clone())
                        .or_insert_with(|| crate::forked::row_of_job(&session, &new));
                    if let Some(system) = &new.system {
                        row.system = Some(system.to_string());
                    }
                    if let Some(servers) = &new.reserves {
                        row.mcp_servers = servers.to.clone();
                    }
                    if let Some(pins) = new.repins.as_deref() {
                        row.pins = pins.clone();
                    }
                    if let Some(key) = new.key.clone() {
                        assert!(self.keys.insert(key, (job, new.hashed.clone())).is_none());
                    }
                    let stored = StoredJob {
                        former: Default::default(),
                        session: session.clone(),
                        agent: new.agent.clone(),
                        request: new.request.clone(),
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
                        texts: BTreeMap::new(),
                        ours: true,
                    };
                    self.jobs.insert(job, stored);
                    self.log.insert(seq, (job, true));
                    Written::Accepted { job, seq, session }
                }
                Write::Start {
                    job, attempt, line, ..
                } => {
                    let stored = self.jobs.get_mut(&job).unwrap();
                    assert!(stored.last.is_none());
                    stored.running = true;
                    stored.attempt = attempt;
                    Written::Started {
                        request: stored.request.clone(),
                        seq: self.log_event(job, line),
                    }
                }
                Write::Requeue { job, attempt } => {
                    let stored = self.jobs.get_mut(&job).unwrap();
                    (stored.running, stored.attempt) = (false, attempt);
                    Written::Done
                }
                Write::Event { job, line } => {
                    let stored = self.jobs.get_mut(&job).unwrap();
                    assert!(stored.last.is_none(), "an event after the end of {job}");
                    Written::Numbered {
                        seq: self.log_event(job, line),
                    }
                }
                Write::Finish {
                    job, line, texts, ..
                } => {
                    let seq = self.number();
                    self.log.insert(seq, (job, true));
                    let stored = self.jobs.get_mut(&job).unwrap();
                    assert!(stored.last.is_none(), "{job} ended twice");
                    stored.last = Some((seq, line));
                    if let Some(texts) = texts {
                        let texts = texts.into_iter();
                        stored.texts = texts
                            .map(|text| ((text.message, thinking(text.kind)), text.text))
                            .collect();
                    }
                    if let Some(row) = self.sessions.get_mut(&stored.session) {
                        row.turns += u64::from(stored.running);
                    }
                    Written::Numbered { seq }
                }
                Write::Callback { job, url, .. } => {
                    let stored = &self.jobs[&job];
                    assert!(stored.last.is_some(), "{job} is called back before its end");
                    assert!(self.callbacks.insert(job, url).is_none(), "{job} twice");
                    Written::Done
                }
                Write::Replay { webhook } => Written::Webhook {
                    id: (webhook == "evt_1").then_some(webhook),
                },
                Write::TestCallback { .. } => Written::Webhook {
                    id: Some("evt_2".to_owned()),
                },
                Write::Native { session, native } => {
                    let row = self.sessions.get_mut(&session).unwrap();
                    (row.native, row.forks) = (native, None);
                    Written::Done
                }
                Write::Lost { session } => {
                    self.sessions.get_mut(&session).unwrap().lost = true;
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
                    let name = new.name.clone();
                    let name = name.unwrap_or_else(|| format!("n{}", self.sessions.len()));
                    if self.sessions.contains_key(&name) {
                        return Stored::Taken;
                    }
                    let row = row_of(&name, *new);
                    self.sessions.insert(name.clone(), row);
                    Written::Opened { session: name }
                }
                Write::Close { session } => {
                    let open = |job: &StoredJob| job.session == session && job.last.is_none();
                    if self.jobs.values().any(open) {
                        return Stored::Taken;
                    }
                    self.sessions.remove(&session);
                    // The name's next session is another one, in a process of its own.
                    self.holder.remove(&session);
                    Written::Done
                }
                Write::Rename { session, to } => match self.rename(&session, to) {
                    Ok(renamed) => renamed,
                    Err(refused) => return refused,
                },
                Write::Title { session, .. } => match self.sessions.contains_key(&session) {
                    true => Written::Opened { session },
                    false => Written::Done,
                },
                Write::Model { session, pins } => {
                    if let Some(row) = self.sessions.get_mut(&session) {
                        row.pins = pins;
                    }
                    Written::Done
                }
                Write::Text {
                    job,
                    message,
                    kind,
                    offset,
                    text,
                } => {
                    let texts = &mut self.jobs.get_mut(&job).unwrap().texts;
                    let all = texts.entry((message, thinking(kind))).or_default();
                    // One before it may have been given up with the commit that it rode on.
                    if all.len() as u64 == offset {
                        all.push_str(&text);
                    }
                    Written::Done
                }
                Write::Release { .. } => Written::Done,
            });
        }
        Stored::Committed(written)
    }

    fn due(&self, due: Due) -> Due {
        let boot_ms = due.boot_ms.filter(|_| !self.rebooted);
        Due { boot_ms, ..due }
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
                expires: self.due(stored.expires),
                start: stored.start.map(|start| self.due(start)),
                held: stored.held,
                attempt: stored.attempt,
            },
        };
        Some(JobRow {
            job,
            seq: stored.seq,
            session: stored.session.clone(),
            agent: stored.agent.clone(),
            cancelled: stored.cancelled,
            state,
            routed: stored.routed(),
        })
    }

    /// What a dead instance left of a job.
    pub fn left(&self, job: JobId) -> Option<LeftJob> {
        let stored = self.jobs.get(&job)?;
        Some(LeftJob {
            row: self.row(job)?,
            terms: Terms::read(&stored.request).map(Arc::new),
            so_far: SoFar {
                texts: self.texts(job),
                events: stored.events.clone(),
            },
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
            Query::SessionList { .. } => self.listed(),
            Query::JobList { .. }
            | Query::Usage { .. }
            | Query::Webhooks { .. }
            | Query::Schedules { .. }
            | Query::ScheduleRuns { .. }
            | Query::Search { .. }
            | Query::History { .. }
            | Query::Message { .. }
            | Query::Backup { .. }
            | Query::Export { .. } => Loaded::Failed("not part of the model".to_owned()),
            Query::Log {
                after,
                session,
                jobs,
                texts,
                ..
            } => self.logged(
                after,
                &Filter {
                    session,
                    jobs: jobs.map(|jobs| jobs.into_iter().collect()),
                },
                &texts.into_iter().collect(),
            ),
            Query::Asked { job, question } => {
                let events = self.jobs.get(&job).map(|stored| &stored.events);
                let question = format!("\"question_id\":\"{question}\"");
                let asks = |(_, line): &(u64, Body)| line.as_json().contains(&question);
                Loaded::Asked(events.is_some_and(|events| events.iter().any(asks)))
            }
            Query::Jobs { jobs } => {
                Loaded::Jobs(jobs.into_iter().filter_map(|job| self.row(job)).collect())
            }
            Query::Events { job, after, from } => {
                let events = self
                    .jobs
                    .get(&job)
                    .map(|stored| stored.events.clone())
                    .unwrap_or_default();
                let events = events.into_iter().filter(|(seq, _)| *seq > after).collect();
                let (texts, whole) =
                    from.map_or_else(|| (Vec::new(), false), |from| self.portion(job, from));
                Loaded::Events {
                    events,
                    more: false,
                    texts,
                    whole,
                }
            }
        }
    }

    fn log_event(&mut self, job: JobId, line: Body) -> u64 {
        let seq = self.number();
        let stored = self.jobs.get_mut(&job).unwrap();
        self.log.insert(seq, (job, stored.ours));
        stored.events.push((seq, line));
        seq
    }

    pub fn texts(&self, job: JobId) -> Vec<MessageText> {
        let texts = self.jobs.get(&job).map(|stored| stored.texts.iter());
        let texts = texts.into_iter().flatten();
        texts
            .map(|((message, kind), text)| MessageText {
                message: *message,
                kind: [TextKind::Text, TextKind::Thinking][*kind],
                text: text.clone(),
            })
            .collect()
    }

    /// So much of a job's text from a place on, and whether that is the rest of it.
    fn portion(&self, job: JobId, from: Position) -> (Vec<TextPiece>, bool) {
        let mut pieces = Vec::new();
        let mut room = self.portion;
        let mut texts = self.texts(job);
        // Of each message what was thought comes first.
        texts.sort_by_key(|text| (text.message, text.kind == TextKind::Text));
        for text in texts {
            let begun = text.message as usize + 1;
            let at = match (begun.cmp(&from.messages), text.kind) {
                (Ordering::Less, _) => continue,
                (Ordering::Equal, TextKind::Text) => from.text.min(text.text.len()),
                (Ordering::Equal, TextKind::Thinking) => from.thinking.min(text.text.len()),
                (Ordering::Greater, _) => 0,
            };
            let mut end = text.text.len().min(at + room);
            while !text.text.is_char_boundary(end) {
                end += 1;
            }
            room = room.saturating_sub(end - at);
            self.text_read.set(self.text_read.get() + end - at);
            pieces.push(TextPiece {
                message: text.message,
                kind: text.kind,
                at,
                text: text.text[at..end].to_owned(),
            });
            if end < text.text.len() {
                return (pieces, false);
            }
        }
        (pieces, true)
    }

    /// A page of the log.
    fn logged(&self, after: u64, filter: &Filter, texts: &BTreeMap<JobId, Position>) -> Loaded {
        let numbers = self.log.range(after.saturating_add(1)..);
        let mut wanted = numbers.filter(|(_, (job, _))| filter.wants(*job, &self.jobs[job]));
        let mut lines = Vec::new();
        let mut portion = None;
        for (seq, (job, _)) in wanted.by_ref().take(self.page) {
            let mut line = self.log_line(*seq, *job);
            if self.jobs[job]
                .last
                .as_ref()
                .is_some_and(|last| last.0 == *seq)
            {
                let from = texts.get(job).copied().unwrap_or_default();
                let (pieces, whole) = self.portion(*job, from);
                if !whole {
                    portion = Some((*job, pieces));
                    break;
                }
                line.texts = pieces;
            }
            lines.push(line);
        }
        Loaded::Log {
            lines,
            more: portion.is_some() || wanted.next().is_some(),
            last: self.seq,
            oldest: self.oldest,
            first: JobId(0),
            portion,
        }
    }

    fn log_line(&self, seq: u64, job: JobId) -> LogLine {
        let stored = &self.jobs[&job];
        let event = || stored.events.iter().find(|(number, _)| *number == seq);
        let body = match &stored.last {
            Some((last, line)) if *last == seq => line.clone(),
            _ if stored.seq == seq => {
                let accepted = Accepted {
                    job,
                    session: stored.session.clone(),
                    agent: stored.agent.clone(),
                    seq: None,
                    replayed: false,
                    ignored: Vec::new(),
                    running: false,
                    drained: false,
                    made: false,
                    routed: stored.routed(),
                };
                Line::Accepted(accepted).body()
            }
            _ => event().unwrap().1.clone(),
        };
        LogLine {
            seq,
            job,
            body,
            texts: Vec::new(),
        }
    }

    /// Another instance accepts a job in a session of its own.
    pub fn neighbour_accepts(&mut self, session: &str) -> JobId {
        let job = JobId(self.jobs.len() as u64 + 1);
        let seq = self.number();
        let stored = StoredJob {
            former: Default::default(),
            session: session.to_owned(),
            agent: "turn".to_owned(),
            request: "{}".to_owned(),
            seq,
            running: true,
            cancelled: false,
            attempt: 1,
            expires: Due::default(),
            start: None,
            held: false,
            parent: None,
            last: None,
            events: Vec::new(),
            texts: BTreeMap::new(),
            ours: false,
        };
        self.jobs.insert(job, stored);
        self.log.insert(seq, (job, false));
        job
    }

    /// Its job did something.
    pub fn neighbour_works(&mut self, job: JobId) -> u64 {
        self.log_event(job, Line::Running { job, attempt: 1 }.body())
    }

    /// Its job ended.
    pub fn neighbour_ends(&mut self, job: JobId, text: &str) -> u64 {
        let seq = self.number();
        self.log.insert(seq, (job, false));
        let line =
            format!(r#"{{"type":"message_end","job":"{job}","stop":"end_turn","text":"{text}"}}"#);
        let stored = self.jobs.get_mut(&job).unwrap();
        stored.texts.insert((0, 0), text.to_owned());
        stored.last = Some((seq, Body::stored(&line)));
        seq
    }

    /// The last number of all that are stored.
    pub fn last_number(&self) -> u64 {
        self.log.keys().next_back().copied().unwrap_or_default()
    }

    /// One of its jobs goes on.
    pub fn neighbour_steps(&mut self, choice: usize) {
        let mut jobs = self.jobs.iter();
        let open = jobs.find(|(_, job)| !job.ours && job.last.is_none());
        let open = open.map(|(job, _)| *job);
        match (open, choice % 3) {
            (None, _) => drop(self.neighbour_accepts(&format!("beside{}", choice % 2))),
            (Some(job), 0) => drop(self.neighbour_ends(job, "from beside")),
            (Some(job), _) => drop(self.neighbour_works(job)),
        }
    }

    pub fn neighbours_finish(&mut self) {
        let open = |(job, stored): (&JobId, &StoredJob)| {
            (!stored.ours && stored.last.is_none()).then_some(*job)
        };
        let open: Vec<_> = self.jobs.iter().filter_map(open).collect();
        for job in open {
            self.neighbour_ends(job, "at last");
        }
    }
}

fn thinking(kind: TextKind) -> usize {
    usize::from(kind == TextKind::Thinking)
}
