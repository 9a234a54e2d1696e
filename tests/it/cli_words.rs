//! What `agentctl` says when something is wrong elsewhere: of the machine that is meant, in words of
//! its own, and with nothing made in somebody else's home.
//!
//! Owns stand-ins for `ssh`, which say what the real one says. The real one is in `ssh`.

use std::os::unix::fs::chown;
use std::path::Path;

use nix::unistd::Uid;

use crate::support::{AGENTCTL, AGENTD, Daemon, Finished, Place, finish, program, skipped};

const NOBODY: u32 = 65534;

fn place() -> Place {
    Place::new(&Daemon::config(""))
}

/// With an `ssh` that is this script.
fn by_ssh(script: &str, words: &[&str]) -> Finished {
    let place = place();
    let bin = place.path("bin");
    program(&bin, "ssh", script);
    let mut command = place.command(AGENTCTL);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.args(words);
    finish(command, b"")
}

#[test]
fn cli_failing_one_shot_prints_no_log_line() {
    let failed = place().agentctl(&["send", "--agent", "chaos", "chaos:exit 3"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("error: "), "{failed:?}");
    for log in ["WARN", "ERROR", "agentd_core"] {
        assert!(!failed.stderr.contains(log), "{failed:?}");
    }
}

#[test]
fn cli_hints_for_another_machine_speak_of_it() {
    let refused = "echo 'ssh: connect to host mac port 22: Connection refused' >&2; exit 255";
    for words in [&["jobs"][..], &["sessions"], &["abort"], &["drain"]] {
        let all = [&["--host", "mac"], words].concat();
        let failed = by_ssh(refused, &all);
        assert_eq!(failed.code, Some(69), "{failed:?}");
        assert!(
            failed.stderr.contains("can't be reached by ssh"),
            "{failed:?}"
        );
        assert!(
            failed.stderr.contains("`ssh mac agentctl status`"),
            "{failed:?}"
        );
        for of_here in ["agentd is not running", "agentctl start"] {
            assert!(!failed.stderr.contains(of_here), "{failed:?}");
        }
    }
    let down = r#"echo '{"type":"status","state":"down","error":"there is no socket","hint":"`agentctl start` starts it"}'; exit 69"#;
    for words in [&["status"][..], &["metrics"]] {
        let failed = by_ssh(down, &[&["--host", "mac"], words].concat());
        assert_eq!(failed.code, Some(69), "{failed:?}");
        let hint = "hint: `ssh mac agentctl start` starts it\n";
        assert!(failed.stderr.ends_with(hint), "{failed:?}");
    }
}

#[test]
fn cli_forward_says_the_ssh_key_only_sends() {
    // The relay that such a key runs there ends with its input, and has said nothing.
    let failed = by_ssh("exec cat > /dev/null", &["forward", "mac"]);
    assert_eq!(failed.code, Some(69), "{failed:?}");
    assert!(
        failed.stderr.contains("may send there, and nothing else"),
        "{failed:?}"
    );
    assert!(
        failed.stderr.contains("agentctl --host mac send"),
        "{failed:?}"
    );
}

#[test]
fn cli_makes_nothing_in_the_home_of_another() {
    if !Uid::effective().is_root() {
        skipped("root, whom `sudo -E` leaves somebody else's `HOME`");
        return;
    }
    let place = place();
    let home = place.path("home");
    chown(&home, Some(NOBODY), None).unwrap();
    let inside = |home: &Path| std::fs::read_dir(home).unwrap().count();
    for (program, words) in [
        (AGENTCTL, &["token"][..]),
        (AGENTCTL, &["serve", "http", "--listen", "127.0.0.1:0"]),
        (AGENTCTL, &["voice", "flush"]),
        (AGENTCTL, &["service", "install"]),
        (AGENTCTL, &["config", "init"]),
        (AGENTCTL, &["config", "set", "client.start", "never"]),
        (AGENTCTL, &["config", "edit"]),
        (AGENTCTL, &["agents", "default", "timmy"]),
        (AGENTCTL, &["webhook", "add", "https://ci.example/"]),
        (AGENTD, &["--socket", "/nowhere/s", "--no-alias"]),
    ] {
        let mut command = place.command(program);
        command
            .env_remove("AGENTD_STATE_DIR")
            .env_remove("AGENTD_CONFIG")
            .env("SUDO_UID", NOBODY.to_string())
            .args(words);
        let refused = finish(command, b"");
        assert_eq!(refused.code, Some(78), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains("65534"), "{words:?}: {refused:?}");
        assert!(
            refused.stderr.contains("`sudo -H`"),
            "{words:?}: {refused:?}"
        );
        assert_eq!(inside(&home), 0, "{words:?}");
        // `su` and `setpriv` don't say who called.
        let mut unsaid = place.command(program);
        unsaid
            .env_remove("AGENTD_STATE_DIR")
            .env_remove("AGENTD_CONFIG")
            .args(words);
        let refused = finish(unsaid, b"");
        assert_eq!(refused.code, Some(78), "{words:?}: {refused:?}");
        assert_eq!(inside(&home), 0, "{words:?}");
    }
}

/// What nobody can have meant, and what is said of it.
const REFUSED: &[(&[&str], &str)] = &[
    (&["send", "hi", "-s", ""], "the session's name is 0 bytes"),
    (&["send", "hi", "-a", ""], "the agent's name must be"),
    (&["send", "hi", "-m", ""], "the model must be"),
    (&["send", "hi", "--thinking", ""], "`--thinking` must be"),
    (
        &["send", "hi", "-a", "chaos", "--tools", "file"],
        "`--tools` was given",
    ),
    (
        &["send", "hi", "-a", "chaos", "--fallback", "a/b"],
        "`--fallback` was given",
    ),
    (&["send", "hi", "--cwd", "/nope"], "`--cwd` is `/nope`"),
    (&["send", "hi", "--label", "a b=c"], "`--label` has the key"),
    (
        &["send", "hi", "--attach", ""],
        "expected the path of a file",
    ),
    (
        &["send", "hi", "--callback", "x"],
        "`--callback` has another scheme",
    ),
    (
        &["send", "hi", "--idempotency-key", ""],
        "`--idempotency-key` is 0 bytes",
    ),
    (
        &["send", "hi", "--timeout", "400d"],
        "expected 365d at most",
    ),
    (&["agent", "-m", ""], "the text is blank"),
    (&["attach", "a b"], "the session's name contains ' '"),
    (&["abort"], "`agentctl ps` lists what runs and waits"),
    (&["abort", "j99"], "`agentctl jobs` lists"),
    (&["collect", "j99"], "`agentctl jobs` lists"),
    (
        &["collect", "j1", "--timeout", "400d"],
        "expected 365d at most",
    ),
    (&["dispatch", "a", ""], "prompt 2: the text is blank"),
    (
        &["dispatch", "a", "-s", "a b"],
        "prompt 1: the session's name contains",
    ),
    (&["jobs", "-n", "0"], "expected a number, 1 or more"),
    (&["steer", ""], "`agentctl steer -`"),
    (&["steer", "hi", "--job", "j99"], "`agentctl jobs` lists"),
    (&["steer", "hi", "-s", "nobody"], "`agentctl ps` lists"),
    (
        &["sessions", "rename", "b", "b"],
        "the new name is the name that the session has",
    ),
    (&["sessions", "rename", "b", ""], "the new name is 0 bytes"),
    (
        &["sessions", "rename", "nobody", "x"],
        "`agentctl sessions` lists them",
    ),
    (
        &["sessions", "rename", "b", "x"],
        "`agentctl abort SESSION --queued`",
    ),
    (
        &["sessions", "close", "b"],
        "`agentctl abort SESSION --queued`",
    ),
    (&["sessions", "search", ""], "`WORDS` has a word of 0 bytes"),
    (&["sessions", "-n", "0"], "expected a number, 1 or more"),
    (&["answer", "q7"], "`agentctl questions` lists them"),
    (
        &["model", "b", "/x"],
        "`/x` is no model: expected MODEL, or PROVIDER/MODEL",
    ),
    (&["compact"], "`agentctl ps` lists what runs and waits"),
    (
        &["watch", "--after", "99999"],
        "`agentctl watch --after 0` for everything",
    ),
    (&["watch", "--after", "x"], "expected a number"),
    (&["logs", "-n", "x"], "expected a number"),
    (
        &["serve", "http", "--listen", "x"],
        "expected an address and a port",
    ),
    (
        &["webhook", "replay", "nope"],
        "`agentctl webhook list` shows them",
    ),
    (
        &["agents", "restart", "--session", "nobody"],
        "`agentctl sessions` lists the sessions",
    ),
    (&["agents", "test", ""], "the agent's name must be"),
    (&["backup", "--every", "1s"], "`--every` is 1 s"),
    (&["backup", "--every", "1d", "--keep", "0"], "`--keep` is 0"),
    (
        &["export", "-o", "/nope/x"],
        "name a new file in a directory that is there",
    ),
    (
        &["models", "default", "nope"],
        "write it as `gemini/gemini-2.5-flash`",
    ),
];

#[test]
fn cli_refusals_speak_of_its_own_arguments() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    // Two that run, so that neither is meant when none is named.
    for session in ["a", "b"] {
        let send = format!(
            r#"{{"type":"send","agent":"chaos","session":"{session}","text":"chaos:hang"}}"#
        );
        client.send(&send);
        client.until("accepted");
    }
    // What is stored of a job is told in the same words.
    let failed = daemon.agentctl(&["send", "hi", "-a", "chaos", "--tools", "file"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    for words in [&["collect", "j3"][..], &["jobs", "j3"]] {
        let shown = daemon.agentctl(words);
        assert!(
            shown.stdout.contains("`--tools` was given"),
            "{words:?}: {shown:?}"
        );
    }
    for (words, said) in REFUSED {
        let refused = daemon.agentctl(words);
        assert!(
            !matches!(refused.code, None | Some(0)),
            "{words:?}: {refused:?}"
        );
        assert!(refused.stderr.contains(said), "{words:?}: {refused:?}");
        for field in [
            "session", "to", "job", "jobs", "text", "agent", "words", "toolsets",
        ] {
            let field = format!("`{field}`");
            assert!(!refused.stderr.contains(&field), "{words:?}: {refused:?}");
        }
    }
}
