//! `daemon/AGENTS.md` says what the code says.
//!
//! Owns the tables between its marks. `cargo xtask agents` writes them anew.

use super::presets::{BELOW_HOME, OF_THE_MACHINE, PRESETS};
use super::*;
use agentd_core::agent::Modes;
use agentd_core::mcp::McpServing;
use agentd_core::toolsets::Toolsets;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/AGENTS.md");
/// Set, the file is written instead of compared.
const WRITE: &str = "AGENTD_WRITE_DOCS";

fn yes(can: bool) -> String {
    if can { "yes" } else { "no" }.to_owned()
}

/// The same where a handshake may have the last word.
fn said(of: &Capabilities, can: bool) -> String {
    if of.resume == Resume::InTurn {
        "if its handshake says so".to_owned()
    } else {
        yes(can)
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = head.iter().map(|name| (*name).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.iter().cloned().map(line).collect();
    line(names) + &rule + &rows
}

/// When a pin is given to the agent.
fn given(per_turn: bool) -> &'static str {
    if per_turn {
        "with each turn"
    } else {
        "when the process starts"
    }
}

fn each(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// What comes while the turn runs.
fn piecemeal(it: &Capabilities, tells: bool) -> String {
    match (tells, it.sessions) {
        (false, _) => "no",
        (true, Sessions::PerTurn) => "as the command prints it",
        (true, _) => "piece by piece",
    }
    .to_owned()
}

/// What comes with the turn's end, where a command's output may have it or not.
fn reported(it: &Capabilities, tells: bool, what: &str) -> String {
    match (tells, it.sessions) {
        (true, Sessions::PerTurn) => format!("with `output = \"openclaw\"`: {what}"),
        (true, _) => what.to_owned(),
        (false, _) if what == "yes" => "no".to_owned(),
        (false, _) => what.to_owned(),
    }
}

fn name(word: impl serde::Serialize) -> String {
    let name = serde_json::to_value(word).unwrap();
    name.as_str().unwrap().to_owned()
}

/// Each kind with the name that its column has.
fn described() -> Vec<(String, Capabilities)> {
    let stateless = ["command", "{model}"].map(str::to_owned);
    let keeps = ["command", "{model}", "{session}"].map(str::to_owned);
    let mut described = Vec::new();
    for kind in Kind::ALL {
        if *kind == Kind::Exec {
            described.push(("exec".to_owned(), kind.describe(&stateless)));
            described.push(("exec with `{session}`".to_owned(), kind.describe(&keeps)));
        } else {
            described.push((kind.name().to_owned(), kind.describe(&stateless)));
        }
    }
    described
}

/// Makes a row of its name and what each kind has in it.
type Row<'a> = &'a dyn Fn(&str, &dyn Fn(&Capabilities) -> String) -> Vec<String>;

/// How sessions, processes and turns hang together.
fn kept(row: Row<'_>) -> Vec<Vec<String>> {
    vec![
        row("sessions in a process", &|it| {
            match it.sessions {
                Sessions::One => "one",
                Sessions::Many => "many",
                Sessions::PerTurn => "a process for each turn",
            }
            .to_owned()
        }),
        row("turns at once in a process", &|it| {
            it.concurrent_sends.to_string()
        }),
        row("after its process died, a session", &|it| {
            match it.resume {
                Resume::Native => "goes on, by the agent's own id",
                Resume::InTurn => "goes on, if its handshake says so, by its own id",
                Resume::None => "is lost, and says so",
                Resume::Stateless => "has no memory anyway",
            }
            .to_owned()
        }),
        row("a process is used for another session", &|it| {
            yes(it.recycles)
        }),
        row("cwd, which a session keeps", &|it| {
            match (it.sessions, it.resume) {
                (Sessions::PerTurn, _) => "each turn's process is started in it",
                (_, Resume::InTurn) => "its process is started in it, or goes there with each turn, if its handshake says so",
                _ => "its process is started in it",
            }
            .to_owned()
        }),
        row("abort", &|it| {
            if it.cancels {
                "by a word; the session goes on in its process"
            } else {
                "ends the process"
            }
            .to_owned()
        }),
        row("`set_model` in a session", &|it| {
            match (it.models, it.sessions, it.model_per_turn) {
                (false, ..) => "no",
                (_, Sessions::PerTurn, _) => "from the next turn's process on",
                (_, _, true) => "in the living process",
                _ if it.switches => {
                    "in the living process, if its version can; else in a new one, which reopens the session"
                }
                (_, _, false) => "in a new process, which reopens the session",
            }
            .to_owned()
        }),
    ]
}

/// What is told of turns.
fn told(row: Row<'_>) -> Vec<Vec<String>> {
    vec![
        row("text", &|it| piecemeal(it, true)),
        row("thinking, apart from text", &|it| {
            piecemeal(it, it.tells.thinking)
        }),
        row("tools: start, output, end", &|it| yes(it.tells.tools)),
        row("usage", &|it| reported(it, it.tells.usage, "yes")),
        row("context used, and its size", &|it| {
            reported(it, it.tells.context, "yes")
        }),
        row("cost", &|it| {
            let names: Vec<String> = it.tells.costs.iter().map(name).collect();
            let names = if names.is_empty() {
                "unknown".to_owned()
            } else {
                names.join(" or ")
            };
            reported(it, !it.tells.costs.is_empty(), &names)
        }),
        row("stop", &|it| {
            let stops = it.tells.stops.iter();
            let names: Vec<String> = stops.map(name).collect();
            each(&names.iter().map(String::as_str).collect::<Vec<_>>())
        }),
        row("questions", &|it| match it.tells.questions {
            [] => "none".to_owned(),
            kinds => {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                names.join(", ")
            }
        }),
    ]
}

fn toolsets(of: &Capabilities) -> String {
    match of.toolsets {
        Toolsets::None => said(of, false),
        Toolsets::Own => said(of, true),
        Toolsets::Tools(tools) => {
            let sets = tools.sets.iter();
            let sets = sets.map(|(set, tools)| format!("`{set}`: {}", tools.join(", ")));
            let sets: Vec<String> = sets.collect();
            let others = tools.others.join(", ");
            let others = Some(others).filter(|others| !others.is_empty());
            let others = others.map(|others| format!("; else {others}"));
            let prefix = tools.prefix.map(|prefix| format!(", `{prefix}…`"));
            let (others, prefix) = (others.unwrap_or_default(), prefix.unwrap_or_default());
            format!("{}{others}{prefix}", sets.join("; "))
        }
        Toolsets::Groups(_) => of.toolsets.names(),
    }
}

/// What a session can be pinned to.
fn pinned(row: Row<'_>) -> Vec<Vec<String>> {
    vec![
        row("fallback_chain", &|it| said(it, it.fallback_chain)),
        row("model", &|it| match (it.models, it.sessions) {
            (false, _) => "no".to_owned(),
            (true, Sessions::PerTurn) => "by `{model}` in the command".to_owned(),
            (true, _) => given(it.model_per_turn).to_owned(),
        }),
        row("provider", &|it| match it.providers {
            Providers::Any => given(it.model_per_turn).to_owned(),
            Providers::Known(known) => format!("{}: {}", given(it.model_per_turn), each(known)),
            Providers::OfModel => {
                format!("{}, as part of the model's name", given(it.model_per_turn))
            }
            Providers::None => "no".to_owned(),
        }),
        row("thinking level", &|it| match it.thinking {
            Levels::Any => given(it.thinking_per_turn).to_owned(),
            Levels::Known(known) => format!("{}: {}", given(it.thinking_per_turn), each(known)),
            Levels::None => "no".to_owned(),
        }),
        row("mode", &|it| match it.modes {
            Modes::Offered => "with each turn, of those that it offers".to_owned(),
            Modes::Known(known) => {
                let ids: Vec<&str> = known.iter().map(|it| it.id).collect();
                let started = "when the process starts, or between turns";
                format!("{started}: {}", each(&ids))
            }
            Modes::None => "no".to_owned(),
        }),
    ]
}

fn kinds() -> String {
    let described = described();
    let row = |what: &str, value: &dyn Fn(&Capabilities) -> String| -> Vec<String> {
        let values = described.iter().map(|(_, describe)| value(describe));
        std::iter::once(what.to_owned()).chain(values).collect()
    };
    let mut rows = kept(&row);
    rows.extend([
        row("steer", &|it| said(it, it.steers)),
        row("compact", &|it| said(it, it.compacts)),
        row("lists its models", &|it| said(it, it.lists_models)),
        row("lists its slash commands", &|it| {
            said(it, it.lists_commands)
        }),
        row("`session.fork`", &|it| said(it, it.forks)),
    ]);
    rows.extend(told(&row));
    rows.extend([
        row("attachments", &|it| {
            match it.attachments {
                AttachmentSupport::Nothing => "no",
                AttachmentSupport::Images => "pictures",
                AttachmentSupport::Texts => "pictures and text",
                AttachmentSupport::Files => "pictures, PDF and text",
            }
            .to_owned()
        }),
        row("toolsets", &|it| toolsets(it)),
        row("system text", &|it| match it.system {
            SystemText::AtStart => "when the process starts".to_owned(),
            SystemText::WithTurn => {
                "with the first turn, if its handshake says so; else in the first prompt".to_owned()
            }
            SystemText::InPrompt if it.resume == Resume::Stateless => "in each prompt".to_owned(),
            SystemText::InPrompt => "in the first prompt".to_owned(),
        }),
        row("history", &|it| {
            match it.history {
                true => "with the first turn, if its handshake says so; else in the first prompt",
                false => "in the first prompt",
            }
            .to_owned()
        }),
        row("MCP servers of a session", &|it| {
            match it.mcp {
                McpServing::Never => "no",
                McpServing::AtStart => "when the process starts",
                McpServing::WithTurn => "with each turn, if its handshake says so",
            }
            .to_owned()
        }),
    ]);
    rows.extend(pinned(&row));
    rows.extend([row("ready within", &|it| {
        format!("{} s", it.ready_within.as_secs())
    })]);
    let mut head = vec![""];
    head.extend(described.iter().map(|(name, _)| name.as_str()));
    table(&head, &rows)
}

fn code(words: &[&str]) -> String {
    format!("`{}`", words.join(" "))
}

fn presets() -> String {
    let rows: Vec<Vec<String>> = PRESETS
        .iter()
        .map(|preset| {
            let command = |arguments: &[&str]| code(&[&[preset.name], arguments].concat());
            let agent = AgentConfig::new(preset.kind, vec![preset.name.to_owned()]);
            let signs = preset.signs.iter().map(|sign| format!("“{sign}”"));
            let signs: Vec<String> = signs.collect();
            let passes: Vec<String> = passes(&agent)
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            vec![
                preset.name.to_owned(),
                preset.kind.name().to_owned(),
                command(preset.arguments),
                command(preset.exec_arguments),
                passes.join(", "),
                signs.join(", "),
            ]
        })
        .collect();
    table(
        &[
            "agent",
            "kind",
            "long-lived",
            "exec form, by `kind = \"exec\"`",
            "variables it gets",
            "known by one of",
        ],
        &rows,
    )
}

fn places() -> String {
    let below = BELOW_HOME
        .iter()
        .map(|(dir, who)| (format!("~/{dir}"), who));
    let machine = OF_THE_MACHINE
        .iter()
        .map(|(dir, who)| ((*dir).to_owned(), who));
    let rows: Vec<Vec<String>> = below
        .chain(machine)
        .map(|(dir, who)| vec![format!("`{dir}`"), (*who).to_owned()])
        .collect();
    table(&["directory", "who puts programs there"], &rows)
}

/// The text with what stands between a mark and the next one replaced.
fn with(text: &str, name: &str, generated: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->\n"),
    );
    let from = text.find(&begin).unwrap_or_else(|| panic!("no `{begin}`")) + begin.len();
    let to = text.find(&end).unwrap_or_else(|| panic!("no `{end}`"));
    format!("{}{generated}{}", &text[..from], &text[to..])
}

#[test]
fn agents_md_says_what_the_code_says() {
    let written = fs::read_to_string(FILE).unwrap();
    let mut fresh = written.clone();
    for (name, generated) in [
        ("kinds", kinds()),
        ("presets", presets()),
        ("places", places()),
    ] {
        fresh = with(&fresh, name, &generated);
    }
    if std::env::var_os(WRITE).is_some() {
        fs::write(FILE, &fresh).unwrap();
    } else {
        assert!(
            written == fresh,
            "daemon/AGENTS.md is behind the code: run `cargo xtask agents`\n{fresh}"
        );
    }
}
