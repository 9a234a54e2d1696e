//! The toolset `terminal`: running commands.
//!
//! Owns what a command may do, whom that is asked of, and how long it may take. What confines it
//! is `sandbox`'s, what ends it `keeper`'s.

mod environment;
mod git;
pub(crate) mod keeper;
pub(crate) mod look;

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentd_protocol::line::{Reach, Sandbox};
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use self::keeper::{ALONE, GRACE, KEEP, Report};
use super::output::Output;
use super::places::{Rules, temporary};
use super::question::Question;
use super::sandbox::{self, Grants, Signals, Unavailable};
use super::schema::{Arguments as _, arguments};
use super::{Surroundings, Tool, ToolOutcome};
use crate::config::Unsandboxed;
use crate::model::{Boxed, ToolSpec};

/// How long a command may take when it doesn't say.
const USUAL_SECONDS: u64 = 180;
/// How long a command may ask for: what takes longer doesn't belong into a turn.
const MOST_SECONDS: u64 = 600;
/// A longer command doesn't fit into an argument, whose limit is 128 KiB on Linux.
const MOST_COMMAND: usize = 100_000;
/// A keeper that doesn't end within the command's grace and this is waited for no longer.
const KEEPER_WITHIN: Duration = Duration::from_secs(2);
/// What a command said last is in the pipe when its keeper has ended.
const REST_WITHIN: Duration = Duration::from_millis(500);
// A turn drops a call that takes longer to end: what came of it would never be told.
const _: () = assert!(
    GRACE.as_millis() + KEEPER_WITHIN.as_millis() + REST_WITHIN.as_millis()
        < crate::turn::tools::GRACE.as_millis()
);
/// What is read at once: a pipe holds no more.
const PIECE: usize = 64 << 10;
/// What of an output is told as it comes: who is behind by more has its end in the result.
const MOST_PROGRESS: usize = 1 << 20;
/// A keeper says one line.
const MOST_REPORT: u64 = 4 << 10;

arguments! {
    /// What `bash` takes.
    Wanted {
        command: String = "The command, for bash.",
        timeout: Option<u64> = "Seconds that it may take: 180 when left out, 600 at most.",
        network: Option<bool> = "Does it need the network? Somebody may be asked for leave.",
        outside: Option<bool> = "Must it reach files outside of the workspace, or programs that \
                                 already run? Somebody is asked for leave.",
        reason: Option<String> = "Why it needs the network, or has to run outside: shown to whom \
                                  is asked.",
    }
}

/// The tools.
pub(crate) fn tools(rules: &Arc<Rules>) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Bash {
        rules: Arc::clone(rules),
        // Where an older kernel is played the way without a namespace is played, too.
        may_be_alone: AtomicBool::new(rules.landlock.is_newest()),
    })]
}

/// Runs a command.
struct Bash {
    rules: Arc<Rules>,
    /// May a namespace of processes be made here, as far as is known?
    may_be_alone: AtomicBool,
}

impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "bash".to_owned(),
            description: "Runs a command with bash in the workspace, and gives its output. It may \
                          write the workspace and $TMPDIR, and has no network, unless leave is \
                          given. There is nobody to type. Everything that it started ends with it."
                .to_owned(),
            schema: Wanted::schema(),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        Box::pin(self.try_run(arguments, around))
    }
}

/// What a command may do, when all have been asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// What its grants say.
    Sandboxed { network: bool, signals: Signals },
    /// All that the user may do.
    Everything(Why),
}

impl Leave {
    /// What it leaves a command.
    const fn held(self, is_alone: bool) -> Sandbox {
        match self {
            Self::Sandboxed { network, signals } => Sandbox {
                files: Reach::Granted,
                network: if network { Reach::All } else { Reach::None },
                signals: match signals {
                    Signals::Own => Reach::Own,
                    Signals::Nobody => Reach::None,
                },
                sockets: if network { Reach::Network } else { Reach::None },
                processes: if is_alone { Reach::Own } else { Reach::All },
            },
            Self::Everything(_) => Sandbox {
                files: Reach::All,
                network: Reach::All,
                signals: Reach::All,
                sockets: Reach::All,
                processes: Reach::All,
            },
        }
    }
}

/// Why a command isn't confined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// Somebody allowed it.
    Allowed,
    /// There is no sandbox here.
    NoSandbox,
}

