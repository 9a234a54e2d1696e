//! What the service manager has to know of this installation.
//!
//! Owns which programs, paths and variables the service is made of. Must not know any service
//! manager.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use agentd_protocol::network;

use super::packaged;
use agentd_client::endpoint::MAX_SOCKET_PATH;
use agentd_client::oneshot;
use agentd_client::places::Environment;

/// Variables of this shell that are the service's, too, besides those of the network: they say where
/// agentd's files are, and how much it logs.
const CARRIED: [&str; 7] = [
    "AGENTD_ALIAS",
    "AGENTD_CONFIG",
    "AGENTD_LOG",
    "AGENTD_SSH_KEY",
    "AGENTD_STATE_DIR",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// Those of them that may be relative to the current directory.
const PATHS: [&str; 3] = ["AGENTD_ALIAS", "AGENTD_CONFIG", "AGENTD_STATE_DIR"];

/// This installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Installation {
    /// The daemon's program.
    pub(super) program: PathBuf,
    /// This one.
    pub(super) control: PathBuf,
    /// Where it is to listen.
    pub(super) socket: PathBuf,
    /// The link to the socket, if there is to be one.
    pub(super) alias: Option<PathBuf>,
    /// The service's variables.
    pub(super) environment: Vec<(String, String)>,
    /// Variables that hold a password, and are not written down.
    pub(super) withheld: Vec<String>,
    pub(super) home: PathBuf,
    /// Where the user's units are.
    pub(super) config_home: PathBuf,
    pub(super) uid: u32,
}

/// Why there is nothing to install.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(super) struct NotInstallable {
    error: String,
    pub(super) hint: &'static str,
}

impl Installation {
    /// As far as it is known without the daemon's program: what may be there, not how it is to be.
    pub(super) fn known() -> Result<Self, NotInstallable> {
        let environment = Environment::of_process();
        let home = environment.home.clone().ok_or_else(|| NotInstallable {
            error: "`HOME` is not set, expected an absolute path".to_owned(),
            hint: "set it",
        })?;
        let named = environment.agentd_socket.clone();
        let (mut program, mut control) = (oneshot::program(), oneshot::sibling("agentctl"));
        // A package's units name them as they are.
        if !packaged::run(&program) {
            (program, control) = (oneshot::lasting(program), oneshot::lasting(control));
        }
        Ok(Self {
            program,
            control,
            socket: named.unwrap_or_else(|| environment.default_socket()),
            alias: None,
            environment: Vec::new(),
            withheld: Vec::new(),
            config_home: home.join(".config"),
            home,
            uid: environment.uid,
        })
    }

    /// As it is to be installed from this shell.
    pub(super) fn find(socket: Option<&Path>) -> Result<Self, NotInstallable> {
        let known = Self::known()?;
        let socket = socket.unwrap_or(&known.socket);
        let socket = std::path::absolute(socket).map_err(|error| NotInstallable {
            error: format!("the socket `{}`: {error}", socket.display()),
            hint: "name it with an absolute path",
        })?;
        let (environment, withheld) = carried(|name| std::env::var_os(name))?;
        let found = Self {
            socket,
            alias: alias(&known.program)?,
            environment,
            withheld,
            ..known
        };
        found.check()?;
        Ok(found)
    }

    /// What can't be written down in a unit is refused, not guessed.
    fn check(&self) -> Result<(), NotInstallable> {
        let length = self.socket.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(NotInstallable {
                error: format!(
                    "the socket's path is {length} bytes, the limit is {MAX_SOCKET_PATH}: `{}`",
                    self.socket.display()
                ),
                hint: "name a shorter one with `--socket` or `AGENTD_SOCKET`",
            });
        }
        let paths = [&self.program, &self.control, &self.socket];
        for path in paths.into_iter().chain(&self.alias) {
            let can_stand = path
                .to_str()
                .is_some_and(|text| !text.contains(|c: char| c.is_control() || c == '$'));
            if !can_stand {
                return Err(NotInstallable {
                    error: format!("`{}` can't stand in a unit", path.display()),
                    hint: "use a path of plain characters",
                });
            }
        }
        Ok(())
    }
}

/// The configuration is the daemon's to read: its own program says where the alias is.
pub(super) fn alias(program: &Path) -> Result<Option<PathBuf>, NotInstallable> {
    let failed = |error: String| NotInstallable {
        error,
        hint: "put `agentd` next to `agentctl`; `agentd config show` has to work",
    };
    let shown = Command::new(program)
        .args(["config", "show", "--json"])
        .output()
        .map_err(|error| failed(format!("can't run `{}`: {error}", program.display())))?;
    if !shown.status.success() {
        let said = String::from_utf8_lossy(&shown.stderr);
        return Err(failed(said.trim().trim_start_matches("error: ").to_owned()));
    }
    let rows: serde_json::Value = serde_json::from_slice(&shown.stdout)
        .map_err(|error| failed(format!("`{}` config show: {error}", program.display())))?;
    let rows = rows.as_array().into_iter().flatten();
    let value = rows
        .filter(|row| row["key"] == "alias")
        .find_map(|row| row["value"].as_str());
    Ok(value.map(PathBuf::from))
}

