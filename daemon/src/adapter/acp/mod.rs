//! Kind `acp`: the Agent Client Protocol version 1, JSON-RPC 2.0 in lines, with any agent that speaks
//! it.
//!
//! Owns what may be written to the agent and when: one session per process, opened in the
//! handshake, its model before a prompt that wants it, one prompt at a time, an answer to every
//! request of the agent's, and never `authenticate`.
//! Must not know processes or time: whatever the agent never answers, the core ends by its deadlines.

mod choices;
mod content;
mod failure;
mod handshake;
mod questions;
mod turn;
mod update;
mod wire;

use std::convert::Infallible;
use std::time::Duration;

use agentd_core::agent::{
    Capabilities, Levels, Modes, Providers, Reports, Resume, Sessions, SystemText,
};
use agentd_core::attached::AttachmentSupport;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::mcp::{McpServers, McpServing};
use agentd_core::pins;
use agentd_core::store::Pins;
use agentd_core::toolsets::Toolsets;
use agentd_core::worker::{
    CommandList, Failure, ModelList, Outcome, Prompt, QuestionKind, Reply, WorkerEvent,
};
use agentd_protocol::Code;
use agentd_protocol::line::{CostStatus, Level, Stop, Usage};
use agentd_protocol::models::ModeRow;
use serde_json::{Value, json};

use super::driver::{Begin, Driver, Out, Wire, has_driver};
use super::object::{Object, shows};
use super::{Launch, TOO_LONG, ended};
use choices::{Offer, Setting, Unoffered, What};
use handshake::Step;
use questions::Question;
use turn::Turn;

/// What the kind can do.
#[must_use]
pub const fn describe() -> Capabilities {
    Capabilities {
        sessions: Sessions::One,
        resume: Resume::Native,
        cancels: true,
        recycles: false,
        model_per_turn: true,
        thinking_per_turn: true,
        switches: false,
        models: true,
        providers: Providers::OfModel,
        thinking: Levels::Any,
        modes: Modes::Offered,
        toolsets: Toolsets::None,
        fallback_chain: false,
        system: SystemText::InPrompt,
        history: false,
        mcp: McpServing::AtStart,
        forks: false,
        steers: false,
        lists_models: true,
        lists_commands: true,
        compacts: false,
        tells: Reports {
            thinking: true,
            tools: true,
            usage: true,
            context: true,
            costs: &[CostStatus::Estimated],
            questions: &[QuestionKind::Approval, QuestionKind::Choice],
            stops: Stop::ALL,
        },
        attachments: AttachmentSupport::Texts,
        concurrent_sends: 1,
        ready_within: Duration::from_secs(60),
    }
}

/// The command as it is: everything else goes over standard input.
#[must_use]
pub fn launch(command: &[String], spawn: &Spawn) -> Launch {
    let _told_in_the_handshake = spawn;
    Launch {
        argv: command.to_vec(),
        ..Launch::default()
    }
}

/// An agent that didn't say its name.
const NAMELESS: &str = "the agent";

/// Agents that build a session anew to set its model, without the MCP servers that it was opened with.
const FORGETS: &[&str] = &["hermes-agent"];

/// What a prompt needs before it is written. An agent may offer other thinking levels with another
/// model, so that comes first.
#[derive(Clone, Copy, Default, Debug)]
enum Next {
    #[default]
    Model,
    Thinking,
    Mode,
    Nothing,
}

/// A setting that the agent was asked for.
#[derive(Debug)]
struct PendingSetting {
    /// The request.
    id: u64,
    /// The turn that needs it: it may be cancelled meanwhile.
    turn: TurnId,
    setting: Setting,
}