impl Bash {
    async fn try_run(
        &self,
        arguments: &Map<String, Value>,
        around: &Surroundings,
    ) -> Result<ToolOutcome, String> {
        let wanted = Wanted::parse(arguments)?;
        let seconds = wanted.timeout.unwrap_or(USUAL_SECONDS);
        if seconds > MOST_SECONDS {
            return Err(format!(
                "`timeout`: expected 1 to {MOST_SECONDS} seconds, found {seconds}"
            ));
        }
        if wanted.command.trim().is_empty() || wanted.command.contains('\0') {
            return Err("`command` is blank or has a zero byte; expected a command".to_owned());
        }
        if wanted.command.len() > MOST_COMMAND {
            return Err(format!(
                "`command` has {} bytes; expected {MOST_COMMAND} at most: write a script first",
                wanted.command.len()
            ));
        }
        let leave = self.leave(&wanted, around).await?;
        let within = Duration::from_secs(seconds);
        self.kept(&wanted.command, leave, within, around)
            .await
            .map_err(|error| format!("the command was not run: {error}"))
    }

    /// Asks for what isn't allowed by itself.
    async fn leave(&self, wanted: &Wanted, around: &Surroundings) -> Result<Leave, String> {
        let outside = wanted.outside == Some(true);
        let network = wanted.network == Some(true) && !self.rules.network;
        let (leave, title) = match (outside, sandbox::available(self.rules.landlock)) {
            (true, _) => (
                Leave::Everything(Why::Allowed),
                "run a command outside of the sandbox".to_owned(),
            ),
            // Nobody is asked to do without a sandbox that is there again in a moment.
            (false, Err(Unavailable::Passing(why))) => {
                return Err(format!("the command was not run: {why}"));
            }
            (false, Err(_)) if self.rules.unsandboxed == Unsandboxed::Allow => {
                return Ok(Leave::Everything(Why::NoSandbox));
            }
            (false, Err(why)) => (
                Leave::Everything(Why::NoSandbox),
                format!("run a command without a sandbox ({why})"),
            ),
            (false, Ok(signals)) if network => (
                Leave::Sandboxed {
                    network: true,
                    signals,
                },
                "run a command with the network".to_owned(),
            ),
            (false, Ok(signals)) => {
                return Ok(Leave::Sandboxed {
                    network: self.rules.network,
                    signals,
                });
            }
        };
        let reason = wanted.reason.as_deref().map(str::trim).unwrap_or_default();
        if (outside || network) && reason.is_empty() {
            return Err("`reason` is missing; expected why leave is needed".to_owned());
        }
        let mut question = Question::new(&title).fact(&format!("in {}", around.cwd.display()));
        if !reason.is_empty() {
            question = question.fact(&format!("because: {reason}"));
        }
        let question = question.text("the command", &wanted.command);
        around.ask(&question).await.map(|()| leave)
    }

    async fn kept(
        &self,
        command: &str,
        leave: Leave,
        within: Duration,
        around: &Surroundings,
    ) -> io::Result<ToolOutcome> {
        let began = Instant::now();
        let is_confined = matches!(leave, Leave::Sandboxed { .. });
        let mut is_alone = is_confined && self.may_be_alone.load(Ordering::Relaxed);
        let mut run = self
            .run_once(command, leave, is_alone, within, around)
            .await?;
        if run.report.not_alone.is_some() {
            // Asked once: the next command begins without the try.
            self.may_be_alone.store(false, Ordering::Relaxed);
            is_alone = false;
            run = self
                .run_once(command, leave, is_alone, within, around)
                .await?;
        }
        Ok(told(run, leave, is_alone, began.elapsed()))
    }

