//! Slash commands: those of the gateway, and the agent's own, which are prompts.
//!
//! Owns their names and what they do. Must not know those that the client does by itself.

use agentd_protocol::Id;
use serde_json::{Value, json};

use super::settings::Choice;
use super::{Begun, Call, Gateway, MISSING, NO_COMMAND, no_session, wire};
use crate::face::Outbox;
use crate::json_rpc::{Failure, params};

/// Those that a person may type, in the order of the help.
const COMMANDS: &[(&str, &str)] = &[
    ("new", "Begin another session"),
    ("sessions", "Switch to another session, or resume one"),
    (
        "model",
        "Set the session's model (usage: /model [PROVIDER/]MODEL)",
    ),
    (
        "reasoning",
        "Set how hard the agent thinks (usage: /reasoning LEVEL)",
    ),
    ("status", "Show the session"),
    ("usage", "Show what the session used"),
    (
        "title",
        "Set what the session is called (usage: /title NAME)",
    ),
    (
        "compress",
        "Have the agent shorten what it remembers (usage: /compress [TOPIC])",
    ),
    (
        "branch",
        "Go on in a copy of the session (usage: /branch [NAME])",
    ),
    (
        "steer",
        "Tell the agent something while it works (usage: /steer TEXT)",
    ),
    (
        "queue",
        "Ask something when the turn has ended (usage: /queue TEXT)",
    ),
    (
        "background",
        "Ask something beside the session (usage: /background TEXT)",
    ),
    (
        "image",
        "Add a picture to the next prompt (usage: /image PATH)",
    ),
    ("stop", "End what runs in the background"),
    ("help", "Show what there is"),
    ("quit", "Leave; what runs goes on"),
];

/// By what something was asked for: the answer is another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    Method,
    Command,
}

pub(super) fn catalog() -> Value {
    let pairs = COMMANDS
        .iter()
        .map(|(name, help)| json!([format!("/{name}"), help]));
    let canon = COMMANDS
        .iter()
        .map(|(name, _)| (format!("/{name}"), json!(format!("/{name}"))));
    json!({"pairs": pairs.collect::<Vec<_>>(), "sub": {},
        "canon": canon.collect::<serde_json::Map<_, _>>(), "categories": [], "skill_count": 0,
        "warning": null})
}

pub(super) fn resolve(given: Value) -> Begun {
    let command: wire::Command = params(given)?;
    let name = command.name.unwrap_or_default();
    let name = name.trim_start_matches('/');
    match COMMANDS.iter().find(|(known, _)| *known == name) {
        Some((name, help)) => Ok(Some(
            json!({"canonical": name, "description": help, "category": "agentd"}),
        )),
        None => {
            let shown: String = name.chars().take(100).collect();
            Err(Failure::new(4011, format!("unknown command: {shown}")))
        }
    }
}

impl Gateway {
    /// What a text that begins with `/` may become.
    pub(super) fn complete(&self, text: &str) -> Value {
        let Some(begun) = text.strip_prefix('/') else {
            return json!({"items": []});
        };
        let item = |name: &str, help: &str| json!({"text": format!("{name} "), "display": format!("/{name}"), "meta": help});
        let ours = COMMANDS.iter().map(|(name, help)| item(name, help));
        let mut items: Vec<Value> = ours.collect();
        for row in self.sessions.values().flat_map(|session| &session.commands) {
            items.push(item(
                &row.name,
                row.description.as_deref().unwrap_or_default(),
            ));
        }
        let begins = |item: &Value| {
            let name = item["display"]
                .as_str()
                .and_then(|name| name.strip_prefix('/'));
            name.is_some_and(|name| name.starts_with(begun))
        };
        items.retain(begins);
        items.dedup();
        json!({"items": items, "replace_from": 1})
    }

    /// A command by its name, or as it was typed.
    pub(super) fn slash(&mut self, call: Call, out: &mut Outbox) -> Begun {
        let of: wire::OfSession = params(call.params.clone())?;
        let command: wire::Command = params(call.params.clone())?;
        let (name, arg) = match (&command.command, &command.name) {
            (Some(typed), _) => {
                let typed = typed.trim().trim_start_matches('/');
                let (name, arg) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
                (name.to_owned(), arg.trim().to_owned())
            }
            (None, Some(name)) => {
                let arg = command.arg.clone().unwrap_or_default();
                (
                    name.trim_start_matches('/').to_owned(),
                    arg.trim().to_owned(),
                )
            }
            (None, None) => {
                let why = "`name` is needed: expected a command";
                return Err(Failure::new(MISSING, why));
            }
        };
        let session = of.session_id.unwrap_or_default();
        if !self.sessions.contains_key(&session) {
            return match session.is_empty() {
                true => Err(no_session("")),
                false => self.look(call, &session, out),
            };
        }
        self.run(&call.id, &session, (&name, &arg), out)
    }

    fn run(
        &mut self,
        id: &Id,
        session: &str,
        (name, arg): (&str, &str),
        out: &mut Outbox,
    ) -> Begun {
        let needed = || {
            let why = format!("/{name} needs something behind it");
            Failure::new(MISSING, why)
        };
        match name {
            "model" | "steer" | "queue" | "q" if arg.is_empty() => Err(needed()),
            "model" => {
                let choice = Choice::model(session, arg, How::Command);
                self.choose(id, choice, out)
            }
            "steer" => self.steer(id, session, arg.to_owned(), How::Command, out),
            "queue" | "q" => Ok(Some(json!({"type": "send", "message": arg}))),
            _ => {
                let known = self.sessions.get(session);
                let own = known.into_iter().flat_map(|known| &known.commands);
                if own.into_iter().any(|row| row.name == name) {
                    let message = format!("/{name} {arg}");
                    return Ok(Some(json!({"type": "send", "message": message.trim_end()})));
                }
                let shown: String = name.chars().take(100).collect();
                let why = format!("/{shown} is no command of agentd, nor of the session's agent");
                Err(Failure::new(NO_COMMAND, why))
            }
        }
    }
}
