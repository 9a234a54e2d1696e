//! `agents commands`: which slash commands an agent has, as it says itself.
//!
//! Owns how they are shown. Must not know any agent.

use std::io;
use std::path::Path;

use agentd_client::client::START_IT;
use agentd_client::fallback::Fallback;
use agentd_protocol::commands::{CommandRow, Commands};
use agentd_terminal::style::Style;
use agentd_terminal::table::{Cell, Column, table};

use super::args::AgentCommandsArgs;
use super::exit::Exit;
use super::output::safe_line;
use super::{ask, output};

pub(super) async fn list(args: AgentCommandsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = match ask::connected(socket, Fallback::Allowed, START_IT).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let asked = Commands {
        agent: args.name,
        session: args.session,
    };
    let answer = client.commands(asked).await;
    client.close().await;
    let told = answer.as_ref().ok();
    let note = told.and_then(|reply| reply.value.note.clone());
    let exit = ask::print(answer, args.json, |told| {
        shown(&told.commands, &Style::of_stdout())
    })?;
    if let Some(note) = note.filter(|_| !args.json) {
        output::note(&safe_line(&note));
    }
    Ok(exit)
}

/// What is typed first, then what it does.
fn shown(rows: &[CommandRow], style: &Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = [
        Column::cut("COMMAND", 16).that_stays(),
        Column::cut("WHAT IT DOES", 20),
    ];
    let cells = |row: &CommandRow| -> Vec<Cell> {
        let hint = row.hint.iter().map(|hint| format!(" {hint}"));
        let typed = format!("/{}{}", row.name, hint.collect::<String>());
        let does = row.description.clone().unwrap_or_default();
        // Some are pages long.
        let first = does.trim().lines().next().unwrap_or_default();
        vec![
            safe_line(&typed).as_str().into(),
            safe_line(first).as_str().into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    table(&columns, &rows, style)
}
