//! `start`, `stop` and `restart`: the daemon of this machine.
//!
//! Owns that there is one afterwards, or none: the service where one is installed, else a process of
//! its own. Must not know how a service manager is told (`service`), nor what a daemon does.

mod leaving;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use agentd_base::hinted;
use agentd_base::settings::MEND_IT;
use agentd_protocol::request::DaemonStop;
use agentd_protocol::{Line, RequestKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::leaving::{Absent, Leaving, STOP_DEADLINE, without_socket};
use super::args::{
    DeadlineArgs, RestartArgs, ServiceArgs, ServiceChangeArgs, ServiceCommand, ServiceRestartArgs,
};
use super::drain::{Left, drain, undrain};
use super::exit::{self, Exit};
use super::{ask, config_check, control, cut_off, first_use, output, service};
use agentd_client::client::{Client, ClientError, START_IT};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::{Fact, Lock};
use agentd_client::oneshot;
use agentd_client::places::Environment;
use agentd_client::ssh::Target;

/// Longer than any start with a store that need not be migrated; with one, the lock says so.
const UP_WITHIN: Duration = Duration::from_secs(10);
/// One that can't open its store is gone within this.
const ENDS_WITHIN: Duration = Duration::from_millis(500);
/// It is there in some 20 ms.
const LOOKS_EVERY: Duration = Duration::from_millis(5);
/// What running turns get when nothing is said.
const RESTART_DEADLINE: f64 = 60.0;
/// Standard error of a daemon in the background, in the state directory: why it did not start. Its
/// log is beside it.
const STDERR: &str = "agentd.stderr";
/// As much of it is read.
const MOST_SAID: u64 = 16 * 1024;
/// The daemon's exit code where it can't write (`EX_IOERR` of sysexits).
const UNWRITABLE: i32 = 74;
/// More than fits into pages that a file system has given out already.
const PROBE: usize = 64 * 1024;

/// Why there is no daemon now.
pub(super) struct NotStarted {
    pub(super) error: String,
    pub(super) hint: Option<String>,
    exit: Exit,
    fault: Fault,
}

/// Whose doing it is that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Its own, or this machine's: the next try ends in the same way.
    Own,
    /// Somebody stops or restarts it meanwhile.
    Others,
}

impl NotStarted {
    fn tell(&self) -> Exit {
        output::error(&self.error, self.hint.as_deref());
        self.exit
    }
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self {
            error: format!("agentd can't be started: {error}"),
            hint: None,
            exit: Exit::Failed,
            fault: Fault::Own,
        }
    }
}

/// A daemon that was there, or that is there now.
pub(super) enum Up {
    Already(Client),
    Fresh(Client),
}

impl Up {
    pub(super) fn into_client(self) -> Client {
        match self {
            Self::Already(client) | Self::Fresh(client) => client,
        }
    }
}

pub(super) async fn start(socket: Option<&Path>) -> io::Result<Exit> {
    let endpoint = endpoint(socket);
    let through_service = !is_held(&endpoint) && service::serves(&endpoint.path);
    if through_service {
        let command = ServiceCommand::Start(ServiceChangeArgs { dry_run: false });
        return service::service(ServiceArgs { command }, None).await;
    }
    match up(socket).await {
        Ok(Up::Already(client)) => say("agentd runs already", &client, &endpoint),
        Ok(Up::Fresh(client)) => fresh("agentd runs", client, &endpoint).await,
        Err(failed) => Ok(failed.tell()),
    }
}

async fn fresh(what: &str, mut client: Client, endpoint: &LocalEndpoint) -> io::Result<Exit> {
    let exit = say(what, &client, endpoint)?;
    tell_warnings();
    cut_off::tell(&mut client).await;
    Ok(exit)
}

