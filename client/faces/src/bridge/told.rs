//! What an agent says, as a host is told it: pieces, their end, the whole.
//!
//! Owns the order of these, and that a message is passed on as it comes or cut when it is finished,
//! never both. Must not know sessions, requests or failures.

use serde_json::{Value, json};

use super::request::Form;

/// An event: its type and its fields.
pub(super) type Event = (&'static str, Value);

/// The messages of a turn.
#[derive(Debug)]
pub(super) struct Told {
    form: Form,
    /// The one that is being said.
    open: Option<Message>,
    /// The text of the last message that had any.
    last: String,
}

#[derive(Default, Debug)]
struct Message {
    text: String,
    /// Is it passed on as it comes? Its first piece decides.
    native: Option<bool>,
    deltas: usize,
    has_thought: bool,
}

impl Told {
    pub(super) const fn new(form: Form) -> Self {
        Self {
            form,
            open: None,
            last: String::new(),
        }
    }

    /// What was said last: all that is known of a turn whose daemon didn't outlive it.
    pub(super) fn last(&self) -> &str {
        &self.last
    }

    /// A message begins.
    pub(super) fn begins(&mut self, events: &mut Vec<Event>) {
        self.ends("stop", events);
        self.open = Some(Message::default());
    }

    pub(super) fn text(&mut self, text: &str, streams: bool, events: &mut Vec<Event>) {
        let message = self.open.get_or_insert_default();
        message.text.push_str(text);
        if *message.native.get_or_insert(streams && self.form.native) {
            message.deltas += 1;
            events.push(delta(text, message.deltas, Cut::No));
        }
    }

    pub(super) fn thought(&mut self, text: &str, events: &mut Vec<Event>) {
        self.open.get_or_insert_default().has_thought = true;
        if self.form.native {
            events.push(("reasoning_delta", json!({"delta": text})));
        }
    }

    /// What was said is replaced by another message: what the host has of it has an end, and isn't
    /// said once more as a whole.
    pub(super) fn is_replaced(&mut self, events: &mut Vec<Event>) {
        if let Some(message) = self.open.take().filter(|message| message.deltas > 0) {
            events.push(message.end("replaced"));
        }
    }

    /// The message ends, for this reason.
    pub(super) fn ends(&mut self, reason: &str, events: &mut Vec<Event>) {
        let Some(mut message) = self.open.take() else {
            return;
        };
        let calls = reason == TOOL_CALLS;
        if message.text.is_empty() && !message.has_thought && !calls {
            return;
        }
        if message.native != Some(true)
            && let Some(size) = self.form.cut
        {
            for piece in pieces(&message.text, size) {
                message.deltas += 1;
                events.push(delta(piece, message.deltas, Cut::Yes));
            }
        }
        if message.deltas > 0 {
            events.push(message.end(reason));
        }
        let whole = json!({
            "content": message.text,
            "has_tool_calls": calls,
            "finish_reason": reason,
            "reasoning_present": message.has_thought,
        });
        events.push(("assistant_message", whole));
        if !message.text.is_empty() {
            self.last = message.text;
        }
    }

    /// The turn has this text: what of it was never told, as by a daemon that came later, is now.
    pub(super) fn completed(&mut self, text: &str, events: &mut Vec<Event>) {
        if !self.last.is_empty() {
            return;
        }
        let said = self.open.as_ref().map_or("", |message| &message.text);
        if let Some(rest) = text.strip_prefix(said).filter(|rest| !rest.is_empty()) {
            self.text(rest, false, events);
        }
    }
}

/// Why a message ends that tools follow.
pub(super) const TOOL_CALLS: &str = "tool_calls";

impl Message {
    fn end(&self, reason: &str) -> Event {
        let end = json!({
            "delta_chunks": self.deltas,
            "has_tool_calls": reason == TOOL_CALLS,
            "finish_reason": reason,
            "reasoning_present": self.has_thought,
            "native": self.native == Some(true),
        });
        ("assistant_message_end", end)
    }
}

/// Was a piece cut from finished text?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Yes,
    No,
}

fn delta(text: &str, index: usize, cut: Cut) -> Event {
    let fields = json!({"delta": text, "delta_index": index, "native": cut == Cut::No});
    ("assistant_delta", fields)
}

/// Pieces of so many characters, and a last one.
fn pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest
            .char_indices()
            .nth(size)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, more) = rest.split_at(end);
        rest = more;
        (!piece.is_empty()).then_some(piece)
    })
}
