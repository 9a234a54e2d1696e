//! `cargo xtask torture`: the product under kills and power cuts.
//!
//! Owns how the programs for it are built and called. Must not know what is done to them.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{cargo, root};

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    // What `cargo test` builds, with its choice of packages: nothing is built twice.
    let status = cargo()
        .args(["build", "--quiet", "--bins", "--examples"])
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("the build failed");
    }
    let torture = root().join("target/debug/examples/torture");
    let status = Command::new(&torture)
        .current_dir(root())
        .args(words)
        .status()
        .with_context(|| format!("can't run `{}`", torture.display()))?;
    if !status.success() {
        bail!("torture ended with {status}");
    }
    Ok(())
}