/// One process's translator.
#[derive(Debug, Default)]
pub struct Acp {
    driver: Driver<Self>,
    /// Which of the configuration it is.
    agent: String,
    cwd: String,
    /// MCP servers besides the agent's own.
    mcp_servers: McpServers,
    /// A session to reopen.
    resume: Option<String>,
    /// Number of the last request.
    last: u64,
    step: Step,
    /// The request whose answer, good or bad, shows that the agent is there.
    ping: Option<u64>,
    /// As the agent calls itself.
    name: Option<String>,
    /// Does it reopen sessions?
    loads: bool,
    /// What it takes besides text.
    takes: AttachmentSupport,
    /// The names of its ways to log in.
    logins: Vec<String>,
    /// What the session offers to choose from.
    offer: Offer,
    /// The model that it began with: turns without a pinned one get it.
    usual: Option<String>,
    /// The thinking level that it began with, likewise.
    usual_thinking: Option<String>,
    /// The mode that it began with.
    usual_mode: Option<String>,
    /// A setting without an answer.
    setting: Option<PendingSetting>,
    /// Did the agent repeat something of the session that it reopens?
    repeated: bool,
    /// The open session's id.
    session: Option<String>,
    /// Was it told to the core? A spare process belongs to nobody until its first turn.
    told: bool,
    /// US dollars that the session cost so far, where that is known.
    spent: Option<f64>,
    /// Tokens of the session so far, for agents that count them so.
    counted: Usage,
    /// What the prompt that waits needs next.
    next: Next,
    questions: Vec<Question>,
    /// Its slash commands, as last told; `None`: it has not told any yet.
    commands: Option<CommandList>,
}

/// Why a process is replaced whose setting has no answer.
const UNSETTLED: &str =
    "the agent had not said yet whether it took a cancelled turn's model or level";

