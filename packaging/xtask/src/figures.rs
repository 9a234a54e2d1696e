//! `cargo xtask figures`: the figures of a release build.
//!
//! Owns how the bench is called. Must not know what it measures.

use anyhow::{Context as _, bail};

use crate::cargo;

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    // `cargo bench` builds the programs in the release profile, too: the bench measures those.
    let status = cargo()
        .args(["bench", "--package", "agentd", "--bench", "figures", "--"])
        .args(words)
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("`cargo bench` ended with {status}");
    }
    Ok(())
}
