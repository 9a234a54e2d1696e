//! The configuration for people: each value with where it came from.
//!
//! Must not show a secret: of variables only the names are told.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::Config;
use crate::adapter::Kind;
use agentd_base::duration;
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

/// What the built-in agent goes by where nothing is said. It reads its tables itself.
const OF_TIMMY: &[(&str, &str)] = &[
    ("timmy.toolsets", r#"["file", "terminal"]"#),
    ("timmy.writable", "[]"),
    ("timmy.unreadable", "[]"),
    ("timmy.network", "false"),
    ("timmy.unsandboxed", r#""ask""#),
    ("timmy.max_requests", "100"),
];

const HIDDEN: &str = "(hidden)";
const NONE: &str = "(none)";

impl Shown {
    /// The value itself; null where there is none, or it may not be seen.
    #[must_use]
    pub fn json(&self) -> Value {
        match self.value.as_str() {
            HIDDEN | NONE => Value::Null,
            written => {
                // It is as the file has it.
                let line = format!("value = {written}");
                let read = toml::from_str::<BTreeMap<String, Value>>(&line);
                let read = read.ok().and_then(|mut read| read.remove("value"));
                read.unwrap_or_else(|| Value::from(written))
            }
        }
    }
}

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
            let idle = duration::written(agent.idle_timeout);
            add(key("idle_timeout"), quoted(&idle));
            add(key("provider"), optional(agent.provider.as_deref()));
            add(key("model"), optional(agent.model.as_deref()));
            add(key("thinking"), optional(agent.thinking.as_deref()));
            add(key("mode"), optional(agent.mode.as_deref()));
        }
        let unsaid = OF_TIMMY.iter();
        let unsaid = unsaid.filter(|(key, _)| !self.of_timmy.contains_key(*key));
        for (key, value) in unsaid {
            add((*key).to_owned(), (*value).to_owned());
        }
        for (key, value) in &self.of_timmy {
            add(key.clone(), value.clone());
        }
        for (key, value) in &self.of_routes {
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
    value.map_or_else(|| NONE.to_owned(), quoted)
}

fn quoted(value: &str) -> String {
    let mut shown = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => shown.extend(['\\', c]),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            _ if is_seen(c) => shown.push(c),
            '\0'..='\u{ffff}' => {
                let _infallible = write!(shown, "\\u{:04x}", u32::from(c));
            }
            _ => {
                let _infallible = write!(shown, "\\U{:08x}", u32::from(c));
            }
        }
    }
    shown.push('"');
    shown
}

/// Can it be shown as it is? A terminal obeys some, and some look like nothing.
fn is_seen(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().count() == 1
}

/// The same JSON in characters that can be seen.
#[must_use]
pub fn seen_json(value: &Value) -> String {
    let mut shown = String::new();
    for c in value.to_string().chars() {
        if is_seen(c) {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
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
    let quoted: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn config_values_in_json_are_values() {
        let of = |value: &str| {
            let (key, source) = (String::new(), String::new());
            let value = value.to_owned();
            Shown { key, value, source }.json()
        };
        let evil = "a\"\u{1b}\u{9b}\u{202e}\\ü\n";
        assert_eq!(quoted(evil), r#""a\"\u001b\u009b\u202e\\ü\n""#);
        assert_eq!(of(&quoted(evil)), json!(evil));
        let shown = seen_json(&json!([evil]));
        assert!(shown.chars().all(is_seen), "{shown}");
        assert_eq!(
            serde_json::from_str::<Value>(&shown).unwrap(),
            json!([evil])
        );
        assert_eq!(
            of(&list(&["a".to_owned(), "b c".to_owned()])),
            json!(["a", "b c"])
        );
        assert_eq!(of("3"), json!(3));
        assert_eq!(of("false"), json!(false));
        assert_eq!(of("{ a = 1 }"), json!({"a": 1}));
        assert_eq!((of(HIDDEN), of(NONE)), (Value::Null, Value::Null));
    }
}