/// What the daemon said of its configuration, which nobody else reads.
fn tell_warnings() {
    let state = Environment::of_process().state_dir();
    let said = state.and_then(|state| std::fs::read_to_string(state.join(STDERR)).ok());
    for line in said.iter().flat_map(|said| said.lines()) {
        if let Some(warning) = line.strip_prefix("warning: ") {
            let lines = hinted::in_lines(&output::safe(warning));
            output::err(&format!("warning: {lines}\n"));
        }
    }
}

fn say(what: &str, client: &Client, endpoint: &LocalEndpoint) -> io::Result<Exit> {
    let (pid, version) = (client.hello.pid, output::safe(&client.hello.version));
    let place = endpoint.path.display();
    output::out_line(&format!("{what}: {version}, pid {pid}, on {place}"))?;
    Ok(Exit::Done)
}

fn endpoint(socket: Option<&Path>) -> LocalEndpoint {
    LocalEndpoint::find(socket, &Environment::of_process())
}

/// Does a process have the state? Of one that is gone it doesn't matter who was to follow.
fn is_held(endpoint: &LocalEndpoint) -> bool {
    endpoint.holder().is_some()
}

async fn up(socket: Option<&Path>) -> Result<Up, NotStarted> {
    at_last(socket, tried(socket).await).await
}

/// Tries again as long as others are at it, too.
async fn at_last(socket: Option<&Path>, first: Result<Up, NotStarted>) -> Result<Up, NotStarted> {
    let longest = Instant::now() + UP_WITHIN;
    let mut up = first;
    while let Err(NotStarted {
        fault: Fault::Others,
        ..
    }) = up
        && Instant::now() < longest
    {
        tokio::time::sleep(LOOKS_EVERY).await;
        up = tried(socket).await;
    }
    up
}

async fn tried(socket: Option<&Path>) -> Result<Up, NotStarted> {
    let endpoint = endpoint(socket);
    let nobody = match endpoint.connect().await {
        Ok(_there) => false,
        Err(not) => matches!(not.fact, Fact::NoSocket | Fact::Refused),
    };
    if nobody && !is_held(&endpoint) {
        return detached(socket).await;
    }
    match ask::connect(socket).await {
        Ok(client) => Ok(Up::Already(client)),
        // It was on its way out.
        Err(ClientError::Unreachable { hint: None, .. }) if !is_held(&endpoint) => {
            detached(socket).await
        }
        Err(error) => {
            let usual = "`agentctl status` and `agentctl doctor` say more";
            let (why, hint) = match ask::why_silent(&error, socket).await {
                Some(unwell) => (unwell.to_string(), unwell.hint()),
                None => (error.to_string(), None),
            };
            Err(NotStarted {
                exit: exit::of_client_error(&error),
                hint: Some(hint.unwrap_or_else(|| usual.to_owned())),
                error: why,
                fault: match endpoint.lock() {
                    Lock::Stopping | Lock::Restarting => Fault::Others,
                    Lock::Free | Lock::Starting | Lock::Running => Fault::Own,
                },
            })
        }
    }
}

