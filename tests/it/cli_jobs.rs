//! Work that outlives its connection, from the command line: `dispatch`, `collect`, sessions by
//! themselves, and what they say when something goes wrong.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::supervision::{chaos_in, with_marks};
use crate::support::{AGENTCTL, Daemon, Finished, Place, Reaped, finish, kill, lines};

/// `agentctl` with something on its standard input.
pub fn piped(place: &Place, args: &[&str], input: &str) -> Finished {
    let mut command = place.command(AGENTCTL);
    command.args(args);
    finish(command, input.as_bytes())
}

/// The jobs that a `dispatch` printed.
fn jobs_of(finished: &Finished) -> Vec<String> {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished.stdout.lines().map(str::to_owned).collect()
}

fn answer(finished: &Finished) -> Value {
    let line = finished.stdout.lines().last();
    let line = line.unwrap_or_else(|| panic!("nothing was printed: {finished:?}"));
    serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {finished:?}"))
}

fn with_jobs<'a>(before: &[&'a str], jobs: &'a [String]) -> Vec<&'a str> {
    let jobs = jobs.iter().map(String::as_str);
    before.iter().copied().chain(jobs).collect()
}

/// What `collect` prints of a job.
fn ended_well(job: &str, agent: &str, text: &str) -> String {
    format!("{job} done ({agent})\n{text}\n")
}

