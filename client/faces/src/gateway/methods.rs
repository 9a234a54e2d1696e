//! The catalogue of methods.
//!
//! Owns which there are, what each is here, and the sentence of each that is refused. Must not know how
//! an answer of the daemon is told.

use agentd_protocol::attachment::Attachment;
use agentd_protocol::request::RestartWorker;
use agentd_protocol::request::work::{JobPhase, Jobs, Steer};
use serde_json::{Value, json};

use super::commands::How;
use super::row::Lists;
use super::{BAD_VALUE, Begun, Call, Gateway, MISSING, REFUSED, What, no_session, wire};
use crate::face::Outbox;
use crate::json_rpc::{Failure, METHOD_NOT_FOUND, params};

/// Subagents that are listed: more are on no screen.
const SUBAGENTS: usize = 100;

/// Methods that are about a session, which is looked for if this connection doesn't know it.
const OF_SESSIONS: &[&str] = &[
    "clipboard.paste",
    "image.attach",
    "approval.respond",
    "prompt.background",
    "prompt.submit",
    "session.activate",
    "session.branch",
    "session.close",
    "session.compress",
    "session.history",
    "session.interrupt",
    "session.resume",
    "session.status",
    "session.steer",
    "session.title",
    "session.usage",
];

impl Gateway {
    /// Begins a request.
    pub(super) fn begin(&mut self, call: Call, out: &mut Outbox) -> Begun {
        let Call {
            id, params: given, ..
        } = &call;
        let given = given.clone();
        match call.method.as_str() {
            of if OF_SESSIONS.contains(&of) => self.of_session(call, out),
            "session.create" => {
                let create = params(given)?;
                self.create(id, create, out)
            }
            "session.list" => {
                let list: wire::List = params(given)?;
                self.list(id, Lists::All, Self::most(list.limit), out)
            }
            "session.active_list" => {
                let list: wire::ActiveList = params(given)?;
                if let Some(current) = &list.current_session_id {
                    self.looks_at(current, out);
                }
                let lists = Lists::Active(list.current_session_id);
                self.list(id, lists, Self::most(None), out)
            }
            "session.most_recent" => self.list(id, Lists::Newest, Self::most(None), out),
            "session.delete" => {
                let of: wire::OfSession = params(given)?;
                self.delete(id, of.session_id, out)
            }
            "clarify.respond" | "sudo.respond" | "secret.respond" => self.respond(&call, out),
            "config.get" => self.config(&given),
            "config.set" => self.configure(&call, out),
            "model.options" => self.options(id, given, out),
            "commands.catalog" => Ok(Some(super::commands::catalog())),
            "command.resolve" => super::commands::resolve(given),
            "command.dispatch" | "slash.exec" => self.slash(call, out),
            "complete.slash" => {
                let complete: wire::Complete = params(given)?;
                Ok(Some(
                    self.complete(complete.text.as_deref().unwrap_or_default()),
                ))
            }
            // A face reads no directories.
            "complete.path" => params::<wire::Complete>(given).map(|_| Some(json!({"items": []}))),
            "input.detect_drop" => {
                params::<wire::Text>(given).map(|_| Some(json!({"matched": false})))
            }
            "terminal.resize" => {
                let resize: wire::Resize = params(given)?;
                Ok(Some(json!({"cols": resize.cols.unwrap_or(80)})))
            }
            "delegation.status" => {
                let running = Jobs {
                    state: Some(JobPhase::Running),
                    limit: Some(SUBAGENTS),
                    ..Jobs::default()
                };
                self.ask("jobs", &running, What::Delegation(id.clone()), out);
                Ok(None)
            }
            "subagent.interrupt" => {
                let of: wire::Subagent = params(given)?;
                self.stop_subagent(&call, &of.subagent_id, out)
            }
            "spawn_tree.list" => Ok(Some(json!({"entries": []}))),
            "process.stop" => Ok(Some(self.stop_background(out))),
            "reload.mcp" => self.reload(&call, out),
            // The daemon reads it by itself.
            "reload.env" => Ok(Some(json!({"updated": 0}))),
            "cli.exec" => params::<wire::Exec>(given).map(|_| {
                let hint = "agentd runs no commands for a client: ask the agent for it in a prompt";
                Some(json!({"blocked": true, "hint": hint, "code": -1, "output": ""}))
            }),
            "setup.status" => Ok(Some(json!({"provider_configured": true}))),
            "setup.runtime_check" => Ok(Some(json!({"ok": true}))),
            // Asked for again and again by the TUI, which prints each error.
            "pet.cells" | "pet.info" => Ok(Some(json!({"enabled": false}))),
            method => Err(refusal(method)),
        }
    }

