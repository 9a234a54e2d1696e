//! Kind `claude`: Claude Code's stream-json, both ways (`claude -p --input-format stream-json`).
//!
//! Owns what may be written to the agent and when: one prompt at a time, an interruption and a steer
//! only when the run is seen, `/compact` only between turns, and no message left in its queue.
//! Must not know processes or time: whatever the agent never answers, the core ends by its deadlines.
//!
//! The wire was read off version 2.1.329; `tests/fixtures/claude` has what it said.

mod content;
mod decode;
mod models;
mod news;
mod questions;
mod servers;
mod steer;
mod switch;
mod turn;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use agentd_core::agent::{
    Capabilities, Consent, Levels, Mode, Modes, Providers, Reports, Resume, Sessions, SystemText,
};
use agentd_core::attached::AttachmentSupport;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::mcp::McpServing;
use agentd_core::store::Pins;
use agentd_core::toolsets::{Tools, Toolsets};
use agentd_core::worker::{Exit, Failure, Outcome, Prompt, QuestionKind, Reply};
use agentd_protocol::Code;
use agentd_protocol::line::{CostStatus, Stop};
use serde_json::{Value, json};

use super::driver::{Begin, Driver, Out, Wire, has_driver};
use super::object::shows;
use super::{Launch, TOO_LONG, ended};
use questions::PermissionRequests;
use servers::Servers;
use steer::Compaction;
use switch::Switch;
use turn::Turn;

/// Its thinking levels: without any, at its lowest effort, or by that.
const LEVELS: &[&str] = &[
    "off", "none", "minimal", "low", "medium", "high", "xhigh", "max",
];
/// Its permission modes, which it doesn't list by itself but in a refusal.
const MODES: &[Mode] = &[
    Mode {
        id: "default",
        description: "asks before it changes anything",
        consent: Consent::Asked,
    },
    Mode {
        id: "acceptEdits",
        description: "changes files of its directory without asking",
        consent: Consent::Asked,
    },
    Mode {
        id: "plan",
        description: "reads and plans, and changes nothing",
        consent: Consent::Asked,
    },
    Mode {
        id: "dontAsk",
        description: "does only what its own rules allow, and asks nobody",
        consent: Consent::Asked,
    },
    Mode {
        id: "auto",
        description: "a model decides in its user's place",
        consent: Consent::Skipped,
    },
    Mode {
        id: "bypassPermissions",
        description: "does everything without asking",
        consent: Consent::Skipped,
    },
];
/// As one chooses what it calls `firstParty`.
const ANTHROPIC: &str = "anthropic";
/// Platforms that serve its models; `anthropic` is none of the others.
const PROVIDERS: &[&str] = &[ANTHROPIC, "bedrock", "vertex", "foundry"];
/// The variables that choose the others.
const CHOOSE: &[(&str, &str)] = &[
    ("bedrock", "CLAUDE_CODE_USE_BEDROCK"),
    ("vertex", "CLAUDE_CODE_USE_VERTEX"),
    ("foundry", "CLAUDE_CODE_USE_FOUNDRY"),
];

/// What it says of a session that it hasn't got.
const GONE: &str = "No conversation found";

/// Its tools. `Agent` was `Task` in earlier versions, which take the one or the other.
const TOOLSETS: Toolsets = Toolsets::Tools(&Tools {
    sets: &[
        ("terminal", &["Bash"]),
        (
            "file",
            &["Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep"],
        ),
        ("file-read", &["Read", "Glob", "Grep"]),
        ("web", &["WebFetch", "WebSearch"]),
        ("search", &["WebSearch"]),
        ("delegate", &["Agent", "Task"]),
        ("todo", &["TodoWrite"]),
        ("skills", &["Skill"]),
    ],
    others: &[
        "AskUserQuestion",
        "BashOutput",
        "EnterPlanMode",
        "ExitPlanMode",
        "KillShell",
        "LSP",
        "ListMcpResourcesTool",
        "ReadMcpResourceTool",
        "TaskCreate",
        "TaskGet",
        "TaskList",
        "TaskOutput",
        "TaskStop",
        "TaskUpdate",
        "ToolSearch",
    ],
    prefix: Some("mcp__"),
});

/// What the kind can do. `/clear` would open a new session in the process, but what it keeps of the
/// old one is not documented: a new session gets a new process.
#[must_use]
pub const fn describe() -> Capabilities {
    Capabilities {
        sessions: Sessions::One,
        resume: Resume::Native,
        cancels: true,
        recycles: false,
        model_per_turn: false,
        thinking_per_turn: false,
        switches: true,
        models: true,
        providers: Providers::Known(PROVIDERS),
        thinking: Levels::Known(LEVELS),
        modes: Modes::Known(MODES),
        toolsets: TOOLSETS,
        fallback_chain: false,
        system: SystemText::AtStart,
        history: false,
        mcp: McpServing::AtStart,
        forks: true,
        steers: true,
        lists_models: true,
        lists_commands: true,
        compacts: true,
        tells: Reports {
            thinking: true,
            tools: true,
            usage: true,
            context: true,
            costs: &[CostStatus::Estimated, CostStatus::Included],
            questions: &[QuestionKind::Approval, QuestionKind::Choice],
            stops: Stop::ALL,
        },
        attachments: AttachmentSupport::Files,
        concurrent_sends: 1,
        ready_within: Duration::from_secs(60),
    }
}

