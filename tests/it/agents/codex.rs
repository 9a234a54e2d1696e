//! Codex, by its app-server.
//!
//! `packaging/ci/install-codex.sh` puts it where these tests look.

use std::path::{Path, PathBuf};

use super::{Can, Driven};
use crate::mock_model::MockModel;
use crate::support::{Place, skipped};

fn installed() -> Vec<Driven> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/codex");
    let dir = std::env::var_os("AGENTD_TEST_CODEX_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join("bin/codex");
    if !program.is_file() {
        let dir = dir.display();
        skipped(&format!("codex in {dir} (packaging/ci/install-codex.sh)"));
        return Vec::new();
    }
    vec![Driven {
        label: program.display().to_string(),
        program,
        configure,
        can: Can {
            tool: "commandExecution",
            asks: true,
            denied: "rejected by user",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: "context-overflow",
            models: [(Some("mock"), "mock-1"), (Some("mock"), "mock-2")],
        },
    }]
}

/// The user's policy is to be asked. Its sandbox is read-only, and each command that the model runs
/// is one outside it: the sandbox itself needs more than every test machine has.
fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let dir = place.path("codex");
    std::fs::create_dir(&dir).unwrap();
    let config = format!(
        r#"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.mock]
name = "mock"
base_url = "{}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"#,
        model.url
    );
    std::fs::write(dir.join("config.toml"), config).unwrap();
    let program = &driven.program;
    format!(
        "[agents.it]\nkind = \"codex\"\ncommand = [{program:?}]\nprovider = \"mock\"\nmodel = \"mock-1\"\nenv = {{ CODEX_HOME = {dir:?} }}\n"
    )
}

suite!();
