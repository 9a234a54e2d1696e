//! Kind `pi`: `pi --mode rpc` in both of its dialects (0.73.1, and 1.x with `agent_settled`).
//!
//! Owns what may be written to pi and when: one prompt at a time and only when idle, an abort and
//! a steer only after `agent_start`, a new session and a compaction only between runs, and nothing
//! left in pi's queue. No setter that writes the user's settings: only newer ones keep a model and
//! a level to the session (`switch.rs`).
//! Must not know processes or time: whatever pi never answers, the core ends by its deadlines.

mod activity;
mod decode;
mod models;
mod steer;
mod switch;
mod turn;

use std::time::Duration;

use agentd_core::agent::{
    Capabilities, Levels, Modes, Providers, Reports, Resume, Sessions, SystemText,
};
use agentd_core::attached::{Attached, AttachmentSupport};
use agentd_core::effect::Spawn;
use agentd_core::mcp::McpServing;
use agentd_core::store::Pins;
use agentd_core::toolsets::{Tools, Toolsets};
use agentd_core::worker::{Failure, Outcome, Prompt, QuestionKind, Reply, WorkerEvent};
use agentd_protocol::line::{CostStatus, Level, Stop};
use serde_json::{Value, json};

use super::attached::base64;
use super::driver::{Begin, Driver, Out, Wire, has_driver};
use super::object::shows;
use super::{Launch, ended};
use activity::{Activity, Dialect};
use steer::Queue;
use switch::Switch;
use turn::Turn;

/// A slash command that starts no run is believed after so many looks at the state: the old
/// dialect acknowledges both kinds alike, and a run begins within a few of pi's ticks.
const LOOKS: u32 = 8;
/// The old dialect decides after `agent_end` whether it compacts: one look may come too early.
const LOOKS_OLD: u32 = 2;

/// Its thinking levels, of both dialects: instead of one that it or the model hasn't got it takes
/// another, and says nothing.
const LEVELS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Its tools; those of extensions have no names that are known before it runs.
const TOOLSETS: Toolsets = Toolsets::Tools(&Tools {
    sets: &[
        ("terminal", &["bash"]),
        ("file", &["read", "write", "edit", "grep", "find", "ls"]),
        ("file-read", &["read", "grep", "find", "ls"]),
    ],
    others: &[],
    prefix: None,
});

