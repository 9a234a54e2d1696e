//! The programs of a release, without a trace of the machine that built them.
//!
//! Owns the flags of the compilers. Must not know what becomes of the programs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use super::{Release, command, said};
use crate::{cargo, root};

/// Builds them in a target directory of their own, as other flags are another build.
pub(super) fn programs(release: &Release, profile: &str) -> anyhow::Result<PathBuf> {
    let target = release.place.join("build");
    let renamed = renamed()?;
    let mut rust: Vec<String> = Vec::new();
    if let Ok(flags) = std::env::var("RUSTFLAGS") {
        rust.extend(flags.split_whitespace().map(str::to_owned));
    }
    let mut c = std::env::var("CFLAGS").unwrap_or_default();
    for (from, to) in &renamed {
        let from = from.to_str().context("a directory's name is not UTF-8")?;
        rust.push(format!("--remap-path-prefix={from}={to}"));
        c.push_str(&format!(" -ffile-prefix-map={from}={to}"));
    }
    let status = cargo()
        .args(["build", "--locked", "--package", "agentd", "--bins"])
        // Named, or a variable or a configuration file could say another, and another directory.
        .args(["--profile", profile, "--target", &release.target])
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"))
        .env("CFLAGS", c.trim())
        .env("CARGO_INCREMENTAL", "0")
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .stdout(Stdio::inherit())
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("the build failed");
    }
    let dir = if profile == "dev" { "debug" } else { profile };
    Ok(target.join(&release.target).join(dir))
}

/// Directories of this machine that compilers write into programs, and what stands there instead.
fn renamed() -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(home?.join(".cargo")));
    let sysroot = said(&mut command("rustc", &["--print=sysroot"]))?;
    let mut renamed = vec![
        (root().to_owned(), "/agentd"),
        (Path::new(&sysroot).to_owned(), "/rust"),
    ];
    renamed.extend(cargo_home.map(|dir| (dir, "/cargo")));
    Ok(renamed)
}
