//! Kind `codex`: `codex app-server`, JSON-RPC in lines without the `jsonrpc` member.
//!
//! Owns what may be written to Codex and when: one thread per process, one turn at a time, an
//! interrupt and a steer only after `turn/started` (earlier ones are refused), a compaction only
//! between turns, and an answer to everything that Codex asks.
//! Must not know processes or time: whatever Codex never answers, the core ends by its deadlines.

mod decode;
mod items;
mod known;
mod models;
mod requests;
mod steer;
mod terminals;
mod turn;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentd_core::agent::{
    Capabilities, Levels, Modes, Providers, Reports, Resume, Sessions, SystemText,
};
use agentd_core::attached::AttachmentSupport;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::mcp::{McpServers, McpServing};
use agentd_core::store::Pins;
use agentd_core::toolsets::{Group, Toolsets};
use agentd_core::worker::{Failure, Prompt, QuestionKind, Reply, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::{Stop, Usage};
use agentd_protocol::models::ModelRow;
use agentd_protocol::request::McpServer;
use serde_json::{Value, json};

use super::attached::data_url;
use super::driver::{Begin, Driver, Out, Wire, has_driver};
use super::mcp::{codex_config, untaken};
use super::object::shows;
use super::{Launch, TOO_LONG, cut, ended};
use requests::Requests;
use steer::Compaction;
use turn::Turn;

/// Notifications that say nothing the core has a word for, or that repeat what an item says.
const UNWANTED: &[&str] = &[
    "account/rateLimits/updated",
    "item/fileChange/patchUpdated",
    "remoteControl/status/changed",
    "thread/status/changed",
    "turn/diff/updated",
];
/// Different warnings that are remembered, so that one that comes with every turn is said once.
const WARNINGS: usize = 16;
/// Longest warning that is passed on, in bytes.
const WARNING: usize = 2 * 1024;

/// Its efforts, with `off` for `none`. Not every model has each: then its provider says so.
const LEVELS: &[&str] = &[
    "off", "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra",
];

/// Its files go through its commands, so that neither is there alone.
const TOOLSETS: Toolsets = Toolsets::Groups(&[
    Group {
        names: &["terminal", "file"],
        own: None,
    },
    Group {
        names: &["terminal"],
        own: None,
    },
    Group {
        names: &["file-read"],
        own: Some("read-only"),
    },
]);

/// The id of the question whether anybody is logged in.
const ACCOUNT: &str = "account";

/// What the kind can do. The effort goes with a turn, and stays for those behind it that name none.
/// A model could, too, but not its provider: a process that is started anew and resumes the thread
/// can change both.
#[must_use]
pub const fn describe() -> Capabilities {
    Capabilities {
        sessions: Sessions::One,
        resume: Resume::Native,
        cancels: true,
        recycles: false,
        model_per_turn: false,
        thinking_per_turn: true,
        switches: false,
        models: true,
        providers: Providers::Any,
        thinking: Levels::Known(LEVELS),
        modes: Modes::None,
        toolsets: TOOLSETS,
        fallback_chain: false,
        system: SystemText::AtStart,
        history: false,
        mcp: McpServing::AtStart,
        forks: true,
        steers: true,
        lists_models: true,
        lists_commands: false,
        compacts: true,
        tells: Reports {
            thinking: true,
            tools: true,
            usage: true,
            context: true,
            costs: &[],
            questions: &[
                QuestionKind::Approval,
                QuestionKind::Choice,
                QuestionKind::Text,
                QuestionKind::Secret,
            ],
            stops: &[
                Stop::EndTurn,
                Stop::MaxTokens,
                Stop::Refusal,
                Stop::Cancelled,
            ],
        },
        attachments: AttachmentSupport::Images,
        concurrent_sends: 1,
        ready_within: Duration::from_secs(60),
    }
}

/// Model, provider, directory and thread are given over the wire: no flag, and nothing is written
/// to the user's configuration.
#[must_use]
pub fn launch(command: &[String], _spawn: &Spawn) -> Launch {
    let mut argv = command.to_vec();
    if !argv.iter().any(|argument| argument == "app-server") {
        argv.push("app-server".to_owned());
    }
    Launch {
        argv,
        // The end of its standard error is shown to people; it colours it on any terminal.
        env: vec![("NO_COLOR".to_owned(), "1".to_owned())],
        stdin: None,
    }
}

/// Codex gives its commands only the variables that the user's `shell_environment_policy` lets
/// pass, and each a session of its own: where no limit can be their mark, nobody would find them
/// otherwise. A policy with `include_only` takes them away all the same.
pub fn mark(marks: &[(&str, &str)], argv: &mut Vec<String>) {
    for (name, value) in marks {
        let set = format!("shell_environment_policy.set.{name}={value:?}");
        argv.extend(["-c".to_owned(), set]);
    }
}

/// A request of ours without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum OpenRequest {
    Initialize,
    /// `thread/start`, `thread/resume` or `thread/fork`.
    Open,
    /// Only whether there is an answer.
    Probe,
    /// `turn/start` for this turn.
    Turn(TurnId),
    /// `turn/interrupt`.
    Interrupt,
    /// `turn/steer` with this number.
    Steer(u64),
    /// `model/list` for the question of this number, with what its earlier pages had.
    Models(u64, Vec<ModelRow>),
    /// `thread/compact/start`.
    Compact,
    /// `thread/backgroundTerminals/list`.
    Terminals,
    /// `thread/backgroundTerminals/terminate`.
    Terminate,
}