#[test]
fn dispatch_collects_results_in_the_order_asked() {
    let daemon = Daemon::start();
    let jobs = jobs_of(&daemon.agentctl(&["dispatch", "--agent", "chaos", "one", "two"]));
    assert_eq!(jobs.len(), 2);
    let reversed = [jobs[1].clone(), jobs[0].clone()];
    let collected = daemon.agentctl(&with_jobs(&["collect"], &reversed));
    assert_eq!(
        (collected.code, collected.stdout),
        (
            Some(0),
            ended_well(&jobs[1], "chaos", "two") + &ended_well(&jobs[0], "chaos", "one")
        )
    );
    let both = daemon.agentctl(&["dispatch", "--agent", "chaos", "--collect", "three"]);
    assert!(
        both.code == Some(0) && both.stdout.ends_with(" done (chaos)\nthree\n"),
        "{both:?}"
    );
    let label = ["--agent", "chaos", "--label", "run=7"];
    for words in [&["four", "five"][..], &["six"]] {
        jobs_of(&daemon.agentctl(&[&["dispatch"][..], &label, words].concat()));
    }
    let all = daemon.agentctl(&["collect", "--label", "run=7"]);
    assert_eq!(
        (all.code, all.stdout.as_str()),
        (
            Some(0),
            "j4 done (chaos)\nfour\nj5 done (chaos)\nfive\nj6 done (chaos)\nsix\n"
        )
    );
    let none = daemon.agentctl(&["collect", "--label", "run=8"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    // The words are sent, and whoever meant the file is told how.
    let file = daemon.path("prompts.txt");
    std::fs::write(&file, "a\nb\n").unwrap();
    let file = file.to_str().unwrap();
    let sent = daemon.agentctl(&["dispatch", "--agent", "chaos", file]);
    assert_eq!(jobs_of(&sent), ["j7"]);
    let hint = format!("`agentctl dispatch < {file}` sends each of its lines");
    assert!(sent.stderr.contains(&hint), "{sent:?}");
}

#[test]
fn lines_of_standard_input_are_prompts_or_sends() {
    let daemon = Daemon::start();
    let input = "plain prompt\n\n{\"prompt\":\"an object\",\"agent\":\"timmy\",\"labels\":{\"part\":\"2\"}}\n";
    let dispatched = piped(
        &daemon.place,
        &["dispatch", "--agent", "chaos", "--collect", "--json"],
        input,
    );
    let results = &answer(&dispatched)["results"];
    let shown = |item: usize| (&results[item]["text"], &results[item]["agent"]);
    assert_eq!(shown(0), (&json!("plain prompt"), &json!("chaos")));
    assert_eq!(shown(1), (&json!("an object"), &json!("timmy")));
    // Which one is which is told.
    assert_eq!(results[1]["preview"], "an object");
    assert_eq!(results[1]["labels"], json!({"part": "2"}));

    let wrong = piped(&daemon.place, &["dispatch"], "fine\n{\"promt\":\"a\"}\n");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(
        wrong.stderr.contains("line 2") && wrong.stderr.contains("`prompt`"),
        "{wrong:?}"
    );
    assert_eq!(piped(&daemon.place, &["dispatch"], "\n").code, Some(2));
}

#[test]
fn dispatch_that_was_killed_is_collected_or_run() {
    let daemon = with_marks("").start();
    let gate = daemon.path("gate");
    let half = format!(
        "chaos:ledger;wait-file {};say half;emit 2000;tool rw;wait-file /nowhere",
        gate.display()
    );
    let input = [
        json!({"text": "chaos:ledger;say finished", "session": "a"}),
        json!({"text": half, "session": "b"}),
        json!({"text": "chaos:ledger;say behind b", "session": "b"}),
        json!({"text": "chaos:ledger;say anyway", "session": "b", "after_failure": "run"}),
        json!({"text": "chaos:ledger;say later", "session": "c", "start_at": "2000-01-01T00:00:00Z"}),
    ]
    .map(|line| format!("{line}\n"))
    .concat();
    let args = ["dispatch", "--agent", "chaos", "--key-prefix", "run-7"];
    let jobs = jobs_of(&piped(&daemon.place, &args, &input));
    assert_eq!(jobs.len(), 5);
    let done = daemon.agentctl(&["collect", &jobs[0]]);
    assert_eq!(done.stdout, ended_well(&jobs[0], "chaos", "finished"));
    let mut watching = daemon.connect();
    watching.send(&json!({"type": "subscribe", "jobs": [jobs[1]]}).to_string());
    watching.until("live");
    std::fs::write(&gate, "").unwrap();
    // What was told is stored, and with it the text before it.
    watching.until("tool_end");
    let daemon = daemon.kill().start();

    // The same keys again are the same jobs.
    let again = piped(&daemon.place, &[&args[..], &["--json"]].concat(), &input);
    let rows = answer(&again)["jobs"].clone();
    for (row, job) in rows.as_array().unwrap().iter().zip(&jobs) {
        assert_eq!((&row["job"], &row["replayed"]), (&json!(job), &json!(true)));
    }

    let collected = daemon.agentctl(&with_jobs(&["collect", "--timeout", "2"], &jobs));
    assert_eq!(collected.code, Some(1), "{collected:?}");
    let held = format!("{} is held behind an interrupted turn", jobs[2]);
    assert!(
        collected.stderr.contains(&held) && collected.stderr.contains("sessions resume b"),
        "{collected:?}"
    );
    let said = &collected.stdout;
    for expected in [
        ended_well(&jobs[0], "chaos", "finished"),
        format!("{} failed (interrupted): ", jobs[1]),
        ended_well(&jobs[3], "chaos", "anyway"),
        ended_well(&jobs[4], "chaos", "later"),
        "had done: ".to_owned(),
        "halfd0 d1 ".to_owned(),
    ] {
        assert!(
            said.contains(&expected),
            "`{expected}` is not in {collected:?}"
        );
    }
    let pending = format!("note: {} is not done\n", jobs[2]);
    assert!(collected.stderr.ends_with(&pending), "{collected:?}");

    // What is held runs when somebody says so.
    let resumed = daemon.agentctl(&["sessions", "resume", "b"]);
    assert_eq!(resumed.stdout, format!("go on: {}\n", jobs[2]));
    let held = daemon.agentctl(&["collect", &jobs[2]]);
    assert_eq!(held.stdout, ended_well(&jobs[2], "chaos", "behind b"));
    let ledger = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    assert_eq!(ledger.lines().count(), 5, "{ledger}");
}

#[test]
fn one_bad_job_refuses_all_of_them() {
    let daemon = with_marks("").start();
    let dispatched = |second: Value| {
        let input = format!("chaos:ledger\n{second}\n");
        piped(&daemon.place, &["dispatch", "--agent", "chaos"], &input)
    };
    for (second, code, says) in [
        (json!({"text": "a", "agent": "chaox"}), 78, "did you mean"),
        (
            json!({"text": "a", "cwd": "/nowhere/at/all"}),
            2,
            "/nowhere/at/all",
        ),
        (json!({"text": "a", "session": "not a name"}), 2, "session"),
    ] {
        let refused = dispatched(second.clone());
        assert_eq!(refused.code, Some(code), "{second}: {refused:?}");
        assert!(
            refused.stdout.is_empty()
                && refused.stderr.contains("line 2: ")
                && refused.stderr.contains(says),
            "{second}: {refused:?}"
        );
    }
    // A key that belongs to another request.
    assert_eq!(
        daemon
            .agentctl(&["send", "--idempotency-key", "k-2", "first"])
            .code,
        Some(0)
    );
    let args = ["dispatch", "--agent", "chaos", "--key-prefix", "k"];
    let refused = piped(&daemon.place, &args, "chaos:ledger\nother\n");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert_eq!(daemon.status()["store"]["jobs"], 1);
    assert!(!daemon.path("ledger").exists());
    // The refused ones left their keys free.
    assert_eq!(
        jobs_of(&piped(&daemon.place, &args, "chaos:ledger\n")).len(),
        1
    );
}

#[test]
fn collect_waits_for_one_or_for_a_while() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let slow = format!("chaos:wait-file {};say slow", gate.display());
    // Another agent: one process of the same would run one after the other.
    let input = format!(
        "{}\n{}\n",
        json!({"text": slow, "agent": "chaos"}),
        json!({"text": "quick", "agent": "timmy"})
    );
    let jobs = jobs_of(&piped(&daemon.place, &["dispatch"], &input));
    let any = daemon.agentctl(&with_jobs(&["collect", "--any"], &jobs));
    assert_eq!(
        (any.code, any.stdout, any.stderr),
        (
            Some(0),
            ended_well(&jobs[1], "timmy", "quick"),
            format!("note: {} is not done\n", jobs[0])
        )
    );
    let late = daemon.agentctl(&with_jobs(&["collect", "--timeout", "0.1"], &jobs));
    assert_eq!(
        (late.code, late.stdout, late.stderr),
        (
            Some(124),
            ended_well(&jobs[1], "timmy", "quick"),
            format!(
                "note: {0} is not done\nhint: `agentctl collect {0}` goes on waiting, `agentctl \
                 attach {0}` shows what {0} does\n",
                jobs[0]
            )
        )
    );
    let line =
        answer(&daemon.agentctl(&with_jobs(&["collect", "--json", "--timeout", "0"], &jobs)));
    assert_eq!(
        (&line["results"][0]["text"], &line["pending"]),
        (&json!("quick"), &json!([jobs[0]]))
    );
    // What has ended is printed while the other one goes on.
    let mut command = daemon.place.command(AGENTCTL);
    command.args(with_jobs(&["collect"], &jobs));
    let mut child = Reaped(command.stdout(Stdio::piped()).spawn().unwrap());
    let printed = lines(child.0.stdout.take().unwrap());
    let next = || printed.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(
        [next(), next()],
        [format!("{} done (timmy)", jobs[1]), "quick".to_owned()]
    );
    std::fs::write(gate, "").unwrap();
    assert_eq!(
        [next(), next()],
        [format!("{} done (chaos)", jobs[0]), "slow".to_owned()]
    );
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    // Of what has ended by then, the order is the one asked for.
    let all = daemon.agentctl(&with_jobs(&["collect"], &jobs));
    assert_eq!(
        (all.code, all.stdout),
        (
            Some(0),
            ended_well(&jobs[0], "chaos", "slow") + &ended_well(&jobs[1], "timmy", "quick")
        )
    );
}

#[test]
fn collect_of_many_jobs_goes_in_parts() {
    let daemon = Daemon::start();
    let prompts: String = (0..200).map(|n| format!("turn {n}\n")).collect();
    let args = ["dispatch", "--session", "s"];
    let first = jobs_of(&piped(&daemon.place, &args, &prompts));
    let all = daemon.agentctl(&with_jobs(&["collect", "--json"], &first));
    assert_eq!(all.code, Some(0), "{all:?}");
    let second = jobs_of(&piped(&daemon.place, &args, &prompts));
    let jobs = [first, second].concat();
    let all = daemon.agentctl(&with_jobs(&["collect", "--json"], &jobs));
    let line = answer(&all);
    let results = line["results"].as_array().unwrap();
    assert_eq!((results.len(), &line["pending"]), (400, &json!([])));
    assert_eq!(results[399]["text"], "turn 199");
    let any = daemon.agentctl(&with_jobs(&["collect", "--json", "--any"], &jobs));
    assert_eq!(any.code, Some(0), "{any:?}");
    assert_ne!(answer(&any)["results"], json!([]));
}

#[test]
fn a_session_is_made_used_and_closed() {
    let daemon = Daemon::start();
    let made = daemon.agentctl(&["sessions", "new", "kept", "--agent", "chaos"]);
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), "kept\n"));
    assert_eq!(daemon.agentctl(&["sessions", "new", "kept"]).code, Some(3));
    let unnamed = daemon.agentctl(&["sessions", "new"]);
    assert!(
        unnamed.code == Some(0) && unnamed.stdout.len() > 1,
        "{unnamed:?}"
    );

    // It keeps its agent; a turn needs not name it.
    let sent = daemon.agentctl(&["send", "--session", "kept", "chaos:say by chaos"]);
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "by chaos\n"));
    let conflict = daemon.agentctl(&["send", "--session", "kept", "--agent", "timmy", "hi"]);
    assert_eq!(conflict.code, Some(3), "{conflict:?}");
    let closed = daemon.agentctl(&["sessions", "close", "kept"]);
    assert_eq!(
        (closed.code, closed.stdout.as_str()),
        (Some(0), "closed kept\n")
    );
    assert_eq!(
        daemon.agentctl(&["sessions", "close", "kept"]).code,
        Some(2)
    );
    // The name is free for another agent.
    let again = daemon.agentctl(&["send", "--session", "kept", "--agent", "timmy", "hi"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "hi\n"));
    let none = daemon.agentctl(&["sessions", "resume", "kept"]);
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (Some(0), "no turn was held\n")
    );
}

