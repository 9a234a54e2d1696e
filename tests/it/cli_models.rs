//! `agentctl provider` and `agentctl models`, and what a machine without a model says.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::mock_model::MockModel;
use crate::support::{AGENTCTL, Finished, Place, TIMMY, finish};

/// Nobody listens there, whatever runs on this machine.
const NO_SERVERS: &str = "[providers.ollama]\nbase_url = 'http://127.0.0.1:9'\n\
    [providers.lmstudio]\nbase_url = 'http://127.0.0.1:9/v1'\n\
    [providers.llamacpp]\nbase_url = 'http://127.0.0.1:9/v1'\n";
const KEY: &str = "sk-test-0123456789";

fn bare() -> Place {
    Place::new(&format!("default_agent = \"timmy\"\n{NO_SERVERS}"))
}

fn with_input(place: &Place, args: &[&str], input: &str) -> Finished {
    let mut command = place.command(AGENTCTL);
    command.args(args);
    finish(command, input.as_bytes())
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished:?}"))
}

fn timmy(place: &Place, args: &[&str]) -> Finished {
    let mut command: Command = place.command(TIMMY);
    command.args(args);
    finish(command, b"")
}

#[test]
fn models_missing_says_what_to_do_at_once() {
    let place = bare();
    let sent = place.agentctl(&["send", "hello"]);
    assert_eq!(sent.code, Some(78), "{sent:?}");
    for word in [
        "No model is configured, so nothing was run",
        "KIMI_API_KEY",
        "http://127.0.0.1:9 (no answer)",
        "agentctl provider add gemini",
        "agentctl send --provider echo hello",
        "agentctl demo",
    ] {
        assert!(sent.stderr.contains(word), "{word}: {sent:?}");
    }
    assert_eq!(sent.stdout, "");
    let lines = place.agentctl(&["send", "hello", "--json"]);
    assert_eq!(lines.code, Some(78), "{lines:?}");
    let lines: Vec<Value> = lines
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let event = lines
        .iter()
        .find(|line| line["type"] == "agent_event")
        .unwrap();
    assert_eq!(event["kind"], "no-model");
    assert_eq!(
        event["data"]["checked"].as_array().unwrap().len(),
        3,
        "{event:#}"
    );
    assert!(event["data"]["next"][0]["command"].is_string(), "{event:#}");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["retryable"]),
        (&"no-model".into(), &false.into())
    );
    let alone = timmy(&place, &["-p", "hello"]);
    assert_eq!(alone.code, Some(78), "{alone:?}");
    assert!(alone.took < Duration::from_secs(1), "{alone:?}");
    assert!(
        alone.stderr.contains("timmy provider add gemini"),
        "{alone:?}"
    );
    // The job is there, with its code.
    let daemon = place.start();
    let jobs = json(&daemon.agentctl(&["jobs", "--json"]));
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2, "{jobs:#}");
    assert_eq!(jobs["jobs"][0]["state"], "failed", "{jobs:#}");
}

