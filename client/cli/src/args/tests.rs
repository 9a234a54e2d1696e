//! Command lines: each has an example, and each says what it can mean.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

#[test]
fn help_of_every_command_has_a_working_example() {
    fn check(command: &clap::Command) {
        let name = command.get_name();
        let help = command.get_after_help().map(ToString::to_string);
        if name != "config" || help.is_some() {
            let help = help.unwrap_or_else(|| panic!("`{name}` has no example"));
            assert!(help.contains("Examples:\n  "), "{name}");
        }
        for inner in command.get_subcommands() {
            check(inner);
        }
    }
    let command = Cli::command();
    command.clone().debug_assert();
    check(&command);
}

#[test]
fn help_of_every_command_and_alias_is_told() {
    fn check(command: &clap::Command, before: &[String]) {
        for inner in command.get_subcommands() {
            for name in std::iter::once(inner.get_name()).chain(inner.get_all_aliases()) {
                let mut words = before.to_vec();
                words.push(name.to_owned());
                let told = Cli::try_parse_from(&words).unwrap_err();
                let kind = ErrorKind::DisplayHelp;
                assert_eq!(told.kind(), kind, "{words:?}: {told}");
                let about = inner.get_about().unwrap().to_string();
                assert!(told.to_string().starts_with(&about), "{words:?}: {told}");
                if name == inner.get_name() && name != "help" {
                    check(inner, &words);
                }
            }
        }
    }
    check(&Cli::command(), &["agentctl", "help"].map(str::to_owned));
}

/// The command lines of this program in a line of a shell.
fn called(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("no shell reads `{line}`"));
    let parts = words.split(|word| matches!(word.as_str(), "|" | "&&" | "||" | ";"));
    let commands = parts.filter(|part| part.first().is_some_and(|word| word == "agentctl"));
    let of = |part: &[String]| {
        let own = part
            .iter()
            .take_while(|word| ![">", "<"].contains(&word.as_str()));
        own.cloned().collect()
    };
    commands.map(of).collect()
}

#[test]
fn help_breaks_no_line_twice() {
    fn look(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        // A paragraph in one line is broken where the terminal ends; one in several mustn't be.
        for paragraph in help.split("\n\n").filter(|text| text.contains('\n')) {
            for line in paragraph.lines() {
                assert!(
                    line.chars().count() <= 100,
                    "{}: {line}",
                    command.get_name()
                );
            }
        }
        command.get_subcommands().for_each(look);
    }
    look(&Cli::command());
}

