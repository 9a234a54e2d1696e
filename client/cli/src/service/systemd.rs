//! The user's systemd: units, and the commands that make it use them.
//!
//! Owns how paths and variables are written into units, and what `systemctl show` says. Must not
//! know when a step is right.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::installation::Installation;
use super::packaged;
use super::step::{Failed, Step, ask};
use super::timer;

pub(super) const SOCKET_UNIT: &str = "agentd.socket";
pub(super) const SERVICE_UNIT: &str = "agentd.service";
const HTTP_UNIT: &str = "agentd-http.service";
const SOCKET_TEMPLATE: &str = include_str!("../../../../packaging/systemd/agentd.socket");
const SERVICE_TEMPLATE: &str = include_str!("../../../../packaging/systemd/agentd.service");
/// Where logind notes whose services outlive their sessions.
const LINGERING: &str = "/var/lib/systemd/linger";

/// The words of one call.
pub(super) fn systemctl(words: &[&str]) -> Vec<String> {
    let all = ["systemctl", "--user"].iter().chain(words);
    all.map(|word| (*word).to_owned()).collect()
}

/// The units with their paths.
pub(super) fn units(of: &Installation) -> [(PathBuf, String); 2] {
    let dir = unit_dir(of);
    let socket = SOCKET_TEMPLATE
        .replace("@SOCKET@", &socket(of))
        .replace("@SYMLINKS@", &symlinks(of));
    let service = SERVICE_TEMPLATE
        .replace("@PROGRAM@", &quoted(&shown(&of.program)))
        .replace("@ENVIRONMENT@", &environment(of));
    [
        (dir.join(SOCKET_UNIT), socket),
        (dir.join(SERVICE_UNIT), service),
    ]
}

pub(super) fn unit_dir(of: &Installation) -> PathBuf {
    of.config_home.join("systemd/user")
}

pub(super) fn socket(of: &Installation) -> String {
    escaped(&shown(&of.socket))
}

pub(super) fn symlinks(of: &Installation) -> String {
    let alias = of.alias.as_deref();
    let line = alias.map(|alias| format!("Symlinks={}", quoted(&shown(alias))));
    line.unwrap_or_default()
}

pub(super) fn environment(of: &Installation) -> String {
    let lines = of
        .environment
        .iter()
        .map(|(name, value)| format!("Environment={}", quoted(&format!("{name}={value}"))));
    lines.collect::<Vec<_>>().join("\n")
}

/// The user's own files, the socket's first: both units, or what is added to a package's.
pub(super) fn files(of: &Installation) -> [(PathBuf, String); 2] {
    if packaged::run(&of.program) {
        packaged::additions(of)
    } else {
        units(of)
    }
}

/// From files to a service that is started at login, now and after a crash.
pub(super) fn install(of: &Installation) -> Vec<Step> {
    // Units of the user's own would hide those of a package, whatever its version.
    let mut steps = if packaged::run(&of.program) {
        units(of).map(|(path, _)| Step::Remove(path)).to_vec()
    } else {
        remove_additions(of)
    };
    let files = files(of).into_iter().chain(timer::files(of));
    steps.extend(files.map(|(path, text)| Step::Write { path, text }));
    steps.push(Step::Run(systemctl(&["daemon-reload"])));
    // Not `enable`: there may be links to units that are gone.
    steps.push(Step::Run(systemctl(&[
        "reenable",
        SOCKET_UNIT,
        SERVICE_UNIT,
    ])));
    steps.extend(timer::start(of));
    steps
}

/// As `reenable` left it.
pub(super) fn is_enabled(of: &Installation) -> bool {
    let wanted = unit_dir(of).join("sockets.target.wants");
    std::fs::symlink_metadata(wanted.join(SOCKET_UNIT)).is_ok()
}

fn remove_additions(of: &Installation) -> Vec<Step> {
    let mut steps = Vec::new();
    for (path, _) in packaged::additions(of) {
        let dir = path.parent().map(Path::to_owned);
        steps.push(Step::Remove(path));
        // It stays when the user has something there.
        steps.extend(dir.map(Step::RemoveDir));
    }
    steps
}

pub(super) fn start() -> Vec<Step> {
    vec![
        Step::Try(systemctl(&["reset-failed", SOCKET_UNIT, SERVICE_UNIT])),
        Step::Run(systemctl(&["start", SOCKET_UNIT, SERVICE_UNIT])),
    ]
}

/// Both at once: a socket that stays would start the service again.
pub(super) fn stop() -> Vec<Step> {
    vec![Step::Run(systemctl(&["stop", SOCKET_UNIT, SERVICE_UNIT]))]
}

