//! What is done to install, start or remove the service: a list that can be shown, then carried out.
//!
//! Owns how each step is done and told. Must not know why.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use agentd_base::replace::{PRIVATE, replace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::output;
use super::seal::{is_whole, sealed};
use agentd_client::places;

/// Every file of ours says so; one that doesn't is somebody else's.
const OURS: &str = "Written by `agentctl service install`";
/// More by hand than anybody does.
const MAX_KEPT: u32 = 100;
/// A service manager answers a question in some 20 ms.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// As long as a daemon may take to leave.
const FAILS_WITHIN: Duration = Duration::from_secs(50);
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A file as it is to be.
    Write { path: PathBuf, text: String },
    /// A directory that only its owner may read.
    PrivateDir(PathBuf),
    /// A file of ours away, if it is there.
    Remove(PathBuf),
    /// What was kept beside it away, as far as it is ours.
    RemoveKept(PathBuf),
    /// A socket away that nobody listens on.
    RemoveSocket(PathBuf),
    /// A link away, if it leads to the target.
    RemoveLink { path: PathBuf, target: PathBuf },
    /// A directory away, if it is empty.
    RemoveDir(PathBuf),
    /// A command that has to succeed.
    Run(Vec<String>),
    /// A command that fails when there is nothing to do.
    Try(Vec<String>),
    /// A question that is asked until its answer is no.
    UntilFails(Vec<String>),
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
    /// The command takes too long for a question.
    #[error("`{command}` did not answer within {} s", ANSWERS_WITHIN.as_secs())]
    Late { command: String },
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
        // Before the first step: half an installation, stopped by a file of somebody else, would be
        // neither the old one nor the new one.
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
            let kept = match to_keep(path).map_err(Failed::of(path))? {
                Some(kept) => format!("\nwould keep    {}, as it was", kept.display()),
                None => String::new(),
            };
            let indented: String = text.lines().map(|line| format!("    {line}\n")).collect();
            let text = format!("would write   {}\n{indented}", path.display());
            format!("{}{kept}", text.trim_end())
        }
        Step::PrivateDir(path) if path.is_dir() => return Ok(()),
        Step::PrivateDir(path) => format!("would make    {}", path.display()),
        Step::RemoveKept(path) => {
            for kept in kept_of_ours(path) {
                output::out_line(&format!("would remove  {}", kept.display()))?;
            }
            return Ok(());
        }
        Step::RemoveLink { path, target } if !leads(path, target) => return Ok(()),
        Step::Remove(path)
        | Step::RemoveSocket(path)
        | Step::RemoveLink { path, .. }
        | Step::RemoveDir(path) => {
            if fs::symlink_metadata(path).is_err() {
                return Ok(());
            }
            format!("would remove  {}", path.display())
        }
        Step::Run(words) | Step::Try(words) => format!("would run     {}", words.join(" ")),
        Step::UntilFails(_) => return Ok(()),
    };
    Ok(output::out_line(&text)?)
}

