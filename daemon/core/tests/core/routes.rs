//! Turns that are left to the routes: who answers, and what is told of it.

use std::sync::Arc;

use agentd_core::Settings;
use agentd_core::event::{RequestContext, Routing};
use agentd_core::ids::ConnId;
use agentd_protocol::routed::{RouteUse, Routed, Weighed};
use agentd_protocol::serde_json::{self, Value, json};

use crate::agents::settings;
use crate::world::StoredJob;
use crate::world::World;

impl StoredJob {
    /// Why it has its agent.
    pub fn routed(&self) -> Option<Box<Routed>> {
        let request: Value = serde_json::from_str(&self.request).ok()?;
        serde_json::from_value(request["routed"].clone()).unwrap()
    }
}

/// A rule that holds, and uses this.
fn holds(rule: &str, uses: &Value) -> Weighed {
    Weighed {
        rule: rule.to_owned(),
        because: "it does".to_owned(),
        uses: Some(Arc::new(serde_json::from_value(uses.clone()).unwrap())),
    }
}

fn fails(rule: &str) -> Weighed {
    Weighed {
        rule: rule.to_owned(),
        because: "it doesn't".to_owned(),
        uses: None,
    }
}

fn facts(turns: &[&[Weighed]]) -> RequestContext {
    let routing = |weighed: &&[Weighed]| Routing {
        weighed: weighed.to_vec(),
        classified: None,
    };
    RequestContext {
        routing: turns.iter().map(routing).collect(),
        ..RequestContext::default()
    }
}

fn ask(world: &mut World, (conn, id): (ConnId, u64), line: &str, weighed: &[Weighed]) -> Value {
    world.request_from(conn, id, line, facts(&[weighed]));
    world.pass(std::time::Duration::ZERO);
    let lines = &world.clients[&conn].lines;
    let first = lines.iter().find(|line| line["id"] == id);
    first.unwrap_or_else(|| panic!("{lines:?}")).clone()
}

fn by_default() -> Settings {
    let mut settings = settings();
    settings.default_agent = Some("auto".to_owned());
    settings
}

const AUTO: &str = r#"{"type":"send","text":"x","agent":"auto"}"#;

#[test]
fn route_that_holds_first_decides() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let rules = [
        fails("a"),
        holds(
            "b",
            &json!({"agent": "one", "thinking": "low", "timeout": 5}),
        ),
        holds("c", &json!({"agent": "turn"})),
    ];
    let told = ask(&mut world, (conn, 1), AUTO, &rules);
    assert_eq!(told["agent"], "one");
    let routed = json!({"rule": "b", "because": "it does",
        "considered": [{"rule": "a", "because": "it doesn't"}]});
    assert_eq!(told["routed"], routed);
    let job = world.jobs.values().next().unwrap();
    let request: Value = serde_json::from_str(&job.request).unwrap();
    assert_eq!(request["routed"], routed);
    assert!(job.request.starts_with(r#"{"routed":"#), "lists read it");
    assert_eq!(
        (&request["agent"], &request["thinking"], &request["timeout"]),
        (&json!("one"), &json!("low"), &json!(5.0))
    );
}

#[test]
fn route_fills_only_what_the_send_leaves_open() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let uses = json!({"agent": "keeps", "model": "m", "provider": "p", "thinking": "low",
        "timeout": 5, "fallback_chain": ["x/y"], "toolsets": ["web"]});
    let line = r#"{"type":"send","text":"x","agent":"auto","thinking":"high","timeout":9,"toolsets":["file"],"session":"s"}"#;
    let told = ask(&mut world, (conn, 1), line, &[holds("a", &uses)]);
    assert_eq!(told["type"], "accepted", "{told}");
    let job = world.jobs.values().next().unwrap();
    let request: Value = serde_json::from_str(&job.request).unwrap();
    for (field, value) in [
        ("model", json!("m")),
        ("provider", json!("p")),
        ("thinking", json!("high")),
        ("timeout", json!(9.0)),
        ("fallback_chain", json!(["x/y"])),
        ("toolsets", json!(["file"])),
    ] {
        assert_eq!(request[field], value, "{field}");
    }
}

