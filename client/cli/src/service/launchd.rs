//! macOS: the property list, and the commands that make launchd use it. Never run on a Mac.
//!
//! Owns how paths and variables are written into the list, and what `launchctl print` says. Must
//! not know when a step is right.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::installation::Installation;
use super::step::{Failed, Step, ask};

const LABEL: &str = "local.agentd";
/// Delivers speech that waits, each minute.
const FLUSH: &str = "local.agentd.voice-flush";
const TEMPLATE: &str = include_str!("../../../../packaging/launchd/agentd.plist");
const FLUSH_TEMPLATE: &str = include_str!("../../../../packaging/launchd/agentd-voice-flush.plist");

/// The words of one call.
fn launchctl(words: &[&str]) -> Vec<String> {
    let all = ["launchctl"].iter().chain(words);
    all.map(|word| (*word).to_owned()).collect()
}

fn domain(uid: u32) -> String {
    format!("gui/{uid}")
}

fn agent(uid: u32, label: &str) -> String {
    format!("gui/{uid}/{label}")
}

fn service(uid: u32) -> String {
    agent(uid, LABEL)
}

/// Is there a session to which launchd can add an agent? Over ssh, without a login, there is none.
pub(super) fn is_there(uid: u32) -> Result<(), Failed> {
    ask(&launchctl(&["print", &domain(uid)])).map(drop)
}

pub(super) fn file(of: &Installation) -> PathBuf {
    file_of(of, LABEL)
}

fn file_of(of: &Installation, label: &str) -> PathBuf {
    of.home.join(format!("Library/LaunchAgents/{label}.plist"))
}

/// What the daemon could not log: it keeps its log in the state directory.
fn log(of: &Installation) -> PathBuf {
    of.home.join("Library/Logs/agentd.log")
}

fn environment(of: &Installation) -> String {
    let environment = of.environment.iter().map(|(name, value)| {
        format!(
            "\t\t<key>{}</key>\n\t\t<string>{}</string>",
            escaped(name),
            escaped(value)
        )
    });
    environment.collect::<Vec<String>>().join("\n")
}

fn flush_list(of: &Installation) -> String {
    FLUSH_TEMPLATE
        .replace("@ENVIRONMENT@", &environment(of))
        .replace("@AGENTCTL@", &escaped(&shown(&of.control)))
}

pub(super) fn list(of: &Installation) -> String {
    TEMPLATE
        .replace("@ENVIRONMENT@", &environment(of))
        .replace("@PROGRAM@", &escaped(&shown(&of.program)))
        .replace("@SOCKET@", &escaped(&shown(&of.socket)))
        .replace("@LOG@", &escaped(&shown(&log(of))))
}

/// A list that is loaded is not read again, so it is taken out first.
pub(super) fn install(of: &Installation) -> Vec<Step> {
    let service = service(of.uid);
    let dir = of.socket.parent().map(Path::to_owned);
    let mut steps: Vec<Step> = dir.into_iter().map(Step::PrivateDir).collect();
    for (label, text) in [(LABEL, list(of)), (FLUSH, flush_list(of))] {
        let path = file_of(of, label);
        steps.push(Step::Write { path, text });
        steps.extend(unload(of.uid, label));
    }
    steps.push(Step::Run(launchctl(&["enable", &service])));
    steps.extend(start(of, &JobState::default()));
    steps.push(Step::Run(launchctl(&["enable", &agent(of.uid, FLUSH)])));
    steps.push(load(of, FLUSH));
    steps
}

fn load(of: &Installation, label: &str) -> Step {
    let path = shown(&file_of(of, label));
    Step::Run(launchctl(&["bootstrap", &domain(of.uid), &path]))
}

/// What is on its way out can't be loaded again, and `bootout` doesn't wait for it.
fn unload(uid: u32, label: &str) -> [Step; 2] {
    let agent = agent(uid, label);
    [
        Step::Try(launchctl(&["bootout", &agent])),
        Step::UntilFails(launchctl(&["print", &agent])),
    ]
}

