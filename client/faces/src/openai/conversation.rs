//! A conversation as clients without sessions send it: whole, each time.
//!
//! Owns what of it is the turn, how its past is found again (by hashes, as labels of jobs) and how it
//! is told to an agent that doesn't have it. Must not know where jobs are looked up.

use std::fmt::Write as _;

use agentd_protocol::attachment::Attachment;
use agentd_protocol::limits::{MAX_ATTACHMENTS, MAX_HISTORY, MAX_HISTORY_BYTES, MAX_SYSTEM};
use agentd_protocol::request::{Earlier, Send, Speaker};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::content::Content;
use super::failure::Failure;
use super::fields::Fields;
use super::format::{self, Form};

/// What is said for a turn that has attachments only.
const SEE_ATTACHED: &str = "(see what is attached)";
/// What is said when the last word was the assistant's, which is to go on.
const GO_ON: &str = "Go on.";
/// How Open WebUI begins what it asks for itself: titles, tags, what the user may say next.
const TASK: &str = "### Task:";

/// Who said something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Whoever made the client.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool of the client's, which some other model called.
    Tool,
}

impl Role {
    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "system" | "developer" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" | "function" => Self::Tool,
            _ => return None,
        })
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::User => "User",
            Self::Assistant => "Assistant",
            Self::Tool => "Tool result",
        }
    }
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Who said it.
    pub role: Role,
    /// What.
    pub content: Content,
}

impl Said {
    /// By the user.
    pub fn by_user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            content: Content::text(text),
        }
    }

    /// By whoever made the client.
    pub fn by_system(text: impl Into<String>) -> Self {
        Self {
            role: Role::System,
            content: Content::text(text),
        }
    }

    /// Reads a message of a list.
    ///
    /// # Errors
    /// When it has no role that is known, or content that can't be passed on.
    pub fn read(message: Value, param: &str) -> Result<Self, Failure> {
        let invalid = |why: &str| Err(Failure::invalid(param, format!("`{param}`: {why}")));
        let Value::Object(mut message) = message else {
            return invalid("expected an object with `role` and `content`");
        };
        let Some(role) = message.get("role").and_then(Value::as_str) else {
            return invalid("expected a string as its `role`");
        };
        let Some(role) = Role::read(role) else {
            return invalid(
                "expected `system`, `developer`, `user`, `assistant` or `tool` as its `role`",
            );
        };
        let content = message.shift_remove("content").unwrap_or_default();
        let mut content = Content::read(content, &format!("{param}.content"))?;
        // What another model called: told to the agent, never run.
        if let Some(Value::Array(calls)) = message.get("tool_calls") {
            for call in calls {
                let part = |name: &str| {
                    let part = call.pointer(&format!("/function/{name}"));
                    part.and_then(Value::as_str).unwrap_or_default()
                };
                let (name, arguments) = (part("name"), part("arguments"));
                if !content.text.is_empty() {
                    content.text.push('\n');
                }
                let _always = write!(content.text, "(called {name} with {arguments})");
            }
        }
        Ok(Self { role, content })
    }
}

/// Does a session begin with this turn?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    /// Yes: its agent knows nothing of what was said.
    Yes,
    /// No: it has heard all but the turn.
    No,
    /// No, and it has heard nothing of this.
    WithNews,
}

/// What was said before a turn, as it can be looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Before {
    /// The label [`super::CONVERSATION`] of the job that said it.
    pub label: String,
    /// What that job answered, as the client has it.
    pub reply: String,
}

/// Everything that a client sent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Conversation {
    /// What whoever made the client says.
    pub system: String,
    /// What was said before.
    pub past: Vec<Said>,
    /// What the user says now.
    pub turn: Vec<Said>,
}

impl Conversation {
    /// Tells the turn from what was said before.
    ///
    /// # Errors
    /// When there is no turn.
    pub fn of(said: Vec<Said>, param: &str) -> Result<Self, Failure> {
        let mut found = Self::default();
        for said in said {
            if said.role == Role::System {
                found.add_system(&said.content.text);
            } else {
                found.past.push(said);
            }
        }
        let reply = |said: &Said| said.role == Role::Assistant;
        let at = found.past.iter().rposition(reply).map_or(0, |at| at + 1);
        found.turn = found.past.split_off(at);
        if found.turn.is_empty() && !found.past.is_empty() {
            found.turn.push(Said::by_user(GO_ON));
        }
        if found.turn.iter().all(|said| said.content.is_blank()) {
            let why =
                format!("`{param}` has no words of the user: expected a message that isn't blank");
            return Err(Failure::invalid(param, why));
        }
        Ok(found)
    }

