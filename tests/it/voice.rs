//! Speech on its way to a session of another machine: what an agent gets, what waits when that
//! machine is down, and that each utterance is one turn whatever dies in between.
//!
//! The other machine is a real sshd on loopback (`sshd`), with a daemon of its own.

mod faults;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::ssh::{World, here, machine, restrict};
use crate::sshd::Line;
use crate::support::{Daemon, Finished, Place, Reaped, finish};

/// Said by the product, checked here word by word.
fn prefix() -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let machine = machine.trim();
    format!(
        "User talked via voice recognition on {machine} - repeat prompt first + remember some words might be incorrectly transcribed.\n\n"
    )
}

impl World {
    fn voice(&self, words: &[&str]) -> Command {
        let mut all = vec!["voice"];
        all.extend(words);
        here(&self.place, &self.mac, &all)
    }

    fn say(&self, text: &str, more: &[&str]) -> Finished {
        let mut words = vec!["forward", "--host", "mac"];
        words.extend(more);
        finish(self.voice(&words), text.as_bytes())
    }

    /// Said while nobody is there.
    fn queue(&self, text: &str) {
        let said = self.say(text, &["--no-prefix"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.stdout, "queued on disk, not delivered yet\n");
    }

    fn flush(&self) -> Finished {
        finish(self.voice(&["flush"]), b"")
    }

    fn spool(&self) -> PathBuf {
        self.place.path("state/spool")
    }

    fn files(&self, dir: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.spool().join(dir));
        let mut files: Vec<PathBuf> = entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }

    /// What the session `main` there was told, in order.
    fn told(&self) -> Vec<String> {
        told(&self.daemon)
    }
}

fn told(daemon: &Daemon) -> Vec<String> {
    let mut told = Vec::new();
    let mut after = json!(0);
    loop {
        let ask = json!({"type": "session.history", "session": "main", "after": after});
        let page = daemon.ask(&ask.to_string()).remove(0);
        let turns = page["turns"].as_array().cloned().unwrap_or_default();
        told.extend(
            turns
                .iter()
                .map(|turn| turn["text"].as_str().unwrap().to_owned()),
        );
        after = page["next"].clone();
        if after.is_null() {
            return told;
        }
    }
}

#[test]
fn voice_turn_is_of_main_and_says_so() {
    let Some(world) = World::new() else { return };
    let said = world.say("what is on today\n", &[]);
    let text = format!("{}what is on today", prefix());
    assert_eq!(said.code, Some(0), "{said:?}\n{}", world.mac.log());
    assert_eq!(said.stdout, format!("{text}\n"));
    let plain = world.say("what is on today\n", &["--no-prefix", "--json"]);
    let last: Value = serde_json::from_str(&plain.stdout).unwrap();
    assert_eq!(
        (&last["session"], &last["text"]),
        (&json!("main"), &json!("what is on today"))
    );
    assert_eq!(world.told(), [text, "what is on today".to_owned()]);
    assert!(world.files("new").is_empty() && world.files("tmp").is_empty());
    // The same on this machine, without another one.
    let ours = Daemon::start();
    let mut command = ours.place.command(crate::support::AGENTCTL);
    command.args(["voice", "forward", "--no-prefix"]);
    let said = finish(command, b"here");
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "here\n"),
        "{}",
        said.stderr
    );
    assert_eq!(told(&ours), ["here"]);
}

#[test]
fn a_transcript_is_text_and_executes_nothing_anywhere() {
    let Some(world) = World::new() else { return };
    let pwned = world.place.path("pwned");
    let touch = format!("touch {}", pwned.display());
    let transcripts = [
        format!("-oProxyCommand={touch}"),
        format!("--session other --host x; {touch}"),
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("'; {touch}; '"),
        format!("\"; {touch}; \""),
        format!("a\n{touch}\nb"),
        format!("${{IFS}}{touch} | sh # \\ %s %n {{prompt}} ${{text}} agentctl"),
        "{\"type\":\"daemon.stop\"}".to_owned(),
        "a\n{\"type\":\"daemon.stop\"}\n".to_owned(),
        "ü 漢 \u{202e}x".to_owned(),
    ];
    for transcript in &transcripts {
        let said = world.say(transcript, &["--no-prefix"]);
        assert_eq!(said.code, Some(0), "{transcript}: {said:?}");
    }
    // By way of the disk, too.
    world.mac.is(Line::Down);
    for transcript in &transcripts {
        world.queue(transcript);
    }
    world.mac.is(Line::Up);
    let flushed = world.flush();
    assert_eq!(
        flushed.stdout,
        format!("mac: {} delivered\n", transcripts.len())
    );
    let twice: Vec<&str> = transcripts
        .iter()
        .chain(&transcripts)
        .map(|text| text.trim())
        .collect();
    assert_eq!(world.told(), twice);
    assert!(!pwned.exists());
    assert_eq!(world.daemon.status()["state"], "ready");
}