/// Without asking the daemon first.
pub(super) fn restart_hard() -> Vec<Step> {
    vec![
        Step::Try(systemctl(&["reset-failed", SOCKET_UNIT, SERVICE_UNIT])),
        Step::Run(systemctl(&["start", SOCKET_UNIT])),
        Step::Run(systemctl(&["restart", SERVICE_UNIT])),
    ]
}

pub(super) fn uninstall(of: &Installation, state: &UnitsState) -> Vec<Step> {
    let mut steps = timer::stop();
    // Only a package brings it, and only its user enables it. It would start the daemon.
    steps.push(Step::Try(systemctl(&["disable", "--now", HTTP_UNIT])));
    if state.is_installed() {
        steps.extend(stop());
        steps.push(Step::Run(systemctl(&[
            "disable",
            SOCKET_UNIT,
            SERVICE_UNIT,
        ])));
    }
    for (path, _) in units(of) {
        steps.push(Step::RemoveKept(path.clone()));
        steps.push(Step::Remove(path));
    }
    steps.extend(remove_additions(of));
    steps.extend(timer::remove(of));
    steps.push(Step::Run(systemctl(&["daemon-reload"])));
    steps.push(Step::Try(systemctl(&[
        "reset-failed",
        SOCKET_UNIT,
        SERVICE_UNIT,
    ])));
    steps
}

/// What the user added to the units, which is theirs.
pub(super) fn drop_ins(of: &Installation) -> Vec<PathBuf> {
    let dirs = units(of).map(|(path, _)| {
        let mut name = path.into_os_string();
        name.push(".d");
        PathBuf::from(name)
    });
    let is_used =
        |dir: &PathBuf| std::fs::read_dir(dir).is_ok_and(|mut found| found.next().is_some());
    dirs.into_iter().filter(is_used).collect()
}

/// What follows the service's log.
pub(super) fn logs(follow: bool, lines: u32) -> Vec<String> {
    let mut words = vec![
        "journalctl".to_owned(),
        "--user".to_owned(),
        format!("--unit={SERVICE_UNIT}"),
        format!("--lines={lines}"),
    ];
    words.extend(follow.then(|| "--follow".to_owned()));
    words
}

/// What the manager says of both units.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct UnitsState {
    /// Where the manager looks for the user's units, when it isn't `~/.config`.
    config_home: Option<PathBuf>,
    service: BTreeMap<String, String>,
    socket: BTreeMap<String, String>,
}

impl UnitsState {
    /// Asks the manager; fails when there is none.
    pub(super) fn ask() -> Result<Self, Failed> {
        let environment = ask(&systemctl(&["show-environment"]))?;
        let properties = "--property=LoadState,FragmentPath,ActiveState,SubState,Result,MainPID,NRestarts,\
                          UnitFileState,NeedDaemonReload,StatusText,Listen,Symlinks,ActiveEnterTimestamp";
        let shown = ask(&systemctl(&["show", properties, SERVICE_UNIT, SOCKET_UNIT]))?;
        let (service, socket) = shown.split_once("\n\n").unwrap_or((&shown, ""));
        Ok(Self {
            config_home: config_home(&environment),
            service: properties_of(service),
            socket: properties_of(socket),
        })
    }

    pub(super) const fn config_home(&self) -> Option<&PathBuf> {
        self.config_home.as_ref()
    }

    /// The link to the socket, as it was installed.
    pub(super) fn alias(&self) -> Option<PathBuf> {
        let alias = PathBuf::from(self.socket("Symlinks"));
        alias.is_absolute().then_some(alias)
    }

    fn service(&self, name: &str) -> &str {
        self.service.get(name).map_or("", String::as_str)
    }

    fn socket(&self, name: &str) -> &str {
        self.socket.get(name).map_or("", String::as_str)
    }

    /// A package's units are there for every user; only who enabled or started them has the service.
    pub(super) fn is_installed(&self) -> bool {
        let both = [&self.service, &self.socket];
        let says = |unit: &&BTreeMap<String, String>, name: &str, value: &str| {
            unit.get(name).is_some_and(|found| found == value)
        };
        let packaged = Path::new(self.service("FragmentPath")).starts_with("/usr");
        both.iter().all(|unit| says(unit, "LoadState", "loaded"))
            && (!packaged
                || both.iter().any(|unit| {
                    says(unit, "UnitFileState", "enabled") || says(unit, "ActiveState", "active")
                }))
    }

    /// What a package's upgrade asks for, which changes the units of managers that run.
    pub(super) fn reload(&self) -> Vec<Step> {
        let changed =
            self.service("NeedDaemonReload") == "yes" || self.socket("NeedDaemonReload") == "yes";
        let reload = changed.then(|| Step::Run(systemctl(&["daemon-reload"])));
        reload.into_iter().collect()
    }

