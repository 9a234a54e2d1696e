//! Which agents are found, how each would be run, and what each may know.

use super::*;
use crate::platform::files::Files;

fn look(path: &[&Path], places: &[&Path]) -> HostEnv {
    let owned = |dirs: &[&Path]| dirs.iter().map(|dir| dir.to_path_buf()).collect();
    HostEnv {
        path: owned(path),
        places: owned(places),
        ..HostEnv::default()
    }
}

fn agent(kind: Kind, program: &str) -> AgentConfig {
    AgentConfig::new(kind, vec![program.to_owned()])
}

#[test]
fn agents_are_found_in_their_long_lived_form() {
    let dir = TempDir::new().unwrap();
    for name in [
        "pi", "claude", "codex", "gemini", "opencode", "goose", "hermes", "openclaw",
    ] {
        program(dir.path(), name);
    }
    let look = look(&[dir.path()], &[]);
    for (name, kind, arguments) in [
        ("pi", Kind::Pi, &["--mode", "rpc"][..]),
        ("claude", Kind::Claude, &[]),
        ("codex", Kind::Codex, &["app-server"]),
        ("gemini", Kind::Acp, &["--acp"]),
        ("opencode", Kind::Acp, &["acp"]),
        ("goose", Kind::Acp, &["acp"]),
        ("hermes", Kind::Acp, &["acp"]),
    ] {
        let (agent, run) = found(&Config::default(), &look, name);
        let run = run.unwrap();
        assert_eq!((agent.found, run.kind), (Found::OnPath, kind), "{name}");
        assert_eq!(run.command[0], dir.path().join(name).to_string_lossy());
        assert_eq!(run.command[1..], *arguments, "{name}");
    }
    let (openclaw, run) = found(&Config::default(), &look, "openclaw");
    let run = run.unwrap();
    assert_eq!(
        (openclaw.kind, run.output),
        ("exec", exec::Output::Openclaw)
    );
    assert!(run.command.contains(&"{prompt}".to_owned()), "{run:?}");
}

#[test]
fn agents_on_path_come_before_usual_places() {
    let (on_path, usual) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    program(on_path.path(), "claude");
    let hidden = program(usual.path(), "claude");
    let codex = program(usual.path(), "codex");
    let both = look(&[on_path.path()], &[usual.path()]);
    let (claude, run) = found(&Config::default(), &both, "claude");
    assert_eq!(claude.found, Found::OnPath);
    assert_ne!(run.unwrap().command[0], hidden.to_string_lossy());
    let (agent, run) = found(&Config::default(), &both, "codex");
    assert_eq!((agent.usable, agent.found), (Ok(()), Found::InPlace));
    assert_eq!(run.unwrap().command[0], codex.to_string_lossy());
    let (goose, run) = found(&Config::default(), &both, "goose");
    assert_eq!((goose.found, run), (Found::Missing, None));
    assert_eq!(
        goose.usable,
        Err("`goose` is not on PATH, nor where it is usually installed".to_owned())
    );
}

#[test]
fn agents_that_are_no_program_are_told() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| first.path().join(name);
    fs::create_dir(at("claude")).unwrap();
    std::os::unix::fs::symlink("/gone/codex", at("codex")).unwrap();
    fs::write(at("goose"), "#!/bin/sh\n").unwrap();
    fs::write(at("pi"), "#!/no/such/node\n").unwrap();
    fs::set_permissions(at("pi"), fs::Permissions::from_mode(0o755)).unwrap();
    let look = look(&[second.path(), first.path()], &[]);
    let why = |name: &str| found(&Config::default(), &look, name).0.usable.unwrap_err();
    let shown = |name: &str| at(name).display().to_string();
    for (name, expected) in [
        ("claude", format!("`{}` is a directory", shown("claude"))),
        (
            "codex",
            format!(
                "`{}` is a link to `/gone/codex`, which is not there",
                shown("codex")
            ),
        ),
        ("goose", format!("`{}` may not be executed", shown("goose"))),
    ] {
        let why = why(name);
        assert!(
            why.starts_with(&format!("`{name}` is not on PATH")) && why.contains(&expected),
            "{why}"
        );
    }
    assert_eq!(
        why("pi"),
        format!(
            "`{}` is a script for `/no/such/node`, which is not there",
            shown("pi")
        )
    );
    // The same for what somebody configured, by its path or its name.
    let text = format!(
        "[agents.a]\nkind = 'exec'\ncommand = [{:?}]\n[agents.b]\nkind = 'exec'\ncommand = ['goose']\n",
        at("claude")
    );
    let config = Config::parse(&text, Path::new("/c/config.toml"), &look).unwrap();
    let why = |name: &str| found(&config, &look, name).0.usable.unwrap_err();
    assert_eq!(why("a"), format!("`{}` is a directory", shown("claude")));
    let b = why("b");
    assert!(b.starts_with("its program `goose` is not on PATH: ") && b.contains(&shown("goose")));
    // One that can be run further on is taken all the same.
    program(second.path(), "claude");
    assert_eq!(found(&Config::default(), &look, "claude").0.usable, Ok(()));
}