impl Acp {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        Self {
            agent: spawn.agent.clone(),
            cwd: spawn.cwd.clone(),
            mcp_servers: spawn.mcp_servers.clone(),
            resume: spawn.resume.clone(),
            ..Self::default()
        }
    }

    /// Writes a request and returns its id.
    fn request(&mut self, method: &str, params: &Value, out: &mut Out<'_>) -> u64 {
        self.last += 1;
        wire::put_request(self.last, method, params, out);
        self.last
    }

    /// For sentences.
    fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(NAMELESS)
    }

    fn record(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        let Some(record) = Object::parse(bytes) else {
            return out.log(bytes);
        };
        match (record.string("method"), record.raw("id")) {
            (Some(method), Some(id)) => self.asked(&method, id, &record, out),
            (Some(method), None) => {
                if method == "session/update" {
                    self.updated(bytes, &record, out);
                } else if !method.starts_with(['_', '$']) {
                    // Extensions, and what JSON-RPC leaves to each, may be ignored.
                    self.not_understood(&method, out);
                }
            }
            (None, Some(_)) => self.answered(bytes, &record, out),
            // An error that names no request is nobody's, but worth reading.
            (None, None) => out.log(bytes),
        }
    }

    fn not_understood(&mut self, kind: &str, out: &mut Out<'_>) {
        let turn = self.driver.turn_id();
        let agent = self.name.as_deref().unwrap_or(NAMELESS);
        out.extend(self.driver.unknown.said(agent, kind, turn));
    }

    /// The answer to a request of ours.
    fn answered(&mut self, bytes: &[u8], record: &Object<'_>, out: &mut Out<'_>) {
        let id: Option<u64> = record.get("id");
        // Without `is_some` an answer without a number would be the one to a request that isn't
        // out.
        if id.is_some() && id == self.step.id() {
            self.stepped(record, out);
        } else if id.is_some() && id == self.driver.turn.as_ref().map(|turn| turn.id) {
            self.prompt_answered(record, out);
        } else if id.is_some() && id == self.setting.as_ref().map(|asked| asked.id) {
            self.set(record, out);
        } else if id.is_some() && id == self.ping {
            self.ping = None;
            out.push(self.ready());
        } else {
            out.stray(bytes);
        }
    }

    /// The turn is over, well or not.
    fn prompt_answered(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        self.release(None, out);
        let Some(turn) = self.driver.turn.take() else {
            return;
        };
        let result = match (record.object("error"), record.object("result")) {
            // Some agents end a cancelled prompt by an error, and not by `cancelled`.
            (Some(_), _) if turn.state.is_cancelled() => Ok(Stop::Cancelled),
            (Some(error), _) => Err(self.failure(&error)),
            (None, Some(result)) => self.stop(&turn, &result, out),
            (None, None) => Err(self.said_nothing()),
        };
        let usage = record
            .object("result")
            .and_then(|result| self.usage(&result));
        let outcome = Outcome {
            result,
            // The answer names none: the one that is set has run it.
            model: self.offer.model(),
            usage,
            context: turn.context,
            cost: turn.cost(self.name.as_deref()),
            ..Outcome::ended(Stop::EndTurn)
        };
        out.push(ended(turn.state.id, outcome));
    }

    fn stop(&self, turn: &Turn, result: &Object<'_>, out: &mut Out<'_>) -> Result<Stop, Failure> {
        Ok(match result.string("stopReason").as_deref() {
            Some("end_turn") => Stop::EndTurn,
            Some("max_tokens") => Stop::MaxTokens,
            Some("max_turn_requests") => Stop::MaxTurnRequests,
            Some("refusal") => Stop::Refusal,
            Some("cancelled") => Stop::Cancelled,
            Some(other) => {
                let other: String = other.chars().take(100).collect();
                let text = format!("{} stopped for a reason of its own: {other}", self.shown());
                out.note(Some(turn.state.id), Level::Warning, "worker", text);
                Stop::EndTurn
            }
            None => return Err(self.said_nothing()),
        })
    }

    fn said_nothing(&self) -> Failure {
        let error = format!("{} ended its turn without saying how", self.shown());
        Failure::new(Code::AgentFailed, error)
    }

    /// What has to be set next for a prompt.
    fn needed(&mut self, prompt: &Prompt) -> Result<Option<Setting>, Failure> {
        if matches!(self.next, Next::Model) {
            self.next = Next::Thinking;
            if let Some(setting) = self.needed_model(prompt)? {
                return Ok(Some(setting));
            }
        }
        if matches!(self.next, Next::Thinking) {
            self.next = Next::Mode;
            if let Some(setting) = self.needed_thinking(prompt)? {
                return Ok(Some(setting));
            }
        }
        if matches!(self.next, Next::Mode) {
            self.next = Next::Nothing;
            return self.needed_mode(prompt);
        }
        Ok(None)
    }

    fn needed_model(&self, prompt: &Prompt) -> Result<Option<Setting>, Failure> {
        let provider = prompt.provider.as_deref();
        let usual = self.usual.as_ref();
        let model = match (&prompt.model, provider, usual) {
            (Some(model), _, _) => model,
            // The turn before may have pinned another one, which the agent keeps.
            (None, None, _) => return Ok(usual.and_then(|usual| self.offer.usual_model(usual))),
            (None, Some(_), Some(usual)) => usual,
            (None, Some(provider), None) => {
                return Err(self.unoffered("provider", provider, &Unoffered::Choice));
            }
        };
        let chosen = self.offer.choose_model(provider, model);
        chosen.map_err(|why| match provider {
            Some(provider) if !self.offer.names(provider) => {
                self.unoffered("provider", provider, &why)
            }
            _ => self.unoffered("model", model, &why),
        })
    }

    fn needed_thinking(&self, prompt: &Prompt) -> Result<Option<Setting>, Failure> {
        let Some(level) = &prompt.thinking else {
            // Nobody chose it: where the model has no such level, its own is as good.
            let usual = self.usual_thinking.as_ref();
            return Ok(usual.and_then(|usual| self.offer.choose_thinking(usual).ok()?));
        };
        let chosen = self.offer.choose_thinking(level);
        chosen.map_err(|why| self.unoffered("thinking level", level, &why))
    }

    /// Without a pinned one the session stays as it is: nobody chose another one but its agent.
    fn needed_mode(&self, prompt: &Prompt) -> Result<Option<Setting>, Failure> {
        let Some(mode) = &prompt.mode else {
            return Ok(None);
        };
        // Only here is known what the agent says of it.
        if let Some(offered) = self.offer.mode_row(&mode.id) {
            let allowed = pins::may_run_in(&self.agent, mode, offered);
            allowed.map_err(|refused| Failure {
                hint: refused.hint,
                ..Failure::new(refused.code, refused.error)
            })?;
        }
        let chosen = self.offer.choose_mode(&mode.id);
        chosen.map_err(|why| self.unoffered("mode", &mode.id, &why))
    }

    /// What the agent says of its choices. A mode that nobody here asked for is told, and returned.
    fn learn(&mut self, told: &Object<'_>, out: &mut Out<'_>) -> Option<String> {
        let before = self.offer.mode();
        self.offer.learn(told);
        let now = self.offer.mode();
        let asked = self.setting.as_ref().map(|asked| &asked.setting);
        let is_ours = asked.is_some_and(|asked| asked.is(What::Mode, now.as_deref()));
        before.as_ref()?;
        let taken = now.filter(|now| before.as_ref() != Some(now) && !is_ours)?;
        let row = self.offer.mode_row(&taken).cloned();
        out.push(WorkerEvent::ModeChanged {
            mode: row.unwrap_or_else(|| ModeRow::named(&*taken)),
        });
        Some(taken)
    }

    /// A pin that can't be heeded: the turn doesn't run with something else.
    fn unoffered(&self, what: &str, value: &str, why: &Unoffered) -> Failure {
        let shown = self.shown();
        let error = match why {
            Unoffered::Choice => format!("{shown} offers no choice of a {what}: `{value}`"),
            Unoffered::Value(offered) => {
                format!("{shown} offers no {what} `{value}`; it offers {offered}")
            }
        };
        Failure {
            hint: Some("leave it out, or set it in the agent's own settings".to_owned()),
            ..Failure::new(Code::Unsupported, error)
        }
    }

    /// The agent took a setting, or didn't: then the turn that needs it can't begin.
    fn set(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let Some(PendingSetting { turn, setting, .. }) = self.setting.take() else {
            return;
        };
        let Some(error) = record.object("error") else {
            self.offer.set(&setting);
            let forgets = (self.name.as_deref()).is_some_and(|name| FORGETS.contains(&name));
            if setting.is(What::Model, Some(&setting.value))
                && forgets
                && !self.mcp_servers.is_empty()
            {
                let text = format!(
                    "with its model {} has dropped the session's MCP servers; its next process has them again",
                    self.shown()
                );
                out.note(Some(turn), Level::Warning, "worker", text);
            }
            if let Some(result) = record.object("result") {
                let _before_the_prompt = self.learn(&result, out);
            }
            return;
        };
        let needs = |prompt: &mut Box<Prompt>| prompt.turn == turn;
        // Unless it was cancelled meanwhile: then it has ended, and whoever waits now is another
        // turn.
        if self.driver.waiting.take_if(needs).is_some() {
            self.next = Next::default();
            let failure = self.failure(&error);
            let error = format!("`{}` was not taken: {}", setting.value, failure.error);
            let outcome = Outcome::failed(Failure { error, ..failure });
            out.push(ended(turn, outcome));
        }
    }

    fn put_cancel(&self, out: &mut Out<'_>) {
        if let Some(session) = &self.session {
            wire::put_notification("session/cancel", &wire::cancel(session), out);
        }
    }
}

