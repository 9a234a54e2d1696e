//! What is said while the agent works.
//!
//! Owns the two queues and how much of one goes at once. Must not know how it goes.

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
}

/// Words to the turn that runs, and what comes after it.
#[derive(Default, Debug)]
pub(super) struct Queue {
    pub(super) steering: Vec<String>,
    pub(super) follow_up: Vec<String>,
    pub(super) steering_mode: Mode,
    pub(super) follow_up_mode: Mode,
}

impl Queue {
    pub(super) fn event(&self) -> Value {
        json!({"type": "queue_update", "steering": self.steering, "followUp": self.follow_up})
    }

    pub(super) const fn len(&self) -> usize {
        self.steering.len() + self.follow_up.len()
    }

    /// What the next turn says: words that came too late for the one before are the first of it.
    pub(super) fn next(&mut self) -> Option<String> {
        match self.steering.is_empty() {
            false => take(&mut self.steering, self.steering_mode),
            true => self.next_follow_up(),
        }
    }

    pub(super) fn next_follow_up(&mut self) -> Option<String> {
        take(&mut self.follow_up, self.follow_up_mode)
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

fn take(queue: &mut Vec<String>, mode: Mode) -> Option<String> {
    let count = match mode {
        Mode::All => queue.len(),
        Mode::OneAtATime => queue.len().min(1),
    };
    let texts: Vec<String> = queue.drain(..count).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}
