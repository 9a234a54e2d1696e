//! A test that doesn't end is named and fails, as the harness itself would wait for it for ever.
//!
//! Owns how long a test may take, and the end of the program of a test that takes longer. Must not know
//! what a test does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};

/// Five times what the slowest test takes on a busy machine.
const MOST: Duration = Duration::from_secs(600);
/// Nightly, some tests repeat what they try a thousand times.
const MOST_REPEATED: Duration = Duration::from_secs(3 * 3600);

/// The tests that run, by the thread that the harness gives each.
static RUNNING: Mutex<BTreeMap<i32, (String, Instant)>> = Mutex::new(BTreeMap::new());

thread_local! {
    static TEST: Test = Test::begin();
}

/// Is gone with its thread: behind everything that the test owned.
struct Test(i32);

impl Test {
    fn begin() -> Self {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("?").to_owned();
        let id = gettid().as_raw();
        RUNNING.lock().unwrap().insert(id, (name, Instant::now()));
        Self(id)
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let _none = RUNNING.lock().map(|mut running| running.remove(&self.0));
    }
}

/// Watches the test that calls it.
pub fn watch() {
    static WATCHING: Once = Once::new();
    // Where all tests share the main thread, nobody could tell which of them runs.
    if std::thread::current().name() == Some("main") {
        return;
    }
    TEST.with(|_| ());
    WATCHING.call_once(|| {
        let repeated = ["KILLS", "SENDS", "RACES"]
            .iter()
            .any(|what| std::env::var_os(format!("AGENTD_TEST_{what}")).is_some());
        let most = if repeated { MOST_REPEATED } else { MOST };
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(Duration::from_secs(1));
                let running = RUNNING.lock().unwrap();
                if let Some((id, (name, _))) = running
                    .iter()
                    .find(|(_, (_, since))| since.elapsed() > most)
                {
                    give_up(*id, name, most);
                }
            }
        });
    });
}

/// Says what the test waits for, in the form in which the harness says what a failed test said, and
/// ends the program with all that it started.
fn give_up(id: i32, name: &str, most: Duration) {
    let mut said = format!("---- {name} stdout ----\nit hangs: {} s\n", most.as_secs());
    let waits = read(&format!("/proc/self/task/{id}/wchan"));
    let _full = writeln!(said, "it waits in {waits} with these processes:");
    let children = children();
    for pid in &children {
        let words = read(&format!("/proc/{pid}/cmdline")).replace('\0', " ");
        let waits = read(&format!("/proc/{pid}/wchan"));
        let _full = writeln!(said, "{pid} {waits}: {words}");
    }
    let _closed = writeln!(std::io::stderr(), "{said}");
    for pid in children {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    #[expect(
        unsafe_code,
        reason = "the other tests run yet: nothing is to be put in order"
    )]
    // SAFETY: it doesn't return.
    unsafe {
        libc::_exit(101)
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// What this process has started and not reaped.
fn children() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .flatten()
        .flat_map(|task| {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let pids: Vec<i32> = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect();
            pids
        })
        .collect()
}
