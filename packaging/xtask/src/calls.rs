//! Tasks that are calls of cargo: `agents`, `figures`, `record`, `torture`.
//!
//! Owns how each is called. Must not know what is compared, measured, drawn or killed there.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::cargo;

/// Writes the tables of `daemon/AGENTS.md`: they come from the test that compares them.
pub(crate) fn agents() -> anyhow::Result<()> {
    let mut test = cargo();
    test.args(["test", "--quiet", "--package", "agentd-daemon", "--lib"])
        .arg("agents_md_says_what_the_code_says")
        .env("AGENTD_WRITE_DOCS", "1");
    succeed(&mut test)
}

/// The figures of a release build: `cargo bench` builds the programs in that profile, too.
pub(crate) fn figures(words: &[String]) -> anyhow::Result<()> {
    let bench = ["bench", "--package", "agentd", "--bench", "figures", "--"];
    succeed(cargo().args(bench).args(words))
}

/// The pictures of `docs/src/images`: the test that compares them can write them, too.
pub(crate) fn record() -> anyhow::Result<()> {
    let test = ["test", "--quiet", "--test", "docs", "recordings_show"];
    succeed(cargo().args(test).env("AGENTD_RECORD", "1"))?;
    println!("docs/src/images has them: look at each before it is committed");
    Ok(())
}

/// The product under kills and power cuts.
pub(crate) fn torture(words: &[String]) -> anyhow::Result<()> {
    // What `cargo test` builds, with its choice of packages: nothing is built twice.
    succeed(cargo().args(["build", "--quiet", "--bins", "--examples"]))?;
    let run = ["run", "--quiet", "--example", "torture", "--"];
    succeed(cargo().args(run).args(words))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().context("can't run cargo")?;
    let task = command.get_args().next().unwrap_or_default();
    ensure!(
        status.success(),
        "`cargo {}` ended with {status}",
        task.display()
    );
    Ok(())
}
