//! What a turn has said so far.
//!
//! Owns the data, and that it takes no memory before a turn says anything. Must not know who hears it.

use std::time::Duration;

use agentd_protocol::line::{Context, Level, ToolTrace};
use agentd_protocol::spoken::call;
use agentd_protocol::{Body, Code};

use crate::ids::Token;
use crate::rare::Usual;
use crate::store::Position;

/// A line that waits for its turn to leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Out {
    /// A numbered event whose commit is outstanding.
    Numbered { token: Token, body: Body },
    /// A numbered event that is committed.
    Committed { seq: u64, body: Body },
    /// A line without a number.
    Plain(Body),
    /// The text so far, up to here.
    Text(Position),
}

/// One assistant message.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) native: bool,
    pub(crate) replaces: Option<u32>,
    pub(crate) replaced: bool,
    pub(crate) flushed_text: usize,
    pub(crate) flushed_thinking: usize,
}

/// What a turn has said, and how it goes on.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Said {
    pub(crate) started_at: Option<Duration>,
    pub(crate) queued_for: Duration,
    pub(crate) progress_at: Duration,
    pub(crate) stalled: bool,
    pub(crate) messages: Vec<Message>,
    /// Bytes of text that the store was given and has not answered.
    pub(crate) text_on_its_way: usize,
    /// And so much was not even ordered.
    pub(crate) text_unstored: usize,
    /// Did the store give up a piece?
    pub(crate) text_lost: bool,
    /// Where the text is that left.
    pub(crate) delivered: Position,
    pub(crate) tools: Vec<(ToolTrace, Duration)>,
    /// Steers that its agent took, each with how many messages had begun; kept for a final line that
    /// lists the messages.
    pub(crate) steered: Vec<(usize, String)>,
    pub(crate) bytes: usize,
    pub(crate) context: Option<Context>,
    pub(crate) questions: u64,
    /// Does the next attempt replace what was said so far?
    pub(crate) superseded: bool,
    /// Its final line, while that is being committed.
    pub(crate) last: Option<Body>,
}

/// Of a turn that waits.
impl Usual for Said {
    fn usual() -> &'static Self {
        static NOTHING: Said = Said {
            started_at: None,
            queued_for: Duration::ZERO,
            progress_at: Duration::ZERO,
            stalled: false,
            messages: Vec::new(),
            text_on_its_way: 0,
            text_unstored: 0,
            text_lost: false,
            delivered: Position {
                messages: 0,
                text: 0,
                thinking: 0,
            },
            tools: Vec::new(),
            steered: Vec::new(),
            bytes: 0,
            context: None,
            questions: 0,
            superseded: false,
            last: None,
        };
        &NOTHING
    }
}

impl Said {
    /// What its agent does, in a few words for people; none before it says anything.
    pub(crate) fn doing(&self) -> Option<String> {
        let mut tools = self.tools.iter().rev();
        if let Some((open, _)) = tools.find(|(tool, _)| tool.ok.is_none()) {
            return Some(call(&open.name, &open.input));
        }
        let last = self.messages.last()?;
        let thinks = last.text.is_empty() && !last.thinking.is_empty();
        Some(if thinks { "thinking" } else { "answering" }.to_owned())
    }
}

/// A note's content, before it belongs to a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Notice {
    pub(crate) level: Level,
    pub(crate) code: String,
    pub(crate) text: String,
}

impl Notice {
    pub(crate) fn info(code: &str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Info,
            ..Self::warning(code, text)
        }
    }

    pub(crate) fn warning(code: &str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            code: code.to_owned(),
            text: text.into(),
        }
    }

    pub(crate) fn of(code: Code, text: impl Into<String>) -> Self {
        Self::warning(code.name(), text)
    }
}