    /// Does the socket wait, or the service run?
    pub(super) fn is_listening(&self) -> bool {
        self.socket("ActiveState") == "active"
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self.service("ActiveState"), "active" | "reloading")
    }

    /// The daemon's process, while there is one.
    pub(super) fn pid(&self) -> Option<u32> {
        let pid = self.service("MainPID").parse().ok();
        pid.filter(|pid| *pid != 0)
    }

    /// Where the installed socket is.
    pub(super) fn listens_at(&self) -> Option<PathBuf> {
        let at = self.socket("Listen").strip_suffix(" (Stream)")?;
        Some(PathBuf::from(at))
    }

    /// For programs: what the manager says of both units.
    pub(super) fn facts(&self) -> Value {
        json!({
            "manager": "systemd",
            "service": self.service("ActiveState"),
            "sub_state": self.service("SubState"),
            "result": self.service("Result"),
            "pid": self.pid(),
            "restarts": self.service("NRestarts").parse::<u64>().ok(),
            "socket": self.socket("ActiveState"),
            "listens_at": self.listens_at(),
            "at_login": self.service("UnitFileState") == "enabled",
            "lingers": lingers(),
            "needs_reload": self.service("NeedDaemonReload") == "yes",
        })
    }

    /// For people, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut service = format!(
            "service   {} ({})",
            self.service("ActiveState"),
            self.service("SubState")
        );
        if let Some(pid) = self.pid() {
            service.push_str(&format!(", pid {pid}"));
        }
        if self.is_serving() {
            service.push_str(&format!(" since {}", self.service("ActiveEnterTimestamp")));
        }
        match self.service("Result") {
            "" | "success" => {}
            result => service.push_str(&format!(", ended with {result}")),
        }
        match self.service("NRestarts") {
            "" | "0" => {}
            times => service.push_str(&format!(", restarted {times} times")),
        }
        let at = self.listens_at();
        let socket = format!(
            "socket    {} ({}), {}",
            self.socket("ActiveState"),
            self.socket("SubState"),
            at.map_or_else(|| "?".to_owned(), |at| at.display().to_string()),
        );
        let at_login = format!(
            "at login  {}; {}",
            match self.service("UnitFileState") {
                "enabled" => "started",
                _ => "not started: `agentctl service install` changes that",
            },
            match lingers() {
                true => "lingering is on: it outlives your sessions",
                false =>
                    "lingering is off: it ends with your last session; \
                     `loginctl enable-linger` keeps it",
            }
        );
        let mut lines = vec![service, socket, at_login];
        if self.service("Result") == "start-limit-hit" || self.socket("Result") != "success" {
            lines.push(
                "          it failed too often: `agentctl service logs` says why, \
                 `agentctl service start` begins anew"
                    .to_owned(),
            );
        }
        if self.service("NeedDaemonReload") == "yes" {
            lines.push(
                "          its unit changed since: `systemctl --user daemon-reload`".to_owned(),
            );
        }
        lines
    }
}

/// Do the user's services outlive the last session?
pub(super) fn lingers() -> bool {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    let user = user.ok().flatten();
    user.is_some_and(|user| Path::new(LINGERING).join(user.name).exists())
}

/// The manager's own variable counts, not this shell's.
fn config_home(environment: &str) -> Option<PathBuf> {
    let value = |line: &str| line.strip_prefix("XDG_CONFIG_HOME=").map(PathBuf::from);
    let home = environment.lines().find_map(value);
    home.filter(|home| home.is_absolute())
}

