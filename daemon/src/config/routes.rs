//! `[[route]]`: which agent answers by what is asked.
//!
//! Owns the names of its keys and the sentences about wrong ones. What the values of its conditions
//! mean, the crate of the rules says.

use std::str::FromStr;

use agentd_protocol::nearest::nearest;
use agentd_protocol::routed::{AUTO, RouteUse};
use agentd_route::{Attached, Class, Condition, Difficulty, Glob, Pattern, Rule};

use super::read::{Key, Reader, Value, can_name};
use super::{Config, ConfigError};

/// More are hardly meant, and each is looked at for each turn.
const MOST: usize = 100;

const RULE: &[&str] = &["name", "when", "use"];
const WHEN: &[&str] = &[
    "agent",
    "text",
    "chars",
    "attachments",
    "cwd",
    "label",
    "between",
    "class",
    "difficulty",
];
const USE: &[&str] = &[
    "agent",
    "provider",
    "model",
    "thinking",
    "toolsets",
    "timeout",
    "fallback_chain",
];

/// Reads all of them.
pub(super) fn read(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let Some(tables) = value.get_ref().as_array() else {
        let error = reader.mistyped("route", value, "an array of tables: write `[[route]]`");
        return Err(error);
    };
    if tables.len() > MOST {
        let what = format!("{} routes, the limit is {MOST}", tables.len());
        return Err(reader.wrong(value.span().start, what, None));
    }
    for (place, table) in (1..).zip(tables) {
        let rule = rule(reader, place, table)?;
        if let Some(other) = config.routes.iter().find(|other| other.name == rule.name) {
            let what = format!("there are two routes with the name `{}`", other.name);
            return Err(reader.wrong(table.span().start, what, None));
        }
        config.routes.push(rule);
        for (key, value) in reader.table("route", table)? {
            let key_of = format!("route.{place}.{}", key.get_ref());
            reader.opaque(key_of, key.span().start, value, &mut config.of_routes);
        }
    }
    Ok(())
}

fn rule(reader: &mut Reader<'_>, place: usize, value: &Value<'_>) -> Result<Rule, ConfigError> {
    let prefix = format!("route.{place}.");
    let (mut name, mut when, mut uses) = (None, Vec::new(), None);
    for (key, value) in reader.table("route", value)? {
        match reader.key(key, RULE, &prefix)? {
            "name" => {
                let full = format!("{prefix}name");
                let given = reader.string(&full, value)?;
                if !can_name(&given) {
                    let what = format!(
                        "`{full}` is `{}`, expected up to 64 of A-Z a-z 0-9 . _ -",
                        given.escape_debug()
                    );
                    return Err(reader.wrong(value.span().start, what, None));
                }
                name = Some(given);
            }
            "when" => {
                let full = format!("{prefix}when");
                for (key, value) in reader.table(&full, value)? {
                    conditions(reader, &full, (key, value), &mut when)?;
                }
            }
            _use => uses = Some(used(reader, &format!("{prefix}use"), value)?),
        }
    }
    let uses = uses.filter(|uses| *uses != RouteUse::default());
    let Some(uses) = uses else {
        let what = format!("route {place} says nothing to use");
        let hint = "add `use = { agent = \"NAME\" }`, or a model or a thinking level".to_owned();
        return Err(reader.wrong(value.span().start, what, Some(hint)));
    };
    let name = name.unwrap_or_else(|| format!("#{place}"));
    Ok(Rule::new(name, when, uses))
}

