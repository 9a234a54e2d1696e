//! `models`, and `models list --agent`: which models agents have, as they say themselves.
//!
//! Owns when the list is meant rather than that of the built-in agent's own program. Must not know
//! any agent.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_client::asked::RequestError;
use agentd_client::fallback::Fallback;
use agentd_client::models::{AgentModels, ModelPages};
use agentd_client::wire::Nothing;
use agentd_protocol::models::{ModeRow, ModelRow, Models};
use agentd_protocol::rows::AgentRow;
use agentd_protocol::{Line, RequestKind};
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table};
use clap::Parser;
use serde_json::json;
use tokio::task::JoinSet;

use super::args::PassedArgs;
use super::busy::Busy;
use super::exit::Exit;
use super::output::safe;
use super::{ask, output};
use agentd_client::client::START_IT;

/// The daemon gives a process less than that to come up and say it.
const WITHIN: Duration = Duration::from_secs(40);
/// Options that only this list takes.

// What follows `agentctl models list`.
#[derive(Parser, Debug)]
#[command(
    name = "agentctl models list",
    about = "Which models and modes an agent has, as it says itself",
    after_help = "\
Examples:
  agentctl models list --agent pi
  agentctl models list --session main --json

A process of the agent is started if none lives. Without either option the list is that of the
built-in agent's providers"
)]
struct ListArgs {
    /// Of this agent
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    agent: Option<String>,
    /// Of this session's agent
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Print the protocol's own lines
    #[arg(long, short)]
    json: bool,
}

/// Are the models of all agents meant? Nothing else is asked for then.
pub(super) fn is_of_all(args: &PassedArgs) -> bool {
    args.words
        .iter()
        .all(|word| word == "--json" || word == "-j")
}

/// Shows those of each agent that can be used. All are asked at once: one that is silent keeps nobody
/// waiting but for its own time.
pub(super) async fn all(args: &PassedArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let is_json = !args.words.is_empty();
    let mut client = ask::connected(socket, Fallback::Allowed, START_IT).await?;
    let received = client.answer(RequestKind::Agents, &Nothing {}).await;
    let received = received.map_err(|error| ask::tell(&error))?;
    let Some(Line::Agents { agents, .. }) = &received.line else {
        return Ok(ask::unexpected(&received));
    };
    let usable: Vec<&AgentRow> = agents.iter().filter(|agent| agent.usable).collect();
    client.close().await;
    let mut asking = JoinSet::new();
    for (place, agent) in usable.iter().enumerate() {
        let (name, socket) = (agent.name.clone(), socket.map(Path::to_owned));
        asking.spawn(async move { (place, of_agent(name, socket.as_deref()).await) });
    }
    let mut busy = Busy::begin();
    let what = "asking agents for their models";
    let mut answers = busy.during(what, asking.join_all()).await;
    drop(busy);
    answers.sort_by_key(|(place, _)| *place);
    let style = Style::of_stdout();
    let (mut shown_any, mut notes) = (false, Vec::new());
    for (agent, (_, answer)) in usable.iter().zip(answers) {
        let of_agent = match answer {
            ModelsAsked::Told(of_agent) => of_agent,
            // The others have theirs all the same.
            ModelsAsked::Failed(error @ RequestError::Refused(_)) => {
                notes.push(format!("{}: {error}", agent.name));
                continue;
            }
            ModelsAsked::Silent => {
                let within = WITHIN.as_secs();
                notes.push(format!(
                    "{}: it has not answered for {within} s",
                    agent.name
                ));
                continue;
            }
            ModelsAsked::Failed(error) => return Ok(ask::tell(&error)),
            ModelsAsked::Left(exit) => return Ok(exit),
        };
        let note = of_agent.note.map(|note| format!("{}: {note}", agent.name));
        notes.extend(note);
        if is_json {
            let mut line = json!({"agent": agent.name, "models": of_agent.models});
            if !of_agent.modes.is_empty() {
                line["modes"] = json!(of_agent.modes);
                line["mode"] = json!(of_agent.mode);
            }
            output::out_json(&line.to_string())?;
        } else if !of_agent.models.is_empty() {
            let rows: Vec<&ModelRow> = of_agent.models.iter().collect();
            let modes = modes(&of_agent.modes, of_agent.mode.as_deref(), &style);
            let name = style.paint(Tone::Head, &safe(&agent.name));
            let gap = if shown_any { "\n" } else { "" };
            output::out(&format!("{gap}{name}\n{}{modes}", shown(&rows, &style)))?;
            shown_any = true;
        }
    }
    if usable.is_empty() {
        output::note("no agent can be used: `agentctl agents --all` says why");
    }
    for note in notes {
        output::note(&safe(&note));
    }
    if !is_json && output::err_is_terminal() {
        output::note("`agentctl models --help` says what can be changed");
    }
    Ok(Exit::Done)
}

/// What became of asking an agent.
enum ModelsAsked {
    Told(AgentModels),
    Failed(RequestError),
    /// Nobody could be asked, which is told by now.
    Left(Exit),
    Silent,
}

/// Asks one, on a connection of its own: on one the answers come one after the other.
async fn of_agent(agent: String, socket: Option<&Path>) -> ModelsAsked {
    let asked = Models {
        agent: Some(agent),
        ..Models::default()
    };
    let mut client = match ask::connected(socket, Fallback::Allowed, START_IT).await {
        Ok(client) => client,
        Err(exit) => return ModelsAsked::Left(exit),
    };
    let answer = match tokio::time::timeout(WITHIN, client.models(asked)).await {
        Ok(Ok(models)) => ModelsAsked::Told(models),
        Ok(Err(error)) => ModelsAsked::Failed(error),
        Err(_late) => ModelsAsked::Silent,
    };
    client.close().await;
    answer
}