#[test]
fn route_whose_agent_is_missing_is_passed_over() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().usable = Err("its program is gone".to_owned());
    let mut world = World::new(settings);
    let conn = world.connect();
    let rules = [
        holds("gone", &json!({"agent": "one"})),
        holds("unknown", &json!({"agent": "nobody"})),
        holds(
            "can't",
            &json!({"agent": "turn", "fallback_chain": ["a/b"]}),
        ),
        holds("last", &json!({"agent": "many"})),
    ];
    let told = ask(&mut world, (conn, 1), AUTO, &rules);
    assert_eq!(told["agent"], "many", "{told}");
    let considered = told["routed"]["considered"].as_array().unwrap();
    let because: Vec<&str> = considered
        .iter()
        .map(|passed| passed["because"].as_str().unwrap())
        .collect();
    assert_eq!(
        because,
        [
            "it holds, but the agent `one` can't be used: its program is gone",
            "it holds, but there is no agent `nobody`",
            "it holds, but `fallback_chain` was given, but the agent `turn` takes none",
        ]
    );
}

#[test]
fn routes_that_all_fail_leave_the_default() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for (id, rules, because) in [
        (1, vec![], "there are no routes"),
        (2, vec![fails("a")], "no route holds"),
        (
            3,
            vec![holds("a", &json!({"agent": "nobody"}))],
            "no route that holds can be used",
        ),
    ] {
        let told = ask(&mut world, (conn, id), AUTO, &rules);
        assert_eq!(told["agent"], "many");
        let told = &told["routed"];
        assert!(told["rule"].is_null());
        let said = told["because"].as_str().unwrap();
        assert!(said.starts_with(because), "{said}");
    }
    // With `auto` as the default there is none, and several could answer.
    let mut world = World::new(by_default());
    let conn = world.connect();
    let line = r#"{"type":"send","text":"x"}"#;
    let rules = [holds("a", &json!({"agent": "nobody"}))];
    let told = ask(&mut world, (conn, 1), line, &rules);
    assert_eq!(told["code"], "ambiguous");
    let said = told["error"].as_str().unwrap();
    assert!(
        said.starts_with("route `a`: there is no agent `nobody`; several"),
        "{said}"
    );
}

#[test]
fn route_is_for_sends_that_name_nobody() {
    let mut world = World::new(by_default());
    let conn = world.connect();
    let rules = [holds("a", &json!({"agent": "one"}))];
    for (id, line, agent, rule) in [
        (1, r#"{"type":"send","text":"x"}"#, "one", json!("a")),
        (
            2,
            r#"{"type":"send","text":"x","agent":"turn"}"#,
            "turn",
            Value::Null,
        ),
        (3, AUTO, "one", json!("a")),
    ] {
        let told = ask(&mut world, (conn, id), line, &rules);
        assert_eq!(
            (&told["agent"], &told["routed"]["rule"]),
            (&json!(agent), &rule),
            "{line}"
        );
        assert_eq!(told.get("routed").is_some(), id != 2, "{line}");
    }
    // A default that is somebody isn't asked for rules.
    let mut world = World::new(settings());
    let conn = world.connect();
    let told = ask(
        &mut world,
        (conn, 1),
        r#"{"type":"send","text":"x"}"#,
        &rules,
    );
    assert_eq!((&told["agent"], told.get("routed")), (&json!("many"), None));
    let line = r#"{"type":"send","text":"x","agent":"auto","model":"m"}"#;
    let told = ask(&mut world, (conn, 2), line, &rules);
    assert_eq!(told["agent"], "many");
    let said = told["routed"]["because"].as_str().unwrap();
    assert!(said.starts_with("the send names its model"), "{said}");
}

#[test]
fn route_leaves_a_session_its_agent() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let line = r#"{"type":"send","text":"x","agent":"auto","session":"s"}"#;
    let first = [holds("a", &json!({"agent": "one"}))];
    let other = [holds("b", &json!({"agent": "turn"}))];
    let told = ask(&mut world, (conn, 1), line, &first);
    assert_eq!(told["routed"]["rule"], "a");
    let told = ask(&mut world, (conn, 2), line, &other);
    let routed = json!({"because": "the session `s` has the agent `one`"});
    assert_eq!((&told["agent"], &told["routed"]), (&json!("one"), &routed));
}

