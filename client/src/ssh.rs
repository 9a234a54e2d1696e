//! How `ssh` is run: whom it calls, and with which fixed words.
//!
//! Owns the reading of targets and every argument that `ssh` gets. Nothing a user or a daemon says
//! gets into a command line here beyond a target, whose characters are checked. Host keys are
//! checked as the user's own configuration says, and never less. Must not know what is said through
//! the connection.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::process::Command;

use crate::oneshot;

/// How a remote endpoint is written where a socket's path may stand.
const SCHEME: &str = "ssh://";
/// Files are called by it, whose names have at most 255 bytes: `lock.ssh:!!` and `.sock` go with it.
const MAX_TARGET: usize = 240;
/// Of the network and of the handshake, in seconds.
const CONNECT_TIMEOUT: u32 = 10;

/// Serve the lines that follow; where no daemon runs, by the same rule as there.
pub const RELAY: &str = "agentctl stdio";
/// The same, with a daemon or not at all.
pub const RELAY_DAEMON: &str = "agentctl stdio --no-fallback";
/// Say how the daemon is, within a second.
pub const STATUS: &str = "agentctl status --json";
/// Print where the daemon's socket is.
pub const SOCKET: &str = "agentctl forward --print-socket";
/// Live until the input ends.
pub const HOLD: &str = "cat";

/// Another machine: `[USER@]HOST[:PORT]`. What isn't given is as `~/.ssh/config` says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl Target {
    /// The target that a socket's "path" names, if it is one.
    #[must_use]
    pub fn of_socket(socket: &Path) -> Option<Result<Self, String>> {
        Some(socket.to_str()?.strip_prefix(SCHEME)?.parse())
    }

    /// As it may stand where a socket's path may stand.
    #[must_use]
    pub fn as_socket(&self) -> PathBuf {
        PathBuf::from(format!("{SCHEME}{self}"))
    }

    /// `ssh` with what every call has in common, up to the name of the host.
    fn ssh(&self) -> Command {
        let mut command = Command::new(program());
        // No terminal, no forwarded agent or display, and nobody to type a password.
        command.args(["-T", "-a", "-x", "-o", "BatchMode=yes"]);
        command.arg("-o");
        command.arg(format!("ConnectTimeout={CONNECT_TIMEOUT}"));
        // A peer that went away without a word is noticed within 45 s.
        command.args([
            "-o",
            "ServerAliveInterval=15",
            "-o",
            "ServerAliveCountMax=3",
        ]);
        // What the user's configuration runs or says by itself isn't for us.
        command.args(["-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no"]);
        // A program that forwards speech may have an ssh key for just that.
        if let Some(file) = ssh_key_file() {
            // Only that one: an agent's keys would be tried first, and one of them may do more
            // there.
            command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(file);
        }
        if let Some(port) = self.port {
            command.arg("-p").arg(port.to_string());
        }
        if let Some(user) = &self.user {
            command.arg("-l").arg(user);
        }
        command
    }

    /// Runs one of the fixed commands there.
    #[must_use]
    pub fn run(&self, fixed: &'static str) -> Command {
        let mut command = self.ssh();
        // Forwardings of the user's configuration would be made by each call, and fail from the
        // second on.
        command.args(["-o", "ClearAllForwardings=yes", "--"]);
        command.args([self.host.as_str(), fixed]);
        command
    }

    /// Listens on `local` for the socket `remote` there, for as long as its input is open. A
    /// connection of its own: with a shared one the forwarding would outlive us.
    #[must_use]
    pub fn forward(&self, local: &str, remote: &str) -> Command {
        let mut command = self.ssh();
        command.args(["-o", "ControlMaster=no", "-o", "ControlPath=none"]);
        // Or it would stay, connected and of no use.
        command.args(["-o", "ExitOnForwardFailure=yes"]);
        // For this user only, and what is there already stays, whatever the user's configuration
        // says.
        command.args(["-o", "StreamLocalBindMask=0177"]);
        command.args(["-o", "StreamLocalBindUnlink=no"]);
        command.arg("-L").arg(format!("{local}:{remote}"));
        command.args(["--", self.host.as_str(), HOLD]);
        command
    }

    /// What the user's configuration says about it, one `name value` a line.
    #[must_use]
    pub fn configuration(&self) -> Command {
        let mut command = self.ssh();
        command.args(["-G", "--", self.host.as_str()]);
        command
    }
}

/// The private key that `$AGENTD_SSH_KEY` names, besides those of the user's configuration.
fn ssh_key_file() -> Option<PathBuf> {
    let named = std::env::var_os("AGENTD_SSH_KEY")?;
    Some(PathBuf::from(named)).filter(|named| !named.as_os_str().is_empty())
}