/// What the kind can do.
#[must_use]
pub const fn describe() -> Capabilities {
    Capabilities {
        sessions: Sessions::One,
        resume: Resume::Native,
        cancels: true,
        recycles: true,
        model_per_turn: false,
        thinking_per_turn: false,
        switches: true,
        models: true,
        providers: Providers::Any,
        thinking: Levels::Known(LEVELS),
        modes: Modes::None,
        toolsets: TOOLSETS,
        fallback_chain: false,
        system: SystemText::AtStart,
        history: false,
        mcp: McpServing::Never,
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
            costs: &[CostStatus::Actual, CostStatus::Estimated],
            questions: &[
                QuestionKind::Approval,
                QuestionKind::Choice,
                QuestionKind::Text,
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

/// Everything is a flag: older ones' setters write the user's own settings.
#[must_use]
pub fn launch(command: &[String], spawn: &Spawn) -> Launch {
    let mut argv = command.to_vec();
    if !argv.iter().any(|argument| argument == "--mode") {
        argv.extend(["--mode".to_owned(), "rpc".to_owned()]);
    }
    for (flag, value) in [
        ("--provider", &spawn.provider),
        ("--model", &spawn.model),
        ("--thinking", &spawn.thinking),
        (
            if spawn.forks { "--fork" } else { "--session" },
            &spawn.resume,
        ),
    ] {
        if let Some(value) = value {
            argv.extend([flag.to_owned(), value.clone()]);
        }
    }
    if let Some(system) = &spawn.system {
        // What is the name of a file it would read instead: none begins with this.
        argv.extend([
            "--append-system-prompt".to_owned(),
            format!("# System\n\n{system}"),
        ]);
    }
    match spawn.toolsets.as_deref() {
        None => {}
        Some([]) => argv.push("--no-tools".to_owned()),
        Some(tools) => argv.extend(["--tools".to_owned(), TOOLSETS.own(tools).join(",")]),
    }
    Launch {
        argv,
        // Nothing is sent that the turn doesn't need.
        env: vec![("PI_TELEMETRY".to_owned(), "0".to_owned())],
        stdin: None,
    }
}

/// What is said when the file of the open session is gone.
const NO_FILE: &str = "the file of pi's session was removed";
const NO_FILE_HINT: &str = "the file of pi's session was removed: the next turn has a new process, \
    and nothing of the earlier ones";

/// How far the wish for a new session got.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum Recycle {
    #[default]
    No,
    /// Waits until pi is idle: earlier, the old run would go on unseen.
    Wanted,
    /// `new_session` is out, under this id.
    Asked(String),
    /// The new session's name is asked for, under this id.
    Naming(String),
}

/// One process's translator.
#[derive(Debug, Default)]
pub struct Pi {
    driver: Driver<Self>,
    /// Number of the last request.
    last: u64,
    dialect: Dialect,
    activity: Activity,
    /// The `get_state` whose answer makes the process ready.
    probe: Option<String>,
    /// The `get_state` whose answer may confirm that pi is idle.
    confirm: Option<String>,
    /// How often it was idle since.
    looks: u32,
    queue: Queue,
    recycle: Recycle,
    /// The session's file as last reported.
    named: Option<String>,
    /// Was it reported after a turn? Old versions write it with the first answer only.
    kept: bool,
    /// Was an earlier session to be reopened, and its state not seen yet?
    resumed: bool,
    provider: Option<String>,
    model: Option<String>,
    /// Tokens that fit into its context.
    window: Option<u64>,
    /// What was asked for.
    asked: Pins,
    switch: Option<Switch>,
    /// The one that counts.
    thinking: Option<String>,
}

impl Pi {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        Self {
            resumed: spawn.resume.is_some(),
            asked: spawn.pins(),
            ..Self::default()
        }
    }

    /// Writes a request and returns its id.
    fn request(&mut self, kind: &str, mut fields: Value, out: &mut Out<'_>) -> String {
        self.last += 1;
        let id = format!("a{}", self.last);
        fields["type"] = json!(kind);
        fields["id"] = json!(id);
        out.put(&fields);
        id
    }

    /// Asks whether pi is idle; the answer counts only if nothing happened in between.
    fn look(&mut self, out: &mut Out<'_>) {
        self.looks = 0;
        self.look_again(out);
    }

    fn look_again(&mut self, out: &mut Out<'_>) {
        self.confirm = Some(self.request("get_state", json!({}), out));
    }

    /// 1.x opens its session's file for each message: once that is removed beneath it, every turn
    /// of the process fails. A new process begins the file anew.
    fn has_no_file(&self, failure: &Failure) -> bool {
        let said = failure.error.as_str();
        let file = self.named.as_deref();
        said.contains("ENOENT") && file.is_some_and(|file| said.contains(file))
    }

    /// Ends the turn in flight, if there is one.
    fn finish(&mut self, outcome: Option<Outcome>, out: &mut Out<'_>) {
        if let Some(turn) = self.driver.turn.take() {
            let name = turn.state.id;
            let mut outcome = outcome.unwrap_or_else(|| turn.outcome(self.window));
            outcome.provider = outcome.provider.or_else(|| self.provider.clone());
            outcome.model = outcome.model.or_else(|| self.model.clone());
            if let (Some(asked), Some(level)) = (&self.asked.thinking, &self.thinking) {
                if asked != level {
                    let text = format!(
                        "pi took the thinking level `{level}`: this pi or the model has no `{asked}`"
                    );
                    out.note(Some(name), Level::Warning, "worker", text);
                }
                outcome.thinking = Some(level.clone());
            }
            if let Err(failure) = &mut outcome.result
                && self.has_no_file(failure)
            {
                failure.hint = Some(NO_FILE_HINT.to_owned());
                out.push(WorkerEvent::Spoilt { why: NO_FILE });
            }
            out.push(ended(name, outcome));
        }
    }
}

/// The members of a `prompt` request.
fn fields(prompt: &Prompt) -> Value {
    let mut fields = json!({"message": prompt.text});
    let picture = |of: &Attached| json!({"type": "image", "data": base64(of), "mimeType": of.mime});
    let pictures: Vec<Value> = prompt.attachments.here().iter().map(picture).collect();
    if !pictures.is_empty() {
        fields["images"] = json!(pictures);
    }
    fields
}

impl Wire for Pi {
    type Turn = Turn;
    /// The id of the request.
    type Compaction = String;

    const NAME: &'static str = "pi";

    has_driver!();

    fn line(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        self.record(bytes, out);
    }

    fn too_long(&self, beginning: &[u8]) -> Option<Value> {
        // It has all the turn's messages; the old dialect says nothing behind it.
        let end = json!("agent_end");
        shows(beginning, "type", &end).then(|| json!({"type": end}))
    }

    fn probe(&mut self, out: &mut Out<'_>) {
        self.probe = Some(self.request("get_state", json!({}), out));
    }

    fn answer(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>) {
        steer::put_reply(question, reply, out);
    }

    fn recycle(&mut self) {
        if self.recycle == Recycle::No {
            self.recycle = Recycle::Wanted;
        }
    }

    fn switch(&mut self, pins: &Pins, out: &mut Out<'_>) {
        self.switch_to(pins, out);
    }

    fn is_free(&mut self, out: &mut Out<'_>) -> bool {
        if !self.activity.is_idle() || self.is_held_up() {
            return false;
        }
        if self.recycle == Recycle::Wanted {
            self.recycle = Recycle::Asked(self.request("new_session", json!({}), out));
        }
        self.recycle == Recycle::No
    }

    fn begin(&mut self, prompt: &Prompt, out: &mut Out<'_>) -> Begin<Turn> {
        let id = self.request("prompt", fields(prompt), out);
        Begin::Begun(Turn::new(prompt, id))
    }

    fn put_models(&mut self, number: u64, _pins: &Pins, out: &mut Out<'_>) {
        out.put(&models::request(number));
    }

    fn put_commands(&mut self, number: u64, out: &mut Out<'_>) {
        out.put(&models::commands_request(number));
    }

    fn withdrawn(&mut self, out: &mut Out<'_>) {
        let _no_turn_is_open_for_it = self.run_over(out);
    }

    fn put_abort(&mut self, out: &mut Out<'_>) {
        let id = self.request("abort", json!({}), out);
        if let Some(turn) = &mut self.driver.turn {
            turn.abort = Some(id);
        }
    }

    fn put_steer(&mut self, _word: u64, text: &str, out: &mut Out<'_>) -> Result<String, Failure> {
        Ok(self.request("steer", json!({"message": text}), out))
    }

    /// In the middle of a run `compact` would end the run unseen.
    fn is_busy(&self) -> bool {
        !self.activity.is_idle() || self.is_held_up() || self.recycle != Recycle::No
    }

    fn put_compact(
        &mut self,
        instructions: Option<&str>,
        out: &mut Out<'_>,
    ) -> Result<String, Failure> {
        let fields = match instructions {
            Some(instructions) => json!({"customInstructions": instructions}),
            None => json!({}),
        };
        Ok(self.request("compact", fields, out))
    }
}

#[cfg(test)]
mod hazards;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod steer_tests;
#[cfg(test)]
mod tests;
