//! What the service manager of this user says about agentd.
//!
//! Owns the words to `systemctl --user` and the meaning of its answer. Must not know what is made of
//! it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use agentd_client::places;

/// The manager answers in some 20 ms; one that hangs must not keep the rest waiting.
const WITHIN: Duration = Duration::from_secs(2);
const SERVICE: &str = "agentd.service";
const SOCKET: &str = "agentd.socket";
const TIMER: &str = "agentd-voice-flush.timer";
const ASKED: &str =
    "--property=Id,LoadState,FragmentPath,ActiveState,UnitFileState,Result,Environment";

/// What there is.
pub(super) enum Manager {
    /// None, or it can't be asked; in words for a person.
    Absent(String),
    /// One that answers.
    There(Units),
}

/// The properties of the service, and whether its socket is active.
#[derive(Default, Debug)]
pub(super) struct Units {
    service: BTreeMap<String, String>,
    socket: BTreeMap<String, String>,
    timer: BTreeMap<String, String>,
    /// `PATH` of whatever it starts.
    path: Option<String>,
    /// The names of the variables that the service would have.
    variables: Vec<String>,
}

impl Manager {
    pub(super) async fn ask() -> Self {
        if cfg!(target_os = "macos") {
            return Self::Absent("launchd is not asked".to_owned());
        }
        let (units, environment) = tokio::join!(
            systemctl(&["show", ASKED, SERVICE, SOCKET, TIMER]),
            systemctl(&["show-environment"])
        );
        match units {
            Err(why) => Self::Absent(why),
            Ok(units) => Self::There(Units::read(&units, &environment.unwrap_or_default())),
        }
    }
}

async fn systemctl(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("systemctl");
    command
        .args(["--user", "--no-pager"])
        .args(words)
        .envs(places::of_manager())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match timeout(WITHIN, command.output()).await {
        Err(_) => Err(format!(
            "`systemctl --user` said nothing within {} s",
            WITHIN.as_secs()
        )),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("there is no `systemctl`".to_owned())
        }
        Ok(Err(error)) => Err(format!("`systemctl` can't be run: {error}")),
        Ok(Ok(printed)) if printed.status.success() => {
            Ok(String::from_utf8_lossy(&printed.stdout).into_owned())
        }
        Ok(Ok(printed)) => {
            let said = String::from_utf8_lossy(&printed.stderr);
            let first = said.lines().next().unwrap_or("it failed");
            Err(format!("`systemctl --user`: {first}"))
        }
    }
}

impl Units {
    fn read(units: &str, environment: &str) -> Self {
        let mut read = Self::default();
        for block in units.split("\n\n") {
            let properties: BTreeMap<String, String> = block
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            match properties.get("Id").map(String::as_str) {
                Some(SERVICE) => read.service = properties,
                Some(SOCKET) => read.socket = properties,
                Some(TIMER) => read.timer = properties,
                _ => {}
            }
        }
        let path = |line: &str| line.strip_prefix("PATH=").map(str::to_owned);
        read.path = environment.lines().find_map(path);
        // The unit's own variables replace the manager's.
        let of_unit = words(read.get("Environment"));
        let of_unit = || of_unit.iter().map(String::as_str);
        read.path = of_unit().find_map(path).or(read.path);
        let pairs = environment.lines().chain(of_unit());
        let names = pairs.filter_map(|pair| Some(pair.split_once('=')?.0));
        read.variables = names.map(str::to_owned).collect();
        read
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.service.get(name).map_or("", String::as_str)
    }

    /// Is there a unit, whoever uses it?
    pub(super) fn is_there(&self) -> bool {
        self.get("LoadState") == "loaded"
    }

    /// A package's units are there for everybody; this user's are those that are enabled or run.
    pub(super) fn is_installed(&self) -> bool {
        let is_enabled = |unit: &BTreeMap<String, String>| {
            unit.get("UnitFileState")
                .is_some_and(|state| state == "enabled")
        };
        let packaged = self.get("FragmentPath").starts_with("/usr");
        let is_used = || {
            let enabled = is_enabled(&self.service) || is_enabled(&self.socket);
            enabled || self.is_active() || self.socket_is_active()
        };
        self.is_there() && (!packaged || is_used())
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(
            self.get("ActiveState"),
            "active" | "activating" | "reloading"
        )
    }

    pub(super) fn is_failed(&self) -> bool {
        self.get("ActiveState") == "failed"
    }

    pub(super) fn socket_is_active(&self) -> bool {
        is_active(&self.socket)
    }

    /// Is speech that waits delivered each minute?
    pub(super) fn timer_is_active(&self) -> bool {
        is_active(&self.timer)
    }

    pub(super) fn variables(&self) -> &[String] {
        &self.variables
    }

    pub(super) fn path(&self) -> Option<OsString> {
        self.path.as_ref().map(OsString::from)
    }
}

/// A list as systemd shows it: what has a blank stands in quotes.
fn words(list: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = list.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => word.extend(chars.next()),
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            char => word.push(char),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn is_active(unit: &BTreeMap<String, String>) -> bool {
    unit.get("ActiveState")
        .is_some_and(|state| state == "active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_of_speech_is_looked_at() {
        let said = |state: &str| format!("Id=agentd-voice-flush.timer\nActiveState={state}\n");
        assert!(Units::read(&said("active"), "").timer_is_active());
        assert!(!Units::read(&said("inactive"), "").timer_is_active());
        assert!(!Units::default().timer_is_active());
    }

    #[test]
    fn a_list_is_read_with_its_quotes() {
        let list = r#""PATH=/h/my bin:/a\\b \"c\"" AGENTD_CGROUP=delegated"#;
        let expected = [r#"PATH=/h/my bin:/a\b "c""#, "AGENTD_CGROUP=delegated"];
        assert_eq!(words(list), expected);
        assert!(words("").is_empty());
    }

    #[test]
    fn service_is_a_packages_units_once_enabled() {
        let with = |path: &str, state: &str| {
            let said = format!(
                "Id={SERVICE}\nLoadState=loaded\nFragmentPath={path}/{SERVICE}\nUnitFileState={state}\n"
            );
            Units::read(&said, "").is_installed()
        };
        assert!(!with("/usr/lib/systemd/user", "disabled"));
        assert!(with("/usr/lib/systemd/user", "enabled"));
        assert!(with("/h/.config/systemd/user", "disabled"));
    }

    #[test]
    fn service_path_of_its_unit_goes_first() {
        let said = "Id=agentd.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nEnvironment=A=1 PATH=/own B=2\n\nId=agentd.socket\nLoadState=loaded\nActiveState=active\n";
        let units = Units::read(said, "HOME=/x\nPATH=/usr/bin:/bin\n");
        assert!(units.is_installed() && !units.is_active() && units.socket_is_active());
        assert_eq!(units.path(), Some("/own".into()));
        assert_eq!(units.variables(), ["HOME", "PATH", "A", "PATH", "B"]);
        let none = "Id=agentd.service\nLoadState=not-found\nActiveState=inactive\nEnvironment=\n";
        let units = Units::read(none, "PATH=/usr/bin:/bin\n");
        assert!(!units.is_installed() && !units.socket_is_active());
        assert_eq!(units.path(), Some("/usr/bin:/bin".into()));
    }
}