/// The process's one thread.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum Thread {
    /// Nothing was asked yet.
    #[default]
    Unopened,
    /// The handshake is on its way.
    Opening,
    /// It has this id.
    Open(String),
    /// There is none, and every turn says why.
    Failed(Failure),
}

/// One process's translator.
#[derive(Debug, Default)]
pub struct Codex {
    driver: Driver<Self>,
    /// Number of the last request.
    last: u64,
    asked: BTreeMap<u64, OpenRequest>,
    thread: Thread,
    /// The thread to resume.
    resume: Option<String>,
    /// Is that one left as it is, and a copy of it opened?
    forks: bool,
    cwd: String,
    provider: Option<String>,
    model: Option<String>,
    /// What is told besides its own instructions.
    system: Option<Arc<str>>,
    /// MCP servers besides those of its configuration.
    mcp_servers: McpServers,
    /// What its commands may do, where that was restricted.
    sandbox: Option<&'static str>,
    /// Was the provider chosen here? What Codex says of its account is about its usual one.
    pinned: bool,
    /// Has the core heard the thread's id? It is worth nothing before its first turn.
    named: bool,
    /// All tokens of the thread so far; unknown for one that was resumed.
    total: Option<Usage>,
    requests: Requests,
    /// Warnings that were passed on.
    warned: Vec<String>,
}

impl Codex {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        Self {
            resume: spawn.resume.clone(),
            forks: spawn.forks,
            cwd: spawn.cwd.clone(),
            provider: spawn.provider.clone(),
            pinned: spawn.provider.is_some(),
            model: spawn.model.clone(),
            system: spawn.system.clone(),
            mcp_servers: spawn.mcp_servers.clone(),
            sandbox: spawn
                .toolsets
                .as_deref()
                .and_then(|asked| TOOLSETS.group(asked)?.own),
            // Codex tells the sum of the whole thread: counted from 0, the first turn of a resumed
            // one would have used the tokens of all before it.
            total: spawn.resume.is_none().then(Usage::default),
            ..Self::default()
        }
    }

    /// Writes a request.
    fn request(&mut self, asked: OpenRequest, method: &str, params: &Value, out: &mut Out<'_>) {
        self.last += 1;
        self.asked.insert(self.last, asked);
        out.put(&json!({"id": self.last, "method": method, "params": params}));
    }

    /// Answers by `Ready`, now or when the thread is open.
    fn ask_whether_ready(&mut self, out: &mut Out<'_>) {
        match self.thread {
            Thread::Unopened => {
                self.thread = Thread::Opening;
                let version = env!("CARGO_PKG_VERSION");
                let params = json!({
                    "clientInfo": {"name": "agentd", "title": "agentd", "version": version},
                    "capabilities": {
                        // For `thread/backgroundTerminals`.
                        "experimentalApi": true,
                        "requestAttestation": false,
                        "optOutNotificationMethods": UNWANTED,
                    },
                });
                self.request(OpenRequest::Initialize, "initialize", &params, out);
            }
            Thread::Opening => {}
            Thread::Open(_) | Thread::Failed(_) => {
                // Any answer shows that it is there; this one costs nothing and changes nothing.
                self.request(OpenRequest::Probe, "thread/loaded/list", &json!({}), out);
            }
        }
    }

    /// Asks for the thread, the old one or a new one.
    fn open(&mut self, out: &mut Out<'_>) {
        let mut params = json!({"cwd": self.cwd});
        let sandbox = self.sandbox.map(str::to_owned);
        for (name, value) in [
            ("model", &self.model),
            ("modelProvider", &self.provider),
            ("sandbox", &sandbox),
        ] {
            if let Some(value) = value {
                params[name] = json!(value);
            }
        }
        if let Some(system) = &self.system {
            params["developerInstructions"] = json!(&**system);
        }
        let servers = self.mcp_servers.list();
        let takes = |server: &McpServer| !matches!(server, McpServer::Sse { .. });
        if let Some(failure) = untaken("Codex", &servers, takes) {
            self.thread = Thread::Failed(failure);
            return out.push(WorkerEvent::Ready(Traits::default()));
        }
        if !servers.is_empty() {
            params["config"] = codex_config(&servers);
        }
        let method = match &self.resume {
            Some(thread) => {
                params["threadId"] = json!(thread);
                // Or all of the thread would come back, in one line.
                params["excludeTurns"] = json!(true);
                if self.forks {
                    "thread/fork"
                } else {
                    "thread/resume"
                }
            }
            None => "thread/start",
        };
        self.request(OpenRequest::Open, method, &params, out);
        // Another provider has a key of its own: whether somebody is logged in says nothing of it.
        if !self.pinned {
            // A look into its files: nothing goes over a network before a turn.
            let params = json!({"refreshToken": false});
            let asked = json!({"id": ACCOUNT, "method": "account/read", "params": params});
            out.put(&asked);
        }
    }

    /// Ends the turn in flight, if there is one.
    fn finish(&mut self, result: Result<Stop, Failure>, out: &mut Out<'_>) {
        let Some(mut turn) = self.driver.turn.take() else {
            return;
        };
        self.driver.steers.close_all(out);
        self.requests.decline_all(out);
        turn.end_calls(result == Ok(Stop::EndTurn), out);
        let mut outcome = turn.outcome(result);
        outcome.provider.clone_from(&self.provider);
        outcome.model.clone_from(&self.model);
        out.push(ended(turn.state.id, outcome));
    }
}

