//! Other people's programs with agentd as their MCP server, against the model on loopback.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::agents::{claude, codex};
use crate::http::Http;
use crate::mock_model::MockModel;
use crate::support::{AGENTCTL, DEADLINE, Daemon, Finished, finish_within, skipped};

/// An agent to be asked, which says where it runs.
fn daemon() -> Daemon {
    Daemon::with("[agents.where]\nkind = \"exec\"\ncommand = [\"/bin/pwd\"]\n")
}

fn face(daemon: &Daemon) -> Value {
    let socket = daemon.place.socket();
    json!({"command": AGENTCTL, "args": ["--socket", socket, "serve", "mcp"]})
}

/// The jobs, the newest first.
fn jobs(daemon: &Daemon) -> Vec<Value> {
    daemon.ask(r#"{"type":"jobs"}"#)[0]["jobs"]
        .as_array()
        .unwrap()
        .clone()
}

fn succeeded(done: &Finished) {
    assert_eq!(done.code, Some(0), "{done:#?}");
}

#[test]
fn mcp_claude_code_asks_other_agents() {
    let Some(program) = claude::program() else {
        return;
    };
    let (daemon, model) = (daemon(), MockModel::start());
    let dir = daemon.path("claude");
    std::fs::create_dir(&dir).unwrap();
    let servers = daemon.path("servers.json");
    let config = json!({"mcpServers": {"agentd": face(&daemon)}});
    std::fs::write(&servers, config.to_string()).unwrap();
    let ask = json!({"prompt": "hello from claude", "agent": "timmy"});
    let cases = [
        (
            format!("[[use mcp__agentd__ask {ask} ]]"),
            "hello from claude",
        ),
        (
            r#"[[use mcp__agentd__ask {"prompt":"x","agent":"where"} ]]"#.to_owned(),
            "\"state\":\"completed\"",
        ),
        (
            r#"[[use mcp__agentd__ask {"prompt":"x","agent":"tmmy"} ]]"#.to_owned(),
            "did you mean `timmy`",
        ),
        // Nobody is there whom it could ask, which it says at once.
        (
            r#"[[use mcp__agentd__ask {"prompt":"chaos:ask approval","agent":"chaos"} ]]"#
                .to_owned(),
            "approve=false",
        ),
    ];
    for (prompt, said) in cases {
        let mut command = daemon.place.command(&program);
        command
            .env("ANTHROPIC_BASE_URL", &model.base)
            .env("ANTHROPIC_API_KEY", "none")
            .env("ANTHROPIC_MODEL", "mock-1")
            .env("CLAUDE_CONFIG_DIR", &dir)
            .env("CLAUDE_CODE_MAX_RETRIES", "0")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_ERROR_REPORTING", "1")
            .env("ENABLE_TOOL_SEARCH", "false")
            .args([
                "-p",
                "--strict-mcp-config",
                "--allowedTools",
                "mcp__agentd__ask",
            ])
            .arg("--mcp-config")
            .arg(&servers)
            .args(["--", &prompt]);
        let done = finish_within(4 * DEADLINE, command, b"");
        succeeded(&done);
        assert!(
            done.stdout.contains(said),
            "{done:#?}\n{:#?}",
            model.asked().last()
        );
    }
    let all = jobs(&daemon);
    assert_eq!(all.len(), 3, "{all:#?}");
    assert_eq!(
        all[0]["labels"],
        json!({"via": "mcp", "client": "claude-code"}),
        "{all:#?}"
    );
    let home = daemon.path("home").canonicalize().unwrap();
    let text = daemon.ask(r#"{"type":"collect","jobs":["j2"]}"#)[0]["results"][0]["text"].clone();
    assert_eq!(text.as_str().unwrap().trim(), home.to_str().unwrap());
}

#[test]
fn mcp_codex_asks_other_agents() {
    let Some(program) = codex::program() else {
        return;
    };
    let (daemon, model) = (daemon(), MockModel::start());
    let dir = daemon.path("codex");
    std::fs::create_dir(&dir).unwrap();
    let face = face(&daemon);
    let more = format!(
        "[mcp_servers.agentd]\ncommand = {}\nargs = {}\ndefault_tools_approval_mode = \"approve\"\n",
        face["command"], face["args"]
    );
    let config = format!(
        "model = \"mock-1\"\nmodel_provider = \"mock\"\n{}{more}",
        codex::config(&model)
    );
    std::fs::write(dir.join("config.toml"), config).unwrap();
    let ask = json!({"prompt": "hello from codex", "agent": "timmy"});
    let mut command = daemon.place.command(&program);
    command
        .env("CODEX_HOME", &dir)
        .args(["exec", "--skip-git-repo-check"])
        .arg(format!("[[use mcp__agentd__ask {ask} ]]"));
    let done = finish_within(4 * DEADLINE, command, b"");
    succeeded(&done);
    let all = jobs(&daemon);
    assert_eq!(all.len(), 1, "{done:#?}\n{:#?}", model.asked().last());
    assert_eq!(all[0]["labels"]["client"], "codex-mcp-client", "{all:#?}");
    let heard = model
        .asked()
        .last()
        .and_then(|asked| asked.tool_result.clone());
    assert!(
        heard.unwrap().contains("\"text\":\"hello from codex\""),
        "{done:#?}"
    );
}

/// The inspector's command line, if it is installed; a missing one is said loudly.
fn inspector() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/mcp");
    let dir = std::env::var_os("AGENTD_TEST_MCP_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join("inspector/bin/inspector");
    if program.is_file() {
        return Some(program);
    }
    skipped(&format!(
        "the MCP inspector in {} (packaging/ci/install-mcp.sh)",
        dir.display()
    ));
    None
}

#[test]
fn mcp_inspector_lists_and_calls() {
    let Some(program) = inspector() else {
        return;
    };
    let daemon = daemon();
    let http = Http::start(&daemon.place);
    let (page, token) = (
        format!("http://{}/mcp", http.at),
        format!("Authorization: Bearer {}", http.token),
    );
    let socket = daemon.place.socket();
    let places: [&[&str]; 2] = [
        &[
            AGENTCTL,
            "--socket",
            socket.to_str().unwrap(),
            "serve",
            "mcp",
        ],
        &[&page, "--transport", "http", "--header", &token],
    ];
    for place in places {
        let inspect = |more: &[&str]| {
            let mut command: Command = daemon.place.command(&program);
            command.arg("--cli").args(place).args(more);
            let done = finish_within(4 * DEADLINE, command, b"");
            succeeded(&done);
            // It looks at the schemas, too.
            assert!(!done.stderr.contains("Warning"), "{done:#?}");
            let found = serde_json::from_str(&done.stdout);
            found.unwrap_or_else(|why| panic!("{why}: {done:#?}"))
        };
        let list: Value = inspect(&["--method", "tools/list", "--strict"]);
        assert_eq!(list["tools"].as_array().unwrap().len(), 9, "{list:#}");
        let ask = ["--tool-name", "ask", "--tool-arg", "prompt=hello"];
        let said: Value = inspect(&[&["--method", "tools/call"][..], &ask].concat());
        assert_eq!(said["structuredContent"]["text"], "hello", "{said:#}");
    }
}
