//! `logs`: what the daemon logged, from the journal and from its file.
//!
//! Owns what a line of the log is, which ones are wanted and how they look. Works whether the daemon
//! runs or not. Must not know how the two places are read.

mod file;
mod journal;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::time::interval;

use super::args::LogsArgs;
use super::exit::Exit;
use super::output::{self, safe};
use super::value::{now_ms, rfc3339};
use agentd_client::places::Environment;

/// The file is looked at this often while it is followed.
const LOOK: Duration = Duration::from_millis(200);

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
struct Row {
    /// RFC 3339, to the second.
    time: String,
    #[serde(skip)]
    at_ms: i64,
    level: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row {
    fn at(at_ms: i64) -> Self {
        Self {
            at_ms,
            time: rfc3339(at_ms.div_euclid(1000)),
            ..Self::default()
        }
    }

    fn text(&self) -> String {
        let mut shown = format!("{} {:<5}", self.time, self.level);
        let worker = self
            .worker
            .as_ref()
            .map(|worker| format!("worker {worker}"));
        let about = [&self.job, &self.session, &self.agent, &worker];
        for name in about.into_iter().flatten() {
            shown.push_str("  ");
            shown.push_str(name);
        }
        shown.push_str("  ");
        shown.push_str(&self.message);
        if let Some(error) = &self.error {
            shown.push_str(": ");
            shown.push_str(error);
        }
        safe(&shown).replace('\n', " ")
    }
}

/// A member as text, whatever its type; the journal gives what isn't UTF-8 as numbers.
fn text_of(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(bytes) => {
            let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        other => Some(other.to_string()),
    }
}

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Wanted {
    job: Option<String>,
    session: Option<String>,
    agent: Option<String>,
    since_ms: Option<i64>,
    /// Whose daemon's, for the journal; a file is one daemon's anyway.
    state: Option<PathBuf>,
}

impl Wanted {
    fn takes(&self, row: &Row) -> bool {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.job, &row.job)
            && is(&self.session, &row.session)
            && is(&self.agent, &row.agent)
            && self.since_ms.is_none_or(|since| row.at_ms >= since)
    }
}

pub(super) async fn logs(args: LogsArgs) -> io::Result<Exit> {
    let since = |span: Duration| now_ms() - i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 2);
    let wanted = Wanted {
        job: args.job.map(|job| job.to_string()),
        session: args.session,
        agent: args.agent,
        since_ms: args.since.map(since),
        state: Environment::of_process().state_dir(),
    };
    let mut file = wanted.state.as_deref().map(file::Reader::new);
    let mut found = file.as_mut().map(file::Reader::parts).unwrap_or_default();
    found.retain(|row| wanted.takes(row));
    let is_there = file.as_ref().is_some_and(file::Reader::is_there);
    if args.follow {
        let journal = journal::follow(&wanted, args.lines)?;
        if journal.is_none() && file.is_none() {
            return Ok(nowhere(None));
        }
        show(&found, args.lines, args.json)?;
        return follow(file, journal, &wanted, args.json).await;
    }
    match journal::read(&wanted, args.lines).await? {
        Some(rows) => found.extend(rows.into_iter().filter(|row| wanted.takes(row))),
        None if is_there => {}
        None => return Ok(nowhere(file.as_ref())),
    }
    found.sort_by_key(|row| row.at_ms);
    if found.is_empty() {
        output::note("nothing was logged that fits");
    }
    show(&found, args.lines, args.json)?;
    Ok(Exit::Done)
}

fn nowhere(file: Option<&file::Reader>) -> Exit {
    let path = file.map_or_else(String::new, |file| {
        format!(" (`{}`)", file.path().display())
    });
    output::error(
        &format!("there is no log: no file{path}, and no journal"),
        Some("a daemon that runs in the foreground logs to its terminal, too"),
    );
    Exit::Failed
}

fn show(rows: &[Row], most: usize, json: bool) -> io::Result<()> {
    for row in &rows[rows.len().saturating_sub(most)..] {
        show_one(row, json)?;
    }
    Ok(())
}

fn show_one(row: &Row, json: bool) -> io::Result<()> {
    if json {
        output::out_json(&serde_json::to_string(row)?)
    } else {
        output::out_line(&row.text())
    }
}

/// Until Ctrl-C, or until nobody reads any more.
async fn follow(
    mut file: Option<file::Reader>,
    mut journal: Option<journal::Following>,
    wanted: &Wanted,
    json: bool,
) -> io::Result<Exit> {
    let mut looks = interval(LOOK);
    loop {
        let rows = tokio::select! {
            row = journal::next(&mut journal), if journal.is_some() => match row? {
                Some(row) => vec![row],
                // Its program has left: the file may go on.
                None => {
                    journal = None;
                    continue;
                }
            },
            _ = looks.tick(), if file.is_some() => {
                file.as_mut().map(file::Reader::new_rows).unwrap_or_default()
            }
            else => return Ok(Exit::Done),
        };
        for row in rows.iter().filter(|row| wanted.takes(row)) {
            show_one(row, json)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fits_is_taken() {
        let row = Row {
            job: Some("j1".to_owned()),
            session: Some("main".to_owned()),
            ..Row::at(5_000)
        };
        let takes = |wanted: Wanted| wanted.takes(&row);
        let some = |text: &str| Some(text.to_owned());
        assert!(takes(Wanted::default()));
        assert!(takes(Wanted {
            job: some("j1"),
            session: some("main"),
            ..Wanted::default()
        }));
        assert!(!takes(Wanted {
            job: some("j2"),
            ..Wanted::default()
        }));
        assert!(!takes(Wanted {
            agent: some("pi"),
            ..Wanted::default()
        }));
        assert!(takes(Wanted {
            since_ms: Some(5_000),
            ..Wanted::default()
        }));
        assert!(!takes(Wanted {
            since_ms: Some(5_001),
            ..Wanted::default()
        }));
    }

    #[test]
    fn a_line_for_people_is_one_safe_line() {
        let row = Row {
            level: "info",
            message: "job\ndone\u{1b}".to_owned(),
            job: Some("j1".to_owned()),
            worker: Some("3".to_owned()),
            ..Row::at(951_827_696_500)
        };
        assert_eq!(
            row.text(),
            "2000-02-29T12:34:56Z info   j1  worker 3  job done\\u{1b}"
        );
    }
}