    fn of_session(&mut self, call: Call, out: &mut Outbox) -> Begun {
        let (id, given) = (call.id.clone(), call.params.clone());
        let of: wire::OfSession = params(given.clone())?;
        let Some(session) = of.session_id.filter(|session| !session.is_empty()) else {
            return Err(match call.method.as_str() {
                "session.resume" => Failure::new(4006, "`session_id` is needed"),
                _ => no_session(""),
            });
        };
        let session = session.as_str();
        check(&call)?;
        match call.method.as_str() {
            "session.activate" | "session.resume" | "session.status" => {
                return self.look(call, session, out);
            }
            _ if !self.sessions.contains_key(session) => return self.look(call, session, out),
            _ => {}
        }
        match call.method.as_str() {
            "prompt.submit" => {
                let submit = params(given)?;
                self.submit(&id, session, submit, out)
            }
            "prompt.background" => {
                let text: wire::Text = params(given)?;
                self.background(&id, session, text.text, out)
            }
            "approval.respond" => {
                let approval = params(given)?;
                self.approve(&id, session, &approval, out)
            }
            "session.branch" => {
                let branch: wire::Branch = params(given)?;
                self.branch(&id, session, branch.name, out)
            }
            "session.close" => Ok(Some(self.close(session, out))),
            "session.compress" => {
                let compress: wire::Compress = params(given)?;
                self.compress(&id, session, compress.focus_topic, out)
            }
            "session.history" => self.ask_history(id, session, out),
            "session.interrupt" => self.interrupt(&id, session, out),
            "session.steer" => {
                let text: wire::Text = params(given)?;
                self.steer(&call.id, session, text.text, How::Method, out)
            }
            "session.title" => {
                let title: wire::Title = params(given)?;
                self.title(&id, session, title.title, out)
            }
            "session.usage" => {
                let wanted = json!({"session": session, "by": "model"});
                let what = What::Usage(id, session.to_owned());
                self.ask("usage", &wanted, what, out);
                Ok(None)
            }
            "image.attach" => {
                let image: wire::Image = params(given)?;
                self.attach(session, image.path)
            }
            "clipboard.paste" => {
                let why = "agentd reads no clipboard: /image takes the path of a picture";
                Ok(Some(json!({"attached": false, "message": why})))
            }
            method => Err(refusal(method)),
        }
    }

    /// A word to the turn that runs.
    pub(super) fn steer(
        &mut self,
        id: &agentd_protocol::Id,
        session: &str,
        text: String,
        how: How,
        out: &mut Outbox,
    ) -> Begun {
        if text.trim().is_empty() {
            return Err(Failure::new(
                BAD_VALUE,
                "`text` is blank: expected what to tell the agent",
            ));
        }
        let steer = Steer {
            session: Some(session.to_owned()),
            job: None,
            text: text.clone(),
        };
        self.ask("steer", &steer, What::Steered(id.clone(), text, how), out);
        Ok(None)
    }

    /// A picture that goes with the next prompt: the daemon reads it when it has that.
    fn attach(&mut self, session: &str, path: String) -> Begun {
        let path = path.trim().to_owned();
        if !path.starts_with('/') {
            let why = format!("`path` is `{path}`: expected an absolute path of a picture");
            return Err(Failure::new(MISSING, why));
        }
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let Some(known) = self.sessions.get_mut(session) else {
            return Err(no_session(session));
        };
        known.attachments.push(Attachment::of_path(path.clone()));
        let count = known.attachments.len();
        Ok(Some(
            json!({"attached": true, "path": path, "name": name, "count": count}),
        ))
    }

