//! A turn's lines as a chat completion: whole, or chunk by chunk.
//!
//! Owns the shapes, and what of a turn can be told in them. A stream has nothing but chunks with a
//! choice: clients die of anything else. What has no place in a chunk stands beside an empty one, as
//! `agentd`. The agent's tools are never `tool_calls`: clients would run them.

use agentd_protocol::line::{MessageEnd, Stop};
use agentd_protocol::{JobId, Line};
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::{Named, aside, usage};

/// Longest text that is thought, and kept for an answer that comes whole.
const LONGEST_THOUGHT: usize = 256 * 1024;

/// What the lines of one turn have said.
#[derive(Debug)]
pub struct ChatReply {
    id: String,
    created: u64,
    model: String,
    /// What was said so far.
    text: String,
    thought: String,
    /// The message that was said last.
    message: Option<u32>,
}

/// One chunk.
#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    agentd: Option<Value>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u8,
    delta: Delta<'a>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
}

/// An event of a stream.
pub(super) fn event(data: &impl Serialize) -> String {
    // A type of ours that can't be written as JSON is a bug that a test shows.
    format!(
        "data: {}\n\n",
        serde_json::to_string(data).unwrap_or_default()
    )
}

/// The end of a turn, in OpenAI's words, which have none for one that was cancelled: nobody is to take
/// its text for all of it.
const fn finish_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::EndTurn => "stop",
        Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Cancelled => "length",
        Stop::Refusal => "content_filter",
    }
}

impl ChatReply {
    /// Of a job that was accepted.
    #[must_use]
    pub fn new(job: JobId, model: String, created: u64) -> Self {
        Self {
            id: Named::Completion.id(job),
            created,
            model,
            text: String::new(),
            thought: String::new(),
            message: None,
        }
    }

    fn chunk(
        &self,
        delta: Delta<'_>,
        finish_reason: Option<&'static str>,
        agentd: Option<Value>,
    ) -> String {
        event(&Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices: [Choice {
                index: 0,
                delta,
                logprobs: None,
                finish_reason,
            }],
            agentd,
        })
    }

    /// The first chunk: who speaks.
    #[must_use]
    pub fn first(&self) -> String {
        let delta = Delta {
            role: Some("assistant"),
            content: Some(""),
            ..Delta::default()
        };
        self.chunk(delta, None, None)
    }

    fn say(&mut self, text: &str) -> String {
        self.text.push_str(text);
        let delta = Delta {
            content: Some(text),
            ..Delta::default()
        };
        self.chunk(delta, None, None)
    }

    /// What a line that isn't the last one adds to the stream; nothing, mostly, if it says nothing.
    pub fn line(&mut self, line: &Line) -> String {
        match line {
            Line::MessageDelta { message, text, .. } => {
                let is_other = self.message.is_some_and(|before| before != *message);
                self.message = Some(*message);
                if is_other && !self.text.is_empty() {
                    // Two messages: nobody reads them as one word.
                    return self.say("\n\n") + &self.say(text);
                }
                self.say(text)
            }
            Line::ThinkingDelta { text, .. } => {
                if self.thought.len() < LONGEST_THOUGHT {
                    self.thought.push_str(text);
                }
                let delta = Delta {
                    reasoning_content: Some(text),
                    ..Delta::default()
                };
                self.chunk(delta, None, None)
            }
            other => match beside(other) {
                Some(aside) => self.chunk(Delta::default(), None, Some(aside)),
                None => String::new(),
            },
        }
    }

    /// The rest of the stream.
    #[must_use]
    pub fn end(&mut self, end: &MessageEnd, tells_usage: bool) -> String {
        let mut rest = String::new();
        if self.text.is_empty() && !end.turn.text.is_empty() {
            rest += &self.say(&end.turn.text);
        }
        if let Some(refusal) = &end.turn.refusal {
            let delta = Delta {
                refusal: Some(refusal),
                ..Delta::default()
            };
            rest += &self.chunk(delta, None, None);
        }
        let aside = cancelled(end.stop);
        rest += &self.chunk(Delta::default(), Some(finish_reason(end.stop)), aside);
        if tells_usage {
            rest += &event(&json!({
                "id": self.id, "object": "chat.completion.chunk", "created": self.created,
                "model": self.model, "choices": [], "usage": usage::chat(end.turn.usage),
            }));
        }
        rest + "data: [DONE]\n\n"
    }

    /// The rest of the stream of a turn that failed: no reason to stop, which would be an end as any.
    #[must_use]
    pub fn failed(failure: &Failure) -> String {
        event(&failure.body())
    }

    /// The whole answer.
    #[must_use]
    pub fn whole(&self, end: &MessageEnd) -> Value {
        let said = match self.text.as_str() {
            "" => &end.turn.text,
            said => said,
        };
        let mut message = json!({
            "role": "assistant", "content": said, "refusal": end.turn.refusal, "annotations": [],
        });
        if !self.thought.is_empty() {
            message["reasoning_content"] = self.thought.as_str().into();
        }
        let choice = json!({
            "index": 0, "message": message, "logprobs": null,
            "finish_reason": finish_reason(end.stop),
        });
        let mut whole = json!({
            "id": self.id, "object": "chat.completion", "created": self.created,
            "model": self.model, "choices": [choice], "usage": usage::chat(end.turn.usage),
        });
        let asides = aside(&end.turn).into_iter().chain(cancelled(end.stop));
        for (name, told) in asides.filter_map(|one| one.as_object().cloned()).flatten() {
            whole["agentd"][name] = told;
        }
        whole
    }
}

