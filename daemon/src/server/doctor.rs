//! What is wrong with the files, the configuration and the store of this user.
//!
//! Owns the list of checks and what each of them repairs when asked to. Starts nothing, and works
//! beside a running daemon. Names of keys are told, values never. Must not know how findings are
//! shown.

mod by_itself;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentd_base::trusted::typed;
use agentd_core::agent::Agent;
use agentd_core::answerers;
use agentd_protocol::doctor::Finding;
use nix::unistd::{AccessFlags, access};

use crate::config::{self, Config, Endpoints, HostEnv, Warning};
use crate::platform::files::Files;
use crate::platform::paths::{self, Paths};
use crate::server::alias::{Action, Alias};
use crate::server::plain_send::PlainSend;
use crate::server::runtime;
use crate::store;
use agentd_base::remote;

/// Less than this and new work is refused before long.
const LITTLE_ROOM: u64 = 100 << 20;
/// Less than this is worth knowing.
const SOME_ROOM: u64 = 1 << 30;
/// Files in the state directory that are looked at; it has a dozen.
const FILES: usize = 1000;
/// A file that is younger than the clock by this was not made by a clock like this one.
const AHEAD: Duration = Duration::from_secs(60);

/// What is looked at, and how.
pub struct Patient {
    /// Where everything is.
    pub paths: Paths,
    /// Is the socket in a directory of agentd's own?
    pub own_directory: bool,
    /// Reads the configuration; the error says why it can't be used.
    pub load: Box<dyn Fn() -> Result<Config, String>>,
    /// What the built-in agent can't read of it.
    pub judge: fn(&Config) -> Option<Warning>,
    /// What this process sees.
    pub look: HostEnv,
    /// `PATH` as the service has it, if that is another one.
    pub service_path: Option<Vec<PathBuf>>,
    /// The names of the service's variables, if it has others than this process.
    pub service_variables: Option<Vec<String>>,
    /// Read the whole store, too.
    pub full: bool,
    /// Tell no more of what the store lost.
    pub accept_loss: bool,
    /// Repair what is safe to repair.
    pub fix: bool,
}

/// The checks of files, in the order of looking.
const OF_FILES: &[fn(&Patient) -> Vec<Finding>] = &[
    directories,
    files,
    disk,
    sqlite,
    losses,
    backups,
    integrity,
    by_itself::webhooks,
    by_itself::schedules,
    clock,
];
/// The checks that need the configuration.
const OF_CONFIG: &[fn(&Patient, &Config) -> Vec<Finding>] = &[alias, warnings, agents, keys];

/// Looks at everything.
#[must_use]
pub fn examine(patient: &Patient) -> Vec<Finding> {
    let mut findings: Vec<Finding> = OF_FILES.iter().flat_map(|check| check(patient)).collect();
    // Only now: a repaired mode may make it readable.
    match (patient.load)() {
        Ok(config) => {
            findings.extend(OF_CONFIG.iter().flat_map(|check| check(patient, &config)));
        }
        Err(error) => {
            let remedy = "correct it; a daemon that runs goes on with what it read";
            findings.push(Finding::problem("config", error, remedy));
        }
    }
    findings
}

fn directories(patient: &Patient) -> Vec<Finding> {
    let paths = &patient.paths;
    let mut dirs = vec![("state", paths.state.as_path())];
    let instances = paths.state.join("instances");
    if instances.exists() {
        dirs.push(("instances", &instances));
    }
    if patient.own_directory {
        dirs.extend(paths.socket.parent().map(|dir| ("runtime", dir)));
    }
    dirs.into_iter()
        .map(|(check, dir)| directory(check, dir, patient.fix))
        .collect()
}

