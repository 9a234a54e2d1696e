//! Tasks of this repository, as `cargo xtask TASK`.
//!
//! Owns the names of the tasks and how cargo is called. Must not know how the product works inside:
//! it is used as a person would use it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task talks to whoever started it"
)]

mod calls;
mod circles;
mod demo;
mod dist;
mod house;
mod msrv;
mod sandbox;
mod schema;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

const USAGE: &str = "\
usage: cargo xtask TASK

  agents    write the tables of daemon/AGENTS.md from the code
  demo      build the product and see its main job done, step by step
  dist      make the files of a release: [--profile P] [--bins DIR] [--to DIR] [--url URL] [--fast]
  figures   measure a release build against controls; `--strict` fails on a miss
  house     count the lines of each crate, circles of files and names of types
  msrv      check that no dependency needs a newer Rust than the workspace says
  record    run the commands of docs/recordings and draw what they print
  schema    write the JSON Schema of every line, the types of the TypeScript package made of it, and
            what the Python and the Swift package lack
  torture   kill everything and cut the power while clients work, and look what was lost:
            [--short] [--seed S] [--kills N] [--power-cuts N] [--minutes N] [--no-proof]";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    let done = match task.as_str() {
        "agents" => calls::agents(),
        "demo" => demo::run(),
        "dist" => dist::run(&rest),
        "figures" => calls::figures(&rest),
        "house" => house::run(),
        "msrv" => msrv::run(),
        "record" => calls::record(),
        "schema" => schema::run(),
        "torture" => calls::torture(&rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's directory.
fn root() -> &'static Path {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    packaging.and_then(Path::parent).unwrap_or(Path::new("/"))
}

/// The cargo that runs this task, in the workspace's directory.
///
/// What cargo tells this program about its own package stays here: a build script that reads such a
/// variable would run again, and with it half of what is built be built anew, here and after it.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The programs of the product, built.
struct Programs {
    agentd: PathBuf,
    agentctl: PathBuf,
}

fn build() -> anyhow::Result<Programs> {
    let built = cargo()
        .args([
            "build",
            "--package",
            "agentd",
            "--bins",
            "--message-format=json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("can't run cargo")?;
    if !built.status.success() {
        bail!("the build failed");
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let messages: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let find = |name: &str| {
        let built = messages.iter().find_map(|message| {
            let ours = message["target"]["name"] == name;
            ours.then(|| message["executable"].as_str()).flatten()
        });
        built
            .map(PathBuf::from)
            .with_context(|| format!("cargo did not say where it put `{name}`"))
    };
    Ok(Programs {
        agentd: find("agentd")?,
        agentctl: find("agentctl")?,
    })
}
