//! A daemon that `agentctl` starts: on request, at first use, or not at all.
//!
//! Owns the daemons that outlive the command that started them: each place ends its own.

use std::fs::File;
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

use crate::screen::{at_terminal, ended};
use crate::support::{
    AGENTCTL, AGENTD, Daemon, Finished, Place, copy_program, finish, is_alive, kill, program,
    wait_for,
};

/// A place whose daemon, if there is one, ends with it.
pub struct Started(pub Place);

impl Started {
    pub fn place() -> Self {
        Self(Place::new(&Daemon::config("")))
    }

    pub fn agentctl(&self, words: &[&str]) -> Finished {
        self.0.agentctl(words)
    }

    /// The process that has the state.
    pub fn pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.0.path("state/daemon.lock")).ok()?;
        let lock: serde_json::Value = serde_json::from_str(&text).ok()?;
        let pid = u32::try_from(lock["pid"].as_u64()?).ok()?;
        is_alive(pid).then_some(pid)
    }

    /// Kills the daemon; what it held is free afterwards.
    pub fn kill(&self) {
        kill(self.pid().expect("a daemon"), Signal::SIGKILL);
        wait_for("nobody holds its files", || {
            let lock = File::open(self.0.path("state/daemon.lock")).unwrap();
            Flock::lock(lock, FlockArg::LockSharedNonblock).ok()
        });
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.0.path("config.toml")).unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            kill(pid, Signal::SIGKILL);
            wait_for("the daemon is gone", || (!is_alive(pid)).then_some(()));
        }
    }
}

fn word_of(pid: u32, file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or(&text).trim().to_owned()
}

