//! What dead instances left running is ended: one look at all processes for all of them, however
//! many there are.
//!
//! Owns which instances are to be ended and by whom. Must not know how that is done, nor what waits
//! for it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::platform::process;
use crate::server::owner::Gone;

/// Ends them, one batch after the other.
#[derive(Clone, Debug)]
pub struct Predecessors {
    state_dir: PathBuf,
    gone: mpsc::Sender<Gone>,
    asked: Arc<Mutex<Lookup>>,
}

#[derive(Default, Debug)]
struct Lookup {
    instances: BTreeSet<String>,
    /// Is there a thread that will look at them?
    busy: bool,
}

impl Predecessors {
    /// Says at `gone` what became of each.
    #[must_use]
    pub fn new(state_dir: PathBuf, gone: mpsc::Sender<Gone>) -> Self {
        Self {
            state_dir,
            gone,
            asked: Arc::default(),
        }
    }

    /// Ends what this one left, and what others did that are dead by then. Doesn't wait for it.
    pub fn end(&self, instance: String) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.instances.insert(instance);
        if !std::mem::replace(&mut asked.busy, true) {
            let ending = self.clone();
            tokio::task::spawn_blocking(move || ending.end_all());
        }
    }

    fn end_all(&self) {
        while let Some(instances) = self.next() {
            let survivors = process::end_dead(&self.state_dir, &instances);
            for instance in instances {
                let _left = self.gone.blocking_send(Gone {
                    instance,
                    survivors: survivors.clone(),
                });
            }
        }
    }

    /// All that were asked for meanwhile. Whoever comes after `None` starts another thread.
    fn next(&self) -> Option<BTreeSet<String>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let instances = std::mem::take(&mut asked.instances);
        asked.busy = !instances.is_empty();
        asked.busy.then_some(instances)
    }
}
