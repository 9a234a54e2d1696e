//! The requests besides `send`: what each does and in which state it is refused.
//!
//! Owns the waiting lists of `abort`, `collect` and `restart_worker`. Must not know bytes.

use std::collections::VecDeque;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{AgentRow, HelloAnswer, HelloLimits, Line};
use agentd_protocol::request::{Decoded, Hello, TYPES};
use agentd_protocol::{Code, Id, Request, limits};

use crate::agent::Found;
use crate::effect::Effect;
use crate::event::Facts;
use crate::ids::ConnId;
use crate::limits::SENDS_PER_CONNECTION;
use crate::state::State;

/// Requests that wait until a session is known.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Loading {
    pub(crate) parked: VecDeque<Parked>,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parked {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) decoded: Decoded,
    pub(crate) facts: Facts,
}

impl State {
    pub(crate) fn requested(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        request: Result<Decoded, Rejected>,
        facts: &Facts,
    ) {
        match request {
            Ok(decoded) => self.request(conn, id, decoded, facts),
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    pub(crate) fn request(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &Facts,
    ) {
        if forbidden_to_workers(&decoded.request) && self.is_worker(&facts.ancestry) {
            let error = "an agent can't do this: the request came from inside a worker";
            return self.refuse(conn, id, Rejected::new(Code::Forbidden, error));
        }
        match decoded.request {
            Request::Hello(hello) => self.hello(conn, id, &hello),
            Request::Ping => self.answer(conn, id, &Line::Pong),
            Request::Status(status) => {
                let answer = self.status(status.workers, facts);
                self.answer(conn, id, &Line::Status(Box::new(answer)));
            }
            Request::Agents => {
                let agents = self.agent_rows();
                self.answer(conn, id, &Line::Agents { ok: true, agents });
            }
            Request::Send(send) => {
                let decoded = Decoded {
                    request: Request::Send(send),
                    ignored: decoded.ignored,
                };
                self.send_requested(conn, id, decoded, facts);
            }
            Request::Abort(abort) => self.abort(conn, id, abort, facts),
            Request::Collect(collect) => self.collect(conn, id, &collect),
            Request::RestartWorker(restart) => self.restart_worker(conn, id, &restart),
            Request::Subscribe(subscribe) => self.subscribe(conn, id, subscribe),
            Request::Unsubscribe => self.unsubscribe(conn, id),
            Request::Shutdown => {
                self.answer(conn, id, &Line::Shutdown { ok: true });
                self.out.push(Effect::Finish { conn });
            }
            Request::Drain(drain) => self.drain(conn, id, drain.deadline),
            Request::Undrain => self.undrain(conn, id),
            Request::DaemonStop(stop) => self.daemon_stop(conn, id, &stop),
        }
    }

    pub(crate) fn is_worker(&self, ancestry: &[u32]) -> bool {
        self.slots
            .values()
            .filter_map(crate::slot::Slot::pid)
            .any(|pid| ancestry.contains(&pid))
    }

    pub(crate) fn hello(&mut self, conn: ConnId, id: Option<Id>, hello: &Hello) {
        if self.mode.is_stopping() {
            return self.refuse_stopping(conn, id);
        }
        if hello.protocol.is_some_and(|wanted| wanted != 1) {
            let error = format!(
                "protocol {} is not spoken here: expected 1",
                hello.protocol.unwrap_or(0)
            );
            let version = &self.settings.version;
            let hint = format!(
                "this is agentd {version}; the client is {}",
                hello.version.as_deref().unwrap_or("unnamed")
            );
            return self.refuse(conn, id, Rejected::new(Code::Unsupported, error).hint(hint));
        }
        self.out.push(Effect::Keep { conn });
        let answer = HelloAnswer {
            ok: true,
            server: "agentd".to_owned(),
            version: self.settings.version.clone(),
            protocol: 1,
            epoch: self.settings.epoch.clone(),
            pid: self.settings.pid,
            uid: self.settings.uid,
            capabilities: TYPES
                .iter()
                .filter(|name| SERVED.contains(name))
                .map(|name| (*name).to_owned())
                .collect(),
            limits: HelloLimits {
                line_in: limits::MAX_LINE_IN,
                line_out: limits::MAX_LINE_OUT,
                in_flight: SENDS_PER_CONNECTION,
            },
        };
        self.answer(conn, id, &Line::Hello(Box::new(answer)));
    }

    pub(crate) fn agent_rows(&self) -> Vec<AgentRow> {
        let default = self.default_agent().ok();
        self.settings
            .agents
            .values()
            .map(|agent| AgentRow {
                name: agent.name.clone(),
                kind: agent.kind.to_owned(),
                command: agent.command.clone(),
                found: match agent.found {
                    Found::Configured => "config",
                    Found::OnPath => "path",
                    Found::BuiltIn => "built-in",
                    Found::Missing => "looked-for",
                }
                .to_owned(),
                version: agent.version.clone(),
                usable: agent.usable.is_ok(),
                why_not: agent.usable.clone().err(),
                default: default.as_ref() == Some(&agent.name),
            })
            .collect()
    }
}

/// The requests this version serves: its capabilities.
const SERVED: &[&str] = &[
    "abort",
    "agents",
    "collect",
    "daemon.stop",
    "drain",
    "hello",
    "ping",
    "restart_worker",
    "send",
    "shutdown",
    "status",
    "subscribe",
    "undrain",
    "unsubscribe",
];

const fn forbidden_to_workers(request: &Request) -> bool {
    matches!(
        request,
        Request::RestartWorker(_) | Request::Drain(_) | Request::Undrain | Request::DaemonStop(_)
    )
}
