//! Another configuration, while turns run and wait.

use agentd_core::Event;
use agentd_core::agent::Warm;
use agentd_core::event::ConfigTaken;
use agentd_core::ids::{ConnId, Generation, WorkerId};
use agentd_core::worker::Exit;

use crate::agents::settings;
use crate::world::World;

fn taken(world: &World) -> ConfigTaken {
    ConfigTaken {
        default_agent: world.settings.default_agent.clone(),
        ..ConfigTaken::default()
    }
}

fn take(world: &mut World, taken: ConfigTaken) {
    world.event(Event::ConfigTaken(Box::new(taken)));
}

fn renewed(world: &World, agent: &str) -> ConfigTaken {
    ConfigTaken {
        agents: vec![world.settings.agents[agent].clone()],
        renewed: vec![agent.to_owned()],
        ..taken(world)
    }
}

fn busy(world: &mut World, agent: &str) -> (ConnId, (WorkerId, Generation)) {
    let conn = world.connect();
    let send = format!(r#"{{"type":"send","text":"x","agent":"{agent}","session":"s"}}"#);
    world.request(conn, 1, &send);
    let process = *world.processes.keys().next().unwrap();
    world.get_ready(process);
    (conn, process)
}

fn is_told_to_end(world: &World, process: (WorkerId, Generation)) -> bool {
    let known = world.processes.get(&process);
    known.is_some_and(|known| known.told_to_end.is_some())
}

#[test]
fn config_leaves_turns_in_their_process() {
    let mut world = World::new(settings());
    let (conn, process) = busy(&mut world, "one");
    let new = renewed(&world, "one");
    take(&mut world, new);
    world.pass(std::time::Duration::from_secs(3_000));
    assert!(!is_told_to_end(&world, process), "its turn may take hours");
    world.end_turn(process);
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    assert!(is_told_to_end(&world, process));
    world.exit(process, Exit::Code(0));
    // The next turn of the session has a new one.
    world.request(conn, 2, r#"{"type":"send","text":"x","session":"s"}"#);
    assert_eq!(world.spawns, 2);
}

/// An agent looks for its login when it starts.
#[test]
fn login_renews_the_processes_before_it() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().logged_in = Some(false);
    let mut world = World::new(settings);
    let (_conn, process) = busy(&mut world, "one");
    world.end_turn(process);
    // Nobody knows of a key in a file of its own whether it is one.
    for (logged_in, is_renewed) in [(Some(false), false), (None, true)] {
        let mut agent = world.settings.agents["one"].clone();
        agent.logged_in = logged_in;
        world.event(Event::AgentsFound {
            agents: vec![agent],
            looked_for: String::new(),
        });
        assert_eq!(is_told_to_end(&world, process), is_renewed);
    }
}

#[test]
fn config_keeps_a_process_that_is_memory() {
    let mut world = World::new(settings());
    let (conn, process) = busy(&mut world, "many");
    world.end_turn(process);
    let new = renewed(&world, "many");
    take(&mut world, new);
    assert!(!is_told_to_end(&world, process));
    world.request(conn, 2, r#"{"type":"restart_worker","agent":"many"}"#);
    assert!(is_told_to_end(&world, process));
}

#[test]
fn config_counts_for_new_sessions_beside_memory() {
    let mut world = World::new(settings());
    let (conn, old) = busy(&mut world, "many");
    world.end_turn(old);
    let new = renewed(&world, "many");
    take(&mut world, new);
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","agent":"many","session":"t"}"#,
    );
    let new = *world.processes.keys().find(|known| **known != old).unwrap();
    world.get_ready(new);
    assert_eq!(
        world.processes[&new].turns.len(),
        1,
        "in a process as it is configured now"
    );
    world.end_turn(new);
    // The other one has its session, and no more.
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"x","agent":"many","session":"s"}"#,
    );
    assert_eq!(world.processes[&old].turns.len(), 1);
    world.request(conn, 4, r#"{"type":"send","text":"x","agent":"many"}"#);
    assert_eq!(world.processes[&new].turns.len(), 1);
    world.end_turn(old);
    world.end_turn(new);
    // Once it died it is started as it is configured now, and takes others, too.
    world.exit(new, Exit::Code(0));
    world.exit(old, Exit::Code(1));
    world.request(
        conn,
        5,
        r#"{"type":"send","text":"x","agent":"many","session":"s"}"#,
    );
    world.request(
        conn,
        6,
        r#"{"type":"send","text":"x","agent":"many","session":"u"}"#,
    );
    world.pass(std::time::Duration::from_secs(60));
    let again = *world
        .processes
        .keys()
        .find(|known| known.0 == old.0)
        .unwrap();
    world.get_ready(again);
    world.end_turn(again);
    assert_eq!(world.processes[&again].turns.len(), 1);
}

#[test]
fn config_renews_processes_that_come_up() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x","agent":"one"}"#);
    let process = *world.processes.keys().next().unwrap();
    let new = renewed(&world, "one");
    take(&mut world, new);
    assert!(is_told_to_end(&world, process));
    world.exit(process, Exit::Signal(15));
    let process = *world.processes.keys().next().unwrap();
    world.get_ready(process);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
}

#[test]
fn config_without_an_agent_fails_its_turns() {
    let mut world = World::new(settings());
    let (conn, process) = busy(&mut world, "one");
    world.request(conn, 2, r#"{"type":"send","text":"y","session":"s"}"#);
    let new = ConfigTaken {
        removed: vec!["one".to_owned()],
        ..taken(&world)
    };
    take(&mut world, new);
    // What runs goes on, and its process goes with it.
    world.end_turn(process);
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    assert_eq!(world.answer(conn, 2)["code"], "unknown-agent");
    assert!(is_told_to_end(&world, process));
    world.exit(process, Exit::Code(0));
    world.request(conn, 3, r#"{"type":"send","text":"y","agent":"one"}"#);
    assert_eq!(world.answer(conn, 3)["code"], "unknown-agent");
    world.settle();
}

#[test]
fn config_chooses_another_default_and_ends_spares() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = Warm::Always(1);
    let mut world = World::new(settings);
    let conn = world.connect();
    let spare = *world.processes.keys().next().unwrap();
    world.get_ready(spare);
    let mut one = world.settings.agents["one"].clone();
    one.warm = Warm::Always(0);
    let new = ConfigTaken {
        agents: vec![one],
        default_agent: Some("turn".to_owned()),
        ..ConfigTaken::default()
    };
    take(&mut world, new);
    assert!(is_told_to_end(&world, spare));
    world.request(conn, 1, r#"{"type":"send","text":"y"}"#);
    let process = world
        .processes
        .iter()
        .find(|(_, known)| known.agent == "turn");
    let process = *process.unwrap().0;
    world.end_turn(process);
    assert_eq!(world.answer(conn, 1)["agent"], "turn");
}

/// Another configuration counts: an agent goes, comes again, or is started otherwise.
pub fn configure(world: &mut World, choice: u32) {
    let agents = ["many", "one", "turn", "keeps"];
    let name = agents[choice as usize % 4].to_owned();
    let agent = world.settings.agents[&name].clone();
    let mut taken = ConfigTaken {
        default_agent: world.settings.default_agent.clone(),
        ..ConfigTaken::default()
    };
    match choice >> 2 & 3 {
        0 => taken.removed.push(name),
        1 => taken.agents.push(agent),
        _ => {
            taken.agents.push(agent);
            taken.renewed.push(name);
        }
    }
    world.event(Event::ConfigTaken(Box::new(taken)));
}
