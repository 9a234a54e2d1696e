//! `backup` and `export`.
//!
//! Owns the file that rows are exported to. Must not know what is in a row.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agentd_protocol::work::{Backup, Export};
use serde_json::Value;

use super::args::{BackupArgs, ExportArgs, PastArgs};
use super::busy::Busy;
use super::exit::Exit;
use super::{ask, compose, output, render, value};
use agentd_client::client::{Client, Server};
use agentd_client::copies::ExportPages;
use agentd_client::places::Environment;

pub(super) async fn backup(args: BackupArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let here = std::env::current_dir().ok();
    // Made by the daemon from then on. One now is made without it, too.
    let mut client = match args.every {
        Some(_) => ask::daemon(socket).await?,
        None => ask::past(socket, PastArgs::default()).await?,
    };
    let is_here = !matches!(client.server(), Server::Remote(_));
    let given = match (&args.path, args.every) {
        (Some(path), _) => Some(path.clone()),
        // Another machine's directories are its own.
        (None, None) if is_here => Some(PathBuf::from(file_of(value::now_ms()))),
        (None, _) => None,
    };
    let path = given.map(|given| compose::absolute(&given, here.as_deref()));
    let backup = Backup {
        path: path.map(|path| path.to_string_lossy().into_owned()),
        every: args.every.map(|every| every.as_secs()),
        keep: args.keep,
    };
    let mut busy = Busy::begin();
    let copying = client.backup(&backup);
    let copied = busy.during("copying the store", copying).await;
    drop(busy);
    client.close().await;
    let is_named = args.path.is_some() || args.every.is_some();
    if let (Ok(copied), true) = (&copied, is_here && !is_named)
        && is_beside_the_store(Path::new(&copied.value.path))
    {
        output::note("it is on the same disk as the store; a copy elsewhere outlives that disk");
    }
    let is_end = args.every.is_some_and(|every| every.is_zero());
    ask::print(copied, args.json, |copied| {
        if is_end {
            return "no copy is made by itself any more; those that were made stay\n".to_owned();
        }
        let path = output::safe(&copied.path);
        format!(
            "{path} ({}), without the configuration and its keys\n",
            render::size(copied.bytes)
        )
    })
}

/// What a copy is called that nobody named: by its time.
fn file_of(now_ms: i64) -> String {
    let time = value::rfc3339(now_ms / 1000).replace([':', '-'], "");
    format!("agentd-{}.db", time.trim_end_matches('Z').replace('T', "-"))
}

/// Would both go with one disk?
fn is_beside_the_store(copy: &Path) -> bool {
    let state = Environment::of_process().state_dir();
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    let (state, copy) = (state.as_deref().and_then(device), device(copy));
    state.is_some() && state == copy
}

pub(super) async fn export(args: ExportArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::past(socket, args.past).await?;
    let pages = ExportPages::new(Export {
        session: args.of.or(args.session),
        ..Export::default()
    });
    let mut file = None;
    let written = written(&mut client, pages, args.output.as_deref(), &mut file).await;
    client.close().await;
    if let (Some(path), true, false) = (&args.output, file.is_some(), matches!(written, Ok(Ok(_))))
    {
        // A part of it would pass for the whole.
        let _left = std::fs::remove_file(path);
    }
    match written? {
        Ok(count) => {
            if let (Some(path), true) = (&args.output, file.is_some()) {
                let rows = output::counted(count as u64, "row");
                output::out_line(&format!("{rows} in {}", path.display()))?;
            }
            Ok(Exit::Done)
        }
        Err(exit) => Ok(exit),
    }
}

/// How many rows there were, once all are where they are to be; or how it ends.
async fn written(
    client: &mut Client,
    mut pages: ExportPages,
    path: Option<&Path>,
    file: &mut Option<BufWriter<File>>,
) -> io::Result<Result<usize, Exit>> {
    let prints = path.is_none() && output::out_is_terminal();
    let mut busy = Busy::begin().unless(prints);
    let mut count = 0;
    loop {
        let so_far = format!("{} read", output::counted(count as u64, "row"));
        let rows = match busy.during(&so_far, pages.next(client)).await {
            Ok(Some(page)) => page.value,
            Ok(None) => break,
            Err(error) => return Ok(Err(ask::tell(&error))),
        };
        count += rows.len();
        let lines: String = rows.iter().map(|row: &Value| format!("{row}\n")).collect();
        match path {
            None => output::out(&lines)?,
            Some(path) => {
                // Made when there is something to write: a refusal leaves no file behind.
                let file = match file {
                    Some(file) => file,
                    None => file.insert(BufWriter::new(private(path)?)),
                };
                file.write_all(lines.as_bytes()).map_err(full(path))?;
            }
        }
    }
    if let (Some(file), Some(path)) = (file, path) {
        let flushed = file.flush().and_then(|()| file.get_ref().sync_all());
        flushed.map_err(full(path))?;
    }
    Ok(Ok(count))
}

fn full(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let what = format!(
            "can't write `{}`: {error}; nothing is left of it",
            path.display()
        );
        io::Error::new(error.kind(), what)
    }
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
