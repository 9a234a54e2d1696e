//! From a new process to an open session: `initialize`, `session/new` or `session/load`.
//!
//! Owns the order of it. An agent that refuses is ready all the same, so that its turn can say why.
//! Must not know turns.

use agentd_core::attached::AttachmentSupport;
use agentd_core::worker::{Failure, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::Level;
use agentd_protocol::request::McpServer;
use serde_json::json;

use super::failure::is_gone;
use super::{Acp, wire};
use crate::adapter::driver::Out;
use crate::adapter::mcp::untaken;
use crate::adapter::object::Object;

/// An extension that no agent has: by JSON-RPC's rules it must refuse, and so shows that it is there.
const PING: &str = "_agentd/ping";
/// Gemini CLI 0.61.0 answers `session/load` first and repeats the history then: it is over when the
/// agent answered so many pings and said nothing between.
const QUIET: u32 = 2;
/// Ways to log in that are named.
const LOGINS: usize = 8;

/// How far the handshake is.
#[derive(Debug, Default)]
pub(super) enum Step {
    /// Nothing was written.
    #[default]
    New,
    /// `initialize` is out, under this id.
    Initialize(u64),
    /// `session/new` is out.
    Create(u64),
    /// `session/load` is out: what comes meanwhile is history.
    Load(u64),
    /// A ping is out after `session/load`, so many before it found the agent quiet, and since it
    /// nothing was repeated.
    Settle {
        /// Of the ping.
        id: u64,
        /// Rounds without history so far.
        quiet: u32,
        /// Did history come since?
        heard: bool,
    },
    /// The session is open.
    Open,
    /// There is no session, and this is why.
    Broken(Failure),
}

impl Step {
    /// Of the request that is out.
    pub(super) const fn id(&self) -> Option<u64> {
        match self {
            Self::Initialize(id) | Self::Create(id) | Self::Load(id) | Self::Settle { id, .. } => {
                Some(*id)
            }
            Self::New | Self::Open | Self::Broken(_) => None,
        }
    }
}

impl Acp {
    /// Begins the handshake, or asks an agent with a session whether it is there.
    pub(super) fn ask_whether_ready(&mut self, out: &mut Out<'_>) {
        match &self.step {
            Step::New => {
                let id = self.request("initialize", &wire::initialize(), out);
                self.step = Step::Initialize(id);
            }
            Step::Open => self.ping = Some(self.request(PING, &json!({}), out)),
            Step::Broken(_) => out.push(self.ready()),
            Step::Initialize(_) | Step::Create(_) | Step::Load(_) | Step::Settle { .. } => {}
        }
    }

    pub(super) fn ready(&self) -> WorkerEvent {
        // Of a session that never opened nothing is known.
        let open = matches!(self.step, Step::Open);
        let resumes = open.then_some(self.loads);
        WorkerEvent::Ready(Traits {
            resumes,
            takes: open.then_some(self.takes),
            models: self.offer.models().filter(|_| open),
            modes: open.then(|| self.offer.modes()),
            ..Traits::default()
        })
    }

    /// The answer to the request that is out.
    pub(super) fn stepped(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let result = record.object("result");
        let error = record.object("error");
        match std::mem::take(&mut self.step) {
            Step::Initialize(_) => match (error, result) {
                (None, Some(result)) => self.initialized(&result, out),
                (error, _) => self.refused(error.as_ref(), out),
            },
            Step::Create(_) => match (error, result) {
                (None, Some(result)) => match id_of(&result) {
                    Some(session) => {
                        self.opened(session, Some(&result));
                        self.step = Step::Open;
                        out.push(self.ready());
                    }
                    None => self.refused(None, out),
                },
                (error, _) => self.refused(error.as_ref(), out),
            },
            Step::Load(_) => self.loaded(error.as_ref(), result.as_ref(), out),
            Step::Settle { heard: true, .. } => self.settle(0, out),
            Step::Settle { quiet, .. } if quiet + 1 < QUIET => self.settle(quiet + 1, out),
            Step::Settle { .. } => {
                if !self.repeated {
                    // The protocol has it repeat all that it remembers.
                    self.nothing_left("it opened it, and repeated nothing of it", out);
                }
                self.step = Step::Open;
                out.push(self.ready());
            }
            // It has no request out.
            step @ (Step::New | Step::Open | Step::Broken(_)) => self.step = step,
        }
    }

    fn initialized(&mut self, result: &Object<'_>, out: &mut Out<'_>) {
        let info = result.object("agentInfo");
        self.name = info
            .and_then(|info| info.string("name"))
            .map(|name| name.chars().take(60).collect());
        let logins = result.objects("authMethods").into_iter().take(LOGINS);
        self.logins = logins
            .filter_map(|method| method.string("name").or_else(|| method.string("id")))
            .map(|name| name.chars().take(60).collect())
            .collect();
        let version: Option<u64> = result.get("protocolVersion");
        if version != Some(wire::VERSION) {
            let spoken = result.raw("protocolVersion").unwrap_or("none");
            let spoken: String = spoken.chars().take(20).collect();
            let error = format!("{} speaks version {spoken} of ACP, not 1", self.shown());
            return self.broken(Failure::new(Code::Unsupported, error), out);
        }
        let can = result.object("agentCapabilities");
        let takes = can
            .as_ref()
            .and_then(|can| can.object("promptCapabilities"));
        let says = |name| takes.as_ref().is_some_and(|takes| takes.is_true(name));
        self.takes = match (says("image"), says("embeddedContext")) {
            (false, _) => AttachmentSupport::Nothing,
            (true, false) => AttachmentSupport::Images,
            (true, true) => AttachmentSupport::Texts,
        };
        let transports = can.as_ref().and_then(|can| can.object("mcpCapabilities"));
        let takes = |server: &McpServer| match server {
            // Every agent has to.
            McpServer::Stdio { .. } => true,
            other => (transports.as_ref()).is_some_and(|known| known.is_true(other.transport())),
        };
        if let Some(failure) = untaken(self.shown(), &self.mcp_servers.list(), takes) {
            return self.broken(failure, out);
        }
        self.loads = can.is_some_and(|can| can.is_true("loadSession"));
        match self.resume.clone() {
            Some(session) if self.loads => {
                let params = wire::load_session(&session, &self.cwd, &self.mcp_servers.list());
                self.step = Step::Load(self.request("session/load", &params, out));
            }
            Some(_) => self.lost("it reopens no sessions", out),
            None => self.create(out),
        }
    }

    fn create(&mut self, out: &mut Out<'_>) {
        let params = wire::new_session(&self.cwd, &self.mcp_servers.list());
        self.step = Step::Create(self.request("session/new", &params, out));
    }

    /// The session's earlier turns are gone: that is said, and a new one begins.
    fn lost(&mut self, why: &str, out: &mut Out<'_>) {
        self.nothing_left(why, out);
        self.resume = None;
        self.create(out);
    }

    fn nothing_left(&self, why: &str, out: &mut Out<'_>) {
        let text = format!("{} could not reopen the session: {why}", self.shown());
        out.note(None, Level::Warning, "context-lost", text);
    }

    fn loaded(
        &mut self,
        error: Option<&Object<'_>>,
        result: Option<&Object<'_>>,
        out: &mut Out<'_>,
    ) {
        if let Some(error) = error {
            let failure = self.failure(error);
            // A new session would take the place of one that may be intact.
            return match is_gone(error) {
                true => self.lost(&failure.error, out),
                false => self.broken(failure, out),
            };
        }
        // Hermes 0.19.0 answers `null` for a session that isn't there; others for one that is, after
        // they repeated it.
        if result.is_none() && !self.repeated {
            return self.lost("it has nothing of it", out);
        }
        let session = self.resume.clone().unwrap_or_default();
        self.opened(session, result);
        self.settle(0, out);
    }

    fn opened(&mut self, session: String, result: Option<&Object<'_>>) {
        self.session = Some(session);
        // A reopened one has cost something before: what a turn costs isn't known until the agent
        // said how much.
        if self.resume.is_none() {
            self.spent = Some(0.0);
        }
        if let Some(result) = result {
            self.offer.learn(result);
        }
        // Now, before any turn sets one.
        self.usual = self.offer.model();
        self.usual_thinking = self.offer.thinking();
        self.usual_mode = self.offer.mode();
    }

    fn settle(&mut self, quiet: u32, out: &mut Out<'_>) {
        let id = self.request(PING, &json!({}), out);
        self.step = Step::Settle {
            id,
            quiet,
            heard: false,
        };
    }

    /// Is what the agent tells now its history? That is remembered.
    pub(super) fn repeats(&mut self, kind: &str) -> bool {
        let history = kind.ends_with("_chunk") || kind.starts_with("tool_call");
        match &mut self.step {
            Step::Load(_) => self.repeated |= history,
            Step::Settle { heard, .. } => {
                *heard |= history;
                self.repeated |= history;
            }
            _ => return false,
        }
        true
    }

    fn refused(&mut self, error: Option<&Object<'_>>, out: &mut Out<'_>) {
        let failure = match error {
            Some(error) => self.failure(error),
            None => {
                let error = format!("{} opened no session and did not say why", self.shown());
                Failure::new(Code::AgentFailed, error)
            }
        };
        self.broken(failure, out);
    }

    fn broken(&mut self, failure: Failure, out: &mut Out<'_>) {
        self.step = Step::Broken(failure);
        out.push(self.ready());
    }
}

/// The new session's id.
fn id_of(result: &Object<'_>) -> Option<String> {
    let sane = |id: &String| !id.is_empty() && id.len() <= 4096;
    result.string("sessionId").filter(sane)
}
