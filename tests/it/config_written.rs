//! `config.toml` as commands write it: never what a reader would refuse.
//!
//! Owns files that are somebody else's too, and what only the built-in agent can read.

use std::os::unix::fs::{PermissionsExt as _, chown};

use nix::unistd::Uid;

use crate::support::{Place, skipped};

/// Every command that writes it.
const WRITERS: &[&[&str]] = &[
    &["config", "set", "client.start", "never"],
    &["config", "unset", "default_agent"],
    &["config", "edit"],
    &["agents", "default", "timmy"],
    &["agents", "add", "q", "--kind", "exec", "--", "/bin/cat"],
    &["agents", "remove", "evil"],
    &["models", "default", "ollama/x"],
    &["webhook", "add", "https://ci.example/"],
];
const EVIL: &str =
    "default_agent = \"evil\"\n[agents.evil]\nkind = \"exec\"\ncommand = [\"/bin/sh\"]\n";

#[test]
fn config_that_isnt_ours_is_never_written() {
    let place = Place::new("");
    // In a directory that others may look into, as a home is.
    let dir = place.path("conf");
    std::fs::create_dir(&dir).unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(place.dir.path(), 0o755);
    let file = dir.join("config.toml");
    let refuse = |why: &str| {
        for words in WRITERS {
            let mut command = place.command(crate::support::AGENTCTL);
            command.env("AGENTD_CONFIG", &file).env("EDITOR", "true");
            command.args(*words);
            let refused = crate::support::finish(command, b"");
            let webhook = words[0] == "webhook" && why != "the directory";
            let (code, wrong) = match webhook {
                // It is another file.
                true => (Some(0), refused.stdout.contains("isn't yours")),
                false => (Some(78), !refused.stderr.contains("isn't yours alone")),
            };
            assert_eq!(
                (refused.code, wrong),
                (code, false),
                "{why}: {words:?}: {refused:?}"
            );
            assert_eq!(std::fs::read_to_string(&file).unwrap(), EVIL, "{words:?}");
        }
    };
    std::fs::write(&file, EVIL).unwrap();
    mode(&file, 0o666);
    mode(&dir, 0o755);
    refuse("its mode");
    mode(&file, 0o600);
    if !Uid::effective().is_root() {
        skipped("root, who can give files away");
        return;
    }
    chown(&file, Some(1234), None).unwrap();
    refuse("its owner");
    chown(&file, Some(0), None).unwrap();
    chown(&dir, Some(1234), None).unwrap();
    refuse("the directory");
}

