//! `cargo xtask dist`: the files of a release, the same bytes wherever and whenever they are made.
//!
//! Owns which files a release has, their names, times and sums. Must not know how a Debian package
//! or a bill of materials looks inside: `cargo deb` and `cargo cyclonedx` do.

mod build;
mod licences;
mod tree;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{cargo, root};

/// What is asked for.
struct Options {
    /// The profile to build with.
    profile: String,
    /// Programs that are built already, in this directory.
    bins: Option<PathBuf>,
    /// Where the files go.
    to: PathBuf,
    /// Where they will be fetched from; without it there is no formula.
    url: Option<String>,
    /// How hard the Debian package is compressed.
    packing: Packing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    Small,
    /// For a trial.
    Fast,
}

impl Options {
    fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            profile: "release".to_owned(),
            bins: None,
            to: root().join("target/dist/files"),
            url: None,
            packing: Packing::Small,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--fast" {
                options.packing = Packing::Fast;
                continue;
            }
            let value = words
                .next()
                .with_context(|| format!("`{word}` has no value"))?;
            match word.as_str() {
                "--profile" => options.profile.clone_from(value),
                "--bins" => options.bins = Some(std::path::absolute(value)?),
                "--to" => options.to = std::path::absolute(value)?,
                "--url" => options.url = Some(value.trim_end_matches('/').to_owned()),
                _ => bail!(
                    "`{word}` is not known; expected --profile, --bins, --to, --url or --fast"
                ),
            }
        }
        Ok(options)
    }
}

/// What every file of it is named and dated by.
struct Release {
    version: String,
    target: String,
    /// Seconds since 1970: the commit's, unless `SOURCE_DATE_EPOCH` says another.
    epoch: String,
    /// Where files are made: `target/dist`.
    place: PathBuf,
}

impl Release {
    fn find() -> anyhow::Result<Self> {
        let metadata =
            said(cargo().args(["metadata", "--no-deps", "--format-version=1", "--locked"]))?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let version = packages
            .filter(|package| package["name"] == "agentd")
            .find_map(|package| package["version"].as_str())
            .context("cargo knows no package `agentd`")?;
        let rustc = said(&mut command("rustc", &["-vV"]))?;
        let target = rustc
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("`rustc -vV` names no host")?;
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) if epoch.parse::<u64>().is_ok() => epoch,
            Ok(other) => bail!("SOURCE_DATE_EPOCH is `{other}`, expected seconds since 1970"),
            Err(_) => said(&mut command("git", &["log", "-1", "--format=%ct"]))?,
        };
        Ok(Self {
            version: version.to_owned(),
            target: target.to_owned(),
            epoch,
            place: root().join("target/dist"),
        })
    }

    /// What the files' names begin with.
    fn name(&self) -> String {
        format!("agentd-{}-{}", self.version, self.target)
    }

    /// An empty directory of `target/dist`.
    fn empty(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.place.join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("can't make `{}`", dir.display()))?;
        Ok(dir)
    }
}

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(words)?;
    let release = Release::find()?;
    fs::create_dir_all(&release.place)?;
    // Two at once would write over each other.
    let lock = File::create(release.place.join("lock"))?;
    lock.lock()?;
    if !said(&mut command("git", &["status", "--porcelain"]))?.is_empty() {
        eprintln!("note: this has changes that are not committed, and the programs have them, too");
    }
    let bins = match &options.bins {
        Some(bins) => bins.clone(),
        None => build::programs(&release, &options.profile)?,
    };
    let stage = release.empty("stage")?;
    tree::fill(&release, &bins, &stage)?;
    let made = release.empty("made")?;
    let bill = bill_of_materials(&release, &made)?;
    let texts = stage.join("share/doc/agentd/THIRD-PARTY");
    fs::write(&texts, licences::texts(&bill)?)?;
    compress(&texts)?;
    tarball(&release, &stage, &made)?;
    source(&release, &made)?;
    if cfg!(target_os = "linux") {
        debian_package(&release, options.packing, &made)?;
    }
    if let Some(url) = &options.url {
        formula(&release, url, &made)?;
    }
    // Who fetches it finds it by itself, and its sum with the others.
    fs::copy(stage.join("install.sh"), made.join("install.sh"))?;
    publish(&made, &options.to)
}

/// The programs and what belongs to them, as it is laid out below a prefix.
fn tarball(release: &Release, stage: &Path, made: &Path) -> anyhow::Result<()> {
    let top = release.name();
    let tar = made.join(format!("{top}.tar"));
    let mut command = command("tar", &["--sort=name", "--format=ustar", "--numeric-owner"]);
    command
        .args(["--owner=0", "--group=0", "--mode=u=rwX,go=rX"])
        .arg(format!("--mtime=@{}", release.epoch))
        .arg(format!("--transform=s,^\\.,{top},"))
        .arg("--directory")
        .arg(stage)
        .arg("--file")
        .arg(&tar)
        .args(["--create", "."]);
    done(&mut command).context("needs GNU tar")?;
    compress(&tar)
}

fn source(release: &Release, made: &Path) -> anyhow::Result<()> {
    let name = format!("agentd-{}", release.version);
    let tar = made.join(format!("{name}.tar"));
    archive(&tar, &format!("{name}/"))?;
    compress(&tar)
}

/// The commit's files below a prefix, whatever this user's git is configured to do to them.
fn archive(tar: &Path, prefix: &str) -> anyhow::Result<()> {
    let mut command = command(
        "git",
        &["-c", "tar.umask=0022", "-c", "core.autocrlf=false"],
    );
    command
        .args([
            "-c",
            "core.attributesFile=/dev/null",
            "archive",
            "--format=tar",
        ])
        .arg(format!("--prefix={prefix}"))
        .arg("--output")
        .arg(tar);
    done(command.arg("HEAD"))
}

