//! Agents that speak the Agent Client Protocol: Gemini CLI, opencode, Hermes, and Claude Code and
//! Codex by their adapters.
//!
//! `packaging/ci/install-acp.sh` puts them where these tests look.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Asks, Can, Driven, Scene, Turns, is_wanted};
use crate::mock_model::MockModel;
use crate::support::{DEADLINE, Place, skipped};

/// A turn of those that take seconds of a core to start, on a busy machine.
const HEAVY: Duration = Duration::from_secs(90);

/// An agent that is installed. Which ones have to be is in `.ci/agents`.
fn installed(
    name: &str,
    configure: fn(&Driven, &Place, &MockModel) -> String,
    can: Can,
) -> Vec<Driven> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/acp");
    let dir = std::env::var_os("AGENTD_TEST_ACP_DIR").map_or(dir, PathBuf::from);
    let program = dir.join(name).join("bin").join(name);
    if !program.is_file() {
        if is_wanted(name) {
            let program = program.display();
            skipped(&format!("{program} (packaging/ci/install-acp.sh {name})"));
        }
        return Vec::new();
    }
    let label = program.display().to_string();
    vec![Driven {
        label,
        program,
        configure,
        can,
    }]
}

/// A home of the agent's own, with one file in it.
fn home(place: &Place, file: &str, text: &str) -> PathBuf {
    let home = place.path("home");
    let file = home.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
    home
}

fn table(program: &Path, arguments: &[&str], model: &str, env: &[(&str, &str)]) -> String {
    let command: Vec<&str> = [program.to_str().unwrap()]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name} = {value:?}"))
        .collect();
    format!(
        "[agents.it]\nkind = \"acp\"\ncommand = {command:?}\nmodel = {model:?}\nenv = {{ {} }}\n",
        env.join(", ")
    )
}

mod gemini {
    use super::*;

    fn installed() -> Vec<Driven> {
        let can = Can {
            turns: Turns::InOneProcess,
            tool: Some("execute"),
            asks: Asks::Always,
            denied: "canceled by the user",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: Some("context-overflow"),
            keeps_young: false,
            told: &[],
            stops: &[("[[full]]", "end_turn"), ("[[refuse=finish]]", "end_turn")],
            attached: &["pixel.png", "notes.txt"],
            hears_of_tools: "tides_low_water",
            models: [(None, "gemini-2.5-flash"), (None, "gemini-2.5-pro")],
            switches: false,
            mode: Some(("plan", "Active Approval Mode: Plan")),
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: DEADLINE,
        };
        super::installed("gemini", configure, can)
    }

    fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
        let settings = json!({
            "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 1,
                // 0.61.0 begins with removing what it takes for broken: that is every session reopened once.
                "sessionRetention": {"enabled": false}},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            // With a terminal of its own for each command it doesn't tell what the command printed.
            "tools": {"shell": {"enableInteractiveShell": false}},
        });
        let home = home(place, ".gemini/settings.json", &settings.to_string());
        // By itself it runs what it takes for harmless, such as `echo`.
        let policies = home.join(".gemini/policies");
        std::fs::create_dir(&policies).unwrap();
        let rule =
            "[[rule]]\ntoolName = \"run_shell_command\"\ndecision = \"ask_user\"\npriority = 900\n";
        std::fs::write(policies.join("ask.toml"), rule).unwrap();
        let cache = driven.program.ancestors().nth(3).unwrap().join("cache");
        let env = [
            ("HOME", home.to_str().unwrap()),
            ("GEMINI_API_KEY", "none"),
            ("GOOGLE_GEMINI_BASE_URL", &model.base),
            // It would start itself again with other limits of memory.
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
            // It starts MCP servers only in a folder that its user trusts.
            ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ("NODE_COMPILE_CACHE", cache.to_str().unwrap()),
        ];
        table(&driven.program, &["--acp"], "gemini-2.5-flash", &env)
    }

    suite!();

    /// 0.61.0 overwrites a session that is loaded in the minute in which it began: the file that it
    /// opens for the new process has the same name. Here that minute is long ago.
    #[test]
    fn an_older_session_goes_on_after_a_kill() {
        for driven in installed() {
            crate::agents::goes_on_after(&driven, age);
        }
    }

    fn age(scene: &Scene) {
        let projects = scene.daemon.path("home/.gemini/tmp");
        let chats = std::fs::read_dir(projects).unwrap();
        for chat in
            chats.filter_map(|project| project.unwrap().path().join("chats").read_dir().ok())
        {
            for file in chat {
                let file = file.unwrap();
                let name = file.file_name().into_string().unwrap();
                let older = |century: &u32| {
                    file.path()
                        .with_file_name(name.replace("-20", &format!("-{century}")))
                };
                let centuries = 10..20;
                let free = centuries
                    .map(|century| older(&century))
                    .find(|path| !path.exists());
                if name.starts_with("session-20") {
                    std::fs::rename(file.path(), free.unwrap()).unwrap();
                }
            }
        }
    }
}

mod opencode {
    use super::*;

    fn installed() -> Vec<Driven> {
        let can = Can {
            turns: Turns::InOneProcess,
            tool: Some("execute"),
            asks: Asks::Always,
            denied: "rejected permission",
            errors: &[(401, "agent-auth")],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[("[[full]]", "end_turn"), ("[[refuse=finish]]", "refusal")],
            attached: &["pixel.png", "notes.txt"],
            hears_of_tools: "tides_low_water",
            models: [(Some("mock"), "mock-1"), (Some("mock"), "mock-2")],
            switches: false,
            mode: None,
            beside: None,
            // For more than a minute, and no setting stops it.
            tries_again: &[429, 500],
            refusal_lasts: None,
            patience: HEAVY,
        };
        super::installed("opencode", configure, can)
    }

    fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
        // Of models that it doesn't know it has to be told what they take.
        let takes = |name: &str| {
            let kinds = json!({"input": ["text", "image"], "output": ["text"]});
            json!({"name": name, "attachment": true, "modalities": kinds})
        };
        let mock: Value = json!({
            "npm": "@ai-sdk/openai-compatible",
            "name": "mock",
            "options": {"baseURL": model.url, "apiKey": "none"},
            "models": {"mock-1": takes("mock-1"), "mock-2": takes("mock-2")},
        });
        let settings = json!({
            "autoupdate": false,
            // A prompt that is too long would be shortened by a model call of its own.
            "compaction": {"auto": false},
            "share": "disabled",
            // Without these it would pick a hosted model by itself.
            "enabled_providers": ["mock"],
            "model": "mock/mock-1",
            "small_model": "mock/mock-1",
            "permission": {"bash": "ask", "edit": "ask", "external_directory": "allow"},
            "provider": {"mock": mock},
        });
        let home = home(
            place,
            ".config/opencode/opencode.json",
            &settings.to_string(),
        );
        let env = [
            ("HOME", home.to_str().unwrap()),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ];
        let table = table(&driven.program, &["acp"], "mock-1", &env);
        format!("{table}provider = \"mock\"\n")
    }

    suite!();
}

mod hermes {
    use super::*;

    fn installed() -> Vec<Driven> {
        let can = Can {
            turns: Turns::InOneProcess,
            tool: Some("execute"),
            asks: Asks::Before("rm -rf"),
            denied: "BLOCKED: User denied",
            errors: &[],
            overflow: None,
            keeps_young: true,
            told: &[
                ("error=401", "mock error 401"),
                ("error=429", "mock error 429"),
                ("error=500", "mock error 500"),
                ("overflow", "Context length exceeded"),
            ],
            stops: &[("[[full]]", "end_turn"), ("[[refuse=finish]]", "end_turn")],
            attached: &["pixel.png"],
            hears_of_tools: "tides_low_water",
            models: [(Some("custom"), "mock-1"), (Some("custom"), "mock-2")],
            switches: false,
            mode: None,
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: HEAVY,
        };
        super::installed("hermes", configure, can)
    }

    fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
        let settings = format!(
            "model:\n  default: mock-1\n  provider: custom\n  base_url: {}\n  api_key: none\n",
            model.url
        );
        let home = home(place, "config.yaml", &settings);
        let home = home.to_str().unwrap();
        let env = [("HOME", home), ("HERMES_HOME", home)];
        table(&driven.program, &["acp"], "mock-1", &env)
    }

    suite!();
}

mod claude_agent {
    use super::*;

    fn installed() -> Vec<Driven> {
        let can = Can {
            turns: Turns::InOneProcess,
            tool: Some("execute"),
            asks: Asks::Always,
            denied: "User refused permission",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[
                ("[[full]] [[always]]", "agent-failed"),
                ("[[refuse=finish]] [[always]]", "refusal"),
            ],
            attached: &["pixel.png", "notes.txt"],
            hears_of_tools: "tides_low_water",
            // It offers what Claude Code knows by itself.
            models: [(None, "sonnet"), (None, "haiku")],
            switches: false,
            mode: None,
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: HEAVY,
        };
        super::installed("claude-agent-acp", configure, can)
    }

    fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
        // It runs commands that only read without a question.
        let settings = json!({"permissions": {"ask": ["Bash"]}});
        let home = home(place, ".claude/settings.json", &settings.to_string());
        let env = [
            ("HOME", home.to_str().unwrap()),
            ("ANTHROPIC_BASE_URL", &model.base),
            ("ANTHROPIC_API_KEY", "none"),
            ("CLAUDE_CODE_MAX_RETRIES", "0"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
        ];
        table(&driven.program, &[], "sonnet", &env)
    }

    suite!();
}

mod codex_agent {
    use super::*;

    fn installed() -> Vec<Driven> {
        let can = Can {
            turns: Turns::InOneProcess,
            tool: Some("execute"),
            asks: Asks::Always,
            denied: r#""stop":"cancelled""#,
            // All else that a provider refuses is its answer.
            errors: &[(401, "agent-auth")],
            overflow: None,
            keeps_young: true,
            told: &[
                ("error=429", "429 Too Many Requests"),
                ("error=500", "temporary errors"),
            ],
            stops: &[("[[full]]", "end_turn"), ("[[refuse=finish]]", "end_turn")],
            attached: &["pixel.png", "notes.txt"],
            hears_of_tools: "harbour",
            // It offers what Codex knows by itself.
            models: [(None, "gpt-5.5"), (None, "gpt-6.1-sol")],
            switches: false,
            mode: None,
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: HEAVY,
        };
        super::installed("codex-acp", configure, can)
    }

    fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
        let config = crate::agents::codex::config(model);
        let config = format!("model_provider = \"mock\"{config}");
        let home = home(place, ".codex/config.toml", &config);
        // By itself it asks a model first.
        let env = [
            ("HOME", home.to_str().unwrap()),
            ("INITIAL_AGENT_MODE", "read-only"),
        ];
        table(&driven.program, &[], "gpt-5.5", &env)
    }

    suite!();
}