#[test]
fn start_brings_a_daemon_that_stop_ends() {
    let started = Started::place();
    let done = started.agentctl(&["start"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let pid = started.pid().expect("a daemon");
    assert!(done.stdout.contains(&format!("pid {pid}")), "{done:?}");
    // It answers when `start` returns.
    let sent = started.agentctl(&["send", "--no-fallback", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi\n"),
        "{sent:?}"
    );
    let again = started.agentctl(&["start"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.contains("runs already"), "{again:?}");
    assert_eq!(started.pid(), Some(pid));
    let log = std::fs::read_to_string(started.0.path("state/agentd.log")).unwrap();
    assert!(!log.is_empty());
    let doctor = started.agentctl(&["doctor"]).stdout;
    assert!(
        !doctor.contains("foreground") && doctor.contains("detached from any terminal"),
        "{doctor}"
    );
    let stopped = started.agentctl(&["stop"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    wait_for("the daemon leaves", || {
        started.pid().is_none().then_some(())
    });
}

#[test]
fn start_tells_what_a_crash_cut_off() {
    let started = Started::place();
    let start = || started.agentctl(&["start"]);
    assert_eq!(start().stderr, "");
    for retry in ["never", "auto"] {
        let turn = ["dispatch", "--retry", retry, "[[sleep 600000]]"];
        assert_eq!(started.agentctl(&turn).code, Some(0));
    }
    wait_for("the turns run", || {
        let running = started.agentctl(&["jobs", "--state", "running"]).stdout;
        (running.contains("j1 ") && running.contains("j2 ")).then_some(())
    });
    started.kill();
    let told = "the daemon before ended without saying so: 1 turn was interrupted (`agentctl jobs \
                --state interrupted`), 1 turn runs again";
    assert_eq!(start().stderr, format!("note: {told}\n"));
    let log = std::fs::read_to_string(started.0.path("state/agentd.log")).unwrap();
    assert!(log.contains(told), "{log}");
    // It ends when what its process left behind is gone, too.
    wait_for("the turn is told as interrupted", || {
        let listed = started.agentctl(&["jobs", "--state", "interrupted"]);
        listed.stdout.contains("j1 ").then_some(())
    });
    assert_eq!(start().stderr, "", "it runs already");
    let stopped = started.agentctl(&["stop", "--deadline", "0"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(start().stderr, "", "that one left in order");
}

#[test]
fn start_leaves_terminal_signals_and_descriptors_behind() {
    let started = Started::place();
    let fifo = started.0.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = fifo.clone();
    let reader = std::thread::spawn(move || std::fs::read(reader).unwrap());
    let mut command = started.0.command("/bin/sh");
    // As a script does it: signals ignored, and a descriptor whose end somebody waits for.
    command.arg("-c").arg(format!(
        "trap '' HUP INT QUIT TERM; exec 9>{}; exec {AGENTCTL} start",
        fifo.display()
    ));
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    let pid = started.pid().expect("a daemon");
    let ignored = word_of(pid, "status", "SigIgn:");
    let ignored = u64::from_str_radix(&ignored, 16).unwrap();
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
    ] {
        assert_eq!(ignored >> (signal as i32 - 1) & 1, 0, "{signal}");
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    assert_eq!(fields[3], pid.to_string(), "it leads its own session");
    wait_for("the pipe ends", || reader.is_finished().then_some(()));
    assert!(is_alive(pid));
    kill(pid, Signal::SIGTERM);
    wait_for("the daemon leaves", || {
        started.pid().is_none().then_some(())
    });
}

#[test]
fn start_says_why_there_is_no_daemon() {
    let started = Started(Place::new("no_such = 1\n"));
    let failed = started.agentctl(&["start"]);
    assert_eq!(failed.code, Some(78), "{failed:?}");
    assert!(
        failed.stderr.contains("unknown key `no_such`"),
        "{failed:?}"
    );
    assert!(failed.stderr.contains("hint: known here"), "{failed:?}");
    assert_eq!(started.pid(), None);
}

#[test]
fn restart_is_the_daemons_or_an_agents() {
    let started = Started::place();
    let fresh = started.agentctl(&["restart"]);
    assert_eq!(fresh.code, Some(0), "{fresh:?}");
    let first = started.pid().expect("a daemon");
    let done = started.agentctl(&["restart"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let second = started.pid().expect("a daemon");
    assert_ne!(first, second);
    let sent = started.agentctl(&["send", "--no-fallback", "hi"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    for words in [&["restart", "timmy"][..], &["agents", "restart", "timmy"]] {
        let done = started.agentctl(words);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), "restarted\n"),
            "{done:?}"
        );
        let old = words.len() == 2;
        assert_eq!(
            done.stderr.contains("`agentctl agents restart timmy`"),
            old,
            "{done:?}"
        );
    }
    assert_eq!(started.pid(), Some(second));
}

#[test]
fn restart_with_a_broken_config_is_refused() {
    let started = Started::place();
    assert_eq!(started.agentctl(&["start"]).code, Some(0));
    let pid = started.pid().expect("a daemon");
    let config = started.config();
    started
        .0
        .configure("default_agent = \"timmy\"\nno_such = 1\n");
    let refused = started.agentctl(&["restart"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    for part in [
        "config.toml:2",
        "unknown key `no_such`",
        "goes on with the configuration it has",
        "hint: known here",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(started.pid(), Some(pid));
    let sent = started.agentctl(&["send", "--no-fallback", "hi"]);
    assert_eq!(sent.stdout, "hi\n", "{sent:?}");
    started.0.configure(&config);
    assert_eq!(started.agentctl(&["restart"]).code, Some(0));
    assert_ne!(started.pid(), Some(pid));
}

#[test]
fn config_check_says_whether_a_daemon_would_start() {
    let place = Place::new("");
    let check = |words: &[&str]| {
        let mut command = place.command(AGENTD);
        command.args(["config", "check"]).args(words);
        finish(command, b"")
    };
    let refused = || {
        let said: serde_json::Value = serde_json::from_str(&check(&["--json"]).stdout).unwrap();
        said["refused"].as_str().map(str::to_owned)
    };
    assert_eq!((refused(), check(&[]).code), (None, Some(0)));
    place.configure("no_such = 1\n");
    let why = refused().unwrap();
    assert!(
        why.contains("config.toml:1: unknown key `no_such`"),
        "{why}"
    );
    let said = check(&[]);
    assert_eq!(said.code, Some(78), "{said:?}");
    // To people it is told in lines.
    let why = why.replace("; hint: ", "\nhint: ");
    assert!(said.stderr.contains(&why), "{said:?}");
}

#[test]
fn restart_that_fails_keeps_nobody_waiting() {
    let daemon = Daemon::start();
    daemon.ask(r#"{"type":"daemon.stop","restart":true}"#);
    let (place, _) = daemon.left();
    let lock = || std::fs::read_to_string(place.path("state/daemon.lock")).unwrap();
    assert!(lock().contains("restarting"), "{}", lock());
    place.configure("no_such = 1\n");
    // The promise counts for a minute, longer than a test waits.
    for words in [&["start"][..], &["send", "hi"]] {
        let failed = place.agentctl(words);
        assert_eq!(failed.code, Some(78), "{failed:?}");
        assert!(failed.stderr.contains("`no_such`"), "{failed:?}");
    }
    assert!(!lock().contains("restarting"), "{}", lock());
}

/// Processes of this place that serve.
pub fn daemons(place: &Place) -> Vec<u32> {
    let ours = format!("AGENTD_SOCKET={}\0", place.socket().display());
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of_file = |pid: &u32, file: &str| std::fs::read(format!("/proc/{pid}/{file}"));
    let has = |text: &[u8], part: &str| text.windows(part.len()).any(|at| at == part.as_bytes());
    all.filter(|pid| {
        of_file(pid, "environ").is_ok_and(|text| has(&text, &ours))
            && of_file(pid, "cmdline").is_ok_and(|text| has(&text, "--detach"))
            && is_alive(*pid)
    })
    .collect()
}

#[test]
fn starts_at_once_leave_one_daemon() {
    let started = Started::place();
    let starting: Vec<_> = (0..10)
        .map(|_| {
            let mut command = started.0.command(AGENTCTL);
            command.arg("start");
            std::thread::spawn(move || finish(command, b""))
        })
        .collect();
    let said: Vec<Finished> = starting
        .into_iter()
        .map(|one| one.join().unwrap())
        .collect();
    let pid = started.pid().expect("a daemon");
    for one in &said {
        assert_eq!(one.code, Some(0), "{one:?}");
        assert!(one.stdout.contains(&format!("pid {pid}")), "{one:?}");
    }
    let first = said
        .iter()
        .filter(|one| one.stdout.starts_with("agentd runs:"));
    assert_eq!(first.count(), 1, "{said:?}");
    assert_eq!(daemons(&started.0), [pid]);
    assert_eq!(started.agentctl(&["stop"]).code, Some(0));
    assert_eq!(daemons(&started.0), [0; 0]);
}

#[test]
fn start_that_lost_leaves_no_process() {
    let started = Started::place();
    // An installation whose daemon takes its time to begin.
    let bin = started.0.path("bin");
    std::fs::create_dir(&bin).unwrap();
    copy_program(AGENTCTL, &bin.join("agentctl"));
    let (gate, late) = (started.0.path("gate"), started.0.path("late"));
    let script = format!(
        "echo $$ > {}\nuntil [ -e {} ]; do sleep 0.01; done\nexec {AGENTD} \"$@\"",
        late.display(),
        gate.display()
    );
    program(&bin, "agentd", &script);
    let mut command = started.0.command(bin.join("agentctl"));
    command.arg("start");
    let slow = std::thread::spawn(move || finish(command, b""));
    let late: u32 = wait_for("the late one begins", || {
        let pid = std::fs::read_to_string(&late).ok()?;
        pid.strip_suffix('\n')?.parse().ok()
    });
    assert_eq!(started.agentctl(&["start"]).code, Some(0));
    let lost = slow.join().unwrap();
    assert_eq!(lost.code, Some(0), "{lost:?}");
    assert!(lost.stdout.contains("runs already"), "{lost:?}");
    assert!(!is_alive(late));
    assert_eq!(started.agentctl(&["stop"]).code, Some(0));
    std::fs::write(gate, "").unwrap();
    assert_eq!(daemons(&started.0), [0; 0]);
}

#[test]
fn first_use_starts_nothing_from_a_pipe() {
    let started = Started::place();
    let sent = started.agentctl(&["send", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi\n"),
        "{sent:?}"
    );
    assert_eq!(started.pid(), None, "it ran by itself");
    let set = started.agentctl(&["config", "set", "client.start", "always"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let sent = started.agentctl(&["send", "--no-fallback", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi\n"),
        "{sent:?}"
    );
    // One that was killed leaves its socket.
    assert!(sent.stderr.contains("started agentd"), "{sent:?}");
    started.kill();
    assert!(started.0.socket().exists());
    let sent = started.agentctl(&["send", "--quiet", "--no-fallback", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str(), sent.stderr.as_str()),
        (Some(0), "hi\n", ""),
        "{sent:?}"
    );
}

#[test]
fn first_use_asks_once_on_a_terminal() {
    for (typed, kept) in [("\n", "always"), ("n\n", "never")] {
        let started = Started::place();
        let (mut terminal, mut child) = at_terminal(&started.0, &["send", "hi"]);
        terminal.until("[Y/n] ");
        terminal.type_in(typed);
        terminal.until("config.toml now");
        let (code, said) = ended(&mut child);
        assert_eq!((code, said.as_str()), (Some(0), "hi\n"));
        assert!(started.config().contains(&format!("start = \"{kept}\"")));
        assert_eq!(started.pid().is_some(), kept == "always");
        // Nobody is asked again.
        let (_terminal, mut child) = at_terminal(&started.0, &["send", "hi"]);
        assert_eq!(ended(&mut child), (Some(0), "hi\n".to_owned()));
    }
}

#[test]
fn first_use_never_starts_one_elsewhere() {
    let started = Started::place();
    started.agentctl(&["config", "set", "client.start", "always"]);
    let elsewhere = started.0.path("elsewhere.sock");
    let sent = started.agentctl(&["--socket", elsewhere.to_str().unwrap(), "send", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi\n"),
        "{sent:?}"
    );
    assert_eq!(started.pid(), None);
}

/// Programs of this name that could answer.
fn agents(place: &Place, names: &[&str]) {
    let bin = place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in names {
        program(&bin, name, "exec cat");
    }
    let agent = |name: &&str| {
        let program = bin.join(name);
        format!("[agents.{name}]\nkind = \"exec\"\ncommand = [{program:?}]\n")
    };
    place.configure(&names.iter().map(agent).collect::<String>());
}

#[test]
fn first_send_asks_which_agent_answers() {
    let place = Place::new("");
    agents(&place, &["first", "second"]);
    let refused = place.agentctl(&["send", "hi"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("hint: `agentctl agents default first`")
            && refused.stderr.contains("`--agent first`"),
        "{refused:?}"
    );
    place.agentctl(&["config", "set", "client.start", "never"]);
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    terminal.until("number [1, first]: ");
    kill(child.0.id(), Signal::SIGINT);
    assert_eq!(ended(&mut child), (Some(130), String::new()));
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    terminal.until("1  first");
    terminal.until("2  second");
    // As in the list of agents: it comes last, and can be chosen.
    terminal.until("3  timmy");
    terminal.until("number [1, first]: ");
    terminal.type_in("9\n");
    terminal.until("a number from 1 to 3");
    terminal.type_in("2\n");
    terminal.until("`second` is the default now");
    assert_eq!(ended(&mut child), (Some(0), "hi\n".to_owned()));
    let config = std::fs::read_to_string(place.path("config.toml")).unwrap();
    assert!(config.contains("default_agent = \"second\""), "{config}");
    let sent = place.agentctl(&["send", "hi"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi\n"),
        "{sent:?}"
    );
}

#[test]
fn default_agent_has_to_be_usable_or_forced() {
    let place = Place::new("[agents.gone]\nkind = \"exec\"\ncommand = [\"/nowhere/x\"]\n");
    let refused = place.agentctl(&["agents", "default", "gone"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("`/nowhere/x` is not there"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    let forced = place.agentctl(&["agents", "default", "gone", "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    let config = std::fs::read_to_string(place.path("config.toml")).unwrap();
    assert!(config.starts_with("default_agent = \"gone\""), "{config}");
}

/// `agentctl` with an editor that is this script.
fn edited(place: &Place, script: &str) -> Command {
    let editor = program(place.dir.path(), "editor", script);
    let mut command = place.command(AGENTCTL);
    command.args(["config", "edit"]);
    command
        .env("EDITOR", editor)
        .env("TMPDIR", place.dir.path());
    command.stdin(Stdio::null());
    command
}

#[test]
fn config_is_made_set_read_and_edited() {
    let place = Place::new("");
    let path = place.path("config.toml");
    let refused = place.agentctl(&["config", "init"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(place.agentctl(&["config", "init"]).code, Some(0));
    assert_eq!(place.agentctl(&["config", "show"]).code, Some(0));
    place.configure("# Mine.\n\n[agents.x] # it\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n");
    let ask = |words: &[&str]| place.agentctl(&[&["config"], words].concat());
    let said = ask(&["path"]);
    assert_eq!(said.stdout.trim_end(), path.to_str().unwrap());
    for (key, value, shown) in [
        ("default_agent", "x", "x"),
        ("agents.x.warm", "2", "2"),
        ("agents.x.pass_env", "[\"A\", \"B\"]", "[\"A\", \"B\"]"),
        ("client.start", "never", "never"),
        ("retention.days", "7", "7"),
    ] {
        let set = ask(&["set", key, value]);
        assert_eq!(set.code, Some(0), "{set:?}");
        assert_eq!(ask(&["get", key]).stdout.trim_end(), shown, "{key}");
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("# Mine.\ndefault_agent = \"x\"\n\n[agents.x] # it\n"),
        "{text}"
    );
    for wrong in [
        ["retention.days", "many"],
        ["no_such", "1"],
        ["default_agent", "y"],
        ["agents.x.kind.y", "1"],
    ] {
        let refused = ask(&["set", wrong[0], wrong[1]]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{wrong:?}");
    }
    assert_eq!(ask(&["unset", "retention.days"]).code, Some(0));
    assert_eq!(ask(&["get", "retention.days"]).stdout, "30\n");
    let table = ask(&["get", "client"]);
    assert_eq!(table.stdout, "client.start = \"never\"\n", "{table:?}");
    assert_eq!(ask(&["get", "retention.dayz"]).code, Some(2));
}

#[test]
fn config_edit_keeps_what_can_be_read() {
    let place = Place::new("# Mine.\n");
    let path = place.path("config.toml");
    let text = || std::fs::read_to_string(&path).unwrap();
    let done = finish(
        edited(&place, "echo 'client.start = \"never\"' >> \"$1\""),
        b"",
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(text(), "# Mine.\nclient.start = \"never\"\n");
    let same = finish(edited(&place, "true"), b"");
    assert!(same.stdout.contains("nothing was changed"), "{same:?}");
    let before = text();
    let refused = finish(edited(&place, "echo nonsense >> \"$1\""), b"");
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("config.toml:3"), "{refused:?}");
    assert_eq!(text(), before);
    // What was written isn't lost.
    let kept = refused.stderr.rsplit_once("is in `").unwrap().1;
    let kept = kept.split('`').next().unwrap();
    assert!(std::fs::read_to_string(kept).unwrap().contains("nonsense"));
    let other = format!(
        "echo '# other' >> {}; echo '# own' >> \"$1\"",
        path.display()
    );
    let meanwhile = finish(edited(&place, &other), b"");
    assert_eq!(meanwhile.code, Some(2), "{meanwhile:?}");
    assert!(
        meanwhile.stderr.contains("changed by somebody else"),
        "{meanwhile:?}"
    );
    assert!(!text().contains("# own"));
}

#[test]
fn config_edit_without_a_file_changes_nothing() {
    let place = Place::new("# Mine.\n");
    let gone = finish(edited(&place, "rm \"$1\""), b"");
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stderr.contains("left no file"), "{gone:?}");
    let mut full = edited(&place, "true");
    full.env("TMPDIR", "/proc/self");
    let full = finish(full, b"");
    assert_eq!(full.code, Some(3), "{full:?}");
    assert!(full.stderr.contains("`/proc/self/agentd-"), "{full:?}");
    assert!(full.stderr.contains("`TMPDIR`"), "{full:?}");
    let text = std::fs::read_to_string(place.path("config.toml")).unwrap();
    assert_eq!(text, "# Mine.\n");
}
