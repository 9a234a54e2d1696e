//! `service`: agentd as a service of the user's own service manager.
//!
//! Owns which steps are right when, and what is told of it. Must not know how a unit looks
//! (`systemd`, `launchd`) nor how a step is done (`step`).

mod installation;
mod launchd;
mod packaged;
mod restart;
mod seal;
mod step;
mod systemd;
mod timer;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use self::installation::Installation;
use self::restart::Quiet;
use self::step::{Failed, Mode, Step};
use super::args::{JsonArgs, ServiceArgs, ServiceChangeArgs, ServiceCommand, ServiceLogsArgs};
use super::config_check::Unusable;
use super::drain::{self, Left};
use super::exit::{self, Exit};
use super::{ask, cut_off, output, typed};
use agentd_client::client::{Client, ClientError};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::health;
use agentd_client::places::Environment;

/// What to do without a service manager.
const NO_MANAGER: &str = "there is no service manager for you here";

pub(super) async fn service(args: ServiceArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let done = match args.command {
        ServiceCommand::Install(args) => install(args, socket).await,
        ServiceCommand::Uninstall(args) => uninstall(args),
        ServiceCommand::Start(args) => start(args).await,
        ServiceCommand::Stop(args) => restart::stop(args).await,
        ServiceCommand::Restart(args) => restart::restart(args).await,
        ServiceCommand::Status(args) => status(&args).await,
        ServiceCommand::Logs(args) => logs(args),
    };
    match done {
        Ok(exit) => Ok(exit),
        Err(Trouble::Step(Failed::Output(error))) => Err(error),
        Err(trouble) => Ok(trouble.tell()),
    }
}

/// Why a command could not do what it should.
enum Trouble {
    /// There is no service manager for this user.
    NoManager(Failed),
    /// There is nothing to do it with.
    NotInstalled,
    NotInstallable(installation::NotInstallable),
    /// A daemon runs that the service manager did not start.
    Outsider(u32),
    /// The next daemon would not come up.
    Configuration(Unusable),
    Step(Failed),
    Silent(ClientError),
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        Self::Step(failed)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Step(error.into())
    }
}

impl From<installation::NotInstallable> for Trouble {
    fn from(error: installation::NotInstallable) -> Self {
        Self::NotInstallable(error)
    }
}

impl Trouble {
    fn tell(&self) -> Exit {
        let (text, hint, exit) = self.words();
        output::error(&text, Some(&hint));
        exit
    }

    /// What is wrong, what to do, and the exit code.
    fn words(&self) -> (String, String, Exit) {
        match self {
            Self::NoManager(failed) => (
                format!("{NO_MANAGER}: {failed}"),
                by_hand(),
                Exit::Configuration,
            ),
            Self::NotInstalled => (
                "the service is not installed".to_owned(),
                "`agentctl service install`".to_owned(),
                Exit::Configuration,
            ),
            Self::NotInstallable(error) => (
                error.to_string(),
                error.hint.to_owned(),
                Exit::Configuration,
            ),
            Self::Outsider(pid) => (
                format!("an agentd (pid {pid}) runs that is not the service's"),
                "stop it with `agentctl stop`, then ask again".to_owned(),
                Exit::Refused,
            ),
            Self::Configuration(unusable) => {
                (unusable.error(), unusable.hint.clone(), Exit::Configuration)
            }
            Self::Step(failed @ Failed::Late { .. }) => (
                failed.to_string(),
                "it hangs: ask again, or log out and in".to_owned(),
                Exit::Unreachable,
            ),
            Self::Step(failed @ Failed::Foreign(_)) => {
                (failed.to_string(), "move it away".to_owned(), Exit::Refused)
            }
            Self::Step(failed) => (
                failed.to_string(),
                "`agentctl service status` and `agentctl service logs` say more".to_owned(),
                Exit::Failed,
            ),
            Self::Silent(error) => (
                format!("the service does not answer: {error}"),
                "`agentctl service logs` says more".to_owned(),
                Exit::Unreachable,
            ),
        }
    }
}

/// How it is started where nobody does that. Cron knows no directory of the user's.
fn by_hand() -> String {
    let program = std::env::current_exe().map(|path| path.to_string_lossy().into_owned());
    let program = program.unwrap_or_else(|_| "agentctl".to_owned());
    format!(
        "`agentctl start` starts it in the background; the same at the end of `~/.profile` does so at \
         login, `@reboot {} start` in `crontab -e` with the machine",
        typed::quoted(&program)
    )
}

type Done<T> = Result<T, Trouble>;

/// The service manager of this system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manager {
    Systemd,
    Launchd,
}

/// What it says of the service.
enum ServiceState {
    Systemd(systemd::UnitsState),
    Launchd(launchd::JobState),
}

