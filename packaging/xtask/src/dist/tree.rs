//! What a release consists of, laid out below a prefix.
//!
//! Owns which file goes where, and how the units of a package differ from those of one user. Must
//! not know what is packed from it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::{Release, command, compress, done, said};
use crate::root;

const PROGRAMS: [&str; 3] = ["agentctl", "agentd", "timmy"];
/// What units say of who wrote them, and what stands there in a package.
const WRITTEN: &str = "Written by `agentctl service install`, which writes it anew";
const PACKAGED: &str = "Of the package agentd, which replaces it";
/// For who enables the units by hand; `agentctl service install` adds the PATH of the user's shell.
const ENVIRONMENT: &str =
    "Environment=PATH=%h/.cargo/bin:%h/.local/bin:/usr/local/bin:/usr/bin:/bin";

/// Fills an empty directory.
pub(super) fn fill(release: &Release, bins: &Path, stage: &Path) -> anyhow::Result<()> {
    let bin = stage.join("bin");
    fs::create_dir_all(&bin)?;
    for name in PROGRAMS {
        let from = bins.join(name);
        fs::copy(&from, bin.join(name))
            .with_context(|| format!("can't copy `{}`", from.display()))?;
        // A release has no symbols already; what a debug build has is ten times the program.
        done(command("strip", &[]).arg(bin.join(name)))?;
    }
    let agentctl = bin.join("agentctl");
    done(command(&agentctl, &["man", "--to"]).arg(stage.join("share/man/man1")))?;
    for name in PROGRAMS {
        for (shell, to) in [
            ("bash", format!("share/bash-completion/completions/{name}")),
            ("zsh", format!("share/zsh/site-functions/_{name}")),
            (
                "fish",
                format!("share/fish/vendor_completions.d/{name}.fish"),
            ),
        ] {
            let script = said(&mut command(bin.join(name), &["completions", shell]))?;
            write(&stage.join(to), &(script + "\n"))?;
        }
    }
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(name, &stage.join("share/doc/agentd").join(name))?;
    }
    copy("packaging/install.sh", &stage.join("install.sh"))?;
    copy("README.md", &stage.join("README.md"))?;
    // The user's manager looks there below ~/.local, too.
    for name in [
        "agentd-http.service",
        "agentd-voice-flush.service",
        "agentd-voice-flush.timer",
    ] {
        let to = stage.join("share/systemd/user").join(name);
        write(&to, &unit(name)?)?;
    }
    if cfg!(target_os = "linux") {
        // What a pattern of the package takes is of this release.
        debian(release, &release.empty("debian")?)?;
    }
    Ok(())
}

/// What only the Debian package has: units for its paths, and a changelog of its own kind.
fn debian(release: &Release, to: &Path) -> anyhow::Result<()> {
    for name in ["agentd.service", "agentd.socket"] {
        write(&to.join("systemd").join(name), &unit(name)?)?;
    }
    let date = format!("--date=@{}", release.epoch);
    let date = said(command("date", &["--utc", "--rfc-email"]).arg(date))?;
    let changelog = format!(
        "agentd ({}-1) unstable; urgency=medium\n\n  * Release {}: see CHANGELOG.md.\n\n -- {}  {date}\n",
        release.version,
        release.version,
        maintainer()?
    );
    write(&to.join("changelog"), &changelog)?;
    copy("CHANGELOG.md", &to.join("upstream/changelog"))?;
    compress(&to.join("upstream/changelog"))
}

/// A template with what holds for every user.
fn unit(name: &str) -> anyhow::Result<String> {
    let template = fs::read_to_string(root().join("packaging/systemd").join(name))?;
    if !template.contains(WRITTEN) && !template.contains(PACKAGED) {
        bail!("packaging/systemd/{name} says neither `{WRITTEN}` nor `{PACKAGED}`");
    }
    let unit = template
        .replace(WRITTEN, PACKAGED)
        .replace("@PROGRAM@", "/usr/bin/agentd")
        .replace("@AGENTCTL@", "/usr/bin/env agentctl")
        .replace("@ENVIRONMENT@", ENVIRONMENT)
        .replace("@SOCKET@", "%t/agentd/agentd.sock")
        .replace("@SYMLINKS@", "Symlinks=/tmp/timmy.sock");
    // systemd's own words with an at sign are in small letters.
    let is_left = |line: &&str| {
        let mut after = line.split('@').skip(1);
        after.any(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    if let Some(left) = unit.lines().find(is_left) {
        bail!("packaging/systemd/{name}: nothing is known for `{left}`");
    }
    Ok(unit)
}

/// As the package names them.
fn maintainer() -> anyhow::Result<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("maintainer = "));
    let line = line.context("Cargo.toml names no maintainer")?;
    Ok(line.trim_matches('"').to_owned())
}

fn copy(from: &str, to: &Path) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(root().join(from)).with_context(|| format!("can't read `{from}`"))?;
    write(to, &text)
}

fn write(to: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    Ok(fs::write(to, text)?)
}