/// Everything is a flag or a variable: the user's settings are never written.
#[must_use]
pub fn launch(command: &[String], spawn: &Spawn) -> Launch {
    let mut argv = command.to_vec();
    let mut put = |words: &[&str]| argv.extend(words.iter().map(|&word| word.to_owned()));
    if !command.iter().any(|word| word == "--input-format") {
        // With `-p` it refuses to write stream-json without `--verbose`.
        put(&["-p", "--verbose", "--include-partial-messages"]);
        put(&["--input-format", "stream-json"]);
        put(&["--output-format", "stream-json"]);
        // Or it refuses, without a terminal, every tool that it would ask for.
        put(&["--permission-prompt-tool", "stdio"]);
    }
    if let Some(model) = &spawn.model {
        put(&["--model", model]);
    }
    if let Some(mode) = &spawn.mode {
        put(&["--permission-mode", mode]);
    }
    if let Some(id) = &spawn.resume {
        put(&["--resume", id]);
        if spawn.forks {
            put(&["--fork-session"]);
        }
    }
    if let Some(tools) = &spawn.toolsets {
        put(&["--tools", &TOOLSETS.own(tools).join(",")]);
    }
    // A turn is over when its answer is: nothing may start another one behind it, and nothing is
    // fetched or sent that the turn doesn't need.
    let mut env = vec![
        ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
        ("CLAUDE_CODE_DISABLE_CRON", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ];
    match spawn.thinking.as_deref() {
        Some("off" | "none") => env.push(("CLAUDE_CODE_DISABLE_THINKING", "1")),
        Some(level) => put(&["--effort", effort(level)]),
        None => {}
    }
    if let Some(provider) = &spawn.provider {
        // Empty is no: what the agent's own environment chose doesn't count then.
        let chosen = |name: &str| if name == provider { "1" } else { "" };
        env.extend(
            CHOOSE
                .iter()
                .map(|(name, variable)| (*variable, chosen(name))),
        );
    }
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Launch {
        argv,
        env: env.into_iter().map(own).collect(),
        stdin: None,
    }
}

/// Its own word for a level.
fn effort(level: &str) -> &str {
    if level == "minimal" { "low" } else { level }
}

/// One process's translator.
pub struct Claude {
    driver: Driver<Self>,
    /// Makes the ids of our messages: the agent drops a message whose id it has in its transcript.
    seed: u64,
    /// Number of the last request or message.
    last: u64,
    /// What it is told behind its own system prompt. Not by an argument: everybody on the machine reads
    /// those.
    system: Option<Arc<str>>,
    /// The `initialize` whose answer makes the process ready.
    probe: Option<String>,
    /// The models of its answer, as they were written.
    models: Option<Box<str>>,
    /// The slash commands of its answer, likewise.
    commands: Option<Box<str>>,
    /// The session as last reported.
    named: Option<String>,
    /// Was an earlier session to be reopened, and not seen yet?
    resumed: bool,
    /// Does it tell where our messages are? Then a turn begins when it says so.
    tells: bool,
    questions: PermissionRequests,
    switch: Switch,
    /// The permission mode as last told.
    mode: Option<String>,
    /// That of a process that was started without one.
    usual_mode: Option<String>,
    servers: Servers,
    /// US dollars since the process started.
    spent: f64,
    /// Does a flat plan pay for it?
    is_flat: bool,
}

impl Claude {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        Self {
            driver: Driver::default(),
            seed: RandomState::new().hash_one(0),
            last: 0,
            system: spawn.system.clone(),
            probe: None,
            models: None,
            commands: None,
            named: None,
            resumed: spawn.resume.is_some(),
            tells: false,
            questions: PermissionRequests::default(),
            switch: Switch::new(spawn),
            mode: spawn.mode.clone(),
            usual_mode: None,
            servers: Servers::new(spawn),
            spent: 0.0,
            is_flat: false,
        }
    }

    /// Writes a control request and returns its id.
    fn request(&mut self, mut request: Value, kind: &str, out: &mut Out<'_>) -> String {
        self.last += 1;
        let id = format!("a{}", self.last);
        request["subtype"] = json!(kind);
        let line = json!({"type": "control_request", "request_id": id, "request": request});
        out.put(&line);
        id
    }

    /// Writes a user message and returns its id, a UUID.
    fn say(&mut self, text: &str, out: &mut Out<'_>) -> String {
        self.say_content(&json!(text), out)
    }

    /// The same with more than text.
    fn say_content(&mut self, content: &Value, out: &mut Out<'_>) -> String {
        self.last += 1;
        let (high, low) = (self.seed >> 32, self.seed & 0xffff_ffff);
        let (second, fourth) = (low >> 16, low & 0x0fff);
        let last = self.last & 0xffff_ffff_ffff;
        // In the form of a random UUID (RFC 9562, version 4): the last part counts, so no two are
        // the same.
        let id = format!("{high:08x}-{second:04x}-4000-8{fourth:03x}-{last:012x}");
        let message = json!({"role": "user", "content": content});
        out.put(
            &json!({"type": "user", "message": message, "parent_tool_use_id": null, "uuid": id}),
        );
        id
    }
}