pub(super) fn start(of: &Installation, state: &JobState) -> Vec<Step> {
    let load = (!state.is_listening()).then(|| load(of, LABEL));
    let mut steps: Vec<Step> = load.into_iter().collect();
    steps.push(Step::Run(launchctl(&["kickstart", &service(of.uid)])));
    steps
}

/// Out of launchd, the socket with it; the list stays.
pub(super) fn stop(of: &Installation, state: &JobState) -> Vec<Step> {
    let unload = state.is_listening().then(|| unload(of.uid, LABEL));
    unload.into_iter().flatten().collect()
}

/// Without asking the daemon first.
pub(super) fn restart_hard(of: &Installation) -> Vec<Step> {
    vec![Step::Run(launchctl(&["kickstart", "-k", &service(of.uid)]))]
}

pub(super) fn uninstall(of: &Installation) -> Vec<Step> {
    let of_one = |label: &str| {
        [
            Step::Try(launchctl(&["bootout", &agent(of.uid, label)])),
            Step::RemoveKept(file_of(of, label)),
            Step::Remove(file_of(of, label)),
        ]
    };
    [FLUSH, LABEL].into_iter().flat_map(of_one).collect()
}

/// What shows, or follows, the daemon's log and what it could not log.
pub(super) fn logs(of: &Installation, state: &Path, follow: bool, lines: u32) -> Vec<String> {
    let mut words = vec!["tail".to_owned(), "-n".to_owned(), lines.to_string()];
    words.extend(follow.then(|| "-F".to_owned()));
    words.extend([shown(&log(of)), shown(&state.join("agentd.log"))]);
    words
}

/// What launchd says of the agent; nothing when it isn't loaded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct JobState {
    printed: Option<String>,
}

impl JobState {
    pub(super) fn ask(uid: u32) -> Result<Self, Failed> {
        match ask(&launchctl(&["print", &service(uid)])) {
            Ok(printed) => Ok(Self {
                printed: Some(printed),
            }),
            Err(Failed::Command { .. }) => Ok(Self::default()),
            Err(other) => Err(other),
        }
    }

    /// Launchd listens for everything that is loaded.
    pub(super) const fn is_listening(&self) -> bool {
        self.printed.is_some()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        let printed = self.printed.as_deref()?;
        let found = |line: &str| line.trim().strip_prefix("pid = ")?.parse().ok();
        printed.lines().find_map(found)
    }

    /// For programs.
    pub(super) fn facts(&self) -> Value {
        let service = match (self.is_listening(), self.pid()) {
            (false, _) => "inactive",
            (true, None) => "waiting",
            (true, Some(_)) => "active",
        };
        json!({"manager": "launchd", "service": service, "pid": self.pid()})
    }

    /// For people, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let pid = self.pid();
        vec![match (self.is_listening(), pid) {
            (false, _) => format!("service   {LABEL} is not loaded"),
            (true, None) => format!("service   {LABEL} is loaded and waits"),
            (true, Some(pid)) => format!("service   {LABEL} runs, pid {pid}"),
        }]
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation() -> Installation {
        Installation {
            program: "/opt/a & b/agentd".into(),
            control: "/opt/a & b/agentctl".into(),
            socket: "/h/Library/Application Support/agentd/agentd.sock".into(),
            alias: Some("/tmp/timmy.sock".into()),
            environment: vec![("PATH".to_owned(), "/opt/<x>/bin:/usr/bin".to_owned())],
            withheld: Vec::new(),
            home: "/h".into(),
            config_home: "/h/.config".into(),
            uid: 501,
        }
    }

