//! What a model says, as it is told to whoever listens.
//!
//! Owns the numbers of messages, offsets, and what becomes of a message that was shown and is
//! abandoned. Must not know why it was.

use serde_json::json;

use crate::line::Line;
use crate::model::Piece;

/// The messages of a turn.
#[derive(Default, Debug)]
pub(crate) struct MessageStream {
    /// The number of the next message.
    next: u32,
    /// The message that is being said.
    current: Option<Current>,
    /// One that was shown and doesn't count.
    abandoned: Option<u32>,
    /// The last whole text.
    text: String,
}

#[derive(Default, Debug)]
struct Current {
    number: u32,
    text: String,
    thinking: usize,
}

impl MessageStream {
    /// The message that is being said, begun if need be.
    async fn current(&mut self, line: &Line) -> &mut Current {
        if self.current.is_none() {
            let number = self.next;
            self.next += 1;
            start(number, self.abandoned.take(), line).await;
            self.current = Some(Current {
                number,
                ..Current::default()
            });
        }
        self.current.get_or_insert_default()
    }

    /// Says a piece.
    pub(crate) async fn say(&mut self, piece: Piece, line: &Line) {
        let (Piece::Text(text) | Piece::Thinking(text)) = &piece;
        if text.is_empty() {
            return;
        }
        let current = self.current(line).await;
        let message = current.number;
        match piece {
            Piece::Text(text) => {
                let offset = current.text.len();
                current.text.push_str(&text);
                let fields =
                    json!({"message": message, "offset": offset, "text": text, "native": true});
                line.say("message_delta", fields).await;
            }
            Piece::Thinking(text) => {
                let offset = current.thinking;
                current.thinking += text.len();
                let fields = json!({"message": message, "offset": offset, "text": text});
                line.say("thinking_delta", fields).await;
            }
        }
    }

    /// What was said so far doesn't count: the next message is in its place.
    pub(crate) fn abandon(&mut self) {
        if let Some(current) = self.current.take() {
            self.abandoned = Some(current.number);
        }
    }

    /// The message is whole, and this is its text.
    pub(crate) async fn finish(&mut self, text: &str, line: &Line) {
        let streamed = self.current.as_ref().map_or("", |current| &current.text);
        // What was streamed can't be taken back, should the whole text differ from it.
        let rest = text.strip_prefix(streamed).unwrap_or("").to_owned();
        // An answer without a word replaces what was shown, too.
        if self.abandoned.is_some() {
            self.current(line).await;
        }
        self.say(Piece::Text(rest), line).await;
        self.current = None;
        if !text.is_empty() {
            text.clone_into(&mut self.text);
        }
    }

    /// What was said of a message that isn't whole.
    pub(crate) fn partial(&self) -> &str {
        self.current.as_ref().map_or("", |current| &current.text)
    }

    /// The turn's text: that of the last message that has one, whole or not.
    pub(crate) fn into_text(self) -> String {
        match self.current {
            Some(current) if !current.text.is_empty() => current.text,
            _ => self.text,
        }
    }
}

async fn start(number: u32, replaces: Option<u32>, line: &Line) {
    let mut fields = json!({"message": number, "role": "assistant"});
    if let Some(abandoned) = replaces {
        fields["replaces"] = json!(abandoned);
    }
    line.say("message_start", fields).await;
}
