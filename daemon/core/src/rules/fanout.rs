//! Numbered lines on their way to subscribers: in one ascending order, without gaps.
//!
//! Owns a subscription's place in the store's log. Lines are passed on as they happen only while
//! each is the next one; after a gap, which another instance's commits leave, and after a reader
//! fell behind, they are read from the store until nothing is missing. Must not know what they mean.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Telling;
use agentd_protocol::{Body, Code, JobId};

use crate::effect::Progress;
use crate::ids::{ConnId, TurnId};
use crate::jobs::delta::Spoken;
use crate::limits::READER_QUEUE;
use crate::outbox::awaiting::Awaiting;
use crate::peers::conn::{Place, Stage, Subscription};
use crate::rules::followers::{Reader, spoken_since};
use crate::rules::subscribe::check_cursor;
use crate::state::State;
use crate::store::{Loaded, LogLine, Position, Query, TextPiece};

/// What a numbered line is in the life of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    /// Its first line, or one in between.
    Meanwhile,
    /// Its final line: all of its text comes before it.
    AtTheEnd,
}

/// What a page of the log is besides its lines.
struct Page {
    more: bool,
    last: u64,
    oldest: u64,
    first: JobId,
    portion: Option<(JobId, Vec<TextPiece>)>,
}

/// Could everything be sent?
#[derive(PartialEq, Eq)]
enum Passed {
    On,
    /// The reader has enough for now: the rest is asked for again when it has caught up.
    NotYet,
}

impl State {
    /// A connection's subscription, unless it ended, or the connection has gone meanwhile.
    fn subscription_mut(&mut self, conn: ConnId) -> Option<&mut Subscription> {
        self.peers.connected_mut(&conn)?.subscription.as_mut()
    }

    /// A numbered line of a job is durable: it is sent to every subscriber whose next one it is.
    pub(crate) fn publish(&mut self, turn: TurnId, body: &Body, seq: u64, happened: Happened) {
        // A copy: a subscription may end while its lines are told.
        for conn in self.peers.subscribers().clone() {
            self.publish_to(conn, turn, (body, seq), happened);
        }
    }

    fn publish_to(
        &mut self,
        conn: ConnId,
        turn: TurnId,
        (body, seq): (&Body, u64),
        happened: Happened,
    ) {
        let wanted = self.hears(conn, turn);
        let job = found!(self.jobs.get(turn));
        let Some(number) = job.and_then(|job| job.number) else {
            return;
        };
        let Some(subscription) = self.subscription_mut(conn) else {
            return;
        };
        // Who isn't live gets it from the store; what was seen already came with a page that held
        // it.
        if subscription.place != Place::Live || seq <= subscription.seen {
            return;
        }
        if seq > subscription.seen + 1 {
            // The numbers between are another instance's, whose lines come first.
            subscription.place = Place::Behind;
            return self.resume_subscription(conn);
        }
        let id = subscription.id.clone();
        if wanted {
            if happened == Happened::AtTheEnd && self.send_rest(conn, turn) == Passed::NotYet {
                return;
            }
            let (first, more) = (Telling::First, Progress::More);
            self.send(conn, body, id, Some(seq), first, more);
        }
        if let Some(subscription) = self.subscription_mut(conn) {
            // Also where it isn't wanted: the next line that is must not look like one behind a
            // gap.
            subscription.pass(seq);
            if happened == Happened::AtTheEnd {
                subscription.texts.remove(&number);
            }
        }
        self.check_window(conn);
    }

    /// A line without a number: who isn't up to date misses it.
    pub(crate) fn publish_unnumbered(&mut self, turn: TurnId, body: &Body) {
        for (conn, _) in self.listeners(turn) {
            if let Some(subscription) = self.subscription_mut(conn) {
                let id = subscription.id.clone();
                let (first, more) = (Telling::First, Progress::More);
                self.send(conn, body, id, None, first, more);
                self.check_window(conn);
            }
        }
    }

    /// Subscribers that are up to date and want a job, with their places in its text.
    pub(crate) fn listeners(&self, turn: TurnId) -> Vec<(ConnId, Position)> {
        let number = self.jobs.get(&turn).and_then(|job| job.number);
        let listens = |conn: &ConnId| {
            let subscription = self.peers.connected(conn)?.subscription.as_ref()?;
            if subscription.place != Place::Live || !self.hears(*conn, turn) {
                return None;
            }
            // One that it has heard nothing of is told from its beginning.
            let position = subscription.texts.get(&number?).copied();
            Some((*conn, position.unwrap_or_default()))
        };
        self.peers
            .subscribers()
            .iter()
            .filter_map(listens)
            .collect()
    }

    /// Does a subscriber want a job in memory that isn't its own?
    fn hears(&self, conn: ConnId, turn: TurnId) -> bool {
        let Some(job) = self.jobs.get(&turn) else {
            return false;
        };
        let (Some(number), Some(known)) = (job.number, self.peers.connected(&conn)) else {
            return false;
        };
        let session = self.sessions.get(&job.session);
        let session = session.and_then(|session| session.name.as_deref());
        let wants = |wanted: &Subscription| wanted.wants(session, number);
        known.subscription.as_ref().is_some_and(wants) && !known.sends(number)
    }