#[test]
fn route_of_a_key_asked_again_stands() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let line = r#"{"type":"send","text":"x","agent":"auto","idempotency_key":"k"}"#;
    let rules = [holds("a", &json!({"agent": "one", "model": "m"}))];
    let told = ask(&mut world, (conn, 1), line, &rules);
    let first = told["routed"].clone();
    // Other rules, none that can be used, no rules: it is that job, with its decision.
    for (id, rules) in [
        (2, vec![holds("b", &json!({"agent": "turn"}))]),
        (3, vec![holds("c", &json!({"agent": "nobody"}))]),
        (4, vec![]),
    ] {
        let again = ask(&mut world, (conn, id), line, &rules);
        assert_eq!(
            (&again["job"], &again["replayed"]),
            (&told["job"], &json!(true))
        );
        assert_eq!(again["routed"], first);
    }
    world.work();
    let again = ask(&mut world, (conn, 5), line, &[]);
    assert_eq!(
        (&again["job"], &again["routed"]),
        (&told["job"], &first),
        "when it has ended"
    );
    world.crash(settings());
    let conn = world.connect();
    let again = ask(&mut world, (conn, 6), line, &[]);
    assert_eq!(
        (&again["job"], &again["routed"]),
        (&told["job"], &first),
        "and after a crash"
    );
}

#[test]
fn route_of_each_dispatched_turn_is_its_own() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let line = r#"{"type":"dispatch","jobs":[{"text":"a","agent":"auto"},{"text":"b","agent":"many"},{"text":"c","agent":"auto"}]}"#;
    let one = [holds("a", &json!({"agent": "one"}))];
    let turn = [fails("a"), holds("c", &json!({"agent": "turn"}))];
    world.request_from(conn, 1, line, facts(&[&one, &[], &turn]));
    world.pass(std::time::Duration::ZERO);
    let jobs = world.jobs.values();
    let told: Vec<(&str, Option<String>)> = jobs
        .map(|job| {
            (
                job.agent.as_str(),
                job.routed().and_then(|routed| routed.rule),
            )
        })
        .collect();
    let rule = |name: &str| Some(name.to_owned());
    assert_eq!(
        told,
        [("one", rule("a")), ("many", None), ("turn", rule("c"))]
    );
}

#[test]
fn route_asked_about_runs_nothing() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let rules = [
        fails("a"),
        holds("b", &json!({"agent": "one", "model": "m"})),
    ];
    let told = ask(
        &mut world,
        (conn, 1),
        r#"{"type":"route","text":"x"}"#,
        &rules,
    );
    assert_eq!(
        told,
        json!({"type": "route", "id": 1, "ok": true, "agent": "one",
            "routed": {"rule": "b", "because": "it does",
                "considered": [{"rule": "a", "because": "it doesn't"}]},
            "use": {"agent": "one", "model": "m"}})
    );
    assert!(world.jobs.is_empty());
    let line = r#"{"type":"route","text":"x","agent":"one"}"#;
    assert_eq!(
        ask(&mut world, (conn, 2), line, &rules)["code"],
        "invalid-request"
    );
    ask(
        &mut world,
        (conn, 3),
        r#"{"type":"send","text":"x","agent":"turn","session":"s"}"#,
        &[],
    );
    let line = r#"{"type":"route","text":"x","session":"s"}"#;
    assert_eq!(ask(&mut world, (conn, 4), line, &rules)["agent"], "turn");
    let line = r#"{"type":"route","text":"x","session":"unknown"}"#;
    assert_eq!(ask(&mut world, (conn, 5), line, &rules)["agent"], "one");
    let uses: RouteUse = serde_json::from_value(json!({})).unwrap();
    assert_eq!(uses, RouteUse::default());
}
