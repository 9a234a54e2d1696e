//! What was said in a session, told again.
//!
//! Owns in which order a turn's parts are told, and what of it has to be asked for: long messages come
//! in pieces. Must not know how it is asked.

use std::collections::VecDeque;

use agentd_protocol::JobId;
use agentd_protocol::attachment::Attachment;
use agentd_protocol::line::Line;
use agentd_protocol::rows::{JobPhase, MessageRow, TurnRow};

use super::turn::past_calls;
use super::wire::{Chunk, Content, Update};

/// A history on its way to the client.
#[derive(Debug, Default)]
pub(super) struct History {
    items: VecDeque<Item>,
    /// The page that comes next.
    next: Option<u64>,
    /// US dollars that the turns so far have cost.
    pub(super) spent: f64,
    /// The level that counted for the last one.
    pub(super) thinking: Option<String>,
    /// Those that have no end yet, which are followed.
    pub(super) unfinished: Vec<TurnRow>,
}

#[derive(Debug)]
enum Item {
    Told(Box<Update>),
    /// The rest of a message.
    Rest(Piece),
}

impl Item {
    fn told(update: Update) -> Self {
        Self::Told(Box::new(update))
    }
}

/// A part of a message, to be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) job: JobId,
    pub(super) message: u32,
    pub(super) after: u64,
}

/// What has to be asked for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needed {
    Piece(Piece),
    Page(u64),
    Nothing,
}

impl History {
    /// Takes a page.
    pub(super) fn page(&mut self, turns: Vec<TurnRow>, next: Option<u64>) {
        self.next = next;
        for turn in turns {
            if is_over(turn.state) {
                self.turn(turn);
            } else {
                self.unfinished.push(turn);
            }
        }
    }

    /// Takes a piece of a message, of which there is more after `next`.
    pub(super) fn piece(&mut self, of: Piece, turns: Vec<TurnRow>, next: Option<u64>) {
        if let Some(after) = next.filter(|next| *next > of.after) {
            self.items.push_front(Item::Rest(Piece { after, ..of }));
        }
        let messages = turns.into_iter().flat_map(|turn| turn.messages);
        let text: String = messages.map(|message| message.text).collect();
        if !text.is_empty() {
            let id = format!("{}.{}", of.job, of.message);
            let told = Update::AgentMessageChunk(Chunk::text(id, text));
            self.items.push_front(Item::Told(Box::new(told)));
        }
    }

    /// What can be told now, and what has to be asked for before there is more.
    pub(super) fn tell(&mut self, updates: &mut Vec<Update>) -> Needed {
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Told(update) => updates.push(*update),
                Item::Rest(piece) => return Needed::Piece(piece),
            }
        }
        match self.next.take() {
            Some(after) => Needed::Page(after),
            None => Needed::Nothing,
        }
    }

    fn turn(&mut self, turn: TurnRow) {
        let TurnRow {
            job,
            text,
            attachments,
            messages,
            last,
            ..
        } = turn;
        let last: Option<Line> = last.and_then(|last| serde_json::from_value(last).ok());
        let facts = match last {
            Some(Line::MessageEnd(end)) => Some(end.turn),
            Some(Line::Error(error)) => error.turn,
            _ => None,
        }
        .unwrap_or_default();
        self.spent += facts.cost.usd.unwrap_or(0.0);
        self.thinking = facts.thinking;
        let mut told = vec![user(job, text)];
        told.extend(attachments.into_iter().map(|one| attached(job, one)));
        let mut messages = messages.into_iter();
        let mut calls = Vec::new();
        past_calls(job, &facts.tool_trace, &mut calls);
        self.items.extend(told.into_iter().map(Item::told));
        // Where calls stood between the messages isn't kept: the last message answers after them.
        if messages.len() > 1
            && let Some(first) = messages.next()
        {
            self.message(job, first);
        }
        self.items.extend(calls.into_iter().map(Item::told));
        let some = messages.len() > 0;
        for message in messages {
            self.message(job, message);
        }
        if !some && !facts.text.is_empty() && self.is_silent(job) {
            let chunk = Chunk::text(format!("{job}.0"), facts.text);
            self.items
                .push_back(Item::told(Update::AgentMessageChunk(chunk)));
        }
    }

    /// Was nothing told of what a turn said?
    fn is_silent(&self, job: JobId) -> bool {
        let begins = format!("{job}.");
        !self.items.iter().any(|item| match item {
            Item::Told(update) => matches!(&**update, Update::AgentMessageChunk(chunk)
                if chunk.message_id.starts_with(&begins)),
            Item::Rest(_) => false,
        })
    }

    fn message(&mut self, job: JobId, row: MessageRow) {
        let id = format!("{job}.{}", row.message);
        if !row.thinking.is_empty() {
            let chunk = Chunk::text(format!("{id}.thought"), row.thinking);
            self.items
                .push_back(Item::told(Update::AgentThoughtChunk(chunk)));
        }
        let after = row.offset + row.text.len() as u64;
        if !row.text.is_empty() {
            let chunk = Chunk::text(id, row.text);
            self.items
                .push_back(Item::told(Update::AgentMessageChunk(chunk)));
        }
        if row.truncated {
            self.items.push_back(Item::Rest(Piece {
                job,
                message: row.message,
                after,
            }));
        }
    }
}