/// Starts a daemon that outlives this program and its terminal, and waits until it answers, or
/// another one that was started at the same time.
pub(super) async fn detached(socket: Option<&Path>) -> Result<Up, NotStarted> {
    let program = oneshot::program();
    let said = stderr_file()?;
    let mut command = Command::new(&program);
    command.arg("--detach");
    if let Some(socket) = socket {
        command.arg("--socket").arg(std::path::absolute(socket)?);
    }
    // It is to hold no directory of somebody else's, unless its files are named from there.
    if !names_relative_files() {
        command.current_dir("/");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::options().append(true).open(&said)?);
    let mut child = command.spawn().map_err(|error| NotStarted {
        error: format!("cannot start `{}`: {error}", program.display()),
        hint: Some("put `agentd` next to `agentctl`, or on `PATH`".to_owned()),
        exit: Exit::Configuration,
        fault: Fault::Own,
    })?;
    let endpoint = endpoint(socket);
    let begun = Instant::now();
    loop {
        if endpoint.connect().await.is_ok() {
            let client = match ask::connect(socket).await {
                Ok(client) => client,
                // It listens before it opens its store, and may have left over that.
                Err(error) => match ended(&mut child).await? {
                    Some(status) => return left(status.code(), &said, socket).await,
                    None => {
                        return Err(NotStarted {
                            exit: exit::of_client_error(&error),
                            error: error.to_string(),
                            hint: Some("`agentctl logs` says what it did".to_owned()),
                            // It listened: who leaves then was told to.
                            fault: Fault::Others,
                        });
                    }
                },
            };
            if client.hello.pid == child.id() {
                return Ok(Up::Fresh(client));
            }
            end(&mut child).await?;
            return Ok(Up::Already(client));
        }
        if let Some(status) = child.try_wait()? {
            return left(status.code(), &said, socket).await;
        }
        // A store that is migrated takes its time.
        if begun.elapsed() > UP_WITHIN && endpoint.lock() != Lock::Starting {
            return Err(silent(&child));
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

/// Its end, if it has ended already or does so at once.
async fn ended(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let longest = Instant::now() + ENDS_WITHIN;
    loop {
        match child.try_wait()? {
            None if Instant::now() < longest => tokio::time::sleep(LOOKS_EVERY).await,
            status => return Ok(status),
        }
    }
}

/// Ends one that came too late. Left alone it would take the place of the other one, should that be
/// stopped before it gets so far.
async fn end(child: &mut Child) -> io::Result<()> {
    let begun = Instant::now();
    if let Ok(pid) = i32::try_from(child.id()) {
        // One that has ended by itself isn't reaped yet, so that its number is nobody else's.
        let _ended = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    while child.try_wait()?.is_none() {
        if begun.elapsed() > UP_WITHIN {
            child.kill()?;
            child.wait()?;
            break;
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
    Ok(())
}

fn silent(child: &Child) -> NotStarted {
    let (pid, within) = (child.id(), UP_WITHIN.as_secs());
    NotStarted {
        error: format!("agentd was started (pid {pid}), and does not answer within {within} s"),
        hint: Some("`agentctl logs` says what it did, `agentctl status` how it is".to_owned()),
        exit: Exit::Unreachable,
        fault: Fault::Own,
    }
}

/// It ended instead of serving: it says why, unless another one was faster.
async fn left(code: Option<i32>, said: &Path, socket: Option<&Path>) -> Result<Up, NotStarted> {
    // Somebody else started one in the same moment.
    if code == Some(3)
        && let Ok(client) = ask::connect(socket).await
    {
        return Ok(Up::Already(client));
    }
    let mut text = String::new();
    // Without its words its code is all that is known.
    let _unread = File::open(said).and_then(|file| file.take(MOST_SAID).read_to_string(&mut text));
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("error: "));
    let unwritable = (code == Some(UNWRITABLE))
        .then(|| unwritable(said))
        .flatten();
    let why = lines.next_back().or(unwritable.as_deref()).map_or_else(
        || {
            let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
            format!("it ended with {code}")
        },
        str::to_owned,
    );
    let (why, hint) = match hinted::split(&why) {
        (why, Some(hint)) => (why, hint),
        (why, None) => {
            let file = first_use::file();
            let is_of_config = file.is_some_and(|file| why.starts_with(&*file.to_string_lossy()));
            let hint = match is_of_config {
                true => MEND_IT,
                false => "`agentctl logs` and `agentctl doctor` say more",
            };
            (why, hint)
        }
    };
    Err(NotStarted {
        error: format!("agentd did not start: {why}"),
        hint: Some(hint.to_owned()),
        exit: match code {
            Some(78) => Exit::Configuration,
            Some(3 | 74) => Exit::Refused,
            _ => Exit::Failed,
        },
        fault: match code {
            // It served, and was stopped; or another one was faster, and is gone again.
            Some(0 | 3) => Fault::Others,
            _ => Fault::Own,
        },
    })
}

/// Why nothing can be written where a file is: on a full disk the daemon can't even say so.
fn unwritable(file: &Path) -> Option<String> {
    let dir = file.parent()?;
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let tried = options
        .open(&probe)
        .and_then(|mut out| out.write_all(&[0; PROBE]));
    // One that was not made can't be removed.
    let _gone = std::fs::remove_file(&probe);
    let (error, shown) = (tried.err()?, dir.display());
    Some(match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("no space is left in `{shown}`; hint: free some room there")
        }
        _ => format!("can't write in `{shown}`: {error}; hint: make it writable"),
    })
}

/// An empty file for what it says before it has a log.
fn stderr_file() -> Result<PathBuf, NotStarted> {
    let state = Environment::of_process().state_dir();
    let state = state.ok_or_else(|| NotStarted {
        error: "`HOME` is not set, so there is no place for the daemon's files".to_owned(),
        hint: Some("set it, or `AGENTD_STATE_DIR`".to_owned()),
        exit: Exit::Configuration,
        fault: Fault::Own,
    })?;
    let failed = |error: io::Error| NotStarted {
        error: format!("can't use `{}`: {error}", state.display()),
        hint: Some(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some room there, or set `AGENTD_STATE_DIR`".to_owned()
            }
            _ => "make it writable, or set `AGENTD_STATE_DIR`".to_owned(),
        }),
        exit: Exit::Refused,
        fault: Fault::Own,
    };
    let mut dir = DirBuilder::new();
    dir.recursive(true).mode(0o700);
    dir.create(&state).map_err(failed)?;
    let file = state.join(STDERR);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&file).map_err(failed)?;
    Ok(file)
}

