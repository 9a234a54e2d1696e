//! `cargo xtask torture`: the product under kills and power cuts.
//!
//! Owns how the programs for it are built and called. Must not know what is done to them.

use anyhow::{Context as _, bail};

use crate::cargo;

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    // What `cargo test` builds, with its choice of packages: nothing is built twice.
    let status = cargo()
        .args(["build", "--quiet", "--bins", "--examples"])
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("the build failed");
    }
    let status = cargo()
        .args(["run", "--quiet", "--example", "torture", "--"])
        .args(words)
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("torture ended with {status}");
    }
    Ok(())
}
