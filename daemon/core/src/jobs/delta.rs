//! Text as lines: what lies between two places of a turn's text.
//!
//! Owns the cutting. Must not know who reads it.

use std::ops::Range;

use agentd_protocol::{Body, JobId, Line};

use crate::jobs::said::Message;
use crate::store::{Position, TextKind, TextPiece};

/// A delta is cut here: a line must stay far below its limit after escaping.
const DELTA: usize = 64 * 1024;

/// A portion of a text.
#[derive(PartialEq, Eq, Default, Debug)]
pub(crate) struct Spoken {
    /// Each line, and the place that a reader of it has reached.
    pub(crate) lines: Vec<(Body, Position)>,
    /// Is there nothing more?
    pub(crate) whole: bool,
    room: usize,
}

impl Spoken {
    /// The lines from one place to another, but no more than a portion: the last line is the one
    /// with which it exceeds `room` bytes.
    pub(crate) fn between(
        job: JobId,
        messages: &[Message],
        (from, to): (Position, Position),
        room: usize,
    ) -> Self {
        let mut spoken = Self {
            lines: Vec::new(),
            whole: true,
            room,
        };
        // The message in which the reader stands goes on; those before it are complete for it.
        let first = from.messages.saturating_sub(1);
        for (index, message) in messages.iter().enumerate().take(to.messages).skip(first) {
            let continued = index + 1 == from.messages;
            let last = index + 1 == to.messages;
            let span = |len: usize, from: usize, to: usize| {
                let start = if continued { from.min(len) } else { 0 };
                start..(if last { to.min(len) } else { len }).max(start)
            };
            let thinking = span(message.thinking.len(), from.thinking, to.thinking);
            let text = span(message.text.len(), from.text, to.text);
            let at = Position {
                messages: index + 1,
                text: text.start,
                thinking: thinking.start,
            };
            spoken.message(job, message, !continued, (at, thinking, text));
        }
        spoken
    }

    /// The lines of a portion of a finished job's text, which begins at a place.
    pub(crate) fn of_stored(job: JobId, portion: &[TextPiece], mut at: Position) -> Self {
        let mut spoken = Self {
            lines: Vec::new(),
            whole: true,
            room: usize::MAX,
        };
        for stored in portion {
            while at.messages <= stored.message as usize {
                at = Position {
                    messages: at.messages + 1,
                    ..Position::default()
                };
                let line = Line::MessageStart {
                    job,
                    message: number(at),
                    role: "assistant".to_owned(),
                    replaces: None,
                };
                spoken.add(|| line, at);
            }
            for piece in pieces(&stored.text, 0..stored.text.len()) {
                let text = stored.text[piece.clone()].to_owned();
                let offset = (stored.at + piece.start) as u64;
                let end = stored.at + piece.end;
                let line = match stored.kind {
                    TextKind::Text => {
                        at.text = end;
                        Line::MessageDelta {
                            job,
                            message: number(at),
                            offset,
                            text,
                            native: false,
                        }
                    }
                    TextKind::Thinking => {
                        at.thinking = end;
                        Line::ThinkingDelta {
                            job,
                            message: number(at),
                            offset,
                            text,
                        }
                    }
                };
                spoken.add(|| line, at);
            }
        }
        spoken
    }

    fn message(
        &mut self,
        job: JobId,
        message: &Message,
        begins: bool,
        (mut at, thinking, text): (Position, Range<usize>, Range<usize>),
    ) {
        let number = number(at);
        if begins {
            let line = Line::MessageStart {
                job,
                message: number,
                role: "assistant".to_owned(),
                replaces: message.replaces,
            };
            self.add(|| line, at);
        }
        for piece in pieces(&message.thinking, thinking) {
            at.thinking = piece.end;
            let line = || Line::ThinkingDelta {
                job,
                message: number,
                offset: piece.start as u64,
                text: message.thinking[piece.clone()].to_owned(),
            };
            self.add(line, at);
        }
        for piece in pieces(&message.text, text) {
            at.text = piece.end;
            let line = || Line::MessageDelta {
                job,
                message: number,
                offset: piece.start as u64,
                text: message.text[piece.clone()].to_owned(),
                native: message.native,
            };
            self.add(line, at);
        }
    }

