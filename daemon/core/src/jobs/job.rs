//! One job: a send from its acceptance to its final line.
//!
//! Owns what a job has said so far and in which order its lines leave. Must not know processes,
//! connections or the store's answers: it is told.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::line::ToolTrace;
use agentd_protocol::request::{Retry, Send};
use agentd_protocol::{Body, Id, JobId, Line, serde_json};

use crate::attached::Attachments;
use crate::ids::{ConnId, FollowId, Process, QuestionId, SessionId, TurnId};
use crate::jobs::said::{Message, Out, Said};
use crate::limits::{ATTEMPTS, MESSAGES_BYTES, TEXT_FLUSH_BYTES, TEXT_REWRITTEN};
use crate::rare::Rare;
use crate::sessions::session::Session;
use crate::store::{MessageText, NewJob, Pins, Position, SoFar, TextKind, Write};
use crate::terms::Terms;
use crate::text::head_and_tail;
use crate::worker::{Begins, Prompt};

/// Why a running turn is being ended from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Somebody asked.
    Cancelled,
    /// It ran too long.
    Timeout,
    /// It said too much.
    OutputLimit,
    /// The daemon stops.
    Interrupted,
}

/// How far a job is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Its `accepted` isn't committed; with a process, its *running* mark is in that commit.
    Pending {
        placed: Option<Process>,
        cancelled: bool,
    },
    /// Its time to start has not come.
    Scheduled,
    /// It waits for its session or a process.
    Queued,
    /// It waits behind an interrupted turn until somebody releases it.
    Held,
    /// Its *running* mark isn't committed.
    Marking { process: Process, cancelled: bool },
    /// A worker has it.
    Running { process: Process },
    /// A worker has it and was told to end it.
    Settling { process: Process, ending: Ending },
    /// Its final line isn't committed.
    Finishing,
}

/// A send that was accepted, or is about to be.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Job {
    pub(crate) number: Option<JobId>,
    pub(crate) session: SessionId,
    pub(crate) terms: Arc<Terms>,
    /// What its worker is told, from its placement until its acceptance is committed.
    pub(crate) given: Option<Box<Send>>,
    /// Bytes of memory that it takes while it waits, see `budget.rs`.
    pub(crate) weight: usize,
    pub(crate) phase: Phase,
    pub(crate) attempt: u32,
    pub(crate) accepted_at: Duration,
    /// Since when its time runs: from when its process is made ready for it, see `turn_timeout.rs`.
    pub(crate) clock: Option<Duration>,
    /// When waiting ends, on the clock of this boot.
    pub(crate) expires: u64,
    /// Not to be started before, on the clock of this boot.
    pub(crate) start: Option<u64>,
    /// What its acceptance writes, while it is pending.
    pub(crate) accept: Option<Arc<NewJob>>,
    /// Who sent it while it is pending.
    pub(crate) sender: Option<Box<Waiter>>,
    /// Who hears its lines.
    pub(crate) followers: BTreeSet<(ConnId, FollowId)>,
    pub(crate) out: VecDeque<Out>,
    /// Of its `accepted`.
    pub(crate) accepted_seq: u64,
    /// The last numbered line that left.
    pub(crate) seq: u64,
    /// Jobs above it, itself included: they may end before it.
    pub(crate) depth: usize,
    /// Has any attempt begun?
    pub(crate) ran: bool,
    pub(crate) said: Rare<Said>,
    /// What it changed for the later turns of its session.
    pub(crate) repins: Option<Box<Repins>>,
}

/// Other pins for the turns of a session, from a job of it on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Repins {
    /// Those before: they count again when the agent refuses what the job asks for.
    pub(crate) from: Pins,
    /// Those from now on.
    pub(crate) to: Pins,
}

/// A connection that waits for its job's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) stream: bool,
    pub(crate) ignored: Vec<agentd_protocol::request::Ignored>,
}

