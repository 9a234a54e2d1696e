//! What is done to install, start or remove the service: a list that can be shown, then carried out.
//!
//! Owns how each step is done and told. Must not know why.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::output;

/// Every file of ours says so; one that doesn't is somebody else's.
const OURS: &str = "Written by `agentctl service install`";

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A file as it is to be.
    Write { path: PathBuf, text: String },
    /// A directory that only its owner may read.
    PrivateDir(PathBuf),
    /// A file of ours away, if it is there.
    Remove(PathBuf),
    /// A link away, if it leads to the target.
    RemoveLink { path: PathBuf, target: PathBuf },
    /// A directory away, if it is empty.
    RemoveDir(PathBuf),
    /// A command that has to succeed.
    Run(Vec<String>),
    /// A command that fails when there is nothing to do.
    Try(Vec<String>),
}

/// Are the steps done, or only shown?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Do,
    Show,
}

/// A step that could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// Somebody else's file is in the way.
    #[error("`{}` is there and was not written by agentctl", .0.display())]
    Foreign(PathBuf),
    /// The file system said no.
    #[error("`{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The command can't be started.
    #[error("can't run `{program}`: {source}")]
    NoProgram { program: String, source: io::Error },
    /// The command ended with an error.
    #[error("`{command}` failed: {said}")]
    Command { command: String, said: String },
    /// Standard output can't be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl Failed {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Does or shows the steps, in order, and tells each. None of them when a file that one writes or
/// removes is somebody else's.
pub(super) fn perform(steps: &[Step], mode: Mode) -> Result<(), Failed> {
    for step in steps {
        if let Step::Write { path, .. } | Step::Remove(path) = step {
            ours(path)?;
        }
    }
    for step in steps {
        match mode {
            Mode::Show => show(step)?,
            Mode::Do => perform_one(step)?,
        }
    }
    Ok(())
}

fn show(step: &Step) -> Result<(), Failed> {
    let text = match step {
        Step::Write { path, text } if is_there(path, text)? => {
            format!("would keep    {}", path.display())
        }
        Step::Write { path, text } => {
            let kept = match path.exists() {
                true => format!("\nwould keep    {}, as it was", before(path).display()),
                false => String::new(),
            };
            let indented: String = text.lines().map(|line| format!("    {line}\n")).collect();
            let text = format!("would write   {}\n{indented}", path.display());
            format!("{}{kept}", text.trim_end())
        }
        Step::PrivateDir(path) if path.is_dir() => return Ok(()),
        Step::PrivateDir(path) => format!("would make    {}", path.display()),
        Step::Remove(path) | Step::RemoveLink { path, .. } | Step::RemoveDir(path) => {
            if fs::symlink_metadata(path).is_err() {
                return Ok(());
            }
            format!("would remove  {}", path.display())
        }
        Step::Run(words) | Step::Try(words) => format!("would run     {}", words.join(" ")),
    };
    Ok(output::out_line(&text)?)
}

fn perform_one(step: &Step) -> Result<(), Failed> {
    let told = match step {
        Step::Write { path, text } => {
            if is_there(path, text)? {
                Some(("kept", path))
            } else {
                keep_before(path).map_err(Failed::of(path))?;
                write(path, text).map_err(Failed::of(path))?;
                Some(("wrote", path))
            }
        }
        Step::PrivateDir(path) => make_private(path)
            .map_err(Failed::of(path))?
            .then_some(("made", path)),
        Step::Remove(path) => match ours(path)? {
            None => None,
            Some(_) => {
                fs::remove_file(path).map_err(Failed::of(path))?;
                Some(("removed", path))
            }
        },
        Step::RemoveLink { path, target } => {
            let leads = fs::read_link(path).is_ok_and(|found| found == *target);
            // Gone already, or another user's.
            (leads && fs::remove_file(path).is_ok()).then_some(("removed", path))
        }
        // Somebody keeps something there.
        Step::RemoveDir(path) => fs::remove_dir(path).is_ok().then_some(("removed", path)),
        Step::Run(words) => {
            run(words)?;
            return tell_run(words);
        }
        Step::Try(words) => {
            return match run(words) {
                Ok(_) => tell_run(words),
                // There was nothing to do.
                Err(Failed::Command { .. }) => Ok(()),
                Err(other) => Err(other),
            };
        }
    };
    let Some((what, path)) = told else {
        return Ok(());
    };
    output::out_line(&format!("{what:<7}  {}", path.display()))?;
    if what == "wrote" && before(path).exists() {
        output::note(&format!(
            "as it was before it is kept as `{}`; changes of yours belong into a drop-in",
            before(path).display()
        ));
    }
    Ok(())
}

fn tell_run(words: &[String]) -> Result<(), Failed> {
    Ok(output::out_line(&format!("ran      {}", words.join(" ")))?)
}

