//! Places where a test build dies, or does wrong, on request.
//!
//! Owns the variable `AGENTD_FAILPOINT`. Must not know what happens at a place. In a released program,
//! which has no debug assertions, both macros are nothing at all.
//!
//! The variable holds words separated by commas: `NAME:COUNT` ends the process, as `kill -9` would,
//! when it comes to the place NAME for the COUNT-th time; a mere `NAME` makes the program wrong in
//! the way of that name, so that the tests can show that they notice.

/// A place at which the process can be made to end. With kinds, one place for each of them.
#[cfg(debug_assertions)]
macro_rules! failpoint {
    ($name:literal) => {
        crate::failpoint::reached($name)
    };
    ($name:literal, $kinds:expr) => {
        if crate::failpoint::is_chosen() {
            for kind in $kinds {
                crate::failpoint::reached(&format!("{}-{kind}", $name));
            }
        }
    };
}

/// Something that a right program doesn't do.
#[cfg(debug_assertions)]
macro_rules! wrong {
    ($name:literal, $what:expr) => {
        if crate::failpoint::is_wrong($name) {
            $what
        }
    };
}

#[cfg(not(debug_assertions))]
macro_rules! failpoint {
    ($name:literal $(, $kinds:expr)?) => {};
}

#[cfg(not(debug_assertions))]
macro_rules! wrong {
    ($name:literal, $what:expr) => {};
}

#[cfg(debug_assertions)]
pub(crate) use chosen::{hang, is_chosen, is_wrong, linger, reached};

#[cfg(debug_assertions)]
mod chosen {
    use std::collections::BTreeSet;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, raise};

    #[derive(Default)]
    struct Chosen {
        /// Where it ends, and how often it has to come there.
        end: Option<(String, u64)>,
        wrong: BTreeSet<String>,
    }

    static CHOSEN: LazyLock<Chosen> = LazyLock::new(|| {
        let text = std::env::var("AGENTD_FAILPOINT").unwrap_or_default();
        let mut chosen = Chosen::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word.split_once(':') {
                Some((name, count)) => {
                    chosen.end = Some((name.to_owned(), count.parse().unwrap_or(1)));
                }
                None => drop(chosen.wrong.insert(word.to_owned())),
            }
        }
        chosen
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    /// Is there a place to end at?
    pub(crate) fn is_chosen() -> bool {
        CHOSEN.end.is_some()
    }

    /// Ends the process if this is the place and the time.
    pub(crate) fn reached(name: &str) {
        if let Some((chosen, count)) = &CHOSEN.end
            && chosen == name
            && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *count
        {
            let _dead = raise(Signal::SIGKILL);
            // The signal is the whole process's: this thread goes no further.
            loop {
                std::thread::park();
            }
        }
    }

    /// Gives others the time to see what is wrong.
    pub(crate) fn linger() {
        let until = Instant::now() + Duration::from_millis(50);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
    }

    /// Goes no further as long as a file is there, as on a disk that hangs.
    pub(crate) fn hang(database: &std::path::Path) {
        while database.with_extension("hangs").exists() {
            linger();
        }
    }

    /// Is the program to be wrong in this way?
    pub(crate) fn is_wrong(name: &str) -> bool {
        CHOSEN.wrong.contains(name)
    }
}
