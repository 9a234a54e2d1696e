//! Hermes' own terminal interface, as it is published, on `agentctl serve gateway` and on `/api/ws`.
//!
//! Owns what is typed and shown there, with timmy and with any other agent behind it.
//! `packaging/ci/install-acp.sh hermes` puts it where this test looks.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use serde_json::json;

use crate::agents::{Asks, Driven, Scene, WORK, is_wanted};
use crate::http::Http;
use crate::mock_model::MockModel;
use crate::screen::Terminal;
use crate::support::{
    AGENTCTL, DEADLINE, Daemon, Place, Reaped, finish, needs, poll, skipped, wait_for,
};
use crate::timmy;

/// Its program.
fn installed() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/acp");
    let dir = std::env::var_os("AGENTD_TEST_ACP_DIR").map_or(dir, PathBuf::from);
    let pythons = std::fs::read_dir(dir.join("hermes/venv/lib"));
    let entry = pythons.into_iter().flatten().flatten().find_map(|python| {
        let entry = python
            .path()
            .join("site-packages/hermes_cli/tui_dist/entry.js");
        entry.is_file().then_some(entry)
    });
    // On most runs it is not installed.
    let may_miss = std::env::var_os("AGENTD_TEST_NEEDS").is_some() && !is_wanted("hermes");
    if entry.is_none() && !may_miss {
        skipped("hermes (packaging/ci/install-acp.sh hermes)");
    }
    entry
}

/// How the interface comes to its gateway.
enum Way<'a> {
    /// It starts a link to ours as its Python.
    Pipes,
    /// It is given the address of a server.
    Socket(&'a Http),
}