    /// What an agent sent from inside a turn is a job of its own.
    fn stop_subagent(&mut self, call: &Call, job: &str, out: &mut Outbox) -> Begun {
        let Ok(number) = job.parse::<agentd_protocol::JobId>() else {
            return Ok(Some(json!({"found": false, "subagent_id": job})));
        };
        let found = json!({"found": true, "subagent_id": job});
        let what = What::Interrupted(call.id.clone(), found);
        self.ask("abort", &json!({"job": number}), what, out);
        Ok(None)
    }

    /// A new process of the agent reads what servers it has.
    fn reload(&mut self, call: &Call, out: &mut Outbox) -> Begun {
        let of: wire::OfSession = params(call.params.clone())?;
        let Some(session) = of.session_id.filter(|session| !session.is_empty()) else {
            let why = "`session_id` is needed: its agent's process is started anew";
            return Err(Failure::new(MISSING, why));
        };
        let restart = RestartWorker {
            agent: None,
            session: Some(session),
            now: false,
        };
        let done = json!({"status": "reloaded"});
        self.ask(
            "restart_worker",
            &restart,
            What::Done(call.id.clone(), done),
            out,
        );
        Ok(None)
    }
}

/// Are the params of a session's method of its types? Before anybody looks for the session.
fn check(call: &Call) -> Result<(), Failure> {
    let given = call.params.clone();
    match call.method.as_str() {
        "prompt.submit" => params::<wire::Submit>(given).map(drop),
        "prompt.background" | "session.steer" => params::<wire::Text>(given).map(drop),
        "approval.respond" => params::<wire::Approval>(given).map(drop),
        "session.branch" => params::<wire::Branch>(given).map(drop),
        "session.compress" => params::<wire::Compress>(given).map(drop),
        "session.resume" => params::<wire::Resume>(given).map(drop),
        "session.title" => params::<wire::Title>(given).map(drop),
        "image.attach" => params::<wire::Image>(given).map(drop),
        _ => Ok(()),
    }
}

/// Why a method isn't there.
fn refusal(method: &str) -> Failure {
    let (area, _) = method.split_once('.').unwrap_or((method, ""));
    let why = match (area, method) {
        (_, "session.undo") => {
            "what was said can't be taken back: agents remember it. session.branch makes a copy"
        }
        (_, "session.save") => "`agentctl history` prints a session, `agentctl export` all of them",
        (_, "session.cwd.set") => {
            "a session keeps its directory: session.create takes another `cwd`"
        }
        (_, "session.context_breakdown") => "agents don't say what their context is made of",
        (_, "spawn_tree.save" | "spawn_tree.load") => {
            "jobs that agents send are kept by agentd: `agentctl jobs` lists them"
        }
        (_, "delegation.pause") => {
            "agents delegate by their own rules: `agentctl drain` pauses all turns"
        }
        (_, "config.show") => "`agentctl config show` prints agentd's configuration",
        (_, "llm.oneshot") => "a turn is a prompt of a session: session.create, then prompt.submit",
        ("shell" | "terminal", _) => {
            "agentd runs no commands for a client: ask the agent in a prompt"
        }
        ("agents" | "tools" | "toolsets" | "skills" | "plugins" | "learning", _) => {
            "tools and skills are the agent's own: it is configured by its own program"
        }
        ("billing" | "subscription" | "usage", _) => {
            "agentd bills nobody: `agentctl usage` says what turns used"
        }
        (
            "browser" | "voice" | "pet" | "project" | "projects" | "rollback" | "handoff"
            | "preview" | "verification",
            _,
        ) => "that is Hermes' own, and no agent's",
        ("model", _) => "keys and logins are the agent's own: `agentctl agents` says what it lacks",
        ("cron" | "insights" | "process" | "paste" | "pdf" | "file" | "image", _) => {
            "agentd has no such thing for a client"
        }
        _ => {
            return Failure::new(
                METHOD_NOT_FOUND,
                format!("unknown method: {}", shown(method)),
            );
        }
    };
    Failure::new(
        METHOD_NOT_FOUND,
        format!("`{}` is not served: {why}", shown(method)),
    )
}

fn shown(method: &str) -> String {
    method.chars().take(100).collect()
}

/// Of something that only a list of ours could say.
pub(super) fn not_understood() -> Failure {
    Failure::new(REFUSED, "the daemon's answer was not understood")
}

/// A value as a string, whatever it is.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