#[test]
fn program_of_the_name_only_is_not_usable() {
    let dir = TempDir::new().unwrap();
    let pi = program(dir.path(), "pi");
    let mut look = look(&[dir.path()], &[]);
    look.others = BTreeMap::from([(pi.clone(), "pi 3.14".to_owned())]);
    let why = found(&Config::default(), &look, "pi").0.usable.unwrap_err();
    assert_eq!(
        why,
        format!(
            "`{}` is another program than the agent `pi`; it says: pi 3.14",
            pi.display()
        )
    );
    let text = "[agents.digits]\nkind = 'exec'\ncommand = ['pi', '-d', '100']";
    let config = Config::parse(text, Path::new("/c"), &look).unwrap();
    assert_eq!(found(&config, &look, "digits").0.usable, Ok(()));
    assert_eq!(why_another(&config.agents["digits"], "pi 3.14"), None);
}

#[test]
fn program_is_known_by_what_it_says() {
    for (program, says) in [
        (
            "pi",
            "1.5.2\npi - AI coding assistant with read, bash, edit, write tools",
        ),
        ("claude", "2.1.329 (Claude Code)"),
        ("codex", "codex-cli 0.169.0"),
        (
            "gemini",
            "0.61.0\nUsage: gemini [options]\n\nGemini CLI - Defaults to interactive mode.",
        ),
        (
            "opencode",
            "  opencode acp   start ACP (Agent Client Protocol) server",
        ),
        ("goose", "  acp   Run goose as an ACP agent server on stdio"),
        ("hermes", "Hermes Agent v0.19.0 (2026.3.2)"),
        ("openclaw", "OpenClaw 2026.9.6 (abc)"),
    ] {
        assert!(is_its_own(program, says), "{program}");
        let other = format!("{program} 3.14\nUsage: {program} [options] DRIVER up down");
        assert_eq!(
            is_its_own(program, &other),
            program == "openclaw",
            "{program}"
        );
    }
}

#[test]
fn path_that_is_relative_leads_nowhere() {
    let dir = TempDir::new().unwrap();
    program(dir.path(), "tool");
    // The same directory as seen from here, wherever the tests run.
    let below = dir.path().strip_prefix("/").unwrap();
    let relative = Path::new(&"../".repeat(40)).join(below);
    assert!(Files::default().is_program(&relative.join("tool")));
    let relative = relative.as_path();
    let here = look(&[Path::new(""), Path::new("."), relative], &[relative]);
    assert_eq!(here.find("tool"), None);
    assert!(
        presets::places(Some(Path::new(".")), &Files::default())
            .iter()
            .all(|dir| dir.is_absolute())
    );
    let home = TempDir::new().unwrap();
    let node = home.path().join(".nvm/versions/node/v24.1.0/bin");
    let local = home.path().join(".local/bin");
    for dir in [&node, &local] {
        fs::create_dir_all(dir).unwrap();
    }
    let nvm = home.path().join(".nvm/versions/node");
    for version in ["v22.9.0", "v22.14.0", "v9.1.0"] {
        fs::create_dir_all(nvm.join(version).join("bin")).unwrap();
    }
    let places = presets::places(Some(home.path()), &Files::default());
    assert!(places.contains(&node) && places.contains(&local));
    let of_nvm = places
        .iter()
        .filter_map(|place| place.strip_prefix(&nvm).ok());
    let newest_first = ["v24.1.0/bin", "v22.14.0/bin", "v22.9.0/bin", "v9.1.0/bin"];
    assert_eq!(of_nvm.collect::<Vec<_>>(), newest_first.map(Path::new));
}

