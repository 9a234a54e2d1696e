//! How what real agents said, word for word in `tests/fixtures/acp`, is played, and a conversation
//! without an agent.
//!
//! What the recording's client said is told to the translator; what the agent said is heard by it,
//! with our ids for its answers.

use agentd_core::worker::{Reply, WorkerCommand};
use serde_json::json;

use super::*;
use crate::adapter::testing::{self, Record, Recorded, answer, cancel, prompt};

pub(super) type Replay = testing::Replay<Acp>;

#[derive(Default)]
pub(in crate::adapter) struct Client {
    /// Requests of the recording, each with our id.
    ids: Vec<(Value, Value)>,
    turn: u64,
}

pub(super) fn spawn(resume: Option<&str>) -> Spawn {
    Spawn {
        resume: resume.map(str::to_owned),
        ..testing::spawn()
    }
}

/// A turn with pins; an empty one is none.
pub(super) fn pinned(turn: u64, provider: &str, model: &str, thinking: &str) -> WorkerCommand {
    let pin = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
    WorkerCommand::Prompt(Box::new(Prompt {
        provider: pin(provider),
        model: pin(model),
        thinking: pin(thinking),
        ..testing::turn(turn, "x")
    }))
}

impl Recorded for Acp {
    type Client = Client;

    /// An answer is a `-`.
    fn name(line: &Value) -> Option<&str> {
        line["method"].as_str().or(Some("-"))
    }

    fn may_write(line: &Value) -> bool {
        line["jsonrpc"] == "2.0"
    }

    fn asks(replay: &mut Replay, record: &Record) -> bool {
        let asked = &record.value;
        match asked["method"].as_str() {
            Some("initialize") => replay.tell(&WorkerCommand::Probe),
            Some("session/prompt") => {
                replay.client.turn += 1;
                let text = asked["params"]["prompt"][0]["text"].as_str().unwrap();
                replay.tell(&prompt(replay.client.turn, text));
            }
            Some("session/cancel") => replay.tell(&cancel(replay.client.turn)),
            Some(_) => {}
            None => {
                replay.replied(asked);
                return true;
            }
        }
        let mut wrote = replay.wrote.iter().rev();
        if let Some(same) = wrote.find(|wrote| wrote["method"] == asked["method"]) {
            let ids = (asked["id"].clone(), same["id"].clone());
            replay.client.ids.push(ids);
        }
        true
    }

    fn says(replay: &mut Replay, record: Record) {
        let mut said = record.value;
        if said["method"].is_null() {
            let mut known = replay.client.ids.iter().rev();
            match known.find(|(recorded, _)| *recorded == said["id"]) {
                Some((_, ours)) => said["id"] = ours.clone(),
                // The answer to what is never asked here.
                None => return,
            }
        }
        replay.hear(&said);
        // The recording's client looked once only whether the history was over.
        while said["error"].is_object()
            && replay.written().last() == Some(&"_agentd/ping")
            && let Some(id) = replay.adapter.step.id()
        {
            let error = json!({"code": -32601, "message": "no such method"});
            replay.hear(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    }
}

impl Replay {
    /// A recording, played: one for each process, of which the later ones reopen the session.
    pub(super) fn of(file: &str) -> Vec<Self> {
        let mut replays: Vec<Self> = Vec::new();
        let mut session: Option<String> = None;
        for record in testing::load(format!("acp/{file}")) {
            if record.ours && record.value["method"] == "initialize" {
                replays.push(Self::new(Acp::new(&spawn(session.as_deref()))));
            }
            if let Some(opened) = record.value["result"]["sessionId"].as_str() {
                session.get_or_insert_with(|| opened.to_owned());
            }
            replays.last_mut().unwrap().records.push_back(record);
        }
        for replay in &mut replays {
            while replay.step() {}
            assert!(replay.records.is_empty());
        }
        replays
    }

    /// The recording's client answered a question.
    fn replied(&mut self, recorded: &Value) {
        let option = &recorded["result"]["outcome"]["optionId"];
        let no = ["cancel", "reject", "deny"].contains(&option.as_str().unwrap());
        let reply = if no { Reply::Denied } else { Reply::Approved };
        self.reply(&recorded["id"].to_string(), reply);
        assert_eq!(self.wrote.last().unwrap()["result"], recorded["result"]);
    }

    pub(super) fn begun(resume: Option<&str>) -> Self {
        let mut replay = Self::new(Acp::new(&spawn(resume)));
        replay.tell(&WorkerCommand::Probe);
        replay
    }

    /// An agent that reopens sessions, with a new one.
    pub(super) fn ready() -> Self {
        let mut replay = Self::begun(None);
        replay.initialized(true);
        replay.answer(&json!({"sessionId": "s1"}));
        assert!(matches!(replay.events.pop(), Some(WorkerEvent::Ready(_))));
        replay.wrote.clear();
        replay
    }

    /// The same with a turn in flight.
    pub(super) fn running() -> Self {
        let mut replay = Self::ready();
        replay.tell(&prompt(1, "x"));
        replay.events.clear();
        replay
    }

    pub(super) fn initialized(&mut self, loads: bool) {
        self.answer(&json!({
            "protocolVersion": 1,
            "agentCapabilities": {"loadSession": loads},
            "agentInfo": {"name": "mock", "version": "1"},
            "authMethods": [{"id": "key", "name": "API key"}],
        }));
    }

    pub(super) fn last_id(&self) -> Value {
        let mut asked = self.wrote.iter().rev();
        let asked = asked.find(|line| line["method"].is_string() && line["id"].is_u64());
        asked.unwrap()["id"].clone()
    }

    /// The agent answers the last request.
    pub(super) fn answer(&mut self, result: &Value) {
        self.hear(&json!({"jsonrpc": "2.0", "id": self.last_id(), "result": result}));
    }

    pub(super) fn refuse(&mut self, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.hear(&json!({"jsonrpc": "2.0", "id": self.last_id(), "error": error}));
    }

    pub(super) fn update(&mut self, update: &Value) {
        let params = json!({"sessionId": "s1", "update": update});
        self.hear(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    pub(super) fn says(&mut self, text: &str) {
        self.update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}));
    }

    pub(super) fn permission(&mut self, id: &Value, call: &str, kinds: &[&str]) {
        let option =
            |kind: &&str| json!({"optionId": format!("o-{kind}"), "name": kind, "kind": kind});
        let options: Vec<Value> = kinds.iter().map(option).collect();
        let tool = json!({"toolCallId": call, "title": "run it", "kind": "execute", "rawInput": {"command": "ls"}});
        let params = json!({"sessionId": "s1", "toolCall": tool, "options": options});
        self.hear(&json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}));
    }

    pub(super) fn reply(&mut self, question: &str, reply: Reply) {
        self.tell(&answer(question, reply));
    }
}