fn directory(check: &str, dir: &Path, fix: bool) -> Finding {
    let shown = dir.display();
    let found = match fs::symlink_metadata(dir) {
        Ok(found) => found,
        Err(_) if fix => {
            return match paths::private_dir(dir) {
                Ok(()) => Finding::fixed(check, format!("`{shown}` was made")),
                Err(error) => Finding::problem(check, error.to_string(), "make it by hand"),
            };
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let found = format!("`{shown}` is not there yet");
            return Finding::warning(check, found, "the daemon makes it at its start");
        }
        Err(error) => {
            let found = format!("`{shown}` can't be looked at: {error}");
            return Finding::problem(check, found, "make it yours, or name another one");
        }
    };
    let ours = nix::unistd::geteuid().as_raw();
    let mode = found.mode() & 0o7777;
    if !found.is_dir() || found.uid() != ours || mode & 0o1000 != 0 {
        let found = if !found.is_dir() {
            format!("`{shown}` is no directory")
        } else if found.uid() != ours {
            format!(
                "`{shown}` belongs to uid {}, not to uid {ours}",
                found.uid()
            )
        } else {
            format!("`{shown}` is shared with other users")
        };
        let remedy = "move it away, or name another one with `AGENTD_STATE_DIR` or `AGENTD_SOCKET`";
        return Finding::problem(check, found, remedy);
    }
    if let Err(error) = access(dir, AccessFlags::W_OK) {
        let found = format!("`{shown}` can't be written: {}", error.desc());
        let remedy = "make it writable, or name another one with `AGENTD_STATE_DIR`";
        return Finding::problem(check, found, remedy);
    }
    if mode == 0o700 {
        return Finding::ok(check, format!("`{shown}` is yours alone"));
    }
    if fix {
        return match paths::private_dir(dir) {
            Ok(()) => Finding::fixed(check, format!("`{shown}` had mode {mode:04o}, now 0700")),
            Err(error) => Finding::problem(check, error.to_string(), "repair it by hand"),
        };
    }
    let found = format!("`{shown}` has mode {mode:04o}, expected 0700");
    Finding::problem(
        check,
        found,
        format!("`agentctl doctor --fix`, or `chmod 700 {shown}`"),
    )
}

/// Files that only the user may read.
fn files(patient: &Patient) -> Vec<Finding> {
    let state = fs::read_dir(&patient.paths.state).into_iter().flatten();
    let names = state.take(FILES).flatten().map(|entry| entry.path());
    let mut wrong = Vec::new();
    let mut private = 0_usize;
    let endpoints = Endpoints::file(&patient.paths.config);
    for file in names.chain([patient.paths.env_file.clone(), endpoints]) {
        let Ok(found) = fs::symlink_metadata(&file) else {
            continue;
        };
        if !found.is_file() {
            continue;
        }
        if found.mode() & 0o077 == 0 {
            private += 1;
        } else {
            wrong.push(open_file(&file, &found, patient.fix));
        }
    }
    if wrong.is_empty() {
        wrong.push(Finding::ok(
            "files",
            format!("{private} files, each yours alone"),
        ));
    }
    wrong
}

fn open_file(file: &Path, found: &fs::Metadata, fix: bool) -> Finding {
    let (shown, mode) = (file.display(), found.mode() & 0o7777);
    let ours = found.uid() == nix::unistd::geteuid().as_raw();
    let what = format!("`{shown}` has mode {mode:04o}: others can read it, expected 0600");
    // With another name it may be shared on purpose, and its mode would change there, too.
    if fix && ours && found.nlink() == 1 {
        let private = fs::Permissions::from_mode(0o600);
        return match fs::set_permissions(file, private) {
            Ok(()) => Finding::fixed("files", format!("`{shown}` had mode {mode:04o}, now 0600")),
            Err(error) => Finding::problem(
                "files",
                format!("{what}: {error}"),
                format!("`chmod 600 {}`", typed(file)),
            ),
        };
    }
    Finding::problem(
        "files",
        what,
        format!("`agentctl doctor --fix`, or `chmod 600 {}`", typed(file)),
    )
}