/// Does a variable name one of the daemon's files from the current directory?
fn names_relative_files() -> bool {
    let names = [
        "AGENTD_SOCKET",
        "AGENTD_STATE_DIR",
        "AGENTD_CONFIG",
        "AGENTD_ALIAS",
    ];
    names.iter().any(|name| {
        let value = std::env::var_os(name).unwrap_or_default();
        !value.is_empty() && value != "false" && Path::new(&value).is_relative()
    })
}

/// Returns when the daemon is gone, so that the next one can be started.
pub(super) async fn stop(args: DeadlineArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let stop = DaemonStop {
        deadline: args.deadline,
        restart: false,
    };
    if let Some(leaving) = without_socket(&endpoint(socket)).await {
        return leaving.over_after(args.deadline).await;
    }
    let is_away = socket.and_then(Target::of_socket).is_some();
    let mut client = match ask::connect(socket).await {
        Ok(client) => client,
        Err(error) => match Absent::of(&endpoint(socket)).filter(|_| !is_away) {
            Some(Absent::Gone) => {
                let place = endpoint(socket).path;
                output::out_line(&format!("no daemon runs on {}", place.display()))?;
                return Ok(Exit::Done);
            }
            // Somebody else told it.
            Some(Absent::Leaving(leaving)) => return leaving.told_over(args.deadline).await,
            None => return Ok(ask::tell_unconnected(&error, socket, START_IT).await),
        },
    };
    let leaving = Leaving::of(&client, endpoint(socket));
    // Beforehand: afterwards nobody would be there that works.
    let before = config_check::status(&mut client).await;
    if let Some(unusable) = before.as_deref().and_then(config_check::of_status) {
        output::note(&unusable.keeps_it_down());
    }
    let deadline = args.deadline.unwrap_or(STOP_DEADLINE);
    let waits_for = leaving::waits_for(before.as_deref(), deadline);
    cut_off::hear_turns(&mut client).await;
    match client.answer(RequestKind::DaemonStop, &stop).await {
        Ok(received) if matches!(received.line, Some(Line::DaemonStop { ok: true })) => {}
        Ok(received) => return Ok(ask::unexpected(&received)),
        Err(error) if leaving.explains(&error) => return leaving.told_over(args.deadline).await,
        Err(error) => return Ok(ask::tell(&error)),
    }
    let gone = async {
        let cut = cut_off::last_words(client, leaving::patience(deadline)).await;
        let cut = cut.ok_or_else(stays)?;
        match leaving.over(UP_WITHIN).await {
            true => Ok(cut),
            false => Err(leaving.stays()),
        }
    };
    let cut = match leaving::told_when_late(&waits_for, gone).await {
        Ok(cut) => cut,
        Err(exit) => return Ok(exit),
    };
    output::out_line("the daemon has stopped")?;
    cut_off::tell_cut(&cut);
    leaving::tell_waiting(before.as_deref());
    if !is_away && service::serves(&endpoint(socket).path) {
        output::note(
            "the next command starts it again, as it is a service; `agentctl service stop` keeps \
             it stopped",
        );
    }
    Ok(Exit::Done)
}