/// The service's variables, and the names of those that it can't have.
type Carried = (Vec<(String, String)>, Vec<String>);

fn carried(variable: impl Fn(&str) -> Option<OsString>) -> Result<Carried, NotInstallable> {
    let (mut carried, mut withheld) = (Vec::new(), Vec::new());
    for name in CARRIED.into_iter().chain(network::VARIABLES) {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
            continue;
        };
        let value = value
            .into_string()
            .ok()
            .filter(|value| !value.contains(char::is_control));
        let value = value.ok_or_else(|| NotInstallable {
            error: format!("`{name}` can't stand in a unit: expected plain text"),
            hint: "unset it, or set it to another value",
        })?;
        let value = match PATHS.contains(&name) {
            // The service begins elsewhere.
            true => std::path::absolute(&value).map_or(value, |path| path.display().to_string()),
            false => value,
        };
        // `http://user:password@proxy`.
        if name.to_ascii_uppercase().ends_with("_PROXY") && value.contains('@') {
            withheld.push(name.to_owned());
        } else {
            carried.push((name.to_owned(), value));
        }
    }
    carried.push((
        "PATH".to_owned(),
        path(&variable("PATH").unwrap_or_default()),
    ));
    Ok((carried, withheld))
}

/// The directories of `PATH` that are there, each once: agents and what they need are found as in
/// this shell.
fn path(path: &OsString) -> String {
    let mut seen = BTreeSet::new();
    let dirs = std::env::split_paths(path).filter(|dir| dir.is_absolute() && dir.is_dir());
    let dirs = dirs.filter_map(|dir| dir.into_os_string().into_string().ok());
    let dirs: Vec<String> = dirs
        .filter(|dir| !dir.contains(char::is_control) && seen.insert(dir.clone()))
        .collect();
    dirs.join(":")
}

#[cfg(test)]
impl Installation {
    /// With every character that is hard to write down.
    pub(in crate::service) fn example() -> Self {
        Self {
            program: "/opt/my agents/50%/agentd".into(),
            control: "/opt/my agents/50%/agentctl".into(),
            socket: "/run/user/1000/agentd/agentd.sock".into(),
            alias: Some("/tmp/timmy.sock".into()),
            environment: vec![("PATH".to_owned(), "/a \"b\"\\c:/usr/bin".to_owned())],
            withheld: Vec::new(),
            home: "/h".into(),
            config_home: "/h/.config".into(),
            uid: 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_has_only_variables_that_name_files() {
        let variable = |name: &str| match name {
            "PATH" => Some("/usr/bin:relative::/nowhere/at/all:/usr/bin".into()),
            "AGENTD_CONFIG" => Some("/a/config.toml".into()),
            "AGENTD_STATE_DIR" => Some("state".into()),
            "AGENTD_LOG" => Some("".into()),
            "ANTHROPIC_API_KEY" => Some("secret".into()),
            "https_proxy" => Some("http://me:secret@proxy:1".into()),
            "http_proxy" => Some("http://proxy:1".into()),
            _ => None,
        };
        let state = std::env::current_dir().unwrap().join("state");
        let expected = [
            ("AGENTD_CONFIG", "/a/config.toml"),
            ("AGENTD_STATE_DIR", state.to_str().unwrap()),
            ("http_proxy", "http://proxy:1"),
            ("PATH", "/usr/bin"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (carried, withheld) = carried(variable).unwrap();
        assert_eq!(carried, expected);
        assert_eq!(withheld, ["https_proxy"]);
    }

    #[test]
    fn what_cannot_stand_in_a_unit_is_refused() {
        let variable = |name: &str| (name == "AGENTD_STATE_DIR").then(|| "/a\nUser=root".into());
        let refused = carried(variable).unwrap_err();
        assert!(
            refused.to_string().contains("AGENTD_STATE_DIR"),
            "{refused}"
        );
        let mut installation = Installation {
            program: "/opt/agentd".into(),
            control: "/opt/agentctl".into(),
            socket: "/run/x.sock".into(),
            alias: None,
            environment: Vec::new(),
            withheld: Vec::new(),
            home: "/".into(),
            config_home: "/".into(),
            uid: 1,
        };
        installation.check().unwrap();
        installation.socket = format!("/{}", "s".repeat(MAX_SOCKET_PATH)).into();
        let refused = installation.check().unwrap_err().to_string();
        assert!(refused.contains("the limit is"), "{refused}");
        installation.socket = "/run/x.sock".into();
        installation.program = "/opt/$HOME/agentd".into();
        assert!(installation.check().is_err());
    }
}
