//! Kind `exec`: any command, a process per turn; its output is the text.
//!
//! Owns placeholders, the text's decoding and its limit. Must not know how processes are run.

mod openclaw;

pub use openclaw::Openclaw;

use std::time::Duration;

use agentd_core::agent::{
    Capabilities, Levels, Modes, Providers, Reports, Resume, Sessions, SystemText,
};
use agentd_core::attached::AttachmentSupport;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::mcp::McpServing;
use agentd_core::toolsets::Toolsets;
use agentd_core::worker::{Exit, Failure, Outcome, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::limits::MAX_TEXT;
use agentd_protocol::line::{CostStatus, Level, Stop};

use super::{Adapter, Framing, Launch};

/// The end of a text that is longer than [`MAX_TEXT`]: results tend to stand there.
const TAIL: usize = 64 * 1024;
/// Bytes of standard error in a failure's sentence: more is in `status`.
const STDERR: usize = 2 * 1024;

/// What a command's output is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Output {
    /// The text, as it is.
    #[default]
    Text,
    /// The object of `openclaw agent --json`.
    Openclaw,
}

impl Output {
    /// Every one.
    pub const ALL: &[Output] = &[Output::Text, Output::Openclaw];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Openclaw => "openclaw",
        }
    }
}

/// What the kind can do when run as `command`.
#[must_use]
pub fn describe(command: &[String]) -> Capabilities {
    let keeps_sessions = command
        .iter()
        .any(|argument| argument.contains("{session}"));
    let has_model = command.iter().any(|argument| argument.contains("{model}"));
    Capabilities {
        sessions: Sessions::PerTurn,
        resume: if keeps_sessions {
            Resume::Native
        } else {
            Resume::Stateless
        },
        cancels: false,
        recycles: false,
        model_per_turn: true,
        thinking_per_turn: true,
        switches: false,
        models: has_model,
        providers: Providers::None,
        thinking: Levels::None,
        modes: Modes::None,
        toolsets: Toolsets::None,
        fallback_chain: false,
        system: SystemText::InPrompt,
        history: false,
        mcp: McpServing::Never,
        forks: false,
        steers: false,
        lists_models: false,
        lists_commands: false,
        compacts: false,
        tells: Reports {
            // Only where its `output` has them.
            usage: true,
            context: false,
            costs: &[CostStatus::Estimated],
            // Where it printed more than is kept.
            stops: &[Stop::EndTurn, Stop::MaxTokens, Stop::Cancelled],
            ..Reports::TEXT
        },
        attachments: AttachmentSupport::Nothing,
        concurrent_sends: 1,
        ready_within: Duration::from_secs(30),
    }
}

/// The command with its placeholders replaced, never by way of a shell.
#[must_use]
pub fn launch(command: &[String], spawn: &Spawn) -> Launch {
    let prompt = spawn.prompt.as_deref();
    let text = prompt.map_or("", |prompt| prompt.text.as_str());
    let session = spawn.resume.as_deref().unwrap_or_default();
    let model = prompt.and_then(|prompt| prompt.model.as_deref());
    let values = [
        ("{prompt}", text),
        ("{session}", session),
        ("{model}", model.or(spawn.model.as_deref()).unwrap_or("")),
        ("{cwd}", &spawn.cwd),
    ];
    let mut argv: Vec<String> = command.iter().take(1).cloned().collect();
    argv.extend(
        command
            .iter()
            .skip(1)
            .filter(|argument| !is_unset(argument, &values))
            .map(|argument| fill(argument, &values)),
    );
    // A command that reads both would get the prompt twice.
    let in_arguments = command
        .iter()
        .skip(1)
        .any(|argument| argument.contains("{prompt}"));
    Launch {
        argv,
        env: Vec::new(),
        // Closed at once, or a command that reads it would wait for ever.
        stdin: Some(if in_arguments {
            Vec::new()
        } else {
            text.as_bytes().to_vec()
        }),
    }
}

/// Is it an option with nothing but an empty value, as `--model={model}` without a model?
fn is_unset(argument: &str, values: &[(&str, &str)]) -> bool {
    let value = argument
        .starts_with('-')
        .then(|| argument.split_once('='))
        .flatten();
    value.is_some_and(|(_, value)| values.contains(&(value, "")) && value != "{prompt}")
}

