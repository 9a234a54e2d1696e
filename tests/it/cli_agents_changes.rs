//! `agentctl agents add`, `remove` and `default`: what becomes of `config.toml`, and what is said.

use serde_json::Value;

use crate::cli_agents::row;
use crate::support::{AGENTCTL, AGENTD, Daemon, Place, finish};

#[test]
fn agents_changes_keep_the_comments_of_the_file() {
    let written = "# Mine, by hand.\n\n[agents.echo] # the first\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n";
    let place = Place::new(written);
    let config = || std::fs::read_to_string(place.path("config.toml")).unwrap();
    let done = |args: &[&str]| {
        let done = place.agentctl(&[&["agents"], args].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let shout = ["--", "tr", "a-z", "A-Z"];
    let unheeded = ["agents", "add", "shout", "--kind", "exec", "--model", "m"];
    let refused = place.agentctl(&[&unheeded[..], &shout].concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("no `{model}`"), "{refused:?}");
    assert_eq!(config(), written);
    let add = ["add", "shout", "--kind", "exec", "--env", "A=b c"];
    done(&[&add[..], &shout].concat());
    assert!(config().starts_with(written), "{}", config());
    assert!(config().ends_with(
        "[agents.shout]\nkind = \"exec\"\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\nenv = { A = \"b c\" }\n"
    ));
    let file = place.path("config.toml");
    let none = format!("no default in {}: a send names", file.display());
    let shown = done(&["default"]);
    assert!(shown.starts_with(&none), "{shown}");
    done(&["default", "shout"]);
    let said = format!("`shout` is the default in {}\n", file.display());
    assert_eq!(done(&["default"]), said);
    let json: Value = serde_json::from_str(&done(&["default", "--json"])).unwrap();
    assert_eq!(json["agent"], "shout", "{json}");
    assert!(
        config().starts_with(
            "# Mine, by hand.\ndefault_agent = \"shout\"\n\n[agents.echo] # the first\n"
        )
    );
    let sent = place.agentctl(&["send", "loud"]);
    assert_eq!(sent.stdout.trim(), "LOUD", "{sent:?}");

    let said = done(&["test", "shout"]);
    assert!(
        said.starts_with("`shout` answered in ") && said.contains("READY"),
        "{said}"
    );
    let json = done(&["test", "echo", "--json", "--prompt", "ping"]);
    let tried: Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(
        (&tried["ok"], &tried["text"], &tried["agent"]),
        (&true.into(), &"ping".into(), &"echo".into())
    );

    let refused = place.agentctl(&["agents", "remove", "shout"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("`agentctl agents default OTHER` or `agentctl agents default --clear` first"),
        "{refused:?}"
    );
    let said = done(&["default", "--clear"]);
    assert!(said.starts_with("no default in "), "{said}");
    assert!(!config().contains("default_agent"), "{}", config());
    assert!(config().contains("# Mine, by hand.\n"), "{}", config());
    let several = place.agentctl(&["send", "loud"]);
    assert_eq!(several.code, Some(2), "{several:?}");
    done(&["default", "echo"]);
    let json = done(&["remove", "shout", "--json"]);
    let removed: Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(
        (&removed["done"], &removed["agent"]),
        (&"removed".into(), &"shout".into())
    );
    assert_eq!(
        config().trim_end(),
        written
            .replace("hand.\n", "hand.\ndefault_agent = \"echo\"\n")
            .trim_end()
    );
}

#[test]
fn agents_changes_refuse_broken_files_and_secrets_helpfully() {
    let broken = "[agents.a]\nkind = \"exec\"\ncomand = [\"/bin/cat\"]\n";
    let place = Place::new(broken);
    let refused = place.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("config.toml:3: unknown key `agents.a.comand`"),
        "{refused:?}"
    );
    let config = || std::fs::read_to_string(place.path("config.toml")).unwrap();
    assert_eq!(config(), broken);
    place.configure("");
    let refused = place.agentctl(&[
        "agents",
        "add",
        "x",
        "--kind",
        "exec",
        "--env",
        "X_API_KEY=s3cret",
        "--",
        "cat",
    ]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("--pass-env X_API_KEY") && !refused.stderr.contains("s3cret"),
        "{refused:?}"
    );
    let key = "--api-key=sk-s3cret";
    let refused = place.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat", key]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("--pass-env") && !refused.stderr.contains("s3cret"),
        "{refused:?}"
    );
    assert_eq!(config(), "");
    let usage = finish(place.command(AGENTD).arg_words(&["agents", "add"]), b"");
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

#[test]
fn agents_add_notes_why_one_is_not_usable() {
    let place = Place::new("");
    let add = |words: &[&str]| place.agentctl(&[&["agents", "add"], words].concat());
    let added = add(&["x", "--kind", "exec", "--", "no-such-program"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(
        added.stderr.contains(
            "note: `x` can't be used as things are: its program `no-such-program` is not on PATH"
        ),
        "{added:?}"
    );
    let added = add(&["y", "--kind", "exec", "--json", "--", "/usr/bin"]);
    let line: Value = serde_json::from_str(added.stdout.trim()).unwrap();
    assert_eq!(line["why_not"], "`/usr/bin` is a directory", "{added:?}");
    let made = place.agentctl(&["agents", "default", "goose", "--force"]);
    assert!(
        made.stderr.contains("note: `goose` can't be used"),
        "{made:?}"
    );
    for (words, expected) in [
        (
            &["x y", "--kind", "exec", "--", "cat"][..],
            "choose another name",
        ),
        (
            &["z", "--kind", "acp", "--", "cat", "{prompt}"],
            "only for `exec`",
        ),
        (
            &["z", "--kind", "exec", "--pass-env", "A B", "--", "cat"],
            "can't name a variable",
        ),
        (&["z", "--", "cat"], "`--kind exec` is for any command"),
    ] {
        let refused = add(words);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains(expected) && !refused.stderr.contains("by hand"),
            "{refused:?}"
        );
    }
}

#[test]
fn agents_add_takes_a_program_of_this_directory() {
    let place = Place::new("");
    let program = place.path("home/mine");
    std::fs::write(&program, "#!/bin/sh\ncat\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let added = place.agentctl(&[
        "agents", "add", "mine", "--kind", "exec", "--", "./mine", "./x",
    ]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let written = std::fs::read_to_string(place.path("config.toml")).unwrap();
    let command = format!("command = [\"{}\", \"./x\"]", program.display());
    assert!(written.contains(&command), "{written}");
}

#[test]
fn agents_changes_name_a_secret_without_showing_it() {
    let place = Place::new(
        "[agents.x]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\nenv = { X_API_KEY = \"s3cret\" }\n",
    );
    let shown = place.agentctl(&["config", "show"]);
    let daemon = place.start();
    let row = row(&daemon, "x");
    assert_eq!(row["usable"], true);
    for told in [shown.stderr, daemon.log(), row["note"].to_string()] {
        assert!(
            told.contains("`X_API_KEY` of agent `x` looks like a secret")
                && told.contains("the file `env`")
                && !told.contains("s3cret"),
            "{told}"
        );
    }
}

#[test]
fn agents_changes_name_a_configuration_that_is_missing() {
    let place = Place::new("");
    std::fs::remove_file(place.path("config.toml")).unwrap();
    let listed = place.agentctl(&["agents"]);
    assert_eq!(listed.code, Some(78), "{listed:?}");
    assert!(listed.stderr.contains("hint: make it"), "{listed:?}");
    let added = place.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert_eq!(place.agentctl(&["agents"]).code, Some(0));
}

#[test]
fn agents_changes_never_replace_what_is_no_file() {
    let place = Place::new("");
    let file = place.path("config.toml");
    let add = ["agents", "add", "x", "--kind", "exec", "--", "cat"];
    for nowhere in [true, false] {
        std::fs::remove_file(&file).unwrap();
        if nowhere {
            std::os::unix::fs::symlink(place.path("nowhere/config.toml"), &file).unwrap();
        } else {
            nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let refused = place.agentctl(&add);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.stderr.contains("expected a file"), "{refused:?}");
        let kind = std::fs::symlink_metadata(&file).unwrap().file_type();
        assert!(!kind.is_file(), "{kind:?}");
    }
    std::fs::remove_file(&file).unwrap();
    let mut command = place.command(AGENTCTL);
    command.args(add).env("AGENTD_CONFIG", "relative.toml");
    let home = command.get_current_dir().unwrap().to_owned();
    let added = finish(command, b"");
    assert_eq!(added.code, Some(0), "{added:?}");
    let text = std::fs::read_to_string(home.join("relative.toml")).unwrap();
    assert!(text.contains("[agents.x]"), "{text}");
}

#[test]
fn agents_added_at_once_are_all_there() {
    let place = Place::new("");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let place = &place;
            scope.spawn(move || {
                let name = format!("a{number}");
                let words = ["agents", "add", &name, "--kind", "exec", "--", "cat"];
                let added = place.agentctl(&words);
                assert_eq!(added.code, Some(0), "{added:?}");
            });
        }
    });
    let config = std::fs::read_to_string(place.path("config.toml")).unwrap();
    let there = (0..8).filter(|number| config.contains(&format!("[agents.a{number}]")));
    assert_eq!(there.count(), 8, "{config}");
}