fn alias(patient: &Patient, config: &Config) -> Vec<Finding> {
    let Some(path) = &config.alias else {
        return vec![Finding::ok("alias", "the configuration wants none")];
    };
    let shown = path.display();
    let alias = Alias::new(path.clone(), patient.paths.socket.clone());
    let is_up = alias.is_served();
    let finding = match alias.planned() {
        Err(error) => Finding::problem(
            "alias",
            format!("`{shown}` can't be looked at: {error}"),
            "look at it",
        ),
        Ok(Action::Keep) if is_up => Finding::ok("alias", format!("`{shown}` leads to the socket")),
        Ok(Action::Create) if is_up => Finding::warning(
            "alias",
            format!("`{shown}` is not there"),
            "the daemon makes it again within a minute",
        ),
        Ok(Action::Create) => Finding::ok("alias", format!("`{shown}` comes with the daemon")),
        Ok(Action::LeaveAlone(why)) => Finding::problem(
            "alias",
            format!("`{shown}` is not ours: {why}; who connects there talks to somebody else"),
            format!(
                "use `agentctl nc` or `nc -U {}` instead; take it away if you can, or set `alias` in \
                 config.toml to another path",
                patient.paths.socket.display()
            ),
        ),
        Ok(Action::Keep | Action::Replace) if patient.fix => match fs::remove_file(path) {
            Ok(()) => Finding::fixed("alias", format!("`{shown}` led nowhere and was removed")),
            Err(error) => {
                Finding::problem("alias", format!("`{shown}` stays: {error}"), "remove it")
            }
        },
        Ok(Action::Keep | Action::Replace) => Finding::warning(
            "alias",
            format!("`{shown}` is a link of yours that leads to no daemon"),
            "`agentctl doctor --fix` removes it; the daemon makes it anew",
        ),
    };
    vec![finding]
}

/// What stands in it and was most likely not meant.
fn warnings(patient: &Patient, config: &Config) -> Vec<Finding> {
    let file = patient.paths.config.display();
    let warnings = config.agents.values().flat_map(|agent| &agent.warnings);
    let mut findings: Vec<Finding> = warnings
        .map(|warning| Finding::warning("config", warning.what.clone(), warning.hint.clone()))
        .collect();
    if let Some(wrong) = (patient.judge)(config) {
        findings.push(Finding::problem("config", wrong.what, wrong.hint));
    }
    if findings.is_empty() {
        let found = if patient.paths.config.exists() {
            format!("`{file}` can be read")
        } else {
            format!("there is no `{file}`, and none is needed")
        };
        findings.push(Finding::ok("config", found));
    }
    findings
}

/// Every agent, as a look at directories shows it: nothing is run.
fn agents(patient: &Patient, config: &Config) -> Vec<Finding> {
    // As the daemon sees them, with who is logged in.
    let agents = runtime::look(config, &patient.paths.state)(&Files::default()).agents;
    let there = agents.iter().map(|(agent, _)| agent);
    let there: Vec<&Agent> = there.filter(|agent| agent.usable.is_ok()).collect();
    let mut findings = vec![ready(&there, patient, config)];
    for (agent, _) in &agents {
        let Err(why) = &agent.usable else { continue };
        // What was only looked for may be missing.
        if config.agents.contains_key(&agent.name) {
            let name = &agent.name;
            let found = format!("`{name}` can't be used: {why}");
            let remedy = format!(
                "mend that or its table in config.toml, or `agentctl agents remove {name}`"
            );
            findings.push(Finding::problem("agents", found, remedy));
        }
    }
    if let Some(path) = &patient.service_path {
        let service = HostEnv {
            path: path.clone(),
            ..patient.look.clone()
        };
        let seen = config::agents(config, &service);
        let usable = |name: &&str| {
            let mut seen = seen.iter().map(|(agent, _)| agent);
            seen.any(|agent| agent.name == *name && agent.usable.is_ok())
        };
        let names = there.iter().map(|agent| agent.name.as_str());
        for name in names.filter(|name| !usable(name)) {
            let found = format!("`{name}` is on your PATH, but not on that of the service");
            let remedy = format!(
                "name its program in config.toml: `agentctl agents add {name} -- \"$(command -v {name})\"`"
            );
            findings.push(Finding::warning("path", found, remedy));
        }
    }
    findings
}

