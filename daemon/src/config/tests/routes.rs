//! Routes as people write them, right and wrong.

use agentd_protocol::routed::RouteUse;

use super::{parse, refused};
use crate::config::{HostEnv, check_default};

const ALL: &str = r#"
default_agent = "auto"
[[route]]
name = "review"
when = { agent = "auto", text = "(?i)review", chars = "> 20", attachments = "none", cwd = "/srv/**", label.team = "a", between = "22:00-06:00", class = ["debugging", "code-review"], difficulty = "hard" }
use = { agent = "pi", provider = "p", model = "m", thinking = "high", toolsets = ["file"], timeout = "10m", fallback_chain = ["x/y"] }

[[route]]
when.attachments = "image"
use.model = "eyes"
"#;

#[test]
fn route_documented_is_read_whole() {
    let config = parse(ALL).unwrap();
    let [review, second] = &config.routes[..] else {
        panic!("{:?}", config.routes);
    };
    assert_eq!((review.name.as_str(), review.when.len()), ("review", 9));
    let list = |one: &str| Some(vec![one.to_owned()]);
    let uses = RouteUse {
        agent: Some("pi".to_owned()),
        provider: Some("p".to_owned()),
        model: Some("m".to_owned()),
        thinking: Some("high".to_owned()),
        toolsets: list("file"),
        timeout: Some(600),
        fallback_chain: list("x/y"),
    };
    assert_eq!(*review.uses, uses);
    assert_eq!((second.name.as_str(), second.when.len()), ("#2", 1));
    assert_eq!(config.given["route.1.when.text"], "/c/config.toml:5");
    let shown = config.show();
    let shown = shown.iter().find(|one| one.key == "route.2.use.model");
    assert_eq!(shown.unwrap().value, "\"eyes\"");
    check_default(&config, "/c/config.toml".as_ref(), &HostEnv::default()).unwrap();
}

#[test]
fn route_that_is_wrong_names_its_line() {
    let route = |rest: &str| format!("[[route]]\n{rest}\n");
    let used = |when: &str| format!("[[route]]\nuse.agent = \"a\"\nwhen = {{ {when} }}\n");
    for (text, error) in [
        (
            used("txt = \"x\""),
            "/c/config.toml:3: unknown key `route.1.when.txt`; hint: did you mean `text`?",
        ),
        (
            used("budget = \"kimi < 80%\""),
            "/c/config.toml:3: unknown key `route.1.when.budget`; hint: known here: agent",
        ),
        (
            route("use.agnt = \"a\""),
            "/c/config.toml:2: unknown key `route.1.use.agnt`; hint: did you mean `agent`?",
        ),
        (
            route("wen.text = \"a\""),
            "/c/config.toml:2: unknown key `route.1.wen`; hint: did you mean `when`?",
        ),
        (
            route("when.text = \"a\""),
            "/c/config.toml:1: route 1 says nothing to use; hint: add `use = { agent = \"NAME\" }`",
        ),
        (
            used("text = \"a(\""),
            "/c/config.toml:3: `route.1.when.text` is `a(`: unclosed group",
        ),
        (
            used("text = 3"),
            "/c/config.toml:3: `route.1.when.text` is a value of type integer, expected a string",
        ),
        (
            used("chars = \"20000\""),
            "/c/config.toml:3: `route.1.when.chars` is `20000`: expected `>`, `>=`, `<` or `<=`",
        ),
        (
            used("attachments = \"images\""),
            "/c/config.toml:3: `route.1.when.attachments` is `images`: expected one of `image`, \
             `pdf`, `text`, `any`, `none`; hint: did you mean `image`?",
        ),
        (
            used("class = \"code\""),
            "/c/config.toml:3: `route.1.when.class` is `code`: expected one of `code-review`",
        ),
        (
            used("difficulty = [\"easy\", \"har\"]"),
            "/c/config.toml:3: `route.1.when.difficulty` is `har`: expected one of `easy`, `medium`, \
             `hard`; hint: did you mean `hard`?",
        ),
        (
            used("class = []"),
            "/c/config.toml:3: `route.1.when.class` is empty, expected one of `code-review`",
        ),
        (
            used("cwd = \"projects/**\""),
            "/c/config.toml:3: `route.1.when.cwd` is `projects/**`: expected an absolute path",
        ),
        (
            used("between = \"22-6\""),
            "/c/config.toml:3: `route.1.when.between` is `22-6`: expected two different times",
        ),
        (
            used("agent = \"pi\""),
            "/c/config.toml:3: `route.1.when.agent` is `pi`: expected \"auto\"",
        ),
        (
            used("label = \"x\""),
            "/c/config.toml:3: `route.1.when.label` is a value of type string, expected a table",
        ),
        (
            route("use.agent = \"auto\""),
            "/c/config.toml:2: `route.1.use.agent` is `auto`, expected the name of an agent",
        ),
        (
            route("use.timeout = \"10ms\""),
            "/c/config.toml:2: `route.1.use.timeout` is less than a second",
        ),
        (
            route("name = \"a b\"\nuse.agent = \"a\""),
            "/c/config.toml:2: `route.1.name` is `a b`, expected up to 64 of",
        ),
        (
            format!("{0}{0}", route("name = \"n\"\nuse.agent = \"a\"")),
            "/c/config.toml:4: there are two routes with the name `n`",
        ),
        (
            "[route]\nuse.agent = \"a\"".to_owned(),
            "/c/config.toml:1: `route` is a value of type table, expected an array of tables",
        ),
        (
            route("use.agent = \"a\"").repeat(101),
            "/c/config.toml:1: 101 routes, the limit is 100",
        ),
        (
            "[agents.auto]\nkind = \"exec\"".to_owned(),
            "/c/config.toml:1: `auto` can't name an agent: it means that the routes choose",
        ),
    ] {
        let said = refused(&text);
        assert!(said.starts_with(error), "{text}\n{said}");
    }
}

#[test]
fn route_is_what_auto_as_default_needs() {
    let config = parse("default_agent = \"auto\"").unwrap();
    let file = "/c/config.toml".as_ref();
    let error = check_default(&config, file, &HostEnv::default()).unwrap_err();
    let error = error.to_string();
    assert!(error.ends_with("which is no agent; hint: `auto` needs a `[[route]]` in config.toml that says which agent answers what"), "{error}");
}
