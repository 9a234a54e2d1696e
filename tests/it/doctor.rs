//! `agentctl doctor`: each way an installation can be wrong, what is said about it, and what
//! `--fix` repairs.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::Value;

use crate::support::{AGENTCTL, Daemon, Finished, Place, finish, kill, program, skipped};

struct Told {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl Told {
    /// The findings of a check.
    fn of(&self, check: &str) -> Vec<&Value> {
        let of = |finding: &&Value| finding["check"] == check;
        self.findings.iter().filter(of).collect()
    }

    fn only(&self, check: &str) -> &Value {
        let found = self.of(check);
        assert_eq!(found.len(), 1, "{check}: {}", self.text);
        found[0]
    }

    fn verdicts(&self, verdict: &str) -> Vec<&Value> {
        let with = |finding: &&Value| finding["verdict"] == verdict;
        self.findings.iter().filter(with).collect()
    }
}

/// No service manager of this machine is asked.
fn run(place: &Place, args: &[&str]) -> Finished {
    let mut command = place.command(AGENTCTL);
    command.arg("doctor").args(args);
    command.env("PATH", place.path("bin"));
    finish(command, b"")
}

fn doctor(place: &Place, args: &[&str]) -> Told {
    let finished = run(place, &[&["--json"], args].concat());
    told(finished)
}

fn told(finished: Finished) -> Told {
    let object: Value =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|why| panic!("{why}: {finished:?}"));
    assert_eq!(object["ok"], finished.code == Some(0), "{finished:?}");
    let findings = object["findings"].as_array().unwrap().clone();
    for finding in &findings {
        let has_remedy = finding["remedy"].is_string();
        assert_eq!(has_remedy, finding["verdict"] != "ok", "{finding}");
    }
    Told {
        code: finished.code,
        findings,
        text: finished.stdout,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A place that a daemon has used and left.
fn used() -> Place {
    let daemon = Daemon::start();
    daemon.ask(r#"{"prompt":"hi"}"#);
    daemon.agentctl(&["stop"]);
    daemon.left().0
}

#[test]
fn doctor_of_a_healthy_daemon_finds_no_problem() {
    let daemon = Daemon::start();
    let told = doctor(&daemon.place, &[]);
    assert_eq!(told.code, Some(0), "{}", told.text);
    let mut warned = told.verdicts("warning");
    // What this machine's system can do is not the installation's fault.
    warned.retain(|finding| finding["check"] != "sandbox");
    assert!(
        told.verdicts("problem").is_empty() && warned.is_empty(),
        "{}",
        told.text
    );
    for check in [
        "daemon", "socket", "version", "service", "state", "files", "alias", "config", "agents",
        "keys", "disk", "sqlite", "store", "clock", "sandbox",
    ] {
        assert!(
            !told.of(check).is_empty(),
            "nothing about `{check}`: {}",
            told.text
        );
    }
    assert!(told.of("integrity").is_empty());
    let full = doctor(&daemon.place, &["--full"]);
    assert_eq!(full.code, Some(0), "{}", full.text);
    assert_eq!(full.only("integrity")["verdict"], "ok");
    assert!(
        full.of("versions")
            .iter()
            .any(|finding| { finding["found"].as_str().unwrap().contains("`timmy`") })
    );
    let shown = run(&daemon.place, &[]);
    assert!(shown.stdout.ends_with("nothing is wrong\n"), "{shown:?}");
}

#[test]
fn doctor_without_a_daemon_looks_at_the_rest() {
    let place = Place::new("");
    let fresh = doctor(&place, &[]);
    assert_eq!(fresh.code, Some(0), "{}", fresh.text);
    assert_eq!(fresh.only("daemon")["verdict"], "warning");
    assert_eq!(fresh.only("state")["verdict"], "warning");
    assert!(!place.path("state").exists(), "a look makes nothing");
    let fixed = doctor(&place, &["--fix"]);
    assert_eq!(fixed.only("state")["fixed"], true);
    assert_eq!(mode(&place.path("state")), 0o700);
}

#[test]
fn doctor_is_not_held_by_a_stopped_daemon() {
    let daemon = Daemon::start();
    kill(daemon.pid(), Signal::SIGSTOP);
    let told = doctor(&daemon.place, &[]);
    let pid = daemon.pid();
    kill(pid, Signal::SIGCONT);
    assert_eq!(told.code, Some(1));
    let finding = told.only("daemon");
    assert_eq!(finding["verdict"], "problem");
    assert_eq!(
        finding["remedy"],
        format!("`kill -CONT {pid}` lets it go on")
    );
    assert!(!told.of("sqlite").is_empty(), "{}", told.text);
}

#[test]
fn open_modes_are_problems_until_they_are_repaired() {
    let place = used();
    let env = place.path("env");
    fs::write(&env, "OPENAI_API_KEY=sk-CANARY\n").unwrap();
    let (state, db) = (place.path("state"), place.path("state/agentd.db"));
    set_mode(&state, 0o755);
    set_mode(&db, 0o644);
    set_mode(&env, 0o640);
    let hooks = place.path("webhooks.json");
    fs::write(&hooks, "").unwrap();
    set_mode(&hooks, 0o644);

    let told = doctor(&place, &[]);
    assert_eq!(told.code, Some(1));
    assert_eq!(told.only("state")["verdict"], "problem");
    let files: Vec<_> = told
        .of("files")
        .iter()
        .map(|finding| finding["found"].to_string())
        .collect();
    assert_eq!(files.len(), 3, "{files:?}");
    assert_eq!(told.only("webhooks")["verdict"], "problem");
    assert!(
        files.iter().any(|found| found.contains("agentd.db")),
        "{files:?}"
    );
    assert_eq!(
        told.only("config")["verdict"],
        "problem",
        "its keys are open to others"
    );
    assert_eq!(
        (mode(&state), mode(&db)),
        (0o755, 0o644),
        "a look changes nothing"
    );

    let fixed = doctor(&place, &["--fix"]);
    assert_eq!(fixed.code, Some(0), "{}", fixed.text);
    assert_eq!(fixed.of("files").len(), 3);
    assert!(
        fixed
            .of("files")
            .iter()
            .all(|finding| finding["fixed"] == true)
    );
    assert_eq!((mode(&state), mode(&db), mode(&env)), (0o700, 0o600, 0o600));
    assert_eq!(mode(&hooks), 0o600);
    let again = doctor(&place, &["--fix"]);
    assert!(
        again
            .findings
            .iter()
            .all(|finding| finding["fixed"].is_null()),
        "{}",
        again.text
    );

    let keys = again.only("keys")["found"].as_str().unwrap();
    assert!(keys.contains("OPENAI_API_KEY (the file `env`)"), "{keys}");
    assert!(!again.text.contains("CANARY"), "a key is shown");
}

#[test]
fn doctor_names_provider_keys_and_shows_none() {
    let place = Place::new(
        "[providers.work]\nbase_url = \"http://127.0.0.1:1/v1\"\nkey_env = \"WORK_LLM_SECRET\"\n\
         [providers.other]\nbase_url = \"http://127.0.0.1:1/v1\"\n",
    );
    let keys = |told: &Told| told.only("keys")["found"].as_str().unwrap().to_owned();
    assert!(keys(&doctor(&place, &[])).starts_with("none"));
    let file = place.path("env");
    fs::write(&file, "WORK_LLM_SECRET=s3cret\n").unwrap();
    set_mode(&file, 0o600);
    let mut command = place.command(AGENTCTL);
    command
        .args(["doctor", "--json"])
        .env("PATH", place.path("bin"));
    command.env("OTHER_API_KEY", "s3cret");
    let told = told(finish(command, b""));
    assert_eq!(
        keys(&told),
        "OTHER_API_KEY (this shell's environment), WORK_LLM_SECRET (the file `env`)"
    );
    assert!(!told.text.contains("s3cret"), "{}", told.text);
}

#[test]
fn doctor_tells_who_is_not_logged_in() {
    let place = Place::new(&Daemon::config(""));
    program(&place.path("bin"), "codex", "");
    let told = doctor(&place, &[]);
    let found = told.only("agents")["found"].as_str().unwrap();
    let (usable, waiting) = found.split_once("; not yet: ").expect(found);
    assert!(
        usable.contains("chaos") && !usable.contains("codex"),
        "{found}"
    );
    assert!(waiting.contains("codex (log in)"), "{found}");
}

#[test]
fn doctor_removes_a_stale_alias_of_ours_only() {
    let place = used();
    let alias = place.path("timmy.sock");
    symlink(place.socket(), &alias).unwrap();
    let told = doctor(&place, &[]);
    assert_eq!(told.only("alias")["verdict"], "warning", "{}", told.text);
    let fixed = doctor(&place, &["--fix"]);
    assert_eq!(fixed.only("alias")["fixed"], true, "{}", fixed.text);
    assert!(fs::symlink_metadata(&alias).is_err());

    fs::write(&alias, "not ours").unwrap();
    let told = doctor(&place, &["--fix"]);
    assert_eq!(told.code, Some(1));
    assert_eq!(told.only("alias")["verdict"], "problem");
    assert_eq!(fs::read_to_string(&alias).unwrap(), "not ours");
}

#[test]
fn a_broken_configuration_is_named_with_its_line() {
    let place = used();
    place.configure("alias = 3\n");
    let told = doctor(&place, &[]);
    assert_eq!(told.code, Some(1));
    let found = told.only("config")["found"].as_str().unwrap();
    assert!(found.contains("config.toml:1:"), "{found}");
    place.configure("[agents.gone]\nkind = \"jsonl\"\ncommand = [\"/no/such/program\"]\n");
    let told = doctor(&place, &[]);
    assert_eq!(told.code, Some(1));
    let problem = told.verdicts("problem");
    assert!(
        problem[0]["found"].as_str().unwrap().contains("`gone`"),
        "{problem:?}"
    );
}

#[test]
fn doctor_names_a_newer_or_damaged_store() {
    let place = used();
    let file = place.path("state/agentd.db");
    let conn = Connection::open(&file).unwrap();
    let ours: u32 = conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    conn.pragma_update(None, "user_version", 999).unwrap();
    drop(conn);
    let told = doctor(&place, &[]);
    assert_eq!(told.code, Some(1));
    assert!(
        told.only("store")["found"]
            .as_str()
            .unwrap()
            .contains("999"),
        "{}",
        told.text
    );

    let conn = Connection::open(&file).unwrap();
    conn.pragma_update(None, "user_version", ours).unwrap();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    drop(conn);
    let pages = fs::metadata(&file).unwrap().len() / 4096;
    let mut db = fs::File::options().write(true).open(&file).unwrap();
    for page in 2..pages {
        db.seek(SeekFrom::Start(page * 4096)).unwrap();
        db.write_all(&[0xa5; 512]).unwrap();
    }
    drop(db);
    assert!(doctor(&place, &[]).of("integrity").is_empty());
    let full = doctor(&place, &["--full"]);
    assert_eq!(
        full.only("integrity")["verdict"],
        "problem",
        "{}",
        full.text
    );
}

#[test]
fn a_clock_behind_what_was_written_is_told() {
    let place = used();
    let ahead = SystemTime::now() + Duration::from_secs(3600);
    let db = fs::File::options()
        .write(true)
        .open(place.path("state/agentd.db"))
        .unwrap();
    db.set_modified(ahead).unwrap();
    let told = doctor(&place, &[]);
    assert_eq!(told.only("clock")["verdict"], "warning");
}

/// A `systemctl` that says what a real one would.
fn service_manager(place: &Place, units: &str, path: &str) {
    let script = format!(
        "case \"$*\" in\n*show-environment*) echo 'PATH={path}' ;;\n*) /bin/cat <<'END'\n{units}\nEND\n;;\nesac"
    );
    program(&place.path("bin"), "systemctl", &script);
}

#[test]
fn doctor_tells_the_service_and_its_path() {
    let place = used();
    assert!(
        doctor(&place, &[]).only("service")["found"]
            .as_str()
            .unwrap()
            .contains("no service manager")
    );
    let unit = |active: &str| {
        format!(
            "Id=agentd.service\nLoadState=loaded\nActiveState={active}\nUnitFileState=enabled\nResult=exit-code\nEnvironment=\n\nId=agentd.socket\nActiveState=inactive"
        )
    };
    // An agent that the shell finds, and the service doesn't.
    program(&place.path("bin"), "pi", "");
    for (active, verdict) in [
        ("failed", "problem"),
        ("inactive", "warning"),
        ("active", "ok"),
    ] {
        service_manager(&place, &unit(active), "/nowhere");
        let told = doctor(&place, &[]);
        assert_eq!(
            told.only("service")["verdict"],
            verdict,
            "{active}: {}",
            told.text
        );
        assert!(
            told.only("path")["found"]
                .as_str()
                .unwrap()
                .contains("`pi`"),
            "{}",
            told.text
        );
    }
    let here = place.path("bin");
    service_manager(&place, &unit("active"), here.to_str().unwrap());
    assert!(doctor(&place, &[]).of("path").is_empty());
    service_manager(
        &place,
        "Id=agentd.service\nLoadState=not-found\nActiveState=inactive",
        "/nowhere",
    );
    let told = doctor(&place, &[]);
    assert!(
        told.only("service")["found"]
            .as_str()
            .unwrap()
            .contains("not installed"),
        "{}",
        told.text
    );
    assert!(told.of("path").is_empty(), "{}", told.text);
}

#[test]
fn doctor_names_a_key_that_the_service_lacks() {
    let place = Place::new(
        "[agents.x]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\npass_env = [\"X_API_KEY\"]\n",
    );
    let keys = |service: &[&str]| -> Vec<String> {
        let mut command = place.command(crate::support::AGENTD);
        command
            .arg("doctor")
            .args(service)
            .env("X_API_KEY", "s3cret");
        let said = finish(command, b"");
        assert!(!said.stdout.contains("s3cret"), "{said:?}");
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let of_keys = findings.iter().filter(|finding| finding["check"] == "keys");
        of_keys
            .map(|finding| finding["found"].to_string())
            .collect()
    };
    assert!(keys(&[])[0].contains("X_API_KEY (this shell's"));
    let with = ["--service-variables", "PATH,X_API_KEY"];
    assert!(keys(&with)[0].contains("X_API_KEY (this shell's"));
    let without = keys(&["--service-variables", "PATH,HOME"]);
    assert!(
        without[0].contains("`X_API_KEY` is set in this shell only"),
        "{without:?}"
    );
}

#[test]
fn why_the_daemons_program_fails_is_the_finding() {
    let place = Place::new("");
    let mut command = place.command(AGENTCTL);
    command
        .args(["doctor", "--json"])
        .env("PATH", place.path("bin"));
    command.env_remove("HOME").env_remove("AGENTD_STATE_DIR");
    let told = told(finish(command, b""));
    let found = told.only("program")["found"].to_string();
    assert!(found.contains("`HOME` is not set"), "{found}");
}

#[test]
fn doctor_knows_configuration_of_others() {
    let place = Place::new(&Daemon::config(""));
    let config = place.path("config.toml");
    // Others get to it, and may write it.
    set_mode(place.dir.path(), 0o755);
    set_mode(&config, 0o666);
    let refused = place.agentctl(&["send", "hi"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    let hint = format!("chmod go-w {}", config.display());
    assert!(refused.stderr.contains(&hint), "{refused:?}");
    let told = doctor(&place, &[]);
    let found = told.only("config").to_string();
    assert!(found.contains("0666") && found.contains(&hint), "{found}");
    set_mode(&config, 0o644);
    assert_eq!(place.agentctl(&["send", "hi"]).stdout, "hi\n");
}

#[test]
fn doctor_shows_what_the_sandbox_holds() {
    let place = Place::new("");
    let here = doctor(&place, &[]);
    let found = here.only("sandbox")["found"].as_str().unwrap().to_owned();
    // A machine without any says that; nothing is held back on one that has one.
    assert!(found.contains("timmy's commands"), "{found}");
    let as_on = |version: &str| {
        let mut command = place.command(AGENTCTL);
        command.args(["doctor", "--json"]);
        command.env("AGENTD_TEST_LANDLOCK", version);
        let told = told(finish(command, b""));
        let finding = told.only("sandbox").clone();
        let found = finding["found"].as_str().unwrap().to_owned();
        (finding["verdict"].clone(), found)
    };
    let (verdict, found) = as_on("2");
    assert_eq!(verdict, "warning");
    assert!(found.contains("run without one"), "{found}");
    if here.only("sandbox")["found"]
        .as_str()
        .unwrap()
        .contains("run without one")
    {
        return skipped("a sandbox");
    }
    let (verdict, found) = as_on("5");
    assert_eq!(verdict, "warning");
    let expected = ["signal nobody", "see the arguments of all processes"];
    assert!(expected.iter().all(|word| found.contains(word)), "{found}");
}

#[test]
fn doctor_says_when_the_next_backup_comes() {
    let daemon = Daemon::start();
    assert!(doctor(&daemon.place, &[]).of("backups").is_empty());
    let planned = daemon.agentctl(&["backup", "--every", "1d", "--keep", "3"]);
    assert_eq!(planned.code, Some(0), "{planned:?}");
    let told = doctor(&daemon.place, &[]);
    let found = told.only("backups");
    assert_eq!(found["verdict"], "ok", "{found}");
    let found = found["found"].as_str().unwrap();
    assert!(
        found.starts_with("each 1 d, 3 are kept: the last "),
        "{found}"
    );
    assert!(found.contains(", the next is due in "), "{found}");
}