fn perform_one(step: &Step) -> Result<(), Failed> {
    let told = match step {
        Step::Write { path, text } if is_there(path, text)? => Some(("kept", path)),
        Step::Write { path, text } => {
            let kept = to_keep(path).map_err(Failed::of(path))?;
            if let Some(kept) = &kept {
                let before = fs::read(path).map_err(Failed::of(path))?;
                // The copy first: killed in between, what was changed by hand is there twice and
                // never gone.
                write(kept, &before).map_err(Failed::of(kept))?;
            }
            write(path, sealed(path, text).as_bytes()).map_err(Failed::of(path))?;
            output::out_line(&format!("wrote    {}", path.display()))?;
            if let Some(kept) = kept {
                output::note(&format!(
                    "as it was before it is kept as `{}`; changes of yours belong into a drop-in",
                    kept.display()
                ));
            }
            None
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
        Step::RemoveKept(path) => {
            for kept in kept_of_ours(path) {
                fs::remove_file(&kept).map_err(Failed::of(&kept))?;
                output::out_line(&format!("removed  {}", kept.display()))?;
            }
            None
        }
        Step::RemoveSocket(path) => {
            let removed = is_dead_socket(path) && fs::remove_file(path).is_ok();
            removed.then_some(("removed", path))
        }
        Step::RemoveLink { path, target } => {
            // Gone already, or another user's.
            (leads(path, target) && fs::remove_file(path).is_ok()).then_some(("removed", path))
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
        Step::UntilFails(words) => return until_fails(words, FAILS_WITHIN),
    };
    let Some((what, path)) = told else {
        return Ok(());
    };
    Ok(output::out_line(&format!("{what:<7}  {}", path.display()))?)
}

fn until_fails(words: &[String], within: Duration) -> Result<(), Failed> {
    let begun = Instant::now();
    while begun.elapsed() < within {
        match ask(words) {
            Ok(_) => std::thread::park_timeout(ASKED_EVERY),
            Err(Failed::Command { .. }) => return Ok(()),
            Err(other) => return Err(other),
        }
    }
    Err(Failed::Command {
        command: words.join(" "),
        said: format!("it is there still after {} s", within.as_secs()),
    })
}

fn tell_run(words: &[String]) -> Result<(), Failed> {
    Ok(output::out_line(&format!("ran      {}", words.join(" ")))?)
}

/// Runs a command to its end, however long it takes, and gives what it printed.
pub(super) fn run(words: &[String]) -> Result<String, Failed> {
    run_within(words, None)
}

/// Asks the service manager, which may hang.
pub(super) fn ask(words: &[String]) -> Result<String, Failed> {
    run_within(words, Some(ANSWERS_WITHIN))
}

fn run_within(words: &[String], within: Option<Duration>) -> Result<String, Failed> {
    let Some((program, rest)) = words.split_first() else {
        return Ok(String::new());
    };
    let mut command = Command::new(program);
    command.args(rest).envs(places::of_manager());
    let ended = match within {
        None => command.output().map(Some),
        Some(within) => output_within(&mut command, within),
    };
    let ended = ended.map_err(|source| Failed::NoProgram {
        program: program.clone(),
        source,
    })?;
    let Some(ended) = ended else {
        return Err(Failed::Late {
            command: words.join(" "),
        });
    };
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

/// What it printed; none when it took longer, and was ended.
fn output_within(command: &mut Command, within: Duration) -> io::Result<Option<Output>> {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.stdin(Stdio::null()).spawn()?;
    let pid = child.id();
    let (sender, ended) = mpsc::sync_channel(1);
    // Read while it is waited for: one that prints much would fill its pipe, and never end.
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(within) {
        return output.map(Some);
    }
    if let Ok(pid) = i32::try_from(pid) {
        // Gone in this moment, or it is: nobody waits for it any more.
        let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    Ok(None)
}

fn leads(path: &Path, target: &Path) -> bool {
    fs::read_link(path).is_ok_and(|found| found == target)
}

fn is_dead_socket(path: &Path) -> bool {
    let is_socket = |found: fs::Metadata| found.file_type().is_socket();
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    // Only a refusal says that nobody listens: a full queue is somebody's.
    fs::symlink_metadata(path).is_ok_and(is_socket) && UnixStream::connect(path).is_err_and(refused)
}

/// Is the file there, with this text?
pub(super) fn is_there(path: &Path, text: &str) -> Result<bool, Failed> {
    Ok(ours(path)?.is_some_and(|found| found == sealed(path, text)))
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
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failed::of(path)(error)),
    }
}

/// How files are called that are kept beside this one.
fn kept_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    PathBuf::from(name)
}

/// Where a file goes that is written anew and was changed by hand: a name that is free. None when
/// there is nothing to keep, or it is kept already.
fn to_keep(path: &Path) -> io::Result<Option<PathBuf>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if is_whole(path, &String::from_utf8_lossy(&text)) {
        return Ok(None);
    }
    for number in 1..=MAX_KEPT {
        let mut name = kept_name(path).into_os_string();
        if number > 1 {
            name.push(format!(".{number}"));
        }
        let name = PathBuf::from(name);
        match fs::read(&name) {
            Ok(kept) if kept == text => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(name)),
            _ => {}
        }
    }
    let error = format!("there are {MAX_KEPT} older ones beside it: remove some");
    Err(io::Error::new(ErrorKind::AlreadyExists, error))
}

