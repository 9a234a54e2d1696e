//! The log in the journal of systemd, through `journalctl`.
//!
//! Owns its words and its fields. Nothing that the user typed can become one of its options: each
//! stands behind the name of a field. Must not know how lines are shown.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{Row, Wanted, text_of};
use agentd_client::places;

/// A `journalctl` that goes on.
pub(super) struct Following {
    lines: Lines<BufReader<ChildStdout>>,
    /// Ended with us.
    _child: Child,
}

/// What there is; none without a journal.
pub(super) async fn read(wanted: &Wanted, most: usize) -> io::Result<Option<Vec<Row>>> {
    let Some(mut command) = command(wanted, most) else {
        return Ok(None);
    };
    let printed = command.output().await?;
    if !printed.status.success() {
        return Ok(None);
    }
    let lines = printed.stdout.split(|byte| *byte == b'\n');
    Ok(Some(lines.filter_map(row).collect()))
}

/// What there is, and what comes; none without a journal.
pub(super) fn follow(wanted: &Wanted, most: usize) -> io::Result<Option<Following>> {
    let Some(mut command) = command(wanted, most) else {
        return Ok(None);
    };
    let mut child = command.arg("--follow").stdout(Stdio::piped()).spawn()?;
    Ok(child.stdout.take().map(|stdout| Following {
        lines: BufReader::new(stdout).lines(),
        _child: child,
    }))
}

/// The next line; none when `journalctl` has left.
pub(super) async fn next(following: &mut Option<Following>) -> io::Result<Option<Row>> {
    let Some(following) = following else {
        return Ok(None);
    };
    while let Some(line) = following.lines.next_line().await? {
        if let Some(row) = row(line.as_bytes()) {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

fn command(wanted: &Wanted, most: usize) -> Option<Command> {
    let mut command = Command::new(program(std::env::var_os("PATH"))?);
    command
        .args(words(wanted, most, nix::unistd::Uid::effective().as_raw()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    Some(command)
}

/// Relative entries of `PATH` mean the current directory: nothing in it is ever run.
fn program(path: Option<OsString>) -> Option<PathBuf> {
    std::env::split_paths(&path?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("journalctl"))
        .find(|program| program.is_file())
}

fn words(wanted: &Wanted, most: usize, uid: u32) -> Vec<String> {
    let mut words: Vec<String> = ["--output=json", "--no-pager", "--quiet"]
        .map(str::to_owned)
        .into();
    words.push(format!("--lines={most}"));
    if let Some(since) = wanted.since_ms {
        words.push(format!("--since=@{}", since.div_euclid(1000)));
    }
    words.push("SYSLOG_IDENTIFIER=agentd".to_owned());
    words.push(format!("_UID={uid}"));
    for (field, value) in [
        ("AGENTD_JOB", &wanted.job),
        ("AGENTD_SESSION", &wanted.session),
        ("AGENTD_AGENT", &wanted.agent),
    ] {
        words.extend(value.as_ref().map(|value| format!("{field}={value}")));
    }
    // As the daemon writes it: without a slash at its end, and absolute.
    let state = wanted.state.as_ref().map(|dir| places::plain(dir));
    words.extend(state.map(|state| format!("AGENTD_STATE={}", state.display())));
    words
}

fn row(line: &[u8]) -> Option<Row> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| text_of(value.get(name));
    let at_us: i64 = text("__REALTIME_TIMESTAMP")?.parse().ok()?;
    Some(Row {
        level: match text("PRIORITY").as_deref() {
            Some("0" | "1" | "2" | "3") => "error",
            Some("4") => "warn",
            Some("6") => "debug",
            Some("7") => "trace",
            _ => "info",
        },
        message: text("MESSAGE").unwrap_or_default(),
        job: text("AGENTD_JOB"),
        session: text("AGENTD_SESSION"),
        agent: text("AGENTD_AGENT"),
        worker: text("AGENTD_WORKER"),
        target: text("TARGET"),
        error: text("AGENTD_ERROR"),
        ..Row::at(at_us / 1000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_only_ever_a_value() {
        let wanted = Wanted {
            session: Some("--vacuum-size=1".to_owned()),
            since_ms: Some(1_500),
            state: Some("/s//".into()),
            ..Wanted::default()
        };
        assert_eq!(
            words(&wanted, 7, 1000),
            [
                "--output=json",
                "--no-pager",
                "--quiet",
                "--lines=7",
                "--since=@1",
                "SYSLOG_IDENTIFIER=agentd",
                "_UID=1000",
                "AGENTD_SESSION=--vacuum-size=1",
                "AGENTD_STATE=/s"
            ]
        );
    }

    #[test]
    fn an_entry_has_its_fields() {
        let row = row(br#"{"__REALTIME_TIMESTAMP":"951827696500000","PRIORITY":"4","MESSAGE":[104,255],"AGENTD_JOB":"j1","AGENTD_WORKER":"3","TARGET":"agentd_core"}"#).unwrap();
        assert_eq!(
            (
                row.time.as_str(),
                row.level,
                row.message.as_str(),
                row.job.as_deref(),
                row.worker.as_deref()
            ),
            (
                "2000-02-29T12:34:56Z",
                "warn",
                "h\u{fffd}",
                Some("j1"),
                Some("3")
            )
        );
    }
}