    fn add(&mut self, line: impl FnOnce() -> Line, after: Position) {
        // The line that exceeds the room is the last one, not left out: a portion without any line
        // would never end.
        if self.room == 0 {
            self.whole = false;
            return;
        }
        let body = line().body();
        self.room = self.room.saturating_sub(body.as_json().len());
        self.lines.push((body, after));
    }
}

/// Of the message that is the last one there.
fn number(at: Position) -> u32 {
    u32::try_from(at.messages.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Cuts a span of text at character boundaries.
fn pieces(text: &str, span: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut start = text.floor_char_boundary(span.start);
    let end = text.floor_char_boundary(span.end);
    std::iter::from_fn(move || {
        let from = start;
        start = text.floor_char_boundary((from + DELTA).min(end));
        (from < end).then_some(from..start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(messages: usize, text: usize, thinking: usize) -> Position {
        Position {
            messages,
            text,
            thinking,
        }
    }

    fn message(text: &str, thinking: &str) -> Message {
        Message {
            text: text.to_owned(),
            thinking: thinking.to_owned(),
            native: true,
            ..Message::default()
        }
    }

    fn shown(from: Position, to: Position) -> Vec<String> {
        let messages = [message("hello", "hm"), message("wörld", "")];
        let spoken = Spoken::between(JobId(1), &messages, (from, to), usize::MAX);
        let lines = spoken.lines.iter();
        lines
            .map(|(body, _)| {
                body.as_json()
                    .replace(r#""job":"j1","#, "")
                    .replace(r#","native":true"#, "")
            })
            .collect()
    }

    #[test]
    fn delta_begins_at_a_followers_place() {
        assert_eq!(
            shown(at(0, 0, 0), at(2, 3, 0)),
            [
                r#"{"type":"message_start","message":0,"role":"assistant"}"#,
                r#"{"type":"thinking_delta","message":0,"offset":0,"text":"hm"}"#,
                r#"{"type":"message_delta","message":0,"offset":0,"text":"hello"}"#,
                r#"{"type":"message_start","message":1,"role":"assistant"}"#,
                r#"{"type":"message_delta","message":1,"offset":0,"text":"wö"}"#,
            ]
        );
        assert_eq!(
            shown(at(1, 2, 2), at(2, 6, 0)),
            [
                r#"{"type":"message_delta","message":0,"offset":2,"text":"llo"}"#,
                r#"{"type":"message_start","message":1,"role":"assistant"}"#,
                r#"{"type":"message_delta","message":1,"offset":0,"text":"wörld"}"#,
            ]
        );
        assert!(shown(at(2, 6, 0), at(2, 6, 0)).is_empty());
    }

    #[test]
    fn portions_joined_are_the_whole_text() {
        let messages = [
            message(&"ö".repeat(100_000), "hm"),
            message("", "nothing said"),
            message(&"x".repeat(200_000), ""),
        ];
        let to = at(3, 200_000, 0);
        let lines = |from, room| Spoken::between(JobId(1), &messages, (from, to), room);
        let whole = lines(Position::default(), usize::MAX);
        assert!(whole.whole);
        for room in [1, 70_000, 300_000] {
            let mut joined = Vec::new();
            let mut from = Position::default();
            loop {
                let portion = lines(from, room);
                from = portion.lines.last().map_or(from, |(_, after)| *after);
                joined.extend(portion.lines);
                if portion.whole {
                    break;
                }
            }
            assert_eq!(joined, whole.lines, "in portions of {room}");
            assert_eq!(from, to);
        }
    }
}