    /// Events up to this number are in the store, some of which nobody told us: subscribers read them.
    pub(crate) fn read_on(&mut self, last: u64) {
        if last <= self.counters.last_seq() {
            return;
        }
        self.counters.saw(last);
        for conn in self.peers.subscribers().clone() {
            if let Some(subscription) = self.subscription_mut(conn)
                && subscription.place == Place::Live
            {
                subscription.place = Place::Behind;
                self.resume_subscription(conn);
            }
        }
    }

    /// Gives a subscriber that is behind what it misses, from the store where need be.
    pub(crate) fn resume_subscription(&mut self, conn: ConnId) {
        let last = self.counters.last_seq();
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        let Some(subscription) = &mut known.subscription else {
            return;
        };
        if subscription.place != Place::Behind || known.window.behind {
            return;
        }
        if subscription.stage == Stage::Answered && subscription.seen >= last {
            subscription.place = Place::Live;
            self.tell_states(conn);
            return self.send_missed_texts(conn);
        }
        let after = match subscription.stage {
            // Nothing comes after this: the answer tells where the log ends.
            Stage::Asked(None) => u64::MAX,
            Stage::Asked(Some(_)) | Stage::History | Stage::Answered => subscription.seen,
        };
        let query = Query::Log {
            after,
            session: subscription.session.clone(),
            jobs: (subscription.jobs.as_ref()).map(|jobs| jobs.iter().copied().collect()),
            first: subscription.first,
            texts: (subscription.texts.iter())
                .map(|(job, position)| (*job, *position))
                .collect(),
        };
        // Set before it is asked: its lines aren't passed on until the page is told, which would
        // put them out of order.
        subscription.place = Place::Loading;
        let number = subscription.number;
        self.outbox.load(Awaiting::Log { conn, number }, query);
    }

    /// The store answered a subscription, if that is still there.
    pub(crate) fn log_loaded(&mut self, conn: ConnId, number: u64, loaded: Loaded) {
        let Some(subscription) = self.subscription_mut(conn) else {
            return;
        };
        // The connection has unsubscribed since, and asked anew.
        if subscription.number != number {
            return;
        }
        subscription.place = Place::Behind;
        let stage = subscription.stage;
        match loaded {
            Loaded::Log {
                lines,
                more,
                last,
                oldest,
                first,
                portion,
            } => {
                let page = Page {
                    more,
                    last,
                    oldest,
                    first,
                    portion,
                };
                if self.cursor_holds(conn, &page) == Passed::On {
                    self.tell_page(conn, lines, page);
                }
            }
            Loaded::Failed(why) if stage != Stage::Answered => {
                let error = format!("the history can't be read: {why}");
                self.end_subscription(conn, Rejected::new(Code::StoreFailed, error));
            }
            _ => self.cut_off(conn),
        }
    }

    /// Compares the cursor with the store: what follows it may be forgotten at any time.
    fn cursor_holds(&mut self, conn: ConnId, page: &Page) -> Passed {
        let Some(subscription) = self.subscription_mut(conn) else {
            return Passed::NotYet;
        };
        let stage = subscription.stage;
        let after = match stage {
            Stage::Asked(after) => after.unwrap_or(page.last),
            Stage::History | Stage::Answered => subscription.seen,
        };
        match check_cursor(after, page.oldest, page.last) {
            // What comes next is gone; it comes back with a cursor, and is told so.
            Err(_) if stage == Stage::Answered => self.cut_off(conn),
            Err(rejected) => self.end_subscription(conn, rejected),
            Ok(()) => {
                subscription.seen = after;
                if stage != Stage::Answered {
                    subscription.stage = Stage::History;
                }
                return Passed::On;
            }
        }
        Passed::NotYet
    }

    fn end_subscription(&mut self, conn: ConnId, rejected: Rejected) {
        if let Some(subscription) = self.peers.unsubscribe(conn) {
            self.refuse(conn, subscription.id, rejected);
        }
    }

    fn tell_page(&mut self, conn: ConnId, lines: Vec<LogLine>, page: Page) {
        // A page that has none can't have another one behind it.
        let more = page.more && !lines.is_empty();
        for line in lines {
            if self.tell_logged(conn, &line) == Passed::NotYet {
                return;
            }
        }
        let Some(subscription) = self.subscription_mut(conn) else {
            return;
        };
        // So that the next page needn't look at jobs that are over before it begins.
        subscription.first = page.first;
        if let Some((job, portion)) = page.portion {
            self.tell_portion(conn, job, &portion);
            // The rest when it has read this.
            return self.resume_subscription(conn);
        }
        if more {
            return self.resume_subscription(conn);
        }
        // All commits that the page holds were answered before it. What was committed since it was
        // read comes with the next one.
        subscription.pass(page.last);
        let (id, seq) = (subscription.id.clone(), subscription.seen);
        if std::mem::replace(&mut subscription.stage, Stage::Answered) == Stage::History {
            self.tell_live(conn, id, seq);
        }
        self.check_window(conn);
        self.resume_subscription(conn);
    }