/// Without a name and a time.
fn compress(file: &Path) -> anyhow::Result<()> {
    let mut command = command("gzip", &["-9", "--no-name", "--force"]);
    done(command.arg(file).env_remove("GZIP"))
}

fn debian_package(release: &Release, packing: Packing, made: &Path) -> anyhow::Result<()> {
    let mut command = cargo();
    command
        .args([
            "deb",
            "--quiet",
            "--no-build",
            "--no-strip",
            "--locked",
            "--compress-system",
            "--output",
        ])
        .arg(made)
        // Each number of threads makes other bytes, and so may what a user has set.
        .env("XZ_DEFAULTS", "-T1")
        .env_remove("XZ_OPT")
        .env_remove("GZIP")
        .env("SOURCE_DATE_EPOCH", &release.epoch);
    if packing == Packing::Fast {
        command.arg("--fast");
    }
    done(&mut command).context("needs `cargo install --locked cargo-deb`")
}

/// Every crate that is in the programs, with its version and licence.
fn bill_of_materials(release: &Release, made: &Path) -> anyhow::Result<PathBuf> {
    // It writes a file beside each manifest, so it gets a copy.
    let copy = release.empty("sources")?;
    let tar = release.place.join("sources.tar");
    archive(&tar, "")?;
    done(
        command("tar", &["--extract", "--file"])
            .arg(&tar)
            .arg("--directory")
            .arg(&copy),
    )?;
    let mut command = cargo();
    command
        .args([
            "cyclonedx",
            "--quiet",
            "--format=json",
            "--spec-version=1.5",
            "--no-build-deps",
        ])
        .args(["--target", &release.target, "--manifest-path"])
        .arg(copy.join("Cargo.toml"))
        .env("SOURCE_DATE_EPOCH", &release.epoch);
    done(&mut command).context("needs `cargo install --locked cargo-cyclonedx`")?;
    let bill = fs::read_to_string(copy.join("agentd.cdx.json"))?;
    // It names our crates by where they are.
    let here = format!("file://{}", copy.display());
    let bill = bill.replace(&here, "file:///agentd");
    let file = made.join(format!("{}.cdx.json", release.name()));
    fs::write(&file, bill)?;
    fs::remove_dir_all(copy)?;
    fs::remove_file(tar)?;
    Ok(file)
}

/// The formula with this release's address and sum.
fn formula(release: &Release, url: &str, made: &Path) -> anyhow::Result<()> {
    let file = format!("agentd-{}.tar.gz", release.version);
    let sum = sum(&made.join(&file))?;
    let formula = fs::read_to_string(root().join("packaging/homebrew/agentd.rb"))?;
    let lines = formula.lines().map(|line| {
        if line.starts_with("  url ") {
            format!("  url \"{url}/{file}\"")
        } else if line.starts_with("  sha256 ") {
            format!("  sha256 \"{sum}\"")
        } else {
            line.to_owned()
        }
    });
    let lines: Vec<String> = lines.collect();
    Ok(fs::write(made.join("agentd.rb"), lines.join("\n") + "\n")?)
}

/// Puts the files where they were asked for, in the place of those of an earlier release, and their
/// sums last.
fn publish(made: &Path, to: &Path) -> anyhow::Result<()> {
    let mut names: Vec<_> = fs::read_dir(made)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<_>>()?;
    names.sort();
    let mut sums = String::new();
    for name in &names {
        let sum = sum(&made.join(name))?;
        sums.push_str(&format!("{sum}  {}\n", name.to_string_lossy()));
    }
    names.push("SHA256SUMS".into());
    fs::write(made.join("SHA256SUMS"), &sums)?;
    fs::create_dir_all(to)?;
    let earlier = fs::read_to_string(to.join("SHA256SUMS")).unwrap_or_default();
    let earlier = earlier.lines().filter_map(|line| line.split_once("  "));
    for (_, name) in earlier.filter(|(_, name)| !name.contains('/')) {
        match fs::remove_file(to.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("can't remove `{name}`"));
            }
            _ => {}
        }
    }
    for name in names {
        let from = made.join(&name);
        // Another file system, perhaps.
        fs::copy(&from, to.join(&name))
            .with_context(|| format!("can't write to `{}`", to.display()))?;
    }
    print!("{sums}");
    Ok(())
}

fn sum(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| format!("can't read `{}`", file.display()))?;
    let digest = Sha256::digest(bytes);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A program with its first words, in the workspace.
fn command(program: impl AsRef<OsStr>, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).current_dir(root()).stdin(Stdio::null());
    command
}

/// What a command prints; it has to succeed.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("can't run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    said(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dist_names_what_binstall_looks_for() {
        let release = Release {
            version: "1.2.3".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            epoch: String::new(),
            place: PathBuf::new(),
        };
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let (_, table) = manifest
            .split_once("[package.metadata.binstall]\n")
            .unwrap();
        let value = |key: &str| {
            let line = table
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap();
            let filled = line.trim_matches([' ', '=', '"']);
            let filled = filled.replace("{ version }", &release.version);
            filled.replace("{ target }", &release.target)
        };
        let name = release.name();
        assert!(value("pkg-url").ends_with(&format!("/{name}.tar.gz")));
        assert_eq!(value("bin-dir"), format!("{name}/bin/{{ bin }}"));
        assert_eq!(value("pkg-fmt"), "tgz");
    }
}