#[test]
fn a_send_may_carry_labels_and_a_start() {
    let daemon = Daemon::start();
    let sent = daemon.agentctl(&[
        "send",
        "--label",
        "run=7",
        "--label",
        "kind=a",
        "--start-at",
        "0s",
        "--expires",
        "60",
        "--after-failure",
        "run",
        "--on-question",
        "deny",
        "hi",
    ]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi\n"),
        "{sent:?}"
    );
    let far = daemon.agentctl(&["dispatch", "--start-at", "2h", "later"]);
    let jobs = jobs_of(&far);
    let looked = daemon.agentctl(&with_jobs(&["collect", "--timeout", "0"], &jobs));
    assert_eq!(looked.code, Some(124), "{looked:?}");
}

#[test]
fn stored_work_without_a_daemon_is_pointed_to() {
    let place = Place::new(&Daemon::config(""));
    for args in [
        &["dispatch", "hi"][..],
        &["jobs"],
        &["steer", "left"],
        &["sessions"],
        &["sessions", "new"],
        &["history", "main"],
        &["questions"],
        &["answer", "j1-q1", "--approve"],
        &["model", "main", "a/b"],
        &["compact"],
        &["backup"],
        &["export"],
        &["watch", "--after", "0"],
    ] {
        let finished = place.agentctl(args);
        assert_eq!(finished.code, Some(69), "{args:?}: {finished:?}");
        assert!(
            finished.stdout.is_empty()
                && finished
                    .stderr
                    .starts_with("error: agentd is not running: ")
                && finished.stderr.contains("`agentctl start`"),
            "{args:?}: {finished:?}"
        );
    }
    assert!(!place.path("state").exists(), "nothing ran");
}

