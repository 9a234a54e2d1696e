//! From a new process to an open session: `initialize`, `session/new` or `session/load`.
//!
//! Owns the order of it. An agent that refuses is ready all the same, so that its turn can say why.
//! Must not know turns.

use agentd_core::worker::{Failure, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::Level;
use serde_json::json;

use super::{Acp, noted, wire};
use crate::adapter::object::Object;

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
    /// The session is open.
    Open,
    /// There is no session, and this is why.
    Broken(Failure),
}

impl Step {
    /// Of the request that is out.
    pub(super) const fn id(&self) -> Option<u64> {
        match self {
            Self::Initialize(id) | Self::Create(id) | Self::Load(id) => Some(*id),
            Self::New | Self::Open | Self::Broken(_) => None,
        }
    }
}

impl Acp {
    /// Begins the handshake, or asks an agent with a session whether it is there.
    pub(super) fn probe(&mut self, events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        match &self.step {
            Step::New => {
                let id = self.request("initialize", &wire::initialize(), write);
                self.step = Step::Initialize(id);
            }
            // An extension that no agent has: by JSON-RPC's rules it must refuse.
            Step::Open => self.ping = Some(self.request("_agentd/ping", &json!({}), write)),
            Step::Broken(_) => events.push(self.ready()),
            Step::Initialize(_) | Step::Create(_) | Step::Load(_) => {}
        }
    }

    pub(super) fn ready(&self) -> WorkerEvent {
        // Of a session that never opened nothing is known.
        let resumes = matches!(self.step, Step::Open).then_some(self.loads);
        WorkerEvent::Ready(Traits {
            resumes,
            ..Traits::default()
        })
    }

    /// The answer to the request that is out.
    pub(super) fn stepped(
        &mut self,
        record: &Object<'_>,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let result = record.object("result");
        let error = record.object("error");
        match std::mem::take(&mut self.step) {
            Step::Initialize(_) => match (error, result) {
                (None, Some(result)) => self.initialized(&result, events, write),
                (error, _) => self.refused(error.as_ref(), events),
            },
            Step::Create(_) => match (error, result) {
                (None, Some(result)) => match id_of(&result) {
                    Some(session) => self.opened(session, Some(&result), events),
                    None => self.refused(None, events),
                },
                (error, _) => self.refused(error.as_ref(), events),
            },
            Step::Load(_) => self.loaded(error.as_ref(), result.as_ref(), events, write),
            // It has no request out.
            step @ (Step::New | Step::Open | Step::Broken(_)) => self.step = step,
        }
    }

    fn initialized(
        &mut self,
        result: &Object<'_>,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
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
            return self.broken(Failure::new(Code::Unsupported, error), events);
        }
        let can = result.object("agentCapabilities");
        self.loads = can.is_some_and(|can| can.is_true("loadSession"));
        match self.resume.clone() {
            Some(session) if self.loads => {
                let params = wire::load_session(&session, &self.cwd);
                self.step = Step::Load(self.request("session/load", &params, write));
            }
            Some(_) => self.lost("it reopens no sessions", events, write),
            None => self.create(write),
        }
    }

    fn create(&mut self, write: &mut Vec<u8>) {
        let params = wire::new_session(&self.cwd);
        self.step = Step::Create(self.request("session/new", &params, write));
    }

    /// The session's earlier turns are gone: that is said, and a new one begins.
    fn lost(&mut self, why: &str, events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        let text = format!("{} could not reopen the session: {why}", self.shown());
        events.push(noted(None, Level::Warning, "context-lost", text));
        self.create(write);
    }

    fn loaded(
        &mut self,
        error: Option<&Object<'_>>,
        result: Option<&Object<'_>>,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        if let Some(error) = error {
            let failure = self.failure(error);
            // Agents have no common word for a session that is gone, but one for a missing login.
            if failure.code == Code::AgentAuth {
                return self.broken(failure, events);
            }
            return self.lost(&failure.error, events, write);
        }
        // Hermes 0.19.0 answers `null` for a session that isn't there; others for one that is, after
        // they repeated it.
        if result.is_none() && !self.repeated {
            return self.lost("it has nothing of it", events, write);
        }
        let session = self.resume.clone().unwrap_or_default();
        self.opened(session, result, events);
    }

    fn opened(
        &mut self,
        session: String,
        result: Option<&Object<'_>>,
        events: &mut Vec<WorkerEvent>,
    ) {
        self.session = Some(session);
        if self.resume.is_none() {
            self.spent = Some(0.0);
        }
        if let Some(result) = result {
            self.offer.learn(result);
        }
        self.usual = self.offer.model();
        self.step = Step::Open;
        events.push(self.ready());
    }

    fn refused(&mut self, error: Option<&Object<'_>>, events: &mut Vec<WorkerEvent>) {
        let failure = match error {
            Some(error) => self.failure(error),
            None => {
                let error = format!("{} opened no session and did not say why", self.shown());
                Failure::new(Code::AgentFailed, error)
            }
        };
        self.broken(failure, events);
    }

    fn broken(&mut self, failure: Failure, events: &mut Vec<WorkerEvent>) {
        self.step = Step::Broken(failure);
        events.push(self.ready());
    }
}

/// The new session's id.
fn id_of(result: &Object<'_>) -> Option<String> {
    let sane = |id: &String| !id.is_empty() && id.len() <= 4096;
    result.string("sessionId").filter(sane)
}