#[test]
fn voice_refuses_and_forgets_what_is_no_transcript() {
    let Some(world) = World::new() else { return };
    let long = vec![b'a'; 8 * 1024 + 1];
    for wrong in [&b""[..], b" \n", b"\x1b\x00", b"a\xff", &long] {
        let said = finish(world.voice(&["forward", "--host", "mac"]), wrong);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("nothing was sent"), "{said:?}");
    }
    let said = world.say("a\x1b]0;x\x07b", &["--no-prefix"]);
    assert_eq!(said.stdout, "a]0;xb\n", "{said:?}");
    assert_eq!((world.mac.met(), world.told().len()), (1, 1));
}

#[test]
fn voice_words_are_in_no_processs_arguments() {
    let Some(world) = World::new() else { return };
    let mark = "speech-9f3c1d";
    let mut command = world.voice(&["forward", "--host", "mac", "--deadline", "20"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = Reaped(command.spawn().unwrap());
    let mut input = running.0.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, format!("{mark} [[sleep 600000]]").as_bytes()).unwrap();
    drop(input);
    world.daemon.until("the turn runs", |status| {
        (status["rpc"]["in_flight"] == 1).then_some(())
    });
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let said = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        seen += usize::from(said.contains("agentctl\0stdio") || said.contains("agentctl stdio"));
        assert!(!said.contains(mark), "{said}");
    }
    assert!(seen > 0, "the relay there was not seen");
}

#[test]
fn voice_has_an_ssh_key_of_its_own() {
    let Some(world) = World::new() else { return };
    let only = std::fs::read(world.mac.path("voice.pub")).unwrap();
    std::fs::write(world.mac.path("authorized_keys"), only).unwrap();
    let refused = world.say("one", &["--no-prefix"]);
    assert_eq!(refused.stdout, "queued on disk, not delivered yet\n");
    let mut command = world.voice(&["forward", "--host", "mac", "--no-prefix"]);
    command.env("AGENTD_SSH_KEY", world.mac.path("voice"));
    let said = finish(command, b"two");
    assert_eq!(said.stdout, "two\n", "{said:?}");
    assert_eq!(world.told(), ["one", "two"]);
    // One that isn't there is not passed over for others.
    for wrong in ["voice", "/nowhere/key"] {
        let mut command = here(
            &world.place,
            &world.mac,
            &["--host", "mac", "send", "three"],
        );
        command.env("AGENTD_SSH_KEY", wrong);
        let refused = finish(command, b"");
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.stderr.contains("AGENTD_SSH_KEY"), "{refused:?}");
    }
}

#[test]
fn voice_for_a_machine_down_comes_once_later() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Down);
    for text in ["one", "two", "three"] {
        world.queue(text);
    }
    assert_eq!(world.files("new").len(), 3);
    let down = world.flush();
    assert_eq!(
        (down.code, down.stdout.as_str()),
        (Some(69), "mac: 0 delivered, 3 waiting\n")
    );
    assert!(down.stderr.contains("can't be reached by ssh"), "{down:?}");

    world.mac.is(Line::Up);
    // What waits goes before what comes next.
    let said = world.say("four", &["--no-prefix"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "four\n"),
        "{said:?}"
    );
    assert_eq!(world.told(), ["one", "two", "three", "four"]);
    let nothing = world.flush();
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert_eq!(world.told().len(), 4);

    world.mac.is(Line::Down);
    world.queue("five");
    world.mac.is(Line::Up);
    assert_eq!(world.flush().stdout, "mac: 1 delivered\n");
    assert_eq!(world.told().last().unwrap(), "five");
    assert!(world.files("new").is_empty() && world.files("old").is_empty());
}

#[test]
fn voice_to_others_passes_a_machine_down() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Down);
    world.queue("for later");
    let ours = Daemon::start();
    let mut command = world.voice(&["forward", "--no-prefix"]);
    command.env("AGENTD_SOCKET", ours.place.socket());
    let said = finish(command, b"for here");
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "for here\n"),
        "{said:?}"
    );
    assert_eq!(world.files("new").len(), 1);
}

