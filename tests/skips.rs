//! Tests that are skipped for want of something: each is said at once, and all are counted behind the
//! last line of their test program, where a person looks.
//!
//! Owns the sentence and the count, over the test programs of one `cargo test`, too. Must not know what
//! a test needs, nor whether it may be missing.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Mutex;

use nix::libc::atexit;

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says, once per test, that it is skipped.
pub(crate) fn say(needs: &str) {
    // The harness gives each test a thread of its name.
    let thread = std::thread::current();
    let said = format!("skipped: needs {needs}: {}", thread.name().unwrap_or("?"));
    let mut all = SAID.lock().unwrap();
    if all.is_empty() {
        // The harness has no last word, and ends the process by `exit`.
        #[expect(unsafe_code, reason = "the libraries don't have it")]
        // SAFETY: the function is there as long as the program, and doesn't unwind.
        let _full = unsafe { atexit(tell) };
    }
    if all.insert(said.clone()) {
        // Past the harness, which hides what a passing test prints.
        let _closed = writeln!(std::io::stderr(), "{said}");
    }
}

extern "C" fn tell() {
    let (count, tests) = SAID.lock().map_or((0, 0), |all| {
        let tests: BTreeSet<_> = all
            .iter()
            .filter_map(|said| said.rsplit(": ").next())
            .collect();
        (all.len(), tests.len())
    });
    let all = count + before(count).unwrap_or(0);
    let _closed = writeln!(
        std::io::stderr(),
        "skipped here: {count} checks of {tests} tests, which count as passed above; in all so far: {all} checks\n"
    );
}

/// As many were skipped by earlier programs of the same `cargo test`, which has started this one.
fn before(count: usize) -> Option<usize> {
    let file = std::env::current_exe()
        .ok()?
        .with_file_name("skipped-tests");
    let run = std::os::unix::process::parent_id().to_string();
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let noted = text
        .strip_prefix(&format!("{run} "))
        .and_then(|count| count.parse().ok());
    let before: usize = noted.unwrap_or(0);
    std::fs::write(file, format!("{run} {}", before + count)).ok()?;
    Some(before)
}
