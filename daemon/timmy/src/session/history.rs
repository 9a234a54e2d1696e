//! What was said in a session, and how it is put so that every provider takes it.
//!
//! Owns the order of messages: every call has one result, behind its message; no two messages of
//! the user stand side by side. Pure. Must not know where it is kept.

use crate::message::{Assistant, Attached, CallArguments, Message, ToolResult};

/// What the result of a call is when nobody knows.
pub(crate) const UNKNOWN: &str = "interrupted: it is unknown whether it ran";
/// A token is four bytes of English, and fewer of anything else; where it matters a provider has
/// counted.
const BYTES_PER_TOKEN: u64 = 4;
/// A picture takes about as much as so many bytes of text, whatever it shows.
const ATTACHED: usize = 6_400;
/// What a message costs besides its text.
const TOKENS_PER_MESSAGE: u64 = 4;

/// The messages of a session.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct History {
    summary: Option<String>,
    messages: Vec<Message>,
    /// The number of the first message: those before it are in the summary.
    first: u64,
    counted: Option<Counted>,
}

/// A count by a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    tokens: u64,
    /// It is of everything before this message.
    before: usize,
}

impl History {
    /// From what was kept.
    pub(crate) const fn new(summary: Option<String>, messages: Vec<Message>, first: u64) -> Self {
        Self {
            summary,
            messages,
            first,
            counted: None,
        }
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(crate) fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }

    /// The number of the next message.
    pub(crate) fn next(&self) -> u64 {
        self.position(self.messages.len())
    }

    /// The number of the message at this index.
    pub(crate) const fn position(&self, index: usize) -> u64 {
        self.first + index as u64
    }

    pub(crate) fn append(&mut self, messages: Vec<Message>) {
        self.messages.extend(messages);
    }

    /// A provider counted everything so far.
    pub(crate) fn count(&mut self, tokens: u64) {
        self.counted = Some(Counted {
            tokens,
            before: self.messages.len(),
        });
    }

    pub(crate) fn compact(&mut self, summary: String, cut: usize) {
        let cut = cut.min(self.messages.len());
        self.messages.drain(..cut);
        self.first += cut as u64;
        self.summary = Some(summary);
        // What was counted was of words that are gone.
        self.counted = None;
    }

    /// About how many tokens it takes, besides `overhead` bytes of prompt and tools.
    pub(crate) fn tokens(&self, overhead: usize) -> u64 {
        let (counted, from) = match self.counted {
            Some(counted) => (counted.tokens, counted.before),
            None => {
                let summary = self.summary.as_ref().map_or(0, String::len);
                (((overhead + summary) as u64) / BYTES_PER_TOKEN, 0)
            }
        };
        counted + self.messages[from..].iter().map(tokens).sum::<u64>()
    }

    /// The calls that have no result.
    fn unanswered(&self) -> Vec<ToolResult> {
        let mut missing = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            if let Message::Assistant(said) = message {
                let results = results_behind(&self.messages, at);
                missing.extend(said.calls.iter().filter_map(|call| {
                    let found = results.iter().any(|result| result.call == call.id);
                    (!found).then(|| unknown(&call.id, &call.name))
                }));
            }
        }
        missing
    }

    /// Results for the calls whose process died, to be kept before anything else is said.
    pub(crate) fn interrupted(&self) -> Vec<Message> {
        self.unanswered().into_iter().map(Message::Tool).collect()
    }

    /// Is this the prompt of the turn that began last? A turn may be run again after its process died.
    pub(crate) fn is_under_way(&self, prompt: &Message) -> bool {
        let is_prompt = |message: &&Message| matches!(message, Message::User { job: Some(_), .. });
        self.messages.iter().rfind(is_prompt) == Some(prompt)
    }

    /// As it is said to a model: what isn't whole is made whole, whatever happened before.
    pub(crate) fn for_model(&self) -> Vec<Message> {
        let mut said: Vec<Message> = Vec::with_capacity(self.messages.len() + 1);
        if let Some(summary) = &self.summary {
            say(&mut said, &format!("{SUMMARY_FOLLOWS}\n\n{summary}"), &[]);
        }
        for (at, message) in self.messages.iter().enumerate() {
            match message {
                Message::User { text, attached, .. } => say(&mut said, text, attached),
                // Several providers refuse a message that says nothing.
                Message::Assistant(words) if is_empty(words) => {}
                Message::Assistant(words) => {
                    if said.is_empty() {
                        // Conversations begin with the user.
                        say(&mut said, "(The beginning is not there any more.)", &[]);
                    }
                    said.push(message.clone());
                    let results = results_behind(&self.messages, at);
                    said.extend(words.calls.iter().map(|call| {
                        let found = results.iter().find(|result| result.call == call.id);
                        Message::Tool(
                            found.map_or_else(|| unknown(&call.id, &call.name), |r| (*r).clone()),
                        )
                    }));
                }
                // Said behind its call, above; one without a call is nobody's.
                Message::Tool(_) => {}
            }
        }
        said
    }
}

/// How a summary is introduced to a model.
const SUMMARY_FOLLOWS: &str = "The conversation so far was long. This is a summary of its beginning, \
which was written by a model; the rest follows as it was said.";

fn is_empty(words: &Assistant) -> bool {
    words.text.trim().is_empty() && words.calls.is_empty()
}

/// Two messages of the user side by side are one: not every provider takes two.
fn say(said: &mut Vec<Message>, words: &str, with: &[Attached]) {
    match said.last_mut() {
        Some(Message::User { text, attached, .. }) => {
            text.push_str("\n\n");
            text.push_str(words);
            attached.extend_from_slice(with);
        }
        _ => said.push(Message::User {
            text: words.to_owned(),
            attached: with.to_vec(),
            job: None,
        }),
    }
}

/// The results between this message and the next one that isn't a result.
fn results_behind(messages: &[Message], at: usize) -> Vec<&ToolResult> {
    let behind = messages[at + 1..].iter();
    behind
        .take_while(|message| !matches!(message, Message::Assistant(_)))
        .filter_map(|message| match message {
            Message::Tool(result) => Some(result),
            _ => None,
        })
        .collect()
}

fn unknown(call: &str, name: &str) -> ToolResult {
    ToolResult {
        call: call.to_owned(),
        name: name.to_owned(),
        ok: false,
        output: UNKNOWN.to_owned(),
    }
}

/// About how many tokens a message takes.
pub(crate) fn tokens(message: &Message) -> u64 {
    TOKENS_PER_MESSAGE + bytes(message) as u64 / BYTES_PER_TOKEN
}

/// How many bytes a message says.
pub(crate) fn bytes(message: &Message) -> usize {
    match message {
        Message::User { text, attached, .. } => text.len() + attached.len() * ATTACHED,
        Message::Tool(result) => result.output.len() + result.name.len(),
        Message::Assistant(said) => {
            let calls = said.calls.iter().map(|call| {
                call.name.len()
                    + match &call.arguments {
                        CallArguments::Malformed(text) => text.len(),
                        CallArguments::Object(map) => {
                            serde_json::to_string(map).map_or(0, |text| text.len())
                        }
                    }
            });
            let thoughts = said.thoughts.iter();
            let thoughts = thoughts.map(|thought| thought.text.as_ref().map_or(0, String::len));
            said.text.len() + calls.sum::<usize>() + thoughts.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