/// Of the agents that are there, those that would answer, and what the others need first.
fn ready(there: &[&Agent], patient: &Patient, config: &Config) -> Finding {
    let waiting = answerers::waiting(there);
    let ready = there.iter().filter(|agent| agent.to_do().is_none());
    let ready: Vec<&str> = ready.map(|agent| agent.name.as_str()).collect();
    let answerer = PlainSend::of(config, &patient.paths.state);
    let default = match answerer.answerer() {
        Some(default) => format!("; without a name `{default}` is asked"),
        None => String::new(),
    };
    if there.is_empty() {
        let remedy = "install one, or put `timmy` beside `agentd`";
        return Finding::problem("agents", "no agent can be used", remedy);
    }
    if ready.is_empty() {
        let remedy = "`agentctl send --agent NAME hello` says how";
        return Finding::warning(
            "agents",
            format!("none is ready: {waiting}{default}"),
            remedy,
        );
    }
    let waiting = match waiting.is_empty() {
        true => waiting,
        false => format!("; not yet: {waiting}"),
    };
    Finding::ok(
        "agents",
        format!("usable: {}{waiting}{default}", ready.join(", ")),
    )
}

/// Which keys agents would get, by their names.
fn keys(patient: &Patient, config: &Config) -> Vec<Finding> {
    let runs = config::agents(config, &patient.look);
    let runs = runs.iter().filter_map(|(_, run)| run.as_ref());
    let mut names: Vec<String> = runs
        .flat_map(|agent| {
            let by_default = config::passes(agent).into_iter().map(str::to_owned);
            by_default.chain(agent.pass_env.iter().cloned())
        })
        .filter(|name| name.contains("KEY") || name.contains("TOKEN"))
        // Of the built-in agent's own providers.
        .chain(config.provider_keys.iter().cloned())
        .collect();
    names.sort();
    names.dedup();
    let mut present = Vec::new();
    let mut findings = Vec::new();
    for name in names {
        let (value, place) = match config.secrets.get(&name) {
            Some(value) => (Some(value.clone()), "the file `env`"),
            None => (std::env::var(&name).ok(), "this shell's environment"),
        };
        match value {
            Some(value) if value.trim().is_empty() => findings.push(Finding::warning(
                "keys",
                format!("`{name}` is set in {place}, to nothing"),
                "give it its value, or take it out",
            )),
            Some(_) if is_shells_alone(patient, config, &name) => findings.push(Finding::warning(
                "keys",
                format!("`{name}` is set in this shell only: the service does not have it"),
                format!("put it into `{}`", patient.paths.env_file.display()),
            )),
            Some(_) => present.push(format!("{name} ({place})")),
            None => {}
        }
    }
    let found = match present.is_empty() {
        true => "none; agents may be logged in by themselves".to_owned(),
        false => present.join(", "),
    };
    findings.push(Finding::ok("keys", found));
    findings
}

/// The service gets what stands in its file, and what it was started with.
fn is_shells_alone(patient: &Patient, config: &Config, name: &String) -> bool {
    let service = patient.service_variables.as_ref();
    !config.secrets.contains_key(name) && service.is_some_and(|names| !names.contains(name))
}

fn disk(patient: &Patient) -> Vec<Finding> {
    let dir = nearest_existing(&patient.paths.state);
    let mut findings = Vec::new();
    let shown = dir.display();
    findings.push(match store::free_bytes(dir) {
        Err(error) => {
            let found = format!("the room in `{shown}` is not known: {error}");
            Finding::warning("disk", found, "look at it")
        }
        Ok(room) if room < LITTLE_ROOM => {
            let found = format!("only {} MiB are free in `{shown}`", room >> 20);
            Finding::problem(
                "disk",
                found,
                "free some room: new work is refused when it is full",
            )
        }
        Ok(room) if room < SOME_ROOM => {
            let found = format!("{} MiB are free in `{shown}`", room >> 20);
            Finding::warning(
                "disk",
                found,
                "`[retention]` in config.toml bounds the store",
            )
        }
        Ok(room) => Finding::ok("disk", format!("{} GiB are free in `{shown}`", room >> 30)),
    });
    if let Some(kind) = remote::file_system(dir) {
        findings.push(Finding::warning(
            "disk",
            format!("`{shown}` is on a file system of kind {kind}, which several machines may use"),
            "set `AGENTD_STATE_DIR` to a local directory",
        ));
    }
    findings
}

fn nearest_existing(dir: &Path) -> &Path {
    dir.ancestors()
        .find(|dir| dir.is_dir())
        .unwrap_or(Path::new("/"))
}

