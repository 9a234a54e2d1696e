//! Several agents share the processes that there may be: each keeps its share while turns wait.

use std::time::Duration;

use agentd_core::limits::SPAWN_EVERY;

use crate::agents::settings;
use crate::fairness::step_of;
use crate::world::World;

/// Processes of the world.
const POOL: usize = 4;
/// Turns of each agent.
const TURNS: usize = 60;
/// Turns that end sooner than the next process may be started.
const BRIEF: Duration = Duration::from_millis(5);

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

/// Runs everything, each turn for this time; how many processes were started, and rounds taken.
fn run(agents: &[&str], time: Duration) -> (usize, usize) {
    let mut world = World::new(settings());
    dispatch(&mut world, agents);
    for rounds in 1..10_000 {
        step_of(&mut world, time);
        if world.jobs.values().all(|job| job.last.is_some()) {
            return (usize::try_from(world.spawns).unwrap(), rounds);
        }
    }
    panic!("turns wait for ever");
}

#[test]
fn shares_of_agents_keep_their_processes() {
    let (alone, _) = run(&["many"], SPAWN_EVERY);
    assert_eq!(alone, POOL);
    for agents in [
        &["many", "keeps"][..],
        &["one", "many"],
        &["many", "keeps", "many", "one"],
    ] {
        let (started, rounds) = run(agents, SPAWN_EVERY);
        let all = agents.len() * TURNS;

        assert!(started <= 3 * POOL, "{started} processes for {all} turns");
        assert!(rounds <= all / 2, "{rounds} rounds for {all} turns");
    }
}

#[test]
fn shares_survive_turns_that_wait_to_be_spawned() {
    for (agent, time) in [("many", SPAWN_EVERY), ("many", BRIEF), ("keeps", BRIEF)] {
        let (started, _) = run(&[agent, "turn"], time);
        let lasting = started - TURNS;
        assert!(
            lasting <= 3 * POOL,
            "{lasting} processes of `{agent}` for {TURNS} turns"
        );
    }
}
