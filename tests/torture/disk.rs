//! The disk under a daemon, of which a power cut leaves what was synced.
//!
//! Owns the library of `power_cut.c` and the mirror it writes. Must not know when the power fails.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Variables;

/// The source of the library, which is preloaded into the daemon.
pub(crate) const SOURCE: &str = include_str!("power_cut.c");

/// Builds a library to be preloaded, in a directory.
pub(crate) fn build_library(dir: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("power cuts are made with LD_PRELOAD, on Linux only".to_owned());
    }
    let source = dir.join(format!("{name}.c"));
    let library = dir.join(format!("{name}.so"));
    fs::write(&source, text).map_err(|error| error.to_string())?;
    let mut command = Command::new("cc");
    command.args([
        "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
    ]);
    command
        .arg(&library)
        .arg(&source)
        .args(["-ldl", "-lpthread"]);
    let built = command
        .output()
        .map_err(|error| format!("no C compiler `cc`: {error}"))?;
    if built.status.success() {
        Ok(library)
    } else {
        Err(String::from_utf8_lossy(&built.stderr).into_owned())
    }
}

/// One life of the disk, up to the next power cut.
#[derive(Debug)]
pub(crate) struct Disk {
    files: PathBuf,
    mirror: PathBuf,
    library: PathBuf,
    seed: u64,
    early: u64,
}

impl Disk {
    /// Everything in `files` is on the disk; from now on only what is synced is, and `early` of
    /// 1000 sectors that get there by themselves.
    pub(crate) fn under(
        files: &Path,
        mirror: PathBuf,
        library: &Path,
        seed: u64,
        early: u64,
    ) -> io::Result<Self> {
        if mirror.exists() {
            fs::remove_dir_all(&mirror)?;
        }
        fs::create_dir(&mirror)?;
        copy(files, &mirror.join("tree"))?;
        Ok(Self {
            files: files.to_owned(),
            mirror,
            library: library.to_owned(),
            seed,
            early,
        })
    }

    pub(crate) fn variables(&self) -> Variables {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("POWER_FILES", self.files.clone().into()),
            ("POWER_DISK", self.mirror.clone().into()),
            ("POWER_FULL", self.full().into()),
            ("POWER_SEED", OsString::from(self.seed.to_string())),
            ("POWER_EARLY", OsString::from(self.early.to_string())),
        ]
    }

    fn full(&self) -> PathBuf {
        self.mirror.join("full")
    }

    /// From now on no file grows.
    pub(crate) fn fill(&self) -> Room {
        fs::write(self.full(), "").expect("the mirror is not full");
        Room(self.full())
    }

    /// The power fails: what is on the disk is what there is.
    pub(crate) fn cut(self, files: &Path) -> io::Result<()> {
        fs::remove_dir_all(files)?;
        copy(&self.mirror.join("tree"), files)?;
        fs::remove_dir_all(&self.mirror)
    }
}

/// Of a full disk.
pub(crate) struct Room(PathBuf);

impl Room {
    /// There is room again.
    pub(crate) fn make(self) {
        fs::remove_file(self.0).expect("the disk was full");
    }
}

/// The files of a directory and of those in it. What was a link to the mirror's own is a file.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let copied = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&entry.path(), &copied)?;
        } else if kind.is_file() && !entry.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(entry.path(), &copied)?;
        }
    }
    Ok(())
}