#[test]
fn dispatch_over_the_line_limit_is_not_sent() {
    let daemon = Daemon::start();
    let long = "x".repeat(17 * 1024 * 1024);
    for args in [&["send", "-"][..], &["dispatch", "-"]] {
        let refused = piped(&daemon.place, args, &long);
        assert_eq!(refused.code, Some(2), "{:?}", refused.stderr);
        assert!(
            refused.stderr.contains("the limit is 16777216"),
            "{:?}",
            refused.stderr
        );
    }
}

fn hello() -> Value {
    json!({"type": "hello", "ok": true, "server": "agentd", "version": "0", "protocol": 1,
        "epoch": "e", "pid": 1, "uid": 1, "capabilities": [],
        "limits": {"line_in": 1, "line_out": 1, "in_flight": 1}})
}

/// A daemon of another make: it answers `hello`, then says its lines, each with the request's id.
pub fn scripted(place: &Place, answers: &[Value]) -> std::thread::JoinHandle<Vec<Value>> {
    let listener = UnixListener::bind(place.socket()).unwrap();
    let answers = answers.to_vec();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        let mut asked = Vec::new();
        for mut answer in std::iter::once(hello()).chain(answers) {
            let Some(Ok(line)) = lines.next() else { break };
            let request: Value = serde_json::from_str(&line).unwrap();
            answer["id"] = request["id"].clone();
            asked.push(request);
            writeln!(stream, "{answer}").unwrap();
        }
        // One more request, which it doesn't answer.
        let more = lines.next().and_then(Result::ok);
        asked.extend(more.map(|line| serde_json::from_str(&line).unwrap()));
        asked
    })
}

