//! A batch of one agent, and what others are asked meanwhile.

use agentd_protocol::JobId;

use crate::agents::settings;
use crate::fairness::step;
use crate::world::World;

#[test]
fn batch_of_processes_lets_another_agent_begin() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let jobs = vec![r#"{"text":"x","agent":"turn"}"#; 40].join(",");
    let batch = format!(r#"{{"type":"dispatch","jobs":[{jobs}]}}"#);
    world.request(conn, 1, &batch);
    step(&mut world);
    world.request(conn, 2, r#"{"type":"send","text":"x","agent":"one"}"#);
    for _ in 0..4 {
        step(&mut world);
    }
    let began = &world.began;
    assert!(began.contains(&JobId(41)), "{began:?}");
    assert!(began.len() < 30, "{began:?}");
}
