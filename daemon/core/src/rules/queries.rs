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
use crate::ids::ConnId;
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
        self.now.wall_ms.saturating_sub(of_seconds(seconds))
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
            idle_since: list
                .idle_for
                .zip(self.seen())
                .map(|(seconds, seen)| seen.idle_since(of_seconds(seconds))),
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

    pub(crate) fn export(&mut self, conn: ConnId, id: Option<Id>, export: Export) {
        let asked = match &export.session {
            None => Asked::List,
            Some(session) => Asked::History {
                session: session.clone(),
            },
        };
        let query = Query::Export {
            after: export.after.unwrap_or(0),
            session: export.session,
        };
        self.look_up(conn, id, asked, query);
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
            // An export of it.
            (Asked::History { session }, Loaded::Sessions(_none)) => Err(unknown_session(&session)),
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
            (Asked::Schedules, Loaded::Refused(why)) => Err(crate::rules::cron::unknown(why)),
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
        let running = self
            .jobs
            .numbered(row.job)
            .filter(|_| state == JobPhase::Running);
        JobRow {
            state,
            started_at: running.and_then(|_| self.began_at(row.job)),
            doing: running.and_then(|turn| self.doing(turn)),
            ..row
        }
    }

    /// The time that this daemon saw pass.
    fn seen(&self) -> Option<TimeSeen> {
        let began = self.began?;
        let at_least = |ahead: i64| millis(began.boot_ms).saturating_add(ahead);
        let believed = self.settings.wall_ahead.map_or(i64::MAX, at_least);
        Some(TimeSeen {
            began_ms: began.wall_ms,
            believed_ms: began.wall_ms.min(believed),
            now_ms: self.now.wall_ms,
            up_ms: millis(self.now.boot_ms.saturating_sub(began.boot_ms)),
        })
    }

    /// When the turn of a job began, by the wall clock as it is now.
    fn began_at(&self, job: JobId) -> Option<String> {
        let began = self.job_here(job)?.said.started_at?;
        let ago = self.now.mono.saturating_sub(began).as_millis();
        let ago = i64::try_from(ago).unwrap_or(i64::MAX);
        Some(rfc3339(self.now.wall_ms.saturating_sub(ago)))
    }

    fn in_motion(&self, stored: SessionRow) -> SessionRow {
        // Its name may be another one's by now.
        if stored.state == SessionPhase::Closed {
            return stored;
        }
        // Of those that aren't in memory, too: nobody else can say it.
        let idle_s = request::unix_ms(&stored.last_active_at)
            .zip(self.seen())
            .map(|(used, seen)| seen.idle_ms(used) / 1000)
            .and_then(|idle| u64::try_from(idle).ok());
        let row = SessionRow { idle_s, ..stored };
        let known = self.sessions.named(&row.session);
        let Some(session) = known.and_then(|known| self.sessions.get(&known)) else {
            return row;
        };
        let state = self.phase_of_session(session);
        SessionRow { state, ..row }
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

fn of_seconds(seconds: f64) -> i64 {
    let millis = std::time::Duration::from_secs_f64(seconds).as_millis();
    i64::try_from(millis).unwrap_or(i64::MAX)
}

fn millis(boot_ms: u64) -> i64 {
    i64::try_from(boot_ms).unwrap_or(i64::MAX)
}

/// The time that a daemon saw pass. Of that since it began it knows how long it was, whatever the wall
/// clock was set to meanwhile. Of the time before, the wall clock says it, as the least that is known
/// of it in this boot of the machine.
#[derive(Clone, Copy, Debug)]
struct TimeSeen {
    /// The wall clock when it began.
    began_ms: i64,
    /// What is believed that it was then.
    believed_ms: i64,
    /// The wall clock now.
    now_ms: i64,
    /// Since it began.
    up_ms: i64,
}

impl TimeSeen {
    /// How long ago something was that the wall clock said the time of.
    fn idle_ms(self, used_ms: i64) -> i64 {
        if used_ms <= self.began_ms {
            let before = self.believed_ms.saturating_sub(used_ms).max(0);
            before.saturating_add(self.up_ms)
        } else {
            self.now_ms.saturating_sub(used_ms).clamp(0, self.up_ms)
        }
    }

    /// What was used no later has been idle for so long: the same rule, for a list that is chosen from.
    fn idle_since(self, idle_ms: i64) -> i64 {
        if idle_ms <= self.up_ms {
            self.began_ms.max(self.now_ms.saturating_sub(idle_ms))
        } else {
            let ago = idle_ms.saturating_sub(self.up_ms);
            self.believed_ms.saturating_sub(ago)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    /// It began on the tenth day, and is up for a minute.
    fn seen(now_ms: i64) -> TimeSeen {
        TimeSeen {
            began_ms: 10 * DAY,
            believed_ms: 10 * DAY,
            now_ms,
            up_ms: 60_000,
        }
    }

    #[test]
    fn idle_time_is_not_what_clocks_jumped() {
        let later = seen(10 * DAY + 60_000);
        assert_eq!(later.idle_ms(10 * DAY + 20_000), 40_000);
        assert_eq!(later.idle_ms(9 * DAY), DAY + 60_000);
        // Ahead by a month, and back by one.
        for jumped in [seen(40 * DAY), seen(DAY)] {
            assert!(jumped.idle_ms(10 * DAY + 20_000) <= 60_000);
            assert_eq!(jumped.idle_ms(9 * DAY), DAY + 60_000);
        }
        assert_eq!(seen(40 * DAY).idle_ms(40 * DAY - 5_000), 5_000);
        // It had jumped by a month before it began.
        let after = TimeSeen {
            believed_ms: 10 * DAY,
            began_ms: 40 * DAY,
            ..seen(40 * DAY + 60_000)
        };
        assert_eq!(after.idle_ms(9 * DAY), DAY + 60_000);
        assert_eq!(after.idle_ms(39 * DAY), 60_000);
    }

    #[test]
    fn idle_sessions_are_chosen_as_they_are_shown() {
        let jumped = TimeSeen {
            began_ms: 40 * DAY,
            ..seen(40 * DAY + 60_000)
        };
        let others = [10 * DAY + 60_000, 40 * DAY, DAY];
        for seen in others.map(seen).into_iter().chain([jumped]) {
            for idle in [0, 1_000, 30_000, 60_000, 90_000, DAY, 5 * DAY] {
                for used in [0, DAY, 9 * DAY, 10 * DAY, 10 * DAY + 30_000, 39 * DAY] {
                    let (is_idle, chosen) =
                        (seen.idle_ms(used) >= idle, used <= seen.idle_since(idle));
                    // Whoever was used in a future that was taken back is idle since it was.
                    if used <= seen.now_ms.max(seen.began_ms) {
                        assert_eq!(is_idle, chosen, "{seen:?} {idle} {used}");
                    }
                }
            }
        }
    }
}
