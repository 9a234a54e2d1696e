//! pi's commands.
//!
//! Owns what each is here, and which wait: for the end of a run, for the agent's models, for what was
//! said before. Must not know the lines of a turn.

use agentd_protocol::line::Line;
use agentd_protocol::models::ModelRow;
use agentd_protocol::request::check_session;
use agentd_protocol::request::check_word;
use agentd_protocol::request::work::SessionTitle;
use serde_json::{Map, Value, json};

use super::message::{self, Past};
use super::queue::Mode;
use super::{Pi, Settings, What, Whose};
use crate::face::Outbox;

/// Characters of what a client said that are said back in a refusal.
const SHOWN: usize = 100;
/// Bytes of an id that is echoed.
const MAX_ID: usize = 256;

/// A command, as it was said.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) id: Option<Value>,
    pub(super) kind: String,
    pub(super) fields: Map<String, Value>,
}

/// What becomes of a command.
pub(super) enum Reply {
    Done(Option<Value>),
    Failed(String),
    /// Its answer comes later.
    Later,
}

impl Reply {
    fn data(data: Value) -> Self {
        Self::Done(Some(data))
    }

    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }
}

impl Command {
    /// Reads an object; `Err` says how it is refused, as pi does.
    pub(super) fn read(mut fields: Map<String, Value>) -> Self {
        let id = fields
            .remove("id")
            .filter(|id| id.to_string().len() <= MAX_ID);
        let kind = match fields.remove("type") {
            Some(Value::String(kind)) => kind.chars().take(SHOWN).collect(),
            Some(other) => other.to_string().chars().take(SHOWN).collect(),
            None => "undefined".to_owned(),
        };
        Self { id, kind, fields }
    }

    pub(super) fn text(&self, field: &str) -> Result<String, Reply> {
        match self.fields.get(field) {
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
            _ => Err(Reply::failed(format!(
                "`{field}` is needed: a string that isn't blank"
            ))),
        }
    }
}

/// The reply of either.
pub(super) fn of(result: Result<Reply, Reply>) -> Reply {
    result.unwrap_or_else(|refused| refused)
}

impl Pi {
    /// Carries out a command, unless it has to wait.
    pub(super) fn command(&mut self, command: Command, out: &mut Outbox) {
        if !self.is_open(out) {
            return self.waiting.push_back(command);
        }
        let reply = self.begin(&command, out);
        self.reply(&command, reply, out);
    }

    pub(super) fn reply(&self, command: &Command, reply: Reply, out: &mut Outbox) {
        let mut line = Map::new();
        if let Some(id) = &command.id {
            line.insert("id".to_owned(), id.clone());
        }
        line.insert("type".to_owned(), json!("response"));
        line.insert("command".to_owned(), json!(command.kind));
        match reply {
            Reply::Later => return,
            Reply::Done(data) => {
                line.insert("success".to_owned(), json!(true));
                if let Some(data) = data {
                    line.insert("data".to_owned(), data);
                }
            }
            Reply::Failed(why) => {
                line.insert("success".to_owned(), json!(false));
                line.insert("error".to_owned(), json!(why));
            }
        }
        out.say(&line);
    }

