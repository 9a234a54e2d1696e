//! `backup` and `export`.
//!
//! Owns the file that rows are exported to. Must not know what is in a row.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use agentd_protocol::work::Backup;
use serde_json::Value;

use super::args::{BackupArgs, ExportArgs};
use super::busy::Busy;
use super::exit::Exit;
use super::{ask, compose, output, render};
use agentd_client::copies::ExportPages;

pub(super) async fn backup(args: BackupArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let here = std::env::current_dir().ok();
    let path = args.path.as_ref();
    let path = path.map(|given| compose::absolute(given, here.as_deref()));
    let backup = Backup {
        path: path.map(|path| path.to_string_lossy().into_owned()),
        every: args.every.map(|every| every.as_secs()),
        keep: args.keep,
    };
    let mut client = ask::daemon(socket).await?;
    let mut busy = Busy::begin();
    let copying = client.backup(&backup);
    let copied = busy.during("copying the store", copying).await;
    drop(busy);
    ask::print(copied, args.json, |copied| {
        let path = output::safe(&copied.path);
        format!("{path} ({})\n", render::size(copied.bytes))
    })
}

pub(super) async fn export(args: ExportArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::past(socket, args.past).await?;
    let prints = args.output.is_none() && output::out_is_terminal();
    let mut busy = Busy::begin().unless(prints);
    let mut pages = ExportPages::default();
    let mut file = None;
    let mut count = 0;
    loop {
        let so_far = format!("{} read", output::counted(count as u64, "row"));
        let rows = match busy.during(&so_far, pages.next(&mut client)).await {
            Ok(Some(rows)) => rows,
            Ok(None) => break,
            Err(error) => return Ok(ask::tell(&error)),
        };
        count += rows.len();
        let lines: String = rows.iter().map(|row: &Value| format!("{row}\n")).collect();
        match &args.output {
            None => output::out(&lines)?,
            Some(path) => {
                // Made when there is something to write: a refusal leaves no file behind.
                let file = match &mut file {
                    Some(file) => file,
                    None => file.insert(BufWriter::new(private(path)?)),
                };
                file.write_all(lines.as_bytes())?;
            }
        }
    }
    drop(busy);
    client.close().await;
    if let (Some(mut file), Some(path)) = (file, &args.output) {
        file.flush()?;
        file.get_ref().sync_all()?;
        let rows = output::counted(count as u64, "row");
        output::out_line(&format!("{rows} in {}", path.display()))?;
    }
    Ok(Exit::Done)
}

/// A new file that only its user can read: there are prompts in it.
fn private(path: &Path) -> io::Result<File> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    made.map_err(|error| {
        let what = format!(
            "can't make `{}`: {error}; name a new file in a directory that is there",
            path.display()
        );
        io::Error::new(error.kind(), what)
    })
}
