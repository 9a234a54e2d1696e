//! Another machine's daemon, through the pipes of an `ssh` that runs `agentctl stdio` there.
//!
//! Owns that child, what it says on standard error, and what its end means. Whether a daemon or a
//! one-shot serves is decided there, by the rule of `fallback`. Must not know how `ssh` is called
//! (`ssh`), nor what is asked.

use std::fmt;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agentd_protocol::attachment::type_of;
use agentd_protocol::line::HelloAnswer;
use agentd_protocol::request::{Hello, Send};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::connection::{Connection, Greeting, HelloError};
use crate::fallback::Fallback;
use crate::ssh::{RELAY, RELAY_DAEMON, Target, check_ssh_key};

/// From the start of `ssh` to the answer to `hello`: its own time limits, and a one-shot that
/// migrates a store.
const HELLO_WITHIN: Duration = Duration::from_secs(45);
/// An `ssh` whose output has ended leaves at once; what it says last is there by then.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);
/// What it said is in the pipe when it has left.
const HEARD_WITHIN: Duration = Duration::from_millis(100);
/// What is kept of standard error: the end of it says why.
const KEPT: usize = 4096;
/// How many of its last lines are an error's text: of a changed host key the last one alone says
/// too little.
const LINES: usize = 2;
/// The most that an error says of it, in characters.
const CLIPPED: usize = 240;
/// A larger file is refused there; so much isn't even read.
const MAX_ATTACHED: u64 = 16 * 1024 * 1024;

/// How far a call got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Not to the other machine.
    Ssh,
    /// There, `agentctl` can't be run.
    Program,
    /// `agentctl` runs there and nobody serves.
    Daemon,
}

/// Why another machine's daemon can't be talked to. Nothing has happened there.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RemoteError {
    /// How far it got.
    pub stage: Stage,
    /// What was found.
    pub error: String,
    /// What to do.
    pub hint: Option<String>,
    /// With what `agentctl` ended there.
    pub exit: Option<i32>,
}

/// A running `ssh`. Left alone it ends with its conversation.
pub struct Remote {
    target: Target,
    child: Child,
    said: Arc<Mutex<StderrText>>,
    state: SshState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SshState {
    /// It hasn't served yet: nobody would miss it.
    Opening,
    /// It ends by itself when its input has ended.
    Serving,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// Calls the other machine and says `hello`. With `Fallback::Allowed` a one-shot may serve
    /// there.
    ///
    /// # Errors
    /// Says how far it got. Nothing was asked.
    pub async fn open(
        target: &Target,
        hello: &Hello,
        fallback: Fallback,
    ) -> Result<(Self, Connection, Box<HelloAnswer>), RemoteError> {
        let (remote, greeting) = Self::call(target, hello, fallback).await?;
        remote.answered(greeting).await
    }

    /// Calls and says `hello`, whose answer takes as long as the way there.
    pub(crate) async fn call(
        target: &Target,
        hello: &Hello,
        fallback: Fallback,
    ) -> Result<(Self, Greeting), RemoteError> {
        let command = target.run(match fallback {
            Fallback::Allowed => RELAY,
            Fallback::Forbidden => RELAY_DAEMON,
        });
        let (mut remote, output, input) = Self::start(target, command)?;
        match Greeting::say(output, input, hello).await {
            Ok(greeting) => Ok((remote, greeting)),
            Err(why) => Err(remote.failed(why).await),
        }
    }

    /// Waits for the answer to `hello`.
    pub(crate) async fn answered(
        mut self,
        mut greeting: Greeting,
    ) -> Result<(Self, Connection, Box<HelloAnswer>), RemoteError> {
        match greeting.answer(HELLO_WITHIN).await {
            Ok(answer) => {
                let mut connection = greeting.into_connection();
                connection.tell_arrivals();
                self.state = SshState::Serving;
                Ok((self, connection, answer))
            }
            Err(why) => Err(self.failed(why).await),
        }
    }

    /// Starts `ssh` with pipes: its output and its input.
    ///
    /// # Errors
    /// There is no `ssh`, or the key isn't there that it is to use.
    pub fn start(
        target: &Target,
        mut command: Command,
    ) -> Result<(Self, Output, ChildStdin), RemoteError> {
        let failed = |why: &dyn fmt::Display| RemoteError {
            stage: Stage::Ssh,
            error: format!("cannot start `ssh`: {why}"),
            hint: Some("install an OpenSSH client".to_owned()),
            exit: None,
        };
        check_ssh_key().map_err(|error| RemoteError {
            stage: Stage::Ssh,
            error,
            hint: Some("name the private key that ssh is to use, or unset it".to_owned()),
            exit: Some(78),
        })?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The terminal's Ctrl-C is ours: it reaches the turn as an `abort`.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed(&"it has no pipes"));
        };
        let said = StderrText {
            stderr: Some(stderr),
            text: Vec::new(),
        };
        let said = Arc::new(Mutex::new(said));
        let output = Output {
            stdout,
            said: Arc::clone(&said),
        };
        let remote = Self {
            target: target.clone(),
            child,
            said,
            state: SshState::Opening,
        };
        Ok((remote, output, input))
    }

