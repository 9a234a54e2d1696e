//! What a process says, in the core's words, and what it is told, in its own.
//!
//! Owns the adapter, the lines of standard output, the tail, and what waits to be told in either
//! direction. Must not know pipes or tasks.

use std::collections::VecDeque;

use agentd_core::event::Event;
use agentd_core::ids::{Generation, WorkerId};
use agentd_core::worker::{Exit, WorkerCommand, WorkerEvent};
use agentd_protocol::Decoder;
use agentd_protocol::frame::Frame;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::line::Level;

use super::tail::Tail;
use crate::adapter::{Adapter, Framing};

/// Pieces of text are merged up to this size while they wait, so that a chatty process costs the
/// owner one event per read.
const MERGED: usize = 32 * 1024;

pub(super) struct WorkerIo {
    worker: WorkerId,
    generation: Generation,
    adapter: Box<dyn Adapter>,
    decoder: Decoder,
    tail: Tail,
    outbox: VecDeque<Event>,
    write: Vec<u8>,
    written: usize,
    /// How many of the bytes that wait, at the most, answer what the process said itself.
    answers: usize,
    heard: Vec<WorkerEvent>,
    ready: bool,
    /// Why it is ended, if it is because it hung.
    stuck: Option<String>,
    input_gone: bool,
    owner_gone: bool,
}

impl WorkerIo {
    pub(super) fn new(worker: WorkerId, generation: Generation, adapter: Box<dyn Adapter>) -> Self {
        Self {
            worker,
            generation,
            adapter,
            decoder: Decoder::new(MAX_LINE_IN),
            tail: Tail::default(),
            outbox: VecDeque::new(),
            write: Vec::new(),
            written: 0,
            answers: 0,
            heard: Vec::new(),
            ready: false,
            stuck: None,
            input_gone: false,
            owner_gone: false,
        }
    }

    /// Did it ever say that it is ready?
    pub(super) fn was_ready(&self) -> bool {
        self.ready
    }

    /// Bytes for standard input.
    pub(super) fn to_write(&self) -> &[u8] {
        &self.write[self.written..]
    }