#[test]
fn dispatch_without_an_answer_is_found_by_keys() {
    let place = Place::new("");
    let served = scripted(&place, &[]);
    let lost = place.agentctl(&["dispatch", "one", "two"]);
    assert_eq!(lost.code, Some(75), "{lost:?}");
    let asked = served.join().unwrap();
    let key = asked[1]["jobs"][0]["idempotency_key"].as_str().unwrap();
    let prefix = key.strip_suffix("-1").unwrap();
    assert_eq!(
        asked[1]["jobs"][1]["idempotency_key"],
        json!(format!("{prefix}-2"))
    );
    assert!(
        lost.stderr
            .contains(&format!("agentctl dispatch --key-prefix {prefix} one two")),
        "{lost:?}"
    );
}

#[test]
fn session_in_use_by_a_worker_stays_open() {
    let daemon = Daemon::start();
    chaos_in(&daemon, "hi", Some("s"));
    let args = [
        "dispatch",
        "--agent",
        "chaos",
        "--session",
        "s",
        "chaos:wait-file /nowhere",
    ];
    let jobs = jobs_of(&daemon.agentctl(&args));
    let busy = daemon.agentctl(&["sessions", "close", "s"]);
    assert_eq!(busy.code, Some(3), "{busy:?}");
    assert_eq!(daemon.agentctl(&["abort", &jobs[0]]).code, Some(0));
    let ended = daemon.agentctl(&["collect", &jobs[0]]);
    assert!(ended.stdout.contains("cancelled"), "{ended:?}");
    assert_eq!(daemon.agentctl(&["sessions", "close", "s"]).code, Some(0));
}