    /// Whom it calls.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Ends it at once, whatever it waits for. What was accepted goes on there.
    pub fn abandon(&mut self) {
        // It may have ended.
        let _gone = self.child.start_kill();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the system can't say.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// What it said last, in one line. Waits a little for its end, which is when it says it.
    pub async fn last_words(&mut self) -> String {
        // One that doesn't leave has said what it says.
        let _late = tokio::time::timeout(LEAVES_WITHIN, self.child.wait()).await;
        let said = Arc::clone(&self.said);
        let heard = std::future::poll_fn(move |cx| {
            let mut said = locked(&said);
            said.listen(cx);
            match said.stderr {
                Some(_) => Poll::Pending,
                None => Poll::Ready(()),
            }
        });
        // The process of a shared connection may keep it open: what is there counts.
        let _open = tokio::time::timeout(HEARD_WITHIN, heard).await;
        let text = locked(&self.said).text.clone();
        last_lines(&String::from_utf8_lossy(&text))
    }

    /// Why nobody answered.
    async fn failed(&mut self, why: HelloError) -> RemoteError {
        let target = self.target.to_string();
        let error = |stage, error| RemoteError {
            stage,
            error,
            hint: None,
            exit: None,
        };
        match why {
            HelloError::Closed => self.why_ended().await,
            HelloError::Silent => {
                self.abandon();
                let seconds = HELLO_WITHIN.as_secs();
                let said = self.last_words().await;
                let said = after_colon(&said);
                let text = format!("`{target}` did not answer within {seconds} s{said}");
                error(Stage::Daemon, text)
            }
            HelloError::Draining => RemoteError {
                exit: Some(3),
                ..error(Stage::Daemon, format!("the daemon on `{target}` is stopping"))
            },
            HelloError::TooMany(line) => RemoteError {
                hint: line.hint.as_deref().map(str::to_owned),
                exit: Some(3),
                ..error(Stage::Daemon, format!("`{target}`: {}", clipped(&line.error)))
            },
            HelloError::Refused(why) => RemoteError {
                hint: Some(
                    "if this is from a startup file of the shell there: it must not print anything \
                     when there is no terminal"
                        .to_owned(),
                ),
                ..error(Stage::Daemon, format!("`{target}`: {}", clipped(&why)))
            },
        }
    }

    /// What the end of its output means: `ssh` ends with 255 by itself, else with the code of what
    /// it ran.
    pub async fn why_ended(&mut self) -> RemoteError {
        let said = self.last_words().await;
        let code = match self.child.try_wait() {
            Ok(Some(status)) => status.code(),
            Ok(None) | Err(_) => None,
        };
        // It closed its output and stays: nothing more can come of it.
        self.abandon();
        ended(&self.target, code, &said)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.state == SshState::Opening {
            self.abandon();
        }
    }
}

/// What an `ssh` to `target` means that ended with `code` and said `said`.
fn ended(target: &Target, code: Option<i32>, said: &str) -> RemoteError {
    let tail = after_colon(said);
    let (stage, error, hint) = match code {
        Some(255) | None => {
            let hint = if said.contains("Host key verification failed") {
                Some(format!(
                    "nothing was sent; see for yourself with `ssh {target}`: a key that is not known, or that changed, is never accepted here"
                ))
            } else if said.contains("Permission denied") {
                Some(format!(
                    "let `ssh {target}` log in without asking for a password"
                ))
            } else {
                None
            };
            (
                Stage::Ssh,
                format!("`{target}` can't be reached by ssh{tail}"),
                hint,
            )
        }
        // A shell says so of what it may not run or can't find (POSIX, 2.8.2).
        Some(126 | 127) => {
            let hint = "install it there, on the `PATH` of shells that aren't logins, such as in /usr/local/bin";
            let error = format!("`{target}` can't run `agentctl`{tail}");
            (Stage::Program, error, Some(hint.to_owned()))
        }
        // An `agentctl` that doesn't know the word.
        Some(2) => {
            let hint = format!("`agentctl --version` here and on `{target}` may differ");
            (
                Stage::Program,
                format!("`agentctl` on `{target}`{tail}"),
                Some(hint),
            )
        }
        Some(code) if said.is_empty() => {
            let error = format!("`agentctl` on `{target}` ended with code {code}");
            (Stage::Daemon, error, None)
        }
        // It says itself what is wrong and what to do, to somebody there.
        Some(_) => {
            let there = format!("`ssh {target} agentctl ");
            let tail = tail.replace("`agentctl ", &there);
            (Stage::Daemon, format!("on `{target}`{tail}"), None)
        }
    };
    RemoteError {
        stage,
        error,
        hint,
        exit: code.filter(|_| stage == Stage::Daemon),
    }
}

fn after_colon(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(": {said}"),
    }
}

