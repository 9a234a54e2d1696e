//! What a change leaves of a file that people wrote.

use super::edit::changed;
use super::*;

const FILE: &str = "/c/config.toml";
const WRITTEN: &str = "\
# My agents.

default_agent = \"b\"   # for now

# The first one.
[agents.a] # here
kind = \"exec\"
command = [
  \"/bin/a\", # its program
]

[agents.a.env]
X = \"1\"

# --- others ---

# The second one.
[agents.b]
kind = \"exec\"
command = [\"/bin/b\"]
# the end
";

fn change(text: &str, change: &Change) -> Result<String, String> {
    let changed = changed(text, Path::new(FILE), &HostEnv::default(), change);
    let fresh = changed.map(|(text, _)| text);
    fresh.map_err(|error| error.to_string())
}

fn new(kind: &str, command: &[&str]) -> NewAgent {
    NewAgent {
        kind: Some(kind.to_owned()),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ..NewAgent::default()
    }
}

fn passing(names: &[&str]) -> NewAgent {
    let mut agent = new("exec", &["/x"]);
    agent.pass_env = names.iter().map(|name| (*name).to_owned()).collect();
    agent
}

fn add(name: &str, agent: NewAgent) -> Change {
    Change::Add(name.to_owned(), agent)
}

#[test]
fn agent_is_added_last_and_taken_out_again() {
    let mut agent = new(
        "exec",
        &["/bin/c", "--model={model}", "a \"b\" \\ \u{7f}\n"],
    );
    agent.model = Some("m".to_owned());
    agent.pass_env = vec!["C_KEY".to_owned()];
    agent.env = BTreeMap::from([("A".to_owned(), "1 2".to_owned())]);
    let fresh = change(WRITTEN, &add("c.d", agent.clone())).unwrap();
    assert!(fresh.starts_with(WRITTEN) && fresh.contains("\n\n[agents.\"c.d\"]\n"));
    let read = parse(&fresh).unwrap().agents.remove("c.d").unwrap();
    assert_eq!((read.command, read.env), (agent.command, agent.env));
    assert_eq!((read.model, read.pass_env), (agent.model, agent.pass_env));
    let gone = change(&fresh, &Change::Remove("c.d".to_owned())).unwrap();
    assert_eq!(gone.trim_end(), WRITTEN.trim_end());
    let only = change("", &add("x", new("exec", &["/x"]))).unwrap();
    assert_eq!(only, "[agents.x]\nkind = \"exec\"\ncommand = [\"/x\"]\n");
}

#[test]
fn agent_goes_with_its_tables_and_comment() {
    let without = change(WRITTEN, &Change::Remove("a".to_owned())).unwrap();
    let expected = "\
# My agents.

default_agent = \"b\"   # for now

# --- others ---

# The second one.
[agents.b]
kind = \"exec\"
command = [\"/bin/b\"]
# the end
";
    assert_eq!(without, expected);
    let other = WRITTEN.replace("default_agent = \"b\"", "default_agent = \"a\"");
    let without = change(&other, &Change::Remove("b".to_owned())).unwrap();
    assert!(
        without.ends_with("# --- others ---\n\n# the end\n"),
        "{without}"
    );
}

#[test]
fn default_is_changed_in_place_or_put_first() {
    let fresh = change(WRITTEN, &Change::Default("a".to_owned())).unwrap();
    assert_eq!(fresh, WRITTEN.replace("= \"b\"   #", "= \"a\"   #"));
    for (text, expected) in [
        ("", "default_agent = \"pi\"\n"),
        (
            "# Mine.\n\n[agents.pi]\nwarm = 1\n",
            "# Mine.\ndefault_agent = \"pi\"\n\n[agents.pi]\nwarm = 1\n",
        ),
        (
            "# Of pi.\n[agents.pi]\nwarm = 1",
            "default_agent = \"pi\"\n\n# Of pi.\n[agents.pi]\nwarm = 1\n",
        ),
    ] {
        let fresh = change(text, &Change::Default("pi".to_owned())).unwrap();
        assert_eq!(fresh, expected);
    }
}

#[test]
fn default_is_taken_away_below_its_comment() {
    let without = change(WRITTEN, &Change::NoDefault).unwrap();
    let expected = WRITTEN.replace("default_agent = \"b\"   # for now\n\n", "");
    assert_eq!(without, expected);
    for (text, expected) in [
        ("default_agent = 'pi'\n", ""),
        ("# Mine.\ndefault_agent = 'pi'\n", "# Mine.\n"),
        ("[agents.pi]\nwarm = 1\n", "[agents.pi]\nwarm = 1\n"),
        (
            "# Mine.\ndefault_agent = 'pi'\nalias = false # none\n[agents.pi]\n",
            "# Mine.\nalias = false # none\n[agents.pi]\n",
        ),
    ] {
        assert_eq!(change(text, &Change::NoDefault).unwrap(), expected);
    }
}

#[test]
fn agent_is_changed_in_inline_and_dotted_tables() {
    let new = || add("n", new("exec", &["/n"]));
    let table = "[agents.n]\nkind = \"exec\"\ncommand = [\"/n\"]\n";
    let gone = || Change::Remove("a".to_owned());
    for (text, change_of, expected) in [
        (
            "agents = { a = { kind = 'exec', command = ['/a'] } } # all\n",
            new(),
            "agents = { a = { kind = 'exec', command = ['/a'] } , n = { kind = \"exec\", command = [\"/n\"] } } # all\n".to_owned(),
        ),
        (
            "[agents]\n# Of a.\na = { kind = 'exec', command = ['/a'] }\nb = { kind = 'exec', command = ['/b'] }\n",
            new(),
            format!("[agents]\n# Of a.\na = {{ kind = 'exec', command = ['/a'] }}\nb = {{ kind = 'exec', command = ['/b'] }}\n\n{table}"),
        ),
        (
            "agents.a.kind = 'exec'\nagents.a.command = ['/a']\n",
            new(),
            format!("agents.a.kind = 'exec'\nagents.a.command = ['/a']\n\n{table}"),
        ),
        (
            "agents = { a = { kind = 'exec', command = ['/a'] }, pi = { warm = 1 } }\n",
            gone(),
            "agents = { pi = { warm = 1 } }\n".to_owned(),
        ),
        (
            "[agents]\n# Of a.\na = { kind = 'exec', command = ['/a'] }\n# Of pi.\npi = { warm = 1 }\n",
            gone(),
            "[agents]\n# Of pi.\npi = { warm = 1 }\n".to_owned(),
        ),
        (
            "# Mine.\n\nagents.a.kind = 'exec'\nagents.pi.warm = 1\nagents.a.command = ['/a']\n",
            gone(),
            "# Mine.\nagents.pi.warm = 1\n".to_owned(),
        ),
        (
            "[agents]\na.kind = 'exec'\na.command = ['/a']\n[agents.a.env]\nX = '1'\n[retention]\ndays = 1\n",
            gone(),
            "[agents]\n[retention]\ndays = 1\n".to_owned(),
        ),
    ] {
        let fresh = change(text, &change_of).unwrap();
        assert_eq!(fresh, expected, "{change_of:?} of {text}");
    }
}

#[test]
fn agent_is_added_below_other_tables_too() {
    let text = "[agents.a]\nkind = 'exec'\ncommand = ['/a']\n\n[retention]\ndays = 1\n# the end";
    let fresh = change(text, &add("n", new("exec", &["/n"]))).unwrap();
    assert!(
        fresh.starts_with(&format!("{text}\n\n[agents.n]\n")),
        "{fresh}"
    );
}

#[test]
fn edit_that_is_wrong_says_what_to_do() {
    let cases = [
        (
            WRITTEN,
            add("a", new("exec", &["/x"])),
            "already, at /c/config.toml:8; hint: `agentctl config set agents.a.KEY VALUE` changes it",
        ),
        (
            WRITTEN,
            add("x", new("exce", &["/x"])),
            "did you mean `exec`?",
        ),
        (
            WRITTEN,
            add("x", new("exec", &[])),
            "agent `x` has no `command`",
        ),
        (
            WRITTEN,
            add("x y", new("exec", &["/x"])),
            "can't name an agent",
        ),
        (
            WRITTEN,
            add("x", new("exec", &["bin/x"])),
            "is a relative path",
        ),
        (
            WRITTEN,
            Change::Remove("b".to_owned()),
            "`b` is the default agent; hint: `agentctl agents default OTHER` or `agentctl agents \
             default --clear` first",
        ),
        (
            WRITTEN,
            Change::Remove("aa".to_owned()),
            "hint: configured: a, b",
        ),
        (
            WRITTEN,
            Change::Default("claud".to_owned()),
            "did you mean `claude`?",
        ),
        (
            "[agents.a]\nkind = 1\n",
            add("x", new("exec", &["/x"])),
            "/c/config.toml:2: `agents.a.kind` is a value of type integer",
        ),
        (
            "a = = 1",
            Change::Default("pi".to_owned()),
            "/c/config.toml:1: ",
        ),
    ];
    for (text, wrong, expected) in cases {
        let error = change(text, &wrong).unwrap_err();
        let error = error.replace("; nothing was changed", "");
        assert!(error.contains(expected), "{wrong:?}: {error}");
    }
}

#[test]
fn edit_by_command_line_names_its_own_words() {
    let cases = [
        (
            add("x y", NewAgent::default()),
            "hint: choose another name, such as `my-agent`",
        ),
        (
            add("x", NewAgent::default()),
            "`--kind exec` is for any command",
        ),
        (
            add("x", new("exec", &[])),
            "hint: put it last, as `-- PROGRAM ARGUMENT…`",
        ),
        (
            add("x", new("jsonl", &["/x", "--say={prompt}"])),
            "`{prompt}` in the command of agent `x` is not filled in for the kind `jsonl`, only \
             for `exec`; hint: leave it out, or take the kind `exec`",
        ),
        (
            add("x", passing(&["A B"])),
            "`A B` in `agents.x.pass_env` can't name a variable; hint: name each variable by \
             itself",
        ),
        (
            add("x", passing(&["A=1"])),
            "to set a variable, write `env = { A = ",
        ),
    ];
    for (wrong, expected) in cases {
        let error = change(WRITTEN, &wrong).unwrap_err();
        assert!(error.contains("; nothing was changed; hint: "), "{error}");
        let error = error.replace("; nothing was changed", "");
        assert!(error.contains(expected), "{wrong:?}: {error}");
        assert!(!error.contains("by hand"), "{error}");
    }
}

#[test]
fn edit_refuses_a_secret_without_repeating_it() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("config.toml");
    let with = |name: &str, value: &str| {
        let mut agent = new("exec", &["/x"]);
        agent.env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        save(&file, &HostEnv::default(), &add("x", agent))
    };
    for (name, value) in [
        ("OPENAI_API_KEY", "s3cret"),
        ("github_token", "s3cret"),
        ("DB_PASSWORD", "s3cret"),
        ("HARMLESS", "sk-s3cret"),
    ] {
        let error = with(name, value).unwrap_err().to_string();
        assert!(
            error.contains(&format!("--pass-env {name}")) && !error.contains("s3cret"),
            "{error}"
        );
        assert!(!file.exists());
    }
    for (name, value) in [
        ("KEYBOARD", "us"),
        ("MAX_OUTPUT_TOKENS", "32000"),
        ("USE_KEY", "true"),
        ("SSH_KEY", "/home/me/.ssh/id"),
    ] {
        let _gone = fs::remove_file(&file);
        with(name, value).unwrap();
    }
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn edit_keeps_the_files_mode_and_link() {
    let dir = TempDir::new().unwrap();
    let (real, link) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
    fs::write(&real, WRITTEN).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let default = Change::DefaultAnyway("a".to_owned());
    save(&link, &HostEnv::default(), &default).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(
        fs::read_to_string(&real)
            .unwrap()
            .contains("default_agent = \"a\"")
    );
    let mode = fs::metadata(&real).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