    #[test]
    fn launchd_list_is_a_property_list_as_meant() {
        let text = list(&installation());
        let list = plist::Value::from_reader_xml(text.as_bytes()).unwrap();
        let list = list.as_dictionary().unwrap();
        let get = |name: &str| list.get(name).unwrap();
        assert_eq!(get("Label").as_string(), Some(LABEL));
        let arguments = get("ProgramArguments").as_array().unwrap();
        assert_eq!(arguments.len(), 1);
        assert_eq!(arguments[0].as_string(), Some("/opt/a & b/agentd"));
        let inner = |name: &str, key: &str| get(name).as_dictionary().unwrap().get(key).cloned();
        assert_eq!(
            inner("EnvironmentVariables", "PATH"),
            Some("/opt/<x>/bin:/usr/bin".into())
        );
        assert_eq!(
            inner("EnvironmentVariables", "AGENTD_SERVICE"),
            Some("launchd".into())
        );
        assert_eq!(inner("KeepAlive", "SuccessfulExit"), Some(false.into()));
        let socket = inner("Sockets", "agentd").unwrap();
        let socket = socket.as_dictionary().unwrap();
        assert_eq!(
            socket.get("SockPathName").and_then(plist::Value::as_string),
            Some("/h/Library/Application Support/agentd/agentd.sock")
        );
        let mode = socket.get("SockPathMode").unwrap();
        assert_eq!(mode.as_unsigned_integer(), Some(0o600));
        assert!(!text.contains('@'), "{text}");
    }

    #[test]
    fn launchd_log_is_shown_with_what_was_lost() {
        let words = logs(&installation(), Path::new("/h/state"), true, 7);
        assert_eq!(
            words.join(" "),
            "tail -n 7 -F /h/Library/Logs/agentd.log /h/state/agentd.log"
        );
    }

    #[test]
    fn the_commands_name_the_users_own_session() {
        let commands: Vec<String> = install(&installation())
            .into_iter()
            .filter_map(|step| match step {
                Step::Run(words) | Step::Try(words) | Step::UntilFails(words) => {
                    Some(words.join(" "))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            commands,
            [
                "launchctl bootout gui/501/local.agentd",
                "launchctl print gui/501/local.agentd",
                "launchctl bootout gui/501/local.agentd.voice-flush",
                "launchctl print gui/501/local.agentd.voice-flush",
                "launchctl enable gui/501/local.agentd",
                "launchctl bootstrap gui/501 /h/Library/LaunchAgents/local.agentd.plist",
                "launchctl kickstart gui/501/local.agentd",
                "launchctl enable gui/501/local.agentd.voice-flush",
                "launchctl bootstrap gui/501 /h/Library/LaunchAgents/local.agentd.voice-flush.plist",
            ]
        );
    }

    #[test]
    fn launchd_delivers_waiting_speech_each_minute() {
        let text = flush_list(&installation());
        let list = plist::Value::from_reader_xml(text.as_bytes()).unwrap();
        let list = list.as_dictionary().unwrap();
        let get = |name: &str| list.get(name).unwrap();
        assert_eq!(get("Label").as_string(), Some(FLUSH));
        let words = get("ProgramArguments").as_array().unwrap();
        let words: Vec<_> = words.iter().map(|word| word.as_string().unwrap()).collect();
        assert_eq!(words, ["/opt/a & b/agentctl", "voice", "flush"]);
        let path = get("EnvironmentVariables").as_dictionary().unwrap();
        assert_eq!(path.get("PATH"), Some(&"/opt/<x>/bin:/usr/bin".into()));
        assert_eq!(get("StartInterval").as_unsigned_integer(), Some(60));
        assert!(!text.contains('@'), "{text}");
        let removed = uninstall(&installation());
        assert!(removed.contains(&Step::Remove(file_of(&installation(), FLUSH))));
    }

    #[test]
    fn launchd_unloads_nothing_that_is_not_loaded() {
        let of = installation();
        let loaded = JobState {
            printed: Some(String::new()),
        };
        assert_eq!(stop(&of, &JobState::default()), []);
        assert_eq!(stop(&of, &loaded).len(), 2);
        assert_eq!(
            (
                start(&of, &loaded).len(),
                start(&of, &JobState::default()).len()
            ),
            (1, 2)
        );
    }

    #[test]
    fn what_launchctl_prints_is_read() {
        let state = JobState {
            printed: Some("gui/501/local.agentd = {\n\tstate = running\n\tpid = 77\n}".to_owned()),
        };
        assert_eq!(state.pid(), Some(77));
        assert_eq!(JobState::default().pid(), None);
        assert!(!JobState::default().is_listening());
    }
}
