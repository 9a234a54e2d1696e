//! Another machine's daemon by ssh: every command, the fallback there, a key that may only send,
//! a socket of its own here, and what is refused.
//!
//! The other machine is a real sshd on loopback (`sshd`), with a daemon and directories of its own.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::sshd::{self, Line, Sshd};
use crate::support::{
    AGENTCTL, Client, Daemon, Finished, Place, Reaped, finish, is_alive, kill, needs, skipped,
    wait_for,
};

/// The machine on which this daemon or place is, or nothing where there is no sshd.
pub fn machine(there: &Place) -> Option<Sshd> {
    let bin = Path::new(AGENTCTL).parent().unwrap().display();
    machine_with(there, &format!("{bin}:/usr/bin:/bin"))
}

fn machine_with(there: &Place, path: &str) -> Option<Sshd> {
    let programs = match sshd::programs(needs) {
        Ok(programs) => programs,
        Err(missing) => {
            skipped(missing);
            return None;
        }
    };
    let shown = |name: &str| there.path(name).display().to_string();
    let environment = [
        ("PATH", path.to_owned()),
        ("HOME", shown("home")),
        ("AGENTD_SOCKET", there.socket().display().to_string()),
        ("AGENTD_STATE_DIR", shown("state")),
        ("AGENTD_CONFIG", shown("config.toml")),
        ("AGENTD_ALIAS", shown("timmy.sock")),
    ];
    Some(Sshd::start(programs, &environment))
}

/// `agentctl` on this machine, whose `ssh` knows the other one.
pub fn here(place: &Place, mac: &Sshd, args: &[&str]) -> Command {
    let mut command = place.command(AGENTCTL);
    let path = format!("{}:{}", mac.bin().display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).args(args);
    command
}

/// This machine, and another one with a daemon.
pub struct World {
    pub daemon: Daemon,
    pub mac: Sshd,
    pub place: Place,
}

impl World {
    pub fn new() -> Option<Self> {
        let daemon = Daemon::start();
        let mac = machine(&daemon.place)?;
        let place = Place::new("");
        Some(Self { daemon, mac, place })
    }

    fn run(&self, args: &[&str]) -> Finished {
        finish(here(&self.place, &self.mac, args), b"")
    }

    fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}\n{}", self.mac.log());
        done.stdout
    }
}