pub(super) async fn restart(args: RestartArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if let Some(workers) = args.workers() {
        let name = match (&workers.agent, &workers.session) {
            (Some(agent), _) => output::safe(agent).into_owned(),
            (None, session) => {
                let session = session.as_deref().unwrap_or_default();
                format!("--session {}", output::safe(session))
            }
        };
        output::note(&format!(
            "`agentctl agents restart {name}` is the command for this; `agentctl restart` without a \
             name restarts the daemon"
        ));
        return control::restart(workers, socket).await;
    }
    let deadline = match args.now {
        true => 0.0,
        false => args.deadline.unwrap_or(RESTART_DEADLINE),
    };
    let endpoint = endpoint(socket);
    if service::serves(&endpoint.path) {
        let command = ServiceCommand::Restart(ServiceRestartArgs {
            deadline,
            dry_run: false,
        });
        return service::service(ServiceArgs { command }, None).await;
    }
    let mut client = match up(socket).await {
        Ok(Up::Fresh(client)) => return fresh("agentd runs", client, &endpoint).await,
        Ok(Up::Already(client)) => client,
        Err(failed) => return Ok(failed.tell()),
    };
    if let Some(unusable) = config_check::of_program() {
        return Ok(unusable.tell());
    }
    let leaving = Leaving::of(&client, endpoint.clone());
    // A daemon that leaves serves nobody who comes: a question would stay open until the deadline.
    if deadline > 0.0 && drain(&mut client, socket, deadline).await == Left::Interrupted {
        undrain(socket).await;
        return Ok(Exit::Interrupted);
    }
    if let Err(exit) = asked_to_leave(client, &leaving).await {
        return Ok(exit);
    }
    // Should it be there still, its successor says so.
    let _is_gone = leaving.over(UP_WITHIN).await;
    match at_last(socket, detached(socket).await).await {
        Ok(up) => fresh("agentd runs anew", up.into_client(), &endpoint).await,
        Err(failed) => Ok(failed.tell()),
    }
}

async fn asked_to_leave(mut client: Client, leaving: &Leaving) -> Result<(), Exit> {
    let stop = DaemonStop {
        deadline: Some(0.0),
        restart: true,
    };
    cut_off::hear_turns(&mut client).await;
    match client.answer(RequestKind::DaemonStop, &stop).await {
        Ok(received) if matches!(received.line, Some(Line::DaemonStop { ok: true })) => {}
        Ok(received) => return Err(ask::unexpected(&received)),
        Err(error) if leaving.explains(&error) => return Ok(()),
        Err(error) => return Err(ask::tell(&error)),
    }
    let cut = cut_off::last_words(client, leaving::patience(0.0)).await;
    cut_off::tell_cut(&cut.ok_or_else(stays)?);
    Ok(())
}

fn stays() -> Exit {
    output::error(
        "the daemon does not leave",
        Some("`agentctl status` says what it does"),
    );
    Exit::Hung
}