#[test]
fn agents_changes_count_for_a_running_daemon() {
    let daemon = Daemon::start();
    let added = daemon.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let tried = daemon.agentctl(&["agents", "test", "x"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let default = daemon.agentctl(&["agents", "default", "x"]);
    assert_eq!(default.code, Some(0), "{default:?}");
    let sent = daemon.agentctl(&["send", "said by cat"]);
    assert_eq!(sent.stdout.trim(), "said by cat", "{sent:?}");
}

#[test]
fn agents_are_looked_for_as_the_daemon_does() {
    let place = Place::new(&Daemon::config(""));
    let bin = place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/cat", bin.join("own-tool")).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let daemon = place.start_with(&[("PATH", &path)]);
    // It is on the daemon's PATH, and not on this one.
    let added = daemon.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "own-tool"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(!added.stderr.contains("can't be used"), "{added:?}");
    let default = daemon.agentctl(&["agents", "default", "x"]);
    assert_eq!(default.code, Some(0), "{default:?}");
    assert!(!default.stderr.contains("can't be used"), "{default:?}");
    assert_eq!(daemon.agentctl(&["send", "hi"]).stdout, "hi\n");
}

/// Arguments in the middle of an expression.
trait Words {
    fn arg_words(self, words: &[&str]) -> Self;
}

impl Words for std::process::Command {
    fn arg_words(mut self, words: &[&str]) -> Self {
        self.args(words);
        self
    }
}

#[test]
fn agents_add_says_whom_a_plain_send_reaches() {
    let place = Place::new("");
    let done = |words: &[&str]| {
        let done = place.agentctl(&[&["agents"], words].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    };
    let add = |name: &'static str| done(&["add", name, "--kind", "exec", "--", "cat"]);
    let first = add("one");
    assert!(
        first
            .stderr
            .contains("note: `send` without `--agent` goes to `one` now, and no more to `timmy`"),
        "{first:?}"
    );
    assert_eq!(place.agentctl(&["send", "hi"]).stdout, "hi\n");
    // The list and the default are of one mind.
    assert!(done(&[]).stdout.contains("one (would be asked)"));
    let default = done(&["default"]);
    assert!(
        default.stdout.starts_with("`one` is the default for now")
            && default.stdout.contains("config.toml names none"),
        "{default:?}"
    );
    let json: Value = serde_json::from_str(&done(&["default", "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["agent"], &json["answers"]),
        (&Value::Null, &"one".into())
    );
    let second = add("two");
    assert!(
        second
            .stderr
            .contains("several could answer: one, two, timmy; ")
            && second.stderr.contains("`agentctl agents default NAME`"),
        "{second:?}"
    );
    assert!(!done(&[]).stdout.contains("one ("));
    let default = done(&["default"]);
    assert!(
        default.stdout.starts_with("no default in ")
            && default
                .stdout
                .ends_with("several could answer: one, two, timmy\n"),
        "{default:?}"
    );
    let gone = done(&["remove", "one"]);
    assert!(gone.stderr.contains("goes to `two` now"), "{gone:?}");
    done(&["default", "two"]);
    assert_eq!(add("three").stderr, "");
}

#[test]
fn agents_added_say_whose_place_they_take() {
    let place = Place::new(
        "[models]\ndefault = \"mock/m\"\n[providers.mock]\nbase_url = \"http://127.0.0.1:1/v1\"\n",
    );
    let add = |name: &'static str| {
        let added = place.agentctl(&["agents", "add", name, "--kind", "exec", "--", "cat"]);
        assert_eq!(added.code, Some(0), "{added:?}");
        added.stderr
    };
    let first = add("one");
    assert!(
        first.contains("goes to `one` now, and no more to `timmy`"),
        "{first}"
    );
    let second = add("two");
    assert!(
        second.contains("could answer: one, two, timmy; "),
        "{second}"
    );
    let refused = place.agentctl(&["send", "hi"]);
    assert!(refused.stderr.contains("one, two, timmy"), "{refused:?}");
}

#[test]
fn agents_added_twice_are_changed_by_key() {
    let place = Place::new("");
    let add = ["agents", "add", "mine", "--kind", "exec"];
    let added = place.agentctl(&[&add[..], &["--", "printenv", "X"]].concat());
    assert_eq!(added.code, Some(0), "{added:?}");
    let again = place.agentctl(&[&add[..], &["--env", "X=1", "--", "printenv", "X"]].concat());
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(
        again
            .stderr
            .contains("hint: `agentctl config set agents.mine.env.X VALUE` changes it"),
        "{again:?}"
    );
    let set = place.agentctl(&["config", "set", "agents.mine.env.X", "1"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    assert_eq!(
        place.agentctl(&["send", "--agent", "mine", "x"]).stdout,
        "1\n"
    );
}
