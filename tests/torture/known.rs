//! Is every stored job that has no end known to the daemon? A forgotten one is nobody's until the
//! next start.
//!
//! Owns the comparison. Must not know what is right.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::client::Wire;
use crate::history::Look;
use crate::place::Place;
use crate::record::{Record, poll};
use crate::stored;

/// What is committed is known to the daemon within this time.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
const STATUS: u64 = 1;

/// Looks until the daemon knows of as many jobs as have had no end since the first look. False when
/// it doesn't; nothing is noted when there is no daemon to ask.
pub(crate) fn look(place: &Place, record: &Record) -> bool {
    let (state, pid) = (place.path("state"), place.daemon_pid());
    let mut open: Option<BTreeSet<String>> = None;
    let mut last = None;
    poll(KNOWN_WITHIN, || {
        let all = open.take().or_else(|| stored::open_of(&state, pid).ok())?;
        last = known(record).map(|known| Look {
            open: Vec::new(),
            known,
        });
        let (Some(look), Ok(still)) = (&mut last, stored::open_of(&state, pid)) else {
            // The daemon is gone, or the store is being made.
            last = None;
            return Some(());
        };
        look.open = all.intersection(&still).cloned().collect();
        let enough = look.open.len() <= look.known;
        open = Some(look.open.iter().cloned().collect());
        enough.then_some(())
    });
    let Some(look) = last.filter(|_| !place.is_dead()) else {
        return true;
    };
    let all_known = look.open.len() <= look.known;
    record.with(|history| history.looks.push(look));
    all_known
}

/// Of how many jobs without an end the daemon says that they are its.
fn known(record: &Record) -> Option<usize> {
    let mut wire = Wire::kept(record)?;
    let ask = json!({"type": "status", "id": STATUS, "workers": false});
    wire.write(&ask).ok()?;
    let answer = wire.reply(record, STATUS)?;
    answer["store"]["open"].as_u64()?.try_into().ok()
}