/// A turn that its user cancelled.
fn cancelled() -> Outcome {
    Outcome::ended(Stop::Cancelled)
}

impl Wire for Claude {
    type Turn = Turn;
    type Compaction = Compaction;

    const NAME: &'static str = "Claude Code";

    has_driver!();

    fn line(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        self.said(bytes, out);
    }

    fn too_long(&self, beginning: &[u8]) -> Option<Value> {
        let end = json!("result");
        shows(beginning, "type", &end)
            .then(|| json!({"type": end, "subtype": "error", "is_error": true, "result": TOO_LONG}))
    }

    /// 2.0 says on its standard error only that it has not got the session.
    fn gone(&mut self, _exit: Exit, tail: &str, out: &mut Out<'_>) {
        if self.resumed && tail.contains(GONE) {
            self.lost_session(out);
        }
    }

    fn probe(&mut self, out: &mut Out<'_>) {
        // Behind its own: without that it would not know its tools.
        let fields = match &self.system {
            Some(system) => json!({"appendSystemPrompt": **system}),
            None => json!({}),
        };
        self.probe = Some(self.request(fields, "initialize", out));
    }

    fn answer(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>) {
        self.questions.answered(question, reply, out);
    }

    fn switch(&mut self, pins: &Pins, out: &mut Out<'_>) {
        self.switch_to(pins, out);
    }

    fn put_models(&mut self, number: u64, pins: &Pins, out: &mut Out<'_>) {
        let pinned = pins.model.as_deref();
        let mut list = models::listed(self.models.as_deref(), pinned);
        if let Ok(list) = &mut list {
            list.modes = MODES.iter().map(models::mode).collect();
            list.mode.clone_from(&self.usual_mode);
        }
        out.models(number, list);
    }

    fn put_commands(&mut self, number: u64, out: &mut Out<'_>) {
        out.commands(number, models::commands(self.commands.as_deref()));
    }

    /// The agent queues what is written meanwhile, a prompt behind a compaction, too: none waits
    /// here for a turn's end.
    fn takes_prompt(&self) -> bool {
        self.driver.turn.is_none()
    }

    fn begin(&mut self, prompt: &Prompt, out: &mut Out<'_>) -> Begin<Turn> {
        if let Servers::Refused(failure) = &self.servers {
            return Begin::Failed(failure.clone());
        }
        let id = self.say_content(&content::of(prompt), out);
        Begin::Begun(Turn::new(prompt.turn, id))
    }

    fn cancelled(&mut self, out: &mut Out<'_>) {
        // What is queued would be run after the interruption. Between two runs it is the next one
        // that is interrupted: it may have begun already.
        if self
            .driver
            .turn
            .as_ref()
            .is_some_and(|turn| turn.last.is_none())
        {
            self.take_back_steers(out);
        }
    }

    fn put_abort(&mut self, out: &mut Out<'_>) {
        self.request(json!({}), "interrupt", out);
    }

    /// What it has queued was taken back with the cancel, and nothing may be behind that.
    fn takes_steer(&self, turn: TurnId) -> bool {
        let takes = |known: &Turn| known.state.id == turn && !known.state.is_cancelled();
        self.driver.turn.as_ref().is_some_and(takes)
    }

    fn put_steer(&mut self, _word: u64, text: &str, out: &mut Out<'_>) -> Result<String, Failure> {
        if !self.tells {
            // It could not be taken back, and would be given to a later turn.
            let why = "this Claude Code does not tell what becomes of a word to its run";
            return Err(Failure::new(Code::Unsupported, why));
        }
        Ok(self.say(text, out))
    }

    fn put_compact(
        &mut self,
        instructions: Option<&str>,
        out: &mut Out<'_>,
    ) -> Result<Compaction, Failure> {
        let text = match instructions {
            Some(instructions) => format!("/compact {instructions}"),
            None => "/compact".to_owned(),
        };
        self.say(&text, out);
        Ok(Compaction::default())
    }
}

#[cfg(test)]
mod hazards;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scopes;
#[cfg(test)]
mod tests;