    /// Runs it, in a namespace of processes or beside everybody's.
    async fn run_once(
        &self,
        command: &str,
        leave: Leave,
        is_alone: bool,
        within: Duration,
        around: &Surroundings,
    ) -> io::Result<Run> {
        let mut keeper = self.start(command, leave, is_alone, around).await?;
        let alive = keeper.stdin.take();
        let (Some(stdout), Some(stderr)) = (keeper.stdout.take(), keeper.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut output = Output::new(&around.spill, &around.call);
        let mut heard = CommandOutput::new(stdout, around);
        let ended = tokio::select! {
            // The keeper has the output open until its end.
            _ = over(&mut keeper, &mut heard, &mut output) => CommandEnd::ByItself,
            () = around.cancel.cancelled() => CommandEnd::Cancelled,
            () = tokio::time::sleep(within) => CommandEnd::TimedOut(within),
        };
        // The keeper sees this, and so it does when timmy is killed.
        drop(alive);
        let ending = over(&mut keeper, &mut heard, &mut output);
        // The keeper gives the command its grace, and has its own time to hunt what is left.
        let is_left = tokio::time::timeout(GRACE + KEEPER_WITHIN, ending).await;
        let is_left = !matches!(is_left, Ok(Ok(_)));
        // What was said last is still there; who else may say something isn't waited for.
        let _is_open = tokio::time::timeout(REST_WITHIN, heard.all(&mut output)).await;
        let report = report(stderr, is_left).await;
        Ok(Run {
            output,
            ended,
            report,
        })
    }

    /// Starts the keeper, which starts the command.
    async fn start(
        &self,
        command: &str,
        leave: Leave,
        is_alone: bool,
        around: &Surroundings,
    ) -> io::Result<Child> {
        let (anchors, cwd) = (Arc::clone(&around.anchors), around.cwd.clone());
        let workspace = tokio::task::spawn_blocking(move || anchors.find(&cwd));
        let workspace = workspace.await.map_err(io::Error::other)?;
        let workspace = workspace.map_err(|lost| {
            io::Error::new(io::ErrorKind::NotFound, format!("the workspace {lost}"))
        })?;
        let temporary = temporary(around);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&temporary)?;
        let (rules, around_there) = (Arc::clone(&self.rules), around.clone());
        let network = matches!(leave, Leave::Sandboxed { network: true, .. });
        // A look at many directories, when the workspace is the home.
        let grants = tokio::task::spawn_blocking(move || match leave {
            Leave::Sandboxed { network, .. } => {
                Grants::of(&rules, &around_there, network).map(Some)
            }
            Leave::Everything(_) => Ok(None),
        });
        let grants = grants.await.map_err(io::Error::other)?;
        let grants = grants.map_err(io::Error::other)?;
        let git = match &grants {
            Some(_) => Some(git::configuration(&self.rules, &around.cwd, &around.spill).await),
            None => None,
        };
        let shell = sandbox::found("bash", &self.rules).unwrap_or_else(|| "/bin/sh".into());
        let command: [OsString; 3] = [shell.into(), "-c".into(), command.into()];
        Command::new(&self.rules.program)
            .arg(KEEP)
            .args(is_alone.then_some(ALONE))
            .args(sandbox::arguments(grants.as_ref(), &workspace, &command))
            .env_clear()
            .envs(environment::of(
                &self.rules,
                around,
                network || matches!(leave, Leave::Everything(_)),
            ))
            .envs(git.map(|file| ("GIT_CONFIG_GLOBAL", file)))
            // The workspace is entered by its handle, when it is known to be the same.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // With it a namespace ends. Without one it is all that hunts what is left, and has its
            // own limit.
            .kill_on_drop(is_alone)
            .spawn()
    }
}

/// Waits for the keeper's end, and hears what comes meanwhile.
async fn over(
    keeper: &mut Child,
    heard: &mut CommandOutput<'_>,
    output: &mut Output,
) -> io::Result<ExitStatus> {
    tokio::select! {
        status = keeper.wait() => return status,
        () = heard.all(output) => {}
    }
    keeper.wait().await
}

/// A command that has ended.
struct Run {
    output: Output,
    ended: CommandEnd,
    report: Report,
}

/// How a command came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommandEnd {
    ByItself,
    Cancelled,
    TimedOut(Duration),
}

/// The output of a command, as it comes.
struct CommandOutput<'a> {
    stdout: BufReader<ChildStdout>,
    around: &'a Surroundings,
    /// The beginning of a character whose end hasn't come yet.
    part: Vec<u8>,
    /// Bytes that may still be told as they come.
    left: usize,
}

impl<'a> CommandOutput<'a> {
    fn new(stdout: ChildStdout, around: &'a Surroundings) -> Self {
        Self {
            stdout: BufReader::with_capacity(PIECE, stdout),
            around,
            part: Vec::new(),
            left: MOST_PROGRESS,
        }
    }

