//! Schedules from outside: each due time is one job, whatever is killed, and what was missed or is
//! still busy goes by what the schedule says.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::{AGENTD, Daemon, Place, Reaped, wait_for};

/// A request and its one answer, which must be no error.
pub fn ask(daemon: &Daemon, request: &Value) -> Value {
    let answer = daemon.ask(&request.to_string()).remove(0);
    assert_ne!(answer["type"], "error", "{request}: {answer:#}");
    answer
}

pub fn refused(daemon: &Daemon, request: &Value) -> Value {
    let answer = daemon.ask(&request.to_string()).remove(0);
    assert_eq!(answer["type"], "error", "{request}: {answer:#}");
    answer
}

/// Adds a schedule; gives its id.
pub fn add(daemon: &Daemon, fields: &Value) -> String {
    let mut request = json!({"type": "cron.add", "send": {"text": "tick"}});
    let fields = fields.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(fields);
    let row = ask(daemon, &request)["schedule"].clone();
    row["schedule"].as_str().unwrap().to_owned()
}

pub fn runs(daemon: &Daemon, schedule: &str) -> Vec<Value> {
    let asked = json!({"type": "cron.runs", "schedule": schedule, "limit": 500});
    ask(daemon, &asked)["runs"].as_array().unwrap().clone()
}

pub fn row(daemon: &Daemon, schedule: &str) -> Value {
    ask(daemon, &json!({"type": "cron.list", "schedule": schedule}))["schedules"][0].clone()
}

/// Waits until the runs of a schedule show a fact.
pub fn until<T>(
    daemon: &Daemon,
    schedule: &str,
    fact: &str,
    look: impl Fn(&[Value]) -> Option<T>,
) -> T {
    wait_for(fact, || look(&runs(daemon, schedule)))
}

pub fn done(run: &Value) -> bool {
    run["outcome"] == "job" && run["state"] == "completed"
}

