//! Lists: jobs, sessions, what was said; a copy of everything.
//!
//! Owns what memory adds to what the store knows. Must not know rows or files.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Line, Telling};
use agentd_protocol::rows::{JobRow, MessageRow, SessionPhase, SessionRow, TurnRow};
use agentd_protocol::work::{
    Backup, Export, JobPhase, Jobs, SessionHistory, SessionList, SessionSearch, Usage,
};
use agentd_protocol::{Code, Id, JobId, limits, request};

use crate::effect::Progress;
use crate::ids::{ConnId, Now};
use crate::jobs::job::{Job, Phase};
use crate::limits::READER_QUEUE;
use crate::outbox::awaiting::Awaiting;
use crate::peers::lookup::{Asked, Lookup, States};
use crate::rules::answer;
use crate::sessions::session::Session;
use crate::state::State;
use crate::store::{
    BackupPlan, JobFilter, Loaded, Query, SessionFilter, SessionLife, SessionOrder,
};
use crate::text::{escaped_len, head, head_and_tail, rfc3339};

/// Rows of a page that names no limit.
pub(crate) const PAGE: usize = 50;

impl State {
    pub(crate) fn jobs(&mut self, conn: ConnId, id: Option<Id>, jobs: Jobs) {
        let label = jobs.label.map(|label| match label.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (label, None),
        });
        let since = jobs.since.map(|seconds| self.wall_before(seconds));
        let filter = JobFilter {
            session: jobs.session,
            agent: jobs.agent,
            state: jobs.state,
            label,
            parent: jobs.parent,
            since,
            before: jobs.before,
        };
        let limit = jobs.limit.unwrap_or(PAGE);
        self.look_up(conn, id, Asked::List, Query::JobList { filter, limit });
    }

    pub(crate) fn usage(&mut self, conn: ConnId, id: Option<Id>, usage: &Usage) {
        let query = Query::Usage {
            since: usage.since.map(|seconds| self.wall_before(seconds)),
            before: usage.before,
            by: usage.by,
            session: usage.session.clone(),
        };
        self.look_up(conn, id, Asked::List, query);
    }

    /// The wall clock so many seconds ago.
    fn wall_before(&self, seconds: f64) -> i64 {
        let ago = std::time::Duration::from_secs_f64(seconds).as_millis();
        let ago = i64::try_from(ago).unwrap_or(i64::MAX);
        self.now.wall_ms.saturating_sub(ago)
    }

    pub(crate) fn session_list(&mut self, conn: ConnId, id: Option<Id>, list: SessionList) {
        let states = match list.idle_for {
            Some(_) => States::Idle,
            None => States::Any,
        };
        let filter = SessionFilter {
            name: list.session,
            agent: list.agent,
            cwd: list.cwd,
            idle_since: list.idle_for.map(|seconds| self.wall_before(seconds)),
            order: match list.newest {
                true => SessionOrder::LastUsed,
                false => SessionOrder::Made,
            },
            life: match list.closed {
                true => SessionLife::Closed,
                false => SessionLife::Open,
            },
        };
        let query = Query::SessionList {
            filter,
            after: list.after.unwrap_or(0),
            limit: list.limit.unwrap_or(PAGE),
        };
        self.look_up(conn, id, Asked::Sessions(states), query);
    }

    pub(crate) fn session_search(&mut self, conn: ConnId, id: Option<Id>, search: SessionSearch) {
        let query = Query::Search {
            words: search
                .words
                .iter()
                .map(|word| word.to_lowercase())
                .collect(),
            session: search.session,
            before: search.before,
            limit: search.limit.unwrap_or(PAGE),
        };
        self.look_up(conn, id, Asked::List, query);
    }

    pub(crate) fn session_history(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        history: SessionHistory,
    ) {
        let SessionHistory {
            session,
            job,
            message,
            after,
            limit,
            events,
        } = history;
        let after = after.unwrap_or(0);
        let (asked, query) = if let (Some(job), Some(message)) = (job, message) {
            let asked = Asked::Message {
                session: session.clone(),
                job,
            };
            let query = Query::Message {
                session,
                job,
                message,
                after,
            };
            // The store may not have all of it yet.
            if let Some(piece) = self.message_here(&query) {
                return self.looked_up(conn, id, asked, Loaded::Message(Some(piece)));
            }
            (asked, query)
        } else {
            let asked = Asked::History {
                session: session.clone(),
            };
            let query = Query::History {
                session,
                job,
                after,
                limit: limit.unwrap_or(PAGE),
                events,
            };
            (asked, query)
        };
        self.look_up(conn, id, asked, query);
    }

    pub(crate) fn backup(&mut self, conn: ConnId, id: Option<Id>, backup: Backup) {
        let keep = backup.keep.unwrap_or(Backup::KEPT);
        let plan = backup.every.map(|every_s| BackupPlan { every_s, keep });
        let path = backup.path;
        let query = Query::Backup { path, plan };
        self.look_up(conn, id, Asked::Backup, query);
    }

    pub(crate) fn export(&mut self, conn: ConnId, id: Option<Id>, export: &Export) {
        let query = Query::Export {
            after: export.after.unwrap_or(0),
        };
        self.look_up(conn, id, Asked::List, query);
    }

    /// Looks something up now, or when the reader has taken what it asked for before: a page is in
    /// memory from then until it is read.
    pub(crate) fn look_up(&mut self, conn: ConnId, id: Option<Id>, asked: Asked, query: Query) {
        // It takes as long as it takes, and its answer is small: other lists need not wait for it.
        if asked == Asked::Backup {
            self.outbox.load(Awaiting::Asked { conn, id, asked }, query);
            return;
        }
        if let Some(known) = self.peers.connected_mut(&conn) {
            known.lookups.push_back(Lookup { id, asked, query });
        }
        self.look_next(conn);
    }

    /// Looks up what a connection has asked for, if nothing stands before it.
    pub(crate) fn look_next(&mut self, conn: ConnId) {
        loop {
            // Asked anew for each: a refusal is short, and the next one may fit.
            let refused = self.room_for_a_page().err();
            let Some(known) = self.peers.connected_mut(&conn) else {
                return;
            };
            if known.looking || known.window.outstanding() > READER_QUEUE {
                return;
            }
            let Some(Lookup { id, asked, query }) = known.lookups.pop_front() else {
                return;
            };
            if let Some(rejected) = refused {
                self.refuse(conn, id, rejected);
                continue;
            }
            // One at a time: each page is in memory from now until it is read.
            known.looking = true;
            self.outbox.load(Awaiting::Asked { conn, id, asked }, query);
        }
    }

    /// What a connection asked for was found: the next one may be looked up.
    pub(crate) fn found(&mut self, conn: ConnId, id: Option<Id>, asked: Asked, loaded: Loaded) {
        if asked != Asked::Backup
            && let Some(known) = self.peers.connected_mut(&conn)
        {
            known.looking = false;
        }
        self.looked_up(conn, id, asked, loaded);
        self.look_next(conn);
    }

    pub(crate) fn looked_up(&mut self, conn: ConnId, id: Option<Id>, asked: Asked, loaded: Loaded) {
        if let Loaded::Line(line) = &loaded {
            let (first, answered) = (Telling::First, Progress::Answered);
            return self.send(conn, line, id, None, first, answered);
        }
        match self.listed(asked, loaded) {
            Ok(line) => self.answer(conn, id, &line),
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    fn sessions_listed(
        &self,
        states: States,
        sessions: Vec<(u64, SessionRow)>,
        more: bool,
    ) -> Line {
        let next = sessions.last().map(|(place, _)| *place).filter(|_| more);
        let rows = sessions.into_iter();
        let rows = rows.map(|(_, row)| self.in_motion(row));
        let is_asked_for = |row: &SessionRow| match states {
            States::Any => true,
            States::Idle => row.state == SessionPhase::Idle,
        };
        Line::SessionList {
            ok: true,
            sessions: rows.filter(is_asked_for).collect(),
            next,
        }
    }

    fn listed(&self, asked: Asked, loaded: Loaded) -> Result<Line, Rejected> {
        match (asked, loaded) {
            (Asked::List, Loaded::JobList { jobs, more }) => {
                let next = jobs.last().map(|job| job.job).filter(|_| more);
                let jobs = jobs.into_iter().map(|row| self.as_it_stands(row)).collect();
                Ok(Line::Jobs {
                    ok: true,
                    jobs,
                    next,
                })
            }
            (Asked::Webhooks(endpoints), Loaded::Webhooks { deliveries, next }) => {
                Ok(crate::rules::webhook::listed(endpoints, &deliveries, next))
            }
            (Asked::Sessions(states), Loaded::SessionList { sessions, more }) => {
                Ok(self.sessions_listed(states, sessions, more))
            }
            (Asked::History { session }, Loaded::History { turns, more }) => {
                let turns = turns.ok_or_else(|| unknown_session(&session))?;
                let next = turns.last().map(|turn| turn.job.0).filter(|_| more);
                let turns = turns.into_iter().map(|turn| self.so_far(turn)).collect();
                Ok(Line::SessionHistory {
                    ok: true,
                    session,
                    turns,
                    next,
                })
            }
            (Asked::Message { session, job }, Loaded::Message(piece)) => {
                let piece = piece.ok_or_else(|| {
                    let error =
                        format!("the session `{session}` has no such message of a job {job}");
                    Rejected::new(Code::UnknownJob, error)
                })?;
                let next = (piece.truncated).then(|| piece.offset + piece.text.len() as u64);
                let turn = TurnRow {
                    job,
                    state: self.phase_of(job).unwrap_or(JobPhase::Completed),
                    accepted_at: String::new(),
                    text: String::new(),
                    truncated: false,
                    attachments: Vec::new(),
                    messages: vec![piece],
                    events: Vec::new(),
                    events_truncated: false,
                    last: None,
                    questions: Vec::new(),
                    request: None,
                };
                Ok(Line::SessionHistory {
                    ok: true,
                    session,
                    turns: vec![turn],
                    next,
                })
            }
            (Asked::Backup, Loaded::Backup { path, bytes }) => Ok(Line::Backup {
                ok: true,
                path,
                bytes,
            }),
            (Asked::Question(question), Loaded::Asked(true)) => Err(answer::closed(&question)),
            (Asked::Question(question), Loaded::Asked(false)) => {
                Err(answer::unknown_question(&question))
            }
            (_, Loaded::Refused(why)) => Err(Rejected::new(Code::InvalidRequest, why)),
            (_, Loaded::Failed(why)) => Err(Rejected::new(Code::StoreFailed, why)),
            _ => Err(Rejected::new(
                Code::Internal,
                "the store answered something else",
            )),
        }
    }

    fn job_here(&self, job: JobId) -> Option<&Job> {
        self.jobs.by_number(job)
    }

    /// How far a job in memory is: the store learns some of it later, and some never.
    fn phase_of(&self, job: JobId) -> Option<JobPhase> {
        match self.job_here(job)?.phase {
            Phase::Held => Some(JobPhase::Held),
            Phase::Running { .. } | Phase::Settling { .. } => Some(JobPhase::Running),
            // Its end isn't durable, so nobody was told of it.
            Phase::Finishing if self.job_here(job)?.said.started_at.is_some() => {
                Some(JobPhase::Running)
            }
            Phase::Finishing => Some(JobPhase::Queued),
            Phase::Pending { .. } | Phase::Marking { .. } | Phase::Queued | Phase::Scheduled => {
                Some(JobPhase::Queued)
            }
        }
    }

    fn as_it_stands(&self, row: JobRow) -> JobRow {
        // An end that the store has is final; anything before that memory knows better.
        let state = match row.state {
            JobPhase::Queued | JobPhase::Held | JobPhase::Running => {
                self.phase_of(row.job).unwrap_or(row.state)
            }
            ended => ended,
        };
        let started_at = match state {
            JobPhase::Running => self.began_at(row.job),
            _ => None,
        };
        JobRow {
            state,
            started_at,
            ..row
        }
    }

    /// When the turn of a job began, by the wall clock as it is now.
    fn began_at(&self, job: JobId) -> Option<String> {
        let began = self.job_here(job)?.said.started_at?;
        let ago = self.now.mono.saturating_sub(began).as_millis();
        let ago = i64::try_from(ago).unwrap_or(i64::MAX);
        Some(rfc3339(self.now.wall_ms.saturating_sub(ago)))
    }

    fn in_motion(&self, row: SessionRow) -> SessionRow {
        // Its name may be another one's by now.
        if row.state == SessionPhase::Closed {
            return row;
        }
        let known = self.sessions.named(&row.session);
        let Some(session) = known.and_then(|known| self.sessions.get(&known)) else {
            return row;
        };
        let state = self.phase_of_session(session);
        let idle_s = request::unix_ms(&row.last_active_at)
            .zip(self.began)
            .map(|(used, began)| idle_s(began, self.now, used));
        SessionRow {
            state,
            idle_s,
            ..row
        }
    }

    /// What a session in memory does.
    pub(crate) fn phase_of_session(&self, session: &Session) -> SessionPhase {
        let asking = session.current.is_some_and(|turn| self.is_asking(turn));
        let held = session.queue.iter().any(|turn| {
            let job = self.jobs.get(turn);
            job.is_some_and(|job| job.phase == Phase::Held)
        });
        match session.current {
            Some(_) if asking => SessionPhase::Waiting,
            Some(_) => SessionPhase::Working,
            None if held => SessionPhase::Held,
            // For a process, or for room for one.
            None if !session.queue.is_empty() => SessionPhase::Starting,
            None => SessionPhase::Idle,
        }
    }

    /// A turn in flight with the text that the store hasn't got yet.
    fn so_far(&self, turn: TurnRow) -> TurnRow {
        let Some(job) = self.job_here(turn.job).filter(|_| turn.last.is_none()) else {
            return turn;
        };
        // Half a line: the other half is for the turns beside it.
        let mut room = limits::MAX_TEXT / 2;
        let mut messages = Vec::new();
        for (number, message) in (0..).zip(&job.said.messages) {
            let (text, truncated) = head(&message.text, room);
            room = room.saturating_sub(escaped_len(&text));
            let (thinking, _) = head_and_tail(message.thinking.clone(), limits::MAX_TOOL_OUTPUT);
            messages.push(MessageRow {
                message: number,
                offset: 0,
                text,
                thinking,
                truncated,
            });
        }
        TurnRow {
            state: self.phase_of(turn.job).unwrap_or(turn.state),
            questions: self.questions_of(turn.job),
            messages,
            ..turn
        }
    }

    /// A piece of a message whose turn is in memory.
    fn message_here(&self, query: &Query) -> Option<MessageRow> {
        let Query::Message {
            session,
            job,
            message,
            after,
        } = query
        else {
            return None;
        };
        let job = self.job_here(*job)?;
        let known = self.sessions.get(&job.session)?;
        let text = &job.said.messages.get(*message as usize)?.text;
        if known.name.as_ref() != Some(session) {
            return None;
        }
        let from = text.floor_char_boundary(usize::try_from(*after).unwrap_or(usize::MAX));
        let (piece, truncated) = head(&text[from..], limits::MAX_TEXT);
        Some(MessageRow {
            message: *message,
            offset: from as u64,
            text: piece,
            thinking: String::new(),
            truncated,
        })
    }
}

pub(crate) fn unknown_session(name: &str) -> Rejected {
    Rejected::new(
        Code::UnknownSession,
        format!("there is no session `{name}`"),
    )
    .hint("`session.list` lists them")
}

/// How long ago something was. Of the time since this daemon began that is known, whatever the wall
/// clock was set to meanwhile; of the time before, it is as that says.
fn idle_s(began: Now, now: Now, used_ms: i64) -> u64 {
    let up = now.boot_ms.saturating_sub(began.boot_ms);
    let up = i64::try_from(up).unwrap_or(i64::MAX);
    let idle = if used_ms <= began.wall_ms {
        began.wall_ms.saturating_sub(used_ms).saturating_add(up)
    } else {
        now.wall_ms.saturating_sub(used_ms).clamp(0, up)
    };
    u64::try_from(idle).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn idle_time_is_not_what_clocks_jumped() {
        const DAY: i64 = 86_400_000;
        let at = |boot_ms: u64, wall_ms| Now {
            mono: Duration::ZERO,
            boot_ms,
            wall_ms,
        };
        let began = at(1_000, 10 * DAY);
        let later = at(61_000, 10 * DAY + 60_000);
        assert_eq!(idle_s(began, later, 10 * DAY + 20_000), 40);
        assert_eq!(idle_s(began, later, 9 * DAY), 86_460);
        // Ahead by a month, and back by one.
        for jumped in [at(61_000, 40 * DAY), at(61_000, DAY)] {
            assert!(idle_s(began, jumped, 10 * DAY + 20_000) <= 60);
            assert_eq!(idle_s(began, jumped, 9 * DAY), 86_460);
        }
        assert_eq!(idle_s(began, at(61_000, 40 * DAY), 40 * DAY - 5_000), 5);
    }
}
