//! `cargo xtask torture`: the product under kills and power cuts.
//!
//! Owns how the programs for it are built and called. Must not know what is done to them.

use anyhow::{Context as _, bail};

use crate::cargo;

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    // The clients are programs as they are released; only the daemon can be made to fail.
    build(&["--bins"])?;
    let examples = ["torture", "torture-agentd", "chaos-worker"];
    let mut only: Vec<&str> = examples
        .iter()
        .flat_map(|name| ["--example", name])
        .collect();
    only.extend(["--features", "failpoints"]);
    build(&only)?;
    let status = cargo()
        .args([
            "run",
            "--quiet",
            "--package",
            "agentd",
            "--features",
            "failpoints",
        ])
        .args(["--example", "torture", "--"])
        .args(words)
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("torture ended with {status}");
    }
    Ok(())
}

fn build(what: &[&str]) -> anyhow::Result<()> {
    let status = cargo()
        .args(["build", "--quiet", "--package", "agentd"])
        .args(what)
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(())
}