#[test]
fn exec_form_is_for_its_kind_or_lack() {
    let dir = TempDir::new().unwrap();
    let gemini = program(dir.path(), "gemini");
    let mut look = look(&[dir.path()], &[]);
    let file = Path::new("/c/config.toml");
    let text = "[agents.gemini]\nkind = 'exec'\n[agents.openclaw]\nwarm = 0";
    let config = Config::parse(text, file, &look).unwrap();
    let form = &config.agents["gemini"];
    assert_eq!(form.kind, Kind::Exec);
    assert_eq!(form.command[0], gemini.to_string_lossy());
    assert_eq!(form.command.last().unwrap(), "--prompt={prompt}");
    assert_eq!(config.agents["openclaw"].output, exec::Output::Openclaw);

    look.exec_only.insert(gemini);
    let (agent, run) = found(&Config::default(), &look, "gemini");
    assert_eq!((agent.kind, agent.usable), ("exec", Ok(())));
    assert_eq!(run.unwrap().command.last().unwrap(), "--prompt={prompt}");
    // A table that says nothing of how it is run is run no worse than none.
    let table = Config::parse("[agents.gemini]\nwarm = 1", file, &look).unwrap();
    let (agent, run) = found(&table, &look, "gemini");
    assert_eq!((agent.kind, agent.warm), ("exec", Warm::Always(1)));
    assert_eq!(run.unwrap().command.last().unwrap(), "--prompt={prompt}");

    let error = |text: &str| Config::parse(text, file, &look).unwrap_err().to_string();
    assert!(error("[agents.codex]\nkind = 'claude'").contains("has no `command`"));
    let text = "[agents.x]\nkind = 'exec'\ncommand = ['/x']\noutput = 'json'";
    assert!(
        error(text).contains(":4: `agents.x.output` is `json`, expected one of `text`, `openclaw`")
    );
    let text = "[agents.x]\noutput = 'text'\nkind = 'jsonl'\ncommand = ['/x']";
    assert!(error(text).contains(":2: `agents.x.output` is for the kind `exec`"));
}

#[test]
fn environment_of_an_agent_has_no_others_keys() {
    let of = |kind, program| passes(&agent(kind, program));
    let claude = of(Kind::Claude, "/bin/claude");
    assert!(claude.contains(&"ANTHROPIC_API_KEY") && !claude.contains(&"OPENAI_API_KEY"));
    let codex = of(Kind::Codex, "/bin/codex");
    assert!(codex.contains(&"OPENAI_API_KEY") && !codex.contains(&"ANTHROPIC_API_KEY"));
    assert_eq!(of(Kind::Acp, "/bin/another"), Vec::<&str>::new());
    assert!(of(Kind::Acp, "/bin/gemini").contains(&"GEMINI_API_KEY"));
    assert!(of(Kind::Exec, "/bin/claude").contains(&"ANTHROPIC_API_KEY"));
    let is_key = |name: &&str| name.ends_with("_KEY") || name.ends_with("_TOKEN");
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for preset in presets::PRESETS {
        let passes = of(preset.kind, preset.name).into_iter().filter(is_key);
        for key in passes.collect::<BTreeSet<_>>() {
            let other = owners.insert(key, preset.name);
            assert_eq!(other, None, "`{key}` of {}", preset.name);
        }
    }
    assert!(owners.len() > 5);
}

#[test]
fn environment_of_timmy_has_all_providers_keys() {
    let timmy = agent(Kind::Jsonl, "/opt/agentd/timmy");
    assert!(is_built_in(&timmy));
    let got = passes(&timmy);
    for key in ["KIMI_API_KEY", "GEMINI_API_KEY", "OLLAMA_HOST"] {
        assert!(got.contains(&key), "{key}");
    }
    for other in [
        agent(Kind::Exec, "/x/timmy"),
        agent(Kind::Jsonl, "/x/worker"),
    ] {
        assert!(!is_built_in(&other), "{other:?}");
    }
    assert!(!tells_version("/opt/agentd/timmy"));
    let set = |name: &str| (name == "XAI_API_KEY").then(|| "k".to_owned());
    assert_eq!(logged_in(&timmy, None, &set, &Files::default()), Some(true));
    assert_eq!(logged_in(&timmy, None, &|_| None, &Files::default()), None);
}

