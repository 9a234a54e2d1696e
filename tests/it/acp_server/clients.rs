//! Real clients of others: the protocol's TypeScript SDK, and acpx.
//!
//! `packaging/ci/install-acp-clients.sh` puts them where these tests look.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{AGENTCTL, DEADLINE, Daemon, Finished, finish_within, skipped};

/// Where they are; a loud skip where they are not.
fn installed() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/acp-clients");
    let dir = std::env::var_os("AGENTD_TEST_ACP_CLIENTS_DIR").map_or(dir, PathBuf::from);
    let is_there = dir.join("version").is_file();
    if !is_there {
        skipped("acpx and the SDK of ACP (packaging/ci/install-acp-clients.sh)");
    }
    is_there.then_some(dir)
}

#[test]
fn acp_sdk_of_typescript_takes_every_line() {
    let Some(dir) = installed() else { return };
    let daemon = Daemon::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/acp_server/editor.mjs");
    let mut command = daemon.place.command(dir.join("bin/node"));
    command
        .arg(script)
        .arg(&dir)
        .arg(daemon.path("home"))
        .args([AGENTCTL, "serve", "acp", "--agent", "chaos"]);
    let finished = finish_within(4 * DEADLINE, command, b"");
    let told: Value = serde_json::from_str(finished.stdout.trim())
        .unwrap_or_else(|why| panic!("{why}: {finished:#?}"));
    assert_eq!(told["invalid"], json!([]), "{told:#}");
    assert!(told["checked"].as_u64() > Some(40), "{told:#}");
    for (name, expected) in [
        ("agent", json!("agentd")),
        ("options", json!(["agent"])),
        ("turn", json!("end_turn")),
        ("said", json!("one")),
        ("once", json!("approve=true")),
        ("reject", json!("approve=false")),
        ("cancelled", json!(["cancelled", "cancelled"])),
        ("both", json!([["end_turn", "end_turn"], "ab"])),
        ("failed", json!([-32603, "worker-exited"])),
        ("unknown", json!(-32002)),
        ("method", json!(-32601)),
        ("option", json!(-32602)),
        ("loaded", json!("oneapprove=trueapprove=falsehalfab")),
        ("listed", json!([true])),
        ("code", json!(0)),
    ] {
        assert_eq!(told[name], expected, "{name}: {told:#}");
    }
    for kind in [
        "agent_message_chunk",
        "notice",
        "tool_call",
        "tool_call_update",
        "user_message_chunk",
    ] {
        let kinds = told["kinds"].as_array().unwrap();
        assert!(kinds.contains(&json!(kind)), "{kind}: {told:#}");
    }
}

/// acpx, where it is installed.
pub struct Acpx(PathBuf);

impl Acpx {
    pub fn installed() -> Option<Self> {
        installed().map(Self)
    }

    /// Runs it with the face as its agent, which has this agent behind it.
    pub fn run(&self, daemon: &Daemon, agent: &str, cwd: &Path, words: &[&str]) -> Finished {
        let mut command: Command = daemon.place.command(self.0.join("bin/acpx"));
        command
            .args(["--agent", &format!("{AGENTCTL} serve acp --agent {agent}")])
            .args(["--cwd", cwd.to_str().unwrap()])
            // Longer than a command takes: a next one that finds its queue about to end fails.
            .args(["--ttl", "4"])
            .args(words);
        finish_within(4 * DEADLINE, command, b"")
    }
}

#[test]
fn acp_client_acpx_works_in_a_session() {
    let Some(acpx) = Acpx::installed() else {
        return;
    };
    let daemon = Daemon::start();
    let home = daemon.path("home");
    // Its process that keeps the agent counts what was ever approved there: one that began anew says
    // that all was denied.
    let may_be_denied = |code: Option<i32>, words: &[&str]| {
        code == Some(0) || (code == Some(5) && words[0] == "--deny-all")
    };
    let says = |words: &[&str], part: &str| {
        let finished = acpx.run(&daemon, "chaos", &home, words);
        let said = &finished.stdout;
        assert!(
            may_be_denied(finished.code, words) && said.contains(part),
            "{words:?}: {finished:#?}"
        );
    };
    says(&["sessions", "new"], "");
    says(&["chaos:say one;tool rw"], "one");
    says(&["--approve-all", "chaos:ask approval"], "approve=true");
    says(&["--deny-all", "chaos:ask approval"], "approve=false");
    says(&["chaos:count"], "4");
    says(&["exec", "chaos:say apart"], "apart");
    let jobs = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
    let jobs = jobs["jobs"].as_array().unwrap();
    let mut sessions: Vec<&str> = jobs
        .iter()
        .map(|job| job["session"].as_str().unwrap())
        .collect();
    sessions.dedup();
    assert_eq!(sessions.len(), 2, "{jobs:#?}");
    says(&["sessions", "close"], "");
    let failed = acpx.run(&daemon, "chaos", &home, &["exec", "chaos:exit 9"]);
    assert_ne!(failed.code, Some(0), "{failed:#?}");
}
