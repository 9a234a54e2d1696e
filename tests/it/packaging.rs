//! What comes with the programs: manual pages, completions, and the script that installs a release.
//!
//! The script gets small programs in the place of the real ones, as what is tried is the script;
//! `tests/os/packages.sh` installs the real ones. Not here: units, which `service` has.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{AGENTCTL, AGENTD, Place, TIMMY, finish, needs};

/// All manual pages of a place.
fn pages(place: &Place) -> PathBuf {
    let dir = place.path("man");
    let done = place.agentctl(&["man", "--to", dir.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    dir
}

fn help(place: &Place, program: &str, words: &[&str]) -> String {
    let mut command = place.command(program);
    command.args(words).arg("--help");
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{program} {words:?}: {done:?}");
    // Other names of an option are the help's alone.
    let lines = done.stdout.lines();
    lines
        .map(|line| line.split("[alias").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The long options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let text = text.replace("\\-", "-").replace("\\f", " \\");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    // Of `\\fB--help` the letter of the font is left.
    let words = words.map(|word| word.trim_start_matches(['B', 'I', 'R']));
    let long = words.filter(|word| word.starts_with("--") && word.len() > 3);
    long.map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_manual_page_that_names_its_options() {
    let place = Place::new("");
    let dir = pages(&place);
    let read = |page: &str| fs::read_to_string(dir.join(page)).unwrap();
    for (page, program, words) in [
        ("agentctl.1", AGENTCTL, &[][..]),
        ("agentctl-send.1", AGENTCTL, &["send"]),
        (
            "agentctl-service-install.1",
            AGENTCTL,
            &["service", "install"],
        ),
        ("agentctl-voice-forward.1", AGENTCTL, &["voice", "forward"]),
        ("agentd.1", AGENTD, &[]),
        ("timmy.1", TIMMY, &[]),
    ] {
        let text = read(page);
        let named = options(&text);
        for option in options(&help(&place, program, words)) {
            assert!(named.contains(&option), "{page} doesn't name {option}");
        }
        let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(" 1 \"\" \"agentd {version}\" agentd");
        assert!(title.ends_with(&expected), "{page}: {title}");
    }
    let first = read("agentctl.1");
    for part in [".SH ENVIRONMENT", ".SH FILES", "AGENTD_SOCKET"] {
        assert!(first.contains(part), "{part}");
    }
    assert!(!read("agentctl-send.1").contains(".SH FILES"));
    // What a page refers to is there.
    for entry in fs::read_dir(&dir).unwrap() {
        let page = entry.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix(".BR agent"))
        {
            let name = line.split([' ', '(']).next().unwrap().replace("\\-", "-");
            let other = dir.join(format!("agent{name}.1"));
            assert!(other.exists(), "{}: {line}", page.display());
        }
    }
}

#[test]
fn groff_has_nothing_to_say_about_the_manual_pages() {
    let Some(groff) = needs("groff") else { return };
    let place = Place::new("");
    let dir = pages(&place);
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let page = entry.unwrap().path();
        let mut command = Command::new(&groff);
        command
            .args(["-ww", "-man", "-Kutf8", "-Tutf8", "-z"])
            .arg(&page);
        let done = finish(command, b"");
        let silent = done.code == Some(0) && done.stderr.is_empty();
        assert!(silent, "{}: {done:?}", page.display());
        seen += 1;
    }
    assert!(seen > 40, "only {seen} pages");
}

#[test]
fn the_shells_take_the_completions() {
    let place = Place::new("");
    for shell in ["bash", "zsh", "fish"] {
        let Some(program) = needs(shell) else {
            continue;
        };
        let script = place.agentctl(&["completions", shell]);
        assert!(script.stdout.contains("agentctl"), "{script:?}");
        let path = place.path(shell);
        fs::write(&path, script.stdout).unwrap();
        let mut command = place.command(program);
        command.arg("-n").arg(&path);
        let done = finish(command, b"");
        let silent = done.code == Some(0) && done.stderr.is_empty();
        assert!(silent, "{shell}: {done:?}");
    }
}