fn conditions(
    reader: &mut Reader<'_>,
    prefix: &str,
    (key, value): (&Key<'_>, &Value<'_>),
    when: &mut Vec<Condition>,
) -> Result<(), ConfigError> {
    let known = reader.key(key, WHEN, &format!("{prefix}."))?;
    let full = format!("{prefix}.{known}");
    if known == "label" {
        for (label, value) in reader.table(&full, value)? {
            let wanted = reader.string(&format!("{full}.{}", label.get_ref()), value)?;
            when.push(Condition::Label(label.get_ref().to_string(), wanted));
        }
        return Ok(());
    }
    match known {
        "class" => {
            when.push(Condition::Class(any_of(reader, &full, value, Class::ALL)?));
            return Ok(());
        }
        "difficulty" => {
            let any = any_of(reader, &full, value, Difficulty::ALL)?;
            when.push(Condition::Difficulty(any));
            return Ok(());
        }
        _ => {}
    }
    let text = reader.string(&full, value)?;
    let wrong = |why: &str, hint: Option<String>| {
        let what = format!("`{full}` is `{}`: {why}", text.escape_debug());
        reader.wrong(value.span().start, what, hint)
    };
    when.push(match known {
        "agent" if text == AUTO => Condition::Named,
        "agent" => {
            let why = "expected \"auto\", as a send that names another agent goes by no route";
            return Err(wrong(why, None));
        }
        "text" => Condition::Text(Pattern::new(&text).map_err(|why| wrong(&why, None))?),
        "chars" => Condition::Chars(parsed(&text, wrong)?),
        "between" => Condition::Between(parsed(&text, wrong)?),
        "cwd" => {
            let home = reader.look.home.as_ref().and_then(|home| home.to_str());
            Condition::Cwd(Glob::new(&text, home).map_err(|why| wrong(&why, None))?)
        }
        _attachments => {
            let names = || Attached::ALL.iter().map(|kind| kind.name());
            let found = Attached::ALL.iter().find(|kind| kind.name() == text);
            let Some(found) = found else {
                let all: Vec<&str> = names().collect();
                let why = format!("expected one of `{}`", all.join("`, `"));
                let near = nearest(&text, names());
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                return Err(wrong(&why, hint));
            };
            Condition::Attachments(*found)
        }
    });
    Ok(())
}

/// One name of a closed list, or several of them.
fn any_of<T: Copy + ToString>(
    reader: &Reader<'_>,
    key: &str,
    value: &Value<'_>,
    all: &[T],
) -> Result<Vec<T>, ConfigError> {
    let given = match value.get_ref().as_array() {
        Some(_) => reader.strings(key, value)?,
        None => vec![reader.string(key, value)?],
    };
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    let expected = format!("expected one of `{}`", names.join("`, `"));
    let wrong = |what: String, hint| reader.wrong(value.span().start, what, hint);
    if given.is_empty() {
        return Err(wrong(format!("`{key}` is empty, {expected}"), None));
    }
    let one = |name: &String| {
        let place = names.iter().position(|known| known == name);
        let found = place.and_then(|place| all.get(place).copied());
        found.ok_or_else(|| {
            let near = nearest(name, names.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            wrong(
                format!("`{key}` is `{}`: {expected}", name.escape_debug()),
                hint,
            )
        })
    };
    given.iter().map(one).collect()
}

fn parsed<T: FromStr<Err = &'static str>>(
    text: &str,
    wrong: impl Fn(&str, Option<String>) -> ConfigError,
) -> Result<T, ConfigError> {
    text.parse().map_err(|why| wrong(why, None))
}

fn used(reader: &mut Reader<'_>, prefix: &str, value: &Value<'_>) -> Result<RouteUse, ConfigError> {
    let mut uses = RouteUse::default();
    for (key, value) in reader.table(prefix, value)? {
        let known = reader.key(key, USE, &format!("{prefix}."))?;
        let full = format!("{prefix}.{known}");
        match known {
            "agent" => {
                let agent = reader.string(&full, value)?;
                if agent == AUTO {
                    let what = format!("`{full}` is `auto`, expected the name of an agent");
                    return Err(reader.wrong(value.span().start, what, None));
                }
                uses.agent = Some(agent);
            }
            "provider" => uses.provider = Some(reader.string(&full, value)?),
            "model" => uses.model = Some(reader.string(&full, value)?),
            "thinking" => uses.thinking = Some(reader.string(&full, value)?),
            "toolsets" => uses.toolsets = Some(reader.strings(&full, value)?),
            "timeout" => {
                let seconds = reader.duration(&full, value)?.as_secs();
                if seconds == 0 {
                    let what = format!("`{full}` is less than a second");
                    return Err(reader.wrong(value.span().start, what, None));
                }
                uses.timeout = Some(seconds);
            }
            _chain => uses.fallback_chain = Some(reader.strings(&full, value)?),
        }
    }
    Ok(uses)
}
