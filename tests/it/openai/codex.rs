//! Codex with us as its provider: an agent behind another one.

use std::path::{Path, PathBuf};

use crate::http::{Http, jobs};
use crate::support::{DEADLINE, Daemon, Finished, finish_within, skipped};

/// Where `packaging/ci/install-codex.sh` puts it.
fn installed() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/codex");
    let dir = std::env::var_os("AGENTD_TEST_CODEX_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join("bin/codex");
    if program.is_file() {
        return Some(program);
    }
    skipped("codex (packaging/ci/install-codex.sh)");
    None
}

/// What Codex makes of a prompt.
fn exec(program: &Path, daemon: &Daemon, http: &Http, prompt: &str) -> Finished {
    let home = daemon.path("codex-home");
    std::fs::create_dir_all(&home).unwrap();
    // As the book has it. It asks again by itself, as often as it always does.
    let config = format!(
        "model_provider = \"agentd\"\nmodel = \"timmy\"\ncheck_for_update_on_startup = false\n\
         [analytics]\nenabled = false\n\
         [model_providers.agentd]\nname = \"agentd\"\nbase_url = \"http://{}/v1\"\n\
         wire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n",
        http.at
    );
    std::fs::write(home.join("config.toml"), config).unwrap();
    let mut command = daemon.place.command(program);
    command
        .args(["exec", "--skip-git-repo-check", "--json", prompt])
        .env("CODEX_HOME", &home)
        .env("OPENAI_API_KEY", &http.token);
    finish_within(4 * DEADLINE, command, b"")
}

#[test]
fn openai_codex_has_an_agent_as_its_model() {
    let Some(program) = installed() else {
        return;
    };
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    let done = exec(&program, &daemon, &http, "[[tool ls]] greetings");
    assert_eq!(done.code, Some(0), "{done:?}");
    let said = |line: &str| line.contains("agent_message") && line.contains("greetings");
    assert!(done.stdout.lines().any(said), "{done:?}");
    assert_eq!(jobs(&daemon), 1, "{done:?}");
}

#[test]
fn openai_codex_pays_a_failure_once() {
    let Some(program) = installed() else {
        return;
    };
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    let done = exec(&program, &daemon, &http, "[[error=agent-failed]]");
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("agent-failed"), "{done:?}");
    assert_eq!(jobs(&daemon), 1, "{done:?}");
}