    fn begin(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        match command.kind.as_str() {
            "prompt" => of(self.prompt(command, out)),
            "steer" => of(self.queue_up(command, true, out)),
            "follow_up" | "queue_message" => of(self.queue_up(command, false, out)),
            "abort" => self.abort(command, out),
            "clear_queue" => self.clear_queue(out),
            "get_state" => Reply::data(self.state()),
            "new_session" | "reset" | "switch_session" | "fork" | "branch" | "clone"
            | "compact"
                if !self.is_settled() =>
            {
                // As pi does it since 0.83.
                self.end_turn(out);
                self.settling.push_back(command.clone());
                Reply::Later
            }
            "new_session" | "reset" => {
                let name = self.name();
                self.enter(name, false);
                Reply::data(json!({"cancelled": false}))
            }
            "switch_session" => of(self.switch(command, out)),
            "clone" => self.copy(command, out),
            "compact" => self.compact(command, out),
            "fork"
            | "branch"
            | "get_branch_messages"
            | "get_messages"
            | "get_entries"
            | "get_tree"
            | "get_fork_messages"
            | "get_last_assistant_text"
            | "get_session_stats" => self.look_back(command, out),
            "set_model"
            | "cycle_model"
            | "get_available_models"
            | "cycle_thinking_level"
            | "get_available_thinking_levels" => self.with_models(command, out),
            "set_thinking_level" => of(command.text("level").and_then(|level| {
                check_word("level", &level).map_err(|rejected| Reply::failed(rejected.error))?;
                self.think(level, out);
                Ok(Reply::Done(None))
            })),
            "set_steering_mode" => of(Mode::read(command).map(|mode| {
                self.queue.steering_mode = mode;
                Reply::Done(None)
            })),
            "set_follow_up_mode" => of(Mode::read(command).map(|mode| {
                self.queue.follow_up_mode = mode;
                Reply::Done(None)
            })),
            "set_queue_mode" => of(Mode::read(command).map(|mode| {
                (self.queue.steering_mode, self.queue.follow_up_mode) = (mode, mode);
                Reply::Done(None)
            })),
            "set_session_name" => of(self.title(command, out)),
            "get_commands" => self.ask_commands(command, out),
            // The agent retries and compacts by itself, as it is made.
            "set_auto_compaction" => match command.fields.get("enabled") {
                Some(Value::Bool(on)) => {
                    self.compacts_itself = *on;
                    Reply::Done(None)
                }
                _ => Reply::failed("`enabled` is needed: true or false"),
            },
            "set_auto_retry" | "abort_retry" | "abort_bash" => Reply::Done(None),
            "bash" => Reply::failed(
                "agentd runs no commands for a client: ask the agent for it in a prompt",
            ),
            "export_html" => Reply::failed(
                "agentd exports no HTML: `agentctl history` prints a session, `get_messages` has it",
            ),
            "hello" | "send" | "status" => Reply::failed(
                "this is a line of agentd's own protocol: `agentctl stdio` takes it, this is pi's",
            ),
            kind => Reply::failed(format!("Unknown command: {kind}")),
        }
    }

    fn switch(&mut self, command: &Command, out: &mut Outbox) -> Result<Reply, Reply> {
        let path = command.text("sessionPath")?;
        let name = self.settings.name_of(&path).ok_or_else(|| {
            Reply::failed(format!(
                "there is no session `{path}`: `get_state` says `sessionFile`"
            ))
        })?;
        self.look_at_past(Whose::Switch(command.clone(), name), out);
        Ok(Reply::Later)
    }

    fn copy(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        if !self.exists {
            return Reply::failed("Cannot clone session: no current entry selected");
        }
        let to = self.name();
        let wanted = json!({"session": self.session, "to": to});
        self.ask(
            "session.fork",
            &wanted,
            What::Enter(command.clone(), to),
            out,
        );
        Reply::Later
    }

    fn compact(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        if !self.exists {
            return Reply::failed("Nothing to compact (session too small)");
        }
        let wanted = json!({
            "session": self.session,
            "instructions": command.fields.get("customInstructions"),
        });
        self.compacting = true;
        out.say(&json!({"type": "compaction_start", "reason": "manual"}));
        self.ask("compact", &wanted, What::Compact(command.clone()), out);
        Reply::Later
    }

    pub(super) fn compacted(
        &mut self,
        command: &Command,
        result: Result<Line, String>,
        out: &mut Outbox,
    ) {
        self.compacting = false;
        let mut end = json!({"type": "compaction_end", "reason": "manual", "aborted": false,
            "willRetry": false});
        let reply = match result {
            Ok(Line::Compact { summary, .. }) => {
                let result = json!({"summary": summary.unwrap_or_default(),
                    "firstKeptEntryId": "", "tokensBefore": 0, "details": {}});
                end["result"] = result.clone();
                Reply::data(result)
            }
            Ok(_) => Reply::failed("the daemon's answer was not understood"),
            Err(why) => {
                end["errorMessage"] = json!(why);
                Reply::Failed(why)
            }
        };
        out.say(&end);
        self.reply(command, reply, out);
        self.settled(out);
    }

