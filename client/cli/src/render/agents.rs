//! `agents` as text for people.
//!
//! Pure: rows in, text out. Must not know streams, time or the connection.

use std::fmt::Write as _;

use agentd_protocol::line::AgentRow;

use super::preview;
use crate::output::safe;
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table, wrapped};

/// Which agents `agents` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Those that are there; the others by name.
    Installed,
    /// All, with why.
    All,
}

/// Who says that an agent answers when nobody is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultBy {
    /// The configuration, as far as is known.
    Choice,
    /// Nobody: it is what the daemon finds.
    Look,
}

/// `agents` for people: what is usable first.
#[must_use]
pub fn agents(rows: &[AgentRow], which: Shown, by: DefaultBy, style: &Style) -> String {
    let is_missing = |row: &&AgentRow| row.found == LOOKED_FOR && !row.usable;
    let (missing, mut there): (Vec<&AgentRow>, Vec<&AgentRow>) = rows.iter().partition(is_missing);
    there.sort_by_key(|row| !row.usable);
    if which == Shown::All {
        there.extend(&missing);
    }
    let columns = [
        Column::new("AGENT").that_stays(),
        Column::cut("USABLE", 12).that_stays(),
        Column::cut("VERSION", 8),
        Column::new("LOGIN"),
        Column::new("KIND"),
        Column::new("FOUND"),
        Column::cut("COMMAND", 12),
    ];
    let mut shown = String::new();
    if !there.is_empty() {
        let only = there.iter().filter(|row| row.usable).count() == 1;
        let default = match by {
            DefaultBy::Look if !only => "would be asked",
            DefaultBy::Look | DefaultBy::Choice => "default",
        };
        let rows: Vec<Vec<Cell>> = there.iter().map(|row| agent(row, default)).collect();
        shown = table(&columns, &rows, style);
    }
    // Whole, whatever the width: it ends with what to do.
    for row in there.iter().filter(|row| !row.usable) {
        if let Some(why) = &row.why_not {
            let line = format!("{}: {}", row.name, why.trim().replace('\n', " "));
            let _ = writeln!(shown, "{}", wrapped(&safe(&line), "  ", style));
        }
    }
    if which == Shown::Installed && !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|row| row.name.as_str()).collect();
        let line = format!("not installed: {} (`--all` shows why)", names.join(", "));
        let line = wrapped(&safe(&line), "  ", style);
        let _ = writeln!(shown, "{}", style.paint(Tone::Faint, &line));
    }
    shown
}

/// What `found` says of an agent that isn't installed.
const LOOKED_FOR: &str = "looked-for";

fn agent(row: &AgentRow, default: &str) -> Vec<Cell> {
    let name = if row.default {
        format!("{} ({default})", row.name)
    } else {
        row.name.clone()
    };
    let note = row.note.as_ref();
    let note = note.map_or_else(String::new, |note| {
        format!(" ({})", note.trim().replace('\n', " "))
    });
    // A send would end with that.
    let usable = match (row.usable, row.to_do()) {
        (true, Some(to_do)) => Cell::toned(format!("{to_do}{note}"), Tone::Waits),
        (true, None) => Cell::toned(format!("yes{note}"), Tone::Good),
        (false, _) => Cell::toned(format!("no{note}"), Tone::Bad),
    };
    let login = match row.logged_in {
        Some(true) => Cell::from("yes"),
        Some(false) => Cell::toned("no", Tone::Waits),
        None => Cell::from("-"),
    };
    let command = match row.command.is_empty() {
        true => "-".to_owned(),
        false => preview(&row.command.join(" ")),
    };
    vec![
        name.into(),
        usable,
        row.version.as_deref().unwrap_or("-").into(),
        login,
        row.kind.as_str().into(),
        row.found.as_str().into(),
        command.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::Line;

    #[test]
    fn agents_say_why_they_are_not_usable() {
        let Line::Agents { agents: rows, .. } = serde_json::from_str(
            r#"{"type":"agents","ok":true,"agents":[{"name":"pi","kind":"pi","command":["pi"],"found":"path","version":"1.5","logged_in":true,"note":"odd","usable":true,"why_not":null,"default":true},{"name":"hermes","kind":"acp","command":[],"found":"looked-for","version":null,"usable":false,"why_not":"`hermes` is not on PATH","default":false}]}"#,
        )
        .unwrap() else {
            panic!("not agents");
        };
        assert_eq!(
            agents(&rows, Shown::All, DefaultBy::Choice, &Style::PLAIN),
            "\
AGENT         USABLE     VERSION  LOGIN  KIND  FOUND       COMMAND
pi (default)  yes (odd)  1.5      yes    pi    path        pi
hermes        no         -        -      acp   looked-for  -
hermes: `hermes` is not on PATH
"
        );
        assert_eq!(
            agents(&rows, Shown::Installed, DefaultBy::Look, &Style::PLAIN),
            "\
AGENT         USABLE     VERSION  LOGIN  KIND  FOUND  COMMAND
pi (default)  yes (odd)  1.5      yes    pi    path   pi
not installed: hermes (`--all` shows why)
"
        );
        let mut rows = rows;
        (rows[0].logged_in, rows[1].usable) = (Some(false), true);
        let shown = agents(&rows, Shown::Installed, DefaultBy::Look, &Style::PLAIN);
        assert!(
            shown.contains("pi (would be asked)  log in (odd)"),
            "{shown}"
        );
        (rows[0].logged_in, rows[0].found) = (None, "built-in".to_owned());
        let shown = agents(&rows, Shown::Installed, DefaultBy::Look, &Style::PLAIN);
        assert!(shown.contains("needs a model (odd)"), "{shown}");
    }
}
