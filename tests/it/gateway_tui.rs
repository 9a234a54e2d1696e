//! Hermes' own terminal interface, as it is published, on `agentctl serve gateway`.
//!
//! `packaging/ci/install-acp.sh hermes` puts it where this test looks.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use serde_json::json;

use crate::agents::is_wanted;
use crate::mock_model::MockModel;
use crate::screen::Terminal;
use crate::support::{AGENTCTL, Daemon, Reaped, needs, poll, skipped, wait_for};
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

/// The interface at a terminal, with a link to ours as its Python.
fn interface(daemon: &Daemon, node: &Path, entry: &Path, resumes: &str) -> (Terminal, Reaped) {
    let link = daemon.path("hermes-gateway");
    if !link.exists() {
        std::os::unix::fs::symlink(AGENTCTL, &link).unwrap();
    }
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
        .env("TERM", "xterm-256color")
        .env("HERMES_PYTHON", link)
        .env("HERMES_PYTHON_SRC_ROOT", daemon.path("home"))
        .env("HERMES_CWD", daemon.path("home"))
        .env("HERMES_HOME", daemon.path("home/.hermes"))
        .env("HERMES_TUI_RESUME", resumes)
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
    let ended = |count: u64| {
        daemon.until("the turns have ended", |_| {
            let row = daemon.ask(r#"{"type":"session.list"}"#).remove(0)["sessions"][0].clone();
            (row["turns"] == count && row["state"] == "idle").then(|| row["session"].clone())
        })
    };
    ended(2);
    enter(&mut terminal, "[[hang]]");
    terminal.until("hanging");
    terminal.type_in("\u{3}");
    terminal.until("interrupted");
    let session = ended(3);
    wait_for("it leaves", || {
        // One is not taken while it shows that a turn was interrupted.
        terminal.type_in("\u{4}");
        poll(Duration::from_secs(1), || child.0.try_wait().unwrap())
    });
    // The next one finds what was said.
    let (mut terminal, _child) = interface(&daemon, &node, &entry, session.as_str().unwrap());
    terminal.until("hello-there");
    terminal.until("made-outside");
}
