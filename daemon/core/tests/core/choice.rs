//! Who answers a send that names nobody.

use agentd_core::Settings;
use agentd_core::agent::{Found, Providers};
use agentd_protocol::Code;

use crate::agents::settings;
use crate::world::World;

#[test]
fn default_agent_among_several_is_ambiguous() {
    let mut settings = settings();
    settings.default_agent = None;
    let mut world = World::new(settings.clone());
    let conn = world.connect();
    world.request(conn, 1, r#"{"prompt":"hi"}"#);
    assert_eq!(world.last_error(conn), Some(Code::Ambiguous));
    // Whoever were chosen would only say so of itself.
    let mut out = settings.clone();
    let agents = out.agents.values_mut();
    agents.for_each(|agent| agent.logged_in = Some(false));
    let mut world = World::new(out);
    let conn = world.connect();
    world.request(conn, 1, r#"{"prompt":"hi"}"#);
    assert_eq!(world.last_error(conn), Some(Code::NoAgent));
    let error = world.clients[&conn].lines[0]["error"].as_str().unwrap();
    assert!(error.contains("many (log in), one (log in)"), "{error}");
    settings.agents.retain(|name, _| name == "one");
    let mut world = World::new(settings.clone());
    let conn = world.connect();
    world.request(conn, 1, r#"{"prompt":"hi"}"#);
    assert_eq!(world.clients[&conn].lines[0]["agent"], "one");
    settings.agents.clear();
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(conn, 1, r#"{"prompt":"hi"}"#);
    assert_eq!(world.last_error(conn), Some(Code::NoAgent));
}

/// Who answers `line`, or the names of those who could.
fn chosen(settings: &Settings, line: &str) -> String {
    let mut world = World::new(settings.clone());
    let conn = world.connect();
    world.request(conn, 1, line);
    let first = &world.clients[&conn].lines[0];
    match first["agent"].as_str() {
        Some(agent) => agent.to_owned(),
        None => first["choices"].to_string(),
    }
}

#[test]
fn default_agent_is_who_has_the_provider() {
    let mut settings = settings();
    settings.default_agent = None;
    settings
        .agents
        .retain(|name, _| name != "turn" && name != "keeps");
    let one = settings.agents.get_mut("one").unwrap();
    one.describe.providers = Providers::Known(&["anthropic"]);
    one.model = Some("opus".to_owned());
    let by = |pins: &str| chosen(&settings, &format!(r#"{{"prompt":"hi"{pins}}}"#));
    assert_eq!(by(""), r#"["many","one"]"#);
    assert_eq!(by(r#","provider":"echo""#), "many", "who may have it");
    assert_eq!(
        by(r#","provider":"anthropic""#),
        "one",
        "who has it for sure"
    );
    assert_eq!(by(r#","model":"opus""#), "one");
    assert_eq!(by(r#","model":"gpt""#), r#"["many","one"]"#);
    settings.agents.get_mut("many").unwrap().has = vec!["anthropic".to_owned()];
    let by = |pins: &str| chosen(&settings, &format!(r#"{{"prompt":"hi"{pins}}}"#));
    assert_eq!(by(r#","provider":"anthropic""#), r#"["many","one"]"#);
}

#[test]
fn default_agent_is_logged_in_before_logged_out() {
    let mut settings = settings();
    settings.default_agent = None;
    settings
        .agents
        .retain(|name, _| name != "turn" && name != "keeps");
    settings.agents.get_mut("many").unwrap().found = Found::BuiltIn;
    let by = |settings: &Settings| chosen(settings, r#"{"prompt":"hi"}"#);
    assert_eq!(by(&settings), "one");
    settings.agents.get_mut("one").unwrap().logged_in = Some(false);
    assert_eq!(by(&settings), "one", "it says what to do about it");
    settings.agents.get_mut("many").unwrap().logged_in = Some(true);
    assert_eq!(by(&settings), "many");
    settings.agents.get_mut("one").unwrap().logged_in = Some(true);
    assert_eq!(by(&settings), "one");
}
