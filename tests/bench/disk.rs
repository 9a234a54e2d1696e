//! What the disk alone takes to sync a page: what a figure about durability is compared with.
//!
//! Owns the one way to time it. Must not know what it is compared with.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::place::ms;

/// A file that grows by a page before each sync, as a log does.
pub(crate) struct Growing(File);

impl Growing {
    pub(crate) fn at(path: &Path) -> Self {
        Self(File::create(path).unwrap())
    }

    /// How long one sync takes in milliseconds, without the writing.
    pub(crate) fn sync(&mut self) -> f64 {
        self.0.write_all(&[7; 4096]).unwrap();
        let begun = Instant::now();
        self.0.sync_data().unwrap();
        ms(begun.elapsed())
    }
}

/// How long each of some syncs took.
pub(crate) fn syncs(path: &Path, times: usize) -> Vec<f64> {
    let mut file = Growing::at(path);
    (0..times).map(|_| file.sync()).collect()
}

/// As many as there is time for meanwhile.
pub(crate) fn syncs_during(path: &Path, meanwhile: impl FnOnce()) -> Vec<f64> {
    let mut file = Growing::at(path);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| {
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                took.push(file.sync());
            }
            took
        });
        meanwhile();
        over.store(true, Ordering::Relaxed);
        syncs.join().unwrap()
    })
}
