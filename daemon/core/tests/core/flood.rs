//! Text that comes faster than the store takes it.

use std::time::Duration;

use agentd_core::limits::TEXT_ON_ITS_WAY;
use agentd_core::store::Write;
use agentd_protocol::JobId;

use crate::scenarios::{running, say};
use crate::world::{StoreOrder, World};

/// Bytes of text that the store was given and has not answered.
fn on_its_way(world: &World) -> usize {
    let commits = world.orders.iter().filter_map(|order| match order {
        StoreOrder::Commit(_, writes) => Some(writes),
        StoreOrder::Load(..) => None,
    });
    let text = commits.flatten().map(|write| match write {
        Write::Text { text, .. } => text.len(),
        _ => 0,
    });
    text.sum()
}

#[test]
fn a_store_that_is_behind_is_given_no_more_text_than_the_limit_and_gets_all_of_it_later() {
    let (mut world, _conn, process) = running();
    world.prompt_store = false;
    // Three bytes a character, so that no limit falls between two of them.
    let piece = "\u{20ac}".repeat(10_000);
    let all = 3 * TEXT_ON_ITS_WAY;
    let mut said = 0;
    let mut most = 0;
    while said < all {
        say(&mut world, process, &piece);
        said += piece.len();
        most = most.max(on_its_way(&world));
    }
    world.pass(Duration::from_secs(1));
    assert!(
        (TEXT_ON_ITS_WAY..TEXT_ON_ITS_WAY + 4).contains(&most.max(on_its_way(&world))),
        "{most} bytes of {said} wait for the store"
    );
    while world.store_pending() > 0 {
        world.store_answers();
        world.pass(Duration::from_secs(1));
        assert!(on_its_way(&world) < TEXT_ON_ITS_WAY + 4);
    }
    let stored = &world.jobs[&JobId(1)].texts[&(0, 0)];
    assert!(*stored == piece.repeat(said / piece.len()), "all, in order");
    say(&mut world, process, &piece);
    assert_eq!(on_its_way(&world), piece.len(), "there is room again");
}
