//! The steers to the turn in flight.
//!
//! Owns where each steer is until it is known what became of it, which is told once. Must not know
//! when a run begins or ends, nor how an agent tells that it took one.

use agentd_core::worker::{Failure, Steering, WorkerEvent};

use super::driver::Out;

/// A steer to the turn in flight.
#[derive(Debug)]
struct SteerMessage {
    number: u64,
    place: Place,
}

/// Where a steer is.
#[derive(Debug)]
enum Place {
    /// With us: the run is not seen yet.
    Held(String),
    /// Written under this name.
    Sent(String),
    /// In the agent's queue, where the agent tells of that.
    Queued(String),
}

impl SteerMessage {
    fn is_called(&self, name: &str) -> bool {
        match &self.place {
            Place::Held(_) => false,
            Place::Sent(called) | Place::Queued(called) => called == name,
        }
    }
}

/// Steers that no run has taken yet, in their order.
#[derive(Default, Debug)]
pub(super) struct SteerQueue(Vec<SteerMessage>);

impl SteerQueue {
    pub(super) const fn too_late(steer: u64) -> WorkerEvent {
        WorkerEvent::Steered {
            steer,
            steering: Steering::TooLate,
        }
    }

    /// Keeps a steer until it can be written.
    pub(super) fn hold(&mut self, number: u64, text: &str) {
        let place = Place::Held(text.to_owned());
        self.0.push(SteerMessage { number, place });
    }

    /// The first steer that is not written; what becomes of that has to be told.
    pub(super) fn next_held(&mut self) -> Option<(u64, String)> {
        self.0.iter_mut().find_map(|steer| match &mut steer.place {
            Place::Held(text) => Some((steer.number, std::mem::take(text))),
            Place::Sent(_) | Place::Queued(_) => None,
        })
    }

    /// That steer is written under a name, or can't be.
    pub(super) fn written(&mut self, name: Result<String, Failure>, out: &mut Out<'_>) {
        let held = |steer: &SteerMessage| matches!(steer.place, Place::Held(_));
        let Some(at) = self.0.iter().position(held) else {
            return;
        };
        match name {
            Ok(name) => self.0[at].place = Place::Sent(name),
            Err(failure) => self.remove(at, Steering::Refused(failure), out),
        }
    }

    /// Is the steer with this name open?
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|steer| steer.is_called(name))
    }

    /// What became of the steer with this name, if it is open: one that was never written has none.
    pub(super) fn close(&mut self, name: &str, steering: Steering, out: &mut Out<'_>) {
        if let Some(at) = self.0.iter().position(|steer| steer.is_called(name)) {
            self.remove(at, steering, out);
        }
    }

    fn remove(&mut self, at: usize, steering: Steering, out: &mut Out<'_>) {
        let steer = self.0.remove(at).number;
        out.push(WorkerEvent::Steered { steer, steering });
    }

    /// So many more are in the agent's queue: those that were written first.
    pub(super) fn entered(&mut self, more: usize) {
        let sent = self
            .0
            .iter_mut()
            .filter_map(|steer| match &mut steer.place {
                Place::Sent(name) => Some((std::mem::take(name), &mut steer.place)),
                Place::Held(_) | Place::Queued(_) => None,
            });
        for (name, place) in sent.take(more) {
            *place = Place::Queued(name);
        }
    }

    /// So many have left the agent's queue for its run: the first ones.
    pub(super) fn left(&mut self, fewer: usize, out: &mut Out<'_>) {
        for _ in 0..fewer {
            let first = |steer: &SteerMessage| matches!(steer.place, Place::Queued(_));
            if let Some(at) = self.0.iter().position(first) {
                self.remove(at, Steering::Taken, out);
            }
        }
    }

    /// The names of those that are written and that no run has taken.
    pub(super) fn sent(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|steer| match &steer.place {
            Place::Held(_) => None,
            Place::Sent(name) | Place::Queued(name) => Some(name.as_str()),
        })
    }

    /// The turn is over: what it hasn't taken is too late.
    pub(super) fn close_all(&mut self, out: &mut Out<'_>) {
        out.extend(self.0.drain(..).map(|steer| Self::too_late(steer.number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the queue tells of this.
    fn told(act: impl FnOnce(&mut Out<'_>)) -> Vec<WorkerEvent> {
        let (mut events, mut write) = (Vec::new(), Vec::new());
        act(&mut Out::new(&mut events, &mut write));
        events
    }

    #[test]
    fn steer_queue_tells_each_word_once_in_order() {
        let mut queue = SteerQueue::default();
        for steer in 1..=4 {
            queue.hold(steer, "x");
        }
        for steer in 1..=3 {
            assert_eq!(queue.next_held(), Some((steer, "x".to_owned())));
            assert!(told(|out| queue.written(Ok(format!("w{steer}")), out)).is_empty());
        }
        assert_eq!(queue.sent().collect::<Vec<_>>(), ["w1", "w2", "w3"]);
        queue.entered(2);
        let taken = |steer| WorkerEvent::Steered {
            steer,
            steering: Steering::Taken,
        };
        assert_eq!(told(|out| queue.left(5, out)), [taken(1), taken(2)]);
        assert_eq!(
            told(|out| queue.close("w3", Steering::Taken, out)),
            [taken(3)]
        );
        assert_eq!(told(|out| queue.close("w3", Steering::Taken, out)), []);
        let late = [SteerQueue::too_late(4)];
        assert_eq!(told(|out| queue.close_all(out)), late);
        assert_eq!(told(|out| queue.close_all(out)), []);
    }
}