/// One pass: what was put in is not looked at again.
fn fill(argument: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        match values.iter().find(|(name, _)| from.starts_with(name)) {
            Some((name, value)) => {
                filled.push_str(value);
                rest = &from[name.len()..];
            }
            None => {
                filled.push('{');
                rest = &from[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// A translator for a process whose output is `output`.
#[must_use]
pub fn adapter(output: Output, spawn: &Spawn) -> Box<dyn Adapter> {
    match output {
        Output::Text => Box::new(Exec::new(spawn)),
        Output::Openclaw => Box::new(Openclaw::new(spawn)),
    }
}

/// One process's translator.
pub struct Exec {
    agent: String,
    turn: Option<TurnId>,
    /// The beginning of a character that the next portion will end.
    undecoded: Vec<u8>,
    /// A newline that is dropped if nothing follows.
    newline: bool,
    streamed: usize,
    /// Text beyond the limit, of which the end is kept.
    beyond: String,
    left_out: usize,
}

impl Exec {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        Self {
            agent: spawn.agent.clone(),
            turn: spawn.prompt.as_deref().map(|prompt| prompt.turn),
            undecoded: Vec::new(),
            newline: false,
            streamed: 0,
            beyond: String::new(),
            left_out: 0,
        }
    }

    fn text(&mut self, text: &str, events: &mut Vec<WorkerEvent>) {
        if text.is_empty() {
            return;
        }
        let mut whole = String::with_capacity(text.len() + 1);
        if std::mem::take(&mut self.newline) {
            whole.push('\n');
        }
        whole.push_str(text);
        if whole.ends_with('\n') {
            whole.pop();
            self.newline = true;
        }
        let head = whole.floor_char_boundary(MAX_TEXT.saturating_sub(self.streamed));
        // Once something was kept back, all that follows stands behind it.
        let head = if self.beyond.is_empty() && self.left_out == 0 {
            head
        } else {
            0
        };
        self.streamed += head;
        self.emit(&whole[..head], events);
        if let Some(turn) = self.turn.filter(|_| head < whole.len()) {
            let bytes = whole.len() - head;
            events.push(WorkerEvent::Skipped { turn, bytes });
        }
        self.beyond.push_str(&whole[head..]);
        // Not at `TAIL`: each portion would then move all that is kept.
        if self.beyond.len() > 2 * TAIL {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let from = self
            .beyond
            .floor_char_boundary(self.beyond.len().saturating_sub(TAIL));
        self.beyond.drain(..from);
        self.left_out += from;
    }

    fn emit(&self, text: &str, events: &mut Vec<WorkerEvent>) {
        if text.is_empty() {
            return;
        }
        events.push(match self.turn {
            Some(turn) => WorkerEvent::Text {
                turn,
                text: text.to_owned(),
                native: true,
            },
            None => WorkerEvent::Logged {
                line: text.to_owned(),
            },
        });
    }

    fn failed(&self, exit: Exit, tail: &str) -> Outcome {
        let error = match last_said(tail) {
            "" => format!(
                "agent `{}` {exit} and said nothing on standard error",
                self.agent
            ),
            tail => format!("agent `{}` {exit}: {tail}", self.agent),
        };
        Outcome::failed(Failure::new(Code::AgentFailed, error))
    }
}

/// The end of what was said on standard error.
fn last_said(tail: &str) -> &str {
    let tail = tail.trim();
    &tail[tail.ceil_char_boundary(tail.len().saturating_sub(STDERR))..]
}

impl Adapter for Exec {
    fn framing(&self) -> Framing {
        Framing::Raw
    }

    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, _write: &mut Vec<u8>) {
        let joined;
        let mut bytes = if self.undecoded.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.undecoded).as_slice(), bytes].concat();
            joined.as_slice()
        };
        let mut text = String::with_capacity(bytes.len());
        loop {
            match std::str::from_utf8(bytes) {
                Ok(valid) => {
                    text.push_str(valid);
                    break;
                }
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    // Only cut off, not wrong: the next portion may end it.
                    let Some(bad) = error.error_len() else {
                        self.undecoded = rest.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    bytes = &rest[bad..];
                }
            }
        }
        self.text(&text, events);
    }

    fn exited(&mut self, exit: Exit, tail: &str, events: &mut Vec<WorkerEvent>) {
        // Nothing comes any more that could end this character.
        if !std::mem::take(&mut self.undecoded).is_empty() {
            self.text("\u{fffd}", events);
        }
        if self.beyond.len() > TAIL {
            self.cut();
        }
        let beyond = std::mem::take(&mut self.beyond);
        let left_out = self.left_out;
        if left_out > 0 {
            self.emit(&format!("\n[… {left_out} bytes left out …]\n"), events);
        }
        self.emit(&beyond, events);
        let Some(turn) = self.turn else { return };
        if left_out > 0 {
            events.push(WorkerEvent::Noted {
                turn: Some(turn),
                level: Level::Warning,
                code: "text-cut",
                text: format!(
                    "it printed more than the {} KiB that are kept: {left_out} bytes of its middle \
                     are lost; have it write what is long to a file",
                    (MAX_TEXT + TAIL) / 1024
                ),
            });
        }
        let said = last_said(tail);
        if exit == Exit::Code(0) && self.streamed == 0 && !said.is_empty() {
            events.push(WorkerEvent::Noted {
                turn: Some(turn),
                level: Level::Warning,
                code: "no-text",
                text: format!("it printed nothing; on standard error it said: {said}"),
            });
        }
        let outcome = match exit {
            Exit::Code(0) if left_out > 0 => Outcome::ended(Stop::MaxTokens),
            Exit::Code(0) => Outcome::ended(Stop::EndTurn),
            Exit::Code(_) | Exit::Signal(_) => self.failed(exit, tail),
        };
        events.push(WorkerEvent::Ended {
            turn,
            outcome: Box::new(outcome),
        });
    }
}

#[cfg(test)]
mod tests;
