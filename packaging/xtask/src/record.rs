//! `cargo xtask record`: the pictures of `docs/src/images`, made of what the commands print.
//!
//! Owns how that is asked for: the test that compares them can write them, too. Must not know how a
//! picture is drawn.

use anyhow::bail;

use crate::cargo;

pub(crate) fn run() -> anyhow::Result<()> {
    let status = cargo()
        .args(["test", "--quiet", "--test", "docs", "recordings_show"])
        .env("AGENTD_RECORD", "1")
        .status()?;
    if !status.success() {
        bail!("the recordings were not made");
    }
    println!("docs/src/images has them: look at each before it is committed");
    Ok(())
}
