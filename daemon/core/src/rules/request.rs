//! The requests besides `send`: what each does and in which state it is refused.
//!
//! Owns which requests wait for others. Must not know bytes.

use std::collections::BTreeMap;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{AgentRow, HelloAnswer, HelloLimits, Line};
use agentd_protocol::request::{Decoded, Hello};
use agentd_protocol::request_table::{Commit, Inside, Order, RequestKind};
use agentd_protocol::{Code, Id, JobId, Request, limits};

use crate::agent::{Found, Looked};
use crate::effect::Effect;
use crate::event::{Descent, RequestContext};
use crate::ids::ConnId;
use crate::limits::SENDS_PER_CONNECTION;
use crate::peers::waiting::Wanted;
use crate::rules::send::is_in_order;
use crate::state::State;

/// So much of another agentd's name of a session is in ours, for people: a name has 128 bytes.
const NAME_KEPT: usize = 64;

impl State {
    pub(crate) fn requested(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        request: Result<Decoded, Rejected>,
        facts: &RequestContext,
    ) {
        match request {
            Ok(mut decoded) => {
                if self.settings.nested {
                    self.by_native(&mut decoded);
                }
                self.request(conn, id, decoded, facts);
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    /// To another agentd a session goes by the name that it was given here: the other's own name of
    /// it may have been another session's before.
    fn by_native(&mut self, decoded: &mut Decoded) {
        let Request::Send(send) = &mut decoded.request else {
            return;
        };
        // To others this field means nothing, and was noted as such when the line was read.
        decoded.ignored.retain(|ignored| ignored.field != "native");
        send.session = send.native.clone().or_else(|| {
            let given = send.session.as_deref().unwrap_or("session");
            // What follows makes it ours alone: the time, this process, and a number of it.
            let given = &given[..given.floor_char_boundary(NAME_KEPT)];
            let (at, pid) = (self.now.wall_ms, self.settings.pid);
            Some(format!("{given}.{at:x}.{pid:x}.{}", self.outbox.number()))
        });
    }

    pub(crate) fn request(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        if decoded.request.kind().rules().inside == Inside::Forbidden
            && self.is_worker(&facts.descent)
        {
            return self.refuse(conn, id, not_from_inside(&facts.descent));
        }
        if let Some(key) = self.waits_behind(conn, &decoded.request) {
            // Requests of one connection take effect in the order sent.
            return self.park_until_loaded(key, Vec::new(), conn, id, decoded, facts);
        }
        if self.needs_a_look(&decoded.request, facts) {
            return self.park_until_looked(conn, id, decoded, facts);
        }
        self.request_loaded(conn, id, decoded, facts);
    }

    /// A `dispatch` of this connection that waits for its sessions, if the request touches jobs.
    pub(crate) fn waits_behind(&self, conn: ConnId, request: &Request) -> Option<String> {
        let touches = request.kind().rules().order == Order::InOrder;
        let loading = self.peers.connected(&conn)?.loading.clone();
        loading.filter(|key| touches && is_in_order(key))
    }

    /// A request that waits for nothing any more.
    pub(crate) fn request_loaded(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        if decoded.request.kind().rules().commit == Commit::Refused
            // What may as well be asked again gives way to what must be written, such as ends.
            && let Err(rejected) = self.room_in_store()
        {
            return self.refuse(conn, id, rejected);
        }
        match decoded.request {
            Request::Hello(hello) => self.hello(conn, id, &hello),
            Request::Ping => self.answer(conn, id, &Line::Pong),
            Request::Status(status) => {
                let answer = self.status(status.workers, facts);
                self.answer(conn, id, &Line::Status(Box::new(answer)));
            }
            Request::Agents => {
                let agents = self.agent_rows(&facts.agents);
                self.answer(conn, id, &Line::Agents { ok: true, agents });
            }
            Request::Send(send) => {
                let decoded = Decoded {
                    request: Request::Send(send),
                    ignored: decoded.ignored,
                };
                self.send_requested(conn, id, decoded, facts);
            }
            Request::Route(send) => self.route_requested(conn, id, send, decoded.ignored, facts),
            Request::Abort(abort) => self.abort(conn, id, abort, facts),
            Request::Dispatch(dispatch) => self.dispatch(conn, id, dispatch, facts),
            Request::Jobs(jobs) => self.jobs(conn, id, jobs),
            Request::Usage(usage) => self.usage(conn, id, &usage),
            Request::Steer(steer) => self.steer(conn, id, steer, facts),
            Request::Questions(questions) => self.questions(conn, id, &questions),
            Request::Answer(answer) => self.answer_question(conn, id, answer),
            Request::Compact(compact) => self.compact(conn, id, compact, facts),
            Request::Models(asked) => self.list_of(conn, id, asked, Wanted::Models, facts),
            Request::Commands(asked) => {
                self.list_of(conn, id, asked.asked(), Wanted::Commands, facts)
            }
            Request::SetModel(set) => self.set_model(conn, id, set, facts),
            Request::SessionList(list) => self.session_list(conn, id, list),
            Request::SessionNew(new) => self.session_new(conn, id, new, facts),
            Request::SessionFork(fork) => self.session_fork(conn, id, fork, facts),
            Request::SessionClose(named) => self.session_close(conn, id, named, facts),
            Request::SessionResume(named) => self.session_resume(conn, id, named, facts),
            Request::SessionRename(rename) => self.session_rename(conn, id, rename, facts),
            Request::SessionTitle(title) => self.session_title(conn, id, title, facts),
            Request::SessionSearch(search) => self.session_search(conn, id, search),
            Request::SessionHistory(history) => self.session_history(conn, id, history),
            request @ (Request::CronAdd(_)
            | Request::CronEdit(_)
            | Request::CronList(_)
            | Request::CronPause(_)
            | Request::CronRemove(_)
            | Request::CronResume(_)
            | Request::CronRun(_)
            | Request::CronRuns(_)) => self.schedules(conn, id, request, facts),
            Request::Backup(backup) => self.backup(conn, id, backup),
            Request::Export(export) => self.export(conn, id, export),
            Request::Webhooks(webhooks) => self.webhooks(conn, id, webhooks, facts),
            Request::WebhookReplay(of) => self.replay_webhook(conn, id, of.webhook),
            Request::WebhookTest(callback) => self.test_webhook(conn, id, callback, facts),
            Request::Collect(collect) => self.collect(conn, id, &collect, facts),
            Request::RestartWorker(restart) => self.restart_worker(conn, id, &restart),
            Request::Subscribe(subscribe) => self.subscribe(conn, id, subscribe),
            Request::Unsubscribe => self.unsubscribe(conn, id),
            Request::Shutdown => {
                self.answer(conn, id, &Line::Shutdown { ok: true });
                // Behind the answer, which leaves before the connection closes.
                self.outbox.push(Effect::Finish { conn });
            }
            Request::Drain(drain) => self.drain(conn, id, &drain),
            Request::Undrain => self.undrain(conn, id),
            Request::DaemonStop(stop) => self.daemon_stop(conn, id, &stop),
            Request::LogLevel(log) => self.log_level(conn, id, &log, facts),
        }
    }

    /// How many jobs are above one, itself included. Of one that has ended only itself is known.
    pub(crate) fn depth(&self, job: JobId) -> usize {
        let turn = self.jobs.by_number(job);
        turn.map_or(1, |job| job.depth)
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
        self.peers.questions_mut().answers(conn, hello.answers);
        if let Some(known) = self.peers.connected_mut(&conn) {
            known.client.clone_from(&hello.client);
        }
        self.outbox.push(Effect::Keep { conn });
        let answer = HelloAnswer {
            ok: true,
            server: "agentd".to_owned(),
            version: self.settings.version.clone(),
            protocol: 1,
            epoch: self.settings.epoch.clone(),
            pid: self.settings.pid,
            uid: self.settings.uid,
            capabilities: RequestKind::names().map(str::to_owned).collect(),
            limits: HelloLimits {
                line_in: limits::MAX_LINE_IN,
                line_out: limits::MAX_LINE_OUT,
                in_flight: SENDS_PER_CONNECTION,
            },
            served_by: Some(self.settings.served.name().to_owned()),
        };
        self.answer(conn, id, &Line::Hello(Box::new(answer)));
    }

    pub(crate) fn agent_rows(&self, looked: &BTreeMap<String, Looked>) -> Vec<AgentRow> {
        let default = self.default_agent(None, None).ok();
        let looked = |name: &str| looked.get(name).cloned().unwrap_or_default();
        self.settings
            .agents
            .values()
            .map(|agent| (agent, looked(&agent.name)))
            .map(|(agent, looked)| AgentRow {
                name: agent.name.clone(),
                kind: agent.kind.to_owned(),
                command: agent.command.clone(),
                found: match agent.found {
                    Found::Configured => "config",
                    Found::OnPath => "path",
                    Found::InPlace => "place",
                    Found::BuiltIn => "built-in",
                    Found::Missing => "looked-for",
                }
                .to_owned(),
                version: looked.version.or_else(|| agent.version.clone()),
                // A look at files doesn't know which models the built-in one was given.
                logged_in: looked.logged_in.or(agent.logged_in.filter(|is| *is)),
                note: looked.note,
                one_shot: looked.one_shot,
                usable: agent.usable.is_ok() && looked.why_not.is_none(),
                why_not: agent.usable.clone().err().or(looked.why_not),
                default: default.as_ref() == Some(&agent.name),
            })
            .collect()
    }
}

/// The refusal of what agents may not ask for.
fn not_from_inside(descent: &Descent) -> Rejected {
    if descent.unseen {
        let error = "an agent can't do this, and whether the process that connected is one can't be \
                     seen: it was gone already, or `/proc` hides it (`hidepid`)";
        return Rejected::new(Code::Forbidden, error).hint(
            "let the process that connects live until it is answered; where `/proc` is mounted \
             with `hidepid`, run the daemon in the group that its `gid=` names",
        );
    }
    let error = "an agent can't do this: the request came from inside a worker";
    Rejected::new(Code::Forbidden, error)
}