impl Manager {
    const HERE: Self = if cfg!(target_os = "macos") {
        Self::Launchd
    } else {
        Self::Systemd
    };

    /// Asks how the service is; says so when nobody can be asked.
    fn ask() -> Done<ServiceState> {
        let uid = nix::unistd::Uid::effective().as_raw();
        match Self::HERE {
            Self::Systemd => Ok(ServiceState::Systemd(
                systemd::UnitsState::ask().map_err(no_manager)?,
            )),
            Self::Launchd => {
                launchd::is_there(uid).map_err(no_manager)?;
                Ok(ServiceState::Launchd(launchd::JobState::ask(uid)?))
            }
        }
    }
}

/// One that hangs is there.
fn no_manager(failed: Failed) -> Trouble {
    match failed {
        Failed::Late { .. } => Trouble::Step(failed),
        other => Trouble::NoManager(other),
    }
}

impl ServiceState {
    /// The installation with its files where this manager looks for them.
    fn placed(&self, of: Installation) -> Installation {
        match self {
            Self::Systemd(state) => Installation {
                config_home: state.config_home().cloned().unwrap_or(of.config_home),
                ..of
            },
            Self::Launchd(_) => of,
        }
    }

    fn alias(&self) -> Option<PathBuf> {
        match self {
            Self::Systemd(state) => state.alias(),
            Self::Launchd(_) => None,
        }
    }

    fn is_listening(&self) -> bool {
        match self {
            Self::Systemd(state) => state.is_listening(),
            Self::Launchd(state) => state.is_listening(),
        }
    }

    fn is_installed(&self, of: &Installation) -> bool {
        match self {
            Self::Systemd(state) => state.is_installed(),
            Self::Launchd(_) => launchd::file(of).exists(),
        }
    }

    fn pid(&self) -> Option<u32> {
        match self {
            Self::Systemd(state) => state.pid(),
            Self::Launchd(state) => state.pid(),
        }
    }

    fn facts(&self) -> Value {
        match self {
            Self::Systemd(state) => state.facts(),
            Self::Launchd(state) => state.facts(),
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::Systemd(state) => state.lines(),
            Self::Launchd(state) => state.lines(),
        }
    }

    /// Where the service listens: as it was installed, whatever this shell's variables say.
    fn socket(&self, of: &Installation) -> PathBuf {
        match self {
            Self::Systemd(state) => state.listens_at(),
            Self::Launchd(_) => None,
        }
        .unwrap_or_else(|| of.socket.clone())
    }

    /// Before a start that is not an installation.
    fn reload(&self) -> Vec<Step> {
        match self {
            Self::Systemd(state) => state.reload(),
            // It is loaded anew by each installation.
            Self::Launchd(_) => Vec::new(),
        }
    }

    fn start(&self, of: &Installation) -> Vec<Step> {
        match self {
            Self::Systemd(_) => systemd::start(),
            Self::Launchd(state) => launchd::start(of, state),
        }
    }

    fn stop(&self, of: &Installation) -> Vec<Step> {
        match self {
            Self::Systemd(_) => systemd::stop(),
            Self::Launchd(state) => launchd::stop(of, state),
        }
    }

    fn restart_hard(&self, of: &Installation) -> Vec<Step> {
        match self {
            Self::Systemd(_) => systemd::restart_hard(),
            Self::Launchd(_) => launchd::restart_hard(of),
        }
    }
}

const fn mode(dry_run: bool) -> Mode {
    if dry_run { Mode::Show } else { Mode::Do }
}

/// Is there a service of this user's? Files only, as a manager that hangs would be waited for.
pub(super) fn is_there() -> bool {
    let Ok(of) = Installation::known() else {
        return false;
    };
    match Manager::HERE {
        Manager::Systemd => systemd::is_enabled(&of),
        Manager::Launchd => launchd::file(&of).exists(),
    }
}

/// Does the service of this user listen there, as far as its manager can be asked?
pub(super) fn serves(socket: &Path) -> bool {
    is_there() && installed().is_ok_and(|(of, state)| state.socket(&of) == socket)
}

/// The installed service, and how it is.
fn installed() -> Done<(Installation, ServiceState)> {
    let state = Manager::ask()?;
    let of = state.placed(Installation::known()?);
    if state.is_installed(&of) {
        Ok((of, state))
    } else {
        Err(Trouble::NotInstalled)
    }
}

/// What an installation would do where there is a manager.
fn show_without_manager(socket: Option<&Path>, why: &Failed) -> Done<Exit> {
    let of = Installation::find(socket)?;
    let steps = match Manager::HERE {
        Manager::Systemd => [systemd::install(&of), systemd::start()].concat(),
        Manager::Launchd => launchd::install(&of),
    };
    step::perform(&steps, Mode::Show)?;
    output::note(&format!("{NO_MANAGER}: {why}; {}", by_hand()));
    Ok(Exit::Done)
}