/// Shows it.
pub(super) async fn list(args: &PassedArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let args = match ListArgs::try_parse_from(&args.words) {
        Ok(args) => args,
        Err(error) => return Ok(super::told(&error)),
    };
    let mut client = match ask::connected(socket, Fallback::Allowed, START_IT).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let mut pages = ModelPages::new(Models {
        agent: args.agent,
        session: args.session,
        after: None,
    });
    let mut all: Vec<AgentModels> = Vec::new();
    loop {
        let page = match pages.next(&mut client).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => return refused(&error, args.json),
        };
        if args.json {
            output::out_json(&page.line)?;
        } else {
            all.push(page.value);
        }
    }
    client.close().await;
    let rows: Vec<&ModelRow> = all.iter().flat_map(|page| &page.models).collect();
    if !rows.is_empty() {
        output::out(&shown(&rows, &Style::of_stdout()))?;
    }
    if let Some(page) = all.first() {
        let modes = modes(&page.modes, page.mode.as_deref(), &Style::of_stdout());
        output::out(&modes)?;
    }
    for note in all.iter().filter_map(|page| page.note.as_deref()) {
        output::note(&safe(note));
    }
    Ok(Exit::Done)
}

fn refused(error: &RequestError, json: bool) -> io::Result<Exit> {
    if let (RequestError::Refused(line), true) = (error, json) {
        let line = Line::Error(line.clone());
        output::out_json(line.body().as_json())?;
    }
    Ok(ask::tell(error))
}

/// The modes for people, below their models; nothing where there are none.
fn modes(rows: &[ModeRow], in_force: Option<&str>, style: &Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = [
        Column::new("MODE").that_stays(),
        Column::new(""),
        Column::cut("WHAT IT DOES", 20),
    ];
    let cells = |row: &ModeRow| {
        let mark = if in_force == Some(row.id.as_str()) {
            "in force"
        } else {
            ""
        };
        let label = row
            .label
            .as_deref()
            .filter(|label| !label.eq_ignore_ascii_case(&row.id));
        let said: Vec<&str> = label
            .into_iter()
            .chain(row.description.as_deref())
            .collect();
        vec![
            safe(&row.id).as_ref().into(),
            mark.into(),
            safe(&said.join(": ")).as_ref().into(),
        ]
    };
    let cells: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    format!("\n{}", table(&columns, &cells, style))
}

/// The models for people; what each of them can be sent with first.
fn shown(rows: &[&ModelRow], style: &Style) -> String {
    let mut columns = vec![Column::cut("MODEL", 20).that_stays(), Column::new("")];
    let has = |told: fn(&ModelRow) -> bool| rows.iter().any(|row| told(row));
    let labels = has(|row| row.label.is_some());
    let windows = has(|row| row.context_window.is_some());
    let inputs = has(|row| row.input.is_some());
    let levels = has(|row| row.thinking.is_some());
    for (there, column) in [
        (labels, Column::cut("LABEL", 12)),
        (windows, Column::new("WINDOW")),
        (inputs, Column::new("INPUT")),
        (levels, Column::cut("THINKING", 8)),
    ] {
        columns.extend(there.then_some(column));
    }
    let cells = |row: &&ModelRow| {
        let name = row.full_name();
        let default = if row.default { "default" } else { "" };
        let mut cells: Vec<Cell> = vec![safe(&name).as_ref().into(), default.into()];
        let words = |words: &Option<Vec<String>>| words.as_deref().unwrap_or_default().join(" ");
        let window = row.context_window.map(|tokens| tokens.to_string());
        for (there, text) in [
            (labels, row.label.clone().unwrap_or_default()),
            (windows, window.unwrap_or_default()),
            (inputs, words(&row.input)),
            (levels, words(&row.thinking)),
        ] {
            cells.extend(there.then(|| Cell::from(safe(&text).as_ref())));
        }
        cells
    };
    let rows: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    table(&columns, &rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(words: &str) -> PassedArgs {
        let words = words.split(' ').map(Into::into).collect();
        PassedArgs { words }
    }

    #[test]
    fn models_list_of_an_agent_is_ours() {
        for words in [
            "list --agent pi",
            "list --json --agent=pi",
            "list --session main",
        ] {
            assert!(passed(words).lists_of_agent(), "{words}");
        }
        for words in [
            "list",
            "list ollama --json",
            "status --agent pi",
            "aliases add x --agent",
            "",
        ] {
            assert!(!passed(words).lists_of_agent(), "{words}");
        }
    }

    #[test]
    fn models_are_shown_with_what_is_known() {
        let whole = ModelRow {
            provider: Some("p".to_owned()),
            label: Some("M\u{1b}[1m".to_owned()),
            thinking: Some(vec!["low".to_owned(), "high".to_owned()]),
            input: Some(vec!["text".to_owned()]),
            context_window: Some(7),
            default: true,
            ..ModelRow::named("m")
        };
        let text = shown(&[&whole, &ModelRow::named("n")], &Style::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("MODEL"), "{text}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words[..2], ["p/m", "default"]);
        assert_eq!(words[3..], ["7", "text", "low", "high"]);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(lines[2].trim(), "n");
        assert!(!shown(&[&ModelRow::named("n")], &Style::PLAIN).contains("WINDOW"));
        let plan = ModeRow {
            description: Some("Read-only\u{1b}[1m".to_owned()),
            ..ModeRow::named("plan")
        };
        let text = modes(
            &[ModeRow::named("build"), plan],
            Some("plan"),
            &Style::PLAIN,
        );
        let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["plan", "in", "force"]);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(modes(&[], None, &Style::PLAIN), "");
    }
}