    /// So many of them were taken.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.write.len() {
            // A large prompt's buffer is given back.
            self.write = Vec::new();
            self.written = 0;
        }
        // What is fed after this is no answer.
        self.answers = self.answers();
    }

    /// Bytes for standard input that answer what the process said itself.
    pub(super) fn answers(&self) -> usize {
        self.answers.min(self.to_write().len())
    }

    /// Standard input is closed: nothing more can be told.
    pub(super) fn mute_input(&mut self) {
        self.input_gone = true;
        self.write = Vec::new();
        self.written = 0;
    }

    /// The owner is gone: nobody wants to hear anything.
    pub(super) fn mute(&mut self) {
        self.owner_gone = true;
        self.outbox = VecDeque::new();
    }

    /// Passes a command on.
    pub(super) fn tell(&mut self, command: &WorkerCommand) {
        if matches!(command, WorkerCommand::Prompt(_)) {
            failpoint!("before-prompt");
            self.tail.turn_began();
        }
        let mut write = std::mem::take(&mut self.write);
        self.adapter.encode(command, &mut self.heard, &mut write);
        wrong!("tell-twice", write.extend_from_within(..));
        self.write = write;
        self.settle();
    }

    /// Bytes of standard output.
    pub(super) fn heard(&mut self, bytes: &[u8]) {
        failpoint!("worker-heard");
        match self.adapter.framing() {
            Framing::Raw => self.decode(bytes),
            Framing::Lines => {
                let mut frames = Vec::new();
                self.decoder.push(bytes, &mut frames);
                for frame in frames {
                    match frame {
                        Frame::Line(line) => self.decode(&line),
                        Frame::TooLong => {
                            self.heard.push(too_long());
                            if let Some(line) = self.adapter.instead_of(self.decoder.skipped()) {
                                self.decode(line.to_string().as_bytes());
                            }
                        }
                    }
                    self.settle();
                }
            }
        }
        self.settle();
    }

    /// Bytes of standard error.
    pub(super) fn grumbled(&mut self, bytes: &[u8]) {
        self.tail.push(bytes);
    }

    /// Neither pipe gives any more, and the process is gone.
    pub(super) fn finish(&mut self, exit: Exit) {
        if let Some(rest) = self.decoder.finish() {
            // A line cut off by the death must not pass for a whole one; an object ends itself.
            if is_object(&rest) {
                self.decode(&rest);
                self.settle();
            } else {
                self.tail.push_line(&rest);
            }
        }
        let tail = self.tail.text();
        let last_words = match &self.stuck {
            // Its own last words first: they may say why it hung.
            Some(why) => format!("{tail}agentd ended it: {why}"),
            None => tail.clone(),
        };
        self.adapter.exited(exit, &last_words, &mut self.heard);
        self.settle();
        self.post(Event::Exited {
            worker: self.worker,
            generation: self.generation,
            exit,
            tail,
        });
    }

    /// The process doesn't take or give what it should, and is ended for that.
    pub(super) fn stuck(&mut self, why: &str) {
        self.stuck = Some(why.to_owned());
        self.post(Event::WorkerStuck {
            worker: self.worker,
            generation: self.generation,
            why: why.to_owned(),
        });
    }

    /// Tells the owner something in the process's stead.
    pub(super) fn say(&mut self, event: WorkerEvent) {
        self.heard.push(event);
        self.settle();
    }

    /// Tells the owner.
    pub(super) fn post(&mut self, event: Event) {
        if !self.owner_gone {
            self.outbox.push_back(event);
        }
    }

    /// Events that wait to be told.
    pub(super) fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// The oldest of them.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.outbox.pop_front()
    }

    fn decode(&mut self, bytes: &[u8]) {
        let before = self.write.len();
        self.adapter.decode(bytes, &mut self.heard, &mut self.write);
        self.answers += self.write.len().saturating_sub(before);
    }

    fn settle(&mut self) {
        if self.input_gone {
            self.write.clear();
        }
        for event in std::mem::take(&mut self.heard) {
            self.ready |= matches!(event, WorkerEvent::Ready(_));
            if matches!(event, WorkerEvent::Ended { .. }) {
                self.tail.turn_ended();
            }
            match event {
                WorkerEvent::Logged { line } => self.tail.push_line(line.as_bytes()),
                event => {
                    let merged = match self.outbox.back_mut() {
                        Some(Event::Worker { event: last, .. }) => merge(last, event),
                        _ => Some(event),
                    };
                    if let Some(event) = merged {
                        self.post(Event::Worker {
                            worker: self.worker,
                            generation: self.generation,
                            event,
                        });
                    }
                }
            }
        }
    }
}

/// Appends `next` to `last` where both are text of the same message; else gives it back.
fn merge(last: &mut WorkerEvent, next: WorkerEvent) -> Option<WorkerEvent> {
    use WorkerEvent::{Text, Thinking};
    let (last, more) = match (last, &next) {
        (
            Text { turn, text, native },
            Text {
                turn: turn2,
                text: more,
                native: native2,
            },
        ) if turn == turn2 && native == native2 => (text, more),
        (
            Thinking { turn, text },
            Thinking {
                turn: turn2,
                text: more,
            },
        ) if turn == turn2 => (text, more),
        _ => return Some(next),
    };
    if last.len() + more.len() > MERGED {
        return Some(next);
    }
    last.push_str(more);
    None
}

fn too_long() -> WorkerEvent {
    WorkerEvent::Noted {
        turn: None,
        level: Level::Warning,
        code: "frame-too-long",
        text: format!("a line of the agent was longer than {MAX_LINE_IN} bytes and was skipped"),
    }
}

fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
        && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}
