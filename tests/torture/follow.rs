//! Clients that subscribe: to whatever happens from now on, or from where they left off.
//!
//! Owns cursors. Must not know what is asked, nor what is right.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::{KNOCK_EVERY, Wire};
use crate::history::{Followed, Heard, History};
use crate::random::Random;
use crate::record::Record;
use crate::work;

/// The only `id` on the connection of a subscriber.
const ID: u64 = 1;
/// A follower that leaves by itself does it within so many lines.
const LEAVES_WITHIN: u64 = 400;

/// Where a subscriber begins, each time it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// With what happens then.
    Now,
    /// At the beginning of the store, then where it was.
    TheBeginning,
    /// With what happens then, and the next time where it was.
    Then,
}

/// What a subscriber wants to hear.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    name: &'static str,
    from: From,
    /// Nothing but this session.
    pub(crate) session: Option<String>,
}

/// Everybody who subscribes in a run.
pub(crate) fn wishes() -> Vec<Wish> {
    let wish = |name, from, session| Wish {
        name,
        from,
        session,
    };
    vec![
        wish("now", From::Now, None),
        wish("all", From::TheBeginning, None),
        wish("on", From::Then, None),
        wish("one", From::Then, Some(work::shared())),
    ]
}

/// What a follower remembers.
#[derive(Clone, Default, Debug)]
struct Cursor {
    after: Option<u64>,
    epoch: Option<String>,
}

impl Cursor {
    fn hears(&mut self, line: &Value) {
        if let Some(seq) = line["seq"].as_u64() {
            self.after = self.after.max(Some(seq));
        }
        if let Some(epoch) = line["epoch"].as_str() {
            self.epoch = Some(epoch.to_owned());
        }
    }
}

/// Listens again and again, until the run is over.
pub(crate) fn follow(record: &Arc<Record>, wish: &Wish, mut random: Random) {
    let mut cursor = Cursor::default();
    if wish.from == From::TheBeginning {
        cursor.after = Some(0);
    }
    for visit in 0.. {
        if record.is_over() {
            return;
        }
        let Some(wire) = Wire::connect(record).and_then(Wire::patient) else {
            std::thread::park_timeout(KNOCK_EVERY);
            continue;
        };
        if wish.from == From::Now {
            cursor = Cursor::default();
        }
        let follower = match wish.from {
            // Each time another one.
            From::Now => format!("{}-{visit}", wish.name),
            From::TheBeginning | From::Then => wish.name.to_owned(),
        };
        record.followed(Followed {
            conn: wire.conn,
            id: ID,
            follower,
            who: wish.name,
            after: cursor.after,
            session: wish.session.clone(),
        });
        let patience =
            (wish.from != From::Now && random.percent(50)).then(|| random.within(1, LEAVES_WITHIN));
        listen(record, wire, wish, &mut cursor, patience);
    }
}

/// One connection, until it is over or the patience is.
fn listen(
    record: &Record,
    mut wire: Wire,
    wish: &Wish,
    cursor: &mut Cursor,
    patience: Option<u64>,
) {
    let mut ask = json!({"type": "subscribe", "id": ID});
    if let Some(session) = &wish.session {
        ask["session"] = json!(session);
    }
    if let Some(after) = cursor.after {
        ask["after"] = json!(after);
    }
    if let Some(epoch) = &cursor.epoch {
        ask["epoch"] = json!(epoch);
    }
    if wire.write(&json!({"type": "hello"})).is_err() || wire.write(&ask).is_err() {
        return;
    }
    let mut heard = 0;
    while let Some(line) = wire.read(record) {
        cursor.hears(&line);
        if line["type"] == "error" && line["id"] == ID && line["job"].is_null() {
            // It was refused: another time.
            return std::thread::park_timeout(KNOCK_EVERY);
        }
        heard += 1;
        // At the end of a run everybody hears everything.
        if patience.is_some_and(|patience| heard >= patience) && !record.is_stopping() {
            return;
        }
    }
}

/// Has everybody who subscribes heard of the last thing that a job of theirs did?
pub(crate) fn has_told_all(history: &History, last_of: impl Fn(Option<&str>) -> u64) -> bool {
    wishes().iter().all(|wish| {
        let mut conns = history.followed.iter().rev();
        let Some(now) = conns.find(|followed| followed.who == wish.name) else {
            return false;
        };
        let last = last_of(wish.session.as_deref());
        let heard = history.heard.iter().rev();
        let mut numbers = heard
            .filter(|heard| heard.conn == now.conn)
            .filter_map(Heard::seq);
        numbers.any(|seq| seq >= last)
    })
}
