//! What real agents said, word for word, in `tests/fixtures/acp`.
//!
//! What the recording's client said is told to the translator; what the agent said is heard by it,
//! with our ids for its answers.

use std::path::Path;

use agentd_core::worker::Reply;
use serde_json::json;

use super::tests::{Talk, prompt};
use super::*;

struct Replay {
    /// One for each process.
    talks: Vec<Talk>,
    /// The session that a later process reopens.
    session: Option<String>,
    /// Requests of the recording, each with our id.
    ids: Vec<(Value, Value)>,
    turn: u64,
}

impl Replay {
    fn of(file: &str) -> Vec<Talk> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/acp");
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let mut replay = Self {
            talks: Vec::new(),
            session: None,
            ids: Vec::new(),
            turn: 0,
        };
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            if line["dir"] == ">" {
                replay.tell(&line["msg"]);
            } else {
                replay.hear(line["msg"].clone());
            }
        }
        replay.talks
    }

    fn talk(&mut self) -> &mut Talk {
        self.talks.last_mut().unwrap()
    }

    fn hear(&mut self, mut message: Value) {
        if let Some(session) = message["result"]["sessionId"].as_str() {
            self.session.get_or_insert_with(|| session.to_owned());
        }
        if message["method"].is_null() {
            let mut known = self.ids.iter().rev();
            match known.find(|(recorded, _)| *recorded == message["id"]) {
                Some((_, ours)) => message["id"] = ours.clone(),
                // The answer to what is never asked here.
                None => return,
            }
        }
        self.talk().hear(&message);
        // The recording's client looked once only whether the history was over.
        let looks = |talk: &Talk| {
            talk.wrote
                .last()
                .is_some_and(|wrote| wrote["method"] == "_agentd/ping")
        };
        while message["error"].is_object()
            && looks(self.talk())
            && self.talk().acp.step.id().is_some()
        {
            let id = self.talk().acp.step.id();
            let error = json!({"code": -32601, "message": "no such method"});
            self.talk()
                .hear(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    }

    fn tell(&mut self, message: &Value) {
        match message["method"].as_str() {
            Some("initialize") => {
                let resume = self.session.clone();
                self.talks.push(Talk::begun(resume.as_deref()));
                self.ids.clear();
            }
            Some("session/prompt") => {
                self.turn += 1;
                let text = message["params"]["prompt"][0]["text"].as_str().unwrap();
                let prompt = prompt(self.turn, text);
                self.talk().tell(&prompt);
            }
            Some("session/cancel") => {
                let turn = TurnId(self.turn);
                self.talk().tell(&WorkerCommand::Cancel { turn });
            }
            Some(_) => {}
            None => return self.reply(message),
        }
        let wrote = self.talk().wrote.iter().rev();
        let same = wrote
            .filter(|wrote| wrote["method"] == message["method"])
            .map(|wrote| wrote["id"].clone());
        if let Some(ours) = same.into_iter().next() {
            self.ids.push((message["id"].clone(), ours));
        }
    }

    fn reply(&mut self, message: &Value) {
        let option = message["result"]["outcome"]["optionId"].as_str().unwrap();
        let no = ["cancel", "reject", "deny"].contains(&option);
        let reply = if no { Reply::Denied } else { Reply::Approved };
        let question = message["id"].to_string();
        self.talk().tell(&WorkerCommand::Answer { question, reply });
        assert_eq!(
            self.talk().wrote.last().unwrap()["result"],
            message["result"]
        );
    }
}

#[test]
fn what_real_agents_said_is_understood() {
    for file in [
        "gemini-0.61.0.jsonl",
        "opencode-1.18.33.jsonl",
        "hermes-0.19.0.jsonl",
    ] {
        let talks = Replay::of(file);
        let first = &talks[0];
        let results: Vec<_> = first
            .outcomes()
            .iter()
            .map(|outcome| outcome.result.clone())
            .collect();
        let stops: Vec<_> = results
            .iter()
            .filter_map(|result| result.clone().ok())
            .collect();
        assert!(
            stops.starts_with(&[Stop::EndTurn, Stop::EndTurn]),
            "{file}: {results:?}"
        );
        assert!(stops.contains(&Stop::Cancelled), "{file}: {results:?}");
        for failure in results.iter().filter_map(|result| result.clone().err()) {
            assert_eq!(failure.code, Code::AgentAuth, "{file}: {failure:?}");
        }
        assert!(
            first.outcomes()[0].usage.unwrap().output_tokens > 0,
            "{file}"
        );
        let count = |wanted: fn(&WorkerEvent) -> bool| {
            first.events.iter().filter(|event| wanted(event)).count()
        };
        let asked = count(|event| matches!(event, WorkerEvent::Asked { .. }));
        let started = count(|event| matches!(event, WorkerEvent::ToolStarted { .. }));
        let ended = count(|event| matches!(event, WorkerEvent::ToolEnded { .. }));
        assert!(
            asked >= 2 && started >= 1 && ended <= started,
            "{file}: {asked} {started} {ended}"
        );
        let strange = count(|event| {
            matches!(
                event,
                WorkerEvent::Logged { .. } | WorkerEvent::Noted { .. }
            )
        });
        assert_eq!(strange, 0, "{file}");
        // Nothing of the history is text.
        if let Some(second) = talks.get(1) {
            assert!(!second.text().contains("echo: hello"), "{file}");
        }
    }
}