/// What the interface is told of its gateway and where it works.
fn environment(
    daemon: &Daemon,
    way: &Way,
    cwd: &Path,
    resumes: &str,
) -> [(&'static str, OsString); 6] {
    let way = match way {
        Way::Pipes => {
            let link = daemon.path("hermes-gateway");
            if !link.exists() {
                std::os::unix::fs::symlink(AGENTCTL, &link).unwrap();
            }
            ("HERMES_PYTHON", link.into())
        }
        Way::Socket(http) => {
            let (at, token) = (http.at, &http.token);
            let url = format!("ws://{at}/api/ws?token={token}&cwd={}", cwd.display());
            ("HERMES_TUI_GATEWAY_URL", url.into())
        }
    };
    [
        way,
        ("TERM", "xterm-256color".into()),
        ("HERMES_PYTHON_SRC_ROOT", daemon.path("home").into()),
        ("HERMES_CWD", cwd.into()),
        ("HERMES_HOME", daemon.path("home/.hermes").into()),
        ("HERMES_TUI_RESUME", resumes.into()),
    ]
}

/// The interface at a terminal.
fn interface(daemon: &Daemon, node: &Path, entry: &Path, resumes: &str) -> (Terminal, Reaped) {
    let size = Winsize {
        ws_row: 40,
        ws_col: 130,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    let slave = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = daemon.place.command(node);
    command
        .arg(entry)
        .envs(environment(
            daemon,
            &Way::Pipes,
            &daemon.path("home"),
            resumes,
        ))
        .stdin(slave())
        .stdout(slave())
        .stderr(slave());
    let child = Reaped(command.spawn().unwrap());
    (Terminal::new(File::from(pty.master), pty.slave), child)
}

/// Types a line, and enters it once it is shown.
fn enter(terminal: &mut Terminal, line: &str) {
    terminal.type_in(line);
    terminal.until(line.split_whitespace().last().unwrap());
    terminal.type_in("\r");
}

/// Waits until the first session has so many turns, and none runs.
fn ended(daemon: &Daemon, count: u64) -> String {
    daemon.until("the turns have ended", |_| {
        let rows = daemon.ask(r#"{"type":"session.list"}"#).remove(0);
        let rows = rows["sessions"].as_array().unwrap().clone();
        let row = rows
            .iter()
            .min_by_key(|row| row["created_at"].to_string())?;
        let is_done = row["turns"] == count && row["state"] == "idle";
        is_done.then(|| row["session"].as_str().unwrap().to_owned())
    })
}

#[test]
fn gateway_tui_of_hermes_runs_unchanged() {
    let (Some(entry), Some(node)) = (installed(), needs("node")) else {
        return;
    };
    let model = MockModel::start();
    let daemon = timmy::daemon(&model, "");
    let (mut terminal, mut child) = interface(&daemon, &node, &entry, "");
    terminal.until("ready");
    enter(&mut terminal, "hello-there");
    terminal.until("echo:");
    // It asks leave, on the terminal.
    let file = daemon.path("made-outside");
    let wanted =
        json!({"command": format!("touch {}", file.display()), "outside": true, "reason": "test"});
    enter(&mut terminal, &format!("[[use bash {wanted}]]"));
    terminal.until("approval required");
    terminal.type_in("1");
    wait_for("the command was allowed", || file.exists().then_some(()));
    ended(&daemon, 2);
    enter(&mut terminal, "[[hang]]");
    terminal.until("hanging");
    terminal.type_in("\u{3}");
    terminal.until("interrupted");
    let session = ended(&daemon, 3);
    wait_for("it leaves", || {
        // One is not taken while it shows that a turn was interrupted.
        terminal.type_in("\u{4}");
        poll(Duration::from_secs(1), || child.0.try_wait().unwrap())
    });
    // The next one finds what was said.
    let (mut terminal, _child) = interface(&daemon, &node, &entry, &session);
    terminal.until("hello-there");
    terminal.until("made-outside");
}

#[test]
fn gateway_tui_of_hermes_answers_a_choice() {
    let (Some(entry), Some(node)) = (installed(), needs("node")) else {
        return;
    };
    let config = Daemon::config("").replacen("\"timmy\"", "\"chaos\"", 1);
    let place = Place::new(&config);
    let daemon = place.start();
    let (mut terminal, _child) = interface(&daemon, &node, &entry, "");
    terminal.until("ready");
    enter(&mut terminal, "chaos:ask choice");
    terminal.until("right");
    terminal.type_in("2");
    let job = daemon.until("the turn has ended", |_| {
        let row = daemon.ask(r#"{"type":"jobs"}"#).remove(0)["jobs"][0].clone();
        (row["state"] == "completed").then_some(row)
    });
    assert_eq!(job["job"], "j1");
    let collect = daemon.ask(r#"{"type":"collect","jobs":["j1"]}"#).remove(0);
    assert_eq!(
        collect["results"][0]["text"], "choice=\"right\"",
        "{collect}"
    );
}

/// The interface in tmux, which knows what is on the screen: it draws only what has changed.
struct Screen<'a> {
    daemon: &'a Daemon,
    socket: PathBuf,
}

impl<'a> Screen<'a> {
    fn open(
        daemon: &'a Daemon,
        program: &str,
        name: &str,
        environment: [(&'static str, OsString); 6],
    ) -> Self {
        let socket = daemon.path(name);
        let screen = Self { daemon, socket };
        let size = ["-x", "130", "-y", "60"];
        let words = [&["new-session", "-d"], &size[..], &[program]].concat();
        let begun = finish(screen.tmux(&words, &environment), b"");
        assert_eq!(begun.code, Some(0), "{begun:?}");
        screen
    }

    fn tmux(&self, words: &[&str], environment: &[(&'static str, OsString)]) -> Command {
        let mut command = self.daemon.place.command("tmux");
        command
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.socket);
        command.args(words).env("LC_ALL", "C.UTF-8");
        command.envs(environment.iter().cloned());
        command
    }

    fn key(&self, words: &[&str]) {
        let words = [&["send-keys"], words].concat();
        assert_eq!(finish(self.tmux(&words, &[]), b"").code, Some(0));
    }

    fn now(&self) -> String {
        finish(self.tmux(&["capture-pane", "-p"], &[]), b"").stdout
    }

    /// Waits until the screen is so.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let found = poll(DEADLINE, || is_so(&self.now()).then_some(()));
        assert!(found.is_some(), "not {what}:\n{}", self.now());
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        self.until(text, |screen| screen.contains(text));
    }

    /// Types a line where prompts are typed, and enters it.
    #[track_caller]
    fn enter(&self, line: &str) {
        let typed = |screen: &str| {
            let row = screen.lines().rfind(|row| row.contains('❯'));
            row.is_some_and(|row| row.contains(line))
        };
        self.key(&["-l", line]);
        self.until("typed", typed);
        self.key(&["Enter"]);
        self.until("entered", |screen| !typed(screen));
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _gone = finish(self.tmux(&["kill-server"], &[]), b"");
    }
}

/// A real agent over a WebSocket: talk, a tool, another model, an interrupt, a second session and the
/// way back, and who comes later.
pub fn chats(driven: &Driven) {
    let (Some(entry), Some(node)) = (installed(), needs("node")) else {
        return;
    };
    if needs("tmux").is_none() {
        return;
    }
    let scene = Scene::of(driven, "");
    let http = Http::start(&scene.daemon.place);
    let (daemon, work) = (&scene.daemon, scene.daemon.path(WORK));
    let program = format!("exec {} {}", node.display(), entry.display());
    let open = |name: &str, resumes: &str| {
        let told = environment(daemon, &Way::Socket(&http), &work, resumes);
        Screen::open(daemon, &program, name, told)
    };
    let screen = open("tmux", "");
    screen.shows("─ ready");
    screen.enter("[[deltas=5]]");
    screen.shows("w0 w1 w2 w3 w4");
    let file = scene.work("made");
    screen.enter(&format!("[[bash=touch {}]]", file.display()));
    if driven.can.asks == Asks::Always {
        screen.shows("approval required");
        screen.key(&["1"]);
    }
    screen.shows("tool said");
    assert!(file.exists(), "{}", driven.label);
    ended(daemon, 2);
    let (_, other) = driven.can.models[1];
    screen.enter(&format!("/model {other}"));
    screen.shows("model →");
    screen.enter("which-are-you");
    screen.shows("echo: which-are-you");
    let asked = scene.model.asked();
    let of_it = |last: &String| last.contains("which-are-you");
    let models = asked
        .iter()
        .filter(|asked| asked.users.last().is_some_and(of_it));
    let models: Vec<&str> = models.map(|asked| asked.model.as_str()).collect();
    assert!(models.contains(&other), "{}: {models:?}", driven.label);
    screen.enter("[[hang]]");
    screen.shows("hanging");
    screen.key(&["C-c"]);
    screen.shows("[interrupted]");
    let first = ended(daemon, 4);
    // The switcher: a new one, and back.
    screen.key(&["C-x"]);
    screen.shows("1 live · 0 resumable");
    screen.key(&["C-n"]);
    screen.shows("new live session started");
    screen.shows("─ ready");
    screen.enter("[[deltas=8]]");
    screen.shows("w6 w7");
    screen.key(&["C-x"]);
    screen.shows("▸  2.  current");
    screen.key(&["Up"]);
    screen.shows("▸  1.");
    screen.key(&["Enter"]);
    screen.shows("echo: which-are-you");
    assert!(!screen.now().contains("w6 w7"), "{}", screen.now());
    // Whoever comes later finds what was said.
    open("later", &first).shows("echo: which-are-you");
}