async fn install(args: ServiceChangeArgs, socket: Option<&Path>) -> Done<Exit> {
    let state = match Manager::ask() {
        Err(Trouble::NoManager(why)) if args.dry_run => return show_without_manager(socket, &why),
        asked => asked?,
    };
    let of = state.placed(Installation::find(socket)?);
    // A socket that the service manager holds is never another daemon's.
    if !state.is_listening()
        && let Ok(client) = ask::connect(socket).await
    {
        return Err(Trouble::Outsider(client.hello.pid));
    }
    let (changed, moves) = match &state {
        ServiceState::Systemd(_) => {
            let [(socket, text), (service, service_text)] = systemd::files(&of);
            let changed = !step::is_there(&socket, &text)?;
            let lost = restart::is_lost(&state, &of, mode(args.dry_run)).await;
            let moves = state.is_listening() && (changed || lost);
            (!step::is_there(&service, &service_text)?, moves)
        }
        // It is loaded anew whatever changed.
        ServiceState::Launchd(_) => (false, state.is_listening()),
    };
    let mut steps = match &state {
        ServiceState::Systemd(_) if moves => moved(&state, &of),
        _ => Vec::new(),
    };
    steps.extend(match &state {
        ServiceState::Systemd(_) => systemd::install(&of),
        ServiceState::Launchd(_) => launchd::install(&of),
    });
    let restarts = !moves && changed && state.pid().is_some() && state.is_listening();
    if !restarts && matches!(state, ServiceState::Systemd(_)) {
        steps.extend(systemd::start());
    }
    if args.dry_run {
        if moves {
            restart::show_drain(&state, restart::DEADLINE)?;
        }
        step::perform(&steps, Mode::Show)?;
        if restarts {
            restart::show(&state, &of, restart::DEADLINE)?;
        }
        return Ok(Exit::Done);
    }
    // What it stops may end its turns first.
    let quiet = match moves {
        true => restart::drained(&state, &of, restart::DEADLINE).await?,
        false => Quiet::Silent,
    };
    if matches!(quiet, Quiet::Interrupted) {
        return Ok(Exit::Interrupted);
    }
    let done = step::perform(&steps, Mode::Do);
    drop(quiet);
    if done.is_err() && moves {
        drain::undrain(Some(&state.socket(&of))).await;
    }
    done?;
    if restarts && restart::gently(&of, restart::DEADLINE).await? == Left::Interrupted {
        return Ok(Exit::Interrupted);
    }
    verify(&of.socket).await?;
    notes(&of, &state);
    Ok(Exit::Done)
}

/// Where it listens can't change while it does.
fn moved(state: &ServiceState, of: &Installation) -> Vec<Step> {
    let before = state.socket(of);
    let mut steps = state.stop(of);
    if before != of.socket {
        steps.extend(state.alias().map(|path| Step::RemoveLink {
            path,
            target: before.clone(),
        }));
        steps.push(Step::RemoveSocket(before));
    }
    steps
}

/// What an installation can't do by itself.
fn notes(of: &Installation, state: &ServiceState) {
    if !of.withheld.is_empty() {
        output::note(&format!(
            "{} holds a password, which is not written into a unit: the service's agents do \
             without it",
            of.withheld.join(", ")
        ));
    }
    if let Some(alias) = &of.alias
        && std::fs::symlink_metadata(alias).is_ok()
        && std::fs::read_link(alias).ok().as_ref() != Some(&of.socket)
    {
        output::note(&format!(
            "`{}` is something else and stays: who connects there doesn't reach agentd",
            alias.display()
        ));
    }
    if matches!(state, ServiceState::Systemd(_)) && !systemd::lingers() {
        output::note(
            "the service ends with your last session; `loginctl enable-linger` keeps it, and \
             starts it with the machine",
        );
    }
}

fn uninstall(args: ServiceChangeArgs) -> Done<Exit> {
    let state = Manager::ask()?;
    let of = state.placed(Installation::known()?);
    let socket = state.socket(&of);
    let mut steps = match &state {
        ServiceState::Systemd(state) => systemd::uninstall(&of, state),
        ServiceState::Launchd(_) => launchd::uninstall(&of),
    };
    // As it was installed; else what the configuration says, if it can be read.
    let configured = || installation::alias(&of.program).ok().flatten();
    // A daemon by hand has a link of its own.
    if state.is_installed(&of)
        && let Some(path) = state.alias().or_else(configured)
    {
        let target = socket.clone();
        steps.push(Step::RemoveLink { path, target });
    }
    steps.push(Step::RemoveSocket(socket.clone()));
    // A directory of this name was made for the socket; another may be the user's own.
    if let Some(dir) = socket.parent().filter(|dir| dir.ends_with("agentd")) {
        steps.push(Step::RemoveDir(dir.to_owned()));
    }
    step::perform(&steps, mode(args.dry_run))?;
    if !args.dry_run {
        output::note("what was stored and configured is still there");
        for dir in systemd::drop_ins(&of) {
            output::note(&format!(
                "`{}` is yours and stays: it holds for the next installation, too",
                dir.display()
            ));
        }
    }
    Ok(Exit::Done)
}