impl Job {
    /// A job that waits and has said nothing.
    pub(crate) fn new(session: SessionId, terms: Arc<Terms>, now: Duration, expires: u64) -> Self {
        Self {
            number: None,
            session,
            terms,
            given: None,
            weight: 0,
            phase: Phase::Queued,
            attempt: 0,
            accepted_at: now,
            clock: None,
            expires,
            start: None,
            accept: None,
            sender: None,
            followers: BTreeSet::new(),
            out: VecDeque::new(),
            accepted_seq: 0,
            seq: 0,
            depth: 1,
            ran: false,
            said: Rare::default(),
            repins: None,
        }
    }

    pub(crate) fn process(&self) -> Option<Process> {
        match &self.phase {
            Phase::Pending { placed, .. } => *placed,
            Phase::Marking { process, .. }
            | Phase::Running { process }
            | Phase::Settling { process, .. } => Some(*process),
            Phase::Scheduled | Phase::Queued | Phase::Held | Phase::Finishing => None,
        }
    }

    /// Has its first byte gone to a worker?
    pub(crate) const fn began(&self) -> bool {
        matches!(self.phase, Phase::Running { .. } | Phase::Settling { .. })
    }

    /// What was said so far is of an attempt that is over.
    pub(crate) fn restart(&mut self) {
        self.said.superseded = true;
        self.clock = None;
        self.said.started_at = None;
    }

    /// Did its sender say that it may run again after it was interrupted? Three times at most, as it
    /// may be what kills its agent.
    pub(crate) fn may_run_again(&self) -> bool {
        self.terms.retry == Retry::Auto && self.attempt < ATTEMPTS
    }

    /// The next attempt begins: what the one before it said is replaced. Until then it is all that
    /// the turn has said.
    pub(crate) fn begin_again(&mut self) {
        if std::mem::take(&mut self.said.superseded) {
            self.said.steered.clear();
            for message in &mut self.said.messages {
                message.replaced = true;
            }
        }
    }

    pub(crate) fn begin_message(&mut self, replaces_last: bool, native: bool) {
        let last = self
            .said
            .messages
            .len()
            .checked_sub(1)
            .filter(|_| replaces_last);
        if let Some(last) = last {
            self.said.messages[last].replaced = true;
        }
        let replaces = last.and_then(|last| u32::try_from(last).ok());
        self.said.messages.push(Message {
            native,
            replaces,
            ..Message::default()
        });
    }

    /// Appends to the last message; one begins by itself where none was announced.
    pub(crate) fn append(&mut self, kind: TextKind, text: &str, native: bool) {
        if self
            .said
            .messages
            .last()
            .is_none_or(|message| message.replaced)
        {
            let replaces = !self.said.messages.is_empty();
            self.begin_message(replaces, native);
        }
        self.said.bytes = self.said.bytes.saturating_add(text.len());
        if let Some(message) = self.said.messages.last_mut() {
            message.native &= native || message.text.is_empty();
            match kind {
                TextKind::Text => message.text.push_str(text),
                TextKind::Thinking => message.thinking.push_str(text),
            }
            self.said.text_unstored += text.len();
        }
    }

    /// Where the text is now.
    pub(crate) fn position(&self) -> Position {
        Position {
            messages: self.said.messages.len(),
            text: self
                .said
                .messages
                .last()
                .map_or(0, |message| message.text.len()),
            thinking: self
                .said
                .messages
                .last()
                .map_or(0, |message| message.thinking.len()),
        }
    }

    /// The answer: the last message that was not replaced.
    pub(crate) fn answer(&self) -> &str {
        self.said
            .messages
            .iter()
            .rev()
            .find(|message| !message.replaced)
            .map_or("", |message| &message.text)
    }

