//! Several agents could answer, and none is the default: which one is it to be?
//!
//! Owns the question on a terminal, and the command that says it elsewhere. What is chosen is kept by
//! the daemon's program. Must not know how a turn is sent.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

use agentd_protocol::line::ErrorLine;
use agentd_protocol::rows::AgentRow;
use agentd_protocol::{Code, Line, RequestKind};

use super::exit::Exit;
use super::stop_signal::StopSignals;
use super::turn::TurnOutcome;
use super::{ask, config, output, terminal};
use agentd_client::client::{Client, START_IT};
use agentd_client::fallback::Fallback;
use agentd_client::ssh::Target;
use agentd_client::wire::Nothing;

/// An error isn't kept back longer for what else there is; a list that is known takes no time.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);

/// Is the choice of an agent all that is missing?
fn is_open(error: &ErrorLine) -> bool {
    error.code == Code::Ambiguous && !error.choices.is_empty()
}

/// The agents among which a turn could not choose.
pub(super) fn of(outcome: &TurnOutcome) -> Option<&[String]> {
    let open = error_of(outcome).filter(|error| is_open(error));
    open.map(|error| &*error.choices)
}

fn error_of(outcome: &TurnOutcome) -> Option<&ErrorLine> {
    match outcome {
        TurnOutcome::Final(received, _) => match &received.line {
            Some(Line::Error(error)) => Some(error),
            _ => None,
        },
        TurnOutcome::Left(_)
        | TurnOutcome::Waited(_)
        | TurnOutcome::Failed(..)
        | TurnOutcome::Unwritten(..) => None,
    }
}

/// Asks whoever sits there, and makes the answer the default. None without somebody, or where the
/// default is another machine's.
pub(super) async fn ask(choices: &[String], socket: Option<&Path>) -> io::Result<Option<String>> {
    let here = socket.and_then(Target::of_socket).is_none();
    if !here || !io::stdin().is_terminal() || !output::err_is_terminal() {
        return Ok(None);
    }
    let rows = rows(choices, socket).await;
    output::err(&shown(&rows));
    let mut stops = StopSignals::hear()?;
    let question = format!("number [1, {}]: ", rows[0].0);
    let mut line = line_of(move || terminal::ask_line(&question), &mut stops).await?;
    let chosen = loop {
        let Some(typed) = line else {
            output::err("\n");
            return Ok(None);
        };
        if let Some(chosen) = meant(&rows, typed.trim()) {
            break chosen;
        }
        let again = format!("a number from 1 to {}, or a name: ", rows.len());
        line = line_of(move || terminal::ask_again(&again), &mut stops).await?;
    };
    keep(&chosen);
    Ok(Some(chosen))
}

/// What is typed, unless a signal ends the command: the turn has made it deaf to those.
async fn line_of(
    read: impl FnOnce() -> io::Result<Option<String>> + Send + 'static,
    stops: &mut StopSignals,
) -> io::Result<Option<String>> {
    tokio::select! {
        line = tokio::task::spawn_blocking(read) => line.map_err(io::Error::other)?,
        signal = stops.next() => {
            output::err("\n");
            Err(Exit::from(signal).into())
        }
    }
}

/// Name and what is known of it, those that are ready first. There is at least one.
type Choice = (String, String);

async fn rows(choices: &[String], socket: Option<&Path>) -> Vec<Choice> {
    let mut known = match ask::connected(socket, Fallback::Allowed, START_IT).await {
        Ok(client) => agents(client).await,
        // It was told; names are enough to choose.
        Err(_) => Vec::new(),
    };
    known.sort_by_key(|row| !is_ready(row));
    let of = |row: &AgentRow| choices.contains(&row.name);
    let mut rows: Vec<Choice> = known
        .iter()
        .filter(|row| of(row))
        .map(|row| (row.name.clone(), facts(row)))
        .collect();
    for name in choices {
        if !rows.iter().any(|(known, _)| known == name) {
            rows.push((name.clone(), String::new()));
        }
    }
    rows
}

