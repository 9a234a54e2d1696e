//! What goes wrong on the way: kills, full disks, two at once, old and broken files, a silent or a
//! wrong machine.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::ssh::{World, here};
use crate::sshd::Line;
use crate::support::{Reaped, finish, needs, skipped, wait_for};

#[test]
fn voice_flushes_at_once_deliver_once_in_order() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Down);
    let texts: Vec<String> = (0..12).map(|number| format!("number {number}")).collect();
    for text in &texts {
        world.queue(text);
    }
    world.mac.is(Line::Up);
    let start = |words: &[&str], input: &str| {
        let mut command = world.voice(words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut running = Reaped(command.spawn().unwrap());
        let mut stdin = running.0.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
        running
    };
    let mut running = vec![
        start(&["flush"], ""),
        start(&["flush"], ""),
        start(&["forward", "--host", "mac", "--no-prefix"], "last"),
        start(&["flush"], ""),
    ];
    for running in &mut running {
        let status = wait_for("it ends", || running.0.try_wait().unwrap());
        assert_eq!(status.code(), Some(0));
    }
    let told = world.told();
    assert_eq!(told[..12], texts);
    assert_eq!((told.len(), told[12].as_str()), (13, "last"));
    assert!(world.files("new").is_empty());
}

#[test]
fn voice_kills_neither_lose_nor_repeat() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Silent);
    let mut command = world.voice(&["forward", "--host", "mac", "--no-prefix"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = Reaped(command.spawn().unwrap());
    let mut input = running.0.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"survives").unwrap();
    drop(input);
    let kept = wait_for("it is kept", || world.files("new").pop());
    wait_for("it calls", || (world.mac.met() == 1).then_some(()));
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let copy = std::fs::read(&kept).unwrap();

    world.mac.is(Line::Up);
    assert_eq!(world.flush().stdout, "mac: 1 delivered\n");
    assert_eq!(world.told(), ["survives"]);
    // As if it had been killed before the file went: there it is again.
    std::fs::write(&kept, copy).unwrap();
    assert_eq!(world.flush().stdout, "mac: 1 delivered\n");
    assert_eq!(world.told(), ["survives"]);
    // What a killed writer leaves is no utterance.
    std::fs::write(world.spool().join("tmp/half"), "{\"to\":\"ssh://m").unwrap();
    assert_eq!(world.flush().stdout, "");
    assert_eq!(world.told().len(), 1);
}

#[test]
fn voice_sends_though_its_spool_takes_nothing() {
    let Some(world) = World::new() else { return };
    assert_eq!(world.say("first", &["--no-prefix"]).code, Some(0));
    for number in 0..1000 {
        std::fs::write(world.spool().join(format!("new/{number:020}")), "").unwrap();
    }
    let said = world.say("full", &["--no-prefix"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "full\n"),
        "{said:?}"
    );
    assert!(
        said.stderr.contains("has 1000 utterances already"),
        "{said:?}"
    );
    world.mac.is(Line::Down);
    let lost = world.say("full and down", &["--no-prefix", "--utterance", "u"]);
    assert_eq!(lost.code, Some(69), "{lost:?}");
    assert!(lost.stderr.contains("neither sent nor kept"), "{lost:?}");
    assert!(lost.stderr.contains("--utterance u"), "{lost:?}");

    // A directory that is none.
    world.mac.is(Line::Up);
    std::fs::remove_dir_all(world.spool().join("new")).unwrap();
    std::fs::write(world.spool().join("new"), "").unwrap();
    let said = world.say("broken", &["--no-prefix"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "broken\n"),
        "{said:?}"
    );
    let flushed = world.flush();
    assert_eq!(flushed.code, Some(3), "{flushed:?}");
    assert_eq!(world.told(), ["first", "full", "broken"]);
}

#[test]
fn voice_on_a_full_disk_loses_nothing_silently() {
    let Some(unshare) = needs("unshare") else {
        return;
    };
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Down);
    world.queue("kept");
    let said = |how: &str| {
        // The spool on a file system of its own, with what it had, and then full.
        let script = "cp -r state/spool kept && mount -t tmpfs -o size=64k none state/spool && cp -r kept/. state/spool && { dd if=/dev/zero of=state/spool/full bs=1k 2>/dev/null; true; } && \"$0\" voice forward --host mac --no-prefix; code=$?; ls state/spool/new | wc -l; exit $code";
        let mut command = here(&world.place, &world.mac, &[]);
        let path = command.get_envs().find(|(name, _)| *name == "PATH");
        let path = path.and_then(|(_, path)| path).unwrap().to_owned();
        command = world.place.command(&unshare);
        command.env("PATH", path).args([how, "sh", "-c"]);
        command
            .arg(format!("cd .. && {script}"))
            .arg(crate::support::AGENTCTL);
        finish(command, b"the last word")
    };
    let Some(done) = ["-m", "-Urm"]
        .into_iter()
        .map(said)
        .find(|done| !done.stderr.contains("unshare") && !done.stderr.contains("mount"))
    else {
        skipped("mounts of its own: root, or user namespaces");
        return;
    };
    assert_eq!(done.code, Some(69), "{done:?}");
    assert!(done.stderr.contains("neither sent nor kept"), "{done:?}");
    assert!(done.stderr.contains("No space left"), "{done:?}");
    assert_eq!(done.stdout.trim(), "1", "{done:?}");
}

