//! Another provider, model or thinking level for the open session.
//!
//! Owns the steps, one request at a time. In pi before 0.84.3 they would change the user's own
//! settings, so only a pi that is known to be newer is asked.

use agentd_core::store::Pins;
use agentd_core::worker::WorkerEvent;
use serde_json::{Value, json};

use super::Pi;
use super::activity::Dialect;
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

#[derive(Debug)]
pub(super) struct Switch {
    to: Pins,
    /// The request that is out.
    id: String,
    /// What is still to be asked.
    rest: Vec<(&'static str, Value)>,
}

impl Switch {
    pub(super) fn waits_for(&self, id: Option<&str>) -> bool {
        Some(self.id.as_str()) == id
    }
}

impl Pi {
    /// Begins to ask for them.
    pub(super) fn switch_to(&mut self, to: &Pins, out: &mut Out<'_>) {
        let Some(mut rest) = self.steps(to) else {
            return out.push(WorkerEvent::Switched(false));
        };
        // The last one says what came of the others: pi takes another level than one that it or
        // the model hasn't got.
        rest.insert(0, ("get_state", json!({})));
        self.ask(to.clone(), rest, out);
    }

    /// What has to be asked, the last one first; `None`: it has to be a new process.
    fn steps(&self, to: &Pins) -> Option<Vec<(&'static str, Value)>> {
        if self.dialect < Dialect::Disposes
            || self.driver.turn.is_some()
            || !self.activity.is_idle()
        {
            return None;
        }
        let mut steps = Vec::new();
        let other_model = (&to.provider, &to.model) != (&self.asked.provider, &self.asked.model);
        // With the model a level may change that was not asked for.
        if to.thinking.is_some() && (other_model || to.thinking != self.asked.thinking) {
            steps.push(("set_thinking_level", json!({"level": to.thinking})));
        }
        // pi has no word for its own usual level: only a process that was started without one has
        // it.
        if to.thinking.is_none() && self.asked.thinking.is_some() {
            return None;
        }
        if other_model {
            // A flag may be a pattern, or a model of any provider; a setter takes neither.
            let (provider, model) = (to.provider.as_ref()?, to.model.as_ref()?);
            let fields = json!({"provider": provider, "modelId": model});
            steps.push(("set_model", fields));
        }
        Some(steps)
    }

    fn ask(&mut self, to: Pins, mut rest: Vec<(&'static str, Value)>, out: &mut Out<'_>) {
        if let Some((kind, fields)) = rest.pop() {
            let id = self.request(kind, fields, out);
            self.switch = Some(Switch { to, id, rest });
        }
    }

    /// The answer to one of them.
    pub(super) fn switched(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let Some(Switch { to, rest, .. }) = self.switch.take() else {
            return;
        };
        if !record.is_true("success") {
            out.push(WorkerEvent::Switched(false));
        // The last answer is the state: what is taken over is what pi has, and not what was asked
        // for.
        } else if rest.is_empty() {
            self.asked = to;
            self.state(record, out);
            out.push(WorkerEvent::Switched(true));
        } else {
            self.ask(to, rest, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use agentd_core::worker::WorkerCommand;

    use super::super::replay::Replay;
    use super::*;
    use crate::adapter::testing::prompt;

    fn pins(provider: Option<&str>, model: Option<&str>, thinking: Option<&str>) -> WorkerCommand {
        let own = |pin: Option<&str>| pin.map(str::to_owned);
        WorkerCommand::Switch(Box::new(Pins {
            provider: own(provider),
            model: own(model),
            thinking: own(thinking),
            mode: None,
        }))
    }

    /// A pi that has had a turn, which it told with `data`.
    fn after_a_turn(data: &Value) -> Replay {
        let mut replay = Replay::ready();
        replay.tell(&prompt(1, "x"));
        answers(&mut replay, "prompt", true, data);
        for kind in ["agent_start", "agent_end", "agent_settled"] {
            replay.hear(&json!({"type": kind, "willRetry": false, "aborted": false}));
        }
        replay.settle();
        replay.outcome();
        replay.wrote.clear();
        replay
    }

    /// pi's answer to the last request, which is of this kind.
    fn answers(replay: &mut Replay, kind: &str, success: bool, data: &Value) {
        let asked = replay.wrote.last().unwrap().clone();
        assert_eq!(asked["type"], kind);
        replay.hear(&json!({"type": "response", "id": asked["id"], "command": kind, "success": success, "data": data}));
    }

    fn switched(replay: &Replay) -> Option<bool> {
        match replay.events.last() {
            Some(WorkerEvent::Switched(has_them)) => Some(*has_them),
            _ => None,
        }
    }

    #[test]
    fn a_newer_pi_takes_model_and_level() {
        let mut replay = after_a_turn(&json!({"disposition": "started"}));
        replay.tell(&pins(Some("p"), Some("m"), Some("high")));
        assert_eq!(replay.wrote[0]["provider"], "p");
        assert_eq!(replay.wrote[0]["modelId"], "m");
        answers(&mut replay, "set_model", true, &json!({}));
        assert_eq!(replay.wrote[1]["level"], "high");
        answers(&mut replay, "set_thinking_level", true, &json!({}));
        assert_eq!(switched(&replay), None);
        replay.client.state["thinkingLevel"] = json!("medium");
        replay.settle();
        assert_eq!(switched(&replay), Some(true));
        assert_eq!(replay.adapter.thinking.as_deref(), Some("medium"));
        replay.tell(&pins(Some("p"), Some("n"), Some("high")));
        answers(&mut replay, "set_model", false, &json!({}));
        assert_eq!(switched(&replay), Some(false));
    }

    #[test]
    fn others_and_patterns_take_a_new_process() {
        let mut old = after_a_turn(&json!({}));
        old.tell(&pins(Some("p"), Some("m"), None));
        assert_eq!(switched(&old), Some(false));
        let mut pattern = after_a_turn(&json!({"disposition": "started"}));
        pattern.tell(&pins(None, Some("m"), None));
        assert_eq!(switched(&pattern), Some(false));
        assert!(old.wrote.is_empty() && pattern.wrote.is_empty());
    }
}