#[test]
fn login_is_seen_by_file_or_variable() {
    let home = TempDir::new().unwrap();
    let of = |kind: Kind, program: &str, set: &[(&str, &str)]| {
        let value = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        logged_in(
            &agent(kind, program),
            Some(home.path()),
            &value,
            &Files::default(),
        )
    };
    let known = |program: &str, set: &[(&str, &str)]| of(Kind::Exec, program, set);
    assert_eq!(known("/bin/codex", &[]), Some(false));
    assert_eq!(
        known("/bin/claude", &[("ANTHROPIC_API_KEY", "")]),
        Some(false)
    );
    assert_eq!(
        known("/bin/claude", &[("ANTHROPIC_API_KEY", "x")]),
        Some(true)
    );
    // Codex takes one only for a single turn, and none by that name.
    let key = [("CODEX_API_KEY", "x"), ("OPENAI_API_KEY", "x")];
    assert_eq!(known("/bin/codex", &key[..1]), Some(true));
    assert_eq!(known("/bin/codex", &key[1..]), Some(false));
    assert_eq!(of(Kind::Codex, "/bin/codex", &key), Some(false));
    assert_eq!(of(Kind::Pi, "/bin/pi", &[]), Some(false));
    // It takes keys of many names, if it gets any.
    let given = AgentConfig {
        pass_env: vec!["MISTRAL_API_KEY".to_owned()],
        ..agent(Kind::Pi, "/bin/pi")
    };
    let files = Files::default();
    assert_eq!(
        logged_in(&given, Some(home.path()), &|_| None, &files),
        None
    );
    assert_eq!(known("/bin/goose", &[]), None);
    assert_eq!(known("/bin/cat", &[]), None);
    let moved = home.path().join("moved");
    for dir in [home.path().join(".codex"), moved.clone()] {
        fs::create_dir(&dir).unwrap();
    }
    // One without anything in it is none; more than its size is not looked at.
    let file = home.path().join(".codex/auth.json");
    fs::write(&file, "{}").unwrap();
    assert_eq!(known("/bin/codex", &[]), Some(false));
    fs::write(&file, "{\"tokens\":1}").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(known("/bin/codex", &[]), Some(true));
    let elsewhere = [("CODEX_HOME", moved.to_str().unwrap())];
    assert_eq!(known("/bin/codex", &elsewhere), Some(false));
}

#[test]
fn login_named_otherwise_in_settings_is_open() {
    let home = TempDir::new().unwrap();
    let known = |program: &str| {
        let agent = agent(Kind::Exec, &format!("/bin/{program}"));
        logged_in(&agent, Some(home.path()), &|_| None, &Files::default())
    };
    for (program, file, nothing, another) in [
        (
            "claude",
            ".claude/settings.json",
            r#"{"model":"opus"}"#,
            r#"{"apiKeyHelper":"pass show claude"}"#,
        ),
        (
            "codex",
            ".codex/config.toml",
            "model = \"gpt-5\"",
            "cli_auth_credentials_store = \"keyring\"",
        ),
        (
            "pi",
            ".pi/agent/settings.json",
            r#"{"theme":"dark"}"#,
            r#"{"packages":["npm:provider"]}"#,
        ),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "{}",
            r#"{"provider":{"local":{}}}"#,
        ),
    ] {
        let file = home.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        assert_eq!(known(program), Some(false), "{program}");
        fs::write(&file, nothing).unwrap();
        assert_eq!(known(program), Some(false), "{program}");
        fs::write(&file, another).unwrap();
        assert_eq!(known(program), None, "{program}");
    }
}

#[test]
fn opencode_unconfigured_must_not_choose_a_model() {
    let dir = TempDir::new().unwrap();
    program(dir.path(), "opencode");
    let mut look = look(&[dir.path()], &[]);
    look.home = Some(dir.path().to_owned());
    let (agent, _) = found(&Config::default(), &look, "opencode");
    assert!(agent.usable.unwrap_err().contains("nobody chose"));
    let text = "[agents.opencode]\nmodel = 'a/b'";
    let config = Config::parse(text, Path::new("/c"), &look).unwrap();
    assert_eq!(found(&config, &look, "opencode").0.usable, Ok(()));
    for (variable, value, file) in [
        ("", "", ".config/opencode/opencode.json"),
        ("", "", ".local/share/opencode/auth.json"),
        ("XDG_CONFIG_HOME", "c", "c/opencode/opencode.jsonc"),
        ("XDG_DATA_HOME", "d", "d/opencode/auth.json"),
        ("OPENCODE_CONFIG", "my.json", "my.json"),
        ("OPENCODE_CONFIG_DIR", "o", "o/opencode.json"),
    ] {
        if !variable.is_empty() {
            look.variables = BTreeMap::from([(variable.to_owned(), dir.path().join(value))]);
        }
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "{}").unwrap();
        let (agent, _) = found(&Config::default(), &look, "opencode");
        assert_eq!(agent.usable, Ok(()), "{variable}");
        fs::remove_file(&file).unwrap();
        let (agent, _) = found(&Config::default(), &look, "opencode");
        assert!(agent.usable.is_err(), "{variable}");
    }
}