#[test]
fn ssh_reaches_the_daemon_there_by_every_command() {
    let Some(world) = World::new() else { return };
    let literal = format!("{}@127.0.0.1:{}", world.mac.user, world.mac.port);
    assert_eq!(world.ok(&["--host", &literal, "send", "hi"]), "hi\n");
    let status = world.ok(&["status", "--host", "mac", "--json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["daemon"]["pid"], world.daemon.pid());

    let file = world.place.path("note.txt");
    std::fs::write(&file, "of this machine").unwrap();
    let words = [
        "--host",
        "mac",
        "send",
        "--session",
        "main",
        "--agent",
        "chaos",
        "--attach",
        file.to_str().unwrap(),
        "chaos:attached",
    ];
    let attached = world.ok(&words);
    assert!(attached.contains("text/plain note.txt"), "{attached}");
    world.ok(&["--host", "mac", "sessions", "new", "made"]);
    let sessions = world.ok(&["--host", "mac", "sessions", "--json"]);
    assert!(
        sessions.contains("\"main\"") && sessions.contains("\"made\""),
        "{sessions}"
    );
    let jobs = world.ok(&["--host", "mac", "dispatch", "one", "two"]);
    let jobs: Vec<&str> = jobs.split_whitespace().collect();
    let collected = world.ok(&["--host", "mac", "collect", jobs[0], jobs[1]]);
    let expected = format!(
        "{} done (timmy)\none\n{} done (timmy)\ntwo\n",
        jobs[0], jobs[1]
    );
    assert_eq!(collected, expected);
    let lines = world.ok(&["--host", "mac", "export"]);
    assert!(lines.lines().count() > 3, "{lines}");
    assert_eq!(
        world.ok(&["--host", "mac", "stop"]),
        "the daemon has stopped\n"
    );
    // Nothing of this was on this machine.
    assert!(!world.place.path("state").exists());
}

#[test]
fn ssh_without_a_daemon_there_runs_once_there() {
    let there = Place::new(&Daemon::config(""));
    let Some(mac) = machine(&there) else { return };
    let place = Place::new(&Daemon::config(""));
    let run = |args: &[&str]| finish(here(&place, &mac, args), b"");
    let sent = run(&["--host", "mac", "send", "hi", "--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let last: Value = serde_json::from_str(sent.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["text"], &last["served_by"]),
        (&json!("hi"), &json!("oneshot"))
    );
    let told = sent.stderr.matches("no daemon serves on `mac`");
    assert_eq!(told.count(), 1, "{sent:?}");
    assert!(there.path("state/agentd.db").exists() && !place.path("state").exists());
    for words in [
        &["--host", "mac", "status"][..],
        &["--host", "mac", "send", "--no-fallback", "hi"],
    ] {
        let refused = run(words);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        assert!(refused.stderr.contains("on `mac`: "), "{refused:?}");
    }
}

#[test]
fn ssh_tells_the_daemons_health_as_here() {
    let Some(world) = World::new() else { return };
    let told = |name: &str, code: i32| {
        let said = world.run(&["--host", "mac", "status", "--json"]);
        assert_eq!(
            said.code,
            Some(code),
            "{name}: {said:?}\n{}",
            world.mac.log()
        );
        let line: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(line["state"], name, "{said:?}");
        // A second for the daemon, and what ssh takes on a busy machine.
        assert!(said.took < Duration::from_secs(5), "{said:?}");
        let text = world.run(&["--host", "mac", "status"]);
        assert_eq!(text.code, Some(code), "{text:?}");
        text.stderr
    };
    assert_eq!(told("ready", 0), "");
    let pid = world.daemon.pid();
    kill(pid, Signal::SIGSTOP);
    let text = told("stopped", 71);
    kill(pid, Signal::SIGCONT);
    let expected = format!("error: on `mac`: the daemon (pid {pid}) was stopped");
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains(&format!("`kill -CONT {pid}`")), "{text}");
    let World { daemon, mac, place } = world;
    let there = daemon.kill();
    let told = || {
        let said = finish(
            here(&place, &mac, &["--host", "mac", "status", "--json"]),
            b"",
        );
        let line: Value = serde_json::from_str(&said.stdout).unwrap();
        (said.code, line["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(told(), (Some(69), "down".to_owned()));
    std::fs::remove_file(there.socket()).unwrap();
    let _mute = UnixListener::bind(there.socket()).unwrap();
    assert_eq!(told(), (Some(70), "hung".to_owned()));
    // Who can't be asked is not said to be down.
    mac.is(Line::Down);
    assert_eq!(told(), (Some(69), "unknown".to_owned()));
    let said = finish(here(&place, &mac, &["--host", "mac", "status"]), b"");
    assert!(!said.stderr.contains("is not running"), "{said:?}");
}

#[test]
fn ssh_tells_unreachable_from_lacking_agentctl() {
    let daemon = Daemon::start();
    let Some(mac) = machine_with(&daemon.place, "/usr/bin:/bin") else {
        return;
    };
    let place = Place::new("");
    let run = || finish(here(&place, &mac, &["--host", "mac", "send", "hi"]), b"");
    let missing = run();
    assert_eq!(missing.code, Some(69), "{missing:?}");
    assert!(
        missing.stderr.contains("`mac` can't run `agentctl`"),
        "{missing:?}"
    );
    assert!(
        missing.stderr.contains("hint: install it there"),
        "{missing:?}"
    );
    mac.is(Line::Down);
    let down = run();
    assert_eq!(down.code, Some(69), "{down:?}");
    assert!(
        down.stderr.contains("can't be reached by ssh: "),
        "{down:?}"
    );
    // Neither ran anything on this machine.
    assert!(!place.path("state").exists());
}

#[test]
fn ssh_accepts_no_unknown_or_changed_host_key() {
    let Some(world) = World::new() else { return };
    for spoil in [Sshd::change_known_key, Sshd::forget_known_key] {
        spoil(&world.mac);
        let known = std::fs::read_to_string(world.mac.path("known_hosts")).unwrap();
        let refused = world.run(&["--host", "mac", "send", "hi"]);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        assert!(
            refused.stderr.contains("Host key verification failed"),
            "{refused:?}"
        );
        assert!(
            refused.stderr.contains("hint: nothing was sent"),
            "{refused:?}"
        );
        let after = std::fs::read_to_string(world.mac.path("known_hosts")).unwrap();
        assert_eq!(known, after);
    }
    assert_eq!(world.daemon.status()["store"]["jobs"], 0);
}

#[test]
fn ssh_target_is_never_option_or_command() {
    let Some(world) = World::new() else { return };
    let pwned = world.place.path("pwned");
    let touch = format!("touch {}", pwned.display());
    for target in [
        format!("-oProxyCommand={touch}"),
        format!("-oProxyCommand={touch}@mac"),
        format!("me@-oProxyCommand={touch}"),
        format!("mac;{touch}"),
        format!("mac$({touch})"),
        format!("mac\n{touch}"),
    ] {
        let host = format!("--host={target}");
        for words in [
            vec![host.as_str(), "send", "hi"],
            vec!["forward", "--", &target],
            vec!["ssh-key", "--", &target],
            vec!["voice", "check", "--", &target],
            vec!["voice", "forward", &host],
        ] {
            let refused = world.run(&words);
            assert_eq!(refused.code, Some(2), "{words:?}: {refused:?}");
        }
    }
    // One that comes by the environment is a path, and no target.
    let mut command = here(&world.place, &world.mac, &["send", "--no-fallback", "hi"]);
    command.env("AGENTD_SOCKET", "ssh://mac");
    assert_eq!(finish(command, b"").code, Some(69));
    assert!(!pwned.exists());
    assert_eq!(world.mac.met(), 0);
}

/// The line of `ssh-key` for the key `voice`, in force there.
pub fn restrict(place: &Place, mac: &Sshd) -> String {
    restrict_to(place, mac, &[])
}

fn restrict_to(place: &Place, mac: &Sshd, rules: &[&str]) -> String {
    let key = mac.path("voice.pub");
    let key = key.to_str().unwrap();
    let mut words = vec!["ssh-key", "voice", "--key", key, "--program", AGENTCTL];
    words.extend(rules);
    let said = finish(here(place, mac, &words), b"");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.starts_with("restrict,command=\""), "{said:?}");
    mac.allow_voice(said.stdout.trim_end());
    said.stdout
}

#[test]
fn a_restricted_key_sends_and_does_nothing_else() {
    let Some(world) = World::new() else { return };
    restrict(&world.place, &world.mac);
    assert_eq!(world.ok(&["--host", "voice", "send", "hi"]), "hi\n");

    for words in [
        &["status"][..],
        &["jobs"],
        &["sessions"],
        &["history", "main"],
        &["abort"],
        &["dispatch", "a"],
        &["collect", "j1"],
        &["watch"],
        &["backup"],
        &["export"],
        &["drain"],
        &["stop"],
    ] {
        let mut all = vec!["--host", "voice"];
        all.extend(words);
        let refused = world.run(&all);
        assert_eq!(refused.code, Some(3), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains("is for `send` only"), "{refused:?}");
    }
    assert_eq!(world.daemon.status()["state"], "ready");

    // Whatever ssh asks for, it gets the relay and nothing else.
    let pwned = world.place.path("pwned");
    let touch = format!("touch {}", pwned.display());
    let ask = b"{\"type\":\"ping\",\"id\":1}\n{\"type\":\"daemon.stop\",\"id\":2}\n";
    for words in [
        vec!["voice", touch.as_str()],
        vec!["voice"],
        vec!["-tt", "voice", touch.as_str()],
        vec!["-s", "voice", "sftp"],
    ] {
        let said = finish(world.mac.ssh(&words), ask);
        if words[0] == "-tt" {
            assert!(
                said.stderr.contains("PTY allocation request failed"),
                "{said:?}"
            );
            assert_eq!(
                (said.code, said.stdout.as_str()),
                (Some(255), ""),
                "{said:?}"
            );
            continue;
        }
        assert!(
            said.stdout.contains("\"type\":\"pong\""),
            "{words:?}: {said:?}"
        );
        assert!(
            said.stdout.contains("\"code\":\"forbidden\""),
            "{words:?}: {said:?}"
        );
    }
    assert!(!pwned.exists());

    // Neither the daemon's socket nor any other is forwarded.
    let local = world.place.path("stolen.sock");
    let forwarding = format!(
        "{}:{}",
        local.display(),
        world.daemon.place.socket().display()
    );
    let mut held = world.mac.ssh(&["-N", "-L", &forwarding, "voice"]);
    let held = held
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _held = Reaped(held.spawn().unwrap());
    wait_for("ssh listens", || Client::try_connect(&local));
    let mut client = Client::connect(&local);
    client.write(b"{\"type\":\"ping\"}\n");
    assert_eq!(ended(&mut client), None);
    let forward = world.run(&["forward", "voice"]);
    assert_eq!(forward.code, Some(69), "{forward:?}");
}

/// What a send over the restricted key is answered with.
fn stolen_key_sends(world: &World, fields: Value) -> String {
    let mut line = json!({"type": "send", "id": 1, "text": "chaos:say hi", "stream": false});
    for (name, value) in fields.as_object().unwrap() {
        line[name] = value.clone();
    }
    let said = finish(world.mac.ssh(&["voice"]), format!("{line}\n").as_bytes());
    said.stdout
}

#[test]
fn restricted_key_reads_no_file() {
    let Some(world) = World::new() else { return };
    restrict(&world.place, &world.mac);
    let planted = world.place.path("planted.txt");
    std::fs::write(&planted, "sk-CANARY").unwrap();
    let said = stolen_key_sends(&world, json!({"attachments": [{"path": planted}]}));
    assert!(said.contains("\"code\":\"forbidden\""), "{said}");
    let said = stolen_key_sends(&world, json!({"cwd": world.place.dir.path()}));
    assert!(said.contains("\"code\":\"forbidden\""), "{said}");
    assert_eq!(world.daemon.status()["store"]["jobs"], 0);
    assert!(stolen_key_sends(&world, json!({})).contains("message_end"));
}

#[test]
fn restricted_key_reaches_its_agents_only() {
    let Some(world) = World::new() else { return };
    let root = world.place.path("root");
    std::fs::create_dir(&root).unwrap();
    let rules = ["--agents", "chaos", "--cwd-root", root.to_str().unwrap()];
    restrict_to(&world.place, &world.mac, &rules);
    let said = stolen_key_sends(&world, json!({"agent": "other"}));
    assert!(said.contains("expected `chaos`"), "{said}");
    let said = stolen_key_sends(&world, json!({"cwd": root}));
    assert!(said.contains("message_end"), "{said}");
}

/// The next line of a connection that somebody closes, however.
fn ended(client: &mut Client) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = [0; 256];
    match client.stream.read(&mut bytes) {
        Ok(0) => None,
        Ok(count) => Some(String::from_utf8_lossy(&bytes[..count]).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn ssh_uses_a_shared_connection_that_is_there() {
    let Some(world) = World::new() else { return };
    let mut master = world.mac.ssh(&["-M", "-N", "mac"]);
    let master = master
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _master = Reaped(master.spawn().unwrap());
    wait_for("the shared connection", || {
        let checked = finish(world.mac.ssh(&["-O", "check", "mac"]), b"");
        (checked.code == Some(0)).then_some(())
    });
    let before = world.mac.met();
    for _ in 0..3 {
        assert_eq!(world.ok(&["--host", "mac", "send", "hi"]), "hi\n");
    }
    assert_eq!((before, world.mac.met()), (1, 1));
}

/// A running `agentctl forward`, with the pid of its `ssh`.
struct Forwarding {
    agentctl: Reaped,
    local: PathBuf,
    ssh: u32,
}

impl Forwarding {
    fn start(world: &World) -> Self {
        let local = world.place.path("mac.sock");
        let words = ["forward", "mac", "--local", local.to_str().unwrap()];
        let mut command = here(&world.place, &world.mac, &words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut agentctl = Reaped(command.spawn().unwrap());
        let mut said = std::io::BufReader::new(agentctl.0.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert!(line.contains("until Ctrl-C"), "{line}");
        let ssh = children(agentctl.0.id()).into_iter().find(|pid| {
            let said = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&said).contains("mac.sock:")
        });
        Self {
            agentctl,
            local,
            ssh: ssh.expect("the ssh that forwards"),
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

#[test]
fn ssh_forwarded_socket_goes_with_ctrl_c() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(world) = World::new() else { return };
    let mut forwarding = Forwarding::start(&world);
    let mode = std::fs::metadata(&forwarding.local)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = Client::connect(&forwarding.local);
    client.send(r#"{"prompt":"by a socket"}"#);
    assert_eq!(client.last()["text"], "by a socket");
    assert_eq!(world.daemon.status()["store"]["jobs"], 1);
    let words = [
        "forward",
        "mac",
        "--local",
        forwarding.local.to_str().unwrap(),
    ];
    let again = world.run(&words);
    assert_eq!(again.code, Some(3), "{again:?}");
    kill(forwarding.agentctl.0.id(), Signal::SIGINT);
    let status = wait_for("it leaves", || forwarding.agentctl.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    assert!(!forwarding.local.exists());
    wait_for("ssh leaves", || (!is_alive(forwarding.ssh)).then_some(()));
}

#[test]
fn ssh_forwards_to_one_path_do_not_clash() {
    let Some(world) = World::new() else { return };
    // The first one's ssh begins to listen when the gate is open: until then the path is free.
    let (reached, gate) = (world.place.path("reached"), world.place.path("gate"));
    let ssh = world.mac.bin().join("ssh");
    let waits = format!(
        "case \"$*\" in *' -L '*) touch {}; until [ -e {} ]; do sleep 0.01; done;; esac\nexec",
        reached.display(),
        gate.display()
    );
    let script = std::fs::read_to_string(&ssh).unwrap();
    std::fs::write(&ssh, script.replacen("exec", &waits, 1)).unwrap();
    let local = world.place.path("mac.sock");
    let words = ["forward", "mac", "--local", local.to_str().unwrap()];
    let mut command = here(&world.place, &world.mac, &words);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let _first = Reaped(command.spawn().unwrap());
    wait_for("the first one's ssh", || reached.exists().then_some(()));
    let second = world.run(&words);
    assert_eq!(second.code, Some(3), "{second:?}");
    assert!(second.stderr.contains("forwards to"), "{second:?}");
    std::fs::write(gate, "").unwrap();
    wait_for("the first one listens", || Client::try_connect(&local));
    let mut client = Client::connect(&local);
    assert_eq!(client.request(r#"{"type":"ping"}"#)["type"], "pong");
}

#[test]
fn ssh_forward_that_is_killed_makes_room() {
    let Some(world) = World::new() else { return };
    let forwarding = Forwarding::start(&world);
    let Forwarding {
        mut agentctl,
        local,
        ssh,
    } = forwarding;
    agentctl.0.kill().unwrap();
    agentctl.0.wait().unwrap();
    wait_for("ssh leaves", || (!is_alive(ssh)).then_some(()));
    assert!(local.exists());
    let next = Forwarding::start(&world);
    let mut client = Client::connect(&next.local);
    assert_eq!(client.request(r#"{"type":"ping"}"#)["type"], "pong");
}

#[test]
fn ssh_ends_with_agentctl_and_its_turn_stays() {
    let Some(world) = World::new() else { return };
    let words = ["--host", "mac", "send", "--json", "a [[sleep 600000]]"];
    let mut command = here(&world.place, &world.mac, &words);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut agentctl = Reaped(command.spawn().unwrap());
    let job = world.daemon.until("a turn runs", |status| {
        (status["rpc"]["in_flight"] == 1).then_some("j1")
    });
    let ssh = children(agentctl.0.id());
    agentctl.0.kill().unwrap();
    agentctl.0.wait().unwrap();
    assert_eq!(world.daemon.status()["rpc"]["in_flight"], 1);
    world.ok(&["--host", "mac", "abort", job]);
    for pid in ssh {
        wait_for("ssh leaves", || (!is_alive(pid)).then_some(()));
    }
}