/// Is the ssh key there that is to be used? Without it ssh would try others.
pub(crate) fn check_ssh_key() -> Result<(), String> {
    let Some(file) = ssh_key_file() else {
        return Ok(());
    };
    let shown = file.display();
    if !file.is_absolute() {
        return Err(format!(
            "`AGENTD_SSH_KEY` is `{shown}`: expected an absolute path"
        ));
    }
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(format!("`AGENTD_SSH_KEY`: `{shown}` is no file")),
        Err(error) => Err(format!("`AGENTD_SSH_KEY`: `{shown}`: {error}")),
    }
}

/// The first `ssh` on `PATH`, never one in the current directory.
fn program() -> PathBuf {
    oneshot::on_path("ssh")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (self.port, self.host.contains(':')) {
            (None, _) => f.write_str(&self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
            (Some(port), true) => write!(f, "[{}]:{port}", self.host),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected [USER@]HOST[:PORT]";
        if text.starts_with('-') {
            return Err(format!("it begins with `-`: {expected}"));
        }
        if text.len() > MAX_TARGET {
            return Err(format!("it has {} bytes: {expected}", text.len()));
        }
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[') {
            // `[::1]:22`, `[::1]`
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(expected)?)),
                None => return Err(expected.to_owned()),
            },
            None => match rest.split_once(':') {
                // `::1`, which has no port
                Some((_, port)) if port.contains(':') => (rest, None),
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let named = |what: &str, name: &str, more: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if name.is_empty() || name.starts_with('-') {
                return Err(format!("the {what} is `{name}`: {expected}"));
            }
            match name.chars().find(|c| !plain(*c) && !more.contains(*c)) {
                Some(c) => Err(format!("the {what} has {c:?} in it: {expected}")),
                None => Ok(name.to_owned()),
            }
        };
        let user = user.map(|user| named("user", user, "")).transpose()?;
        // Colons and a zone are of IPv6.
        let host = named("host", host, ":%")?;
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port @ 1..)) => Some(port),
            Some(_) => return Err(format!("the port is not 1 to 65535: {expected}")),
        };
        Ok(Self { user, host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        let words = command.as_std().get_args();
        words
            .map(|word| word.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_target_is_read_and_written_the_same() {
        for (text, shown) in [
            ("mac", "mac"),
            ("me@mac.local:2222", "me@mac.local:2222"),
            ("::1", "::1"),
            ("me@[fe80::1%eth0]:22", "me@[fe80::1%eth0]:22"),
            ("[::1]", "::1"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse::<Target>().unwrap(), target);
            assert_eq!(Target::of_socket(&target.as_socket()), Some(Ok(target)));
        }
        assert_eq!(Target::of_socket(Path::new("/run/agentd.sock")), None);
    }

    #[test]
    fn target_is_never_an_option_or_a_command() {
        for text in [
            "",
            "-oProxyCommand=id",
            "-oProxyCommand=id@mac",
            "me@-oProxyCommand=id",
            "mac;id",
            "mac$(id)",
            "mac`id`",
            "mac id",
            "mac\nid",
            "mac'",
            "mac\"",
            "m\u{e4}c",
            "a@b@mac",
            "me@",
            "@mac",
            "mac:",
            "mac:0",
            "mac:65536",
            "mac:-1",
            "[::1",
            "[::1]22",
            "../mac",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn host_stands_behind_options_with_one_fixed_word() {
        let target: Target = "me@mac:2222".parse().unwrap();
        let given = words(&target.run(RELAY));
        let end = given.iter().position(|word| word == "--").unwrap();
        assert_eq!(given[end..], ["--", "mac", "agentctl stdio"]);
        for needed in [&["-l", "me"], &["-p", "2222"], &["-o", "BatchMode=yes"]] {
            assert!(
                given[..end].windows(2).any(|pair| pair == needed),
                "{given:?}"
            );
        }
        let loosened = |word: &String| word.contains("HostKey") || word.contains("KnownHosts");
        assert!(!given.iter().any(loosened), "{given:?}");
    }

    #[test]
    fn host_configuration_is_asked_for_behind_all_options() {
        let target: Target = "me@mac".parse().unwrap();
        let given = words(&target.configuration());
        assert_eq!(given[given.len() - 3..], ["-G", "--", "mac"]);
    }

    #[test]
    fn target_fits_into_the_name_of_a_file() {
        let target = |length: usize| "a".repeat(length).parse::<Target>();
        assert!(target(MAX_TARGET + 1).is_err());
        let longest = target(MAX_TARGET).unwrap().as_socket();
        assert!(format!("lock.{}", longest.display()).len() <= 255);
    }
}