#[test]
fn provider_key_is_stored_without_being_shown() {
    let place = bare();
    let added = with_input(&place, &["provider", "add", "google"], &format!("{KEY}\n"));
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(
        added.stdout.contains("gemini: GEMINI_API_KEY stored in"),
        "{added:?}"
    );
    assert!(
        added.stdout.contains("`agentctl provider test gemini`"),
        "{added:?}"
    );
    let file = place.path("env");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        format!("GEMINI_API_KEY={KEY}\n")
    );
    let listed = place.agentctl(&["provider", "list"]);
    assert!(
        listed.stdout.contains("GEMINI_API_KEY, in the file env"),
        "{listed:?}"
    );
    let status = place.agentctl(&["models", "status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.stdout.contains("gemini/"), "{status:?}");
    for shown in [&added, &listed, &status] {
        assert!(!format!("{shown:?}").contains(KEY), "{shown:?}");
    }
    let removed = place.agentctl(&["provider", "remove", "gemini"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    // Nobody knows the models of one's own: the next command says that it needs one.
    let own = ["provider", "add", "own", "--base-url", "http://127.0.0.1:1"];
    let added = with_input(&place, &own, "");
    for part in ["(key: none needed)", "`agentctl provider test own MODEL`"] {
        assert!(added.stdout.contains(part), "{part}: {added:?}");
    }
    for (args, input, code) in [
        (&["provider", "add", "gemini"][..], "", 2),
        (&["provider", "add", "gemini"], "two words", 2),
        (&["provider", "add", "gemni"], KEY, 2),
        (&["provider", "add", "gemini", KEY], "", 2),
        (
            &[
                "provider",
                "add",
                "far",
                "--base-url",
                "http://example.com/v1",
            ],
            KEY,
            2,
        ),
        (&["provider", "test", "gemini"], "", 78),
    ] {
        let failed = with_input(&place, args, input);
        assert_eq!(failed.code, Some(code), "{args:?}: {failed:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn provider_keys_file_open_to_others_is_refused() {
    let place = bare();
    let file = place.path("env");
    std::fs::write(&file, "GEMINI_API_KEY=x\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    for args in [&["provider", "list"][..], &["models", "status"]] {
        let failed = place.agentctl(args);
        assert_eq!(failed.code, Some(78), "{failed:?}");
        assert!(failed.stderr.contains("0644"), "{failed:?}");
    }
}

#[test]
fn chain_is_shown_and_corrects_a_wrong_name() {
    let place = bare();
    for args in [
        &["models", "default", "gemini/gemini-2.5-pro"][..],
        &[
            "models",
            "fallbacks",
            "add",
            "openrouter/openai/gpt-4.1-mini",
        ],
        &[
            "models",
            "aliases",
            "add",
            "fast",
            "groq/openai/gpt-oss-120b",
        ],
        &["models", "fallbacks", "add", "fast", "--at", "1"],
    ] {
        let done = place.agentctl(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
    }
    let status = json(&place.agentctl(&["models", "status", "--json"]));
    let chain: Vec<&str> = status["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["model"].as_str().unwrap())
        .collect();
    assert_eq!(
        chain,
        [
            "gemini/gemini-2.5-pro",
            "groq/openai/gpt-oss-120b",
            "openrouter/openai/gpt-4.1-mini"
        ]
    );
    assert_eq!(status["chain"][0]["usable"], false);
    assert_eq!(
        place.agentctl(&["models", "status"]).code,
        Some(78),
        "nobody has a key"
    );
    for (args, said) in [
        (
            &["models", "default", "gemni/x"][..],
            "did you mean `gemini`?",
        ),
        (
            &["models", "fallbacks", "add", "kimi"],
            "neither `provider/model`",
        ),
        (
            &[
                "models",
                "fallbacks",
                "remove",
                "openrouter/openai/gpt-4.1-mni",
            ],
            "did you mean `openrouter/openai/gpt-4.1-mini`?",
        ),
        (
            &["models", "aliases", "remove", "fsat"],
            "did you mean `fast`?",
        ),
    ] {
        let failed = place.agentctl(args);
        assert_eq!(failed.code, Some(2), "{args:?}: {failed:?}");
        assert!(failed.stderr.contains(said), "{failed:?}");
    }
    // The daemon reads the same file.
    let config = place.agentctl(&["config", "show"]);
    assert!(config.stdout.contains("models.default"), "{config:?}");
    let cleared = place.agentctl(&["models", "fallbacks", "clear", "--json"]);
    assert_eq!(json(&cleared)["fallbacks"], serde_json::json!([]));
}

#[test]
fn models_without_a_key_say_what_to_type() {
    let place = bare();
    place.configure(&format!(
        "default_agent = \"timmy\"\n{NO_SERVERS}\n[models]\ndefault = \"own/m\"\n\
         [providers.own]\nbase_url = \"https://llm.invalid/v1\"\nkey_env = \"OWN_KEY\"\n"
    ));
    let add = "hint: `agentctl provider add own` stores one, or set `OWN_KEY`";
    let status = place.agentctl(&["models", "status"]);
    assert_eq!(status.code, Some(78), "{status:?}");
    assert!(status.stdout.contains("no key (OWN_KEY)"), "{status:?}");
    assert!(
        status.stderr.contains("none of these can be asked"),
        "{status:?}"
    );
    assert!(status.stderr.contains(add), "{status:?}");
    let list = place.agentctl(&["models", "list", "own"]);
    assert_eq!(list.code, Some(1), "{list:?}");
    assert!(list.stderr.contains("there is no key for it"), "{list:?}");
    assert!(list.stderr.contains(add), "{list:?}");
}

#[test]
fn provider_list_shows_that_echo_is_there() {
    let place = bare();
    let listed = place.agentctl(&["provider", "list"]);
    let echo = listed.stdout.lines().find(|line| line.starts_with("echo "));
    let echo = echo.unwrap_or_else(|| panic!("{listed:?}"));
    assert!(echo.contains("none needed"), "{echo}");
    let sent = place.agentctl(&["send", "--provider", "echo", "hello"]);
    assert_eq!(sent.stdout, "hello\n", "{sent:?}");
}

#[test]
fn provider_of_ones_own_is_added_and_asked() {
    let model = MockModel::start();
    let place = bare();
    let url = model.url.clone();
    let added = with_input(
        &place,
        &[
            "provider",
            "add",
            "own",
            "--base-url",
            &url,
            "--wire",
            "openai",
        ],
        KEY,
    );
    assert_eq!(added.code, Some(0), "{added:?}");
    let tested = place.agentctl(&["provider", "test", "own", "some-model", "--json"]);
    assert_eq!(tested.code, Some(0), "{tested:?}");
    assert_eq!(json(&tested)["ok"], true, "{tested:?}");
    let asked = model.asked();
    let bearer = asked.last().unwrap().header("authorization");
    assert_eq!(bearer, Some(format!("Bearer {KEY}").as_str()));
    assert!(!format!("{tested:?}").contains(KEY));
    let away = with_input(
        &place,
        &[
            "provider",
            "add",
            "away",
            "--base-url",
            "http://127.0.0.1:9/v1",
        ],
        "",
    );
    assert_eq!(away.code, Some(0), "{away:?}");
    let failed = place.agentctl(&["provider", "test", "away", "m"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(
        failed.stderr.contains("away/m did not answer"),
        "{failed:?}"
    );
}

#[test]
fn environment_of_timmy_has_every_providers_variable() {
    let place = bare();
    let listed = json(&place.agentctl(&["provider", "list", "--json"]));
    let presets = include_str!("../../daemon/src/config/presets.rs");
    let readme = include_str!("../../daemon/timmy/README.md");
    let providers = listed["providers"].as_array().unwrap();
    assert!(providers.len() >= 14, "{listed:#}");
    for provider in providers {
        let name = provider["provider"].as_str().unwrap();
        assert!(
            readme.contains(&format!("| `{name}` |")),
            "{name} is not in the README"
        );
        for variable in provider["key_variables"].as_array().unwrap() {
            let variable = variable.as_str().unwrap();
            assert!(presets.contains(&format!("\"{variable}\"")), "{variable}");
            assert!(readme.contains(&format!("`{variable}`")), "{variable}");
        }
    }
}

#[test]
fn provider_key_that_two_share_stays_for_one() {
    let place = bare();
    let file = place.path("env");
    let store = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    store("KIMI_API_KEY=x\nMOONSHOT_API_KEY=y\n");
    let removed = place.agentctl(&["provider", "remove", "moonshot"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "KIMI_API_KEY=x\n");
    assert!(
        removed
            .stderr
            .contains("KIMI_API_KEY is kept: `kimi-coding` uses it"),
        "{removed:?}"
    );
    let removed = place.agentctl(&["provider", "remove", "kimi-coding"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn provider_variable_that_is_wrong_spoils_one_row() {
    let place = Place::new("default_agent = \"timmy\"\n");
    for (args, says) in [
        (&["provider", "list"][..], "OPENAI_API_KEY"),
        (&["provider", "list", "--json"], "https://api.x.ai/v1"),
    ] {
        let mut command = place.command(TIMMY);
        command.args(args).env("LM_BASE_URL", "127.0.0.1:1234");
        let listed = finish(command, b"");
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let wrong = "the variable LM_BASE_URL: `127.0.0.1:1234` is not a base URL";
        assert!(listed.stdout.contains(wrong), "{listed:?}");
        assert!(listed.stdout.contains(says), "{listed:?}");
    }
}

/// A mock that is asked first, and another one behind it.
fn two(model: &MockModel) -> Place {
    Place::new(&format!(
        "[models]\ndefault = 'one/m1'\nfallbacks = ['two/m2']\n\
         [providers.one]\nbase_url = '{0}'\nprice = [1.0, 2.0]\n[providers.two]\nbase_url = '{0}'\n",
        model.url
    ))
}

#[test]
fn cooldown_ends_with_another_key_or_good_test() {
    let model = MockModel::start();
    let place = two(&model);
    let cooling = |key: &str| {
        let mut command = place.command(TIMMY);
        command
            .args(["models", "status", "--json"])
            .env("ONE_API_KEY", key);
        json(&finish(command, b""))["chain"][0]["cooling"]["class"].clone()
    };
    let ask = |args: &[&str]| {
        let mut command = place.command(TIMMY);
        command.args(args).env("ONE_API_KEY", "first");
        finish(command, b"")
    };
    let asked = ask(&["-p", "[[fail=billing]] [[on=m1]]"]);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    assert_eq!(cooling("first"), "billing");
    assert_eq!(cooling("second"), Value::Null);
    let tested = ask(&["provider", "test", "one", "m1"]);
    assert_eq!(tested.code, Some(0), "{tested:?}");
    assert_eq!(cooling("first"), Value::Null);
}

#[test]
fn proxy_is_not_asked_for_a_local_server() {
    let model = MockModel::start();
    let place = two(&model);
    let mut command = place.command(TIMMY);
    // Nobody listens there.
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command.args(["provider", "test", "one", "m1"]);
    let tested = finish(command, b"");
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

#[test]
fn a_refusal_is_said_and_is_no_success() {
    let model = MockModel::start();
    let place = two(&model);
    let alone = timmy(&place, &["-p", "[[refuse=finish]]"]);
    assert_eq!(alone.code, Some(1), "{alone:?}");
    assert!(
        alone.stderr.contains("error: the model refused: "),
        "{alone:?}"
    );
    let sent = place.agentctl(&["send", "--agent", "timmy", "[[refuse=finish]]"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.stderr.contains("error: the model refused"), "{sent:?}");
}

#[test]
fn scripted_model_is_named_as_behind_the_daemon() {
    let place = bare();
    let said = timmy(&place, &["-p", "hi you", "--model", "echo/scripted"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "hi you\n"),
        "{said:?}"
    );
    let wrong = timmy(&place, &["-p", "hi", "--model", "echo/other"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(
        wrong.stderr.contains("its only model is `scripted`"),
        "{wrong:?}"
    );
}

#[test]
fn models_of_nobody_say_what_to_do() {
    let nobody = bare().agentctl(&["models", "list"]);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(
        nobody.stderr.contains("there is nobody to ask"),
        "{nobody:?}"
    );
    assert!(
        nobody.stderr.contains("`agentctl provider add NAME`"),
        "{nobody:?}"
    );
    for (model, key) in [
        (
            "gemini/gemini-2.5-flash",
            "GEMINI_API_KEY or GOOGLE_API_KEY",
        ),
        ("groq/", "GROQ_API_KEY"),
        ("ollama at", "http://127.0.0.1:"),
    ] {
        let mut lines = nobody.stderr.lines();
        let told = lines.any(|line| line.contains(model) && line.contains(key));
        assert!(told, "{model}: {nobody:?}");
    }
}