async fn start(args: ServiceChangeArgs) -> Done<Exit> {
    let (of, state) = installed()?;
    let ran = state.pid().is_some();
    step::perform(&state.reload(), mode(args.dry_run))?;
    if restart::is_lost(&state, &of, mode(args.dry_run)).await {
        step::perform(&state.stop(&of), mode(args.dry_run))?;
    }
    step::perform(&state.start(&of), mode(args.dry_run))?;
    if !args.dry_run {
        let mut client = verify(&state.socket(&of)).await?;
        if !ran {
            cut_off::tell(&mut client).await;
        }
    }
    Ok(Exit::Done)
}

async fn status(args: &JsonArgs) -> Done<Exit> {
    let (of, state) = match installed() {
        Err(trouble) if args.json => {
            let (error, hint, exit) = trouble.words();
            // Whoever could not be asked did not say so.
            let installed = matches!(trouble, Trouble::NotInstalled).then_some(false);
            let told = json!({
                "type": "service.status", "installed": installed, "error": error, "hint": hint,
            });
            output::out_json(&told.to_string())?;
            return Ok(exit);
        }
        found => found?,
    };
    // Asks only a daemon that runs: a question would start one that doesn't.
    let looked = match state.pid() {
        None => None,
        Some(_) => {
            let environment = Environment::of_process();
            let endpoint = LocalEndpoint::find(Some(&state.socket(&of)), &environment);
            Some(health::look(&endpoint, "agentctl").await)
        }
    };
    let exit = match &looked {
        None => Exit::Unreachable,
        Some(Ok(_)) => Exit::Done,
        Some(Err(unwell)) => exit::of_unwell(unwell),
    };
    if args.json {
        let daemon = match &looked {
            None => json!({"state": "down"}),
            Some(Ok(healthy)) => json!({
                "state": healthy.answer.state, "version": healthy.answer.daemon.version,
                "details": healthy.answer.details,
            }),
            Some(Err(unwell)) => json!({
                "state": unwell.name(), "error": unwell.to_string(), "hint": unwell.hint(),
            }),
        };
        let mut told = json!({"type": "service.status", "installed": true, "daemon": daemon});
        if let (Some(told), Value::Object(facts)) = (told.as_object_mut(), state.facts()) {
            told.extend(facts);
        }
        output::out_json(&told.to_string())?;
        return Ok(exit);
    }
    for line in state.lines() {
        output::out_line(&line)?;
    }
    let details = match looked {
        None if state.is_listening() => "is not running; the next connection starts it".to_owned(),
        None => "is not running; `agentctl service start` starts it".to_owned(),
        Some(Ok(healthy)) => healthy.answer.details,
        Some(Err(unwell)) => match unwell.hint() {
            Some(hint) => format!("{unwell}; {hint}"),
            None => unwell.to_string(),
        },
    };
    output::out_line(&format!("daemon    {}", output::safe(&details)))?;
    Ok(exit)
}

/// Becomes the program that shows the log.
fn logs(args: ServiceLogsArgs) -> Done<Exit> {
    let words = match Manager::HERE {
        Manager::Systemd => {
            let _there = Manager::ask()?;
            systemd::logs(args.follow, args.lines)
        }
        Manager::Launchd => {
            let of = Installation::known()?;
            let state = Environment::of_process().state_dir();
            let state = state.unwrap_or_else(|| of.home.clone());
            launchd::logs(&of, &state, args.follow, args.lines)
        }
    };
    let (program, rest) = words.split_first().ok_or(Trouble::NotInstalled)?;
    let source = Command::new(program).args(rest).exec();
    let program = program.clone();
    Err(Failed::NoProgram { program, source }.into())
}

/// Says who answers.
async fn verify(socket: &Path) -> Done<Client> {
    let client = ask::connect(Some(socket)).await.map_err(Trouble::Silent)?;
    let (version, pid) = (&client.hello.version, client.hello.pid);
    output::out_line(&format!(
        "answers  agentd {} (pid {pid}) on {}",
        output::safe(version),
        socket.display()
    ))?;
    if *version != env!("CARGO_PKG_VERSION") {
        output::note(concat!(
            "this is agentctl ",
            env!("CARGO_PKG_VERSION"),
            "; `agentctl service restart` starts the daemon that is installed with it"
        ));
    }
    Ok(client)
}