#[test]
fn config_that_timmy_cant_read_isnt_set() {
    let place = Place::new("# Mine.\n");
    let text = || std::fs::read_to_string(place.path("config.toml")).unwrap();
    for (key, value, why) in [
        (
            "providers.x.price",
            "[1,2]",
            "`providers.x` has no `base_url`",
        ),
        ("models.default", "x/y", "there is no provider `x`"),
        ("models.defalt", "ollama/y", "unknown key `defalt`"),
        ("timmy.network", "perhaps", "expected a boolean"),
    ] {
        let refused = place.agentctl(&["config", "set", key, value]);
        assert_eq!(refused.code, Some(2), "{key}: {refused:?}");
        assert!(refused.stderr.contains(why), "{key}: {refused:?}");
        assert_eq!(text(), "# Mine.\n", "{key}");
    }
    for (key, value) in [
        ("providers.x.base_url", "http://127.0.0.1:1/v1"),
        ("providers.x.price", "[1,2]"),
        ("models.default", "x/y"),
    ] {
        let set = place.agentctl(&["config", "set", key, value]);
        assert_eq!(set.code, Some(0), "{key}: {set:?}");
    }
    // What the chain needs stays, too.
    let before = text();
    let refused = place.agentctl(&["config", "unset", "providers.x"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(text(), before);
    // A fault that is there already keeps nobody from another change.
    place.configure("[models]\ndefault = \"x/y\"\n");
    let other = place.agentctl(&["config", "set", "client.start", "never"]);
    assert_eq!(other.code, Some(0), "{other:?}");
}

#[test]
fn config_of_echo_says_how_it_is_used() {
    let place = Place::new("# Mine.\n");
    for words in [
        &["models", "list", "echo"][..],
        &["config", "set", "models.default", "echo/scripted"],
        &["models", "default", "echo/scripted"],
    ] {
        let refused = place.agentctl(words);
        assert_eq!(refused.code, Some(2), "{words:?}: {refused:?}");
        for part in [
            "the provider `echo` has no models",
            "`agentctl send --provider echo`",
            "`agentctl config set agents.timmy.provider echo`",
        ] {
            assert!(
                refused.stderr.contains(part),
                "{words:?}: {part}: {refused:?}"
            );
        }
    }
    let set = place.agentctl(&["config", "set", "agents.timmy.provider", "echo"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let sent = place.agentctl(&["send", "hi"]);
    assert_eq!(sent.stdout, "hi\n", "{sent:?}");
}

#[test]
fn config_edited_wrong_for_timmy_is_told_everywhere() {
    use crate::support::{AGENTCTL, Daemon, finish};
    let place = Place::new(&format!("{}[timmy]\nnosuch = 1\n", Daemon::config("")));
    let agentctl = |words: &[&str]| {
        let mut command = place.command(AGENTCTL);
        command.args(words).env("EDITOR", "true");
        finish(command, b"")
    };
    let told = "unknown key `nosuch`";
    for (words, code, begin) in [
        (&["start"][..], 0, "warning: "),
        (&["restart"], 0, "warning: "),
        (&["config", "show"], 0, "warning: "),
        (&["config", "edit"], 78, "error: "),
    ] {
        let said = agentctl(words);
        assert_eq!(said.code, Some(code), "no daemon refuses it: {said:?}");
        let mut lines = said.stderr.lines().filter(|line| line.contains(told));
        let line = lines.next().unwrap_or_default();
        let is_told = line.starts_with(begin) && line.contains("config.toml:");
        assert!(is_told && lines.next().is_none(), "{words:?}: {said:?}");
    }
    assert_eq!(agentctl(&["stop"]).code, Some(0));
    let looked = agentctl(&["doctor"]).stdout;
    let is_told = |line: &str| line.starts_with("PROBLEM  config ") && line.contains(told);
    assert!(looked.lines().any(is_told), "{looked}");
}

#[test]
fn start_tells_where_a_damaged_store_lies() {
    use crate::support::{AGENTCTL, Daemon, finish};
    let place = Place::new(&Daemon::config(""));
    let agentctl = |word: &str| {
        let mut command = place.command(AGENTCTL);
        command.arg(word);
        finish(command, b"")
    };
    assert_eq!(agentctl("start").code, Some(0));
    assert_eq!(agentctl("stop").code, Some(0));
    std::fs::write(place.path("state/agentd.db"), "junk\n").unwrap();
    let started = agentctl("start");
    assert_eq!(agentctl("stop").code, Some(0));
    assert!(
        started.stderr.contains("note: the store was damaged")
            && started.stderr.contains("agentd.db.corrupt-")
            && started.stderr.contains("hint: "),
        "{started:?}"
    );
}

#[test]
fn config_knows_keys_of_timmy_that_arent_set() {
    let place = Place::new(&crate::support::Daemon::config(""));
    let config = |words: &[&str]| place.agentctl(&[&["config"], words].concat());
    for (key, code, told) in [
        ("timmy.mcp", 1, "`timmy.mcp` is not set"),
        ("models.default", 1, "`models.default` is not set"),
        ("timmy.writabel", 2, "did you mean `writable`?"),
    ] {
        let said = config(&["get", key]);
        assert_eq!(said.code, Some(code), "{key}: {said:?}");
        assert!(said.stderr.contains(told), "{key}: {said:?}");
    }
    assert_eq!(config(&["get", "timmy.writable"]).stdout, "[]\n");
    let set = config(&["set", "timmy.toolsets", "file"]);
    assert_eq!(set.code, Some(0), "one word is a list: {set:?}");
    assert_eq!(config(&["get", "timmy.toolsets"]).stdout, "[\"file\"]\n");
    let none = config(&["set", "timmy.toolsets", "nosuch"]);
    assert!(none.stderr.contains("no toolset `nosuch`"), "{none:?}");
    let words = ["send", "--no-fallback", "--tools", "nosuch", "hi"];
    let daemon = crate::support::Daemon::start();
    let refused = daemon.agentctl(&words);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(
        refused.stderr.contains("expected `file`, `file-read`"),
        "{refused:?}"
    );
}

/// What is shown as the built-in agent's defaults it takes as it is written.
#[test]
fn config_show_defaults_of_timmy_are_its_own() {
    let of_timmy = |place: &Place, source: &str| {
        let shown = place.agentctl(&["config", "show"]);
        assert_eq!((shown.code, &*shown.stderr), (Some(0), ""), "{shown:?}");
        let lines = shown.stdout.lines().map(str::to_owned);
        let lines = lines.filter(|line| line.starts_with("timmy.") && line.contains(source));
        let values = lines.filter_map(|line| Some(line.split_once("  #")?.0.to_owned()));
        values.collect::<Vec<String>>()
    };
    let defaults = of_timmy(&Place::new(""), "# default");
    assert!(
        defaults.contains(&"timmy.network = false".to_owned()),
        "{defaults:?}"
    );
    let written = Place::new(&defaults.join("\n"));
    let mut told = of_timmy(&written, "config.toml:");
    told.sort();
    let mut expected = defaults;
    expected.sort();
    assert_eq!(told, expected);
}

#[test]
fn config_check_says_where_it_is_wrong() {
    let place = Place::new("");
    let checked = |text: &str| {
        std::fs::write(place.path("config.toml"), text).unwrap();
        place.agentctl(&["config", "check"])
    };
    let good = checked("# nothing\n");
    assert_eq!((good.code, &*good.stdout), (Some(0), "it can be used\n"));
    for (text, line) in [
        ("\n[pool]\nmemori = 1\n", ":3: "),
        // Only the built-in agent reads this one.
        ("[models]\n\ndefault = 3\n", ":3: "),
    ] {
        let wrong = checked(text);
        assert_eq!((wrong.code, &*wrong.stdout), (Some(78), ""), "{wrong:?}");
        assert!(wrong.stderr.contains(line), "{wrong:?}");
    }
    // A change that is refused says that it changed nothing.
    checked("");
    let refused = place.agentctl(&["config", "set", "pool.memori", "1"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("; nothing was changed\nhint: "),
        "{refused:?}"
    );
}