    /// Takes all that comes until everybody has closed it.
    async fn all(&mut self, output: &mut Output) {
        use tokio::io::AsyncBufReadExt as _;
        loop {
            let Ok(piece) = self.stdout.fill_buf().await else {
                return;
            };
            if piece.is_empty() {
                return;
            }
            output.push(piece);
            let used = piece.len();
            let told = used.min(self.left);
            self.part.extend_from_slice(&piece[..told]);
            self.stdout.consume(used);
            if self.left > 0 {
                self.left -= told;
                let mut text = whole_characters(&mut self.part);
                if self.left == 0 {
                    text.push_str("\n[… the rest is told at the end …]\n");
                }
                // Nobody follows so fast: what they see of it later is the result.
                let _is_full = self.around.progress.try_send(text);
            }
        }
    }
}

/// Takes what is whole; no more than the beginning of one character is left.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let end = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        // Bytes that are no text are shown as such, with all after them.
        _ => bytes.len(),
    };
    let rest = bytes.split_off(end);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

/// What the keeper says at its end.
async fn report(stderr: impl tokio::io::AsyncRead + Unpin, is_left: bool) -> Report {
    let mut said = Vec::new();
    let reading = stderr.take(MOST_REPORT);
    tokio::pin!(reading);
    if !is_left {
        // It has ended, so this does.
        let _is_short = tokio::time::timeout(REST_WITHIN, reading.read_to_end(&mut said)).await;
    }
    let unknown = if is_left {
        "it had not ended when it was waited for no longer, so processes of it may be left"
    } else {
        "what kept it was killed, so processes of it may be left, and how it ended is unknown"
    };
    serde_json::from_slice(&said).unwrap_or_else(|_| Report {
        failed: Some(unknown.to_owned()),
        ..Report::default()
    })
}

fn told(run: Run, leave: Leave, is_alone: bool, took: Duration) -> ToolOutcome {
    let Run {
        output,
        ended,
        report,
    } = run;
    let shown = output.shown();
    let how = match (ended, &report) {
        (CommandEnd::Cancelled, _) => "cancelled".to_owned(),
        (CommandEnd::TimedOut(within), _) => format!(
            "killed: it took longer than {} s; ask for a longer `timeout`",
            within.as_secs()
        ),
        (
            _,
            Report {
                failed: Some(why), ..
            },
        ) => why.clone(),
        (
            _,
            Report {
                code: Some(code), ..
            },
        ) => format!("exit code {code}"),
        (_, Report { signal, .. }) => format!("killed by signal {}", signal.unwrap_or_default()),
    };
    let confined = match leave {
        Leave::Sandboxed { network: false, .. } => "sandboxed, no network",
        Leave::Sandboxed { network: true, .. } => "sandboxed, with the network",
        Leave::Everything(Why::Allowed) => "not sandboxed: it was allowed to run outside",
        Leave::Everything(Why::NoSandbox) => "not sandboxed: there is no sandbox here",
    };
    let deaf = match leave {
        Leave::Sandboxed {
            signals: Signals::Nobody,
            ..
        } => ", no signals: this kernel is older than Linux 6.12",
        _ => "",
    };
    let seen = match leave {
        Leave::Sandboxed { .. } if !is_alone => ", arguments of other processes are seen",
        _ => "",
    };
    let doubt = match (ended, &report.failed) {
        (CommandEnd::Cancelled | CommandEnd::TimedOut(_), Some(why)) => format!("; but {why}"),
        _ => String::new(),
    };
    let left = match report.left {
        0 => String::new(),
        left => format!("; {left} that it left behind could not be ended"),
    };
    let strays = match report.strays {
        0 => String::new(),
        1 => "; one process that it left behind was killed".to_owned(),
        strays => format!("; {strays} processes that it left behind were killed"),
    };
    let mut text = shown.text;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let seconds = took.as_secs_f64();
    text.push_str(&format!(
        "[{how}{doubt}; {confined}{deaf}{seen}; {seconds:.1} s{strays}{left}]\n"
    ));
    ToolOutcome {
        ok: ended == CommandEnd::ByItself && report.failed.is_none() && report.code == Some(0),
        output: text,
        truncated: shown.truncated,
        sandbox: Some(leave.held(is_alone)),
    }
}

#[cfg(test)]
mod tests;