/// Has it its final line?
pub(super) const fn is_over(state: JobPhase) -> bool {
    match state {
        JobPhase::Queued | JobPhase::Held | JobPhase::Running => false,
        JobPhase::Completed | JobPhase::Cancelled | JobPhase::Failed | JobPhase::Interrupted => {
            true
        }
    }
}

fn user(job: JobId, text: String) -> Update {
    Update::UserMessageChunk(Chunk::text(format!("{job}.user"), text))
}

/// What went with a prompt, by its name: its content isn't told again.
fn attached(job: JobId, attachment: Attachment) -> Update {
    let name = attachment.name.unwrap_or_else(|| "attachment".to_owned());
    Update::UserMessageChunk(Chunk {
        message_id: format!("{job}.user"),
        content: Content::ResourceLink {
            uri: format!("attachment:///{}", escaped(&name)),
            name,
            mime_type: attachment.mime,
        },
    })
}

/// A name as part of a URI.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(row: Value) -> TurnRow {
        serde_json::from_value(row).unwrap()
    }

    fn told(history: &mut History) -> (Vec<String>, Needed) {
        let mut updates = Vec::new();
        let needed = history.tell(&mut updates);
        let shown = updates.iter().map(|update| {
            let update = json!(update);
            let text = &update["content"]["text"];
            let what = [text, &update["status"], &update["content"]["name"]];
            let what = what.into_iter().find_map(Value::as_str).unwrap_or_default();
            format!("{} {what}", update["sessionUpdate"].as_str().unwrap())
        });
        (shown.collect(), needed)
    }

    #[test]
    fn acp_history_tells_calls_before_the_answer() {
        let mut history = History::default();
        let call = json!({"tool_call_id": "c1", "name": "ls", "input": {}, "ok": false, "output": "no", "truncated": false, "duration_ms": 1});
        history.page(
            vec![row(json!({"job": "j1", "state": "completed", "accepted_at": "", "text": "hi",
                "attachments": [{"name": "a b.png", "mime": "image/png"}],
                "messages": [{"message": 0, "text": "let me see", "thinking": "hm"}, {"message": 1, "text": "so"}],
                "final": {"type": "message_end", "stop": "end_turn", "job": "j1", "session": "s", "context": "new", "agent": "a",
                    "provider": null, "model": null, "thinking": "low", "usage": null, "api_calls": null,
                    "cost": {"usd": 0.5, "status": "actual"}, "tool_trace": [call]}}))],
            Some(7),
        );
        let (shown, needed) = told(&mut history);
        assert_eq!(
            shown,
            [
                "user_message_chunk hi",
                "user_message_chunk a b.png",
                "agent_thought_chunk hm",
                "agent_message_chunk let me see",
                "tool_call in_progress",
                "tool_call_update failed",
                "agent_message_chunk so",
            ]
        );
        assert_eq!(needed, Needed::Page(7));
        assert!((history.spent - 0.5).abs() < 1e-9);
        assert_eq!(history.thinking.as_deref(), Some("low"));
    }

    #[test]
    fn acp_history_asks_for_the_rest_of_messages() {
        let mut history = History::default();
        let turn = |state: &str, messages: Value| {
            row(
                json!({"job": "j2", "state": state, "accepted_at": "", "text": "hi", "messages": messages}),
            )
        };
        let cut = json!([{"message": 0, "text": "ab", "truncated": true}]);
        history.page(vec![turn("failed", cut), turn("running", json!([]))], None);
        let piece = |after| Piece {
            job: JobId(2),
            message: 0,
            after,
        };
        let (shown, mut needed) = told(&mut history);
        assert_eq!(shown, ["user_message_chunk hi", "agent_message_chunk ab"]);
        assert_eq!(needed, Needed::Piece(piece(2)));
        for (text, next, expected) in [
            ("cd", Some(4), Needed::Piece(piece(4))),
            ("e", None, Needed::Nothing),
        ] {
            let Needed::Piece(asked) = needed else {
                panic!("{needed:?}");
            };
            let more = json!([{"message": 0, "offset": 2, "text": text}]);
            history.piece(asked, vec![turn("failed", more)], next);
            let shown;
            (shown, needed) = told(&mut history);
            assert_eq!(shown, [format!("agent_message_chunk {text}")]);
            assert_eq!(needed, expected);
        }
        assert_eq!(history.unfinished.len(), 1);
    }
}