/// Runs a command to its end and gives what it printed.
pub(super) fn run(words: &[String]) -> Result<String, Failed> {
    let Some((program, rest)) = words.split_first() else {
        return Ok(String::new());
    };
    let mut command = Command::new(program);
    command.args(rest);
    // A shell of `su` or cron has none, and the user's manager may be there all the same.
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        let uid = nix::unistd::Uid::effective().as_raw();
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"));
    }
    let ended = command.output().map_err(|source| Failed::NoProgram {
        program: program.clone(),
        source,
    })?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = output::safe(said.trim()).replace('\n', "; ");
    Err(Failed::Command {
        command: words.join(" "),
        said: match said.is_empty() {
            true => ended.status.to_string(),
            false => said,
        },
    })
}

/// Is the file there, with this text?
pub(super) fn is_there(path: &Path, text: &str) -> Result<bool, Failed> {
    Ok(ours(path)?.is_some_and(|found| found == text))
}

/// The text of a file of ours.
pub(super) fn ours(path: &Path) -> Result<Option<String>, Failed> {
    match fs::read(path) {
        Ok(found) => {
            let found = String::from_utf8_lossy(&found).into_owned();
            if found.contains(OURS) {
                Ok(Some(found))
            } else {
                Err(Failed::Foreign(path.to_owned()))
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failed::of(path)(error)),
    }
}

/// Where a file is kept that is written anew: somebody may have changed it by hand.
pub(super) fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    PathBuf::from(name)
}

fn keep_before(path: &Path) -> io::Result<()> {
    match fs::copy(path, before(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The whole text or nothing, whenever this process is killed.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.new", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let written = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // On a full disk each try would leave one behind.
        let _stays = fs::remove_file(&unfinished);
    }
    written
}

/// Was it made?
fn make_private(path: &Path) -> io::Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_file_of_somebody_else_is_neither_written_over_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentd.service");
        fs::write(&path, "[Service]\n").unwrap();
        let text = format!("# {OURS}\n");
        let write = Step::Write {
            path: path.clone(),
            text,
        };
        for step in [write, Step::Remove(path.clone())] {
            let failed = perform(&[step], Mode::Do).unwrap_err();
            assert!(matches!(failed, Failed::Foreign(_)), "{failed}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "[Service]\n");
    }

    #[test]
    fn nothing_is_begun_when_a_later_step_meets_a_file_of_somebody_else() {
        let dir = tempfile::tempdir().unwrap();
        let [ours, foreign] = ["agentd.socket", "agentd.service"].map(|name| dir.path().join(name));
        fs::write(&ours, format!("# {OURS}\n")).unwrap();
        fs::write(&foreign, "[Service]\n").unwrap();
        let steps = [Step::Remove(ours.clone()), Step::Remove(foreign)];
        for mode in [Mode::Show, Mode::Do] {
            let failed = perform(&steps, mode).unwrap_err();
            assert!(matches!(failed, Failed::Foreign(_)), "{failed}");
            assert!(ours.exists());
        }
    }

    #[test]
    fn what_was_changed_by_hand_is_kept_beside_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentd.service");
        let changed = format!("# {OURS}\n[Service]\nNice=5\n");
        fs::write(&path, &changed).unwrap();
        let text = format!("# {OURS}\n");
        let write = Step::Write {
            path: path.clone(),
            text: text.clone(),
        };
        perform(&[write.clone(), write], Mode::Do).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_to_string(before(&path)).unwrap(), changed);
    }

    #[test]
    fn files_are_private_written_whole_and_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/agentd.service");
        let text = format!("# {OURS}\n");
        let write = Step::Write {
            path: path.clone(),
            text: text.clone(),
        };
        perform(std::slice::from_ref(&write), Mode::Show).unwrap();
        assert!(!path.exists(), "it was only shown");
        perform(&[write.clone(), write], Mode::Do).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "nothing unfinished stays");
        let remove = Step::Remove(path.clone());
        perform(&[remove.clone(), remove], Mode::Do).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn only_a_link_to_the_target_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("alias"), dir.path().join("socket"));
        std::os::unix::fs::symlink("/elsewhere", &path).unwrap();
        let step = |target: &Path| Step::RemoveLink {
            path: path.clone(),
            target: target.to_owned(),
        };
        perform(&[step(&target)], Mode::Do).unwrap();
        assert!(fs::symlink_metadata(&path).is_ok());
        perform(&[step(Path::new("/elsewhere"))], Mode::Do).unwrap();
        assert!(fs::symlink_metadata(&path).is_err());
    }

    #[test]
    fn a_command_says_why_it_failed_and_one_that_may_fail_does_not() {
        let failing = vec![
            "sh".to_owned(),
            "-c".to_owned(),
            "echo no >&2; exit 3".to_owned(),
        ];
        let failed = run(&failing).unwrap_err().to_string();
        assert!(failed.ends_with("failed: no"), "{failed}");
        perform(&[Step::Try(failing)], Mode::Do).unwrap();
        let missing = words("/nowhere/systemctl --user");
        assert!(matches!(run(&missing), Err(Failed::NoProgram { .. })));
        assert_eq!(run(&words("echo a b")).unwrap(), "a b\n");
    }
}
