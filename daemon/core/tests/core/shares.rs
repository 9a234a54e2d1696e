//! Several agents share the processes that there may be: each keeps its share while turns wait.

use crate::agents::settings;
use crate::fairness::step;
use crate::world::World;

/// Processes of the world.
const POOL: usize = 4;
/// Turns of each agent.
const TURNS: usize = 60;

/// Turns of these agents by turns, each in a session of its own.
fn dispatch(world: &mut World, agents: &[&str]) {
    let conn = world.connect();
    for id in 1..=TURNS {
        let jobs = agents
            .iter()
            .map(|agent| format!(r#"{{"text":"x","agent":"{agent}"}}"#));
        let jobs = jobs.collect::<Vec<_>>().join(",");
        let request = format!(r#"{{"type":"dispatch","jobs":[{jobs}]}}"#);
        world.request(conn, u64::try_from(id).unwrap(), &request);
    }
}

/// Runs everything, each turn for a while; how many processes were started, and rounds taken.
fn run(agents: &[&str]) -> (usize, usize) {
    let mut world = World::new(settings());
    dispatch(&mut world, agents);
    for rounds in 1..10_000 {
        step(&mut world);
        if world.jobs.values().all(|job| job.last.is_some()) {
            return (usize::try_from(world.spawns).unwrap(), rounds);
        }
    }
    panic!("turns wait for ever");
}

#[test]
fn shares_of_agents_keep_their_processes() {
    let (alone, _) = run(&["many"]);
    assert_eq!(alone, POOL);
    for agents in [
        &["many", "keeps"][..],
        &["one", "many"],
        &["many", "keeps", "many", "one"],
    ] {
        let (started, rounds) = run(agents);
        let all = agents.len() * TURNS;
        assert!(started <= 3 * POOL, "{started} processes for {all} turns");
        assert!(rounds <= all / 2, "{rounds} rounds for {all} turns");
    }
}
