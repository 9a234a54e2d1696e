//! `cargo xtask agents`: writes the tables of `daemon/AGENTS.md` anew.
//!
//! Owns nothing but the call: the tables come from the test that compares them.

use anyhow::{Context as _, bail};

use crate::cargo;

pub(crate) fn run() -> anyhow::Result<()> {
    let status = cargo()
        .args(["test", "--quiet", "--package", "agentd-daemon", "--lib"])
        .arg("agents_md_says_what_the_code_says")
        .env("AGENTD_WRITE_DOCS", "1")
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("the tables were not written");
    }
    Ok(())
}
