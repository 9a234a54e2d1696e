//! The configuration as people write it, right and wrong.

mod agents_md;
mod edits;
mod finding;
mod routes;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use agentd_core::agent::{
    Agent, Capabilities, Found, Levels, Providers, Resume, Sessions, SystemText,
};
use agentd_core::attached::AttachmentSupport;
use tempfile::TempDir;

use agentd_core::agent::Warm;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/c/config.toml"), &HostEnv::default())
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn program(dir: &Path, name: &str) -> PathBuf {
    let file = dir.join(name);
    fs::write(&file, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn describe(_kind: Kind, _command: &[String]) -> Capabilities {
    Capabilities {
        sessions: Sessions::Many,
        resume: Resume::Native,
        cancels: true,
        recycles: true,
        model_per_turn: true,
        thinking_per_turn: true,
        switches: false,
        models: true,
        providers: Providers::Any,
        thinking: Levels::Any,
        modes: agentd_core::agent::Modes::None,
        toolsets: agentd_core::toolsets::Toolsets::Own,
        fallback_chain: false,
        system: SystemText::InPrompt,
        history: false,
        mcp: agentd_core::mcp::McpServing::Never,
        forks: false,
        steers: false,
        lists_models: false,
        lists_commands: false,
        compacts: false,
        attachments: AttachmentSupport::Nothing,
        concurrent_sends: 1,
        tells: agentd_core::agent::Reports::TEXT,
        ready_within: Duration::from_secs(1),
    }
}

fn found(config: &Config, look: &HostEnv, name: &str) -> (Agent, Option<AgentConfig>) {
    let agents = discover::agents_as(config, look, &describe);
    let found: Vec<_> = agents
        .into_iter()
        .filter(|(agent, _)| agent.name == name)
        .collect();
    assert_eq!(found.len(), 1, "{name}");
    found.into_iter().next().unwrap()
}

#[test]
fn configuration_documented_is_read_or_its_defaults() {
    let config = parse(
        r#"
default_agent = "pi"
alias = false
[agents.pi]
command = ["/opt/pi", "--mode", "rpc"]
pass_env = ["ANTHROPIC_API_KEY"]
warm = 1
idle_timeout = "10m"
env = { A = "b" }
[models]
default = "kimi/k3"
fallbacks = ["gemini/gemini-2.5-flash"]
aliases = { local-llm = "ollama/qwen3" }
[providers.own]
base_url = "http://127.0.0.1:1"
[timmy.mcp.files]
command = ["mcp"]
"#,
    )
    .unwrap();
    let pi = &config.agents["pi"];
    assert_eq!(
        (pi.kind, pi.warm, pi.idle_timeout),
        (Kind::Pi, Warm::Always(1), Duration::from_secs(600))
    );
    assert_eq!(pi.env["A"], "b");
    assert_eq!(config.alias, None);
    let of_timmy: Vec<String> = (config.of_timmy.iter())
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    assert_eq!(
        of_timmy,
        [
            r#"models.aliases.local-llm = "ollama/qwen3""#,
            r#"models.default = "kimi/k3""#,
            r#"models.fallbacks = ["gemini/gemini-2.5-flash"]"#,
            r#"providers.own.base_url = "http://127.0.0.1:1""#,
            r#"timmy.mcp.files.command = ["mcp"]"#,
        ]
    );

    assert_eq!(config.provider_keys, ["OWN_API_KEY"]);

    let nothing = Path::new("/nonexistent/x");
    let config = Config::load(nothing, nothing, &HostEnv::default()).unwrap();
    assert_eq!(config.alias.as_deref(), Some(Path::new(DEFAULT_ALIAS)));
    let alias = Some("false".to_owned());
    let look = HostEnv {
        alias,
        ..HostEnv::default()
    };
    assert_eq!(Config::load(nothing, nothing, &look).unwrap().alias, None);
}

#[test]
fn configuration_key_unknown_names_line_and_nearest() {
    for (text, expected) in [
        (
            "\ndefault_agnet = 'pi'",
            "/c/config.toml:2: unknown key `default_agnet`; hint: did you mean `default_agent`?",
        ),
        (
            "[agents.pi]\ncomand = []",
            "/c/config.toml:2: unknown key `agents.pi.comand`; hint: did you mean `command`?",
        ),
        (
            "[retention]\nzzzzzzzzz = 1",
            "/c/config.toml:2: unknown key `retention.zzzzzzzzz`; hint: known here: days, size",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
}

#[test]
fn configuration_value_wrong_says_what_is_expected() {
    for (text, expected) in [
        (
            "default_agent = 1",
            "is a value of type integer, expected a string",
        ),
        ("alias = true", "expected an absolute path or `false`"),
        ("alias = 'x.sock'", "expected an absolute path or `false`"),
        ("[agents.pi]\nwarm = -1", "config.toml:2: `agents.pi.warm`"),
        (
            "[agents.pi]\nidle_timeout = '10 parsecs'",
            "expected a time such as 500ms, 90s, 10m",
        ),
        (
            "[agents.pi]\ncommand = 'pi'",
            "type string, expected an array of strings",
        ),
        (
            "[agents.pi]\ncommand = ['bin/pi']",
            "is a relative path; hint: write an absolute path",
        ),
        ("[agents.pi]\ncommand = []", "is empty"),
        (
            "[agents.x]\nkind = 'exce'\ncommand = ['/x']",
            "did you mean `exec`?",
        ),
        (
            "[agents.x]\ncommand = ['/x']",
            "config.toml:1: agent `x` has no `kind`",
        ),
        ("[agents.x]\nkind = 'exec'", "agent `x` has no `command`"),
        ("[agents.'a b']\nkind = 'exec'", "can't name an agent"),
        ("a = = 1", "config.toml:1:"),
    ] {
        let error = refused(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn time_has_its_unit_or_is_in_seconds() {
    for (text, expected) in [
        ("'10m'", 600_000),
        ("'90s'", 90_000),
        ("'500ms'", 500),
        ("'2h'", 7_200_000),
        ("45", 45_000),
    ] {
        let text = format!("[agents.pi]\ncommand = ['/pi']\nidle_timeout = {text}");
        let config = parse(&text).unwrap();
        assert_eq!(
            config.agents["pi"].idle_timeout,
            Duration::from_millis(expected)
        );
    }
}

#[test]
fn program_by_bare_name_is_of_path_only() {
    let dir = TempDir::new().unwrap();
    let there = program(dir.path(), "tool");
    let mut look = HostEnv {
        path: vec![PathBuf::new(), PathBuf::from(".")],
        ..HostEnv::default()
    };
    let text = "[agents.x]\nkind = 'exec'\ncommand = ['tool', '-p']";
    let file = Path::new("/c/config.toml");
    let config = Config::parse(text, file, &look).unwrap();
    assert_eq!(config.agents["x"].command, ["tool", "-p"]);
    let (agent, none) = found(&config, &look, "x");
    assert_eq!(
        agent.usable,
        Err("its program `tool` is not on PATH".to_owned())
    );
    assert_eq!(none, None);

    look.path.push(dir.path().to_owned());
    let config = Config::parse(text, file, &look).unwrap();
    assert_eq!(config.agents["x"].command[0], there.to_string_lossy());
    let (agent, some) = found(&config, &look, "x");
    assert_eq!((agent.usable, agent.found), (Ok(()), Found::Configured));
    assert!(some.is_some());
}

#[test]
fn timmy_is_there_and_says_what_it_lacks() {
    let dir = TempDir::new().unwrap();
    let timmy = program(dir.path(), "timmy");
    let look = HostEnv {
        exe_dir: Some(dir.path().to_owned()),
        ..HostEnv::default()
    };
    let (agent, run) = found(&Config::default(), &look, "timmy");
    assert_eq!((agent.usable, agent.found), (Ok(()), Found::BuiltIn));
    let timmy = timmy.to_string_lossy().into_owned();
    assert_eq!(run.unwrap().command, [timmy.clone(), "--rpc".to_owned()]);

    let text = "[agents.timmy]\nprovider = 'echo'";
    let config = Config::parse(text, Path::new("/c"), &look).unwrap();
    let (agent, run) = found(&config, &look, "timmy");
    assert_eq!(agent.usable, Ok(()));
    assert_eq!(
        run.unwrap().command,
        [&timmy, "--rpc", "--provider", "echo"]
    );
}

#[test]
fn secrets_are_read_privately_and_never_shown() {
    let dir = TempDir::new().unwrap();
    let env = dir.path().join("env");
    let file = dir.path().join("config.toml");
    fs::write(&env, "# keys\nexport A_KEY=\"s3cret\"\n\nB=x=y\n").unwrap();
    fs::write(
        &file,
        "[agents.pi]\ncommand = ['/pi']\nenv = { C = 's3cret' }\n",
    )
    .unwrap();
    fs::set_permissions(&env, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Config::load(&file, &env, &HostEnv::default()).unwrap_err();
    assert!(
        error.to_string().contains("mode 0640, expected 0600"),
        "{error}"
    );
    fs::set_permissions(&env, fs::Permissions::from_mode(0o600)).unwrap();
    let config = Config::load(&file, &env, &HostEnv::default()).unwrap();
    assert_eq!(
        (&*config.secrets["A_KEY"], &*config.secrets["B"]),
        ("s3cret", "x=y")
    );

    let shown = config.show();
    assert!(shown.iter().all(|one| !one.value.contains("s3cret")));
    let source = |key: &str| {
        let one = shown.iter().find(|one| one.key == key).expect(key);
        one.source.clone()
    };
    assert_eq!(source("alias"), "default");
    assert_eq!(source("agents.pi.command"), format!("{}:2", file.display()));
    assert_eq!(source("agents.pi.env.C"), format!("{}:3", file.display()));
    assert_eq!(source("agents.pi.warm"), "default");
    assert_eq!(source("env.A_KEY"), env.display().to_string());

    fs::write(&env, "s3cret without a name\n").unwrap();
    let error = Config::load(&file, &env, &HostEnv::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("env:1:") && !error.contains("s3cret"),
        "{error}"
    );
}

#[test]
fn retention_is_read_shown_and_checked() {
    let shown = |config: &Config| {
        let shown = config.show();
        let value = |key: &str| shown.iter().find(|one| one.key == key).unwrap().clone();
        let (days, size) = (value("retention.days"), value("retention.size"));
        (days.value, days.source, size.value)
    };
    let default = parse("").unwrap();
    let told = |days: &str, source: &str, size: &str| {
        (days.to_owned(), source.to_owned(), size.to_owned())
    };
    assert_eq!(shown(&default), told("30", "default", "\"1GiB\""));
    let set = parse("[retention]\ndays = 7\nsize = \"512MiB\"").unwrap();
    assert_eq!(
        (set.retention.days, set.retention.size),
        (7, 512 * 1024 * 1024)
    );
    assert_eq!(shown(&set), told("7", "/c/config.toml:2", "\"512MiB\""));
    for (text, expected) in [
        (
            "[retention]\nday = 1",
            "/c/config.toml:2: unknown key `retention.day`; hint: did you mean `days`?",
        ),
        (
            "[retention]\ndays = 0",
            "`retention.days` is 0, which would delete each result as soon as it is there: expected 1 to \
             36500; hint: 1 keeps them a day, 36500 a hundred years",
        ),
        (
            "[retention]\ndays = 36501",
            "`retention.days` is a value of type integer, expected a whole number from 1 to 36500",
        ),
        (
            "[retention]\nsize = \"1GB\"",
            "`retention.size` is a value of type string, expected a size of at least",
        ),
        ("[retention]\nsize = 1000", "a size of at least \"16MiB\""),
    ] {
        let error = refused(text);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn warnings_name_the_key_and_no_value() {
    let text = "[agents.x]\nkind = 'jsonl'\ncommand = ['/x', '{model}']\nenv = { OPENAI_API_KEY = 's3cret', A = 'sk-s3cret', MAX_TOKENS = '9' }\n[agents.y]\nkind = 'exec'\ncommand = ['/y', '{model}']";
    let config = parse(text).unwrap();
    let told: Vec<String> = config.agents["x"]
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(told.len(), 3, "{told:#?}");
    for (told, expected) in told.iter().zip([
        "`A` of agent `x` looks like a secret",
        "`OPENAI_API_KEY` of agent `x` looks like a secret, which config.toml must not hold; hint: put it into the file `env`",
        "`{model}` in the command of agent `x` is not filled in",
    ]) {
        assert!(told.contains(expected) && !told.contains("s3cret"), "{told}");
    }
    assert_eq!(config.agents["y"].warnings, []);
    for text in [
        "pass_env = ['A B']",
        "pass_env = ['']",
        "env = { 'A B' = '1' }",
    ] {
        let error = refused(&format!("[agents.pi]\nwarm = 1\n{text}"));
        assert!(
            error.contains("config.toml:3: `") && error.contains("can't name a variable"),
            "{error}"
        );
    }
}

#[test]
fn provider_key_is_only_what_names_a_secret() {
    let keys = |table: &str| {
        parse(&format!("[providers]\n{table}"))
            .unwrap()
            .provider_keys
    };
    for (table, passes) in [
        ("a.key_env = 'WORK_LLM_KEY'", Some("WORK_LLM_KEY")),
        ("a.key_env = 'work_token'", Some("work_token")),
        ("my-llm.base_url = 'http://x'", Some("MY_LLM_API_KEY")),
        ("a.key_env = 'PATH'", None),
        ("a.key_env = 'LD_PRELOAD'", None),
        ("a.key_env = 'NODE_OPTIONS'", None),
        ("a.key_env = 'A=KEY'", None),
        ("a.key_env = '1_KEY'", None),
        ("a.key_env = ''", None),
        ("'9'.base_url = 'http://x'", None),
    ] {
        let passes: Vec<String> = passes.into_iter().map(str::to_owned).collect();
        assert_eq!(keys(table), passes, "{table}");
    }
}

#[test]
fn openclaw_with_own_arguments_has_its_preset() {
    let text = "[agents.local]\nkind = \"exec\"\ncommand = [\"/x/openclaw\", \"agent\", \"--local\", \"--json\"]\n\
                [agents.plain]\nkind = \"exec\"\ncommand = [\"/x/openclaw\", \"agent\"]\n\
                [agents.said]\nkind = \"exec\"\noutput = \"text\"\ncommand = [\"/x/openclaw\", \"--json\"]\n";
    let config = Config::parse(text, Path::new("/c.toml"), &HostEnv::default()).unwrap();
    let outputs = config.agents.values().map(|agent| agent.output);
    let expected = [
        exec::Output::Openclaw,
        exec::Output::Text,
        exec::Output::Text,
    ];
    assert!(outputs.eq(expected));
}

#[test]
fn config_show_names_what_changed_a_command() {
    let source = |text: &str, agent: &str| {
        let shown = parse(text).unwrap().show();
        let key = format!("agents.{agent}.command");
        let row = shown.into_iter().find(|row| row.key == key);
        row.unwrap().source
    };
    for (text, agent, expected) in [
        ("[agents.timmy]\nwarm = 1\n", "timmy", "default"),
        (
            "[agents.timmy]\nwarm = 1\nprovider = \"echo\"\n",
            "timmy",
            "/c/config.toml:3",
        ),
        ("[agents.claude]\nprovider = \"x\"\n", "claude", "default"),
        (
            "[agents.claude]\nkind = \"exec\"\n",
            "claude",
            "/c/config.toml:2",
        ),
        (
            "[agents.timmy]\nprovider = \"echo\"\ncommand = [\"/a\"]\n",
            "timmy",
            "/c/config.toml:3",
        ),
    ] {
        assert_eq!(source(text, agent), expected, "{text}");
    }
}