    /// Puts text that was not ordered yet into the store, so many bytes of it, or a character more;
    /// counts it as flushed.
    pub(crate) fn text_writes(&mut self, job: JobId, mut most: usize) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut ordered = 0;
        for (number, message) in (0..).zip(&mut self.said.messages) {
            for (kind, text, flushed) in [
                (TextKind::Text, &message.text, &mut message.flushed_text),
                (
                    TextKind::Thinking,
                    &message.thinking,
                    &mut message.flushed_thinking,
                ),
            ] {
                // Up, not down: with less room than one character takes nothing would ever be
                // ordered.
                let end = text.ceil_char_boundary(flushed.saturating_add(most));
                if *flushed < end {
                    let piece = text[*flushed..end].to_owned();
                    most = most.saturating_sub(piece.len());
                    ordered += piece.len();
                    writes.push(Write::Text {
                        job,
                        message: number,
                        kind,
                        offset: *flushed as u64,
                        text: piece,
                    });
                    *flushed = end;
                }
            }
        }
        self.said.text_unstored = self.said.text_unstored.saturating_sub(ordered);
        writes
    }

    /// Is enough text unflushed that it should not wait for the timer?
    pub(crate) fn flush_due(&self) -> bool {
        self.said.messages.last().is_some_and(|message| {
            message.text.len() - message.flushed_text + message.thinking.len()
                - message.flushed_thinking
                >= TEXT_FLUSH_BYTES
        })
    }

    /// What is written with the job's end: the text that the store lacks if there is much of it,
    /// otherwise all of it, in place of the pieces: that makes one of many.
    pub(crate) fn last_writes(&mut self, job: JobId) -> (Vec<Write>, Option<Vec<MessageText>>) {
        let messages = self.said.messages.iter();
        let bytes: usize = messages
            .map(|message| message.text.len() + message.thinking.len())
            .sum();
        // A short text is read back as one row then. A long one would be written twice, in a commit
        // that all others wait for; one with a lost piece has to be.
        if bytes > TEXT_REWRITTEN && !self.said.text_lost {
            (self.text_writes(job, usize::MAX), None)
        } else {
            (Vec::new(), Some(self.texts()))
        }
    }

    /// The whole text by message.
    fn texts(&self) -> Vec<MessageText> {
        let mut texts = Vec::new();
        for (number, message) in (0..).zip(&self.said.messages) {
            for (kind, text) in [
                (TextKind::Text, &message.text),
                (TextKind::Thinking, &message.thinking),
            ] {
                if !text.is_empty() {
                    texts.push(MessageText {
                        message: number,
                        kind,
                        text: text.clone(),
                    });
                }
            }
        }
        texts
    }

    /// Takes back what an earlier process stored: the text, and what the tools did. Returns the
    /// questions that nobody closed.
    pub(crate) fn restore(&mut self, so_far: SoFar) -> BTreeSet<QuestionId> {
        let mut asked = BTreeSet::new();
        for (seq, body) in so_far.events {
            self.seq = self.seq.max(seq);
            self.restore_event(&body, &mut asked);
        }
        for stored in so_far.texts {
            let number = stored.message as usize;
            // A lying store must not make us allocate.
            if number > self.said.messages.len() {
                continue;
            }
            if number == self.said.messages.len() {
                self.said.messages.push(Message::default());
            }
            // What the store gave back counts as flushed, so that it isn't written once more.
            let message = &mut self.said.messages[number];
            match stored.kind {
                TextKind::Text => {
                    (message.flushed_text, message.text) = (stored.text.len(), stored.text)
                }
                TextKind::Thinking => {
                    (message.flushed_thinking, message.thinking) = (stored.text.len(), stored.text)
                }
            }
        }
        // Whoever follows it from here on begins with this.
        if !self.said.messages.is_empty() {
            self.said.delivered = self.position();
        }
        asked
    }

    fn restore_event(&mut self, body: &Body, asked: &mut BTreeSet<QuestionId>) {
        match serde_json::from_str::<Line>(body.as_json()) {
            Ok(Line::ToolStart {
                tool_call_id,
                name,
                input,
                kind,
                locations,
                ..
            }) => {
                let trace = ToolTrace {
                    tool_call_id,
                    name,
                    input,
                    ok: None,
                    output: String::new(),
                    truncated: false,
                    duration_ms: None,
                    sandbox: None,
                    kind,
                    locations,
                    diff: Vec::new(),
                };
                self.said.tools.push((trace, Duration::ZERO));
            }
            Ok(Line::ToolEnd {
                tool_call_id,
                ok,
                output,
                truncated,
                duration_ms,
                sandbox,
                diff,
                ..
            }) => {
                let mut tools = self.said.tools.iter_mut().rev();
                if let Some((trace, _)) =
                    tools.find(|(trace, _)| trace.tool_call_id == tool_call_id)
                {
                    trace.ok = Some(ok);
                    trace.output = output;
                    trace.truncated |= truncated;
                    trace.duration_ms = Some(duration_ms);
                    trace.sandbox = sandbox;
                    trace.diff = diff;
                }
            }
            Ok(Line::Question { question_id, .. }) => {
                if let Some(question) = QuestionId::parse(&question_id) {
                    // Another attempt's questions have other names.
                    self.said.questions = self.said.questions.max(question.number);
                    asked.insert(question);
                }
            }
            Ok(Line::QuestionClosed { question_id, .. }) => {
                asked.retain(|question| question.to_string() != question_id);
            }
            _ => {}
        }
    }

    /// The turn as a worker gets it.
    pub(crate) fn prompt(
        &self,
        turn: TurnId,
        session: &Session,
        native: Option<&str>,
        given: Send,
        begins: Option<Begins>,
    ) -> Option<Prompt> {
        Some(Prompt {
            turn,
            job: self.number?,
            session: session.shown(),
            text: given.text,
            attachments: match given.attachments.as_slice() {
                [] => Attachments::None,
                _ => Attachments::InStore,
            },
            provider: given.provider,
            model: given.model,
            thinking: given.thinking,
            mode: None,
            fallback_chain: given.fallback_chain,
            forks: native.is_some() && session.is_copied(),
            native: native.map(str::to_owned),
            begins: begins.map(Box::new),
            cwd: session.cwd.clone(),
            toolsets: session.toolsets.clone(),
            mcp_servers: session.mcp_servers.clone(),
        })
    }
}

