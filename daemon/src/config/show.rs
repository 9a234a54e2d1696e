//! The configuration for people: each value with where it came from.
//!
//! Must not show a secret: of variables only the names are told.

use super::Config;
use crate::adapter::Kind;
use agentd_core::agent::Warm;

/// One value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Its dotted key.
    pub key: String,
    /// As it would be written in the file; `(hidden)` for a variable's value.
    pub value: String,
    /// `default`, a file and line, or a variable's name.
    pub source: String,
}

const HIDDEN: &str = "(hidden)";

impl Config {
    /// Every value in force, in the order of the file's keys.
    #[must_use]
    pub fn show(&self) -> Vec<Shown> {
        let mut shown = Vec::new();
        let mut add = |key: String, value: String| {
            // A variable is given where its table is.
            let table = key.rsplit_once('.').map_or("", |(table, _)| table);
            let given = self.given.get(&key).or_else(|| {
                let in_table = key.contains(".env.");
                self.given.get(table).filter(|_| in_table)
            });
            let source = given.map_or("default", String::as_str).to_owned();
            shown.push(Shown { key, value, source });
        };
        add(
            "default_agent".to_owned(),
            optional(self.default_agent.as_deref()),
        );
        let alias = match &self.alias {
            Some(path) => quoted(&path.to_string_lossy()),
            None => "false".to_owned(),
        };
        add("alias".to_owned(), alias);
        for (name, agent) in &self.agents {
            let key = |key: &str| format!("agents.{name}.{key}");
            add(key("kind"), quoted(agent.kind.name()));
            add(key("command"), list(&agent.command));
            if agent.kind == Kind::Exec {
                add(key("output"), quoted(agent.output.name()));
            }
            for name in agent.env.keys() {
                add(key(&format!("env.{name}")), HIDDEN.to_owned());
            }
            add(key("pass_env"), list(&agent.pass_env));
            let warm = match agent.warm {
                Warm::WhenUsed => "(one while in use)".to_owned(),
                Warm::Always(some) => some.to_string(),
            };
            add(key("warm"), warm);
            let idle = agent.idle_timeout.as_millis();
            add(key("idle_timeout"), quoted(&format!("{idle}ms")));
            add(key("provider"), optional(agent.provider.as_deref()));
            add(key("model"), optional(agent.model.as_deref()));
            add(key("thinking"), optional(agent.thinking.as_deref()));
        }
        for (key, value) in &self.of_timmy {
            add(key.clone(), value.clone());
        }
        let start = self.start.unwrap_or(super::ClientStart::Ask).name();
        add("client.start".to_owned(), quoted(start));
        let memory = self.spare_memory.map(size);
        let share = "(an eighth of the machine's)".to_owned();
        add("pool.memory".to_owned(), memory.unwrap_or(share));
        add("retention.days".to_owned(), self.retention.days.to_string());
        add("retention.size".to_owned(), size(self.retention.size));
        for name in self.secrets.keys() {
            add(format!("env.{name}"), HIDDEN.to_owned());
        }
        shown
    }
}

fn optional(value: Option<&str>) -> String {
    value.map_or_else(|| "(none)".to_owned(), quoted)
}

fn quoted(value: &str) -> String {
    format!("{value:?}")
}

/// In the largest unit that leaves no rest; bytes as a number.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30_u32), ("MiB", 20), ("KiB", 10)];
    let unit = units
        .iter()
        .find(|(_, shift)| bytes.trailing_zeros() >= *shift);
    unit.map_or_else(
        || bytes.to_string(),
        |(unit, shift)| quoted(&format!("{}{unit}", bytes >> shift)),
    )
}

fn list(values: &[String]) -> String {
    format!("{values:?}")
}