    /// More of what whoever made the client says.
    pub fn add_system(&mut self, text: &str) {
        if !self.system.is_empty() && !text.is_empty() {
            self.system.push_str("\n\n");
        }
        self.system.push_str(text);
    }

    /// The form that the answer is to have, if it can be told at all: is it only asked for?
    pub(super) fn add_format(&mut self, format: &Value, param: &str) -> Result<bool, Failure> {
        match format::read(format, param)? {
            Form::Free => Ok(false),
            Form::Told(words) => {
                self.add_system(&words);
                Ok(true)
            }
            Form::Unknown => Ok(true),
        }
    }

    /// What the user said, all of it: nothing that stands in for words.
    pub fn words_of_user(&self) -> impl Iterator<Item = &str> {
        let by_user = |said: &&Said| said.role == Role::User && said.content.text != GO_ON;
        let said = self.past.iter().chain(&self.turn).filter(by_user);
        said.map(|said| said.content.text.as_str())
    }

    /// Is it what a front end asks for itself? It isn't part of the user's conversation.
    #[must_use]
    pub fn is_side_request(&self) -> bool {
        let [one] = self.turn.as_slice() else {
            return false;
        };
        self.past.is_empty() && one.content.text.trim_start().starts_with(TASK)
    }

    /// The label of the job that this turn becomes. The scope keeps apart what is said alike to
    /// another agent, or in another chat.
    #[must_use]
    pub fn label(&self, scope: &str) -> String {
        self.hash(scope, self.past.iter().chain(&self.turn))
    }

    /// What the turn goes on from, if that can be found again.
    #[must_use]
    pub fn before(&self, scope: &str) -> Option<Before> {
        let reply = |said: &&Said| said.role == Role::Assistant;
        let replies = self.past.iter().rev().take_while(reply).count();
        let (asked, replies) = self.past.split_at(self.past.len() - replies);
        if asked.is_empty() || replies.is_empty() {
            return None;
        }
        let texts: Vec<&str> = replies
            .iter()
            .map(|one| one.content.text.as_str())
            .collect();
        Some(Before {
            label: self.hash(scope, asked.iter()),
            reply: texts.join("\n\n"),
        })
    }

    fn hash<'a>(&self, scope: &str, said: impl Iterator<Item = &'a Said>) -> String {
        let mut sum = Sum::default();
        sum.add(scope);
        sum.add(&self.system);
        for said in said {
            sum.add(said.role.heading());
            sum.add(&said.content.text);
            for attached in &said.content.attachments {
                sum.add(attached.data.as_deref().unwrap_or_default());
            }
        }
        sum.hex()
    }

    /// Puts the turn into a send; what was said before goes with it when the session begins.
    pub fn put_into(&self, send: &mut Send, begins: Begins) {
        let turn = texts(&self.turn, "\n\n");
        let mut attachments = attachments(&self.turn);
        if begins != Begins::No {
            let earlier = self.past.iter().rev();
            let earlier = earlier.flat_map(|said| said.content.attachments.iter().rev());
            let room = MAX_ATTACHMENTS.saturating_sub(attachments.len());
            // The newest of them, in the order they came.
            for one in earlier.take(room) {
                attachments.insert(0, one.clone());
            }
        }
        let is_first = self.past.is_empty() && self.system.trim().is_empty();
        // A send that was to begin a session has these; one that goes on must not.
        (send.system, send.history) = (None, Vec::new());
        send.text = match (begins, self.beginning()) {
            (Begins::No, _) => turn,
            (Begins::Yes | Begins::WithNews, _) if is_first => turn,
            (Begins::Yes, Some((system, history))) => {
                (send.system, send.history) = (system, history);
                turn
            }
            // What a session can't begin with stands in its first prompt.
            (Begins::Yes, None) | (Begins::WithNews, _) => {
                rendered(&self.system, &self.past, &turn)
            }
        };
        if send.text.trim().is_empty() {
            SEE_ATTACHED.clone_into(&mut send.text);
        }
        send.attachments = attachments;
    }

    /// Without what was said before: the session has that.
    #[must_use]
    pub fn without_past(&self) -> Self {
        Self {
            system: self.system.clone(),
            past: Vec::new(),
            turn: self.turn.clone(),
        }
    }

    /// What a session begins with, if it can.
    fn beginning(&self) -> Option<(Option<String>, Vec<Earlier>)> {
        let system = Some(&self.system).filter(|system| !system.trim().is_empty());
        let fits = |system: &String| system.len() <= MAX_SYSTEM && !system.contains('\0');
        let said = |said: &Said| {
            let text = &said.content.text;
            let (role, text) = match said.role {
                Role::Assistant => (Speaker::Assistant, text.clone()),
                Role::User => (Speaker::User, text.clone()),
                // There is nobody else whom a session knows.
                Role::Tool | Role::System => {
                    (Speaker::User, format!("{}: {text}", said.role.heading()))
                }
            };
            (!text.trim().is_empty()).then_some(Earlier { role, text })
        };
        let history: Vec<Earlier> = self.past.iter().filter_map(said).collect();
        let bytes: usize = history.iter().map(|earlier| earlier.text.len()).sum();
        let all = history.len() <= MAX_HISTORY && bytes <= MAX_HISTORY_BYTES;
        (all && system.is_none_or(fits)).then(|| (system.cloned(), history))
    }
}