/// The text, and pictures by what they are: Codex need not find a file.
fn input(prompt: &Prompt) -> Value {
    let mut items = vec![json!({"type": "text", "text": prompt.text})];
    let pictures = prompt.attachments.here().iter();
    items.extend(pictures.map(|picture| json!({"type": "image", "url": data_url(picture)})));
    Value::Array(items)
}

/// agentd's thinking level as Codex names it.
fn effort(thinking: &str) -> &str {
    match thinking {
        "off" => "none",
        other => other,
    }
}

/// The same for a person, who is told how much is missing.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let kept = cut(text, most);
    match text.len() - kept.len() {
        0 => Cow::Borrowed(kept),
        more => Cow::Owned(format!("{kept}… ({more} bytes more)")),
    }
}

impl Wire for Codex {
    type Turn = Turn;
    type Compaction = Compaction;

    const NAME: &'static str = "codex";

    has_driver!();

    fn line(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        self.message(bytes, out);
    }

    fn too_long(&self, beginning: &[u8]) -> Option<Value> {
        let end = json!("turn/completed");
        let native = json!(self.driver.turn.as_ref()?.native.as_ref()?);
        let ours = shows(beginning, "method", &end) && shows(beginning, "id", &native);
        let turn = json!({"id": native, "status": "failed", "error": {"message": TOO_LONG}});
        let Thread::Open(thread) = &self.thread else {
            return None;
        };
        ours.then(|| json!({"method": end, "params": {"threadId": thread, "turn": turn}}))
    }

    fn probe(&mut self, out: &mut Out<'_>) {
        self.ask_whether_ready(out);
    }

    fn answer(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>) {
        self.requests.answer(question, reply, out);
    }

    fn is_free(&mut self, _out: &mut Out<'_>) -> bool {
        let settled = matches!(self.thread, Thread::Open(_) | Thread::Failed(_));
        settled && self.driver.compaction.is_none()
    }

    fn begin(&mut self, prompt: &Prompt, out: &mut Out<'_>) -> Begin<Turn> {
        let thread = match &self.thread {
            Thread::Unopened | Thread::Opening => return Begin::NotYet,
            Thread::Open(thread) => thread,
            Thread::Failed(failure) => {
                let why = "Codex has no thread open";
                out.push(WorkerEvent::Spoilt { why });
                return Begin::Failed(failure.clone());
            }
        };
        let mut params = json!({"threadId": thread, "input": input(prompt)});
        if let Some(thinking) = &prompt.thinking {
            params["effort"] = json!(effort(thinking));
        }
        self.request(OpenRequest::Turn(prompt.turn), "turn/start", &params, out);
        Begin::Begun(Turn::new(prompt.turn))
    }

    fn put_models(&mut self, number: u64, _pins: &Pins, out: &mut Out<'_>) {
        self.list_models((number, Vec::new()), None, out);
    }

    fn put_abort(&mut self, out: &mut Out<'_>) {
        if let (Some(turn), Thread::Open(thread)) = (&self.driver.turn, &self.thread) {
            let params = json!({"threadId": thread, "turnId": turn.native});
            self.request(OpenRequest::Interrupt, "turn/interrupt", &params, out);
        }
    }

    fn put_steer(&mut self, steer: u64, text: &str, out: &mut Out<'_>) -> Result<String, Failure> {
        let name = steer::name(steer);
        if let (Some(turn), Thread::Open(thread)) = (&self.driver.turn, &self.thread) {
            let params = json!({
                "threadId": thread,
                "expectedTurnId": turn.native,
                "clientUserMessageId": name,
                "input": [{"type": "text", "text": text}],
            });
            self.request(OpenRequest::Steer(steer), "turn/steer", &params, out);
        }
        Ok(name)
    }

    fn put_compact(
        &mut self,
        instructions: Option<&str>,
        out: &mut Out<'_>,
    ) -> Result<Compaction, Failure> {
        let Thread::Open(thread) = &self.thread else {
            let why = "codex has no thread open";
            return Err(Failure::new(Code::SessionIdle, why));
        };
        if instructions.is_some() {
            let why = "codex takes no instructions for a compaction";
            return Err(Failure::new(Code::Unsupported, why));
        }
        let params = json!({"threadId": thread});
        self.request(OpenRequest::Compact, "thread/compact/start", &params, out);
        Ok(Compaction { turn: None })
    }
}

#[cfg(test)]
mod hazards;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scopes;
#[cfg(test)]
mod tests;
