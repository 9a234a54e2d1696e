//! One document, run as a newcomer would: block after block, in an empty home and a private place.
//!
//! Owns the place, the shell that goes through it, and what counts as the same output. Must not know
//! which blocks may be run.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::blocks::{Block, Mark};
use crate::checks::programs;
use crate::root;
use crate::support::{Place, Reaped, needs};

/// A chapter takes some seconds; on a machine that does much else, many.
const LONGEST: Duration = Duration::from_secs(120);

/// A daemon that was stopped is gone by then.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// Where HTTP is served unless somebody says otherwise: that may be taken, here.
const HTTP: &str = "127.0.0.1:7878";

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

pub fn run(blocks: &[Block]) -> Result<(), String> {
    let place = Place::new("");
    let mut script = String::new();
    for (number, block) in blocks.iter().enumerate() {
        if is_run(block) {
            add(&place, number, block, &mut script);
        }
    }
    script.push_str("exec >&2\n");
    let script = script.replace(HTTP, &free_address());
    let text = &blocks[0];
    let errors =
        shell(&place, &script).map_err(|why| format!("{}: {why}", text.document.display()))?;
    for (number, block) in blocks.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| &blocks[before]);
        if matches!(block.mark, Mark::Output | Mark::OutputInAnyOrder) {
            let before = before.filter(|before| before.mark == Mark::Run);
            let before =
                before.ok_or(format!("{}: the block before it isn't run", block.place()))?;
            if !is_run(before) {
                continue;
            }
            let printed = std::fs::read_to_string(place.path(&format!("out-{}", number - 1)));
            let printed = printed.map_err(|error| format!("{}: {error}", block.place()))?;
            let shown = |text: &str| match block.mark {
                Mark::OutputInAnyOrder => sorted(&plain(text)),
                _ => plain(text),
            };
            if shown(&printed) != shown(&block.text) {
                return Err(format!(
                    "{}: it prints something else:\n{printed}\n{errors}",
                    block.place()
                ));
            }
        }
    }
    Ok(())
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Is it meant to be run, and is what it needs there?
fn is_run(block: &Block) -> bool {
    let program = match block.language.as_str() {
        "python" => Some("python3"),
        _ => block.text.contains("curl ").then_some("curl"),
    };
    block.mark == Mark::Run && program.is_none_or(|program| needs(program).is_some())
}

/// Each block prints into a file of its own.
fn add(place: &Place, number: usize, block: &Block, script: &mut String) {
    let out = place.path(&format!("out-{number}"));
    let _written = writeln!(script, "exec >'{}'; : {}", out.display(), block.place());
    if block.language == "python" {
        let file = place.path(&format!("block-{number}.py"));
        std::fs::write(&file, &block.text).unwrap();
        let _written = writeln!(script, "python3 -B '{}'", file.display());
    } else {
        script.push_str(&block.text);
    }
}

/// Runs a script to its end; what it wrote to standard error.
pub fn shell(place: &Place, script: &str) -> Result<String, String> {
    let said = place.path("said");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = place.command("bash");
    bash.env("PATH", format!("{}:{path}", programs()))
        .env("PYTHONPATH", root().join("client/python/src"))
        .args(["-e", "-o", "pipefail", "-x", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap())
        .process_group(0);
    let mut bash = Reaped(bash.spawn().unwrap());
    let until = Instant::now() + LONGEST;
    let status = loop {
        match bash.0.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > until => break None,
            None => std::thread::park_timeout(Duration::from_millis(5)),
        }
    };
    let said = std::fs::read_to_string(said).unwrap_or_default();
    // A daemon that is asked to stop closes its connections first, and takes the socket away after.
    let until = Instant::now() + LEAVES_WITHIN;
    while place.socket().exists() && Instant::now() < until {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let left = place.socket().exists();
    if left {
        place.agentctl(&["stop"]);
    }
    match status {
        Some(status) if !status.success() => Err(format!("{status}\n{said}")),
        None => Err(format!("not done within {LONGEST:?}\n{said}")),
        Some(_) if left => Err(format!("a daemon is left running\n{said}")),
        Some(_) => Ok(said),
    }
}

/// Without what is another each time: times, numbers of processes, names that were made up, and the
/// width of columns.
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        for word in line.split_whitespace() {
            let digits = word.bytes().filter(u8::is_ascii_digit).count();
            let hex = word.len() >= 8
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
            match word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || ",.;:s".contains(c)) {
                _ if hex => plain.push('#'),
                number
                    if digits > 0
                        && number
                            .bytes()
                            .all(|byte| byte.is_ascii_digit() || b".:-,".contains(&byte)) =>
                {
                    plain.push('#');
                }
                _ if ["ms", "s", "min", "h"].contains(&word) => {}
                _ => plain.push_str(word),
            }
            plain.push(' ');
        }
        plain.push('\n');
    }
    plain.trim_end().to_owned()
}