fn texts(said: &[Said], between: &str) -> String {
    let texts = said.iter().map(|said| said.content.text.as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.trim().is_empty()).collect();
    texts.join(between)
}

fn attachments(said: &[Said]) -> Vec<Attachment> {
    let all = said.iter().flat_map(|said| &said.content.attachments);
    all.cloned().collect()
}

/// What an agent is told in a prompt that has not heard what was said.
fn rendered(system: &str, past: &[Said], turn: &str) -> String {
    let mut text = String::new();
    if !system.is_empty() {
        let _always = write!(text, "# Instructions\n\n{system}\n\n");
    }
    if !past.is_empty() {
        text.push_str("# What was said before\n\n");
        for said in past {
            let heading = said.role.heading();
            let _always = write!(text, "## {heading}\n\n{}\n\n", said.content.text);
        }
    }
    let _always = write!(text, "# What the user says now\n\n{turn}");
    text
}

/// A hash of texts that can't be confused with that of others.
#[derive(Default)]
pub struct Sum(Sha256);

impl Sum {
    /// One more text.
    pub fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// The first half of it: enough for what nobody attacks but its own user.
    #[must_use]
    pub fn hex(self) -> String {
        let sum = self.0.finalize();
        sum.iter().take(16).fold(String::new(), |mut hex, byte| {
            let _always = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// Is a reply that a client has the one that a job gave? Front ends trim it, and put what was thought
/// before it.
#[must_use]
pub fn is_same_reply(kept: &str, given: &str, was_cut: bool) -> bool {
    let (kept, given) = (plain(kept), plain(given));
    kept == given || was_cut && !kept.is_empty() && given.starts_with(&kept)
}

/// Without what was thought, and blanks.
fn plain(text: &str) -> String {
    let mut rest = text;
    let mut said = String::new();
    for (begin, end) in [
        ("<details type=\"reasoning\"", "</details>"),
        ("<think>", "</think>"),
    ] {
        while let Some((before, thought)) = rest.split_once(begin) {
            let Some((_, after)) = thought.split_once(end) else {
                break;
            };
            said.push_str(before);
            rest = after;
        }
    }
    said.push_str(rest);
    said.retain(|c| !c.is_whitespace());
    said
}

/// The messages of a body's field.
///
/// # Errors
/// When they aren't a list of messages.
pub fn messages(fields: &mut Fields, name: &str) -> Result<Option<Vec<Said>>, Failure> {
    let Some(messages) = fields.take::<Vec<Value>>(name)? else {
        return Ok(None);
    };
    let read = |(number, message)| Said::read(message, &format!("{name}[{number}]"));
    messages
        .into_iter()
        .enumerate()
        .map(read)
        .collect::<Result<_, _>>()
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn conversation(messages: &Value) -> Conversation {
        let mut fields = Fields::of(&json!({"messages": messages}).to_string()).unwrap();
        let said = messages_of(&mut fields);
        Conversation::of(said, "messages").unwrap()
    }

    fn messages_of(fields: &mut Fields) -> Vec<Said> {
        messages(fields, "messages").unwrap().unwrap()
    }

    fn sent(conversation: &Conversation, begins: Begins) -> Send {
        let mut send = Send::default();
        conversation.put_into(&mut send, begins);
        send
    }

    #[test]
    fn conversation_finds_the_turn_before_it() {
        let system = json!({"role": "system", "content": "be terse"});
        let (a, b) = (
            json!({"role": "user", "content": "a"}),
            json!({"role": "assistant", "content": "b"}),
        );
        let c = json!({"role": "user", "content": [{"type": "text", "text": "c"}]});
        let first = conversation(&json!([system, a]));
        assert_eq!(first.before("x"), None);
        let second = conversation(&json!([system, a, b, c]));
        let before = second.before("x").unwrap();
        assert_eq!(
            (before.label, before.reply.as_str()),
            (first.label("x"), "b")
        );
        assert_ne!(first.label("x"), first.label("y"));
        let edited = conversation(&json!([a, b, c]));
        assert_ne!(edited.before("x").unwrap().label, first.label("x"));
        assert_eq!(sent(&second, Begins::No).text, "c");
        let told = sent(&second, Begins::Yes);
        assert_eq!(
            (told.text.as_str(), told.system.as_deref()),
            ("c", Some("be terse"))
        );
        let earlier: Vec<&str> = told.history.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(earlier, ["a", "b"]);
        let mut goes_on = told.clone();
        second.put_into(&mut goes_on, Begins::No);
        assert_eq!((goes_on.system, goes_on.history.len()), (None, 0));
        let told = sent(&second, Begins::WithNews);
        assert_eq!((told.system, told.history.len()), (None, 0));
        assert_eq!(
            told.text,
            "# Instructions\n\nbe terse\n\n# What was said before\n\n## User\n\na\n\n## Assistant\n\nb\n\n# What the user says now\n\nc"
        );
        let mut long = second.clone();
        long.system = "x".repeat(MAX_SYSTEM + 1);
        let told = sent(&long, Begins::Yes);
        assert!(told.system.is_none() && told.text.contains("## Assistant\n\nb"));
        assert_eq!(sent(&conversation(&json!([a])), Begins::Yes).text, "a");
    }

    #[test]
    fn conversation_takes_all_words_behind_the_last_reply() {
        let several = conversation(&json!([
            {"role": "user", "content": "where"},
            {"role": "user", "content": "what"},
        ]));
        assert_eq!(sent(&several, Begins::Yes).text, "where\n\nwhat");
        let again = conversation(&json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
        ]));
        assert_eq!(sent(&again, Begins::No).text, "Go on.");
        assert_eq!(again.before("").unwrap().reply, "b");
        let tools = conversation(&json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "42"},
        ]));
        assert!(
            sent(&tools, Begins::WithNews)
                .text
                .contains("(called f with {})")
        );
    }

    #[test]
    fn conversation_tells_pictures_of_the_past() {
        let picture = |data: &str| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
        let said = conversation(&json!([
            {"role": "user", "content": [picture("one"), {"type": "text", "text": "what?"}]},
            {"role": "assistant", "content": "a cat"},
            {"role": "user", "content": [picture("two")]},
        ]));
        let data = |begins| {
            let attached = sent(&said, begins).attachments;
            let data: Vec<_> = attached.into_iter().filter_map(|one| one.data).collect();
            data.join(" ")
        };
        assert_eq!(
            (data(Begins::Yes), data(Begins::No)),
            ("one two".to_owned(), "two".to_owned())
        );
        assert_eq!(sent(&said, Begins::No).text, SEE_ATTACHED);
    }

    #[test]
    fn conversation_without_words_of_the_user_is_refused() {
        for messages in [
            json!([]),
            json!([{"role": "system", "content": "x"}]),
            json!([{"role": "user", "content": " "}]),
        ] {
            let mut fields = Fields::of(&json!({"messages": messages}).to_string()).unwrap();
            let said = messages_of(&mut fields);
            let failure = Conversation::of(said, "messages").unwrap_err();
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some("messages"))
            );
        }
        for message in [
            json!(5),
            json!({}),
            json!({"role": 5}),
            json!({"role": "king", "content": "x"}),
            json!({"role": "user", "content": 5}),
        ] {
            let failure = Said::read(message.clone(), "messages[0]").unwrap_err();
            assert_eq!(failure.status, 400, "{message}");
        }
    }

    #[test]
    fn side_requests_of_front_ends_are_told_apart() {
        let task = json!({"role": "user", "content": "### Task:\nGenerate a title"});
        assert!(conversation(&json!([task])).is_side_request());
        let reply = json!({"role": "assistant", "content": "x"});
        assert!(!conversation(&json!([task, reply, task])).is_side_request());
        assert!(!conversation(&json!([{"role": "user", "content": "hi"}])).is_side_request());
    }

    #[test]
    fn reply_is_known_as_front_ends_keep_it() {
        assert!(is_same_reply("a b", "a  b\n", false));
        assert!(is_same_reply(
            "<details type=\"reasoning\" done=\"true\">\nhm\n</details>\nyes",
            "yes",
            false
        ));
        assert!(is_same_reply("<think>hm</think>yes", "yes", false));
        assert!(!is_same_reply("a", "a b", false));
        assert!(is_same_reply("a", "a b", true));
        assert!(!is_same_reply("", "a b", true));
    }
}