/// What a turn that was cancelled is told apart by.
fn cancelled(stop: Stop) -> Option<Value> {
    (stop == Stop::Cancelled).then(|| json!({"stop": stop}))
}

/// What has no place in a chunk, for clients that know agentd.
pub(super) fn beside(line: &Line) -> Option<Value> {
    Some(match line {
        Line::MessageStart {
            replaces: Some(abandoned),
            ..
        } => json!({"abandoned": abandoned}),
        Line::ToolStart {
            tool_call_id,
            name,
            input,
            ..
        } => {
            json!({"tool": {"id": tool_call_id, "name": name, "status": "running", "input": input}})
        }
        Line::ToolEnd {
            tool_call_id,
            ok,
            duration_ms,
            ..
        } => {
            let status = if *ok { "completed" } else { "failed" };
            json!({"tool": {"id": tool_call_id, "status": status, "duration_ms": duration_ms}})
        }
        Line::Note {
            level, code, text, ..
        } => json!({"note": {"level": level, "code": code, "text": text}}),
        Line::Question {
            question_id,
            kind,
            title,
            ..
        } => json!({"question": {"id": question_id, "kind": kind, "title": title}}),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::line::{Context, Level, TurnFacts, Usage};

    fn line(json: &str) -> Line {
        serde_json::from_str(json).unwrap()
    }

    fn end() -> MessageEnd {
        MessageEnd {
            stop: Stop::EndTurn,
            turn: TurnFacts {
                text: "two".to_owned(),
                usage: Some(Usage {
                    input_tokens: 3,
                    output_tokens: 2,
                    cache_read_tokens: 1,
                    ..Usage::default()
                }),
                ..TurnFacts::default()
            },
            seq: None,
            replayed: false,
        }
    }

    const LINES: &[&str] = &[
        r#"{"type":"running","job":"j1","attempt":1}"#,
        r#"{"type":"message_start","job":"j1","message":0,"role":"assistant"}"#,
        r#"{"type":"thinking_delta","job":"j1","message":0,"offset":0,"text":"hm"}"#,
        r#"{"type":"message_delta","job":"j1","message":0,"offset":0,"text":"one","native":true}"#,
        r#"{"type":"tool_start","job":"j1","tool_call_id":"c","name":"ls","input":{},"read_only":true}"#,
        r#"{"type":"tool_end","job":"j1","tool_call_id":"c","ok":true,"output":"","truncated":false,"duration_ms":5}"#,
        r#"{"type":"message_delta","job":"j1","message":1,"offset":0,"text":"two","native":true}"#,
    ];

    fn data(stream: &str) -> Vec<Value> {
        let events = stream.split_terminator("\n\n");
        let data = events.map(|event| event.strip_prefix("data: ").unwrap());
        let known = data.filter(|data| *data != "[DONE]");
        known
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    #[test]
    fn chat_chunks_have_a_choice_until_the_usage() {
        let mut reply = ChatReply::new(JobId(1), "pi".to_owned(), 7);
        let mut stream = reply.first();
        for json in LINES {
            stream += &reply.line(&line(json));
        }
        stream += &reply.end(&end(), true);
        assert!(stream.ends_with("\"total_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":1},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\ndata: [DONE]\n\n"), "{stream}");
        let chunks = data(&stream);
        let (usage, chunks) = chunks.split_last().unwrap();
        assert_eq!(usage["choices"], json!([]));
        let mut said = String::new();
        for chunk in chunks {
            assert_eq!(chunk["id"], "chatcmpl-j1");
            let delta = &chunk["choices"][0]["delta"];
            assert!(
                delta.is_object() && delta.get("tool_calls").is_none(),
                "{chunk}"
            );
            said += delta["content"].as_str().unwrap_or_default();
        }
        assert_eq!(said, "one\n\ntwo");
        assert_eq!(
            chunks[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        assert_eq!(
            chunks[1]["choices"][0]["delta"],
            json!({"reasoning_content": "hm"})
        );
        assert_eq!(chunks[3]["agentd"]["tool"]["name"], "ls");
        assert_eq!(
            chunks.last().unwrap()["choices"][0]["finish_reason"],
            "stop"
        );
        let whole = reply.whole(&end());
        let message = &whole["choices"][0]["message"];
        assert_eq!(
            (&message["content"], &message["reasoning_content"]),
            (&json!("one\n\ntwo"), &json!("hm"))
        );
    }

    #[test]
    fn chat_that_was_cancelled_is_not_whole() {
        let mut reply = ChatReply::new(JobId(1), "pi".to_owned(), 7);
        let end = MessageEnd {
            stop: Stop::Cancelled,
            ..end()
        };
        let whole = reply.whole(&end);
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        assert_eq!(whole["agentd"], json!({"stop": "cancelled"}));
        let chunks = data(&reply.end(&end, false));
        let last = chunks.last().unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], "length");
        assert_eq!(last["agentd"], json!({"stop": "cancelled"}));
    }

    #[test]
    fn chat_that_is_whole_says_what_was_lost() {
        let reply = ChatReply::new(JobId(1), "pi".to_owned(), 7);
        let mut end = end();
        (end.stop, end.turn.context) = (Stop::Cancelled, Some(Context::Lost));
        let beside = &reply.whole(&end)["agentd"];
        assert_eq!(
            (&beside["stop"], &beside["note"]["code"]),
            (&json!("cancelled"), &json!("context-lost"))
        );
    }

    #[test]
    fn chat_says_the_text_that_came_whole() {
        let mut reply = ChatReply::new(JobId(1), "pi".to_owned(), 7);
        assert_eq!(
            reply.whole(&end())["choices"][0]["message"]["content"],
            "two"
        );
        let chunks = data(&reply.end(&end(), false));
        assert_eq!(chunks[0]["choices"][0]["delta"]["content"], "two");
        assert_eq!(chunks.len(), 2);
        let note = Line::Note {
            job: None,
            level: Level::Warning,
            code: "context-lost".to_owned(),
            text: "gone".to_owned(),
        };
        let chunk = &data(&reply.line(&note))[0];
        assert_eq!(
            (
                &chunk["agentd"]["note"]["code"],
                &chunk["choices"][0]["delta"]
            ),
            (&json!("context-lost"), &json!({}))
        );
    }
}
