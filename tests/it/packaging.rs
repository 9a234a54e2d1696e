//! What comes with the programs: manual pages, completions, and the script that installs a release.
//!
//! The script gets small programs in the place of the real ones, as what is tried is the script;
//! `tests/os/packages.sh` installs the real ones. Not here: units, which `service` has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
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
fn manual_pages_name_every_commands_options() {
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

/// The lines of a section, from behind its title to the next one.
fn section<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| *line != title).skip(1);
    lines.take_while(|line| !line.starts_with(".SH ")).collect()
}

fn codes(text: &str) -> BTreeSet<u8> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn manual_pages_by_hand_say_what_help_says() {
    let place = Place::new("");
    let dir = pages(&place);
    for (page, program, inner) in [
        ("agentd.1", AGENTD, &[&["config", "show"][..]][..]),
        ("timmy.1", TIMMY, &[]),
    ] {
        let text = fs::read_to_string(dir.join(page)).unwrap();
        let whole = help(&place, program, &[]);
        let mut known = options(&whole);
        known.extend(
            inner
                .iter()
                .flat_map(|words| options(&help(&place, program, words))),
        );
        let named = options(&text);
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{page}: nobody takes {unknown:?}");

        let listed = whole.lines().skip_while(|line| *line != "Commands:");
        let listed = listed.skip(1).take_while(|line| !line.is_empty());
        let listed = listed.filter_map(|line| line.split_whitespace().next());
        let listed: BTreeSet<&str> = listed.filter(|name| *name != "help").collect();
        let bold = section(&text, ".SH COMMANDS").into_iter();
        let bold = bold.filter_map(|line| {
            let bold = line.strip_prefix(".B ").or(line.strip_prefix("\\fB"))?;
            bold.split([' ', '\\']).next()
        });
        let bold: BTreeSet<&str> = bold.filter(|word| !word.is_empty()).collect();
        assert_eq!(bold, listed, "{page}");

        let told = whole.split("Exit codes: ").nth(1).unwrap();
        let status = section(&text, ".SH EXIT STATUS").join(" ");
        assert_eq!(codes(&status), codes(told), "{page}");
    }
}

#[test]
fn manual_pages_pass_groff_in_silence() {
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
        for (name, path) in [("agentctl", AGENTCTL), ("agentd", AGENTD), ("timmy", TIMMY)] {
            let mut command = place.command(path);
            command.args(["completions", shell]);
            let script = finish(command, b"");
            assert!(script.stdout.contains(name), "{script:?}");
            let path = place.path(shell);
            fs::write(&path, script.stdout).unwrap();
            let mut command = place.command(&program);
            command.arg("-n").arg(&path);
            let done = finish(command, b"");
            let silent = done.code == Some(0) && done.stderr.is_empty();
            assert!(silent, "{shell}: {done:?}");
        }
    }
}

/// What bash offers behind these words.
fn offered(place: &Place, bash: &Path, program: (&str, &str), words: &str) -> Vec<String> {
    let mut command = place.command(program.1);
    command.args(["completions", "bash"]);
    let script = place.path("completions.bash");
    fs::write(&script, finish(command, b"").stdout).unwrap();
    let name = program.0;
    // One of them asks the program, the others have all words in the script.
    let function = match name {
        "agentctl" => "_clap_complete_agentctl".to_owned(),
        name => format!("_{name}"),
    };
    let asks = format!(
        "source {}; COMP_WORDS=({name} {words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         {function} {name} '' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let bin = Path::new(AGENTCTL).parent().unwrap().display();
    let mut command = place.command(bash);
    command.env("PATH", format!("{bin}:/usr/bin:/bin"));
    command.args(["-c", &asks]);
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn the_commands_of_each_program_are_completed() {
    let Some(bash) = needs("bash") else { return };
    let place = Place::new("");
    let (agentctl, timmy) = (("agentctl", AGENTCTL), ("timmy", TIMMY));
    let offers = |program, words| offered(&place, &bash, program, words);
    assert!(offers(agentctl, "").contains(&"voice".to_owned()));
    assert!(offers(agentctl, "voice").contains(&"flush".to_owned()));
    assert!(offers(("agentd", AGENTD), "config").contains(&"show".to_owned()));
    // The two commands that are timmy's complete as there.
    for command in ["provider", "models"] {
        let words = |program| -> Vec<String> {
            let mut offered = offers(program, command);
            offered.retain(|word| !word.starts_with('-') && word != "help");
            offered
        };
        assert!(words(timmy).contains(&"list".to_owned()), "{command}");
        let (here, there) = (words(agentctl), words(timmy));
        assert!(
            there.iter().all(|word| here.contains(word)),
            "{there:?} {here:?}"
        );
        let plain = |word: &&String| word.chars().all(char::is_lowercase);
        assert!(
            here.iter().filter(plain).all(|word| there.contains(word)),
            "{here:?}"
        );
    }
}