#[test]
fn help_has_examples_that_the_program_takes() {
    fn examples(command: &clap::Command, found: &mut Vec<Vec<String>>) {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default().replace("\\\n", " ");
        let lines = help
            .lines()
            .skip_while(|line| !line.starts_with("Examples:"));
        let lines = lines.skip(1).take_while(|line| line.starts_with("  "));
        lines.for_each(|line| found.extend(called(line)));
        for inner in command.get_subcommands() {
            examples(inner, found);
        }
    }
    let mut found = Vec::new();
    let mut command = Cli::command();
    command.build();
    examples(&command, &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for words in found {
        let parsed = Cli::try_parse_from(&words);
        assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
    }
}

const SAID_BY_SCRIPTS: &[&str] = &[
    "agentctl agent --message hi --thinking low --session main --deliver --json",
    "agentctl collect j1 --timeout 0",
    "agentctl send hi --retry auto --mode reject --timeout 1.5 --socket /s",
    "agentctl --socket /s status --rpc",
    "agentctl status --rpc --watch --json",
    "agentctl logs --job j41 -f --since 2h -n 5",
    "agentctl log-level",
    "agentctl doctor --fix --full --json",
    "agentctl send -c more",
    "agentctl send -cq more --agent pi",
    "agentctl send -s main more --notify",
    "agentctl send more --notify=1m",
    "agentctl attach main --notify=5",
    "agentctl retry j41 --model large",
    "agentctl retry j41 j42",
    "agentctl retry --label run=7",
    "agentctl watch --raw",
    "agentctl abort j41",
    "agentctl restart pi --now",
    "agentctl agents restart --session main --now",
    "agentctl restart --deadline 5m",
    "agentctl abort main --queued",
    "agentctl kill j41",
    "agentctl cancel",
    "agentctl run hi -a pi -s main -m gpt -j",
    "agentctl agent -m hi -s main -j",
    "agentctl ls -j",
    "agentctl history --session main --last 3",
    "agentctl history -s main",
    "agentctl attach --session main",
    "agentctl sessions show --session main",
    "agentctl sessions resume -s main",
    "agentctl sessions rename main parser",
    "agentctl sessions rename --session main parser",
    "agentctl sessions close main other",
    "agentctl sessions close --session main --session other",
    "agentctl sessions close --idle 7d --yes",
    "agentctl ps",
    "agentctl jobs -n 5",
    "agentctl model --session main gpt",
    "agentctl compact --session main",
    "agentctl questions main",
    "agentctl agents test pi --timeout 2m",
    "agentctl agents default --unset",
    "agentctl voice forget mac",
    "agentctl config set agents.pi.warm -1",
    "agentctl config edit",
    "agentctl config show --json",
    "agentctl send hi --label a=b --label c=d --start-at 2h --expires 60 --after-failure run",
    "agentctl send hi --on-question deny --require-context",
    "agentctl dispatch a b --key-prefix k --collect",
    "agentctl jobs --state running --since 2h --label a --parent j1 --limit 5",
    "agentctl steer --job j1 left",
    "agentctl sessions",
    "agentctl sessions --json",
    "agentctl sessions --closed --agent pi",
    "agentctl sessions list --closed --json",
    "agentctl sessions new main --agent pi",
    "agentctl sessions close main other",
    "agentctl sessions close --idle 7d --agent pi",
    "agentctl sessions -n 5 -a pi --no-fallback",
    "agentctl sessions rename s41 parser --json",
    "agentctl sessions title s41 parser",
    "agentctl sessions title s41 --clear --json",
    "agentctl sessions fork s41",
    "agentctl sessions fork s41 other --json",
    "agentctl sessions new main --system brief",
    "agentctl send hi --system brief",
    "agentctl sessions search two words --session main --limit 3",
    "agentctl sessions show main",
    "agentctl jobs j41 --no-fallback",
    "agentctl jobs -a pi",
    "agentctl history --last",
    "agentctl history main --last 3 --full",
    "agentctl --color never usage --no-fallback",
    "agentctl agents --all",
    "agentctl history main --job j1 --full",
    "agentctl answer j1-q1",
    "agentctl answer j1-q1 --choice a",
    "agentctl model main a/b --thinking low",
    "agentctl compact",
    "agentctl provider",
    "agentctl provider --help",
    "agentctl provider add own --base-url http://127.0.0.1:1 --wire openai",
    "agentctl models fallbacks add a/b/c --json",
    "agentctl send hi --fallback a/b/c --fallback d/e",
    "agentctl send hi --tools file,terminal --tools web",
    "agentctl service install --dry-run",
    "agentctl service restart --deadline 5",
    "agentctl service logs -f -n 5",
    "agentctl watch --job j1 --job j2 --after 0 --epoch e",
    "agentctl --host me@mac:2222 send hi",
    "agentctl status --host mac --json",
    "agentctl forward me@mac --local /tmp/s",
    "agentctl forward --print-socket",
    "agentctl ssh-key mac --key k.pub",
    "agentctl voice forward --host mac --no-prefix --utterance u1",
    "agentctl voice check mac",
    "agentctl voice flush --max-age 2h",
    "agentctl ssh-key mac --key k.pub --agents a,b --no-tools --cwd-root /srv/a",
    "agentctl stdio --send-only",
    "agentctl stdio --send-only --agents a --tools web --cwd-root /srv/a --cwd-root /srv/b",
    "agentctl serve http --listen [::1]:0 --allow-host a --allow-origin https://a",
    "agentctl serve mcp --no-fallback --answers --abort-cancelled",
    "agentctl --host mac serve mcp",
    "agentctl serve acp --agent pi --no-fallback --bootstrap",
    "agentctl serve bridge --once --native-stream --assistant-delta --native-assistant-delta --model m --max-iterations 7",
    "agentctl serve bridge --toolsets file,web --disabled-toolsets web --cwd / --verbose --assistant-delta-chunk-size 9",
    "agentctl --host mac serve bridge --agent pi --stream-first-chunk-timeout-ms 0 --stream-idle-timeout-ms 9 --no-fallback",
    "agentctl serve pi --mode rpc --provider p --model m --thinking low --session /s.jsonl --tools read,grep",
    "agentctl serve pi --agent a --fork s --append-system-prompt x --no-tools --no-session --offline -e f",
    "agentctl serve pi -n x -t read -a --no-approve --skill s --theme t --verbose --system-prompt x --system-prompt y",
    "agentctl serve pi --list-models --agent a",
    "agentctl serve pi --list-models sonnet",
    "agentctl --host mac serve gateway --agent pi",
    "agentctl token --new",
    "agentctl send hi --callback https://ci.example/hook",
    "agentctl webhook list --state dead --limit 5 --json",
    "agentctl webhook add https://ci.example/ --allow-private",
    "agentctl webhook rotate https://ci.example/ --finish",
    "agentctl webhook list --before 4711",
    "agentctl cron add --model kimi-coding/kimi-k2.5 --message Work --at +1m",
    "agentctl cron add --name n --every 30m --session new --toolsets file --cwd / --label a=b hi",
    "agentctl cron edit c1 --cron @daily --tz UTC --missed all --overlap queue --keep 5",
    "agentctl cron rm c1",
    "agentctl cron runs c1 --limit 5 --json",
    "agentctl webhook replay evt_1",
    "agentctl webhook replay --dead --url https://ci.example/",
];

#[test]
fn what_scripts_already_say_parses() {
    for words in SAID_BY_SCRIPTS {
        assert!(Cli::try_parse_from(words.split(' ')).is_ok(), "{words}");
    }
}

#[test]
fn what_can_not_be_meant_is_refused() {
    for word in ["-1", "0", "--", "nan", "inf", "soon"] {
        let words = ["agentctl", "send", "hi", "--timeout", word];
        let error = Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(
            error.contains("expected a time such as 500ms, 90s, 10m, 2h, 7d, 1h30m, or seconds"),
            "{error}"
        );
    }
    for words in [
        "agentctl abort 41",
        "agentctl send -c -s main more",
        "agentctl retry 0",
        "agentctl watch --raw --json",
        "agentctl agents restart",
        "agentctl restart pi --deadline 5",
        "agentctl restart --now --deadline 5",
        "agentctl collect",
        "agentctl collect j1 --timeout -1",
        "agentctl stop --deadline=-1",
        "agentctl answer j1-q1 --approve --deny",
        "agentctl answer q1",
        "agentctl answer j1",
        "agentctl answer j1-q",
        "agentctl send hi --label novalue",
        "agentctl send hi --start-at soon",
        "agentctl jobs --state lost",
        "agentctl jobs j41 --agent pi",
        "agentctl sessions close",
        "agentctl sessions close main --idle 7d",
        "agentctl sessions search",
        "agentctl history main --last 2 --job j1",
        "agentctl --color sometimes jobs",
        "agentctl jobs --since never",
        "agentctl steer --job j1 --session main left",
        "agentctl watch --epoch e",
        "agentctl send hi --fallback kimi",
        "agentctl send hi --tools file,,web",
        "agentctl dispatch a --collect --no-such",
        "agentctl --host -oProxyCommand=id status",
        "agentctl --host=-oProxyCommand=id status",
        "agentctl --host mac --socket /s status",
        "agentctl serve",
        "agentctl serve http --listen 7878",
        "agentctl forward",
        "agentctl forward -- -oProxyCommand=id",
        "agentctl voice check -- -oProxyCommand=id",
        "agentctl voice forward --prefix --no-prefix",
        "agentctl voice forward --utterance a b",
        "agentctl voice flush --max-age 25h",
    ] {
        assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
    }
}

/// The Rust files below a directory, without those that are tests.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["tests", "target"].contains(&name) {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// A command as a hint has it, with something in the places that the program fills.
fn filled(hint: &str) -> Vec<String> {
    let mut text = hint.replace("\\\"", "\"").replace('…', "");
    // Words that are there or not.
    for way in ["COMMAND", "{}collect"] {
        text = text.replace(
            way,
            way.trim_matches(['{', '}'])
                .to_lowercase()
                .replace("command", "send")
                .as_str(),
        );
    }
    while let Some((before, after)) = text.split_once('{') {
        let (_, after) = after.split_once('}').unwrap();
        text = format!("{before}j1{after}");
    }
    let words = shlex::split(&text).unwrap_or_else(|| panic!("{hint}"));
    let is_place = |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
    let fill = |word: String| {
        if is_place(&word) {
            "j1".to_owned()
        } else {
            word
        }
    };
    words.into_iter().map(fill).collect()
}

/// Would the program say that there is no such command or option? A hint may leave out the rest.
fn is_none(words: &[String]) -> bool {
    match Cli::try_parse_from(words) {
        // The name of an agent there is for those who typed it always.
        Ok(Cli {
            command: Command::Restart(args),
            ..
        }) => args.workers().is_some(),
        Ok(_) => false,
        Err(error) => match error.kind() {
            ErrorKind::InvalidSubcommand => words[1] != "help-all",
            ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict => true,
            _ => false,
        },
    }
}

#[test]
fn hints_name_commands_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for dir in ["client", "daemon"] {
        sources(&root.join(dir), &mut files);
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let product = text.split("\nmod tests {").next().unwrap();
        // A literal goes on in the next line.
        let mut lines = product.split("\\\n");
        let mut joined = lines.next().unwrap_or_default().to_owned();
        for line in lines {
            joined.push_str(line.trim_start());
        }
        for piece in joined.split("`agentctl ").skip(1) {
            let Some((hint, _)) = piece
                .split_once('`')
                .filter(|(hint, _)| !hint.contains('\n'))
            else {
                continue;
            };
            seen += 1;
            if is_none(&filled(&format!("agentctl {hint}"))) {
                wrong.push(format!("{}: `agentctl {hint}`", file.display()));
            }
        }
    }
    assert!(seen > 100, "only {seen} were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn send_of_several_words_says_to_quote_them() {
    let told = |words: &str| {
        let words: Vec<OsString> = words.split(' ').map(Into::into).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        crate::with_tip(error, &words).to_string()
    };
    for words in [
        "send hi there",
        "run hi there you -q",
        "send -s main hi there",
    ] {
        let told = told(&format!("agentctl {words}"));
        assert!(
            told.contains("tip: put a text of several words in quotes"),
            "{told}"
        );
    }
    assert!(!told("agentctl send hi --no-such").contains("quotes"));
    assert!(!told("agentctl attach j1 j2").contains("quotes"));
}