/// Jobs that are accepted together or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) turns: Vec<TurnId>,
    /// The `dispatch` they are of; a single send has none.
    pub(crate) dispatch: Option<u64>,
}

impl Job {
    /// What a final line that lists the messages may say of a steer.
    pub(crate) fn keeps(&self, steer: &str) -> String {
        let kept: usize = self.said.steered.iter().map(|(_, text)| text.len()).sum();
        let room = MESSAGES_BYTES.saturating_sub(kept);
        if !self.terms.wants_messages() || room == 0 {
            return String::new();
        }
        head_and_tail(steer.to_owned(), room).0
    }

    pub(crate) fn took(&mut self, steer: &str) {
        let steer = self.keeps(steer);
        if !steer.is_empty() {
            // So it stands between the messages before and behind which the agent took it.
            let before = self.said.messages.len();
            self.said.steered.push((before, steer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_waiting_job_is_small() {
        assert!(size_of::<Job>() <= 320, "{}", size_of::<Job>());
    }

    #[test]
    fn memory_of_what_is_said_begins_with_it() {
        let mut job = Job::new(SessionId(1), Arc::default(), Duration::ZERO, 0);
        assert_eq!(job.restore(SoFar::default()), BTreeSet::new());
        assert_eq!((job.answer(), job.texts()), ("", Vec::new()));
        assert!(job.said.other().is_none());
        assert!(job.said.tools.is_empty() && job.position() == Position::default());
        job.append(TextKind::Text, "x", true);
        assert_eq!((job.answer(), job.said.bytes), ("x", 1));
    }
}