#[test]
fn voice_utterance_is_one_turn_for_one_name() {
    let Some(world) = World::new() else { return };
    let said = |text: &str| world.say(text, &["--no-prefix", "--json", "--utterance", "u-1"]);
    let job = |said: &Finished| {
        let line: Value = serde_json::from_str(&said.stdout).unwrap();
        (line["job"].clone(), line["replayed"].clone())
    };
    let (first, _) = job(&said("a"));
    assert_eq!(job(&said("a")), (first, json!(true)));
    let other = said("b");
    assert_eq!(other.code, Some(3), "{other:?}");
    assert!(other.stdout.contains("idempotency-conflict"), "{other:?}");
    assert_eq!(world.told(), ["a"]);
    assert!(world.files("new").is_empty());
}

#[test]
fn voice_answer_that_takes_longer_is_accepted() {
    let Some(world) = World::new() else { return };
    let slow = "a [[sleep 600000]]";
    let said = world.say(slow, &["--no-prefix", "--deadline", "2"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "accepted, still working: j1\n"),
        "{said:?}"
    );
    assert!(
        said.stderr.contains("`agentctl --host mac collect j1`"),
        "{said:?}"
    );
    assert!(world.files("new").is_empty());
    // It goes on there, and the next one is behind it.
    assert_eq!(world.daemon.status()["rpc"]["in_flight"], 1);
    let next = world.say("next", &["--no-prefix", "--deadline", "2"]);
    assert_eq!(next.stdout, "accepted, still working: j2\n", "{next:?}");
    assert_eq!(world.told(), [slow, "next"]);
}

#[test]
fn a_check_says_how_far_it_got() {
    let Some(world) = World::new() else { return };
    let check = |host: &str| {
        let said = finish(world.voice(&["check", host, "--json"]), b"");
        let line: Value = serde_json::from_str(&said.stdout).unwrap();
        (
            said.code,
            line["ssh"].clone(),
            line["daemon"].clone(),
            line["error"].to_string(),
        )
    };
    let (code, ssh, daemon, _) = check("mac");
    assert_eq!((code, ssh, daemon), (Some(0), json!(true), json!(true)));
    let text = finish(world.voice(&["check", "mac"]), b"").stdout;
    assert!(
        text.contains("ssh     ok, ") && text.contains("daemon  ok, agentd"),
        "{text}"
    );

    world.mac.is(Line::Down);
    let (code, ssh, daemon, error) = check("mac");
    assert_eq!((code, ssh, daemon), (Some(69), json!(false), json!(false)));
    assert!(error.contains("can't be reached by ssh"), "{error}");
    world.mac.is(Line::Up);
    let World { daemon, mac, place } = world;
    let _there = daemon.kill();
    let said = finish(here(&place, &mac, &["voice", "check", "mac"]), b"");
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(
        said.stdout.contains("ssh     ok\ndaemon  failed: on `mac`"),
        "{said:?}"
    );
}