fn sqlite(patient: &Patient) -> Vec<Finding> {
    let seen = match store::inspect(&patient.paths.state) {
        Ok(seen) => seen,
        Err(error) => {
            let found = format!("the store can't be read: {error}");
            return vec![Finding::problem(
                "store",
                found,
                "look at its owner and mode",
            )];
        }
    };
    let sqlite = seen.sqlite;
    let mut findings = vec![if seen.sqlite_is_safe {
        Finding::ok("sqlite", format!("version {sqlite}"))
    } else {
        let found = format!("version {sqlite} may damage its log");
        Finding::problem("sqlite", found, "build agentd with a newer one")
    }];
    findings.push(match seen.tables {
        None => Finding::ok("store", "there is none yet"),
        Some(version) if version as usize > seen.known => Finding::problem(
            "store",
            format!(
                "a newer agentd wrote it: its tables are of form {version}, this one reads up to {}",
                seen.known
            ),
            "install the newer agentd again",
        ),
        // As it stands in the file: the log is the daemon's to read.
        Some(0) => Finding::ok("store", "new; the form of its tables is still in its log"),
        Some(version) => Finding::ok("store", format!("readable (tables of form {version})")),
    });
    findings.extend(seen.kept.iter().map(|kept| {
        Finding::warning(
            "store",
            format!(
                "`{}` is kept of one that was damaged, taken away or replaced",
                kept.display()
            ),
            "take out what you need with `sqlite3`, then delete it",
        )
    }));
    findings
}

fn losses(patient: &Patient) -> Vec<Finding> {
    let state = &patient.paths.state;
    let known = if patient.accept_loss {
        store::accept_losses(state)
    } else {
        store::losses(state)
    };
    match known {
        Ok(losses) if patient.accept_loss => losses
            .into_iter()
            .map(|loss| Finding::fixed("losses", format!("accepted: {loss}")))
            .collect(),
        Ok(losses) => losses
            .into_iter()
            .map(|loss| {
                let remedy = "see what is missing; `agentctl doctor --accept-loss` ends this";
                Finding::problem("losses", loss, remedy)
            })
            .collect(),
        Err(error) => vec![Finding::problem(
            "losses",
            format!("what the store lost can't be read: {error}"),
            "look at `agentd.db.losses` in the state directory",
        )],
    }
}

/// Whoever has no plan hears nothing of it.
fn backups(patient: &Patient) -> Vec<Finding> {
    let (state, remedy) = (
        &patient.paths.state,
        "mend that, or move the file away; the next backup goes by it",
    );
    let lacks = store::backups_lack(state).map(|lacks| Finding::warning("backups", lacks, remedy));
    let planned = || Some(Finding::ok("backups", store::backups_planned(state)?));
    lacks.or_else(planned).into_iter().collect()
}

fn integrity(patient: &Patient) -> Vec<Finding> {
    if !patient.full
        || !matches!(store::inspect(&patient.paths.state), Ok(seen) if seen.tables.is_some())
    {
        return Vec::new();
    }
    vec![match store::check_whole(&patient.paths.state) {
        Ok(()) => Finding::ok("integrity", "the whole store was read and is well"),
        Err(why) => Finding::problem(
            "integrity",
            format!("the store is damaged: {why}"),
            "keep a copy of the state directory; `agentctl export` reads what can be read",
        ),
    }]
}

/// A clock that was set back: times of jobs, and what waits for a time, go by it.
fn clock(patient: &Patient) -> Vec<Finding> {
    let now = SystemTime::now();
    let state = fs::read_dir(&patient.paths.state).into_iter().flatten();
    let times = state
        .take(FILES)
        .flatten()
        .filter_map(|entry| entry.metadata().ok()?.modified().ok());
    let ahead = times
        .max()
        .and_then(|newest| newest.duration_since(now).ok());
    vec![match ahead.filter(|ahead| *ahead > AHEAD) {
        Some(ahead) => Finding::warning(
            "clock",
            format!(
                "the newest file of the state is {} s ahead of it",
                ahead.as_secs()
            ),
            "set the clock; `timedatectl` shows whether it is synchronised",
        ),
        None => Finding::ok("clock", "not behind what was written"),
    }]
}