/// What is known of all agents; of none, if that can't be said.
async fn agents(mut client: Client) -> Vec<AgentRow> {
    let answer = client.answer(RequestKind::Agents, &Nothing {}).await;
    client.close().await;
    match answer.ok().and_then(|received| received.line) {
        Some(Line::Agents { agents, .. }) => agents,
        _ => Vec::new(),
    }
}

fn is_ready(row: &AgentRow) -> bool {
    row.usable && row.to_do().is_none()
}

fn facts(row: &AgentRow) -> String {
    let version = row.version.as_deref().map(output::safe_line);
    let built_in = row.found == "built-in";
    let login = match row.logged_in {
        _ if built_in => row.to_do().map(str::to_owned),
        Some(true) => Some("logged in".to_owned()),
        Some(false) => Some("not logged in".to_owned()),
        None => None,
    };
    let built_in = built_in.then(|| "comes with agentd".to_owned());
    let known = [built_in, version, login];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn shown(rows: &[Choice]) -> String {
    let widest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = "Several agents can answer. Which one shall, from now on?\n".to_owned();
    for (number, (name, facts)) in rows.iter().enumerate() {
        let name = output::safe_line(name);
        let line = format!("  {}  {name:widest$}  {facts}", number + 1);
        let _infallible = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn meant(rows: &[Choice], line: &str) -> Option<String> {
    let named = |(name, _): &&Choice| name == line;
    let number = match line {
        "" => Some(1),
        line => line.parse::<usize>().ok(),
    };
    let numbered = || rows.get(number?.checked_sub(1)?);
    let chosen = rows.iter().find(named).or_else(numbered)?;
    Some(chosen.0.clone())
}

fn keep(name: &str) {
    let kept = config::is_kept(&["agents", "default", "--", name]);
    let name = output::safe(name);
    output::note(&if kept {
        format!("`{name}` is the default now; `agentctl agents default OTHER` changes it")
    } else {
        format!("`{name}` can't be kept as the default, so it answers this once")
    });
}

/// Who named no agent, and met one without a key or a login, hears which others are there.
pub(super) async fn tell_others(outcome: &TurnOutcome, socket: Option<&Path>) {
    let Some(error) = error_of(outcome) else {
        return;
    };
    let asked = error.turn.as_ref().and_then(|turn| turn.agent.as_deref());
    if !matches!(error.code, Code::AgentAuth | Code::NoModel) {
        return;
    }
    let others = tokio::time::timeout(OTHERS_WITHIN, others(asked, socket)).await;
    if let Ok(Some(others)) = others {
        output::err(&format!(
            "hint: other agents are there: {}; `--agent NAME` asks one\n",
            output::safe(&others.join(", "))
        ));
    }
}

async fn others(asked: Option<&str>, socket: Option<&Path>) -> Option<Vec<String>> {
    let known = agents(ask::connect(socket).await.ok()?).await;
    let others =
        (known.into_iter()).filter(|row| is_ready(row) && asked != Some(row.name.as_str()));
    let others: Vec<String> = others.map(|row| row.name).collect();
    (!others.is_empty()).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_is_a_number_or_a_name() {
        let rows = [
            ("claude".to_owned(), "2.1, logged in".to_owned()),
            ("pi".to_owned(), String::new()),
        ];
        assert_eq!(
            shown(&rows),
            "Several agents can answer. Which one shall, from now on?\n  1  claude  2.1, logged in\n  2  pi\n"
        );
        let chosen = |line| meant(&rows, line);
        for (line, name) in [("", "claude"), ("1", "claude"), ("2", "pi"), ("pi", "pi")] {
            assert_eq!(chosen(line).as_deref(), Some(name), "{line}");
        }
        for wrong in ["0", "3", "cl", "-1"] {
            assert_eq!(chosen(wrong), None, "{wrong}");
        }
    }
}
