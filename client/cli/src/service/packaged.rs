//! Units that a package has for every user, and replaces when it is upgraded.
//!
//! Owns whether there are any for this installation, and what a user adds to them: variables, and
//! where the socket is. Must not know when that is right.

use std::fs;
use std::path::{Path, PathBuf};

use super::installation::Installation;
use super::systemd::{SERVICE_UNIT, SOCKET_UNIT, environment, socket, symlinks, unit_dir};
use super::timer;

/// Where packages put them.
const DIRS: [&str; 2] = ["/usr/local/lib/systemd/user", "/usr/lib/systemd/user"];
const OPENING: &str = "\
# Written by `agentctl service install`, which writes it anew: changes belong into a drop-in of
# another name (`systemctl --user edit`).
";

/// Are there units of a package that run this daemon?
pub(super) fn run(program: &Path) -> bool {
    among(&DIRS, program)
}

fn among(dirs: &[&str], program: &Path) -> bool {
    let starts_it = |unit: String| {
        let started = unit
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="))
            .map(|words| words.trim_matches('"'));
        started.map(Path::new).any(|started| started == program)
    };
    dirs.iter().map(Path::new).any(|dir| {
        dir.join(SOCKET_UNIT).is_file()
            && fs::read_to_string(dir.join(SERVICE_UNIT)).is_ok_and(starts_it)
    })
}

/// Does the package have the timer of speech, too?
pub(super) fn has_timer(of: &Installation) -> bool {
    let mut dirs = DIRS.iter().map(Path::new);
    run(&of.program) && dirs.any(|dir| dir.join(timer::TIMER).is_file())
}

/// Of the service that the timer starts.
pub(super) fn addition_to_timer(of: &Installation) -> (PathBuf, String) {
    let path = unit_dir(of).join(format!("{}.d/agentctl.conf", timer::SERVICE));
    (path, format!("{OPENING}\n[Service]\n{}\n", environment(of)))
}

/// What the user adds to them, the socket's first.
pub(super) fn additions(of: &Installation) -> [(PathBuf, String); 2] {
    let path = |unit: &str| unit_dir(of).join(format!("{unit}.d/agentctl.conf"));
    // An empty value takes the package's away.
    let socket = format!(
        "{OPENING}\n[Socket]\nListenStream=\nListenStream={}\nSymlinks=\n{}\n",
        socket(of),
        symlinks(of)
    );
    let service = format!("{OPENING}\n[Service]\n{}\n", environment(of));
    [(path(SOCKET_UNIT), socket), (path(SERVICE_UNIT), service)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_packages_that_run_this_daemon_count() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().to_str().unwrap();
        let found = || among(&["/nowhere", here], Path::new("/usr/bin/agentd"));
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert!(!found());
        write(SERVICE_UNIT, "[Service]\nExecStart=/usr/bin/agentd\n");
        assert!(!found(), "without its socket");
        write(SOCKET_UNIT, "[Socket]\n");
        assert!(found());
        write(SERVICE_UNIT, "[Service]\nExecStart=/opt/agentd\n");
        assert!(!found(), "another daemon's");
    }
}
