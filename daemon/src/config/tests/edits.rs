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
    let changed = changed(text, Path::new(FILE), &Look::default(), change);
    changed.map_err(|error| error.to_string())
}

fn new(kind: &str, command: &[&str]) -> NewAgent {
    NewAgent {
        kind: Some(kind.to_owned()),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ..NewAgent::default()
    }
}

fn add(name: &str, agent: NewAgent) -> Change {
    Change::Add(name.to_owned(), agent)
}

#[test]
fn an_agent_is_added_below_everything_and_can_be_taken_out_again() {
    let mut agent = new("exec", &["/bin/c", "a \"b\" \\ \u{7f}\n"]);
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
fn an_agent_is_taken_out_with_its_tables_and_its_own_comment_only() {
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
fn the_default_is_changed_in_its_place_or_put_above_the_first_table() {
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
            "default_agent = \"pi\"\n\n# Of pi.\n[agents.pi]\nwarm = 1",
        ),
    ] {
        let fresh = change(text, &Change::Default("pi".to_owned())).unwrap();
        assert_eq!(fresh, expected);
    }
}

#[test]
fn a_wrong_change_says_what_to_do_and_a_broken_file_its_line() {
    let cases = [
        (
            WRITTEN,
            add("a", new("exec", &["/x"])),
            "already, at /c/config.toml:8; hint: `agentctl agents remove a` first",
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
            "`b` is the default agent; hint: `agentctl agents default OTHER` first",
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
            "[agents]\nz = { kind = 'exec', command = ['/z'] }",
            Change::Remove("z".to_owned()),
            "can't be changed safely; hint: change it by hand",
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
        assert!(error.contains(expected), "{wrong:?}: {error}");
    }
}

#[test]
fn a_secret_is_refused_without_being_repeated_and_nothing_is_written() {
    let dir = TempDir::new().unwrap();
    let (file, env) = (dir.path().join("config.toml"), dir.path().join("env"));
    let with = |name: &str, value: &str| {
        let mut agent = new("exec", &["/x"]);
        agent.env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        save(&file, &env, &Look::default(), &add("x", agent))
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
    with("KEYBOARD", "us").unwrap();
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn a_file_keeps_its_mode_and_a_link_stays_one() {
    let dir = TempDir::new().unwrap();
    let (real, link) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
    fs::write(&real, WRITTEN).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let default = Change::Default("a".to_owned());
    save(&link, dir.path(), &Look::default(), &default).unwrap();
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