/// The last lines of what a program said, without the word that opens an error, clipped.
fn last_lines(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    clipped(&lines[lines.len().saturating_sub(LINES)..].join("; "))
}

/// At most 240 characters.
#[must_use]
pub fn clipped(text: &str) -> String {
    match text.char_indices().nth(CLIPPED) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// The send as it means the same on another machine: files are carried as what is in them, and the
/// current directory, which is of this machine, isn't offered.
///
/// # Errors
/// When a file can't be read.
pub(crate) fn carried(send: &Send) -> io::Result<Send> {
    let mut send = send.clone();
    // It is where this command stands, and a directory of that name there is another one.
    send.cwd_if_new = None;
    for attachment in &mut send.attachments {
        let Some(path) = attachment.path.take() else {
            continue;
        };
        let failed = |why: io::Error| io::Error::new(why.kind(), format!("`{path}`: {why}"));
        let mut content = Vec::new();
        // A pipe or a device might never end, and a file may grow while it is read.
        let is_file = std::fs::metadata(&path).map_err(failed)?.is_file();
        if is_file {
            let file = std::fs::File::open(&path).map_err(failed)?;
            let mut file = file.take(MAX_ATTACHED + 1);
            file.read_to_end(&mut content).map_err(failed)?;
        }
        if !is_file || content.len() as u64 > MAX_ATTACHED {
            let error = format!("`{path}`: expected a regular file of at most 5 MiB");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        if attachment.mime.is_none() {
            // Of what can't be attached it is said there that it can't.
            let mime = type_of(&content).unwrap_or("application/octet-stream");
            attachment.mime = Some(mime.to_owned());
        }
        attachment.data = Some(STANDARD.encode(content));
        if attachment.name.is_none() {
            attachment.name = path.rsplit('/').next().map(str::to_owned);
        }
    }
    Ok(send)
}

/// What came on standard error so far.
#[derive(Debug)]
struct StderrText {
    stderr: Option<ChildStderr>,
    text: Vec<u8>,
}

impl StderrText {
    /// Takes what is there.
    fn listen(&mut self, cx: &mut Context<'_>) {
        let mut bytes = [0; 1024];
        while let Some(stderr) = &mut self.stderr {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(stderr).poll_read(cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.text.extend_from_slice(buffer.filled());
                    let over = self.text.len().saturating_sub(KEPT);
                    self.text.drain(..over);
                }
                Poll::Ready(_) => self.stderr = None,
            }
        }
    }
}

fn locked(said: &Mutex<StderrText>) -> std::sync::MutexGuard<'_, StderrText> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Its standard output. Reading it empties standard error, too, which would fill up else.
#[derive(Debug)]
pub struct Output {
    stdout: ChildStdout,
    said: Arc<Mutex<StderrText>>,
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        locked(&self.said).listen(cx);
        ready!(Pin::new(&mut self.stdout).poll_read(cx, buffer))?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::attachment::Attachment;
    use tokio::io::AsyncReadExt as _;

    fn mac() -> Target {
        "mac".parse().unwrap()
    }

    #[test]
    fn remote_end_says_how_far_it_got() {
        let why = |code, said: &str| {
            let why = ended(&mac(), code, &last_lines(said));
            (why.stage, why.error, why.exit)
        };
        let refused = "ssh: connect to host mac port 22: Connection refused\r\n";
        assert_eq!(
            why(Some(255), refused),
            (
                Stage::Ssh,
                "`mac` can't be reached by ssh: ssh: connect to host mac port 22: Connection refused".to_owned(),
                None
            )
        );
        assert_eq!(
            why(Some(127), "bash: line 1: agentctl: command not found\n").0,
            Stage::Program
        );
        let down = "error: no daemon is running\nhint: `agentctl start` starts it\n";
        assert_eq!(
            why(Some(69), down),
            (
                Stage::Daemon,
                "on `mac`: no daemon is running; hint: `ssh mac agentctl start` starts it"
                    .to_owned(),
                Some(69)
            )
        );
        assert_eq!(why(None, "").0, Stage::Ssh);
    }

    #[test]
    fn remote_error_has_the_last_240_characters() {
        let said = format!("banner\n\n{}\nlast\n", "\u{e4}".repeat(1000));
        let shown = last_lines(&said);
        assert_eq!(shown.chars().count(), 241, "{shown}");
        assert!(shown.starts_with('\u{e4}') && shown.ends_with('…'));
        assert_eq!(last_lines("a\nb\nerror: c\n\n"), "b; c");
        assert_eq!(last_lines(""), "");
    }

    #[tokio::test]
    async fn remote_standard_error_is_emptied_meanwhile() {
        let mut command = Command::new("/bin/sh");
        let script = "i=0; while [ $i -lt 3000 ]; do echo 'a line that fills the pipe up to its end' >&2; i=$((i+1)); done; echo done; echo the end >&2; exit 7";
        command.args(["-c", script]);
        let (mut remote, mut output, input) = Remote::start(&mac(), command).unwrap();
        drop(input);
        let mut text = String::new();
        let read = output.read_to_string(&mut text);
        tokio::time::timeout(Duration::from_secs(20), read)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(text, "done\n");
        let why = remote.why_ended().await;
        assert_eq!(why.exit, Some(7));
        assert!(why.error.ends_with("; the end"), "{}", why.error);
        assert!(locked(&remote.said).text.len() <= KEPT);
    }

    #[test]
    fn remote_carries_files_as_content_and_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("note.txt");
        std::fs::write(&file, "hello").unwrap();
        let send = Send {
            cwd_if_new: Some("/here".to_owned()),
            attachments: vec![Attachment::of_path(file.to_str().unwrap())],
            ..Send::default()
        };
        let sent = carried(&send).unwrap();
        assert_eq!(sent.cwd_if_new, None);
        let [attachment] = sent.attachments.as_slice() else {
            panic!("{:?}", sent.attachments)
        };
        assert_eq!(attachment.path, None);
        assert_eq!(attachment.name.as_deref(), Some("note.txt"));
        assert_eq!(attachment.data.as_deref(), Some("aGVsbG8="));
        assert_eq!(attachment.mime.as_deref(), Some("text/plain"));
        std::fs::remove_file(&file).unwrap();
        let why = carried(&send).unwrap_err().to_string();
        assert!(why.contains("note.txt"), "{why}");
        let directory = Send {
            attachments: vec![Attachment::of_path(dir.path().to_str().unwrap())],
            ..Send::default()
        };
        assert!(carried(&directory).is_err());
    }
}