fn properties_of(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A value that is taken as it stands, but for `%`.
fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

/// One word of a value that is a list of words.
pub(super) fn quoted(text: &str) -> String {
    let text = escaped(text).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation() -> Installation {
        Installation::example()
    }

    #[test]
    fn units_hold_paths_and_variables_as_systemd_reads() {
        let [(socket_path, socket), (service_path, service)] = units(&installation());
        assert_eq!(
            socket_path,
            Path::new("/h/.config/systemd/user/agentd.socket")
        );
        assert_eq!(
            service_path,
            Path::new("/h/.config/systemd/user/agentd.service")
        );
        for line in [
            "ListenStream=/run/user/1000/agentd/agentd.sock",
            "Symlinks=\"/tmp/timmy.sock\"",
            "SocketMode=0600",
        ] {
            assert!(
                socket.lines().any(|found| found == line),
                "{line}\n{socket}"
            );
        }
        for line in [
            "ExecStart=\"/opt/my agents/50%%/agentd\"",
            "Environment=\"PATH=/a \\\"b\\\"\\\\c:/usr/bin\"",
            "Type=notify",
        ] {
            assert!(
                service.lines().any(|found| found == line),
                "{line}\n{service}"
            );
        }
        for text in [&socket, &service] {
            assert!(!text.contains('@') || !text.contains("@PROGRAM"), "{text}");
            assert!(!text.contains("@SOCKET@") && !text.contains("@ENVIRONMENT@"));
        }
    }

    #[test]
    fn without_an_alias_there_is_no_link() {
        let installation = Installation {
            alias: None,
            ..installation()
        };
        let [(_, socket), _] = units(&installation);
        assert!(!socket.contains("Symlinks"), "{socket}");
    }

    #[test]
    fn what_systemctl_shows_is_read() {
        let state = UnitsState {
            config_home: None,
            service: properties_of(
                "LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=start-limit-hit\n\
                 MainPID=0\nNRestarts=9\nUnitFileState=enabled\nNeedDaemonReload=no\n",
            ),
            socket: properties_of(
                "LoadState=loaded\nActiveState=failed\nSubState=failed\n\
                 Result=service-start-limit-hit\nListen=/run/a b.sock (Stream)\n",
            ),
        };
        assert!(state.is_installed() && !state.is_serving() && !state.is_listening());
        assert_eq!(state.pid(), None);
        assert_eq!(state.listens_at(), Some("/run/a b.sock".into()));
        let text = state.lines().join("\n");
        for part in [
            "start-limit-hit",
            "restarted 9 times",
            "service start` begins anew",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!UnitsState::default().is_installed());
    }

    #[test]
    fn units_of_a_package_are_extended_for_users() {
        let [(path, socket), (_, service)] = packaged::additions(&installation());
        assert_eq!(
            path,
            Path::new("/h/.config/systemd/user/agentd.socket.d/agentctl.conf")
        );
        let listens = "\nListenStream=\nListenStream=/run/user/1000/agentd/agentd.sock\n\
                       Symlinks=\nSymlinks=\"/tmp/timmy.sock\"\n";
        assert!(socket.contains(listens), "{socket}");
        assert!(!service.contains("ExecStart"), "{service}");
        assert!(service.contains("\nEnvironment=\"PATH=/a "), "{service}");
    }

    #[test]
    fn service_is_there_when_its_socket_is_enabled() {
        let dir = tempfile::tempdir().unwrap();
        let of = Installation {
            config_home: dir.path().to_owned(),
            ..installation()
        };
        assert!(!is_enabled(&of));
        let wanted = unit_dir(&of).join("sockets.target.wants");
        std::fs::create_dir_all(&wanted).unwrap();
        std::os::unix::fs::symlink("/nowhere", wanted.join(SOCKET_UNIT)).unwrap();
        assert!(is_enabled(&of));
    }

    #[test]
    fn the_managers_own_directory_of_units_counts() {
        let found = |text: &str| config_home(text);
        let said = "HOME=/h\nXDG_CONFIG_HOME=/h/c\nPATH=/bin\n";
        assert_eq!(found(said), Some("/h/c".into()));
        assert_eq!(found("XDG_CONFIG_HOME=c\n"), None);
        assert_eq!(found("HOME=/h\n"), None);
    }

    #[test]
    fn nothing_of_the_sockets_unit_removes_a_file() {
        // With it systemd replaces whatever stands where the link is to be.
        assert!(!SOCKET_TEMPLATE.contains("RemoveOnStop"));
    }

    #[test]
    fn units_of_a_package_count_when_in_use() {
        let unit = |more: &str| {
            properties_of(&format!(
                "LoadState=loaded\nFragmentPath=/usr/lib/systemd/user/x\n{more}"
            ))
        };
        let with = |service: &str, socket: &str| UnitsState {
            config_home: None,
            service: unit(service),
            socket: unit(socket),
        };
        let idle = "UnitFileState=disabled\nActiveState=inactive\n";
        assert!(!with(idle, idle).is_installed());
        assert!(with(idle, "UnitFileState=enabled\n").is_installed());
        assert!(with(idle, "ActiveState=active\n").is_installed());
    }

    #[test]
    fn units_that_an_upgrade_changed_are_read_again() {
        let with = |service: &str, socket: &str| UnitsState {
            config_home: None,
            service: properties_of(&format!("NeedDaemonReload={service}\n")),
            socket: properties_of(&format!("NeedDaemonReload={socket}\n")),
        };
        let reload = [Step::Run(systemctl(&["daemon-reload"]))];
        assert_eq!(with("no", "no").reload(), []);
        assert_eq!(with("yes", "no").reload(), reload);
        assert_eq!(with("no", "yes").reload(), reload);
    }

    #[test]
    fn what_is_not_installed_is_not_stopped() {
        let steps = uninstall(&installation(), &UnitsState::default());
        let stops =
            |step: &Step| matches!(step, Step::Run(words) if words.contains(&"stop".to_owned()));
        assert!(!steps.iter().any(stops), "{steps:?}");
    }
}