    fn title(&mut self, command: &Command, out: &mut Outbox) -> Result<Reply, Reply> {
        let name = command
            .text("name")
            .map_err(|_| Reply::failed("Session name cannot be empty"))?;
        let name = name.trim().to_owned();
        self.title = Some(name.clone());
        if !self.exists {
            // It has this name as soon as there is anything to be named.
            self.is_titled = false;
            out.say(&json!({"type": "session_info_changed", "name": name}));
            return Ok(Reply::Done(None));
        }
        self.set_title(Some(command.clone()), out);
        Ok(Reply::Later)
    }

    pub(super) fn set_title(&mut self, command: Option<Command>, out: &mut Outbox) {
        self.is_titled = true;
        let title = SessionTitle {
            session: self.session.clone(),
            title: self.title.clone(),
        };
        self.ask("session.title", &title, What::Titled(command), out);
    }

    fn ask_commands(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        self.ask(
            "commands",
            &self.whose(),
            What::Commands(command.clone()),
            out,
        );
        Reply::Later
    }

    /// Whose models and commands.
    pub(super) fn whose(&self) -> Value {
        match (&self.settings.agent, self.exists) {
            (_, true) => json!({"session": self.session}),
            (Some(agent), false) => json!({"agent": agent}),
            (None, false) => json!({}),
        }
    }

    /// What can only be said once the agent's models are known.
    fn with_models(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        if self.rows.is_some() && command.kind != "get_available_models" {
            return self.model_command(command, out);
        }
        let what = What::Models(command.clone(), Vec::new());
        self.ask("models", &self.whose(), what, out);
        Reply::Later
    }

    pub(super) fn model_command(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        let rows = self.rows.clone().unwrap_or_default();
        let current = self.named.among(&rows).cloned();
        let levels = current.as_ref().and_then(|row| row.thinking.clone());
        let levels = levels.unwrap_or_default();
        match command.kind.as_str() {
            "get_available_models" => {
                let models: Vec<Value> = rows.iter().map(message::model).collect();
                Reply::data(json!({"models": models}))
            }
            "set_model" => {
                let field = |name: &str| command.fields.get(name).and_then(Value::as_str);
                let (provider, model) = (field("provider"), field("modelId"));
                let is_it = |row: &&ModelRow| {
                    Some(row.model.as_str()) == model
                        && row
                            .provider
                            .as_deref()
                            .is_none_or(|of| Some(of) == provider)
                };
                match rows.iter().find(is_it) {
                    Some(row) => Reply::data(self.choose(row)),
                    None => Reply::failed(format!(
                        "Model not found: {}/{}",
                        provider.unwrap_or_default(),
                        model.unwrap_or_default()
                    )),
                }
            }
            "cycle_model" => {
                let at = rows.iter().position(|row| Some(row) == current.as_ref());
                let next = at.map_or(0, |at| at + 1) % rows.len().max(1);
                match rows.get(next).filter(|_| rows.len() > 1) {
                    None => Reply::data(Value::Null),
                    Some(row) => {
                        let model = self.choose(row);
                        let level = self.level();
                        Reply::data(
                            json!({"model": model, "thinkingLevel": level, "isScoped": false}),
                        )
                    }
                }
            }
            // A model that doesn't think has none else, as in pi.
            "get_available_thinking_levels" if levels.is_empty() => {
                Reply::data(json!({"levels": ["off"]}))
            }
            "get_available_thinking_levels" => Reply::data(json!({"levels": levels})),
            _ => {
                let level = self.level();
                let at = levels.iter().position(|one| *one == level);
                let next = at.map_or(0, |at| at + 1) % levels.len().max(1);
                match levels.get(next).cloned() {
                    None => Reply::data(Value::Null),
                    Some(level) => {
                        self.think(level.clone(), out);
                        Reply::data(json!({"level": level}))
                    }
                }
            }
        }
    }

    fn choose(&mut self, row: &ModelRow) -> Value {
        self.named.provider.clone_from(&row.provider);
        self.named.model = Some(row.model.clone());
        self.is_pinned = true;
        message::model(row)
    }

    fn think(&mut self, level: String, out: &mut Outbox) {
        if self.thinking.as_ref() != Some(&level) {
            out.say(&json!({"type": "thinking_level_changed", "level": level}));
            self.thinking = Some(level);
        }
    }