#[test]
fn abort_takes_several_jobs_or_a_label() {
    let daemon = Daemon::start();
    let dispatch = |label: &str, count: usize| {
        let mut args = vec!["dispatch", "--agent", "chaos", "--label", label];
        args.extend(std::iter::repeat_n("chaos:wait-file /nowhere", count));
        jobs_of(&daemon.agentctl(&args))
    };
    let (batch, others) = (dispatch("run=a", 25), dispatch("run=b", 2));
    let said = |args: &[&str]| {
        let aborted = daemon.agentctl(args);
        assert_eq!(aborted.code, Some(0), "{aborted:?}");
        aborted.stdout
    };
    let all = said(&["abort", "--label", "run=a"]);
    assert_eq!(all, "aborted 25 turns\n");
    let ended = daemon.agentctl(&with_jobs(&["collect"], &batch));
    assert_eq!(ended.stdout.matches("cancelled").count(), 25, "{ended:?}");
    let none = said(&["abort", "--label", "run=a"]);
    assert_eq!(none, "nothing with the label `run=a` waits or runs\n");
    // The first is unknown, and the others are aborted all the same.
    let two = daemon.agentctl(&with_jobs(&["abort", "j9999"], &others));
    assert_eq!(two.code, Some(2), "{two:?}");
    assert_eq!(two.stdout, format!("aborted {}\n", others.join(", ")));
}

#[test]
fn dispatch_takes_more_than_a_request_does() {
    let daemon = Daemon::start();
    let lines: String = (1..=300).map(|number| format!("say {number}\n")).collect();
    let words = ["dispatch", "-", "--key-prefix", "k"];
    let sent = piped(&daemon.place, &words, &lines);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let jobs: Vec<String> = (1..=300).map(|number| format!("j{number}")).collect();
    assert_eq!(sent.stdout.lines().collect::<Vec<_>>(), jobs);
    let all = jobs.iter().map(String::as_str);
    let words_of_collect: Vec<&str> = ["collect", "--json"].into_iter().chain(all).collect();
    assert_eq!(daemon.agentctl(&words_of_collect).code, Some(0));
    // By their keys they are the same, in one object.
    let again = piped(&daemon.place, &[&words[..], &["--json"]].concat(), &lines);
    let line: Value = serde_json::from_str(&again.stdout).unwrap();
    let rows = line["jobs"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[299]["job"]), (300, &"j300".into()));
}

#[test]
fn dispatch_that_is_stopped_says_what_was_accepted() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let mut command = place.command(AGENTCTL);
    command
        .args(["dispatch", "-", "--key-prefix", "k"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let prompts = "x\n".repeat(600);
    let mut input = child.stdin.take().unwrap();
    input.write_all(prompts.as_bytes()).unwrap();
    drop(input);
    let (mut stream, _) = listener.accept().unwrap();
    let mut accepted = 0;
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let mut answer = hello();
        if let Some(jobs) = request["jobs"].as_array() {
            // The next answer finds it there, or the one after that.
            kill(child.id(), Signal::SIGINT);
            let row =
                |n| json!({"job": format!("j{n}"), "session": format!("s{n}"), "replayed": false});
            let rows: Vec<Value> = (accepted + 1..=accepted + jobs.len()).map(row).collect();
            accepted += jobs.len();
            answer = json!({"type": "dispatch", "ok": true, "jobs": rows});
        }
        answer["id"] = request["id"].clone();
        writeln!(stream, "{answer}").unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(accepted < 600, "it went on");
    let printed = ended.stdout.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(printed, accepted, "{told}");
    assert!(
        told.contains(&format!("{accepted} of 600 were accepted")),
        "{told}"
    );
    assert!(told.contains("`--key-prefix k`"), "{told}");
}
