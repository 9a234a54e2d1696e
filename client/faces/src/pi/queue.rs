//! What is said while the agent works.
//!
//! Owns the queues and how much of one goes at once. Must not know how it goes.

use std::collections::VecDeque;

use agentd_protocol::JobId;
use agentd_protocol::attachment::Attachment;
use serde_json::{Value, json};

use super::commands::{Command, Reply};

/// How much goes at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Mode {
    All,
    #[default]
    OneAtATime,
}

impl Mode {
    pub(super) fn read(command: &Command) -> Result<Self, Reply> {
        match command.fields.get("mode").and_then(Value::as_str) {
            Some("all") => Ok(Self::All),
            Some("one-at-a-time") => Ok(Self::OneAtATime),
            _ => Err(Reply::failed("`mode` is needed: `all` or `one-at-a-time`")),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::OneAtATime => "one-at-a-time",
        }
    }

    /// How many of so many.
    fn of(self, count: usize) -> usize {
        match self {
            Self::All => count,
            Self::OneAtATime => count.min(1),
        }
    }
}

/// What a turn is to say.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) text: String,
    pub(super) pictures: Vec<Attachment>,
}

impl Words {
    pub(super) fn of(text: String) -> Self {
        let pictures = Vec::new();
        Self { text, pictures }
    }
}

/// A turn that waits with the daemon.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub(super) job: JobId,
    pub(super) text: String,
}

/// Words to the turn that runs, and what comes after it.
#[derive(Default, Debug)]
pub(super) struct Queue {
    pub(super) steering: Vec<String>,
    /// What the turn that runs couldn't be told: the next one says it first.
    pub(super) unsteered: Vec<Words>,
    /// What an earlier client left.
    pub(super) left: VecDeque<Left>,
    pub(super) follow_up: Vec<Words>,
    pub(super) steering_mode: Mode,
    pub(super) follow_up_mode: Mode,
}

impl Queue {
    fn behind(&self) -> Vec<&str> {
        let unsteered = self.unsteered.iter().map(|words| &*words.text);
        let left = self.left.iter().map(|left| &*left.text);
        let follow_up = self.follow_up.iter().map(|words| &*words.text);
        unsteered.chain(left).chain(follow_up).collect()
    }

    /// All that waits, by its texts.
    pub(super) fn listed(&self) -> Value {
        json!({"steering": self.steering, "followUp": self.behind()})
    }

    pub(super) fn event(&self) -> Value {
        let mut event = self.listed();
        event["type"] = json!("queue_update");
        event
    }

    pub(super) fn len(&self) -> usize {
        self.steering.len() + self.behind().len()
    }

    /// Takes everything out; what waits with the daemon goes on waiting there.
    pub(super) fn clear(&mut self) {
        self.steering.clear();
        self.unsteered.clear();
        self.left.clear();
        self.follow_up.clear();
    }

    /// Takes out what waits here and not with the daemon, by its texts.
    pub(super) fn take_own(&mut self) -> Vec<String> {
        let behind = self.unsteered.drain(..).chain(self.follow_up.drain(..));
        let behind = behind.map(|words| words.text);
        self.steering.drain(..).chain(behind).collect()
    }

    /// What the next turn says: words that came too late for the one before are the first of it.
    pub(super) fn next(&mut self) -> Option<Words> {
        if self.unsteered.is_empty() {
            let count = self.steering_mode.of(self.steering.len());
            let late = self.steering.drain(..count).map(Words::of);
            self.unsteered.extend(late);
        }
        self.next_behind()
    }

    /// The same without words that the turn that runs may still be told.
    pub(super) fn next_behind(&mut self) -> Option<Words> {
        match self.unsteered.is_empty() {
            false => take(&mut self.unsteered, self.steering_mode),
            true => take(&mut self.follow_up, self.follow_up_mode),
        }
    }

    /// A word that was taken, or can't be.
    pub(super) fn remove_steer(&mut self, text: &str) -> bool {
        let at = self.steering.iter().position(|one| one == text);
        at.is_some_and(|at| {
            self.steering.remove(at);
            true
        })
    }
}

fn take(queue: &mut Vec<Words>, mode: Mode) -> Option<Words> {
    let count = mode.of(queue.len());
    let (mut texts, mut pictures) = (Vec::new(), Vec::new());
    for words in queue.drain(..count) {
        texts.push(words.text);
        pictures.extend(words.pictures);
    }
    let text = texts.join("\n\n");
    (count > 0).then_some(Words { text, pictures })
}