    /// What needs what was said in the session.
    fn look_back(&mut self, command: &Command, out: &mut Outbox) -> Reply {
        if !self.exists {
            return self.past_command(command, &Past::default());
        }
        self.look_at_past(Whose::Command(command.clone()), out);
        Reply::Later
    }

    pub(super) fn past_command(&mut self, command: &Command, past: &Past) -> Reply {
        let leaf = |entries: &[Value]| entries.last().map(|entry| entry["id"].clone());
        match command.kind.as_str() {
            "get_messages" => {
                let messages = self.messages(past);
                Reply::data(json!({"messages": messages}))
            }
            "get_entries" => {
                let mut entries = past.listed();
                let leaf = leaf(&entries);
                if let Some(since) = command.fields.get("since").filter(|since| !since.is_null()) {
                    match entries.iter().position(|entry| entry["id"] == *since) {
                        Some(at) => entries.drain(..=at),
                        None => return Reply::failed(format!("Entry not found: {since}")),
                    };
                }
                Reply::data(json!({"entries": entries, "leafId": leaf}))
            }
            "get_tree" => {
                let entries = past.listed();
                let leaf = leaf(&entries);
                let mut tree = json!([]);
                for entry in entries.into_iter().rev() {
                    tree = json!([{"entry": entry, "children": tree}]);
                }
                Reply::data(json!({"tree": tree, "leafId": leaf}))
            }
            "get_fork_messages" | "get_branch_messages" => {
                let turns = past.turns.iter().filter(|turn| turn.last.is_some());
                let messages = turns.map(|turn| {
                    let entry = turn.job.to_string();
                    json!({"entryId": entry, "text": turn.text})
                });
                Reply::data(json!({"messages": messages.collect::<Vec<_>>()}))
            }
            "get_last_assistant_text" => {
                let messages = self.messages(past);
                let last = messages.iter().rev().find_map(|message| {
                    let content = message["content"].as_array()?;
                    let said = content
                        .iter()
                        .rev()
                        .find_map(|part| part["text"].as_str())?;
                    (message["role"] == "assistant").then(|| said.to_owned())
                });
                Reply::data(last.map_or_else(|| json!({}), |text| json!({"text": text})))
            }
            "get_session_stats" => {
                let mut stats = past.stats();
                stats["sessionFile"] = json!(self.settings.file_of(&self.session));
                stats["sessionId"] = json!(self.session);
                Reply::data(stats)
            }
            _ => {
                let entry = command.fields.get("entryId").and_then(Value::as_str);
                let Some((text, earlier)) = entry.and_then(|entry| past.before(entry)) else {
                    return Reply::failed("Invalid entry ID for forking");
                };
                let name = self.name();
                self.enter(name, false);
                self.begins = earlier;
                Reply::data(json!({"text": text, "cancelled": false}))
            }
        }
    }
}

impl Pi {
    /// All that was said; of the turn that runs what was told of it.
    fn messages(&self, past: &Past) -> Vec<Value> {
        let running = self.turn.as_ref().and_then(|turn| Some((turn.job?, turn)));
        let running = running.filter(|(job, _)| past.is_open(*job));
        let is_told = |id: &str| running.is_some_and(|(job, _)| job.to_string() == id);
        let entries = past.entries().into_iter();
        let entries = entries.filter(|entry| !is_told(&entry.id));
        let mut messages: Vec<Value> = entries.map(|entry| entry.message).collect();
        messages.extend(
            running
                .into_iter()
                .flat_map(|(_, turn)| turn.messages.clone()),
        );
        messages
    }
}

impl Settings {
    /// Where a session would be, were it pi's: nothing is there, and the path leads back to it.
    pub(super) fn file_of(&self, session: &str) -> String {
        format!("{}/{session}.jsonl", self.sessions)
    }

    /// The session of such a path, or of its name alone.
    pub(super) fn name_of(&self, path: &str) -> Option<String> {
        let name = path.strip_prefix(&self.sessions).unwrap_or(path);
        let name = name.trim_start_matches('/');
        let name = name.strip_suffix(".jsonl").unwrap_or(name);
        check_session(name).is_ok().then(|| name.to_owned())
    }
}