fn kept_of_ours(path: &Path) -> Vec<PathBuf> {
    let prefix = kept_name(path).into_os_string();
    let prefix = prefix.as_encoded_bytes();
    let dir = path.parent().map(fs::read_dir);
    let entries = dir.into_iter().flatten().flatten().flatten();
    let beside = entries.map(|entry| entry.path());
    let mut kept: Vec<PathBuf> = beside
        .filter(|path| path.as_os_str().as_encoded_bytes().starts_with(prefix))
        .filter(|path| matches!(ours(path), Ok(Some(_))))
        .collect();
    kept.sort();
    kept
}

/// The whole text or nothing, whenever this process is killed.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    replace(path, text, PRIVATE)
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
    fn step_spares_files_of_somebody_else() {
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
    fn step_begins_nothing_before_a_file_of_others() {
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
    fn step_keeps_changes_by_hand_beside_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentd.service");
        let changed = format!("# {OURS}\n[Service]\nNice=5\n");
        fs::write(&path, &changed).unwrap();
        let text = format!("# {OURS}\n");
        let write = Step::Write {
            path: path.clone(),
            text: text.clone(),
        };
        // Somebody else's file of that name is not written over.
        let old = kept_name(&path);
        fs::write(&old, "mine").unwrap();
        perform(&[write.clone(), write], Mode::Do).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), sealed(&path, &text));
        assert_eq!(fs::read_to_string(&old).unwrap(), "mine");
        let second = dir.path().join("agentd.service.old.2");
        assert_eq!(fs::read_to_string(&second).unwrap(), changed);
        // What comes later doesn't replace it, and what nobody changed isn't kept.
        let newer = Step::Write {
            path: path.clone(),
            text: format!("# {OURS}\nnewer\n"),
        };
        let third = dir.path().join("agentd.service.old.3");
        perform(std::slice::from_ref(&newer), Mode::Do).unwrap();
        assert!(!third.exists());
        fs::write(&path, format!("{changed}again\n")).unwrap();
        perform(&[newer], Mode::Do).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), changed);
        assert!(third.exists());
        perform(&[Step::RemoveKept(path.clone())], Mode::Do).unwrap();
        assert!(path.exists() && old.exists() && !second.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn step_removes_sockets_that_nobody_listens_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let remove = || perform(&[Step::RemoveSocket(path.clone())], Mode::Do).unwrap();
        fs::write(&path, "a file").unwrap();
        remove();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        remove();
        assert!(path.exists());
        drop(listener);
        remove();
        assert!(!path.exists());
    }

    #[test]
    fn step_gives_up_a_question_that_nobody_answers() {
        let mut command = Command::new("sleep");
        command.arg("4322");
        let ended = output_within(&mut command, Duration::from_millis(50)).unwrap();
        assert!(ended.is_none());
        assert_eq!(ask(&words("echo a")).unwrap(), "a\n");
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
        assert_eq!(fs::read_to_string(&path).unwrap(), sealed(&path, &text));
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
    fn step_asks_until_the_answer_is_no() {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().join("count");
        let script = format!(
            "echo >> {0}; [ $(wc -l < {0}) -lt 3 ]",
            count.to_str().unwrap()
        );
        let question = ["sh".to_owned(), "-c".to_owned(), script];
        until_fails(&question, FAILS_WITHIN).unwrap();
        assert_eq!(fs::read_to_string(&count).unwrap(), "\n\n\n");
        let failed = until_fails(&words("true"), Duration::ZERO).unwrap_err();
        assert!(failed.to_string().contains("there still"), "{failed}");
    }

    #[test]
    fn step_says_why_its_command_failed() {
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