    /// Sends a line of the log.
    fn tell_logged(&mut self, conn: ConnId, line: &LogLine) -> Passed {
        let Some(known) = self.peers.connected(&conn) else {
            return Passed::NotYet;
        };
        let Some(subscription) = &known.subscription else {
            return Passed::NotYet;
        };
        if line.seq <= subscription.seen {
            return Passed::On;
        }
        let ends = ends_job(&line.body);
        if !known.sends(line.job) {
            let id = subscription.id.clone();
            let from = subscription.texts.get(&line.job).copied();
            let from = from.unwrap_or_default();
            let (first, more) = (Telling::First, Progress::More);
            if ends {
                // All of a job's text comes before its final line.
                let spoken = Spoken::of_stored(line.job, &line.texts, from);
                self.send_spoken(conn, Reader::Subscriber(line.job), &spoken, first);
            }
            self.send(conn, &line.body, id, Some(line.seq), first, more);
        }
        self.check_window(conn);
        self.passed(conn, line.seq, ends.then_some(line.job))
    }

    /// Sends a portion of a job's text, whose rest comes before its final line.
    fn tell_portion(&mut self, conn: ConnId, job: JobId, portion: &[TextPiece]) {
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        let sends = known.sends(job);
        let Some(subscription) = &mut known.subscription else {
            return;
        };
        if sends {
            // It has the text as the job's sender.
            let end = Position {
                messages: usize::MAX,
                text: usize::MAX,
                thinking: usize::MAX,
            };
            subscription.texts.insert(job, end);
            return;
        }
        let from = subscription.texts.get(&job).copied().unwrap_or_default();
        let spoken = Spoken::of_stored(job, portion, from);
        let reader = Reader::Subscriber(job);
        self.send_spoken(conn, reader, &spoken, Telling::First);
    }

    fn passed(&mut self, conn: ConnId, seq: u64, ended: Option<JobId>) -> Passed {
        let Some(known) = self.peers.connected_mut(&conn) else {
            return Passed::NotYet;
        };
        if let Some(subscription) = &mut known.subscription {
            subscription.pass(seq);
            ended.map(|job| subscription.texts.remove(&job));
        }
        if known.window.behind {
            Passed::NotYet
        } else {
            Passed::On
        }
    }

    /// A subscriber has all numbered lines: what turns in flight said meanwhile comes next.
    fn send_missed_texts(&mut self, conn: ConnId) {
        // By their numbers, so that those who came first are heard first.
        let turns: Vec<(JobId, TurnId)> = self.jobs.numbers().collect();
        for (number, turn) in turns {
            if !self.hears(conn, turn) {
                continue;
            }
            let Some(subscription) = self.subscription_mut(conn) else {
                return;
            };
            if subscription.place != Place::Live {
                // Behind again: the rest when it has read this.
                return;
            }
            let from = subscription.texts.get(&number).copied();
            if let Some(job) = self.jobs.get(&turn) {
                let spoken = spoken_since(job, from.unwrap_or_default());
                let reader = Reader::Subscriber(number);
                self.send_spoken(conn, reader, &spoken, Telling::First);
            }
        }
    }

    /// Sends what a subscriber hasn't got of a job's text, which is complete.
    fn send_rest(&mut self, conn: ConnId, turn: TurnId) -> Passed {
        let Some(job) = self.jobs.get(&turn) else {
            return Passed::NotYet;
        };
        let (Some(number), Some(known)) = (job.number, self.peers.connected(&conn)) else {
            return Passed::NotYet;
        };
        let texts = known.subscription.as_ref().map(|sub| &sub.texts);
        let from = texts.and_then(|texts| texts.get(&number)).copied();
        let span = (from.unwrap_or_default(), job.position());
        let spoken = Spoken::between(number, &job.said.messages, span, READER_QUEUE);
        self.send_spoken(conn, Reader::Subscriber(number), &spoken, Telling::First);
        if spoken.whole {
            Passed::On
        } else {
            Passed::NotYet
        }
    }

    /// What became of a job can't be known any more: its subscribers can't be told the truth.
    pub(crate) fn cut_off_subscribers(&mut self, turn: TurnId) {
        for conn in self.peers.subscribers().clone() {
            if self.hears(conn, turn) {
                self.cut_off(conn);
            }
        }
    }
}

/// In the log an `error` is always a final line: refusals aren't stored.
fn ends_job(body: &Body) -> bool {
    let json = body.as_json();
    [r#"{"type":"message_end""#, r#"{"type":"error""#]
        .iter()
        .any(|kind| json.starts_with(kind))
}
