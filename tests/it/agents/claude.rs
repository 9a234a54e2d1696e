//! Claude Code.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Can, Driven};
use crate::mock_model::MockModel;
use crate::support::{Place, skipped};

const VERSION: &str = "2.1.329";

/// The program, if it is installed; a missing one is said loudly.
fn installed() -> Vec<Driven> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/claude");
    let dir = std::env::var_os("AGENTD_TEST_CLAUDE_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join(format!("claude-{VERSION}/bin/claude"));
    if !program.is_file() {
        let dir = dir.display();
        skipped(&format!(
            "Claude Code {VERSION} in {dir} (packaging/ci/install-claude.sh)"
        ));
        return Vec::new();
    }
    vec![Driven {
        label: format!("Claude Code {VERSION}"),
        program,
        configure,
        can: Can {
            tool: "Bash",
            asks: true,
            denied: "The user did not allow this",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: "context-overflow",
            models: [(None, "mock-1"), (None, "mock-2")],
        },
    }]
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let dir = place.path("claude");
    std::fs::create_dir(&dir).unwrap();
    // It runs commands that only read without a question.
    let settings = json!({"permissions": {"ask": ["Bash"]}});
    std::fs::write(dir.join("settings.json"), settings.to_string()).unwrap();
    let (program, base) = (&driven.program, &model.base);
    format!(
        "[agents.it]\nkind = \"claude\"\ncommand = [{program:?}]\nmodel = \"mock-1\"\nenv = {{ \
         ANTHROPIC_BASE_URL = {base:?}, ANTHROPIC_API_KEY = \"none\", CLAUDE_CONFIG_DIR = {dir:?}, \
         HOME = {dir:?}, CLAUDE_CODE_MAX_RETRIES = \"0\", DISABLE_TELEMETRY = \"1\", \
         DISABLE_ERROR_REPORTING = \"1\" }}\n"
    )
}

suite!();