#[test]
fn voice_spool_puts_aside_the_bad_and_old() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Down);
    world.queue("ancient");
    let refused = world.say("refused", &["--no-prefix", "--agent", "nobody"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    world.queue("fresh");
    let ancient = world.files("new").remove(0);
    let mut text: Value = serde_json::from_slice(&std::fs::read(&ancient).unwrap()).unwrap();
    text["said_at"] = json!(text["said_at"].as_i64().unwrap() - 13 * 3_600_000);
    // Said before the machine was started: only the wall clock knows.
    text["moment"]["boot"] = json!("another");
    std::fs::write(&ancient, text.to_string()).unwrap();
    let unreadable = world.spool().join(format!("new/{:020}", 1));
    std::fs::write(unreadable, "half of an utter").unwrap();

    world.mac.is(Line::Up);
    let flushed = world.flush();
    assert_eq!(
        (flushed.code, flushed.stdout.as_str()),
        (Some(0), "mac: 1 delivered, 3 put aside\n"),
        "{flushed:?}"
    );
    for told in ["780 min old", "no agent `nobody`", "can't be read"] {
        assert!(flushed.stderr.contains(told), "{told}: {flushed:?}");
    }
    assert_eq!(world.told(), ["fresh"]);
    assert_eq!((world.files("new").len(), world.files("old").len()), (0, 3));
}

#[test]
fn voice_forgets_a_machine_that_is_gone() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Down);
    world.queue("lost");
    let doctor = finish(here(&world.place, &world.mac, &["doctor"]), b"");
    assert!(
        doctor.stdout.contains("`agentctl voice forget mac`"),
        "{doctor:?}"
    );
    let forgotten = finish(world.voice(&["forget", "mac"]), b"");
    assert_eq!(
        (forgotten.code, forgotten.stdout.as_str()),
        (Some(0), "mac is forgotten: 1 utterance put aside\n"),
        "{forgotten:?}"
    );
    assert_eq!((world.files("new").len(), world.files("old").len()), (0, 1));
    let doctor = finish(here(&world.place, &world.mac, &["doctor", "--full"]), b"");
    assert!(!doctor.stdout.contains("mac"), "{doctor:?}");
    world.mac.is(Line::Up);
    world.flush();
    assert!(world.told().is_empty());
}

#[test]
fn voice_flood_fills_one_queue_and_waits_here() {
    const SAID: usize = 300;
    let Some(world) = World::new() else { return };
    let slow = world.say("a [[sleep 600000]]", &["--no-prefix", "--deadline", "2"]);
    assert_eq!(slow.stdout, "accepted, still working: j1\n", "{slow:?}");
    world.mac.is(Line::Down);
    world.queue("number 0");
    world.mac.is(Line::Up);
    let first = world.files("new").remove(0);
    let mut one: Value = serde_json::from_slice(&std::fs::read(&first).unwrap()).unwrap();
    let number: u64 = first
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    for next in 1..SAID as u64 {
        one["id"] = json!(format!("u-{next}"));
        one["send"]["text"] = json!(format!("number {next}"));
        one["send"]["idempotency_key"] = json!(format!("key-{next}"));
        let name = format!("{:020}", number + next);
        std::fs::write(world.spool().join("new").join(name), one.to_string()).unwrap();
    }
    // 256 wait in a session at most.
    let flushed = world.flush();
    assert_eq!(flushed.code, Some(69), "{flushed:?}");
    assert_eq!(flushed.stdout, "mac: 256 delivered, 44 waiting\n");
    assert!(flushed.stderr.contains("256"), "{flushed:?}");
    assert_eq!(world.files("new").len(), SAID - 256);
    // One more is kept, and is behind them.
    let more = world.say("one more", &["--no-prefix"]);
    assert_eq!(
        (more.code, more.stdout.as_str()),
        (Some(0), "queued on disk, not delivered yet\n"),
        "{more:?}"
    );
    world.daemon.agentctl(&["abort", "j1"]);
    wait_for("all are delivered", || {
        (world.flush().code == Some(0)).then_some(())
    });
    let told = world.told();
    let expected = (0..SAID).map(|number| format!("number {number}"));
    let expected: Vec<String> = expected.chain(["one more".to_owned()]).collect();
    assert_eq!(told[1..], expected);
    assert!(world.files("new").is_empty() && world.files("old").is_empty());
}

#[test]
fn voice_waits_when_ssh_hangs_past_its_deadline() {
    let Some(world) = World::new() else { return };
    world.mac.is(Line::Silent);
    let said = world.say("patience", &["--no-prefix", "--deadline", "1"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "queued on disk, not delivered yet\n"),
        "{said:?}"
    );
    assert!(said.took < Duration::from_secs(8), "{said:?}");
    assert!(said.stderr.contains("nobody answered in time"), "{said:?}");
    assert_eq!(world.files("new").len(), 1);
    let key = world.place.path("state/spool/device");
    assert_eq!(std::fs::read_to_string(key).unwrap().len(), 32);
}

#[test]
fn voice_sends_nothing_to_a_wrong_host_key() {
    let Some(world) = World::new() else { return };
    world.mac.change_known_key();
    let said = world.say("secret words", &["--no-prefix"]);
    assert_eq!(
        said.stdout, "queued on disk, not delivered yet\n",
        "{said:?}"
    );
    assert!(
        said.stderr.contains("Host key verification failed"),
        "{said:?}"
    );
    let longest = said.stderr.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(270), "{said:?}");
    assert!(world.told().is_empty());
    assert_eq!(world.files("new").len(), 1);
}