impl Wire for Acp {
    type Turn = Turn;
    type Compaction = Infallible;

    const NAME: &'static str = NAMELESS;

    has_driver!();

    fn line(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        self.record(bytes, out);
    }

    fn too_long(&self, beginning: &[u8]) -> Option<Value> {
        let id = json!(self.driver.turn.as_ref()?.id);
        let error = json!({"code": -32603, "message": TOO_LONG});
        // A request of the agent's may have the same number: only an answer ends the turn.
        let is_answer = beginning.windows(8).any(|name| name == br#""result""#);
        (is_answer && shows(beginning, "id", &id))
            .then(|| json!({"jsonrpc": "2.0", "id": id, "error": error}))
    }

    fn probe(&mut self, out: &mut Out<'_>) {
        self.ask_whether_ready(out);
    }

    fn answer(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>) {
        self.reply(question, reply, out);
    }

    fn is_free(&mut self, _out: &mut Out<'_>) -> bool {
        self.setting.is_none() && matches!(self.step, Step::Open | Step::Broken(_))
    }

    /// Sets what the turn needs before its prompt is written.
    fn begin(&mut self, prompt: &Prompt, out: &mut Out<'_>) -> Begin<Turn> {
        if let Step::Broken(failure) = &self.step {
            // A new process may fare better with the next turn: somebody logs in meanwhile.
            let why = "the agent opened no session";
            out.push(WorkerEvent::Spoilt { why });
            return Begin::Failed(failure.clone());
        }
        let Some(session) = self.session.clone() else {
            return Begin::NotYet;
        };
        let turn = prompt.turn;
        match self.needed(prompt) {
            Ok(None) => {}
            Ok(Some(setting)) => {
                let (method, params) = setting.request(&session);
                let id = self.request(method, &params, out);
                self.setting = Some(PendingSetting { id, turn, setting });
                return Begin::NotYet;
            }
            Err(failure) => {
                self.next = Next::default();
                return Begin::Failed(failure);
            }
        }
        // Not in the handshake: a spare process belongs to no session of ours before its first
        // turn.
        if self.loads && !std::mem::replace(&mut self.told, true) {
            let native = session.clone();
            out.push(WorkerEvent::SessionNamed { native });
        }
        let params = wire::prompt(&session, &prompt.text, prompt.attachments.here());
        let id = self.request("session/prompt", &params, out);
        self.next = Next::default();
        Begin::Begun(Turn::new(turn, id, self.spent))
    }

    fn withdrawn(&mut self, out: &mut Out<'_>) {
        self.next = Next::default();
        if self.setting.is_some() {
            // An agent that never answers it would let no later turn begin.
            out.push(WorkerEvent::Spoilt { why: UNSETTLED });
        }
    }

    fn cancelled(&mut self, out: &mut Out<'_>) {
        // Before the cancel, as the protocol wants it: an agent may wait for both.
        self.release(None, out);
    }

    fn put_models(&mut self, number: u64, pins: &Pins, out: &mut Out<'_>) {
        if let Step::Broken(failure) = &self.step {
            return out.models(number, Err(failure.clone()));
        }
        let pinned = self.offer.named(pins);
        let rows = self.offer.rows(pinned.as_deref().or(self.usual.as_deref()));
        let note = match &rows {
            None => Some(format!("{} offers no choice of models", self.shown())),
            Some(_) => None,
        };
        let rows = rows.unwrap_or_default();
        let list = ModelList {
            rows,
            note,
            modes: self.offer.modes(),
            mode: self.usual_mode.clone(),
        };
        out.models(number, Ok(list));
    }

    fn put_commands(&mut self, number: u64, out: &mut Out<'_>) {
        if let Step::Broken(failure) = &self.step {
            return out.commands(number, Err(failure.clone()));
        }
        let list = self.commands.clone().unwrap_or_else(|| CommandList {
            rows: Vec::new(),
            note: Some(format!("{} has told no commands so far", self.shown())),
        });
        out.commands(number, Ok(list));
    }

    fn put_abort(&mut self, out: &mut Out<'_>) {
        self.put_cancel(out);
    }
}

#[cfg(test)]
mod hazards;
#[cfg(test)]
mod midturn;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod scopes;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod tests;