#[test]
fn voice_doctor_tells_what_waits_and_reachable_machines() {
    let Some(world) = World::new() else { return };
    let doctor = |more: &[&str]| -> Vec<String> {
        let mut words = vec!["doctor", "--json"];
        words.extend(more);
        let said = finish(here(&world.place, &world.mac, &words), b"");
        let told: Value = serde_json::from_str(&said.stdout).unwrap();
        let findings = told["findings"].as_array().unwrap().iter();
        let voice = findings.filter(|finding| finding["check"] == "voice");
        let text = |finding: &Value| {
            let (verdict, found) = (&finding["verdict"], &finding["found"]);
            format!("{}: {}", verdict.as_str().unwrap(), found.as_str().unwrap())
        };
        voice.map(text).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(doctor(&[]), none);
    assert!(!world.spool().exists(), "a look makes nothing");
    world.mac.is(Line::Down);
    world.queue("for later");
    assert_eq!(
        doctor(&[]),
        ["warning: waiting for `mac`: 1, the oldest for 0 min"]
    );
    let full = doctor(&["--full"]);
    assert_eq!(full.len(), 2, "{full:?}");
    assert!(
        full[1].starts_with("warning: `mac` can't be reached by ssh"),
        "{full:?}"
    );
    world.mac.is(Line::Up);
    let full = doctor(&["--full"]);
    assert!(full[1].starts_with("ok: `mac` answers in "), "{full:?}");
    assert_eq!(world.files("new").len(), 1, "a look delivers nothing");
    world.flush();
    assert_eq!(doctor(&[]), ["ok: nothing that was said waits"]);
    assert_eq!(doctor(&["--full"]).len(), 2);
}

#[test]
fn a_restart_of_what_serves_there_is_tagged() {
    let Some(world) = World::new() else { return };
    let tags = |said: &Finished| said.stderr.matches("[rpc-restart]").count();
    assert_eq!(tags(&world.say("one", &["--no-prefix"])), 0);
    assert_eq!(tags(&world.say("two", &["--no-prefix"])), 0);
    // A worker that dies.
    let died = world.say(
        "chaos:exit 9",
        &["--no-prefix", "--agent", "chaos", "--session", "c"],
    );
    assert_eq!((died.code, tags(&died)), (Some(1), 1), "{died:?}");
    let World { daemon, mac, place } = world;
    let daemon = daemon.kill().start();
    let world = World { daemon, mac, place };
    let said = world.say("three", &["--no-prefix"]);
    assert_eq!((said.code, tags(&said)), (Some(0), 1), "{said:?}");
    assert!(
        said.stderr.contains("`mac`: the daemon was restarted"),
        "{said:?}"
    );
    assert_eq!(tags(&world.say("four", &["--no-prefix"])), 0);
}

#[test]
fn voice_without_a_daemon_runs_each_waiting_turn() {
    let there = Place::new(&Daemon::config(""));
    let Some(mac) = machine(&there) else { return };
    let place = Place::new("");
    let run = |words: &[&str], input: &[u8]| finish(here(&place, &mac, words), input);
    mac.is(Line::Down);
    for text in ["one", "two"] {
        let words = ["voice", "forward", "--host", "mac", "--no-prefix"];
        assert_eq!(run(&words, text.as_bytes()).code, Some(0));
    }
    mac.is(Line::Up);
    let flushed = run(&["voice", "flush"], b"");
    assert_eq!(
        (flushed.code, flushed.stdout.as_str()),
        (Some(0), "mac: 2 delivered\n"),
        "{flushed:?}"
    );
    let daemon = there.start();
    let lines = daemon.ask(r#"{"type":"jobs","session":"main"}"#).remove(0);
    let states: BTreeSet<&str> = lines["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, BTreeSet::from(["completed"]), "{lines}");
    assert_eq!(told(&daemon), ["one", "two"]);
}

#[test]
fn a_restricted_key_is_all_that_speech_needs() {
    let Some(world) = World::new() else { return };
    restrict(&world.place, &world.mac);
    let words = ["forward", "--host", "voice", "--no-prefix"];
    world.mac.is(Line::Down);
    assert_eq!(finish(world.voice(&words), b"one").code, Some(0));
    world.mac.is(Line::Up);
    let said = finish(world.voice(&words), b"two");
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "two\n"),
        "{said:?}"
    );
    // With nothing in front of it, it is asked before it is known who answers.
    let said = finish(world.voice(&words), b"three");
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "three\n"),
        "{said:?}"
    );
    assert_eq!(world.told(), ["one", "two", "three"]);
    let checked = finish(world.voice(&["check", "voice"]), b"");
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn voice_failures_without_a_daemon_are_put_aside() {
    let there = Place::new(&Daemon::config(""));
    let Some(mac) = machine(&there) else { return };
    let place = Place::new("");
    let world = |words: &[&str], said: &str| finish(here(&place, &mac, words), said.as_bytes());
    mac.is(Line::Down);
    let forward = ["voice", "forward", "--host", "mac", "--no-prefix"];
    let words = [&forward[..], &["--agent", "chaos"]].concat();
    assert_eq!(world(&words, "chaos:exit 3").code, Some(0));
    mac.is(Line::Up);
    let flushed = world(&["voice", "flush"], "");
    assert_eq!(flushed.code, Some(0), "{flushed:?}\n{}", mac.log());
    assert_eq!(flushed.stdout, "mac: 0 delivered, 1 put aside\n");
    assert!(flushed.stderr.contains("failed, and it is put aside"));
    let kept = std::fs::read_dir(place.path("state/spool/old")).unwrap();
    assert_eq!(kept.count(), 1);
}

#[test]
fn voice_speaking_slowly_leaves_the_answer_its_time() {
    let ours = Daemon::start();
    let script = "(sleep 2; echo slow) | agentctl voice forward --no-prefix --deadline 1.9";
    let mut command = ours.place.command("sh");
    let bin = std::path::Path::new(crate::support::AGENTCTL)
        .parent()
        .unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    command.args(["-c", script]).env("PATH", path);
    let said = finish(command, b"");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stdout.contains("queued"), "{said:?}");
    assert_eq!(told(&ours), ["slow"]);
}

#[test]
fn voice_said_too_often_is_not_sent() {
    let Some(world) = World::new() else { return };
    let say = |id: &str| {
        let more = ["--no-prefix", "--per-minute", "2", "--utterance", id];
        world.say(id, &more)
    };
    for id in ["one", "two", "one"] {
        let said = say(id);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let refused = say("three");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("within a minute"), "{refused:?}");
    assert_eq!(world.told(), ["one", "two"]);
    assert!(world.files("new").is_empty());
}
