//! The files of service managers that are given to people: those of systemd as systemd reads them,
//! those of launchd as its own tool, or another reader of property lists, does.
//!
//! What `agentctl service install` writes is looked at in `service` and in the client's tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Finished, finish, needs, skipped};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging");
/// Where a Swift for Linux has it, below the files of CI.
const SWIFT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/target/ci/swift/root/usr/libexec/swift/bin/plutil"
);

/// The launch agents, with something in the places that an installation fills.
fn lists(dir: &Path) -> Vec<PathBuf> {
    let mut lists = Vec::new();
    for entry in std::fs::read_dir(Path::new(PACKAGING).join("launchd")).unwrap() {
        let from = entry.unwrap().path();
        let text = std::fs::read_to_string(&from).unwrap();
        let text = text
            .replace(
                "@ENVIRONMENT@",
                "<key>PATH</key>\n<string>/usr/bin:/bin</string>",
            )
            .replace("@PROGRAM@", "/opt/a &amp; b/agentd")
            .replace("@AGENTCTL@", "/opt/a &amp; b/agentctl")
            .replace("@SOCKET@", "/h/agentd.sock")
            .replace("@LOG@", "/h/agentd.log");
        assert!(!text.contains('@'), "{text}");
        let text = text + "<!-- as written: 0 -->\n";
        let to = dir.join(from.file_name().unwrap());
        std::fs::write(&to, text).unwrap();
        lists.push(to);
    }
    assert!(lists.len() >= 2, "{lists:?}");
    lists
}

/// What checks one list.
fn linter() -> Option<(PathBuf, &'static [&'static str])> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &str| {
        let mut dirs = std::env::split_paths(&path).map(|dir| dir.join(name));
        dirs.find(|file| file.is_file())
    };
    let swift = Some(PathBuf::from(SWIFT)).filter(|file| file.is_file());
    let plutil = found("plutil").or(swift);
    let plutil = plutil.map(|program| (program, &["-lint"][..]));
    plutil.or_else(|| {
        Some((
            found("plistutil")?,
            &["-f", "bin", "-o", "/dev/null", "-i"][..],
        ))
    })
}

/// What is wrong with a list, if anything is. `plistutil` says so and ends with 0.
fn lint(list: &Path, (program, words): &(PathBuf, &[&str])) -> Option<Finished> {
    let mut command = Command::new(program);
    command.args(*words).arg(list);
    let said = finish(command, b"");
    let is_right = said.code == Some(0)
        && ![&said.stdout, &said.stderr]
            .iter()
            .any(|text| text.contains("ERROR"));
    (!is_right).then_some(said)
}

#[test]
fn the_launch_agents_are_property_lists() {
    let Some(linter) = linter() else {
        skipped("plutil or plistutil");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for list in lists(dir.path()) {
        let wrong = lint(&list, &linter);
        assert!(wrong.is_none(), "{list:?}: {wrong:?}");
        // It would have noticed.
        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::write(&list, text.replace("</dict>", "")).unwrap();
        assert!(lint(&list, &linter).is_some(), "{list:?}");
    }
}

#[test]
fn units_for_speech_and_http_are_closed() {
    let Some(analyze) = needs("systemd-analyze") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let runtime = tempfile::tempdir().unwrap();
    let units = [
        "agentd-http.service",
        "agentd-voice-flush.service",
        "agentd-voice-flush.timer",
    ];
    for unit in units {
        let template = Path::new(PACKAGING).join("systemd").join(unit);
        let text = std::fs::read_to_string(template).unwrap();
        let text = text
            .replace("@ENVIRONMENT@", "Environment=\"PATH=/usr/bin:/bin\"")
            .replace("@AGENTCTL@", "/usr/bin/env agentctl");
        std::fs::write(dir.path().join(unit), text).unwrap();
    }
    let run = |words: &[&str], unit: &str| {
        let mut command = Command::new(&analyze);
        command.args(words).arg(dir.path().join(unit));
        // As a session has one.
        command.env("XDG_RUNTIME_DIR", runtime.path());
        finish(command, b"")
    };
    for unit in units {
        let said = run(&["--user", "verify"], unit);
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (Some(0), ""),
            "{unit}: {said:?}"
        );
    }
    // In tenths. It calls other machines as the user does, with the user's keys.
    let words = ["--user", "--offline=true", "--threshold=86", "security"];
    let said = run(&words, "agentd-voice-flush.service");
    assert_eq!(said.code, Some(0), "{said:?}");
    let words = ["--user", "--offline=true", "--threshold=65", "security"];
    let said = run(&words, "agentd-http.service");
    assert_eq!(said.code, Some(0), "{said:?}");
}
