//! What the clients of the world were told, in short.

use agentd_core::ids::ConnId;
use agentd_protocol::Code;
use agentd_protocol::serde_json::{self, Value};

use crate::world::World;

impl World {
    /// The last line with this id.
    pub fn answer(&self, conn: ConnId, id: u64) -> &Value {
        let lines = self.clients[&conn].lines.iter().rev();
        let mut of_it = lines.filter(|line| line["id"] == id);
        of_it.next().unwrap_or_else(|| panic!("no answer to {id}"))
    }

    /// The lines of a connection, one string each: `type` and what matters of it.
    pub fn told_to(&self, conn: ConnId) -> Vec<String> {
        self.clients[&conn].lines.iter().map(shown).collect()
    }

    pub fn last_error(&self, conn: ConnId) -> Option<Code> {
        let line = self.clients[&conn]
            .lines
            .iter()
            .rev()
            .find(|line| line["type"] == "error")?;
        serde_json::from_value(line["code"].clone()).ok()
    }
}

fn shown(line: &Value) -> String {
    let kind = line["type"].as_str().unwrap();
    let id = if line["id"].is_null() {
        String::new()
    } else {
        format!("{}:", line["id"])
    };
    let more = match kind {
        "accepted" => format!(
            " {} {}{}",
            line["job"].as_str().unwrap(),
            line["session"].as_str().unwrap(),
            if line["replayed"] == true {
                " replayed"
            } else {
                ""
            }
        ),
        "message_delta" => format!(" {}@{}", line["text"].as_str().unwrap(), line["offset"]),
        "message_end" => format!(
            " {} {}",
            line["stop"].as_str().unwrap(),
            line["text"].as_str().unwrap()
        ),
        "error" => format!(" {}", line["code"].as_str().unwrap()),
        "note" => format!(" {}", line["code"].as_str().unwrap()),
        "tool_start" | "tool_end" => format!(" {}", line["tool_call_id"].as_str().unwrap()),
        "abort" | "session.resume" => format!(" {}", line["jobs"]),
        "question" => format!(" {}", line["question_id"].as_str().unwrap()),
        "question_closed" => format!(
            " {} by {}",
            line["question_id"].as_str().unwrap(),
            line["by"].as_str().unwrap()
        ),
        _ => String::new(),
    };
    format!("{id}{kind}{more}")
}