/// The store as it is, while nobody has it or beside whoever has.
fn query(place: &Place, sql: &str) -> Vec<(String, i64)> {
    let store = rusqlite::Connection::open(place.path("state/agentd.db")).unwrap();
    let mut found = store.prepare(sql).unwrap();
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// No due time has two jobs, no job of a schedule is without a run, and none is missing in between.
fn each_once(place: &Place, every_ms: i64) {
    let twice = "SELECT key, count(*) FROM jobs WHERE key LIKE 'cron:%' GROUP BY key
        HAVING count(*) > 1";
    assert_eq!(query(place, twice), []);
    let jobs = "SELECT 'jobs', count(*) FROM jobs WHERE key LIKE 'cron:%'";
    let told = "SELECT 'jobs', count(*) FROM schedule_runs WHERE job IS NOT NULL";
    assert_eq!(query(place, jobs), query(place, told));
    let due = "SELECT 'due', due_at FROM schedule_runs ORDER BY due_at";
    let due: Vec<i64> = query(place, due).into_iter().map(|(_, at)| at).collect();
    let gaps: BTreeSet<i64> = due.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(gaps, BTreeSet::from([every_ms]), "{due:?}");
}

#[test]
fn cron_runs_at_once_and_again() {
    let daemon = Daemon::start();
    let once = add(
        &daemon,
        &json!({"at": "+1", "name": "soon", "send": {"text": "once"}}),
    );
    let every = add(&daemon, &json!({"every": "1s", "send": {"text": "again"}}));
    assert_eq!((&*once, &*every), ("c1", "c2"));
    assert_eq!(row(&daemon, "c2")["next"].as_array().unwrap().len(), 3);
    until(&daemon, "c2", "three runs", |runs| {
        (runs.iter().filter(|run| done(run)).count() >= 3).then_some(())
    });
    let run = until(&daemon, "soon", "it ran", |runs| {
        runs.first().filter(|run| done(run)).cloned()
    });
    assert_eq!(run["preview"], "once", "{run:#}");
    let row = row(&daemon, "soon");
    assert_eq!(
        (&row["state"], &row["schedule"]),
        (&json!("done"), &json!("c1"))
    );
    assert_eq!(row["last"]["job"], run["job"], "{row:#}");
    let removed = ask(&daemon, &json!({"type": "cron.remove", "schedule": "soon"}));
    assert_eq!(removed["schedule"]["name"], "soon");
    refused(&daemon, &json!({"type": "cron.runs", "schedule": "soon"}));
    refused(&daemon, &json!({"type": "cron.remove", "schedule": "c1"}));
    // A number isn't given again.
    ask(&daemon, &json!({"type": "cron.remove", "schedule": "c2"}));
    assert_eq!(add(&daemon, &json!({"every": "1h"})), "c3");
    let jobs = ask(&daemon, &json!({"type": "jobs"}));
    assert!(
        jobs["jobs"].as_array().unwrap().len() >= 4,
        "jobs stay: {jobs:#}"
    );
}

#[test]
fn cron_add_refuses_what_cannot_be() {
    let daemon = Daemon::start();
    add(&daemon, &json!({"every": "1h", "name": "taken"}));
    for (fields, why) in [
        (json!({}), "exactly one"),
        (json!({"at": "+1m", "every": "1m"}), "exactly one"),
        (json!({"at": "2020-01-01T00:00:00Z"}), "is past"),
        (json!({"cron": "0 0 30 2 *"}), "never comes"),
        (
            json!({"cron": "* * * * *", "tz": "Europe/Atlantis"}),
            "doesn't know",
        ),
        (json!({"every": "1h", "name": "taken"}), "has this name"),
        (json!({"every": "1h", "name": "c7"}), "ids look like"),
        (
            json!({"every": "1h", "send": {"text": "x", "agent": "nobody"}}),
            "no agent `nobody`",
        ),
        (
            json!({"every": "1h", "send": {"text": "x", "cwd": "/nowhere/at/all"}}),
            "no such directory",
        ),
        (
            json!({"every": "1h", "send": {"text": "x", "modle": "m"}}),
            "nobody knows",
        ),
        (
            json!({"every": "1h", "send": {"text": "x", "start_at": "x"}}),
            "says that itself",
        ),
        (json!({"every": "1h", "send": {"text": " "}}), "is blank"),
    ] {
        let mut request = json!({"type": "cron.add", "send": {"text": "tick"}});
        request
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let error = refused(&daemon, &request);
        assert!(
            error["error"].as_str().unwrap().contains(why),
            "{fields}: {error:#}"
        );
    }
    assert_eq!(
        ask(&daemon, &json!({"type": "cron.list"}))["schedules"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn cron_survives_kills_around_due_times() {
    let mut daemon = Daemon::start();
    let due = json!({"every": "1s", "missed": "all", "overlap": "parallel", "keep": 10_000});
    let schedule = add(&daemon, &due);
    let mut seen = 0;
    for round in 0..20 {
        // Killed at another part of the second each time: right before, within and behind a commit.
        seen = until(&daemon, &schedule, "another run", |runs| {
            let jobs = runs.iter().filter(|run| run["outcome"] == "job").count();
            (jobs > seen).then_some(jobs)
        });
        std::thread::park_timeout(Duration::from_millis(47 * round));
        daemon = daemon.kill().start();
    }
    let now = daemon.status();
    assert_eq!(now["state"], "ready", "{now:#}");
    seen += 1;
    until(&daemon, &schedule, "it goes on", |runs| {
        (runs.len() > seen).then_some(())
    });
    each_once(&daemon.kill(), 1000);
}

#[test]
fn cron_dies_anywhere_and_sends_once() {
    let daemon = Daemon::start();
    let due = json!({"every": "1s", "missed": "all", "overlap": "parallel", "keep": 10_000});
    let schedule = add(&daemon, &due);
    let mut place = daemon.kill();
    for point in [
        "before-fire",
        "before-commit-accept",
        "after-commit-accept",
        "after-fire",
        "before-commit-finish",
        "after-commit-finish",
    ] {
        let mut command = place.command(AGENTD);
        command.env("AGENTD_FAILPOINT", format!("{point}:1"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut dies = Reaped(command.spawn().unwrap());
        let status = wait_for(point, || dies.0.try_wait().unwrap());
        assert_eq!(status.signal(), Some(9), "{point}");
        let daemon = place.start();
        let seen = runs(&daemon, &schedule).len();
        until(&daemon, &schedule, "it goes on", |runs| {
            (runs.len() > seen && runs.iter().take(2).all(done)).then_some(())
        });
        place = daemon.kill();
    }
    each_once(&place, 1000);
}

/// Waits until the wall clock is so far behind a run's due time, in seconds.
fn behind(run: &Value, seconds: u64) {
    let due = agentd_protocol::request::unix_ms(run["due_at"].as_str().unwrap()).unwrap();
    let due = Duration::from_millis(u64::try_from(due).unwrap()) + Duration::from_secs(seconds);
    let until = UNIX_EPOCH + due;
    wait_for("time passes", || (SystemTime::now() >= until).then_some(()));
}

#[test]
fn cron_missed_times_go_by_policy() {
    let daemon = Daemon::start();
    let every =
        |missed: &str| json!({"every": "1s", "missed": missed, "name": missed, "overlap": "queue"});
    let policies = ["skip", "last", "all"];
    for missed in policies {
        add(&daemon, &every(missed));
    }
    let first = policies.map(|missed| {
        until(&daemon, missed, "a first run", |runs| {
            runs.first().filter(|run| done(run)).cloned()
        })
    });
    for missed in ["skip", "last"] {
        add(
            &daemon,
            &json!({"at": "+1", "missed": missed, "name": format!("once-{missed}")}),
        );
    }
    let place = daemon.kill();
    behind(&first[2], 5);
    let daemon = place.start();
    // One row stands for what was left out.
    let left_out = until(&daemon, "skip", "what was missed is told", |runs| {
        runs.iter().find(|run| run["outcome"] == "skipped").cloned()
    });
    assert!(left_out["times"].as_u64().unwrap() >= 3, "{left_out:#}");
    assert!(
        left_out["why"].as_str().unwrap().starts_with("missed"),
        "{left_out:#}"
    );
    let made_up = until(&daemon, "last", "the last one is made up for", |runs| {
        let at = runs.iter().position(|run| run["outcome"] == "skipped")?;
        Some((runs[at - 1].clone(), runs[at].clone()))
    });
    assert_eq!(made_up.0["outcome"], "job", "{made_up:#?}");
    assert!(made_up.1["times"].as_u64().unwrap() >= 2, "{made_up:#?}");
    until(&daemon, "all", "each one is made up for", |runs| {
        let late = |run: &&Value| run["late_ms"].as_u64().unwrap() > 1000;
        (runs.iter().filter(late).count() >= 3 && runs.len() >= 7).then_some(())
    });
    assert!(
        runs(&daemon, "all")
            .iter()
            .all(|run| run["outcome"] == "job")
    );
    let once = &runs(&daemon, "once-skip")[0];
    assert_eq!(
        (
            &once["outcome"],
            row(&daemon, "once-skip")["state"].as_str()
        ),
        (&json!("skipped"), Some("done"))
    );
    let once = until(&daemon, "once-last", "it runs late", |runs| {
        runs.first().filter(|run| done(run)).cloned()
    });
    assert!(once["late_ms"].as_u64().unwrap() > 1000, "{once:#}");
}

#[test]
fn cron_overlap_goes_by_policy() {
    let daemon = Daemon::start();
    let open = daemon.path("open");
    for overlap in ["skip", "queue", "replace", "parallel"] {
        let text = format!("chaos:wait-file {}", open.display());
        let send = json!({"agent": "chaos", "text": text});
        add(
            &daemon,
            &json!({"every": "1s", "overlap": overlap, "name": overlap, "send": send}),
        );
    }
    let skipped = until(&daemon, "skip", "two are left out", |runs| {
        let skipped = runs.iter().filter(|run| run["outcome"] == "skipped");
        (skipped.clone().count() >= 2).then(|| skipped.cloned().collect::<Vec<_>>())
    });
    assert!(
        skipped[0]["why"]
            .as_str()
            .unwrap()
            .starts_with("the run before goes on: j")
    );
    assert_eq!(runs(&daemon, "skip").len(), 1 + skipped.len());
    let queued = runs(&daemon, "queue");
    assert_eq!(queued.len(), 1, "the second waits: {queued:#?}");
    let parallel = runs(&daemon, "parallel");
    assert!(
        parallel.iter().all(|run| run["outcome"] == "job"),
        "{parallel:#?}"
    );
    assert!(parallel.len() >= 2, "{parallel:#?}");
    until(&daemon, "replace", "the one before is cancelled", |runs| {
        runs.iter()
            .any(|run| run["state"] == "cancelled")
            .then_some(())
    });
    std::fs::write(&open, "").unwrap();
    until(&daemon, "queue", "what waited runs", |runs| {
        (runs.iter().filter(|run| done(run)).count() >= 2).then_some(())
    });
}

#[test]
fn cron_is_paused_edited_and_resumed() {
    let daemon = Daemon::start();
    let schedule = add(
        &daemon,
        &json!({"every": "1s", "send": {"text": "first", "labels": {"a": "b"}}}),
    );
    until(&daemon, &schedule, "a run", |runs| runs.first().map(|_| ()));
    let paused = ask(
        &daemon,
        &json!({"type": "cron.pause", "schedule": schedule}),
    )["schedule"]
        .clone();
    assert_eq!(
        (&paused["state"], &paused["next"]),
        (&json!("paused"), &json!([]))
    );
    let before = runs(&daemon, &schedule).len();
    let run = ask(&daemon, &json!({"type": "cron.run", "schedule": schedule}));
    let by_hand = until(&daemon, &schedule, "it runs once", |runs| {
        runs.first().filter(|run| done(run)).cloned()
    });
    assert_eq!(
        (&by_hand["job"], &by_hand["by_hand"]),
        (&run["job"], &json!(true))
    );
    let set = json!({"name": "mine", "send": {"message": "second", "labels": null}});
    let edited = ask(
        &daemon,
        &json!({"type": "cron.edit", "schedule": schedule, "set": set}),
    )["schedule"]
        .clone();
    assert_eq!(
        (&edited["state"], &edited["send"]["text"]),
        (&json!("paused"), &json!("second"))
    );
    assert_eq!(
        (&edited["send"]["labels"], &edited["every"]),
        (&Value::Null, &json!("1s"))
    );
    assert_eq!(runs(&daemon, "mine").len(), before + 1, "it rests");
    ask(&daemon, &json!({"type": "cron.resume", "schedule": "mine"}));
    let run = until(&daemon, "mine", "it goes on", |runs| {
        runs.first()
            .filter(|run| done(run) && run["by_hand"].is_null())
            .cloned()
    });
    assert_eq!(run["preview"], "second");
    // Another time to be due, in place of the one before; a firing in the same moment is told.
    let set = json!({"cron": "0 9 29 2 *", "tz": "Europe/Berlin"});
    let edit = json!({"type": "cron.edit", "schedule": "mine", "set": set});
    let edited = wait_for("the edit is taken", || {
        let answer = daemon.ask(&edit.to_string()).remove(0);
        (answer["code"] != "session-busy").then_some(answer)
    })["schedule"]
        .clone();
    assert_eq!(
        (&edited["every"], &edited["cron"]),
        (&Value::Null, &json!("0 9 29 2 *"))
    );
    assert_eq!(edited["next"][0], "2028-02-29T09:00:00+01:00", "{edited:#}");
    for set in [
        json!({"every": "x"}),
        json!({"send": {"agent": "nobody"}}),
        json!({"send": {"text": ""}}),
    ] {
        refused(
            &daemon,
            &json!({"type": "cron.edit", "schedule": "mine", "set": set}),
        );
    }
    assert_eq!(row(&daemon, "mine")["cron"], "0 9 29 2 *");
}

#[test]
fn cron_pauses_after_failures_and_says_so() {
    let daemon = Daemon::start();
    let fails = json!({"text": "[[error=rate-limit]]"});
    add(
        &daemon,
        &json!({"every": "1s", "name": "worst", "max_failures": 2, "send": fails}),
    );
    add(
        &daemon,
        &json!({"every": "1s", "name": "slow", "backoff": "1h", "send": fails}),
    );
    let paused = wait_for("it is paused", || {
        Some(row(&daemon, "worst")).filter(|row| row["state"] == "paused")
    });
    assert_eq!(paused["failures"], 2, "{paused:#}");
    assert!(
        paused["why"]
            .as_str()
            .unwrap()
            .starts_with("2 runs failed in a row"),
        "{paused:#}"
    );
    assert_eq!(paused["last"]["code"], "rate-limit", "{paused:#}");
    assert!(
        daemon.log().contains("a schedule is paused"),
        "{}",
        daemon.log()
    );
    let says = |daemon: &Daemon| {
        daemon.until("status says it", |status| {
            let details = status["details"].as_str().unwrap();
            details
                .contains("a schedule is paused: c1 (worst): 2 runs failed")
                .then_some(())
        });
    };
    says(&daemon);
    let doctor = daemon.agentctl(&["doctor"]);
    assert!(
        doctor.stdout.contains("2 runs failed in a row"),
        "{doctor:?}"
    );
    let waits = until(&daemon, "slow", "it backs off", |runs| {
        runs.iter().find(|run| run["outcome"] == "skipped").cloned()
    });
    assert!(
        waits["why"]
            .as_str()
            .unwrap()
            .starts_with("1 runs failed in a row: it waits until"),
        "{waits:#}"
    );
    // What was counted survives a kill, and what was paused stays so.
    let daemon = daemon.kill().start();
    assert_eq!(row(&daemon, "worst")["state"], "paused");
    says(&daemon);
    let resumed = ask(
        &daemon,
        &json!({"type": "cron.resume", "schedule": "worst"}),
    )["schedule"]
        .clone();
    assert_eq!(
        (&resumed["failures"], &resumed["why"]),
        (&json!(0), &Value::Null)
    );
}

#[test]
fn cron_run_that_is_refused_is_told() {
    let daemon = Daemon::start();
    let dir = daemon.path("gone");
    std::fs::create_dir(&dir).unwrap();
    let send = json!({"text": "tick", "cwd": dir});
    let schedule = add(
        &daemon,
        &json!({"every": "1s", "max_failures": 1, "send": send}),
    );
    std::fs::remove_dir(&dir).unwrap();
    let run = until(&daemon, &schedule, "it is refused", |runs| {
        runs.iter().find(|run| run["outcome"] == "refused").cloned()
    });
    assert!(
        run["why"].as_str().unwrap().contains("no such directory"),
        "{run:#}"
    );
    assert_eq!(row(&daemon, &schedule)["state"], "paused");
    let run = refused(&daemon, &json!({"type": "cron.run", "schedule": schedule}));
    assert!(
        run["error"].as_str().unwrap().starts_with("`cwd` is"),
        "{run:#}"
    );
}

#[test]
fn cron_is_typed_as_elsewhere() {
    let daemon = Daemon::start();
    let added = daemon.agentctl(&[
        "cron",
        "add",
        "--model",
        "kimi-coding/kimi-k2.5",
        "--message",
        "Work on issue #98",
        "--at",
        "+1m",
    ]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(added.stdout.starts_with("c1 is due in "), "{added:?}");
    let fields = [
        "cron",
        "add",
        "look",
        "--name",
        "look",
        "--cron",
        "0 9 * * 1-5",
        "--tz",
        "Asia/Tokyo",
    ];
    let added = daemon.agentctl(&fields);
    assert_eq!(added.stdout.lines().count(), 3, "{added:?}");
    assert!(added.stdout.contains("T09:00:00+09:00"), "{added:?}");
    let listed = daemon.agentctl(&["cron", "ls"]).stdout;
    assert!(
        listed.contains("look") && listed.contains("0 9 * * 1-5 Asia/Tokyo"),
        "{listed}"
    );
    let ran = daemon.agentctl(&["cron", "run", "look"]);
    let job = ran.stdout.trim();
    assert_eq!(daemon.agentctl(&["collect", job]).code, Some(0), "{ran:?}");
    let told = daemon.agentctl(&["cron", "runs", "look"]);
    assert!(
        told.stdout.contains(job) && told.stdout.contains("done"),
        "{told:?}"
    );
    let shown = daemon.agentctl(&["cron", "show", "look"]).stdout;
    assert!(
        shown.contains("sends      look") && shown.contains("a new one each time"),
        "{shown}"
    );
    for words in [
        &["cron", "edit", "look", "--every", "2h", "--name", "none"][..],
        &["cron", "pause", "c2"],
        &["cron", "resume", "c2", "--json"],
        &["cron", "rm", "c2"],
    ] {
        let done = daemon.agentctl(words);
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
    }
    let gone = daemon.agentctl(&["cron", "show", "c2"]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    assert!(
        gone.stderr.contains("`agentctl cron list` shows them"),
        "{gone:?}"
    );
    let none = daemon.agentctl(&["cron", "add", "x"]);
    assert_eq!(none.code, Some(2), "{none:?}");
}
